"""Rollouts in which episodes end, for an agent whose network is separated by observation."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core.agent import Agent, PolicyInput, PolicyOutput, Trajectory
from ...core.errors import TriglotError
from ...core.records import Values
from ...core.types import AnyAgentState, Carry, Key, PyTree
from ..purity import Compiled
from ..report import Failed, NotApplicable
from .feeder import LearningCase
from .separate import ROWS, NotSeparable, Separated, separate, small

Kind = Literal["terminated", "truncated", "nowhere"]
Runs: TypeAlias = list[dict[str, np.ndarray]]

CUTS = (6, 11, 16)  # the step at which an episode ends, of each pair of environments
MIN_STEPS, MAX_OBSERVATIONS = 24, 4096
REACH = 5  # steps back from an end of which the last reward's effect is compared
NUM_KEYS = 4
TOLERANCE = 1e-4  # of the largest change of an array


@dataclass(frozen=True)
class World:
    """What happens in `L` steps of `N` environments; NumPy arrays `[L, N, ...]`.

    Attributes:
      obs, next_obs: numbers of observations.
      reward, terminated, truncated: as in `Trajectory`.
      action, extras: what the agent did; None before it acts.
    """

    obs: np.ndarray
    next_obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    action: PyTree = None
    extras: PyTree = None

    @property
    def first(self) -> np.ndarray:
        ended = self.terminated | self.truncated
        return np.concatenate([np.ones_like(ended[:1]), ended[:-1]])

    def exchanged(self, where: np.ndarray, *keep: str) -> "World":
        """Exchange steps `where` (bool `[L, N]`) between environments 0 and 1, 2 and 3, ...

        The fields named in `keep` stay as they are.
        """
        num_envs = where.shape[1]
        partner = np.arange(num_envs) ^ 1
        partner = np.where(partner < num_envs, partner, np.arange(num_envs))

        def exchange(leaf: jax.Array | np.ndarray) -> np.ndarray:
            leaf = np.asarray(leaf)
            mask = where.reshape(*where.shape, *(1,) * (leaf.ndim - 2))
            return np.where(mask, leaf[:, partner], leaf)

        changed = {name: value for name, value in vars(self).items() if name not in keep}
        return replace(self, **jax.tree.map(exchange, changed))


class EpisodeCase:
    """An agent separated by observation, and rollouts in which episodes end."""

    def __init__(self, case: LearningCase) -> None:
        self.case = case

    @classmethod
    def of(cls, case: LearningCase) -> "EpisodeCase":
        """Return the one of a case, made at its first use."""
        return case.shared("episodes", lambda: cls(case))

    @cached_property
    def separated(self) -> Separated:
        """The agent, or the reason why it is not checked."""
        agent = self.case.algorithm.agent
        if agent.explores_by_parameters:
            raise NotApplicable(
                "not checked: the agent declares explores_by_parameters = True, and learns from "
                "whole rollouts, not from steps."
            )
        reason = ""
        for variant, changed in self._variants(agent):
            if variant.num_envs < 2:
                reason = "it acts in one environment, and two must exchange episodes"
                continue
            try:
                self._check_size(variant)
                key, size = self.case.key(70), 2 * self.num_steps(variant) * variant.num_envs
                separated = separate(variant, self.case.env.obs_spec, size, key)
                # Its interface may be at odds with another network or specification.
                jax.eval_shape(lambda key, a=separated.agent: a.init(key, a.num_envs), key)
            except NotSeparable as error:
                reason = str(error)
                continue
            except Exception as error:
                reason = f"its network cannot be replaced: {error}"
                continue
            return replace(separated, changed=changed)
        raise NotApplicable(f"not checked: {reason}.")

    def _variants(self, agent: Agent) -> Iterator[tuple[Agent, Values]]:
        with suppress(TriglotError):
            yield small(agent)
        yield agent, {}

    def _check_size(self, agent: Agent) -> None:
        if 2 * self.num_steps(agent) * agent.num_envs > MAX_OBSERVATIONS:
            raise NotSeparable(
                f"{agent.num_envs} environments with rollouts of {agent.rollout_length} steps need "
                f"more than {MAX_OBSERVATIONS} observations: give it fewer or shorter ones"
            )

    def length(self, agent: Agent) -> int:
        """Steps in one trajectory, `T`."""
        return 1 if agent.online else agent.rollout_length

    def num_steps(self, agent: Agent) -> int:
        """Steps in all, `L`: as many as `MIN_STEPS`, in whole trajectories."""
        length = self.length(agent)
        return -(-MIN_STEPS // length) * length

    @property
    def agent(self) -> Agent:
        return self.separated.agent

    @property
    def absorbing(self) -> bool:
        """Whether actions after an end may have an effect, as the agent declares."""
        return self.agent.learns_absorbing_states

    @property
    def shape(self) -> tuple[int, int]:
        """Steps and environments, `L` and `N`."""
        return self.num_steps(self.agent), self.agent.num_envs

    @cached_property
    def cut(self) -> np.ndarray:
        """The step at which each environment's episode ends, int `[N]`."""
        pairs = np.arange(self.shape[1]) // 2
        cuts = np.asarray(CUTS)
        if self.shape[1] < 6 and (cuts[0] + 1) % self.length(self.agent) == 0:
            cuts = cuts - 1  # not where a trajectory ends
        return cuts[pairs % len(cuts)]

    @cached_property
    def time(self) -> np.ndarray:
        """The number of each step, int `[L, N]`."""
        return np.indices(self.shape)[0]

    @cached_property
    def state(self) -> AnyAgentState:
        """The initial state."""
        init = Compiled("`init`", lambda key: self.agent.init(key, self.agent.num_envs))
        return self._call(init, self.case.key(71))

    @cached_property
    def worlds(self) -> dict[tuple[Kind, str], World]:
        """Worlds by the kind of the ends, and by what is changed in them."""
        worlds: dict[tuple[Kind, str], World] = {}
        acted: World | None = None
        for kind in ("nowhere", "terminated", "truncated"):
            base = self._base(kind)
            if acted is None or self._remembers:
                acted = self._act(base)
            base = replace(base, action=acted.action, extras=acted.extras)
            at_end = self.time == self.cut
            worlds[kind, "nothing"] = base
            worlds[kind, "its reward"] = replace(base, reward=base.reward + at_end)
            if kind == "nowhere":
                continue
            worlds[kind, "later"] = base.exchanged(self.time > self.cut, *self._kept)
            worlds[kind, "earlier"] = base.exchanged(self.time <= self.cut)
            if kind == "truncated":
                other = base.exchanged(at_end).next_obs
                worlds[kind, "its next_obs"] = replace(base, next_obs=other)
        return worlds

    @property
    def _kept(self) -> tuple[str, ...]:
        """The fields that stay where episodes after an end are exchanged."""
        return ("action",) if self.absorbing else ()

    def samples_a_statistic(self, kind: Kind) -> bool:
        """Return whether another episode in two environments moves what the others teach.

        So does the mean of a batch that was sampled from a replay, as of its advantages: after an
        exchange, it is of other steps.
        """
        if not hasattr(getattr(self.agent, "config", None), "buffer_size"):
            return False
        base = self.worlds[kind, "nothing"]
        in_first_pair = np.indices(self.shape)[1] < 2
        changed = base.exchanged((self.time > self.cut) & in_first_pair, *self._kept)
        moved = effects(self.learned[kind, "nothing"], self.learn(changed))
        return bool(moved[base.obs[:, 2:]].max(initial=0.0) > TOLERANCE)

    @property
    def _remembers(self) -> bool:
        return bool(jax.tree.leaves(self.agent.initial_carry(self.state, self.agent.num_envs)))

    def _base(self, kind: Kind) -> World:
        """Make a world whose episodes end at `cut` as `kind` says, and at some other steps."""
        (num_steps, num_envs), time = self.shape, self.time
        env = np.arange(num_envs)
        # In the two environments of a pair, episodes of different lengths, which end in both ways;
        # just before `here`, in the other way.
        before = (env % 2 == 0) & (time == self.cut - REACH)
        after = time == self.cut + 3 + env % 2
        late = time == self.cut + 7 - env % 2
        here = time == self.cut
        terminated = after | (before & (kind == "truncated")) | (here & (kind == "terminated"))
        truncated = late | (before & (kind != "truncated")) | (here & (kind == "truncated"))
        obs = np.arange(num_steps * num_envs).reshape(num_steps, num_envs)
        follows = np.concatenate([obs[1:], obs[-1:] + num_envs])
        next_obs = np.where(terminated | truncated, obs.size + obs, follows)
        draw = np.random.default_rng(self.case.seed)
        reward = draw.normal(size=self.shape).astype(np.float32)
        return World(obs, next_obs, reward, terminated, truncated)

    def _look_up(self, numbers: jax.Array) -> PyTree:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[numbers], self.separated.obs)

    @cached_property
    def _inputs(self) -> PolicyInput:
        """Inputs of the policy, of the environment's first step, for as many environments."""
        rows = np.arange(self.agent.num_envs) % self.case.num_envs
        inputs = jax.tree.map(lambda leaf: leaf[rows], self.case.inputs)
        mask = inputs.action_mask
        return replace(inputs, action_mask=None if mask is None else jnp.ones_like(mask))

    @cached_property
    def _acting(self) -> Compiled:
        visible_inputs = self._inputs  # computed before something is traced

        def act_all(
            state: AnyAgentState, obs: jax.Array, first: jax.Array, keys: jax.Array
        ) -> tuple[Carry, PolicyOutput]:
            def step(
                carry: Carry, visible: tuple[jax.Array, jax.Array, Key]
            ) -> tuple[Carry, tuple[Carry, PolicyOutput]]:
                number, first, key = visible
                inputs = replace(visible_inputs, obs=self._look_up(number), first=first)
                output = self.agent.act(state, carry, inputs, key, explore=True)
                return output.carry, (carry, output)

            carry = self.agent.initial_carry(state, self.agent.num_envs)
            return jax.lax.scan(step, carry, (obs, first, keys))[1]

        return Compiled("`act` in a scan", act_all)

    def _played(self, world: World) -> tuple[Carry, PolicyOutput]:
        """Act on a world's observations: the carries before each step, and the outputs."""
        keys = jax.random.split(self.case.key(72), self.shape[0])
        return self._call(self._acting, self.state, world.obs, world.first, keys)

    def _act(self, world: World) -> World:
        output = self._played(world)[1]
        return replace(world, action=output.action, extras=output.extras)

    def played_later(self, world: World) -> PyTree:
        """Act on a world's observations: the actions, extras and carries after the cut.

        Nothing without a carry, since a pure function of one step knows no other.
        """
        if not self._remembers:
            return ()
        output = self._played(world)[1]
        later = np.asarray(self.time > self.cut)

        def kept(leaf: jax.Array) -> np.ndarray:
            return np.asarray(leaf)[later]

        return jax.tree.map(
            kept, {"action": output.action, "extras": output.extras, "carry": output.carry}
        )

    @cached_property
    def _learning(self) -> Compiled:
        length = self.length(self.agent)

        def learn(
            state: AnyAgentState, world: dict[str, PyTree], carries: Carry, keys: jax.Array
        ) -> AnyAgentState:
            def step(
                state: AnyAgentState, inputs: tuple[dict[str, PyTree], Carry, Key]
            ) -> tuple[AnyAgentState, None]:
                now, carry, key = inputs
                now = {**now, "obs": self._look_up(now["obs"])}
                now["next_obs"] = self._look_up(now["next_obs"])
                trajectory = Trajectory(**{**no_masks, **now}, carry=carry)
                return self.agent.update(state, trajectory, key)[0], None

            no_masks = {"action_mask": None, "next_action_mask": None}
            rollouts = jax.tree.map(lambda leaf: leaf.reshape(-1, length, *leaf.shape[1:]), world)
            starts = jax.tree.map(lambda leaf: leaf[::length], carries)
            return jax.lax.scan(step, state, (rollouts, starts, keys))[0]

        return Compiled("`update` in a scan", learn)

    def learn(
        self, world: World, state: AnyAgentState = None, next_mask: np.ndarray | None = None
    ) -> Runs:
        """Return what each observation's parameters became in a world, for several keys.

        Args:
          world: with actions.
          state: from which it starts, if not the initial one.
          next_mask: bool `[L, N, num_actions]`; None allows all actions.
        """
        carries = self._played(world)[0] if self._remembers else ()
        arrays = {name: jax.tree.map(jnp.asarray, value) for name, value in vars(world).items()}
        arrays["first"] = jnp.asarray(world.first)
        if self._inputs.action_mask is not None:
            allowed = np.ones((self.shape[0], *self._inputs.action_mask.shape), bool)
            arrays["action_mask"] = jnp.asarray(allowed)
            arrays["next_action_mask"] = jnp.asarray(allowed if next_mask is None else next_mask)
        num_updates = self.shape[0] // self.length(self.agent)
        start = self.state if state is None else state
        runs = []
        for number in range(NUM_KEYS):
            keys = jax.random.split(self.case.key(80 + number), num_updates)
            runs.append(
                self.separated.rows(self._call(self._learning, start, arrays, carries, keys))
            )
        return runs

    def _call(self, compiled: Compiled, *args: PyTree) -> PyTree:
        """Call the agent, which passed its own checks: an error is of the other network."""
        try:
            return compiled(*args)
        except Failed as failure:
            raise NotApplicable(
                "not checked: with a network that has parameters for each observation, "
                f"{failure.found}"
            ) from None

    @cached_property
    def learned(self) -> dict[tuple[Kind, str], Runs]:
        """What was learned in each of `worlds`."""
        return {name: self.learn(world) for name, world in self.worlds.items()}

    def effects(self, first: tuple[Kind, str], second: tuple[Kind, str]) -> np.ndarray:
        """Measure how much else two worlds taught of each observation, `[P]`."""
        return effects(self.learned[first], self.learned[second])

    def require_learning(self) -> None:
        """Raise `NotApplicable` if no observation's parameters were changed."""
        if not any(
            rows.any() for runs in self.learned.values() for run in runs for rows in run.values()
        ):
            raise NotApplicable(
                f"not checked: in {self.shape[0]} steps of {self.shape[1]} environments it learned "
                "nothing about single observations."
            )

    def compared(self, what: str) -> str:
        """Say what was compared."""
        num_steps, num_envs = self.shape
        paths = sorted(next(iter(self.learned.values()))[0])
        arrays = ", ".join(path.replace(f".{ROWS}", "") for path in paths)
        text = f"{what}: {arrays}; {num_steps} steps of {num_envs} environments"
        if self.case.algorithm is not self.case:
            text += ", of the algorithm without its extension"
        if self.absorbing:
            text += ", with equal actions after an end, since it declares learns_absorbing_states"
        if self.separated.changed:
            settings = ", ".join(
                f"{name}={value}" for name, value in self.separated.changed.items()
            )
            text += f", with {settings}"
        return text


def effects(first: Runs, second: Runs) -> np.ndarray:
    """Measure how much two runs differ in each observation, by the largest change, `[P]`."""
    largest: Any = 0.0
    for one, other in zip(first, second, strict=True):
        for path, rows in one.items():
            rest = other[path]
            scale = max(np.abs(rows).max(initial=0.0), np.abs(rest).max(initial=0.0)) or 1.0
            difference = np.abs(rows - rest).reshape(len(rows), -1).max(axis=1, initial=0.0)
            largest = np.maximum(largest, difference / scale)
    return largest
