"""AlphaZero for one agent; choose it for an exact model: the environment in which it plans.

Source: Silver et al. 2018, https://doi.org/10.1126/science.aar6404, equation 1 (and Silver et al.
2017, https://doi.org/10.1038/nature24270, equation 1 and section "Methods"), with the search as
Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix B, extend it to rewards.
Option: the search of Danihelka et al. 2022, https://openreview.net/forum?id=bERaNdoegnO.
Differences: one agent with rewards in place of two players with an outcome, so the value's target
is a lambda-return of the searches' values, computed when the steps are collected, and a truncated
episode bootstraps from its true last observation; Adam without a penalty on the weights
(`--optimizer adamw` has one); one temperature for all moves.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from .. import nn, rl


@rl.pytree_dataclass
class AlphaZeroHyperparams(rl.SearchHyperparams):
    """Hyperparameters of AlphaZero, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the optimizer.
      discount: of future rewards, within [0, 1].
      td_lambda: of the lambda-returns; 1 takes rewards up to the rollout's end.
      value_coef: weight of the value loss.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
    """

    learning_rate: rl.Number = 1e-3
    discount: rl.Number = rl.unit_interval(0.99)
    td_lambda: rl.Number = rl.unit_interval(0.95)
    value_coef: rl.Number = 0.5
    max_grad_norm: rl.Number = rl.between(1.0, 0.0)
    adam_eps: rl.Number = rl.only_for("optimizer", 1e-8)


@dataclass(frozen=True, kw_only=True)
class AlphaZeroConfig(nn.ConvolutionConfig, rl.SearchConfig, rl.SequenceReplayConfig):
    """Static configuration of AlphaZero.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      batch_size: steps in one gradient step, `B`.
      hidden_sizes: units of the hidden layers.
    """

    num_envs: int = 16
    rollout_length: int = 16
    num_gradient_steps: int = 16
    batch_size: int = 128
    buffer_size: int = 4096
    learning_starts: int = 1024
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (64, 64))


@dataclass(frozen=True)
class AlphaZero(rl.AgentBase):
    """The agent; its network gives `logits` `[B, num_actions]` and `value` `[B]`, without a carry.

    `model` is the environment, which `make_agent` gives to an agent that `plans`.
    """

    config: AlphaZeroConfig = AlphaZeroConfig()
    hyper: AlphaZeroHyperparams = AlphaZeroHyperparams()
    model: Any = None

    Config = AlphaZeroConfig
    Hyperparams = AlphaZeroHyperparams
    plans = True

    def __post_init__(self) -> None:
        rl.require_model("AlphaZero", self.model)
        nn.require_single_steps("AlphaZero", self.network)
        super().__post_init__()

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {"logits": (nn.num_actions(self.action_spec, algorithm="AlphaZero"),), "value": ()}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: AlphaZeroConfig = AlphaZeroConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `network` of both heads."""
        torso = nn.default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
        logits = nn.policy_head(nn.num_actions(action_spec, algorithm="AlphaZero"))
        heads = (("logits", logits), ("value", nn.value_head()))
        return {"network": nn.NetworkSpec(obs_spec, torso, heads)}

    @property
    def replay(self) -> rl.SequenceReplay:
        return rl.SequenceReplay.of(self.config, self.obs_spec, self.action_spec)

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> rl.SearchState:
        learned = super().init(key, num_envs, hyper)
        extras = rl.search_targets_like(self.action_spec, num_envs)
        return rl.SearchState(**vars(learned), replay=self.replay.init(extras=extras))

    def act(
        self,
        state: rl.SearchState,
        carry: Any,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        def node_of(step: rl.TimeStep, discount: Any = None) -> rl.Node:
            heads, _ = nn.apply_heads(self.network, state.learner.variables, step.obs)
            return rl.Node(
                state=step,
                logits=heads["logits"],
                value=heads["value"],
                action_mask=step.action_mask,
                reward=step.reward,
                discount=discount,
            )

        def expand(before: rl.TimeStep, action: jax.Array, key: jax.Array) -> rl.Node:
            after = rl.step_model(self.model, before, action, key)
            discount = jnp.where(after.terminated, 0.0, state.hyper.discount)
            # The value of a truncated state holds for all that is tried after it.
            return node_of(after, jnp.where(before.truncated, 1.0, discount))

        root = node_of(rl.root_of(inputs))
        found = rl.search(root, expand, key, self.config, state.hyper, explore=explore)
        return rl.PolicyOutput(action=found.action, carry=carry, extras=found.extras)

    def update(
        self, state: rl.SearchState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.SearchState, rl.Metrics]:
        def value_of(obs: Any) -> jax.Array:
            return nn.apply_heads(self.network, state.learner.variables, obs)[0]["value"]

        hyper = state.hyper
        stored = rl.with_search_targets(trajectory, value_of, hyper.discount, hyper.td_lambda)
        state = replace(state, replay=self.replay.add(state.replay, stored))

        def step(state: rl.SearchState, keys: jax.Array) -> tuple[rl.SearchState, rl.Metrics]:
            sample = self.replay.sample(state.replay, keys[0], self.config.batch_size)
            batch = jax.tree.map(lambda leaf: leaf[0], sample.steps), hyper  # sequences of one step
            learner, metrics = self.learner.step(state.learner, self.loss, batch, keys[1], hyper)
            return replace(state, learner=learner), metrics

        ready = state.replay.size >= self.config.learning_starts
        keys = jax.random.split(key, (self.config.num_gradient_steps, 2))
        return rl.steps_if_ready(ready, step, state, keys)

    def loss(
        self,
        variables: nn.Variables,
        batch: tuple[rl.Trajectory, AlphaZeroHyperparams],
        key: jax.Array,
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Add the value's squared error and the policy's cross-entropy (equation 1).

        L = mean(value_coef * (z - v)^2 - sum_a pi_a log p_a), with the search's policy pi and the
        return z, which are the extras `probs` and `target` of the steps `[B, ...]`.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        steps, hyper = batch
        probs, target = steps.extras["probs"], steps.extras["target"]
        heads, new_state = nn.apply_heads(self.network, variables, steps.obs, key=key, train=True)
        log_probs = rl.categorical(heads["logits"], steps.action_mask).log_probs
        policy_loss = -jnp.mean(jnp.sum(probs * log_probs, axis=-1))
        value_loss = jnp.mean((target - heads["value"]) ** 2)
        return policy_loss + hyper.value_coef * value_loss, (
            {
                "policy_loss": policy_loss,
                "value_loss": value_loss,
                "search_entropy": rl.mean_entropy(probs),
                "explained_variance": rl.explained_variance(heads["value"], target),
            },
            new_state,
        )
