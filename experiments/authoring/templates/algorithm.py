"""REINFORCE with a learned baseline (Williams 1992; Sutton and Barto 2018, section 13.4)."""

from dataclasses import dataclass

import jax
from optax import adam, inject_hyperparams, l2_loss

from triglot import Box, Discrete, Learner, Network
from triglot.core.agent import PolicyOutput
from triglot.core.networks.architecture import NetworkSpec, default_torso, policy_head, value_head
from triglot.core.networks.heads import check_heads, merge_heads
from triglot.core.rl.distributions import categorical
from triglot.core.rl.losses import gae


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class ReinforceHyperparams:  # numbers: kept in the state, so that a sweep over them is a vmap
    learning_rate: float = 3e-3
    discount: float = 0.99


@dataclass(frozen=True, kw_only=True)
class ReinforceConfig:  # shapes and counts: fixed when training is compiled
    num_envs: int = 8
    rollout_length: int = 64


@dataclass(frozen=True)
class Reinforce:
    network: Network
    obs_spec: Box | Discrete
    action_spec: Discrete
    config: ReinforceConfig = ReinforceConfig()
    hyper: ReinforceHyperparams = ReinforceHyperparams()
    Config, Hyperparams = ReinforceConfig, ReinforceHyperparams
    num_envs = property(lambda self: self.config.num_envs)
    rollout_length = property(lambda self: self.config.rollout_length)
    learner = property(lambda self: Learner(self.network, inject_hyperparams(adam)(0.0)))
    initial_carry = staticmethod(lambda state, num_envs: ())  # the policy remembers nothing

    def __post_init__(self):
        needs = {"logits": (self.action_spec.num_values,), "value": ()}
        check_heads(self.network, self.obs_spec, needs, algorithm="Reinforce")

    @staticmethod
    def networks(obs_spec, action_spec, config=ReinforceConfig()):
        heads = ("logits", policy_head(action_spec.num_values)), ("value", value_head())
        return {head[0]: NetworkSpec(obs_spec, default_torso(obs_spec), (head,)) for head in heads}

    def init(self, key, num_envs, hyper=None):
        numbers = jax.tree.map(jax.numpy.float32, hyper or self.hyper)
        return {"learner": self.learner.init(key), "hyper": numbers}

    def act(self, state, carry, inputs, key, *, explore):
        outputs, _ = self.network.apply(state["learner"].variables, inputs.obs)
        policy = categorical(merge_heads(outputs)["logits"], inputs.action_mask)
        action = policy.sample(key) if explore else policy.mode()
        return PolicyOutput(action=action, carry=carry, extras={})

    def update(self, state, trajectory, key):
        t, old, hyper = trajectory, state["learner"], state["hyper"]
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), t)  # [T, N] to [B]
        heads = merge_heads(self.network.apply(old.variables, flat.next_obs)[0])
        rest = heads["value"].reshape(t.reward.shape)

        def loss(variables, batch, key):
            outputs, new_state = self.network.apply(variables, flat.obs, key=key, train=True)
            heads = merge_heads(outputs)
            ends, value = (t.terminated, t.truncated), heads["value"].reshape(t.reward.shape)
            # With a lambda of 1 the target is the return to the episode's end; where the episode is
            # truncated, or outlasts the rollout, the value of the successor stands for the rest.
            advantage, target = gae(t.reward, *ends, value, rest, hyper.discount, 1.0)
            log_prob = categorical(heads["logits"], flat.action_mask).log_prob(flat.action)
            losses = l2_loss(value, target).ravel() - log_prob * advantage.ravel()
            return losses.mean(), ({}, new_state)

        new, metrics = self.learner.step(old, loss, (), key, {"learning_rate": hyper.learning_rate})
        return {"learner": new, "hyper": hyper}, metrics
