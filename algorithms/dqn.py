"""Deep Q-learning for discrete actions.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236, algorithm 1. Options: double
Q-learning (van Hasselt et al. 2016, https://arxiv.org/abs/1509.06461, equation 4), dueling networks
(Wang et al. 2016, https://arxiv.org/abs/1511.06581, equation 9), prioritized replay (Schaul et al.
2016, https://arxiv.org/abs/1511.05952, proportional) and n-step returns (Hessel et al. 2018,
https://arxiv.org/abs/1710.02298, section "Multi-step learning").
Differences: Adam, on half the squared error without clipping; a truncated episode bootstraps from
its true last observation; the exponent of the importance weights is constant over the run.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from ..core.agent import AgentBase, AgentState, PolicyInput, PolicyOutput, Trajectory
from ..core.hyper import Number, between, only_for, positive, unit_interval
from ..core.learner import steps_if_ready
from ..core.network import Variables
from ..core.networks.architecture import ConvolutionConfig, NetworkSpec, default_torso, q_head
from ..core.networks.heads import merge_heads, num_actions, require_single_steps
from ..core.rl.replay import PrioritizedReplayConfig, Replay, ReplayState, Sample
from ..core.rl.targets import polyak, target_of
from ..core.specs import Spec
from ..core.types import Metrics, pytree_dataclass


@pytree_dataclass
class DQNHyperparams:
    """Hyperparameters of DQN, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the optimizer.
      discount: of future rewards, within [0, 1].
      epsilon_start: probability of a random action at the start.
      epsilon_end: the same, from `epsilon_decay_steps` on.
      epsilon_decay_steps: environment steps, of all environments together, over which it changes
        linearly.
      tau: weight of the online parameters in each update of the target's: 1 copies them, less
        averages them (Polyak).
      priority_exponent: of the error, in a step's priority; 0 samples uniformly.
      importance_sampling_exponent: of the weights that correct for priorities, within [0, 1].
      priority_eps: added to the absolute error, so that every step can be sampled.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
    """

    learning_rate: Number = 2.5e-4
    discount: Number = unit_interval(0.99)
    epsilon_start: Number = unit_interval(1.0)
    epsilon_end: Number = unit_interval(0.05)
    epsilon_decay_steps: Number = between(250_000.0, 1.0)
    tau: Number = unit_interval(1.0)
    priority_exponent: Number = only_for("prioritized", 0.6)
    importance_sampling_exponent: Number = only_for("prioritized", unit_interval(0.4))
    priority_eps: Number = only_for("prioritized", positive(1e-6))
    max_grad_norm: Number = between(10.0, 0.0)
    adam_eps: Number = only_for("optimizer", 1e-8)


@dataclass(frozen=True, kw_only=True)
class DQNConfig(ConvolutionConfig, PrioritizedReplayConfig):
    """Static configuration of DQN.

    Attributes:
      target_update_period: gradient steps between updates of the target network.
      double: let the online network choose the action that the target network evaluates.
      dueling: sum a value and advantages in the network's head.
      hidden_sizes: units of the hidden layers.
    """

    num_envs: int = 10
    target_update_period: int = 50
    double: bool = False
    dueling: bool = only_for("networks", False)
    hidden_sizes: tuple[int, ...] = only_for("networks", (120, 84))


@pytree_dataclass
class DQNState(AgentState):
    """DQN training state; `target` has the target network's variables."""

    target: Variables
    replay: ReplayState


@pytree_dataclass
class Batch:
    """Samples `[B, ...]`, the target network's variables, and the samples' weights `[B]`."""

    sample: Sample
    target: Variables
    weight: jax.Array


