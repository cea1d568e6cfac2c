"""Deep Q-learning for discrete actions.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236, algorithm 1. Options: double
Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4), dueling networks
(Wang et al. 2016, https://arxiv.org/abs/1511.06581, equation 9), prioritized replay (Schaul et al.
2016, https://arxiv.org/abs/1511.05952, proportional) and n-step returns (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298, section "Multi-step learning").
Differences: Adam, on half the squared error without a clip; a truncated episode is bootstrapped
from its true last observation; the exponent of the importance weights does not change over the run.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import optax
import rlax

from ..core import specs
from ..core.agent import PolicyInput, PolicyOutput, Trajectory
from ..core.errors import TriglotError
from ..core.hyper import UNIT_INTERVAL, check_counts, check_ranges
from ..core.learner import Learner, LearnerState, Number, steps_if_ready
from ..core.network import Network, Variables
from ..core.networks.architecture import MLP, NetworkSpec, default_torso, q_head
from ..core.networks.heads import check_heads, merge_heads, num_actions
from ..core.rl.replay import Replay, ReplayState, Sample, Step
from ..core.specs import Spec

RANGES = {
    "discount": UNIT_INTERVAL,
    "epsilon_start": UNIT_INTERVAL,
    "epsilon_end": UNIT_INTERVAL,
    "tau": UNIT_INTERVAL,
    "importance_sampling_exponent": UNIT_INTERVAL,
    "epsilon_decay_steps": (1.0, math.inf),
}


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DQNHyperparams:
    """The numbers of DQN, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: Adam's.
      discount: of future rewards, within [0, 1].
      epsilon_start: probability of a random action at first.
      epsilon_end: the same, from `epsilon_decay_steps` on.
      epsilon_decay_steps: environment steps, of all environments together, over which it changes
        linearly.
      tau: share of the online parameters in the target's, at each change of the target: 1 copies
        them, less averages them (Polyak).
      priority_exponent: of the error, in a step's priority; 0 samples uniformly.
      importance_sampling_exponent: of the weights that correct for priorities, within [0, 1].
      priority_eps: added to an error's size, so that no step is never sampled.
      max_grad_norm: the global gradient norm is clipped to this.
      adam_eps: Adam's epsilon.
    """

    learning_rate: Number = 2.5e-4
    discount: Number = 0.99
    epsilon_start: Number = 1.0
    epsilon_end: Number = 0.05
    epsilon_decay_steps: Number = 250_000.0
    tau: Number = 1.0
    priority_exponent: Number = 0.6
    importance_sampling_exponent: Number = 0.4
    priority_eps: Number = 1e-6
    max_grad_norm: Number = 10.0
    adam_eps: Number = 1e-8


@dataclass(frozen=True, kw_only=True)
class DQNConfig:
    """The shapes and counts of DQN, fixed when it is compiled.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_gradient_steps: gradient steps in one update.
      batch_size: samples in one gradient step, `B`.
      buffer_size: environment steps kept for replay, rounded up to whole rollouts.
      learning_starts: environment steps in the replay before the first gradient step.
      target_update_period: gradient steps between changes of the target network.
      n_step: rewards summed before a value stands in for the rest.
      double: let the online network choose the action that the target network values.
      dueling: sum a value and advantages in the network's head.
      prioritized: sample by the size of the last error instead of uniformly.
      hidden_sizes: units of the hidden layers, where observations are vectors.
    """

    num_envs: int = 10
    rollout_length: int = 1
    num_gradient_steps: int = 1
    batch_size: int = 128
    buffer_size: int = 10_000
    learning_starts: int = 10_000
    target_update_period: int = 50
    n_step: int = 1
    double: bool = False
    dueling: bool = False
    prioritized: bool = False
    hidden_sizes: tuple[int, ...] = (120, 84)

    def __post_init__(self) -> None:
        check_counts("DQN", self)
        if self.batch_size > self.buffer_size:
            raise TriglotError(
                f"DQN's replay is smaller than a batch: buffer_size is {self.buffer_size} and "
                f"batch_size {self.batch_size}; keep more steps or draw fewer."
            )
        if self.learning_starts > self.capacity:
            raise TriglotError(
                f"DQN would never learn: learning_starts is {self.learning_starts}, and no more "
                f"than buffer_size = {self.buffer_size} steps are kept; lower learning_starts."
            )
        least = self.batch_size + (self.n_step - 1) * self.num_envs
        if self.learning_starts < least:
            raise TriglotError(
                f"DQN's learning_starts must be at least batch_size + (n_step - 1) * num_envs = "
                f"{least}, so that the replay holds a batch; got {self.learning_starts}."
            )

    @property
    def steps_per_update(self) -> int:
        """Environment steps in one rollout."""
        return self.num_envs * self.rollout_length

    @property
    def capacity(self) -> int:
        """`buffer_size`, rounded up to whole rollouts."""
        return -(-self.buffer_size // self.steps_per_update) * self.steps_per_update


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class DQNState:
    """Everything DQN has learned and remembers, and its numbers.

    Attributes:
      learner: network variables and optimizer state.
      target: variables of the target network.
      replay: the last steps.
      hyper: float32 `[]` each.
      num_updates: int32 `[]`, calls of `update` so far.
      num_gradient_steps: int32 `[]`, gradient steps so far.
    """

    learner: LearnerState
    target: Variables
    replay: ReplayState
    hyper: DQNHyperparams
    num_updates: jax.Array
    num_gradient_steps: jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Batch:
    """What one gradient step learns from.

    Attributes:
      sample: transitions, `[B, ...]`.
      target: variables of the target network.
      weight: of each sample in the loss, float32 `[B]`.
    """

    sample: Sample
    target: Variables
    weight: jax.Array


def make_optimizer(
    learning_rate: float, max_grad_norm: float, adam_eps: float
) -> optax.GradientTransformation:
    """Chain the clip of the global norm and Adam."""
    return optax.chain(
        optax.clip_by_global_norm(max_grad_norm), optax.adam(learning_rate, eps=adam_eps)
    )


@dataclass(frozen=True)
class DQN:
    """The agent.

    Attributes:
      network: gives `q` `[B, num_actions]`; it may not be recurrent.
      obs_spec: one observation.
      action_spec: must be `Discrete`.
      config: shapes and counts.
      hyper: the numbers it starts from.

    Raises:
      TriglotError: if the actions are not discrete, the network is recurrent or its outputs do not
        fit, or a number is out of its range.
    """

    network: Network
    obs_spec: Spec
    action_spec: Spec
    config: DQNConfig = DQNConfig()
    hyper: DQNHyperparams = DQNHyperparams()

    Config = DQNConfig
    Hyperparams = DQNHyperparams

    def __post_init__(self) -> None:
        check_ranges("DQN", self.hyper, RANGES)
        eps = self.hyper.priority_eps
        if isinstance(eps, float | int) and not eps > 0.0:
            raise TriglotError(
                f"DQN's priority_eps must be positive, got {eps}: else steps without an error, and "
                "in the end all, are never sampled."
            )
        if self.network.recurrent:
            raise TriglotError(
                f"DQN replays single steps, and the network {self.network.name!r} is recurrent: "
                "take one without a carry, or PPO, which trains recurrent networks."
            )
        check_heads(self.network, self.obs_spec, {"q": (self._num_actions,)}, algorithm="DQN")

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: DQNConfig = DQNConfig()
    ) -> dict[str, NetworkSpec]:
        """Describe the network DQN uses where nobody brings another."""
        torso = default_torso(obs_spec, config.hidden_sizes)
        if isinstance(torso, MLP):
            torso = replace(torso, activation="relu")
        head = q_head(num_actions(action_spec, algorithm="DQN"), dueling=config.dueling)
        return {"q_network": NetworkSpec(obs_spec, torso, (("q", head),))}

    @property
    def _num_actions(self) -> int:
        return num_actions(self.action_spec, algorithm="DQN")

    @property
    def num_envs(self) -> int:
        return self.config.num_envs

    @property
    def rollout_length(self) -> int:
        return self.config.rollout_length

    @property
    def learner(self) -> Learner:
        numbers = {name: getattr(self.hyper, name) for name in ("max_grad_norm", "adam_eps")}
        make = optax.inject_hyperparams(make_optimizer)
        return Learner(self.network, make(learning_rate=self.hyper.learning_rate, **numbers))

    @property
    def replay(self) -> Replay:
        config = self.config
        return Replay(
            capacity=config.capacity,
            num_envs=config.num_envs,
            n_step=config.n_step,
            prioritized=config.prioritized,
        )

    def init(self, key: jax.Array, num_envs: int, hyper: DQNHyperparams | None = None) -> DQNState:
        del num_envs
        numbers = jax.tree.map(
            lambda number: jnp.asarray(number, jnp.float32), self.hyper if hyper is None else hyper
        )
        learner_state = self.learner.init(key)
        return DQNState(
            learner=learner_state,
            # A copy, since whoever donates the state may give no buffer twice.
            target=jax.tree.map(jnp.copy, learner_state.variables),
            replay=self.replay.init(self._no_steps),
            hyper=numbers,
            num_updates=jnp.zeros((), jnp.int32),
            num_gradient_steps=jnp.zeros((), jnp.int32),
        )

    def _no_steps(self, count: int) -> Step:
        return Step(
            obs=specs.zeros(self.obs_spec, count),
            action=specs.zeros(self.action_spec, count),
            reward=jnp.zeros((count,), jnp.float32),
            terminated=jnp.zeros((count,), bool),
            truncated=jnp.zeros((count,), bool),
            next_obs=specs.zeros(self.obs_spec, count),
            next_action_mask=jnp.ones((count, self._num_actions), bool),
        )

    def initial_carry(self, state: DQNState, num_envs: int) -> Any:
        del state, num_envs
        return ()

    def action_values(self, state: DQNState, obs: Any) -> jax.Array:
        """Value the actions, float32 `[B, num_actions]`, by the online network."""
        return self._q(state.learner.variables, obs)

    def epsilon(self, state: DQNState) -> jax.Array:
        """Give the probability of a random action, float32 `[]`."""
        hyper = state.hyper
        steps = state.num_updates.astype(jnp.float32) * self.config.steps_per_update
        share = jnp.minimum(steps / hyper.epsilon_decay_steps, 1.0)
        return hyper.epsilon_start + share * (hyper.epsilon_end - hyper.epsilon_start)

    def act(
        self, state: DQNState, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        q = self.action_values(state, inputs.obs)
        action = jnp.argmax(_allowed(q, inputs.action_mask), axis=-1).astype(jnp.int32)
        if explore:
            action = explored(action, q.shape[-1], inputs.action_mask, self.epsilon(state), key)
        return PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: DQNState, trajectory: Trajectory, key: jax.Array
    ) -> tuple[DQNState, dict[str, jax.Array]]:
        mask = trajectory.next_action_mask
        all_allowed = jnp.ones((*trajectory.reward.shape, self._num_actions), bool)
        steps = Step(
            obs=trajectory.obs,
            action=trajectory.action,
            reward=trajectory.reward,
            terminated=trajectory.terminated,
            truncated=trajectory.truncated,
            next_obs=trajectory.next_obs,
            next_action_mask=all_allowed if mask is None else mask,
        )
        state = replace(state, replay=self.replay.add(state.replay, steps))
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))

        def step(state: DQNState, keys: jax.Array) -> tuple[DQNState, dict[str, jax.Array]]:
            sample_key, loss_key = keys
            sample = self._sample(state, sample_key)
            if mask is None:
                sample = replace(sample, next_action_mask=None)
            return self._learn_from(state, sample, loss_key)

        ready = state.replay.size >= self.config.learning_starts
        epsilon = self.epsilon(state)
        state, metrics = steps_if_ready(ready, step, state, keys)
        return replace(state, num_updates=state.num_updates + 1), {
            **metrics,
            "epsilon": epsilon,
            "replay_size": state.replay.size.astype(jnp.float32),
        }

    def _sample(self, state: DQNState, key: jax.Array) -> Sample:
        discount = state.hyper.discount
        return self.replay.sample(state.replay, key, self.config.batch_size, discount)

    def _learn_from(
        self, state: DQNState, sample: Sample, key: jax.Array
    ) -> tuple[DQNState, dict[str, jax.Array]]:
        hyper = state.hyper
        weight = jnp.ones_like(sample.reward)
        if self.config.prioritized:
            weight = importance(sample.probability, hyper.importance_sampling_exponent)
        learner_state, metrics = self.learner.step(
            state.learner,
            self.loss,
            Batch(sample=sample, target=state.target, weight=weight),
            key,
            {
                "learning_rate": hyper.learning_rate,
                "max_grad_norm": hyper.max_grad_norm,
                "adam_eps": hyper.adam_eps,
            },
        )
        error = jnp.abs(metrics.pop("td_errors"))
        priority = (error + hyper.priority_eps) ** hyper.priority_exponent
        num_gradient_steps = state.num_gradient_steps + 1
        return replace(
            state,
            learner=learner_state,
            target=self._next_target(state, learner_state.variables, num_gradient_steps),
            replay=self.replay.update_priorities(state.replay, sample.slot, priority),
            num_gradient_steps=num_gradient_steps,
        ), {**metrics, "td_error": error.mean()}

    def _next_target(
        self, state: DQNState, online: Variables, num_gradient_steps: jax.Array
    ) -> Variables:
        """Move the target's parameters towards the online ones, where it is time."""
        tau: Any = state.hyper.tau
        moved = Variables(
            params=optax.incremental_update(online.params, state.target.params, tau),
            state=online.state,
        )
        is_time = num_gradient_steps % self.config.target_update_period == 0
        return jax.tree.map(lambda new, old: jnp.where(is_time, new, old), moved, state.target)

    def loss(
        self, variables: Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], Any]]:
        """Average half the squared error of the temporal difference, weighted.

        L = mean(0.5 * w * (r + discount * max_a Q'(s', a) - Q(s, a))^2), where Q' is the target
        network's; the online network chooses its action if `double`.

        Args:
          variables: of the network in training.
          batch: samples, and the target network's variables.
          key: for the network's own randomness.

        Returns:
          float32 `[]`, with the metrics, `td_errors` `[B]` among them, and the network's new state.
        """
        sample = batch.sample
        outputs, new_state = self.network.apply(variables, sample.obs, key=key, train=True)
        q = merge_heads(outputs)["q"]
        next_q = self._q(batch.target, sample.next_obs)
        data = (q, sample.action, sample.reward, sample.discount)
        if self.config.double:
            chooser = _allowed(self._q(variables, sample.next_obs), sample.next_action_mask)
            errors = jax.vmap(rlax.double_q_learning)(*data, next_q, chooser)
        else:
            errors = jax.vmap(rlax.q_learning)(*data, _allowed(next_q, sample.next_action_mask))
        errors = jnp.asarray(errors)
        loss = jnp.mean(batch.weight * rlax.l2_loss(errors))
        return loss, ({"td_errors": errors, "q": q.mean()}, new_state)

    def _q(self, variables: Variables, obs: Any) -> jax.Array:
        outputs, _ = self.network.apply(variables, obs)
        return merge_heads(outputs)["q"]


