"""A dozen bugs by which learning differs from acting, each planted in an algorithm of ours."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp

from triglot import make_agent
from triglot.algorithms.dqn import DQN
from triglot.algorithms.ppo import PPO
from triglot.algorithms.r2d2 import R2D2
from triglot.algorithms.sac import SAC
from triglot.checks.acting.probe import Probe
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.distributions import policy, to_action
from triglot.core.rl.normalize import normalized
from triglot.core.specs import Box, Discrete

OBS, ACTIONS, CONTINUOUS = Box((3,)), Discrete(4), Box((2,), "float32", -2.0, 2.0)
POLICY: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "hidden_sizes": (8,),
}
REPLAYED: dict[str, Any] = {
    "num_envs": 4,
    "rollout_length": 8,
    "batch_size": 16,
    "buffer_size": 128,
    "learning_starts": 64,
    "num_gradient_steps": 1,
    "hidden_sizes": (8,),
}
RECURRENT: dict[str, Any] = {**POLICY, "cell": "gru", "cell_size": 4}
SEQUENCES: dict[str, Any] = {**REPLAYED, "burn_in_length": 3, "unroll_length": 5, "cell_size": 4}


def build(
    kind: type, config: Mapping[str, Any], action_spec: Any = ACTIONS, obs_spec: Any = OBS
) -> Any:
    """Make an agent of a class that inherits an algorithm of ours."""
    env = Probe(obs_spec, action_spec, masked=True)
    algorithm = next(one for one in kind.__mro__ if one.__module__.startswith("triglot.alg"))
    name = algorithm.__name__.lower()
    described = kind.networks(obs_spec, action_spec, algorithm.Config(**config))  # pyright: ignore
    made: Any = make_agent(name, env, config=dict(config))
    if described != algorithm.networks(obs_spec, action_spec, algorithm.Config(**config)):  # pyright: ignore
        from triglot.backends import build as build_networks

        made = replace(made, network=build_networks("linen", described))
    return kind(**{one.name: getattr(made, one.name) for one in fields(made)})


class NeighbourCarry(PPO):
    """The carry is reset where the neighbouring environment's episode ended."""

    def act(self, state: Any, carry: Any, inputs: Any, key: Any, *, explore: bool) -> Any:
        inputs = replace(inputs, first=jnp.roll(inputs.first, 1))
        return super().act(state, carry, inputs, key, explore=explore)


class NeighbourCarryLearned(PPO):
    """The same in the loss alone."""

    def evaluate(self, variables: Any, batch: Any, key: Any) -> Any:
        return super().evaluate(variables, replace(batch, first=jnp.roll(batch.first, 1, 0)), key)


class MaskAfterReset(DQN):
    """The mask of a step's successor is that of the next step, from after the reset."""

    def update(self, state: Any, trajectory: Any, key: Any) -> Any:
        after = jnp.concatenate([trajectory.action_mask[1:], trajectory.next_action_mask[-1:]])
        return super().update(state, replace(trajectory, next_action_mask=after), key)


class EarlyStatistics(PPO):
    """The observation statistics are updated between acting and learning."""

    def update(self, state: Any, trajectory: Any, key: Any) -> Any:
        _, now = state.normalizer.trajectory(trajectory, state.hyper.discount)
        return super().update(replace(state, normalizer=now), trajectory, key)


class HeadWithoutMask(PPO):
    """The loss evaluates the policy without the action mask."""

    def evaluate(self, variables: Any, batch: Any, key: Any) -> Any:
        return super().evaluate(variables, replace(batch, action_mask=None), key)


class NewNoise(PPO):
    """The loss draws the noise of noisy layers anew."""

    @classmethod
    def networks(cls, obs_spec: Any, action_spec: Any, config: Any = None) -> Any:
        described = super().networks(obs_spec, action_spec, config)
        return {name: replace(spec, noise=0.5) for name, spec in described.items()}

    def act(self, state: Any, carry: Any, inputs: Any, key: Any, *, explore: bool) -> Any:
        noise_key, own_key = jax.random.split(key)
        variables = self.acting(state)
        heads = merge_heads(self.network.apply(variables, inputs.obs, key=noise_key)[0])
        actor = policy(self.action_spec, heads, inputs.action_mask)
        raw = actor.sample(own_key) if explore else actor.mode()
        extras = {"raw": raw, "logits": heads["logits"]}
        made = super().act(state, carry, inputs, key, explore=explore)
        return replace(made, action=to_action(self.action_spec, raw), extras=extras)


