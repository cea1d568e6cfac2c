"""Trajectories made up for an agent: observations and rewards drawn, flags as they are told."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.agent import PolicyInput, Trajectory
from ..shared import by_path, is_inexact, numbers, unequal

if TYPE_CHECKING:
    from .case import AgentCase

PyTree: TypeAlias = Any

NUM_DRAWN = 50
MOST_STEPS = 20_000  # of the environments, before an agent is said to learn nothing
NUM_VIEWS, POOL_SIZE = 32, 4


class Feeder:
    """Feeds an agent such trajectories, and tells what it learned from what it only stored.

    Attributes:
      ends: bool `[T, N]`, where episodes end: every third step.
      nowhere: bool `[T, N]`, False throughout.
      views: observations drawn, `[V, ...]`.
      pool: a few of them, all different, `[P, ...]`; so few that a table meets each often.
    """

    def __init__(self, case: "AgentCase") -> None:
        self.case, self.agent = case, case.agent
        self.shape = (case.num_steps, case.num_envs)
        time, env = np.indices(self.shape)
        self.ends = jnp.asarray((time + env) % 3 == 0)
        self.nowhere = jnp.zeros(self.shape, bool)
        keys = jax.random.split(case.key(40), NUM_VIEWS)
        self.views = jax.vmap(lambda key: specs.sample(case.env.obs_spec, key))(keys)
        rows = [numbers(leaf).reshape(NUM_VIEWS, -1) for leaf in jax.tree.leaves(self.views)]
        _, chosen = np.unique(np.concatenate(rows, axis=1), axis=0, return_index=True)
        self.pool = jax.tree.map(lambda leaf: leaf[np.sort(chosen)[:POOL_SIZE]], self.views)

    @property
    def pool_size(self) -> int:
        return jax.tree.leaves(self.pool)[0].shape[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of updates to try: most agents learn in a few; a replay may have to fill."""
        most = -(-MOST_STEPS // (self.shape[0] * self.shape[1]))
        return (8, NUM_DRAWN, *([most] if most > NUM_DRAWN else []))

    def drawn(self, agent_key: int = 41) -> dict[str, jax.Array]:
        """Draw what trajectories are made of, which take turns; the agent's keys by a number.

        Compiling the generators would take longer than all the updates.
        """
        draw = np.random.default_rng(self.case.seed)
        shape = (NUM_DRAWN, *self.shape)
        keys = jax.random.split(self.case.key(agent_key), (shape[0], shape[1] + 1))
        return {
            "index": jnp.asarray(draw.integers(self.pool_size, size=shape), jnp.int32),
            "follows": jnp.asarray(draw.integers(self.pool_size, size=shape), jnp.int32),
            "reward": jnp.asarray(draw.normal(size=shape), jnp.float32),
            "act_keys": keys[:, 1:],
            "update_key": keys[:, 0],
        }

    def trajectory(
        self,
        state: Any,
        flags: tuple[jax.Array, jax.Array],
        swapped: jax.Array,
        drawn: dict[str, jax.Array],
    ) -> Trajectory:
        """Let the agent act on drawn observations.

        Args:
          state: the agent's.
          flags: terminated and truncated, bool `[T, N]` each.
          swapped: bool `[T, N]`, where next_obs is another than it would be.
          drawn: as `drawn` makes it, for one trajectory.
        """
        index, follows = drawn["index"], drawn["follows"] + swapped.astype(jnp.int32)
        follows = follows % self.pool_size
        ended = flags[0] | flags[1]
        first = jnp.concatenate([jnp.ones_like(ended[:1]), ended[:-1]])
        mask = self.case.inputs.action_mask
        allowed = None if mask is None else jnp.ones((*self.shape[:1], *mask.shape), bool)
        obs = jax.tree.map(lambda leaf: leaf[index], self.pool)

        def step(carry: PyTree, seen: tuple) -> tuple[PyTree, tuple]:
            obs, first, mask, key = seen
            inputs = PolicyInput(obs=obs, first=first, action_mask=mask)
            output = self.agent.act(state, carry, inputs, key, explore=True)
            return output.carry, (output.action, output.extras)

        carry = self.agent.initial_carry(state, self.case.num_envs)
        seen = (obs, first, allowed, drawn["act_keys"])
        _, (action, extras) = jax.lax.scan(step, carry, seen)
        return Trajectory(
            obs=obs,
            first=first,
            action_mask=allowed,
            action=action,
            reward=drawn["reward"],
            terminated=flags[0],
            truncated=flags[1],
            next_obs=jax.tree.map(lambda leaf: leaf[follows], self.pool),
            next_action_mask=allowed,
            extras=extras,
            carry=carry,
        )

    def actions(self, state: Any, observations: PyTree, key: jax.Array, explore: bool) -> PyTree:
        """Act on every observation, `[V, ...]`, in every environment; actions `[V, N, ...]`."""
        num_views = jax.tree.leaves(observations)[0].shape[0]
        steps, envs = np.indices((num_views, self.case.num_envs))
        actions = []
        for row, own in zip(
            (steps + envs) % num_views, jax.random.split(key, num_views), strict=True
        ):
            obs = jax.tree.map(lambda leaf, row=row: leaf[row], observations)
            inputs = replace(self.case.inputs, obs=obs)
            output = self.case.jitted_act(state, self.case.carry, inputs, own, explore)
            actions.append(output.action)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *actions)

    @cached_property
    def compiled_trajectory(self) -> Callable[..., Trajectory]:
        return self.case.jitted("`act`, in a scan,", self.trajectory)

    @cached_property
    def compiled_feed(self) -> Callable[..., Any]:
        def feed(
            state: Any,
            flags: tuple[jax.Array, jax.Array],
            swapped: jax.Array,
            drawn: dict[str, jax.Array],
            count: jax.Array,
        ) -> Any:
            def body(index: jax.Array, state: Any) -> Any:
                now = jax.tree.map(lambda leaf: leaf[index % NUM_DRAWN], drawn)
                trajectory = self.trajectory(state, flags, swapped, now)
                return self.agent.update(state, trajectory, now["update_key"])[0]

            return jax.lax.fori_loop(0, count, body, state)

        return self.case.jitted("`update` on trajectories made up,", feed)

    def feed(
        self,
        terminated: jax.Array,
        truncated: jax.Array,
        swapped: jax.Array,
        count: int,
        state: Any = None,
        agent_key: int = 41,
    ) -> Any:
        """Update `count` times, from the state that init gave or from another."""
        return self.compiled_feed(
            self.case.made if state is None else state,
            (terminated, truncated),
            swapped,
            self.drawn(agent_key),
            count,
        )

    @cached_property
    def stored(self) -> set[str]:
        """Name the arrays that keep what they are shown as it is: replay, counters."""
        shown = self.compiled_trajectory(
            self.case.made,
            (self.ends, self.nowhere),
            self.nowhere,
            jax.tree.map(lambda leaf: leaf[0], self.drawn()),
        )
        values = [numbers(leaf).ravel() for leaf in jax.tree.leaves((shown, self.agent.hyper))]
        known = np.unique(np.concatenate([[0.0, 1.0], *values]).astype(np.float32))
        updated = self.feed(self.ends, self.nowhere, self.nowhere, 1)
        before, after = by_path(self.case.made), by_path(updated)
        found = set()
        for path in before:
            old, new = numbers(before[path]), numbers(after[path])
            if (moved := old != new).any() and np.isin(new[moved], known).all():
                found.add(path)
        return found

    def learned(self, state: Any) -> dict[str, jax.Array]:
        """Choose the floating-point arrays that learning changed."""
        before = by_path(self.case.made)
        return {
            path: leaf
            for path, leaf in by_path(state).items()
            if is_inexact(leaf) and path not in self.stored and unequal(path, before[path], leaf)
        }

    def apart(self, first: Any, second: Any) -> str:
        """Say in which learned array two states differ; "" where in none."""
        names = self.learned(first).keys() | self.learned(second).keys()
        one, other = by_path(first), by_path(second)
        found = (unequal(n, one[n], other[n], rtol=1e-6, atol=1e-7) for n in sorted(names))
        return next((text for text in found if text), "")

    @cached_property
    def taught(self) -> Any:
        """The agent's state after as many updates as it takes to learn; None if it never does."""
        for count in self.counts[1:]:
            state = self.feed(self.ends, self.nowhere, self.nowhere, count)
            if self.learned(state):
                return state
        return None

    @cached_property
    def told_apart(self) -> tuple[int, str]:
        """Count the updates after which terminated steps taught other things than truncated ones.

        Returns:
          The count, and the difference in words; "" where there was none.
        """
        difference = ""
        for count in self.counts:
            terminated = self.feed(self.ends, self.nowhere, self.nowhere, count)
            truncated = self.feed(self.nowhere, self.ends, self.nowhere, count)
            if difference := self.apart(terminated, truncated):
                return count, difference
        return self.counts[-1], difference

    def reads_successor(self, terminated: jax.Array, truncated: jax.Array) -> str:
        """Say what next_obs of the steps that end, or of all where none does, changes; or ""."""
        count = self.told_apart[0]
        swapped = terminated | truncated
        swapped = jnp.where(swapped.any(), swapped, ~swapped)
        return self.apart(
            self.feed(terminated, truncated, self.nowhere, count),
            self.feed(terminated, truncated, swapped, count),
        )
