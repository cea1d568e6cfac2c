"""Check what a person passes to the functions of Python: agents, environments and whether they fit.

The command line calls the same checks, so that both say the same.
"""

import functools
from typing import Any

import jax
import numpy as np

from .agent import Agent
from .environment import Environment
from .errors import TriglotError, kind_of, shown
from .host_environment import HostEnvironment
from .options import has_options, option_values
from .specs import Box, Dict, Spec, short_pair
from .types import PyTree, abstract_key, by_path

_AGENT = (
    "init", "initial_carry", "act", "update", "obs_spec", "action_spec", "num_envs",
    "rollout_length", "name", "plans",
)  # fmt: skip
_SPECS = "a Box, Discrete, MultiDiscrete or Dict of triglot"


def check_env(env: object, what: str = "env") -> None:
    """Refuse what is not one environment of either kind, or cannot be hashed.

    Args:
      env: what was given.
      what: how messages call it.

    Raises:
      TriglotError: saying what was given and how to make an environment.
    """
    if isinstance(env, str):
        raise TriglotError(
            f"{what} must be an environment, got the text {shown(env)}: give "
            f"triglot.make_env({shown(env)})."
        )
    if isinstance(env, type) or not isinstance(env, Environment | HostEnvironment):
        raise TriglotError(
            f"{what} must be an Environment (name, obs_spec, action_spec, reset and step), got "
            f"{kind_of(env)}{_advice(env)}"
        )
    for name in ("obs_spec", "action_spec"):
        if not isinstance(spec := getattr(env, name), Spec):
            raise TriglotError(f"the {name} of {what} must be {_SPECS}, got {kind_of(spec)}.")
    try:
        hash(env)
    except TypeError:
        raise TriglotError(
            f"{what} is not hashable: make {type(env).__name__} a frozen dataclass with hashable "
            f"fields{_unhashable(env)}."
        ) from None


def check_agent(agent: Any) -> None:
    """Refuse what is not an agent, or cannot be hashed.

    Raises:
      TriglotError: saying what was given and how to make an agent.
    """
    if isinstance(agent, str | type):
        label = shown(agent) if isinstance(agent, str) else agent.__name__
        raise TriglotError(
            f"agent must be an agent, got {kind_of(agent)}: give triglot.make_agent({label}, env)."
        )
    if lacking := [name for name in _AGENT if not hasattr(agent, name)]:
        raise TriglotError(
            f"agent must be an agent, as triglot.make_agent returns it; got {kind_of(agent)}, "
            f"which has no {', '.join(lacking)}."
        )
    try:
        hash(agent)
    except TypeError:
        kind = agent.name
        for part in ("config", "hyper"):
            if reason := _unhashable(getattr(agent, part, None)):
                raise TriglotError(
                    f"{kind}'s {part} cannot be hashed{reason}; one value for each seed is given "
                    "to triglot.train(hyper=...)."
                ) from None
        raise TriglotError(
            f"agent is not hashable: make {kind} a frozen dataclass with hashable fields"
            f"{_unhashable(agent)}."
        ) from None


def check_fits(agent: Agent, env: Environment | HostEnvironment) -> None:
    """Refuse an agent that was built for another environment's observations or actions.

    Args:
      agent, env: as `check_agent` and `check_env` accept them.

    Raises:
      TriglotError: with both specs.
    """
    for name, what in (("obs_spec", "observations"), ("action_spec", "actions")):
        built, there = getattr(agent, name), getattr(env, name)
        if not isinstance(built, Spec) or _same_types(built, there):
            continue
        pair = short_pair(built, there)
        raise TriglotError(
            f"{agent.name} was built for the {what} {pair[0]}, and {env.name} has "
            f"{pair[1]}: build the agent for this environment."
        )


