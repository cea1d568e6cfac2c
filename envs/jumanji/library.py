"""jumanji's own environments: their names, options and time limits."""

import builtins
import inspect
import warnings
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import jax.numpy as jnp

from ...core.errors import require, user_error_context
from ..adapting import check_options, check_values
from .maze import MazeGenerator

DOWNLOADS = {"Sokoban-v0": "it downloads its levels in its constructor"}
_KEEPS_ITS_LIMIT = "SearchAndRescue"  # it is part of its task
_GENERATORS = {"Maze": MazeGenerator}  # instead of jumanji's
_NEVER = 2**31 - 1  # steps


def registered() -> set[str]:
    """Return the ids that can be made without options."""
    return _jumanji().registered_environments() - DOWNLOADS.keys()


def _jumanji() -> ModuleType:
    """Import jumanji without its change of matplotlib's backend in notebooks."""
    in_ipython = builtins.__dict__.pop("__IPYTHON__", None)
    try:
        with warnings.catch_warnings():
            # tqdm warns about a missing progress bar widget in notebooks.
            warnings.filterwarnings("ignore", message="IProgress not found")
            return require("jumanji", "jumanji")
    finally:
        if in_ipython is not None:
            builtins.__dict__["__IPYTHON__"] = in_ipython


def build(env_id: str, options: dict[str, Any], others: tuple[str, ...]) -> Any:
    """Make jumanji's environment.

    Args:
      env_id: jumanji's id.
      options: arguments of its constructor and of its generator.
      others: options that exist besides, for the message about an unknown one.

    Raises:
      TriglotError: if an option is unknown, its value of another type, or it cannot be built.
    """
    make_library = _jumanji().make
    env = make_library(env_id)
    generator = getattr(env, "generator", getattr(env, "_generator", None))
    make_generator = _GENERATORS.get(type(env).__name__, type(generator))
    of_env = inspect.signature(type(env)).parameters.keys() - {"viewer"}
    of_generator = {}
    if generator is not None and "generator" not in options:
        of_generator = inspect.signature(make_generator).parameters
    check_options(f"jumanji:{env_id}", options, {*others, *of_env, *of_generator})
    check_values(f"jumanji:{env_id}", options, _examples(env, generator, of_generator))
    shown = f"with {options}" if options else "without options"
    with user_error_context(f"jumanji:{env_id} cannot be built {shown}"):
        given = {n: options.pop(n) for n in of_generator if n in options}
        if "generator" not in options and (given or make_generator is not type(generator)):
            kept = ((n, vars(generator).get(n, vars(generator).get(f"_{n}"))) for n in of_generator)
            given = {**{n: value for n, value in kept if value is not None}, **given}
            options["generator"] = make_generator(**given)
        return make_library(env_id, **options) if options else env


def _examples(env: Any, generator: Any, of_generator: Mapping[str, Any]) -> dict[str, Any]:
    """Collect a value of each option: of the default environment, or by its annotation."""
    examples = {}
    parameters = {**inspect.signature(type(env)).parameters, **of_generator}
    for name, parameter in parameters.items():
        owner = vars(generator if name in of_generator else env)
        kept = owner.get(name, owner.get(f"_{name}"))
        by_type = 1 if parameter.annotation in (int, jnp.int32) else None
        examples[name] = by_type if kept is None else kept
    return examples


def without_time_limit(env: Any) -> int | None:
    """Disable the time limit, so that jumanji's LAST marks the task's end only, and return it."""
    limit = getattr(env, "time_limit", None)
    if limit is None or type(env).__name__ == _KEEPS_ITS_LIMIT:
        return None
    env.time_limit = _NEVER
    return limit
