"""`from_linen`: from a Linen module to a `Network`."""

from typing import Any

import jax

from ...core.errors import TriglotError, require
from ...core.network import Network, Statistic, Variables
from ...core.types import PyTree
from .. import calling, functional
from ..layers.describe import Words
from ..naming import normalize_separators


def from_linen(
    module: Any,
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Lift a Linen module to a `Network`.

    Args:
      module: a `flax.linen.Module`, called on a batch of observations `[B, ...]`. If it takes
        `train` (or `training`, `deterministic`, `use_running_average`), it gets that flag;
        `make_rng` of any name works in training.
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
        given = f"the class {module.__name__}" if isinstance(module, type) else repr(module)
        raise TriglotError(
            f"from_linen takes an instance of a flax.linen.Module, such as Mine(hidden=64); got "
            f"{given}."
        )
    shown = name or calling.display_name(module)

    def init(key: jax.Array, *inputs: PyTree, **modes: bool) -> tuple[PyTree, PyTree]:
        state = dict(module.init(key, *inputs, **modes))
        return state.pop("params", {}), state

    def apply(
        variables: Variables, key: jax.Array | None, *inputs: PyTree, **modes: bool
    ) -> tuple[PyTree, PyTree]:
        collections = {"params": variables.params, **variables.state}
        # A single key is Linen's fallback for every stream.
        if not variables.state:
            return module.apply(collections, *inputs, rngs=key, **modes), variables.state
        mutable = list(variables.state)
        return module.apply(collections, *inputs, rngs=key, mutable=mutable, **modes)

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
    is_known = path[0] == "batch_stats" and path[-1] in ("mean", "var")
    return Statistic(normalize_separators("/".join(path[1:]))) if is_known else None