def check_state(agent: Agent, state: PyTree) -> None:
    """Refuse a state that is not the agent state of one seed.

    Args:
      agent: as `check_agent` accepts it.
      state: what was given; it may be traced.

    Raises:
      TriglotError: saying what was given, or the first array that differs.
    """
    wanted = "agent_state must be the agent state of one seed"
    seed = "jax.tree.map(lambda leaf: leaf[0], {}.agent) selects the first seed's"
    where = {"RunnerState": "runner_state", "TrainResult": "result.runner_state"}
    if (kind := type(state).__name__) in where:
        raise TriglotError(f"{wanted}, got a {kind}: {seed.format(where[kind])}.")
    expected, actual = _state_types(agent), _types(state)
    both = {path: (actual.get(path), kind) for path, kind in expected.items()}
    differing = {path: pair for path, pair in both.items() if pair[0] != pair[1]}
    if not differing:
        return
    axes = {types[1][:1] for types, kind in both.values() if types and types[1][1:] == kind[1]}
    if len(axes) == 1 and all(types and types[1][1:] == kind[1] for types, kind in both.values()):
        count = axes.pop()[0]
        raise TriglotError(
            f"{wanted}, got the states of {count}: {seed.format('runner_state')}; jax.vmap "
            "evaluates several."
        )
    path, (actual_type, kind) = next(iter(differing.items()))
    shown_given = "absent" if actual_type is None else f"{actual_type[0]}{list(actual_type[1])}"
    raise TriglotError(
        f"{wanted}, got {kind_of(state)} that does not fit {agent.name}: {path} is "
        f"{shown_given}, expected {kind[0]}{list(kind[1])}."
    )


@functools.lru_cache(maxsize=32)
def _state_types(agent: Agent) -> dict[str, tuple[str, tuple[int, ...]]]:
    return _types(jax.eval_shape(lambda key: agent.init(key, agent.num_envs), abstract_key()))


def _types(state: PyTree) -> dict[str, tuple[str, tuple[int, ...]]]:
    # A training may fill in hyperparameters that are None.
    return {
        path: (str(leaf.dtype), tuple(leaf.shape))
        for path, leaf in by_path(state).items()
        if not path.startswith("hyper") and hasattr(leaf, "dtype")
    }


def _same_types(spec: Spec, other: Spec) -> bool:
    """Return whether specs agree in all but the bounds of floats."""
    if isinstance(spec, Dict) and isinstance(other, Dict):
        parts, others = dict(spec.items), dict(other.items)
        return parts.keys() == others.keys() and all(
            _same_types(parts[n], others[n]) for n in parts
        )
    if isinstance(spec, Box) and isinstance(other, Box) and "float" in spec.dtype:
        return (spec.shape, spec.dtype) == (other.shape, other.dtype)
    return spec == other


def _advice(env: object) -> str:
    if isinstance(env, type):
        return f": give triglot.make_env({env.__name__})."
    if hasattr(env, "observation_space") and hasattr(env, "reset"):
        return ", an environment of Gymnasium: give triglot.make_env(env)."
    if isinstance(getattr(env, "env", None), Environment):
        return ": give the single environment, its field `env`."
    needed = ("name", "obs_spec", "action_spec", "reset", "step")
    lacking = [name for name in needed if not hasattr(env, name)]
    if 0 < len(lacking) < len(needed):
        return f", which has no {', '.join(lacking)}."
    return ", such as triglot.make_env('gymnax:CartPole-v1')."


def _unhashable(owner: object) -> str:
    """Name the first field of a dataclass that cannot be hashed; empty if there is none."""
    if not has_options(owner) or isinstance(owner, type):
        return ""
    for name, value in option_values(owner).items():
        try:
            hash(value)
        except TypeError:
            if inner := _unhashable(value):
                return inner
            array = hasattr(value, "dtype") and hasattr(value, "shape")
            instead = "a number or a tuple in place of the array" if array else "a tuple"
            size = f" of shape {np.shape(value)}" if array else ""
            return f": {name} is a {type(value).__name__}{size}, give {instead}"
    return ""
