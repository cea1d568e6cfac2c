"""A training program of one framework, as the benchmark of peers runs it."""

import contextlib
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from triglot.core.types import PyTree

from ..harness import compile_timed

# Trains all seeds of a round, and returns what `Contender.act` reads, `[S, ...]`.
Train: TypeAlias = Callable[[int], PyTree]

# Modules by name: the names that are imported from each, or what they stand for.
Replacements: TypeAlias = Mapping[str, tuple[str, ...] | Mapping[str, object]]


class NotInstalled(Exception):
    """A peer cannot be imported; the message says how to install it."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One framework with one setting.

    Attributes:
      compile: `compile(keys)` traces and compiles the training of `S` seeds for typed keys `[R, S]`
        of `R` rounds, and returns it with the seconds that this took.
      act: `act(policy, obs [N, ...])` gives one seed's greedy actions `[N, ...]`. With `start`,
        `act(policy, obs, memory)` gives them and the next memory.
      start: `start(policy, N)` makes the memory with which episodes start; None without a memory.
      version: of the framework.
      patches: what was changed so that it runs on the installed versions, with the reason.
    """

    compile: Callable[[jax.Array], tuple[Train, float]]
    act: Callable[..., Any]
    start: Callable[[PyTree, int], PyTree] | None = None
    version: str
    patches: tuple[str, ...] = ()


def compile_one_program(
    train: Callable[[jax.Array], PyTree], policy_of: Callable[[PyTree], PyTree]
) -> Callable[[jax.Array], tuple[Train, float]]:
    """Build `Contender.compile` from a traceable function.

    Args:
      train: trains one seed from a legacy key, uint32 `[2]`; vmapped if there are several seeds.
      policy_of: selects from what it returns what `Contender.act` reads. Applied outside of the
        program, which so computes all that the peer computes.
    """

    def over_seeds(keys: jax.Array) -> PyTree:
        if len(keys) > 1:
            return jax.vmap(train)(keys)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], train(keys[0]))

    def compile(keys: jax.Array) -> tuple[Train, float]:
        data = jax.random.key_data(keys)
        made = compile_timed(jax.jit(over_seeds), data[0])
        seconds = made.trace_seconds + made.compile_seconds
        return lambda index: policy_of(made.call(data[index])), seconds

    return compile


def greedy_returns(
    env_id: str, one: Contender, policies: PyTree, key: jax.Array, num_episodes: int
) -> jax.Array:
    """Play whole episodes of a gymnax environment; returns float32 `[P, E]` for `[P, ...]`."""
    import gymnax  # a peer's process imports no more than the peer does

    env, params = gymnax.make(env_id)

    def act(policy: PyTree, obs: jax.Array, memory: PyTree) -> tuple[jax.Array, PyTree]:
        return (one.act(policy, obs), ()) if one.start is None else one.act(policy, obs, memory)

    def play(policy: PyTree) -> jax.Array:
        obs, state = jax.vmap(env.reset_env, in_axes=(0, None))(starts, params)

        def step(carry: tuple, _: None) -> tuple[tuple, None]:
            obs, state, total, running, memory = carry
            action, memory = act(policy, obs, memory)
            obs, state, reward, terminated, _ = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))(
                starts, state, action, params
            )
            total = total + jnp.where(running, reward, 0.0)
            return (obs, state, total, running & ~terminated, memory), None

        memory = () if one.start is None else one.start(policy, num_episodes)
        carry = (obs, state, jnp.zeros(num_episodes), jnp.ones(num_episodes, bool), memory)
        length = params.max_steps_in_episode
        return jax.lax.scan(step, carry, length=length)[0][2]

    starts = jax.random.split(key, num_episodes)
    return jax.jit(lambda policies: jax.lax.map(play, policies))(policies)


def overridden(module: types.ModuleType, **attributes: object) -> types.SimpleNamespace:
    """Copy a module with some attributes replaced, for one importer alone."""
    return types.SimpleNamespace(**{**vars(module), **attributes})


def clone(folder: Path | None, option: str, file: str) -> Path:
    """Check that a folder is a clone of a peer's repository, by a file in it; return the folder.

    Raises:
      NotInstalled: if it is not, naming the option that gives it.
    """
    if folder is None or not (folder / file).exists():
        raise NotInstalled(f"give --{option} the folder of a clone of its repository")
    return folder


def import_files(folder: Path, unused: Replacements, *names: str) -> tuple[Any, ...]:
    """Import modules of a clone that is not a package.

    Args:
      folder: on the path while they are imported.
      unused: modules that are imported for nothing that runs here.
      names: of the modules.

    Raises:
      NotInstalled: if one imports what is not installed.
    """
    sys.path.insert(0, str(folder))
    try:
        with replaced_modules(unused):
            return tuple(map(importlib.import_module, names))
    except ImportError as error:
        raise NotInstalled(f"{error}; pip install it") from error
    finally:
        sys.path.remove(str(folder))


@contextlib.contextmanager
def replaced_modules(modules: Replacements) -> Iterator[None]:
    """Replace modules for a while by ones that have nothing but these attributes."""
    before = {name: sys.modules.get(name) for name in modules}
    for name, attributes in modules.items():
        sys.modules[name] = types.ModuleType(name)
        named = attributes if isinstance(attributes, Mapping) else dict.fromkeys(attributes)
        vars(sys.modules[name]).update(named)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def revision_of(folder: Path) -> str:
    """Read the commit of a clone, as far as its files tell."""
    head = folder / ".git" / "HEAD"
    text = head.read_text().strip() if head.exists() else ""
    if text.startswith("ref: "):
        ref = folder / ".git" / text.removeprefix("ref: ")
        text = ref.read_text().strip() if ref.exists() else ""
    return text[:8] or "unknown revision"


def not_played(policy: PyTree, obs: jax.Array) -> jax.Array:
    """Stand for `Contender.act` where no episodes are played."""
    raise NotImplementedError("greedy episodes are played in gymnax alone")
