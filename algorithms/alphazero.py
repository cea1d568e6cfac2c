"""AlphaZero: tree search in an exact model, which is the environment itself or a game.

Source: Silver et al. 2018, https://doi.org/10.1126/science.aar6404, equation 1 (and Silver et al.
2017, https://doi.org/10.1038/nature24270, equation 1 and section "Methods"), with the search as
Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, appendix B, extend it to rewards.
Option: the search of Danihelka et al. 2022, https://openreview.net/forum?id=bERaNdoegnO.
Differences: rewards in place of an outcome, so the value's target is a lambda-return of the
searches' values, computed when the steps are collected, and a truncated episode bootstraps from its
true last observation; in a game with `opponent=self` it moves for both players, elsewhere for one;
Adam without a penalty on the weights (`--optimizer adamw` has one); by default one temperature for
all moves (`num_sampling_moves`); the value loss has the weight `value_coef`, where the paper has 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from .. import nn, rl

State: TypeAlias = rl.TreeSearchState


@rl.pytree_dataclass
class AlphaZeroHyperparams(rl.TreeSearchHyperparams):
    """Hyperparameters of AlphaZero, which a sweep may vary under `vmap`."""


@dataclass(frozen=True, kw_only=True)
class AlphaZeroConfig(rl.TreeSearchConfig):
    """Static configuration of AlphaZero.

    Attributes:
      normalization: `none`, `layer` or `batch`, of the layers' outputs before the activations.
    """

    normalization: str = rl.only_for("networks", rl.one_of(*nn.NORMALIZATIONS))


@dataclass(frozen=True)
class AlphaZero(rl.TreeSearch):
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
        spec = nn.NetworkSpec(obs_spec, torso, heads)
        return {"network": spec.normalized(config.normalization)}

    def tree(
        self, state: State, inputs: rl.PolicyInput
    ) -> tuple[rl.Node, Callable[[rl.TimeStep, jax.Array, jax.Array], rl.Node]]:
        def node_of(step: rl.TimeStep, discount: jax.Array | None = None) -> rl.Node:
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
            turned = rl.turn(self.model, before.state, after.state) * state.hyper.discount
            discount = jnp.where(after.terminated, 0.0, turned)
            # The value of a truncated state holds for all that is tried after it.
            return node_of(after, jnp.where(before.truncated, 1.0, discount))

        return node_of(rl.root_of(inputs)), expand

    def value(self, variables: nn.Variables, obs: rl.Obs) -> jax.Array:
        return nn.apply_heads(self.network, variables, obs)[0]["value"]

    def loss(
        self,
        variables: nn.Variables,
        batch: tuple[rl.Trajectory, AlphaZeroHyperparams],
        key: jax.Array,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Add the value's squared error and the policy's cross-entropy (equation 1).

        L = mean(value_coef * (z - v)^2 - sum_a pi_a log p_a), with the search's policy pi and the
        return z, which are the extras `probs` and `target` of the steps `[1, B, ...]`.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        steps, hyper = jax.tree.map(lambda leaf: leaf[0], batch[0]), batch[1]
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
