"""`from_haiku`: from a Haiku function or module to a `Network`."""

from collections.abc import Callable
from typing import Any, cast

import jax

from ...core.errors import TriglotError, kind_of, require
from ...core.network import Network, Statistic, Variables
from ...core.types import PyTree
from .. import calling, functional
from ..layers.describe import Words
from ..naming import normalize_separators


def from_haiku(
    function: Any,
    obs_spec: calling.Inputs,
    *,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
) -> Network:
    """Wrap a Haiku function or module as a `Network`.

    Args:
      function: a function that builds modules and applies them to a batch of observations
        `[B, ...]`; a subclass of `hk.Module` with a constructor without arguments; or the result
        of `hk.transform` or `hk.transform_with_state`. If it takes `is_training` (or `train`, or
        `deterministic`), it gets that flag; `hk.next_rng_key()` works in training.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      initial_carry: for a recurrent function `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` and `state` are Haiku's own dictionaries. Integer parameters are kept in
      the state.

    Raises:
      MissingExtra: if Haiku is not installed.
      TriglotError: if the function fails on these observations.
    """
    hk = require("haiku", "haiku")
    kinds = (hk.Transformed, hk.TransformedWithState)
    if not isinstance(function, kinds) and not callable(function):
        raise TriglotError(
            "from_haiku takes a function that calls modules, a class of hk.Module, or what "
            f"hk.transform returns; got {kind_of(function)}."
        )
    shown = name or calling.display_name(function)
    names = calling.parameters(function)
    if isinstance(function, type) and issubclass(function, hk.Module):
        names, function = calling.method_parameters(function, "__call__"), _constructing(function)
    if isinstance(function, hk.Transformed):
        function = hk.with_empty_state(function)
    if not isinstance(function, hk.TransformedWithState):
        function = hk.transform_with_state(function)
    transformed = cast(Any, function)

    def init(key: jax.Array, *inputs: PyTree, **modes: bool) -> tuple[PyTree, PyTree]:
        # hk.initializers.Orthogonal multiplies a matrix by a vector, an error in strict mode.
        with jax.numpy_rank_promotion("allow"):
            return transformed.init(key, *inputs, **modes)

    def apply(
        variables: Variables, key: jax.Array | None, *inputs: PyTree, **modes: bool
    ) -> tuple[PyTree, PyTree]:
        return transformed.apply(variables.params, variables.state, key, *inputs, **modes)

    def place(context: Any) -> Words | None:
        if context.method_name == "__init__":  # the module has no name yet
            return None
        return tuple(context.module.module_name.split("/"))

    return functional.lift(
        "haiku",
        "Haiku function",
        shown,
        names,
        obs_spec,
        initial_carry,
        init=init,
        apply=apply,
        train_at_init=True,  # hk.BatchNorm creates its running averages in training only
        intercept=hk.intercept_methods,
        place=place,
        statistic=_statistic,
        words=lambda path: (*path[0].key.split("/"), path[-1].key),
        # What `hk.lift` transforms, such as the body of `hk.layer_stack`, is named on its own.
        names_inside=lambda module: type(module).__name__ == "LiftingModule",
    )


def _statistic(path: Words) -> Statistic | None:
    """Describe a running statistic by its path in the state, `norm/~/mean_ema` and `average`.

    `average`, which evaluation reads, is `hidden` without its bias to the start.
    """
    if path[-1] in ("u0", "sigma"):  # of `hk.SpectralNorm`, which knows its input only
        return Statistic(normalize_separators(f"{path[0]}/{path[-1].removesuffix('0')}"))
    place, _, average = path[0].rpartition("/~/")
    if average not in ("mean_ema", "var_ema"):
        return None
    what = "count" if path[-1] == "counter" else average.removesuffix("_ema")
    return Statistic(normalize_separators(f"{place}/{what}"))


def _constructing(module: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """Wrap a module's class: Haiku requires modules to be built inside the transformed function."""
    return lambda *inputs, **modes: module()(*inputs, **modes)
