"""The names by which the command line builds an agent and an environment again.

`make_agent` and `make_env` record them, so that a training in Python writes a run folder that
commands read. What has no name, such as a network defined in a notebook, is listed: `load_run`
then takes the agent or the environment as an argument.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from ...core.records import Values
from .algorithms import ALGORITHMS

if TYPE_CHECKING:
    from ...core.agent import Agent

_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class AgentOrigin:
    """The arguments of `make_agent` as options of the command line.

    Attributes:
      algorithm, backend, arithmetic, network, optimizer: as the options of `triglot train`.
      unnamed: the components that no option names.
    """

    algorithm: str
    backend: str = "linen"
    arithmetic: str | None = None
    network: tuple[str, ...] = ()
    optimizer: str | None = None
    unnamed: tuple[str, ...] = ()


# Equal agents and environments have equal names, so they may share an entry.
_AGENTS: WeakKeyDictionary[object, AgentOrigin] = WeakKeyDictionary()
_ENVS: WeakKeyDictionary[object, str] = WeakKeyDictionary()


def remember_agent(
    agent: "Agent",
    algorithm: object,
    *,
    backend: str,
    arithmetic: str | None,
    networks: object,
    optimizer: object,
) -> None:
    """Record the arguments with which `make_agent` built an agent."""
    unnamed = []
    algorithm_name = importable_name(algorithm)
    if algorithm_name is None:
        unnamed.append("algorithm")
    named = _network_names(networks)
    if named is None:
        unnamed.append("network")
    optimizer_name = None if optimizer is None else _optimizer_name(optimizer)
    if optimizer is not None and optimizer_name is None:
        unnamed.append("optimizer")
    _remember(
        _AGENTS,
        agent,
        AgentOrigin(
            algorithm=algorithm_name or agent.name,
            backend=backend,
            arithmetic=arithmetic,
            network=named or (),
            optimizer=optimizer_name,
            unnamed=tuple(unnamed),
        ),
    )


def origin_of_agent(agent: "Agent") -> AgentOrigin:
    """Return how an agent was built; one that `make_agent` did not build has no name."""
    known = _recall(_AGENTS, agent)
    if known is not None:
        return known
    name = importable_name(type(agent)) or agent.name
    return AgentOrigin(algorithm=name, unnamed=("agent",))


def remember_env(env: object, name: str) -> None:
    """Record the name from which `make_env` built an environment."""
    _remember(_ENVS, env, name)


def name_of_env(env: object) -> str | None:
    """Return the name from which `make_env` builds an equal environment; None if there is none.

    Args:
      env: an environment, or a class or function that makes one; a name is returned as it is.
    """
    name = importable_name(env) or _recall(_ENVS, env)
    if name is not None or isinstance(env, type) or not is_dataclass(env):
        return name
    # An instance of a class in a file: the class, and the fields that it takes as options.
    name = importable_name(type(env))
    options = {field.name: getattr(env, field.name) for field in fields(env) if field.init}
    return None if name is None else with_options(name, options)


def with_options(name: str, options: Values) -> str | None:
    """Add options to the name of an environment; None if one cannot be written as text."""
    texts = [name]
    for option, value in options.items():
        text = value if isinstance(value, str) else repr(value)
        simple = isinstance(value, str | int | float | bool) or value is None
        if not simple or "," in text or not text:
            return None
        texts.append(f"{option}={text}")
    return ",".join(texts)


def importable_name(named: object) -> str | None:
    """Return `package.module:object` of a class, function or environment; a name as it is.

    Returns:
      The name, short for a built-in algorithm; None of what is not at the top level of a module
      that another program can import.
    """
    if isinstance(named, str):
        return named
    module, name = (getattr(named, attribute, "") for attribute in ("__module__", "__qualname__"))
    if module == "__main__" or getattr(sys.modules.get(module), name or "", None) is not named:
        return None
    path = f"{module}:{name}"
    return next((short for short, full in ALGORITHMS.items() if full == path), path)


def _network_names(networks: object) -> tuple[str, ...] | None:
    """Return the networks as `--network` takes them, a tuple; None if one is an object."""
    if networks is None:
        return ()
    if isinstance(networks, str):
        return (networks,)
    if isinstance(networks, tuple):
        return networks
    if isinstance(networks, Mapping) and all(
        isinstance(network, str) for network in networks.values()
    ):
        return tuple(f"{part}={network}" for part, network in networks.items())
    return None


def _optimizer_name(optimizer: object) -> str | None:
    from ...core.rl.optimizers import OPTIMIZERS

    built_in = (name for name, factory in OPTIMIZERS.items() if factory is optimizer)
    return next(built_in, None) or importable_name(optimizer)


def _remember(memory: WeakKeyDictionary[object, _Value], key: object, value: _Value) -> None:
    try:
        memory[key] = value
    except TypeError:  # not hashable, or without weak references: it has no name
        return


def _recall(memory: WeakKeyDictionary[object, _Value], key: object) -> _Value | None:
    try:
        return memory.get(key)
    except TypeError:
        return None
