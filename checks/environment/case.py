"""What `check_environment` tries an environment with: calls and rollouts, each made once."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.environment import Environment, TimeStep
from ...core.specs import Spec
from ..shared import Case, numbers

PyTree: TypeAlias = Any

NUM_ENVS, NUM_STEPS, NUM_STARTS = 4, 512, 256
MAX_PLAYED_BYTES = 2**28


class EnvironmentCase(Case):
    """One environment under examination; whatever is asked of it is computed once."""

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(seed)
        self.env = env

    def reset(self, number: int) -> Any:
        """Reset without compiling."""
        return self.call("`reset(key)`", self.env.reset, self.key(number))

    def step(self, state: PyTree, action: PyTree, number: int) -> Any:
        """Step without compiling."""
        return self.call(
            "`step(state, action, key)`", self.env.step, state, action, self.key(number)
        )

    @cached_property
    def start(self) -> Any:
        return self.reset(0)

    @cached_property
    def action(self) -> PyTree:
        """One action that is allowed at `start`."""
        return self.choose(self.start.action_mask, self.key(1))

    @cached_property
    def after(self) -> Any:
        return self.step(self.start.state, self.action, 2)

    @cached_property
    def types(self) -> tuple[TimeStep, TimeStep]:
        """The abstract results of a reset and of the step after it."""
        start = self.call("compiling `reset`", jax.eval_shape, self._reset, self.key(0))
        after = self.call(
            "compiling `step`", jax.eval_shape, self._step, start.state, self.action, self.key(2)
        )
        return start, after

    @cached_property
    def compiled_reset(self) -> Callable[[jax.Array], TimeStep]:
        return jax.jit(self._reset)

    @cached_property
    def compiled_step(self) -> Callable[..., TimeStep]:
        return jax.jit(self._step)

    @cached_property
    def steps(self) -> Callable[..., TimeStep]:
        """Step as many environments as there are starts, compiled: `steps(state, action, keys)`."""
        return jax.jit(jax.vmap(self._step))

    @cached_property
    def starts(self) -> TimeStep:
        """`NUM_STARTS` resets, compiled and batched."""
        keys = jax.random.split(self.key(3), NUM_STARTS)
        return self.call("`reset` under jax.vmap", jax.jit(jax.vmap(self._reset)), keys)

    def choose(self, mask: Any, key: jax.Array) -> PyTree:
        """Draw an action uniformly, of those that `mask` allows where it is a mask."""
        spec = self.env.action_spec
        drawn = specs.sample(spec, key)
        if not is_mask(mask, spec):
            return drawn
        allowed = jnp.where(jnp.asarray(mask), 0.0, -jnp.inf)
        return jax.random.categorical(jax.random.fold_in(key, 0), allowed).astype(drawn.dtype)

    @cached_property
    def played(self) -> "Played":
        """Random play of `NUM_ENVS` environments, restarted by the checker where episodes end."""
        step_bytes = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(self.types))
        num_steps = min(NUM_STEPS, max(32, MAX_PLAYED_BYTES // max(1, step_bytes * NUM_ENVS)))
        starts = self.starts

        def step(carry: tuple[Stand, jax.Array], key: jax.Array) -> tuple:
            before, used = carry
            action_keys, step_keys = jax.random.split(key, (2, NUM_ENVS))
            action = jax.vmap(self.choose)(before.action_mask, action_keys)
            after = jax.vmap(self._step)(before.state, action, step_keys)
            done = after.terminated | after.truncated
            dealt = (used + jnp.cumsum(done.astype(jnp.int32)) - 1) % NUM_STARTS

            def where_done(start: jax.Array, going_on: jax.Array) -> jax.Array:
                mask = done.reshape(done.shape + (1,) * (going_on.ndim - 1))
                return jnp.where(mask, start[dealt], going_on)

            now = jax.tree.map(where_done, Stand.of(starts), Stand.of(after))
            return (now, used + done.sum(dtype=jnp.int32)), (before, action, after)

        def run(keys: jax.Array) -> Any:
            first = jax.tree.map(lambda leaf: leaf[:NUM_ENVS], Stand.of(starts))
            return jax.lax.scan(step, (first, jnp.int32(NUM_ENVS)), keys)[1]

        keys = jax.random.split(self.key(4), num_steps)
        before, action, after = self.call("playing at random", _finished, jax.jit(run), keys)
        return Played(before=before, action=action, after=after)

    def _reset(self, key: jax.Array) -> Any:
        return self.env.reset(key)

    def _step(self, state: PyTree, action: PyTree, key: jax.Array) -> Any:
        return self.env.step(state, action, key)


def _finished(function: Callable[..., Any], *args: Any) -> Any:
    return jax.block_until_ready(function(*args))


def is_mask(mask: Any, spec: Spec) -> bool:
    """Tell whether `mask` is a mask of the actions of `spec`."""
    return (
        isinstance(spec, specs.Discrete)
        and np.shape(mask) == (spec.num_values,)
        and str(getattr(mask, "dtype", "")) == "bool"
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Stand:
    """What the next step is taken from."""

    state: PyTree
    obs: PyTree
    action_mask: Any

    @classmethod
    def of(cls, step: TimeStep) -> "Stand":
        return cls(state=step.state, obs=step.obs, action_mask=step.action_mask)


@dataclass(frozen=True, kw_only=True)
class Played:
    """Steps `[T, N, ...]`; `after` is from before any restart, `before` from after it."""

    before: Stand
    action: PyTree
    after: TimeStep

    @cached_property
    def done(self) -> np.ndarray:
        """Where an episode ended, bool `[T, N]`."""
        return np.asarray(self.after.terminated) | np.asarray(self.after.truncated)

    @cached_property
    def time(self) -> np.ndarray:
        """The number of each step in its episode, from 1: int `[T, N]`."""
        time = np.zeros(self.done.shape, int)
        running = np.zeros(self.done.shape[1], int)
        for t, done in enumerate(self.done):
            time[t] = running + 1
            running = np.where(done, 0, time[t])
        return time

    @cached_property
    def ends(self) -> np.ndarray:
        """Which of the `T x N` steps end an episode of at least two."""
        return np.flatnonzero(self.done & (self.time > 1))

    @cached_property
    def middles(self) -> np.ndarray:
        """Which of the `T x N` steps go on."""
        return np.flatnonzero(~self.done)

    def where(self, step: int) -> str:
        """Say which of the `T x N` steps is meant."""
        return f"step {self.time.ravel()[step]} of an episode"


def flat(tree: PyTree, leading: int) -> np.ndarray:
    """Lay the numbers of a tree side by side: float64 `[prod(leading axes), D]`."""
    rows = [numbers(leaf) for leaf in jax.tree.leaves(tree)]
    if not rows:
        return np.zeros((0, 0))
    count = int(np.prod(rows[0].shape[:leading]))
    return np.concatenate([row.reshape(count, -1) for row in rows], axis=1)


def spec_leaves(
    spec: Spec, value: PyTree, path: str = "obs"
) -> Iterator[tuple[str, specs.Box | specs.Discrete, Any]]:
    """Walk a spec and a value of its structure together."""
    if isinstance(spec, specs.Dict):
        for name, child in spec.items:
            yield from spec_leaves(child, value[name], f"{path}[{name!r}]")
    else:
        yield path, spec, value
