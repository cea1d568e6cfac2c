"""Synthetic trajectories: random observations and rewards, with given termination flags."""

from dataclasses import replace
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.agent import Trajectory
from ...core.families.extension import Extended
from ...core.types import AnyAgentState, PyTree
from ..purity import Compiled
from ..trees import by_path, find_value_difference, flat, is_inexact, to_float64
from .case import AgentCase

NUM_DRAWN = 50
MAX_STEPS = 20_000  # environment steps after which an unchanged agent counts as not learning
NUM_VIEWS, POOL_SIZE = 32, 4


class LearningCase(AgentCase):
    """An agent being checked, updated on synthetic trajectories.

    What it learns is distinguished from what it stores. Every third step ends an episode as
    `terminated` or `truncated`, or none does: `nowhere`.
    """

    @cached_property
    def algorithm(self) -> "LearningCase":
        """The same, without extensions: these may learn from the last observation of an episode."""
        if not isinstance(self.agent, Extended):
            return self
        case = LearningCase(self.agent.agent, self.env, self.seed)
        case.inputs, case.pool = self.inputs, self.pool  # before something is traced
        return case.algorithm

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and environments of a trajectory, `T` and `N`."""
        return self.num_steps, self.num_envs

    @cached_property
    def views(self) -> PyTree:
        """Random observations `[V, ...]`."""
        keys = jax.random.split(self.key(40), NUM_VIEWS)
        return jax.vmap(lambda key: specs.sample(self.env.obs_spec, key))(keys)

    @cached_property
    def pool(self) -> PyTree:
        """A few different ones of `views`, `[P, ...]`, so that a table sees each of them often."""
        _, chosen = np.unique(flat(self.views, 1), axis=0, return_index=True)
        return jax.tree.map(lambda leaf: leaf[np.sort(chosen)[:POOL_SIZE]], self.views)

    def flags(self, ends: str, swapped: bool = False) -> dict[str, jax.Array]:
        """Set the flags of a trajectory, bool `[T, N]` each.

        Args:
          ends: `terminated`, `truncated` or `nowhere`.
          swapped: whether next_obs is replaced by another observation, at the steps that end, or
            at all if none does.
        """
        time, env = np.indices(self.shape)
        every_third = (time + env) % 3 == 0
        flags = {name: every_third & (ends == name) for name in ("terminated", "truncated")}
        flags["swapped"] = (every_third | (ends == "nowhere")) & swapped
        return {name: jnp.asarray(flag) for name, flag in flags.items()}

    @property
    def pool_size(self) -> int:
        return jax.tree.leaves(self.pool)[0].shape[0]

    @property
    def counts(self) -> tuple[int, ...]:
        """Numbers of updates to try: most agents learn in a few; a replay buffer has to fill."""
        most = -(-MAX_STEPS // (self.shape[0] * self.shape[1]))
        return (8, NUM_DRAWN, *([most] if most > NUM_DRAWN else []))

    def drawn(self, key: int = 41) -> dict[str, jax.Array]:
        """Draw the contents of `NUM_DRAWN` trajectories, on the host.

        Compiling the generators would take longer than all the updates.
        """
        draw = np.random.default_rng(self.seed)
        shape = (NUM_DRAWN, *self.shape)
        keys = jax.random.split(self.key(key), (shape[0], shape[1] + 1))
        return {
            "index": jnp.asarray(draw.integers(self.pool_size, size=shape), jnp.int32),
            "follows": jnp.asarray(draw.integers(self.pool_size, size=shape), jnp.int32),
            "reward": jnp.asarray(draw.normal(size=shape), jnp.float32),
            "act_keys": keys[:, 1:],
            "update_key": keys[:, 0],
        }

    def trajectory(
        self, state: AnyAgentState, flags: dict[str, jax.Array], drawn: dict[str, jax.Array]
    ) -> Trajectory:
        """Let the agent act on random observations.

        Args:
          state: state of the agent.
          flags: from `flags`.
          drawn: the contents of one trajectory, from `drawn`.
        """
        index = drawn["index"]
        follows = (drawn["follows"] + flags["swapped"].astype(jnp.int32)) % self.pool_size
        ended = flags["terminated"] | flags["truncated"]
        first = jnp.concatenate([jnp.ones_like(ended[:1]), ended[:-1]])
        mask = self.inputs.action_mask
        allowed = None if mask is None else jnp.ones((*self.shape[:1], *mask.shape), bool)
        obs = jax.tree.map(lambda leaf: leaf[index], self.pool)

        def step(carry: PyTree, visible: tuple) -> tuple[PyTree, tuple]:
            obs, first, mask, key = visible
            inputs = replace(self.inputs, obs=obs, first=first, action_mask=mask)
            output = self.agent.act(state, carry, inputs, key, explore=True)
            return output.carry, (output.action, output.extras)

        carry = self.agent.initial_carry(state, self.num_envs)
        visible = (obs, first, allowed, drawn["act_keys"])
        _, (action, extras) = jax.lax.scan(step, carry, visible)
        return Trajectory(
            obs=obs,
            first=first,
            action_mask=allowed,
            action=action,
            reward=drawn["reward"],
            terminated=flags["terminated"],
            truncated=flags["truncated"],
            next_obs=jax.tree.map(lambda leaf: leaf[follows], self.pool),
            next_action_mask=allowed,
            extras=extras,
            carry=carry,
        )

    def actions(
        self, state: AnyAgentState, observations: PyTree, key: jax.Array, explore: bool
    ) -> PyTree:
        """Act on each of the observations `[V, ...]` in each environment; actions `[V, N, ...]`."""
        rows = self._views(jax.tree.leaves(observations)[0].shape[0])
        actions = []
        act = self.acts[explore].compiled
        for row, row_key in zip(rows, jax.random.split(key, len(rows)), strict=True):
            obs = jax.tree.map(lambda leaf, row=row: leaf[row], observations)
            inputs = replace(self.inputs, obs=obs)
            actions.append(act(state, self.carry, inputs, row_key).action)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *actions)

    def at_actions(self, values: jax.Array, actions: np.ndarray) -> np.ndarray:
        """Look up the values `[V, num_actions]` of what `actions` returned, `[V, N]`."""
        return np.asarray(values)[self._views(len(values)), actions]

    def _views(self, num_views: int) -> np.ndarray:
        """Choose the observation of each environment in each call, `[V, N]`."""
        steps, envs = np.indices((num_views, self.num_envs))
        return (steps + envs) % num_views

    @cached_property
    def compiled_trajectory(self) -> Compiled:
        return Compiled("`act` in a scan", self.trajectory)

    @cached_property
    def compiled_feed(self) -> Compiled:
        def feed(
            state: AnyAgentState,
            flags: dict[str, jax.Array],
            drawn: dict[str, PyTree],
            count: jax.Array,
        ) -> AnyAgentState:
            def body(index: jax.Array, state: AnyAgentState) -> AnyAgentState:
                now = jax.tree.map(lambda leaf: leaf[index % NUM_DRAWN], drawn)
                trajectory = self.trajectory(state, flags, now)
                return self.agent.update(state, trajectory, now["update_key"])[0]

            return jax.lax.fori_loop(0, count, body, state)

        return Compiled("`update` on synthetic trajectories", feed)

    def feed(
        self,
        ends: str,
        count: int,
        *,
        swapped: bool = False,
        state: AnyAgentState = None,
        key: int = 41,
    ) -> AnyAgentState:
        """Return the state after `count` updates, from `state` or else the initial one.

        Args:
          ends, swapped: as in `flags`.
          count: updates.
          state: of the agent.
          key: number of the key of its random choices.
        """
        state = self.initial_state if state is None else state
        return self.compiled_feed(state, self.flags(ends, swapped), self.drawn(key), count)

    @cached_property
    def stored_inputs(self) -> set[str]:
        """Return the paths of arrays that store inputs unchanged: replay buffers, counters."""
        drawn = jax.tree.map(lambda leaf: leaf[0], self.drawn())
        trajectory = self.compiled_trajectory(self.initial_state, self.flags("terminated"), drawn)
        leaves = jax.tree.leaves((trajectory, self.agent.hyper))
        values = [to_float64(leaf).ravel() for leaf in leaves]
        known = np.unique(np.concatenate([[0.0, 1.0], *values]).astype(np.float32))
        updated = self.feed("terminated", 1)
        before, after = by_path(self.initial_state), by_path(updated)
        paths = set()
        for path in before:
            old, new = to_float64(before[path]), to_float64(after[path])
            if (changed := old != new).any() and np.isin(new[changed], known).all():
                paths.add(path)
        return paths

    def learned(self, state: AnyAgentState) -> dict[str, jax.Array]:
        """Return the floating-point arrays that learning changed, by path."""
        before = by_path(self.initial_state)
        return {
            path: leaf
            for path, leaf in by_path(state).items()
            if is_inexact(leaf)
            and path not in self.stored_inputs
            and find_value_difference(path, before[path], leaf)
        }

    def difference(self, first: AnyAgentState, second: AnyAgentState) -> str:
        """Describe the first learned array in which two states differ, or return ""."""
        names = self.learned(first).keys() | self.learned(second).keys()
        one, other = by_path(first), by_path(second)
        texts = (
            find_value_difference(name, one[name], other[name], rtol=1e-6, atol=1e-7)
            for name in sorted(names)
        )
        return next((text for text in texts if text), "")

    @cached_property
    def trained(self) -> AnyAgentState:
        """The state after enough updates for the agent to learn; None if it never does."""
        for count in self.counts[1:]:
            state = self.feed("terminated", count)
            if self.learned(state):
                return state
        return None

    @cached_property
    def flag_difference(self) -> tuple[int, str]:
        """Compare learning from terminated steps with learning from truncated ones.

        Returns:
          The number of updates, and the first difference in words; "" if there is none.
        """
        for count in self.counts:
            terminated = self.feed("terminated", count)
            truncated = self.feed("truncated", count)
            if difference := self.difference(terminated, truncated):
                return count, difference
        return self.counts[-1], ""

    def uses_next_obs(self, ends: str) -> str:
        """Describe the effect of next_obs at the steps that end, or at all if none does; or ""."""
        count = self.flag_difference[0]
        return self.difference(self.feed(ends, count), self.feed(ends, count, swapped=True))
