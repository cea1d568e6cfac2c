"""The only place that takes gradients, so that no algorithm names a library."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax

from .errors import TriglotError
from .network import Network, Variables
from .numerics import divide_or_nan
from .tracing.hoist import draw_ahead

PyTree: TypeAlias = Any
Metrics: TypeAlias = dict[str, jax.Array]
Number: TypeAlias = float | jax.Array  # a hyperparameter: float32 [] once a state holds it
Loss: TypeAlias = Callable[[Variables, Any, jax.Array], tuple[jax.Array, tuple[Metrics, PyTree]]]


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class LearnerState:
    """A network's variables and its optimizer's state."""

    variables: Variables
    opt_state: PyTree


@dataclass(frozen=True)
class Learner:
    """A network and an optax transformation.

    To change the optimizer's numbers while it runs, or under `vmap`, build it with
    `optax.inject_hyperparams` and give `step` the numbers.
    """

    network: Network
    optimizer: optax.GradientTransformation

    def init(self, key: jax.Array) -> LearnerState:
        """Make the variables and the optimizer's state."""
        variables = self.network.init(key)
        return LearnerState(variables=variables, opt_state=self.optimizer.init(variables.params))

    def step(
        self,
        state: LearnerState,
        loss: Loss,
        batch: Any,
        key: jax.Array,
        hyperparams: Mapping[str, Number] | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Take one gradient step.

        Args:
          state: where it stands.
          loss: `loss(variables, batch, key) -> (scalar, (metrics, new_state))`; it may call
            `network.apply` as often as it likes, and returns the network state to keep.
          batch: passed to `loss`; target parameters travel here.
          key: passed to `loss`.
          hyperparams: values for an optimizer made by `optax.inject_hyperparams`.

        Returns:
          The next state, and the loss's metrics with `loss` and `grad_norm` (before any clipping).

        Raises:
          TriglotError: if `hyperparams` are given and the optimizer does not take them.
        """
        variables = state.variables

        def objective(params: PyTree) -> tuple[jax.Array, tuple[Metrics, PyTree]]:
            return loss(Variables(params=params, state=variables.state), batch, key)

        value_and_grad = self.network.value_and_grad(objective)
        (value, (metrics, new_state)), grads = value_and_grad(variables.params)
        opt_state = _set_hyperparams(state.opt_state, hyperparams)
        # optax.adam raises a float to an integer count, which strict settings refuse.
        with jax.numpy_dtype_promotion("standard"):
            updates, opt_state = self.optimizer.update(grads, opt_state, variables.params)
        params = optax.apply_updates(variables.params, updates)
        return (
            LearnerState(variables=Variables(params=params, state=new_state), opt_state=opt_state),
            {**metrics, "loss": value, "grad_norm": optax.tree.norm(grads)},
        )

    def step_on_outputs(
        self,
        state: LearnerState,
        inputs: PyTree,
        loss: Callable[[PyTree, Any], tuple[jax.Array, Metrics]],
        batch: Any,
        key: jax.Array,
        hyperparams: Mapping[str, Number] | None = None,
    ) -> tuple[LearnerState, Metrics]:
        """Take one gradient step on a loss of the network's outputs for `inputs` alone.

        Of a network that declares `scatter_add`, only the entries looked up are touched, as long as
        the optimizer keeps no memory of single parameters and scales each gradient on its own, as
        `optax.sgd` does. The result is that of `step`, up to rounding where a batch looks one entry
        up several times; only `grad_norm` then takes each as an entry of its own.

        Args:
          state, key, hyperparams: as in `step`.
          inputs: what the network reads.
          loss: `loss(outputs, batch) -> (scalar, metrics)`.
          batch: passed to `loss`.

        Returns:
          As `step` does.
        """
        variables, network = state.variables, self.network

        def whole(variables: Variables, batch: Any, key: jax.Array) -> Any:
            outputs, new_state = network.apply(variables, inputs, key=key, train=True)
            value, metrics = loss(outputs, batch)
            return value, (metrics, new_state)

        remembers = any(leaf.ndim for leaf in jax.tree.leaves(state.opt_state))
        if network.scatter_add is None or remembers:
            return self.step(state, whole, batch, key, hyperparams)
        outputs, new_state = network.apply(variables, inputs, key=key, train=True)
        (value, metrics), grads = jax.value_and_grad(loss, has_aux=True)(outputs, batch)
        opt_state = _set_hyperparams(state.opt_state, hyperparams)
        with jax.numpy_dtype_promotion("standard"):
            changes, opt_state = self.optimizer.update(grads, opt_state)
        params = network.scatter_add(variables.params, inputs, changes)
        return (
            LearnerState(variables=Variables(params=params, state=new_state), opt_state=opt_state),
            {**metrics, "loss": value, "grad_norm": optax.tree.norm(grads)},
        )


def steps_if_ready(
    ready: jax.Array,
    step: Callable[[PyTree, PyTree], tuple[PyTree, Metrics]],
    state: PyTree,
    inputs: PyTree,
) -> tuple[PyTree, Metrics]:
    """Take several steps where it is time, as it is once a replay holds enough.

    Args:
      ready: bool `[]`.
      step: `step(state, input) -> (state, metrics)`.
      state: of an agent.
      inputs: `[K, ...]`, such as a key for each step; what depends on them alone, such as random
        numbers, is computed whether it is time or not.

    Returns:
      The state after the steps, with their average metrics; or the state as it is, with NaN.
    """
    # Outside of the condition, so that a training may draw for many updates at once.
    drawn, body = draw_ahead(step, state, inputs)

    def go(state: PyTree) -> tuple[PyTree, Metrics]:
        state, metrics = jax.lax.scan(body, state, drawn)
        return state, jax.tree.map(jnp.mean, metrics)

    def wait(state: PyTree) -> tuple[PyTree, Metrics]:
        _, metrics = jax.eval_shape(go, state)
        zero = jnp.zeros((), jnp.float32)
        return state, jax.tree.map(lambda _: divide_or_nan(zero, zero), metrics)

    return jax.lax.cond(ready, go, wait, state)


def _set_hyperparams(opt_state: Any, hyperparams: Mapping[str, Number] | None) -> Any:
    if not hyperparams:
        return opt_state
    current = getattr(opt_state, "hyperparams", {})
    missing = sorted(set(hyperparams) - set(current))
    if missing:
        raise TriglotError(
            f"the optimizer has no hyperparameter {missing[0]!r} to set (it has "
            f"{sorted(current)}): build it with optax.inject_hyperparams."
        )
    given = {name: jnp.asarray(value, jnp.float32) for name, value in hyperparams.items()}
    return opt_state._replace(hyperparams={**current, **given})
