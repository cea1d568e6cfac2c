"""One network at its weights, and the programs that are measured."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.extend import core as jex
from jax.interpreters import partial_eval

from ...backends.canonical import with_arithmetic
from ...core.network import Variables
from ...core.types import PyTree
from .. import host
from ..types import Side, codec_of
from .compiling import quick_jit

_Result = TypeVar("_Result")

OPTIMIZER = optax.adam(1e-3)
Arrays: TypeAlias = dict[str, jax.Array]


@dataclass(frozen=True, kw_only=True, eq=False)
class Subject(Side):
    """One network with its weights, its inputs and its compiled programs.

    Attributes:
      batches: the inputs by batch size.
      outputs: the name of each output that both networks share, and the index of its leaf here.
      targets: the arrays with which the loss compares these outputs.
      compiled: whether its programs are compiled; otherwise they are evaluated operation by
        operation, up to rounding.
    """

    batches: Mapping[int, PyTree]
    outputs: tuple[tuple[str, int], ...]
    targets: tuple[np.ndarray, ...]
    compiled: bool = True

    @property
    def example(self) -> PyTree:
        """The smallest batch."""
        return self.batches[min(self.batches)]

    @property
    def inputs(self) -> PyTree:
        """The largest batch."""
        return self.batches[max(self.batches)]

    def canonical(self) -> "Subject":
        """Return it in canonical arithmetic.

        Raises:
          TriglotError: if the network has none.
        """
        network = with_arithmetic(self.network, "canonical")
        params = codec_of(self.network).encode(self.variables.params)
        variables = Variables(params=params, state=self.variables.state)
        return replace(self, network=network, variables=variables)

    def in_double(self, *, compiled: bool = True) -> "Subject":
        """Return it with float64 weights and inputs; call it where x64 is enabled."""
        variables, batches = to_double((self.variables, dict(self.batches)))
        return replace(self, variables=variables, batches=batches, compiled=compiled)

    def apply(
        self, variables: Variables, inputs: PyTree, key: jax.Array, train: bool
    ) -> tuple[Arrays, PyTree]:
        """Return the outputs by their shared names, and the state."""
        outputs, state = self.network.apply(
            variables, inputs, key=key if train else None, train=train
        )
        leaves = jax.tree.leaves(outputs)
        return {name: leaves[index] for name, index in self.outputs}, state

    def trace(self, key: jax.Array, train: bool, *, wide: bool = False) -> jex.Jaxpr:
        """Trace a call, `wide` with float64 arguments, and keep what its results depend on."""
        arguments = self.variables, self.example
        if wide:
            arguments = jax.eval_shape(lambda tree: jax.tree.map(_to_float64, tree), arguments)
        jaxpr = jax.make_jaxpr(lambda v, i, k: self.apply(v, i, k, train))(*arguments, key).jaxpr
        return partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)[0]

    def same_program(self, key: jax.Array) -> bool:
        """Return whether training and evaluation trace to the same program."""
        texts = [str(self.trace(key, train)) for train in (True, False)]
        addresses = re.compile(r"0x[0-9a-f]+")  # of functions in rules of differentiation
        return addresses.sub("", texts[0]) == addresses.sub("", texts[1])

    def is_random(self, key: jax.Array) -> bool:
        """Return whether outputs or state depend on the key in training."""
        arguments = self.variables, self.example, key
        jaxpr = jax.make_jaxpr(lambda v, i, k: self.apply(v, i, k, True))(*arguments).jaxpr
        _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))  # in loops too
        return used[-1]

    @cached_property
    def forward(self) -> Callable[..., tuple[Arrays, PyTree]]:
        """The call; `train` is static."""
        return self._program(self.apply)

    @cached_property
    def step(self) -> Callable[..., dict[str, PyTree]]:
        """The optimizer step; `train` is static.

        `step(variables, opt_state, inputs, key, train)` returns the outputs, the variables and the
        optimizer's state after the step, and the gradients by shared name. Without `opt_state`, it
        returns the outputs and the gradients.
        """

        def step(
            variables: Variables, opt_state: PyTree, inputs: PyTree, key: jax.Array, train: bool
        ) -> dict[str, PyTree]:
            def loss(params: PyTree) -> tuple[jax.Array, tuple[Arrays, PyTree]]:
                at_params = Variables(params=params, state=variables.state)
                outputs, state = self.apply(at_params, inputs, key, train)
                return loss_of(outputs, self.targets), (outputs, state)

            value_and_grad = self.network.value_and_grad(loss)
            (_, (outputs, state)), gradients = value_and_grad(variables.params)
            results = {"outputs": outputs, "gradients": self.named_gradients(gradients)}
            if opt_state is None:
                return results
            # optax.adam raises a float to an integer count, which strict promotion rejects.
            with jax.numpy_dtype_promotion("standard"):
                updates, new_opt_state = OPTIMIZER.update(gradients, opt_state, variables.params)
            params = optax.apply_updates(variables.params, updates)
            return {
                **results,
                "variables": Variables(params=params, state=state),
                "opt_state": new_opt_state,
            }

        return self._program(step)

    def _program(self, function: Callable[..., _Result]) -> Callable[..., _Result]:
        """Make a program of a function whose last argument is static."""
        if self.compiled:
            return quick_jit(
                function, static_argnums=len(inspect.signature(function).parameters) - 1
            )
        return lambda *arguments: host.call(
            lambda *traced: function(*traced, arguments[-1]), *arguments[:-1], exact=False
        )

    @property
    def display_names(self) -> dict[str, str]:
        """Names of the paired parameters as the author knows them, by their shared names."""
        display_names = codec_of(self.network).display_names
        return {name: display_names[canonical] for name, canonical in self.names.items()}

    def encode(self, params: PyTree) -> Arrays:
        """Return the paired parameters by their shared names, without compiling anything."""
        return host.call(self.by_shared_name, params)

    def by_shared_name(self, params: PyTree) -> Arrays:
        """Return the paired parameters by their shared names."""
        encoded = codec_of(self.network).encode(params)
        return {name: encoded[canonical] for name, canonical in self.names.items()}

    def named_gradients(self, gradients: PyTree) -> Arrays:
        """Return the gradients of the paired parameters by their shared names."""
        # A layout may add a constant to a parameter, but not to its gradient.
        encoded = self.by_shared_name(gradients)
        offsets = self.by_shared_name(jax.tree.map(jnp.zeros_like, gradients))
        return {name: encoded[name] - offsets[name] for name in encoded}


Subjects: TypeAlias = tuple[Subject, Subject]


def loss_of(outputs: Arrays, targets: tuple[np.ndarray, ...]) -> jax.Array:
    """Return the mean squared distance from fixed targets, summed over the outputs."""
    total = jnp.zeros((), jnp.result_type(float))
    for output, target in zip(outputs.values(), targets, strict=True):
        if jnp.issubdtype(output.dtype, jnp.floating):
            distance = output.astype(total.dtype) - jnp.asarray(target, total.dtype)
            total = total + jnp.mean(distance**2)
    return total


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Compute in float64, with networks whose own constants may be float32."""
    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        yield


def _to_float64(leaf: jax.Array) -> jax.Array:
    is_floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jnp.asarray(leaf, jnp.float64) if is_floating else leaf


def to_double(tree: PyTree) -> PyTree:
    """Convert the floating-point leaves of a pytree to float64."""

    def convert(leaf: jax.Array) -> jax.Array:
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.asarray(np.asarray(leaf).astype(np.float64))

    return jax.tree.map(convert, tree)