class BatchStatistics(PPO):
    """Batch normalization uses running statistics in acting and the batch's in the loss."""

    @classmethod
    def networks(cls, obs_spec: Any, action_spec: Any, config: Any = None) -> Any:
        described = super().networks(obs_spec, action_spec, config)
        return {name: spec.normalized("batch") for name, spec in described.items()}


class Stacking(PPO):
    """Stacks the last two frames in its carry; correct."""

    joins = False

    def __post_init__(self) -> None:
        """Accept a network of stacks."""

    def initial_carry(self, state: Any, num_envs: int) -> Any:
        spec: Any = self.obs_spec
        return jnp.zeros((num_envs, *spec.shape))

    @staticmethod
    def stacked(before: Any, obs: Any, first: Any) -> Any:
        return jnp.concatenate([jnp.where(first[..., None], 0.0, before), obs], axis=-1)

    def act(self, state: Any, carry: Any, inputs: Any, key: Any, *, explore: bool) -> Any:
        stack = self.stacked(carry, inputs.obs, inputs.first)
        made = super().act(state, carry, replace(inputs, obs=stack), key, explore=explore)
        return replace(made, carry=inputs.obs)

    def update(self, state: Any, trajectory: Any, key: Any) -> Any:
        t = trajectory
        before = jnp.concatenate([t.carry[None], t.obs[:-1]])
        first = jnp.zeros_like(t.first) if self.joins else t.first
        follows = self.stacked(t.obs, t.next_obs, jnp.zeros_like(t.first))
        stacks = replace(t, obs=self.stacked(before, t.obs, first), next_obs=follows, carry=())
        return super().update(state, stacks, key)


class JoinedStacks(Stacking):
    """The frame stacks of the loss join the frames of two episodes."""

    joins = True


@dataclass(frozen=True)
class StoredPolicy:
    """A policy known by the log-probabilities that acting stored."""

    stored: Any

    def log_prob(self, raw: Any) -> Any:
        del raw
        return self.stored


class StoringLogProb(PPO):
    """Stores log-probabilities in `act`; correct."""

    limit = 1e9

    def act(self, state: Any, carry: Any, inputs: Any, key: Any, *, explore: bool) -> Any:
        made = super().act(state, carry, inputs, key, explore=explore)
        raw = made.extras["raw"]
        log_prob = policy(self.action_spec, made.extras).log_prob(raw)
        raw = jnp.clip(raw, -self.limit, self.limit)
        extras = {**made.extras, "raw": raw, "log_prob": log_prob}
        return replace(made, action=to_action(self.action_spec, raw), extras=extras)

    def behaviour(self, trajectory: Any) -> Any:
        return StoredPolicy(trajectory.extras["log_prob"])


class ClippedAfterwards(StoringLogProb):
    """The action is clipped after its log-probability was computed."""

    limit = 0.8


class Temperature(PPO):
    """Divides the logits by a temperature that falls with the updates; correct."""

    late = 0
    now: Any = None

    def temperature(self, state: Any) -> Any:
        updates = state.learner.num_gradient_steps // 2
        return 2.0 / (1.0 + updates.astype(jnp.float32))

    def act(self, state: Any, carry: Any, inputs: Any, key: Any, *, explore: bool) -> Any:
        made = super().act(state, carry, inputs, key, explore=explore)
        logits = made.extras["logits"] / self.temperature(state)
        actor = policy(self.action_spec, {"logits": logits}, inputs.action_mask)
        raw = actor.sample(key) if explore else actor.mode()
        extras = {"raw": raw, "logits": logits}
        return replace(made, action=to_action(self.action_spec, raw), extras=extras)

    def update(self, state: Any, trajectory: Any, key: Any) -> Any:
        ahead = replace(state.learner, num_gradient_steps=state.learner.num_gradient_steps + 2)
        one = copy.copy(self)
        read = replace(state, learner=ahead) if self.late else state
        object.__setattr__(one, "now", self.temperature(read))
        return super(Temperature, one).update(state, trajectory, key)

    def evaluate(self, variables: Any, batch: Any, key: Any) -> Any:
        outputs, new_state = self.network.apply(variables, batch.obs, key=key, train=True)
        heads = merge_heads(outputs)
        logits = {"logits": heads["logits"] / self.now}
        return policy(self.action_spec, logits, batch.action_mask), heads["value"], batch, new_state


