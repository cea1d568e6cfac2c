"""Gradient steps: the one place that takes gradients, so that no algorithm names a library."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

import jax
import jax.numpy as jnp
import optax

from .network import Network, Variables, check_network
from .numerics import divide_or_nan
from .rl.optimizers import OptimizerFn, check_optimizer
from .tracing.hoist import draw_ahead, num_rows
from .types import (
    AnyHyperparams,
    Metrics,
    OptState,
    Params,
    PyTree,
    as_key,
    pytree_dataclass,
)


class Loss(Protocol):
    """A loss: a function of a network's variables, a batch and a key."""

    def __call__(
        self, variables: Variables, batch: PyTree, key: jax.Array, /
    ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
        """Compute the scalar, its metrics and the network's new state."""
        ...


_OBSERVED: ContextVar[Callable[[Loss], Loss] | None] = ContextVar("observed", default=None)


@contextmanager
def observing(observed: Callable[[Loss], Loss]) -> Iterator[None]:
    """Replace each loss of `Learner.step` by `observed(loss)` in what is traced meanwhile."""
    token = _OBSERVED.set(observed)
    try:
        yield
    finally:
        _OBSERVED.reset(token)


@pytree_dataclass
class LearnerState:
    """A network's variables and its optimizer's state.

    Attributes:
      variables: of the network.
      opt_state: of the optimizer.
      num_gradient_steps: int32 `[]`, gradient steps so far, with those that were left out.
    """

    variables: Variables
    opt_state: OptState
    num_gradient_steps: jax.Array


@dataclass(frozen=True)
class Learner:
    """A network and its optimizer.

    Attributes:
      network: any network.
      optimizer: `hyper -> optax.GradientTransformation`; called inside each step with the traced
        hyperparameters, so that a schedule or a sweep changes them without compiling again.
    """

    network: Network
    optimizer: OptimizerFn

    def init(self, key: jax.Array, hyper: AnyHyperparams = None) -> LearnerState:
        """Initialize the variables and the optimizer's state."""
        check_network("Learner's network", self.network)
        return self.start(self.network.init(as_key(key)), hyper)

    def start(self, variables: Variables, hyper: AnyHyperparams = None) -> LearnerState:
        """Start from given variables."""
        check_optimizer("Learner", self.optimizer, hyper)
        opt_state, zero = self.optimizer(hyper).init(variables.params), jnp.zeros((), jnp.int32)
        return LearnerState(variables=variables, opt_state=opt_state, num_gradient_steps=zero)

    def step(
        self,
        state: LearnerState,
        loss: Loss,
        batch: PyTree,
        key: jax.Array,
        hyper: AnyHyperparams = None,
    ) -> tuple[LearnerState, Metrics]:
        """Take one gradient step.

        Args:
          state: of this learner.
          loss: `loss(variables, batch, key) -> (scalar, (metrics, new_state))`; it may call
            `network.apply` any number of times, and returns the network state to keep.
          batch: passed to `loss`; target parameters travel here.
          key: passed to `loss`.
          hyper: passed to the optimizer, with a scheduled `learning_rate` filled in.

        Returns:
          The next state, and the loss's metrics with `loss` and `grad_norm` (before any clipping).
        """
        variables = state.variables
        observed = _OBSERVED.get()
        loss = loss if observed is None else observed(loss)

        def objective(params: PyTree) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
            return loss(Variables(params=params, state=variables.state), batch, key)

        value_and_grad = self.network.value_and_grad(objective)
        (value, (metrics, new_state)), grads = value_and_grad(variables.params)
        updates, opt_state = self._transform(grads, state, hyper, variables.params)
        params = optax.apply_updates(variables.params, updates)
        after = _stepped(state, params, new_state, opt_state)
        return after, {**metrics, "loss": value, "grad_norm": optax.tree.norm(grads)}

    def step_on_outputs(
        self,
        state: LearnerState,
        inputs: PyTree,
        loss: Callable[[PyTree, PyTree], tuple[jax.Array, Metrics]],
        batch: PyTree,
        key: jax.Array,
        hyper: AnyHyperparams = None,
    ) -> tuple[LearnerState, Metrics]:
        """Take one gradient step on a loss of the network's outputs for `inputs` alone.

        For a network that declares `scatter_add`, only the entries looked up are touched, as long
        as the optimizer keeps no state per parameter and scales each gradient on its own, as
        `optax.sgd` does. The result is that of `step`, up to rounding where a batch looks one entry
        up several times; only `grad_norm` then counts each lookup as an entry of its own.

        Args:
          state, key, hyper: as in `step`.
          inputs: the network's inputs.
          loss: `loss(outputs, batch) -> (scalar, metrics)`.
          batch: passed to `loss`.

        Returns:
          As `step` does.
        """
        variables, network = state.variables, self.network

        def whole(
            variables: Variables, batch: PyTree, key: jax.Array
        ) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
            outputs, new_state = network.apply(variables, inputs, key=key, train=True)
            value, metrics = loss(outputs, batch)
            return value, (metrics, new_state)

        per_parameter = any(leaf.ndim for leaf in jax.tree.leaves(state.opt_state))
        if network.scatter_add is None or per_parameter:
            return self.step(state, whole, batch, key, hyper)
        outputs, new_state = network.apply(variables, inputs, key=key, train=True)
        (value, metrics), grads = jax.value_and_grad(loss, has_aux=True)(outputs, batch)
        changes, opt_state = self._transform(grads, state, hyper)
        params = network.scatter_add(variables.params, inputs, changes)
        after = _stepped(state, params, new_state, opt_state)
        return after, {**metrics, "loss": value, "grad_norm": optax.tree.norm(grads)}

    def _transform(
        self, grads: PyTree, state: LearnerState, hyper: AnyHyperparams, params: Params = None
    ) -> tuple[PyTree, PyTree]:
        optimizer, opt_state = self.optimizer(hyper), state.opt_state
        # optax.adam raises a float to an integer count, which strict promotion rejects.
        with jax.numpy_dtype_promotion("standard"):
            return optimizer.update(grads, opt_state, params)


def _stepped(
    state: LearnerState, params: PyTree, network_state: PyTree, opt_state: PyTree
) -> LearnerState:
    variables = Variables(params=params, state=network_state)
    number = state.num_gradient_steps + 1
    return LearnerState(variables=variables, opt_state=opt_state, num_gradient_steps=number)


def leave_out(left: jax.Array, before: PyTree, after: PyTree) -> PyTree:
    """Return the state `before` a step where it is `left` out, otherwise the one `after` it.

    The count of gradient steps goes on, so that schedules over updates keep their length.

    Args:
      left: bool `[]`.
      before, after: pytrees with any number of `LearnerState`.
    """

    def chosen(old: PyTree, new: PyTree) -> PyTree:
        kept = jax.tree.map(lambda a, b: jnp.where(left, a, b), old, new)
        if isinstance(new, LearnerState):
            return replace(kept, num_gradient_steps=new.num_gradient_steps)
        return kept

    return jax.tree.map(chosen, before, after, is_leaf=lambda x: isinstance(x, LearnerState))


def steps_if_ready(
    ready: jax.Array,
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]],
    state: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, Metrics]:
    """Run `K` steps if `ready`, as once a replay holds enough.

    Args:
      ready: bool `[]`.
      step: `step(state, input) -> (state, metrics)`.
      state: of an agent.
      inputs: `[K, ...]`, such as a key for each step; what depends on them alone, such as random
        draws, is computed whether `ready` or not.

    Returns:
      The state after the steps with their average metrics; otherwise the given state, with NaN.
    """
    # Outside of the condition, so that the draws of many updates can be batched.
    drawn, body = draw_ahead(step, state, inputs)

    def go(state: PyTree) -> tuple[PyTree, Metrics]:
        state, metrics = jax.lax.scan(body, state, drawn, length=num_rows(inputs))
        return state, jax.tree.map(jnp.mean, metrics)

    def wait(state: PyTree) -> tuple[PyTree, Metrics]:
        _, metrics = jax.eval_shape(go, state)
        zero = jnp.zeros((), jnp.float32)
        return state, jax.tree.map(lambda _: divide_or_nan(zero, zero), metrics)

    return jax.lax.cond(ready, go, wait, state)
