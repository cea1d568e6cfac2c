"""REINFORCE with a learned baseline (Williams 1992; Sutton and Barto 2018, section 13.4)."""

from dataclasses import dataclass, replace

import jax
from optax import l2_loss

from triglot import Discrete
from triglot.core.agent import AgentBase, AgentConfig, PolicyOutput
from triglot.core.networks.architecture import NetworkSpec, default_torso, policy_head, value_head
from triglot.core.networks.heads import merge_heads
from triglot.core.rl.distributions import categorical
from triglot.core.rl.losses import gae


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ReinforceHyperparams:  # traced values in the state: a sweep over them is a vmap
    learning_rate: float = 3e-3
    discount: float = 0.99


@dataclass(frozen=True)
class Reinforce(AgentBase):
    Config = AgentConfig  # static: num_envs and rollout_length
    Hyperparams = ReinforceHyperparams
    action_spec: Discrete
    config: AgentConfig = AgentConfig()
    hyper: ReinforceHyperparams = ReinforceHyperparams()

    @property
    def heads(self):  # what the network must return, without the batch axis
        return {"logits": (self.action_spec.num_values,), "value": ()}

    @staticmethod
    def networks(obs_spec, action_spec, config):  # used unless networks= gives others
        heads = ("logits", policy_head(action_spec.num_values)), ("value", value_head())
        return {head[0]: NetworkSpec(obs_spec, default_torso(obs_spec), (head,)) for head in heads}

    def act(self, state, carry, inputs, key, *, explore):
        outputs, _ = self.network.apply(state.learner.variables, inputs.obs)
        policy = categorical(merge_heads(outputs)["logits"], inputs.action_mask)
        action = policy.sample(key) if explore else policy.mode()
        return PolicyOutput(action=action, carry=carry, extras={})

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
        outputs, new_state = self.network.apply(variables, flat.obs, key=key, train=True)
        after, _ = self.network.apply(state.learner.variables, flat.next_obs)
        heads, shape = merge_heads(outputs), t.reward.shape
        value, next_value = (h["value"].reshape(shape) for h in (heads, merge_heads(after)))
        # With a lambda of 1 the target is the return, bootstrapped where an episode is truncated.
        advantage, target = gae(
            t.reward, t.terminated, t.truncated, value, next_value, state.hyper.discount, 1.0
        )
        log_prob = categorical(heads["logits"], flat.action_mask).log_prob(flat.action)
        losses = l2_loss(value, target).ravel() - log_prob * advantage.ravel()
        return losses.mean(), ({}, new_state)
