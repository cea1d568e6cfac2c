"""Find an environment that fits a component, by trial, and build small agents for checks."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ..core.errors import MissingExtra, TriglotError, describe
from ..core.options import option_fields
from ..core.records import Values
from ..runs.registry.agents import build_agent
from ..runs.registry.algorithms import find_algorithm
from ..runs.registry.environments import make_env
from ..runs.registry.overrides import from_overrides

if TYPE_CHECKING:
    from ..core.agent import Agent
    from ..core.environment import Environment
    from ..core.options import OptionTable
    from ..core.types import AnyConfig, PyTree

# Tried in this order: discrete actions, actions in a box, discrete observations, action masks,
# images; then probes, which need no library. Suites that are not installed are left out.
ENVIRONMENTS = (
    "gymnax:CartPole-v1",
    "gymnax:Pendulum-v1",
    "gridworld:4x4",
    "jumanji:Maze-v0,num_rows=5,num_cols=5",
    "gymnax:Breakout-MinAtar",
    "probe:two-step",
    "probe:reach",
)
WITHOUT_LIBRARY = ("probe:two-step", "probe:reach", "gridworld:4x4")
MAX_REASON = 160  # characters of what a component says of an environment

# Small values for checks, where the algorithm has such a field and no other value is given.
SMALL: Values = {
    "num_envs": 4,
    "rollout_length": 8,
    "num_epochs": 2,
    "num_minibatches": 2,
    "batch_size": 16,
    "learning_starts": 64,
    "buffer_size": 1024,
    "hidden_sizes": (16,),
    "num_simulations": 4,
    "burn_in_length": 2,
    "unroll_length": 6,
}


def fitting_env(
    make: Callable[["Environment"], Any],
    is_fit: Callable[[Any, "Environment"], str] = lambda component, env: "",
    names: Sequence[str] = ENVIRONMENTS,
) -> tuple["Environment", str]:
    """Find the first environment that a component accepts.

    Args:
      make: builds the component for an environment; raises `TriglotError` where it refuses it.
      is_fit: says why what was made does not fit after all, "" if it does. If none fits, the first
        environment for which it was made is used: the checker explains what is wrong.
      names: of the environments, in the order in which they are tried.

    Returns:
      The environment, and why those before it were passed over; "" if it is the first.

    Raises:
      TriglotError: if the component refuses all, with what it says of each.
    """
    refused: dict[str, str] = {}
    made_for: list[Environment] = []
    for name in names:
        with suppress(MissingExtra):
            env = make_env(name)
            try:
                reason = is_fit(make(env), env)
                made_for.append(env)
            except MissingExtra as error:
                raise TriglotError(str(error)) from None
            except TriglotError as error:
                reason = str(error).removeprefix(f"on {env.name}: ")
            if not reason:
                return env, _listed(refused)
            refused[name] = reason
    if made_for:
        return made_for[0], ""
    if len(set(refused.values())) == 1:  # the cause is not the environment
        raise TriglotError(next(iter(refused.values())))
    raise TriglotError(
        f"none of the usual environments fits: give one with --env. {_listed(refused)}"
    )


def _listed(refused: Mapping[str, str]) -> str:
    """List why environments were refused, those with the same reason together."""
    names: dict[str, list[str]] = {}
    for name, reason in refused.items():
        short = textwrap.shorten(f"{reason.removesuffix('.')}.", MAX_REASON, placeholder=" ...")
        names.setdefault(short, []).append(name)
    return " ".join(f"{', '.join(refusing)}: {reason}" for reason, refusing in names.items())


def misfit_of_agent(agent: "Agent", env: "Environment") -> str:
    """Trace one action of an agent; say why it is none of the environment's, or "" if it is."""
    import jax

    from ..checks.trees import find_type_change
    from ..core import specs
    from ..core.agent import PolicyInput
    from ..core.loop.vectorize import VectorEnvironment
    from ..core.types import abstract_key

    def act(key: jax.Array) -> "PyTree":
        start = VectorEnvironment(env, agent.num_envs).reset(key)
        inputs = PolicyInput.of(agent, start, start.first)
        state = agent.init(key, agent.num_envs)
        carry = agent.initial_carry(state, agent.num_envs)
        return agent.act(state, carry, inputs, key, explore=True).action

    try:
        action = jax.eval_shape(act, abstract_key())
    except Exception as error:
        return str(error) if isinstance(error, TriglotError) else describe(error)
    return find_type_change("the action", specs.zeros(env.action_spec, agent.num_envs), action)


def small_config(config: "type | OptionTable", values: Values) -> "AnyConfig":
    """Build a small `Config`; it refuses small values that conflict with the given fields.

    Args:
      config: the class.
      values: the chosen fields by name.
    """
    defaults: dict[str, object] = {field.name: field.default for field in option_fields(config)}
    small = {
        name: enough if defaults[name] is None else min(defaults[name], enough)
        for name, enough in SMALL.items()
        if name in defaults and isinstance(defaults[name], type(enough) | None)
    }
    return from_overrides(config, {**small, **values})


def small_agent(algorithm: str, env: "Environment", values: Values, **options: Any) -> "Agent":
    """Build a small agent, or one of the given size if the small values conflict with it.

    Args:
      algorithm: a registered name or `package.module:object`.
      env: the environment to act in.
      values: the chosen fields of its `Config` by name.
      options: of `make_agent`.
    """
    config = find_algorithm(algorithm).Config
    make = partial(build_agent, algorithm, env, **options)
    try:
        return make(config=small_config(config, values))
    except TriglotError:
        return make(config=from_overrides(config, values))