def explored(
    greedy: jax.Array,
    num_actions: int,
    action_mask: jax.Array | None,
    epsilon: Number,
    key: jax.Array,
) -> jax.Array:
    """Replace actions by random allowed ones with probability `epsilon`.

    Args:
      greedy: int32 `[N]`.
      num_actions: how many there are.
      action_mask: bool `[N, num_actions]`, or None where all are allowed.
      epsilon: float `[]` within [0, 1].
      key: a typed key.

    Returns:
      int32 `[N]`.
    """
    # One draw serves both questions, since in a small loop each draw costs as much as the rest: a
    # number below epsilon is, divided by it, uniform again.
    drawn = jax.random.uniform(key, greedy.shape)
    again = jnp.minimum(drawn / jnp.maximum(epsilon, 1e-8), 1.0 - 1e-6)
    if action_mask is None:
        chosen = (again * num_actions).astype(jnp.int32)
    else:
        rank = jnp.cumsum(action_mask.astype(jnp.int32), axis=-1)
        wanted = (again * rank[:, -1].astype(jnp.float32)).astype(jnp.int32)
        chosen = jnp.argmax(rank > wanted[:, None], axis=-1).astype(jnp.int32)
    return jnp.where(drawn < epsilon, chosen, greedy)


def importance(probability: jax.Array, exponent: Number) -> jax.Array:
    """Weigh samples against the probability that they were drawn with; at most 1.

    w_i = P(i)^-exponent / max_j P(j)^-exponent, over the batch.

    Args:
      probability: float32 `[B]`, above 0.
      exponent: float `[]`; 1 corrects fully, 0 not at all.

    Returns:
      float32 `[B]`.

    Source: Schaul et al. 2016, section 3.4, https://arxiv.org/abs/1511.05952.
    """
    return (probability.min() / probability) ** exponent


def _allowed(q: jax.Array, action_mask: jax.Array | None) -> jax.Array:
    """Put forbidden actions below every other, and finite: a terminal step counts them 0 times."""
    return q if action_mask is None else jnp.where(action_mask, q, jnp.finfo(q.dtype).min)
