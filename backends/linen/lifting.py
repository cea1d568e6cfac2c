"""`from_linen`: from a Linen module to a `Network`."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax

from ...core.errors import TriglotError, require
from ...core.network import Network, Statistic, Variables
from ...core.types import PyTree
from .. import calling, functional
from ..layers.describe import Words
from ..naming import normalize_separators
from ..streams import named_keys

FALLBACK = ("params",)  # the stream that Linen uses for one that is missing


def from_linen(
    module: Any,
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Wrap a Linen module as a `Network`.

    Args:
      module: a `flax.linen.Module`, called on a batch of observations `[B, ...]`. If it takes
        `train` (or `training`, `deterministic`, `use_running_average`), it gets that flag. In
        training it gets each stream of random numbers that it asks for by `make_rng` or `has_rng`,
        such as `dropout`: an only one has the key of `apply`, and several have one each, which is
        derived from that key and the stream's name.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` is the collection of that name, `state` holds every other collection.
      Integer parameters are kept in the state.

    Raises:
      MissingExtra: if Flax is not installed.
      TriglotError: if it is not a module, or fails on these observations.
    """
    linen = require("flax.linen", "flax")
    if not isinstance(module, linen.Module):
        description = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
        raise TriglotError(
            f"from_linen takes an instance of a flax.linen.Module, such as Mine(hidden=64); got "
            f"{description}."
        )
    shown = name or calling.display_name(module)
    streams: dict[frozenset[tuple[str, bool]], frozenset[str]] = {}  # by the switches of a call

    def init(key: jax.Array, *inputs: PyTree, **modes: bool) -> tuple[PyTree, PyTree]:
        state = dict(module.init(key, *inputs, **modes))
        return state.pop("params", {}), state

    def apply(
        variables: Variables, key: jax.Array | None, *inputs: PyTree, **modes: bool
    ) -> tuple[PyTree, PyTree]:
        collections = {"params": variables.params, **variables.state}
        mutable = list(variables.state) or False

        def call(rngs: Mapping[str, jax.Array] | None) -> PyTree:
            return module.apply(collections, *inputs, rngs=rngs, mutable=mutable, **modes)

        if key is None:
            returned = call(None)
        else:
            mode = frozenset(modes.items())
            if mode not in streams:
                streams[mode] = _streams_of(call, key)
            returned = call(named_keys(streams[mode], key, FALLBACK))
        return returned if mutable else (returned, variables.state)

    def place(context: Any) -> Words | None:
        return None if context.module.scope is None else tuple(context.module.path)

    return functional.lift(
        "linen",
        "Linen module",
        shown,
        calling.parameters(module),
        obs_spec,
        initial_carry,
        init=init,
        apply=apply,
        train_at_init=False,
        intercept=linen.intercept_methods,
        place=place,
        statistic=_statistic,
    )


def _statistic(path: Words) -> Statistic | None:
    """Describe a running statistic by its path in the collections."""
    layer, _, vector = path[-1].rpartition("/kernel/")
    if path[0] == "batch_stats" and layer and vector in ("u", "sigma"):  # of `nn.SpectralNorm`
        place = path[1:-1] if layer == "layer_instance" else (*path[1:-2], layer)
        return Statistic(normalize_separators("/".join((*place, vector))))
    is_known = path[0] == "batch_stats" and path[-1] in ("mean", "var")
    return Statistic(normalize_separators("/".join(path[1:]))) if is_known else None


def _streams_of(
    call: Callable[[Mapping[str, jax.Array]], PyTree], key: jax.Array
) -> frozenset[str]:
    """Return the names of the streams for which a module asks.

    A named stream matters: `nn.scan` and `nn.vmap` split by name, and what `split_rngs` says of
    `dropout` has no effect on the stream `params`, Linen's fallback for every other.

    Args:
      call: of the module, a function of its streams.
      key: of any value.
    """
    names: frozenset[str] = frozenset()
    while True:
        with _recording() as asked:
            jax.eval_shape(lambda names=names: call(named_keys(names, key, FALLBACK)))
        if asked <= names:  # now nothing asks for `params` only because another one is missing
            return frozenset(asked)
        names |= asked


_RECORDING = threading.RLock()  # the method belongs to the process


@contextmanager
def _recording() -> Iterator[set[str]]:
    """Record the names of the streams that are asked for; `make_rng` asks by `has_rng` too."""
    scope = require("flax.core", "flax").Scope
    asked: set[str] = set()
    with _RECORDING:
        has_rng = scope.has_rng

        def record(self: Any, name: str) -> bool:
            asked.add(name)
            return has_rng(self, name)

        scope.has_rng = record
        try:
            yield asked
        finally:
            scope.has_rng = has_rng