@dataclass(frozen=True)
class DQN(AgentBase):
    """The agent; its network gives `q` `[B, num_actions]`, and must not be recurrent."""

    config: DQNConfig = DQNConfig()
    hyper: DQNHyperparams = DQNHyperparams()

    Config = DQNConfig
    Hyperparams = DQNHyperparams

    def __post_init__(self) -> None:
        require_single_steps("DQN", self.network)
        super().__post_init__()

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {"q": (num_actions(self.action_spec, algorithm="DQN"),)}

    @staticmethod
    def networks(
        obs_spec: Spec, action_spec: Spec, config: DQNConfig = DQNConfig()
    ) -> dict[str, NetworkSpec]:
        """Describe the `q_network`."""
        torso = default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
        head = q_head(num_actions(action_spec, algorithm="DQN"), dueling=config.dueling)
        return {"q_network": NetworkSpec(obs_spec, torso, (("q", head),))}

    @property
    def replay(self) -> Replay:
        return Replay.of(self.config, self.obs_spec, self.action_spec)

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> DQNState:
        learned = super().init(key, num_envs, hyper)
        return DQNState(
            **vars(learned),
            target=target_of(learned.learner.variables),
            replay=self.replay.init(),
        )

    def action_values(self, state: DQNState, obs: Any) -> jax.Array:
        """Estimate the action values, float32 `[B, num_actions]`, by the online network."""
        return self._q(state.learner.variables, obs)

    def epsilon(self, state: DQNState) -> jax.Array:
        """Compute the probability of a random action, float32 `[]`."""
        hyper, num_steps = state.hyper, state.replay.num_added.astype(jnp.float32)
        share = jnp.minimum(num_steps / hyper.epsilon_decay_steps, 1.0)
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
    ) -> tuple[DQNState, Metrics]:
        epsilon = self.epsilon(state)
        state = replace(state, replay=self.replay.add_trajectory(state.replay, trajectory))
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))

        def step(state: DQNState, keys: jax.Array) -> tuple[DQNState, Metrics]:
            sample = self._sample(state, keys[0])
            if trajectory.next_action_mask is None:
                sample = replace(sample, next_action_mask=None)
            return self._learn_from(state, sample, keys[1])

        ready = state.replay.size >= self.config.learning_starts
        state, metrics = steps_if_ready(ready, step, state, keys)
        return state, {
            **metrics,
            "epsilon": epsilon,
            "replay_size": state.replay.size.astype(jnp.float32),
        }

    def _sample(self, state: DQNState, key: jax.Array) -> Sample:
        discount = state.hyper.discount
        return self.replay.sample(state.replay, key, self.config.batch_size, discount)

    def _learn_from(
        self, state: DQNState, sample: Sample, key: jax.Array
    ) -> tuple[DQNState, Metrics]:
        """Take one gradient step; then update the priorities and the target network."""
        hyper = state.hyper
        weight = jnp.ones_like(sample.reward)
        if self.config.prioritized:
            weight = importance(sample.probability, hyper.importance_sampling_exponent)
        batch = Batch(sample=sample, target=state.target, weight=weight)
        learner, metrics = self.learner.step(state.learner, self.loss, batch, key, hyper)
        error = jnp.abs(metrics.pop("td_errors"))
        priority = (error + hyper.priority_eps) ** hyper.priority_exponent
        moved = polyak(learner.variables, state.target, hyper.tau)
        is_time = learner.num_gradient_steps % self.config.target_update_period == 0
        return replace(
            state,
            learner=learner,
            target=jax.tree.map(lambda new, old: jnp.where(is_time, new, old), moved, state.target),
            replay=self.replay.update_priorities(state.replay, sample.slot, priority),
        ), {**metrics, "td_error": error.mean()}

    def loss(
        self, variables: Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[Metrics, Any]]:
        """Average half the squared temporal-difference error, weighted.

        L = mean(0.5 * w * (r + discount * max_a Q'(s', a) - Q(s, a))^2), with Q' of the target
        network; the online network chooses its action if `double`.

        Returns the loss, float32 `[]`, with the metrics, `td_errors` `[B]` among them, and the
        network's new state; `key` is for the network's own randomness.
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
      num_actions: number of actions.
      action_mask: bool `[N, num_actions]`, or None where all are allowed.
      epsilon: float `[]` within [0, 1].
      key: a typed key.

    Returns:
      int32 `[N]`.
    """
    # One draw serves both decisions, since in a small loop a draw costs as much as all the rest: a
    # uniform number below epsilon, divided by epsilon, is uniform again.
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
    """Compute importance-sampling weights of samples; at most 1.

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
    """Set forbidden actions to the lowest finite value: a terminal step multiplies them by 0."""
    return q if action_mask is None else jnp.where(action_mask, q, jnp.finfo(q.dtype).min)
