"""Advantage-weighted regression, an algorithm outside of the package.

Source: Peng et al. 2019, https://arxiv.org/abs/1910.00177, algorithm 1; as in the authors' code,
advantages are normalized, and their weights limited.
Differences: both networks take a step on each batch, with Adam; a batch is sequences of the replay
instead of whole episodes, bootstrapped where they are cut; a truncated episode bootstraps from its
true last observation.

From the repository's root:

    triglot check examples.awr:AWR
    triglot train examples.awr:AWR gymnax:CartPole-v1 --total-steps 200000 --out runs/awr
    triglot compare examples.awr:AWR gymnax:CartPole-v1 --total-steps 20000 --out runs/awr-compare
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from optax import l2_loss

from triglot import nn, rl


@rl.pytree_dataclass
class AWRHyperparams:
    """Hyperparameters of AWR.

    Attributes:
      learning_rate: of the optimizer.
      discount: of future rewards, within [0, 1].
      gae_lambda: weights the lambda-returns, within [0, 1].
      temperature: the paper's beta; lower ones follow the advantages more.
      max_weight: limit of the weights.
    """

    learning_rate: rl.Number = 1e-3
    discount: rl.Number = rl.unit_interval(0.99)
    gae_lambda: rl.Number = rl.unit_interval(0.95)
    temperature: rl.Number = rl.positive(1.0)
    max_weight: rl.Number = 20.0


@dataclass(frozen=True, kw_only=True)
class AWRConfig(rl.SequenceReplayConfig):
    """Static configuration of AWR.

    Attributes:
      sequence_length: steps of a sampled sequence.
    """

    rollout_length: int = 32
    num_gradient_steps: int = 8
    batch_size: int = 8
    sequence_length: int = 32
    buffer_size: int = 16_384
    learning_starts: int = 1_024


@rl.pytree_dataclass
class AWRState(rl.AgentState):
    """Training state."""

    replay: rl.SequenceReplayState  # actions in it are from before the tanh


@dataclass(frozen=True)
class AWR(rl.AgentBase):
    """The agent, for discrete actions and bounded boxes of floats."""

    Config, Hyperparams = AWRConfig, AWRHyperparams
    config: AWRConfig = AWRConfig()
    hyper: AWRHyperparams = AWRHyperparams()

    @property
    def heads(self):
        return {**nn.policy_shapes(self.action_spec, algorithm="AWR"), "value": ()}

    @property
    def replay(self):
        spec = self.action_spec
        raw = spec if isinstance(spec, rl.Discrete) else rl.unit_box(spec, algorithm="AWR")
        return rl.SequenceReplay.of(self.config, self.obs_spec, raw)

    @staticmethod
    def networks(obs_spec, action_spec, config):
        policy, torso = nn.policy_heads(action_spec, algorithm="AWR"), nn.default_torso(obs_spec)
        parts = {"actor": policy, "critic": (("value", nn.value_head()),)}
        return {part: nn.NetworkSpec(obs_spec, torso, heads) for part, heads in parts.items()}

    def init(self, key, num_envs, hyper=None):
        return AWRState(**vars(super().init(key, num_envs, hyper)), replay=self.replay.init())

    def act(self, state, carry, inputs, key, *, explore):
        heads, _ = nn.apply_heads(self.network, state.learner.variables, inputs.obs)
        policy = rl.policy(self.action_spec, heads, inputs.action_mask)
        raw = policy.sample(key) if explore else policy.mode()
        action = rl.to_action(self.action_spec, raw)
        return rl.PolicyOutput(action=action, carry=carry, extras={"raw": raw})

    def update(self, state, trajectory, key):
        steps = replace(trajectory, action=trajectory.extras["raw"], extras={})
        state = replace(state, replay=self.replay.add(state.replay, steps))
        ready = state.replay.size >= self.config.learning_starts
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))
        return rl.steps_if_ready(ready, self.gradient_step, state, keys)

    def gradient_step(self, state, keys):
        hyper, now = state.hyper, state.learner.variables
        t = self.replay.sample(state.replay, keys[0], self.config.batch_size).steps  # [L, B, ...]
        flat = rl.flatten(replace(t, carry=()))
        both = (nn.apply_heads(self.network, now, obs)[0] for obs in (flat.obs, flat.next_obs))
        value, next_value = (heads["value"].reshape(t.reward.shape) for heads in both)
        advantage, target = rl.gae(
            t.reward, t.terminated, t.truncated, value, next_value, hyper.discount, hyper.gae_lambda
        )
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        weight = jnp.minimum(jnp.exp(advantage / hyper.temperature), hyper.max_weight)
        batch = flat, weight.ravel(), target.ravel()
        learner, metrics = self.learner.step(state.learner, self.loss, batch, keys[1], hyper)
        return replace(state, learner=learner), metrics

    def loss(self, variables, batch, key):
        """Regress the policy to the actions, weighted, and the value to the returns.

        L = mean(-min(exp(A / temperature), max_weight) * log pi(a|s) + 0.5 * (G - V(s))^2)
        """
        steps, weight, target = batch
        heads, new_state = nn.apply_heads(self.network, variables, steps.obs, key=key, train=True)
        policy = rl.policy(self.action_spec, heads, steps.action_mask)
        actor_loss = -(weight * policy.log_prob(steps.action)).mean()
        critic_loss = l2_loss(heads["value"], target).mean()
        metrics = {"actor_loss": actor_loss, "critic_loss": critic_loss}
        return actor_loss + critic_loss, (metrics, new_state)