class LateSchedule(Temperature):
    """The loss reads the temperature's schedule one update late."""

    late = 1


class MixedCarries(PPO):
    """Minibatches of rollouts start from the carries of other environments."""

    def samples(self, kind: Any, trajectory: Any, **data: Any) -> Any:
        made = super().samples(kind, trajectory, **data)
        rolled = jax.tree.map(lambda leaf: jnp.roll(leaf, 1, axis=0), made.carry)
        return replace(made, carry=rolled)


class WrongEnd(R2D2):
    """Sequences lose their last steps, and not the first, after the burn-in."""

    def _unroll(self, variables: Any, steps: Any, key: Any = None, train: bool = False) -> Any:
        cut = self.config.burn_in_length
        shifted = jax.tree.map(
            lambda leaf: jnp.concatenate([leaf[:cut], leaf[:-cut]]), (steps.obs, steps.first)
        )
        steps = replace(steps, obs=shifted[0], first=shifted[1])
        return super()._unroll(variables, steps, key, train)


class NormalizedTwice(SAC):
    """Replayed observations are normalized twice."""

    def learn(self, state: Any, sample: Any, key: Any) -> Any:
        obs, after = (normalized(state.obs_stats, x) for x in (sample.obs, sample.next_obs))
        return super().learn(state, replace(sample, obs=obs, next_obs=after), key)


def stacking(kind: type) -> Any:
    """Make an agent of stacks of two frames."""
    made = build(PPO, POLICY, obs_spec=Box((6,)))
    given = {one.name: getattr(made, one.name) for one in fields(made)}
    return kind(**{**given, "obs_spec": OBS})


SCALED = {**POLICY, "normalize_obs": True}

# By the array that the finding names.
PLANTED: dict[type, tuple[Callable[[], Any], str]] = {
    NeighbourCarry: (lambda: build(NeighbourCarry, RECURRENT), "carry"),
    NeighbourCarryLearned: (lambda: build(NeighbourCarryLearned, RECURRENT), "carry"),
    MaskAfterReset: (lambda: build(MaskAfterReset, REPLAYED), "next_action_mask"),
    EarlyStatistics: (lambda: build(EarlyStatistics, SCALED), "inputs"),
    HeadWithoutMask: (lambda: build(HeadWithoutMask, POLICY), "stored log_prob"),
    NewNoise: (lambda: build(NewNoise, POLICY), "output"),
    BatchStatistics: (lambda: build(BatchStatistics, POLICY), "output"),
    JoinedStacks: (lambda: stacking(JoinedStacks), "inputs"),
    ClippedAfterwards: (
        lambda: build(ClippedAfterwards, POLICY, CONTINUOUS),
        "stored log_prob",
    ),
    LateSchedule: (lambda: build(LateSchedule, POLICY), "stored log_prob"),
    MixedCarries: (lambda: build(MixedCarries, RECURRENT), "carry"),
    WrongEnd: (lambda: build(WrongEnd, SEQUENCES), "carry"),
    NormalizedTwice: (
        lambda: build(NormalizedTwice, {**REPLAYED, "normalize_obs": True}, CONTINUOUS),
        "inputs",
    ),
}
CORRECT: dict[str, Callable[[], Any]] = {
    "stacks": lambda: stacking(Stacking),
    "stored log-probabilities": lambda: build(StoringLogProb, POLICY, CONTINUOUS),
    "temperature": lambda: build(Temperature, POLICY),
}
