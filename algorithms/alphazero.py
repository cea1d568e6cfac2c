"""AlphaZero for one agent: plans with the environment itself; for exact, discrete models.

Source: Silver et al. 2018, https://doi.org/10.1126/science.aar6404, equation 1 (and Silver et al.
2017, https://doi.org/10.1038/nature24270, equation 1 and section "Methods"), with the search as
Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix B, extend it to rewards.
Options: the search of Danihelka et al. 2022, https://openreview.net/forum?id=bERaNdoegnO.
Differences: one agent with rewards in place of two players with an outcome, so the value's target is
a lambda-return of the searches' values, and a truncated episode bootstraps from its true last
observation; learns from the last rollout, not from a window of games; Adam without a penalty on the
weights (`--optimizer adamw` has one); one temperature for all moves.
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
class AlphaZeroConfig(nn.ConvolutionConfig, rl.SearchConfig, rl.AgentConfig):
    """Static configuration of AlphaZero.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N * T`.
      hidden_sizes: units of the hidden layers.
    """

    num_envs: int = 16
    rollout_length: int = 32
    num_epochs: int = 4
    num_minibatches: int = 4
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (64, 64))


@rl.pytree_dataclass
class Batch:
    """Samples of a rollout `[B, ...]`: the searches' `probs`, and the values' `target`."""

    obs: Any
    action_mask: jax.Array | None
    probs: jax.Array
    target: jax.Array


@dataclass(frozen=True)
class AlphaZero(rl.AgentBase):
    """The agent; its network gives `logits` `[B, num_actions]` and `value` `[B]`, without a carry.

    `model` is the environment: see `triglot.core.rl.planning`.
    """

    config: AlphaZeroConfig = AlphaZeroConfig()
    hyper: AlphaZeroHyperparams = AlphaZeroHyperparams()
    model: Any = None

    Config = AlphaZeroConfig
    Hyperparams = AlphaZeroHyperparams
    plans = True

    def __post_init__(self) -> None:
        nn.require_single_steps("AlphaZero", self.network)
        super().__post_init__()
        samples, what = self.config.steps_per_update, "num_envs * rollout_length"
        rl.check_divides("AlphaZero", "num_minibatches", self.config.num_minibatches, samples, what)

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

    def act(
        self,
        state: rl.AgentState,
        carry: Any,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        root = rl.root_of(inputs)

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

        found = rl.search(node_of(root), expand, key, self.config, state.hyper, explore=explore)
        extras = {"probs": found.probs, "value": found.value}
        return rl.PolicyOutput(action=found.action, carry=carry, extras=extras)

    def update(
        self, state: rl.AgentState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.AgentState, rl.Metrics]:
        config, hyper = self.config, state.hyper
        batch, value = self._targets(state, trajectory), trajectory.extras["value"]
        shuffle_key, loss_key = jax.random.split(key)
        shuffle = jax.vmap(lambda key: jax.random.permutation(key, value.size))
        order = shuffle(jax.random.split(shuffle_key, config.num_epochs))
        num_steps = config.num_epochs * config.num_minibatches

        def step(
            learner: rl.LearnerState, inputs: tuple[jax.Array, jax.Array]
        ) -> tuple[rl.LearnerState, rl.Metrics]:
            indices, key = inputs
            minibatch = jax.tree.map(lambda leaf: leaf[indices], batch)

            def loss(variables: nn.Variables, batch: Batch, key: jax.Array) -> Any:
                return self.loss(variables, batch, key, hyper)

            return self.learner.step(learner, loss, minibatch, key, hyper)

        inputs = (order.reshape(num_steps, -1), jax.random.split(loss_key, num_steps))
        learner, metrics = self.learner.scan(step, state.learner, inputs)
        return replace(state, learner=learner), {
            **jax.tree.map(jnp.mean, metrics),
            "explained_variance": rl.explained_variance(value.reshape(-1), batch.target),
        }

    def _targets(self, state: rl.AgentState, trajectory: rl.Trajectory) -> Batch:
        """Compute the lambda-returns of the searches' values, and flatten the steps."""

        def value_of(obs: Any) -> jax.Array:
            return nn.apply_heads(self.network, state.learner.variables, obs)[0]["value"]

        value = trajectory.extras["value"]
        ended = trajectory.terminated, trajectory.truncated
        successors = rl.successor_values(value_of, value, trajectory.next_obs, *ended)
        discounts = state.hyper.discount, state.hyper.td_lambda
        _, target = rl.gae(trajectory.reward, *ended, value, successors, *discounts)
        steps = Batch(
            obs=trajectory.obs,
            action_mask=trajectory.action_mask,
            probs=trajectory.extras["probs"],
            target=target,
        )
        return jax.tree.map(lambda leaf: leaf.reshape((-1, *leaf.shape[2:])), steps)

    def loss(
        self,
        variables: nn.Variables,
        batch: Batch,
        key: jax.Array,
        hyper: AlphaZeroHyperparams,
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Add the value's squared error and the policy's cross-entropy (equation 1).

        L = mean(value_coef * (z - v)^2 - sum_a pi_a log p_a), with the search's policy pi and the
        return z.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        heads, new_state = nn.apply_heads(self.network, variables, batch.obs, key=key, train=True)
        log_probs = rl.categorical(heads["logits"], batch.action_mask).log_probs
        policy_loss = -jnp.mean(jnp.sum(batch.probs * log_probs, axis=-1))
        value_loss = jnp.mean((batch.target - heads["value"]) ** 2)
        entropy = -jnp.sum(jax.scipy.special.xlogy(batch.probs, batch.probs), axis=-1)
        return policy_loss + hyper.value_coef * value_loss, (
            {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy.mean()},
            new_state,
        )
