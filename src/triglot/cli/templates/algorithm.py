"""REINFORCE with a learned baseline (Williams 1992; Sutton and Barto 2018, section 13.4)."""

from dataclasses import dataclass, replace

import jax
from optax import l2_loss

from triglot import nn, rl


@rl.pytree_dataclass
class ReinforceHyperparams:  # traced values in the state: a sweep over them is a vmap
    learning_rate: float = 3e-3
    discount: float = 0.99


@dataclass(frozen=True)
class Reinforce(rl.AgentBase):
    Config = rl.AgentConfig  # static: num_envs and rollout_length
    Hyperparams = ReinforceHyperparams
    action_spec: rl.Discrete
    config: rl.AgentConfig = rl.AgentConfig()
    hyper: ReinforceHyperparams = ReinforceHyperparams()

    @property
    def heads(self):  # what the network must return, without the batch axis
        return {"logits": (nn.num_actions(self.action_spec, algorithm="Reinforce"),), "value": ()}

    @staticmethod
    def networks(obs_spec, action_spec, config):  # used unless networks= gives others
        num_actions = nn.num_actions(action_spec, algorithm="Reinforce")  # refuses other actions
        heads = ("logits", nn.policy_head(num_actions)), ("value", nn.value_head())
        torso = nn.default_torso(obs_spec)
        return {head[0]: nn.NetworkSpec(obs_spec, torso, (head,)) for head in heads}

    def act(self, state, carry, inputs, key, *, explore):
        heads, _ = nn.apply_heads(self.network, state.learner.variables, inputs.obs)
        policy = rl.categorical(heads["logits"], inputs.action_mask)
        action = policy.sample(key) if explore else policy.mode()
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(self, state, trajectory, key):
        learner, metrics = self.learner.step(
            state.learner,
            lambda variables, batch, key: self.loss(variables, batch, key, state),
            trajectory,
            key,
            state.hyper,
        )
        return replace(state, learner=learner), metrics

    def loss(self, variables, trajectory, key, state):
        t = trajectory
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), t)  # [T, N] to [B]
        heads, new_state = nn.apply_heads(self.network, variables, flat.obs, key=key, train=True)
        after, _ = nn.apply_heads(self.network, state.learner.variables, flat.next_obs)
        value, next_value = (h["value"].reshape(t.reward.shape) for h in (heads, after))
        # With a lambda of 1 the target is the return, bootstrapped where an episode is truncated.
        advantage, target = rl.gae(
            t.reward, t.terminated, t.truncated, value, next_value, state.hyper.discount, 1.0
        )
        log_prob = rl.categorical(heads["logits"], flat.action_mask).log_prob(flat.action)
        losses = l2_loss(value, target).ravel() - log_prob * advantage.ravel()
        return losses.mean(), ({}, new_state)
