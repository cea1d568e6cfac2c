"""Record what networks read and return, while an agent acts and while it learns."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from ...core.learner import Loss, observing
from ...core.network import Network, Variables
from ...core.types import Carry, Key, PyTree, by_path, pytree_dataclass
from .differences import Difference, with_differences

ACT, NEXT, LEARN = "act", "next", "learn"
STEP = 3.0  # by which outputs of forbidden actions are changed
MAX_CHANGED = 512  # inputs whose forbidden actions are changed at once


@dataclass(frozen=True)
class Application:
    """One application of a network to a batch.

    Attributes:
      phase: `act`, `next` (acting on the true successors, for comparison) or `learn`.
      part: its name in a combination; "" for the whole network.
      site: number of the application in the program of its phase.
      inputs: the observations as the network reads them, float32 `[B, D]`.
      carry: float32 `[B, C]`; None of networks that are not recurrent.
      outputs: `[B, ...]` by path, without the carry.
    """

    phase: str
    part: str
    site: int
    inputs: np.ndarray
    carry: np.ndarray | None
    outputs: dict[str, np.ndarray]


@pytree_dataclass
class Forbidden:
    """Actions whose outputs are changed, for inputs of `D` numbers.

    Attributes:
      inputs: float32 `[M, D]`.
      actions: bool `[M, A]`, True where forbidden.
      active: bool `[M]`; False changes nothing.
    """

    inputs: jax.Array
    actions: jax.Array
    active: jax.Array

    @classmethod
    def of(cls, inputs: np.ndarray, actions: np.ndarray) -> "Forbidden":
        """Fill a table of `M` = `MAX_CHANGED` rows with at most as many rows."""

        def padded(rows: np.ndarray) -> jax.Array:
            rest = np.zeros((MAX_CHANGED - len(rows), *rows.shape[1:]), rows.dtype)
            return jnp.asarray(np.concatenate([rows, rest]))

        active = np.ones(len(inputs), bool)
        return cls(inputs=padded(inputs), actions=padded(actions), active=padded(active))


class Recorder:
    """Wraps networks and losses so that what they compute arrives on the host.

    Attributes:
      applications, differences: what arrived since `listen`.
    """

    def __init__(self) -> None:
        self.applications: list[Application] = []
        self.differences: list[Difference] = []
        self._listening = False
        self._phase: str | None = None
        self._sites = 0
        self._forbidden: Forbidden | None = None

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Collect what arrives meanwhile; what arrived before is forgotten."""
        self.applications, self.differences = [], []
        self._listening = True
        try:
            yield
            jax.effects_barrier()
        finally:
            self._listening = False

    @contextmanager
    def phase(self, name: str, forbidden: Forbidden | None = None) -> Iterator[None]:
        """Record what is traced meanwhile as of this phase."""
        before = self._phase, self._sites, self._forbidden
        self._phase, self._sites, self._forbidden = name, 0, forbidden
        try:
            with observing(self._observed):
                yield
        finally:
            self._phase, self._sites, self._forbidden = before

    def network(self, network: Network) -> Network:
        """Wrap a network and its parts."""
        parts = {name: self._wrapped(part, name) for name, part in network.parts.items()}
        return replace(self._wrapped(network, ""), parts=parts)

    def _wrapped(self, network: Network, name: str) -> Network:
        def apply(
            variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
        ) -> tuple[PyTree, PyTree]:
            returned, state = network.apply(variables, inputs, key=key, train=train)
            if self._phase is None:
                return returned, state
            observed, carry = split(inputs, network.recurrent)
            outputs = returned[0] if network.recurrent else returned
            outputs = self._changed(observed, outputs)
            store = partial(self._store, self._phase, name, self._sites)
            self._sites += 1
            jax.debug.callback(store, observed, carry, by_path(outputs))
            return (outputs, returned[1]) if network.recurrent else outputs, state

        return replace(network, apply=apply, scatter_add=None)

    def _store(
        self,
        phase: str,
        part: str,
        site: int,
        inputs: jax.Array,
        carry: Carry,
        out: dict[str, jax.Array],
    ) -> None:
        if self._listening:
            numbers = {path: np.asarray(leaf) for path, leaf in out.items()}
            carry = None if carry is None else np.asarray(carry)
            application = Application(phase, part, site, np.asarray(inputs), carry, numbers)
            self.applications.append(application)

    def _changed(self, observed: jax.Array, outputs: PyTree) -> PyTree:
        forbidden = self._forbidden
        if forbidden is None or forbidden.inputs.shape[-1] != observed.shape[-1]:
            return outputs
        return jax.tree.map(partial(_change, rows_forbidden(forbidden, observed)), outputs)

    def _observed(self, loss: Loss) -> Loss:
        if self._phase != LEARN:
            return loss

        def emit(build: Callable[..., Difference], *arrays: jax.Array) -> None:
            jax.debug.callback(partial(self._differ, build), *arrays)

        return with_differences(loss, emit)

    def _differ(self, build: Callable[..., Difference], *arrays: jax.Array) -> None:
        if self._listening:
            self.differences.append(build(*map(np.asarray, arrays)))


def split(inputs: PyTree, recurrent: bool) -> tuple[jax.Array, jax.Array | None]:
    """Separate observations `[B, D]` from the carry `[B, C]`, or from what else a network reads."""
    if not isinstance(inputs, tuple):
        return rows_of(inputs), None
    return rows_of(inputs[0]), rows_of(inputs[1]) if recurrent else None


def rows_of(tree: PyTree) -> jax.Array:
    """Join the leaves `[B, ...]` of a tree: float32 `[B, D]`."""
    leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return jnp.concatenate(
        [leaf.astype(jnp.float32).reshape(leaf.shape[0], -1) for leaf in leaves], axis=-1
    )


def rows_forbidden(forbidden: Forbidden, observed: jax.Array) -> jax.Array:
    """Look up the forbidden actions of inputs `[B, D]`, bool `[B, A]`."""
    distance = jnp.max(jnp.abs(observed[:, None] - forbidden.inputs[None]), axis=-1)
    distance = jnp.where(forbidden.active[None], distance, jnp.inf)
    nearest = jnp.argmin(distance, axis=-1)
    scale = jnp.maximum(1.0, jnp.max(jnp.abs(observed), axis=-1))
    known = jnp.take_along_axis(distance, nearest[:, None], axis=-1)[:, 0] <= 1e-5 * scale
    return forbidden.actions[nearest] & known[:, None]


def _change(rows: jax.Array, leaf: jax.Array) -> jax.Array:
    """Change the outputs of forbidden actions, where an output has a number for each action."""
    size, count = rows.shape
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    for before in range(leaf.ndim - 1):  # the axes of an ensemble come first
        if leaf.shape[before : before + 2] == (size, count):
            axes = (1,) * (leaf.ndim - before - 2)
            change = jnp.asarray(STEP, leaf.dtype)
            if axes:  # a distribution: another one, not the same up to a constant
                change = change * jnp.linspace(0.5, 1.5, leaf.shape[-1], dtype=leaf.dtype)
            rows = jnp.broadcast_to(rows.reshape((1,) * before + rows.shape + axes), leaf.shape)
            return jnp.where(rows, leaf + jnp.broadcast_to(change, leaf.shape), leaf)
    return leaf
