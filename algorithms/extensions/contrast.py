"""Temporal contrast: learn features that pick an observation's successor out of others.

Source: Anand et al. 2019, "Unsupervised State Representation Learning in Atari",
https://arxiv.org/abs/1906.08226, equation 2, with the bilinear score of van den Oord et al. 2018,
"Representation Learning with Contrastive Predictive Coding", https://arxiv.org/abs/1807.03748,
equations 3 and 4.
Differences: both observations are scored by heads of the agent's network, whose product is a
bilinear score of its features of limited rank; there are no local features; it takes one gradient
step per rollout.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import optax

from ... import nn, rl


@rl.pytree_dataclass
class ContrastHyperparams:
    """Hyperparameters of temporal contrast.

    Attributes:
      contrast_learning_rate: of the gradient steps on the agent's features.
    """

    contrast_learning_rate: rl.Number = 1e-3


@dataclass(frozen=True, kw_only=True)
class ContrastConfig:
    """Static configuration of temporal contrast.

    Attributes:
      contrast_size: outputs of each of its two heads.
    """

    contrast_size: int = rl.between(64, 1)


class Contrast(rl.AuxiliaryLoss):
    """A classifier that finds an observation's successor among those of all environments.

    The heads `contrast_query` and `contrast_key` give `[B, contrast_size]`. Its metrics are `loss`
    and `accuracy`, the share of successors that have the highest score.
    """

    name = "contrast"
    Config = ContrastConfig
    Hyperparams = ContrastHyperparams

    @classmethod
    def heads(cls, obs_spec: rl.Spec, action_spec: rl.Spec, config: Any) -> Mapping[str, nn.Head]:
        """Describe the head of an observation, and that of a successor."""
        head = nn.Head(size=config.contrast_size)
        return {"contrast_query": head, "contrast_key": head}

    def loss(
        self,
        outputs: Mapping[str, jax.Array],
        next_outputs: Mapping[str, jax.Array],
        steps: rl.Trajectory,
        hyper: rl.PyTree,
    ) -> tuple[jax.Array, rl.Metrics]:
        """Average -log(exp(s_nn) / sum_m exp(s_nm)) over steps and environments n.

        s_nm is the product of n's query and m's key of the same step, over the square root of their
        size.
        """
        query, key = outputs["contrast_query"], next_outputs["contrast_key"]
        score = jnp.einsum("tne,tme->tnm", query, key) / query.shape[-1] ** 0.5
        labels = jnp.broadcast_to(jnp.arange(score.shape[1]), score.shape[:2])
        loss = optax.softmax_cross_entropy_with_integer_labels(score, labels).mean()
        accuracy = (score.argmax(axis=-1) == labels).astype(jnp.float32).mean()
        return loss, {"accuracy": accuracy}
