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

from .. import nn, rl


@rl.pytree_dataclass
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

    learning_rate: rl.Number = 2.5e-4
    discount: rl.Number = rl.unit_interval(0.99)
    epsilon_start: rl.Number = rl.unit_interval(1.0)
    epsilon_end: rl.Number = rl.unit_interval(0.05)
    epsilon_decay_steps: rl.Number = rl.between(250_000.0, 1.0)
    tau: rl.Number = rl.unit_interval(1.0)
    priority_exponent: rl.Number = rl.only_for("prioritized", 0.6)
    importance_sampling_exponent: rl.Number = rl.only_for("prioritized", rl.unit_interval(0.4))
    priority_eps: rl.Number = rl.only_for("prioritized", rl.positive(1e-6))
    max_grad_norm: rl.Number = rl.between(10.0, 0.0)
    adam_eps: rl.Number = rl.only_for("optimizer", 1e-8)


@dataclass(frozen=True, kw_only=True)
class DQNConfig(nn.ConvolutionConfig, rl.PrioritizedReplayConfig):
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
    dueling: bool = rl.only_for("networks", False)
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (120, 84))


@rl.pytree_dataclass
class DQNState(rl.AgentState):
    """DQN training state; `target` has the target network's variables."""

    target: nn.Variables
    replay: rl.ReplayState


@rl.pytree_dataclass
class Batch:
    """Samples `[B, ...]`, the target network's variables, and the samples' weights `[B]`."""

    sample: rl.Sample
    target: nn.Variables
    weight: jax.Array


@dataclass(frozen=True)
class DQN(rl.AgentBase):
    """The agent; its network gives `q` `[B, num_actions]`, and must not be recurrent."""

    config: DQNConfig = DQNConfig()
    hyper: DQNHyperparams = DQNHyperparams()

    Config = DQNConfig
    Hyperparams = DQNHyperparams

    def __post_init__(self) -> None:
        nn.require_single_steps("DQN", self.network)
        super().__post_init__()

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {"q": (nn.num_actions(self.action_spec, algorithm="DQN"),)}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: DQNConfig = DQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        torso = nn.default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
        head = nn.q_head(nn.num_actions(action_spec, algorithm="DQN"), dueling=config.dueling)
        return {"q_network": nn.NetworkSpec(obs_spec, torso, (("q", head),))}

    @property
    def replay(self) -> rl.Replay:
        return rl.Replay.of(self.config, self.obs_spec, self.action_spec)

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> DQNState:
        learned = super().init(key, num_envs, hyper)
        return DQNState(
            **vars(learned),
            target=rl.target_of(learned.learner.variables),
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
        self, state: DQNState, carry: Any, inputs: rl.PolicyInput, key: jax.Array, *, explore: bool
    ) -> rl.PolicyOutput:
        q = self.action_values(state, inputs.obs)
        action = jnp.argmax(rl.mask_q(q, inputs.action_mask), axis=-1).astype(jnp.int32)
        if explore:
            action = rl.epsilon_greedy(
                action, q.shape[-1], inputs.action_mask, self.epsilon(state), key
            )
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: DQNState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[DQNState, rl.Metrics]:
        epsilon = self.epsilon(state)
        state, metrics = rl.replay_and_learn(
            self.replay, self.config, state, trajectory, self._learn_from, key
        )
        return state, {**metrics, "epsilon": epsilon}

    def _learn_from(
        self, state: DQNState, sample: rl.Sample, key: jax.Array
    ) -> tuple[DQNState, rl.Metrics]:
        """Take one gradient step; then update the priorities and the target network."""
        hyper = state.hyper
        weight = jnp.ones_like(sample.reward)
        if self.config.prioritized:
            weight = rl.importance_weights(sample.probability, hyper.importance_sampling_exponent)
        batch = Batch(sample=sample, target=state.target, weight=weight)
        learner, metrics = self.learner.step(state.learner, self.loss, batch, key, hyper)
        error = jnp.abs(metrics.pop("td_errors"))
        priority = (error + hyper.priority_eps) ** hyper.priority_exponent
        moved = rl.polyak(learner.variables, state.target, hyper.tau)
        is_time = learner.num_gradient_steps % self.config.target_update_period == 0
        return replace(
            state,
            learner=learner,
            target=jax.tree.map(lambda new, old: jnp.where(is_time, new, old), moved, state.target),
            replay=self.replay.update_priorities(state.replay, sample.slot, priority),
        ), {**metrics, "td_error": error.mean()}

    def loss(
        self, variables: nn.Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Average half the squared temporal-difference error, weighted.

        L = mean(0.5 * w * (r + discount * max_a Q'(s', a) - Q(s, a))^2), with Q' of the target
        network; the online network chooses its action if `double`.

        Returns the loss, float32 `[]`, with the metrics, `td_errors` `[B]` among them, and the
        network's new state; `key` is for the network's own randomness.
        """
        sample = batch.sample
        heads, new_state = nn.apply_heads(self.network, variables, sample.obs, key=key, train=True)
        q = heads["q"]
        next_q = self._q(batch.target, sample.next_obs)
        data = (q, sample.action, sample.reward, sample.discount)
        if self.config.double:
            chooser = rl.mask_q(self._q(variables, sample.next_obs), sample.next_action_mask)
            errors = jax.vmap(rlax.double_q_learning)(*data, next_q, chooser)
        else:
            errors = jax.vmap(rlax.q_learning)(*data, rl.mask_q(next_q, sample.next_action_mask))
        errors = jnp.asarray(errors)
        loss = jnp.mean(batch.weight * rlax.l2_loss(errors))
        return loss, ({"td_errors": errors, "q": q.mean()}, new_state)

    def _q(self, variables: nn.Variables, obs: Any) -> jax.Array:
        return nn.apply_heads(self.network, variables, obs)[0]["q"]
