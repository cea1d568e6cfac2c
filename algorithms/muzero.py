"""Gumbel MuZero: tree search in a learned model, where the environment cannot be searched.

Source: Schrittwieser et al. 2020, https://arxiv.org/abs/1911.08265, equation 1, "Methods" and
appendices B and G, with the search and the policy's target of Danihelka et al. 2022,
https://openreview.net/forum?id=bERaNdoegnO, equations 11 and 12. Option: MuZero's own search.
Differences: the value's target is a lambda-return of the searches' values, computed when the steps
are collected; sequences are drawn uniformly; a truncated episode bootstraps from its true last
observation, and what would follow it is not learned; the model reads the observation of one step.
Reanalysis (appendix H) is an option; it has no target network, and its returns end with a sequence.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl

Apply: TypeAlias = Callable[[str, rl.PyTree], dict[str, jax.Array]]  # a network, by name, to inputs
State: TypeAlias = rl.TreeSearchState


@rl.pytree_dataclass
class MuZeroHyperparams(rl.TreeSearchHyperparams):
    """Hyperparameters of MuZero, which a sweep may vary under `vmap`.

    Attributes:
      reward_coef: weight of the reward loss.
    """

    value_coef: rl.Number = 0.25
    reward_coef: rl.Number = 1.0
    max_grad_norm: rl.Number = rl.between(5.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class MuZeroConfig(rl.TreeSearchConfig):
    """Static configuration of MuZero.

    Attributes:
      unroll_steps: steps `K` that the model is unrolled for in a loss.
      latent_size: numbers in a state of the model.
      num_bins: of the distributions by which values and rewards are predicted.
      reanalyze_fraction: of the sampled sequences, those whose targets come from new searches.
      support: the largest value h(x) of a bin, h(x) = sign(x) (sqrt(|x| + 1) - 1) + 0.001 x.
    """

    gumbel: bool = True
    unroll_steps: int = 5
    latent_size: int = 64
    num_bins: int = 41
    reanalyze_fraction: float = rl.unit_interval(0.0)
    support: float = rl.positive(20.0)
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (64,))

    @property
    def sequence_length(self) -> int:
        """Steps in one sample."""
        return self.unroll_steps + 1


@dataclass(frozen=True)
class MuZero(rl.TreeSearch):
    """The agent, of three networks without a carry.

    `representation` gives `latent` `[B, latent_size]` of observations, Discrete ones as one-hot;
    `dynamics` gives `latent` and `reward` `[B, num_bins]` of a latent state and a one-hot action;
    `prediction` gives `logits` `[B, num_actions]` and `value` `[B, num_bins]` of a latent state.

    Attributes:
      two_players: it moves for both players of a game, in turn: what one wins, the other loses.
        `make_agent` sets it where the environment is such a game with `opponent=self`.
    """

    config: MuZeroConfig = MuZeroConfig()
    hyper: MuZeroHyperparams = MuZeroHyperparams()
    two_players: bool = False

    Config = MuZeroConfig
    Hyperparams = MuZeroHyperparams
    # After a termination the model learns that nothing follows, whatever the actions.
    learns_absorbing_states = True

    def __post_init__(self) -> None:
        super().__post_init__()
        described = self.networks(self.obs_spec, self.action_spec, self.config)
        nn.check_parts(self.network, described, algorithm="MuZero")

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: MuZeroConfig = MuZeroConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe `representation`, `dynamics` and `prediction`."""
        num_actions = nn.num_actions(action_spec, algorithm="MuZero")
        one_hot = rl.one_hot_spec(obs_spec)
        torso = nn.default_torso(one_hot, config.hidden_sizes, config, activation="relu")
        latent, bins = nn.Head(size=config.latent_size), nn.Head(size=config.num_bins, scale=0.01)
        state = rl.Box((config.latent_size,), low=0.0, high=1.0)
        layers = nn.MLP(config.hidden_sizes, "relu")
        moved = (("latent", latent), ("reward", bins))
        heads = (("logits", nn.policy_head(num_actions)), ("value", bins))
        return {
            "representation": nn.NetworkSpec(one_hot, torso, (("latent", latent),)),
            "dynamics": nn.NetworkSpec((state, rl.one_hot_spec(action_spec)), layers, moved),
            "prediction": nn.NetworkSpec(state, layers, heads),
        }

    def tree(
        self, state: State, inputs: rl.PolicyInput
    ) -> tuple[rl.Node, Callable[[jax.Array, jax.Array, jax.Array], rl.Node]]:
        apply = self._apply(state.learner.variables)

        def node_of(latent: jax.Array, **rest: jax.Array | None) -> rl.Node:
            heads = apply("prediction", latent)
            value = self._scalar(heads["value"])
            return rl.Node(state=latent, logits=heads["logits"], value=value, **rest)

        def expand(latent: jax.Array, action: jax.Array, key: jax.Array) -> rl.Node:
            latent, reward = self._advance(apply, latent, action)
            turn = -1.0 if self.two_players else 1.0
            discount = jnp.broadcast_to(turn * state.hyper.discount, action.shape)
            return node_of(latent, reward=self._scalar(reward), discount=discount)

        return node_of(self._represent(apply, inputs.obs), action_mask=inputs.action_mask), expand

    def value(self, variables: nn.Variables, obs: rl.Obs) -> jax.Array:
        apply = self._apply(variables)
        return self._scalar(apply("prediction", self._represent(apply, obs))["value"])

    @property
    def reanalyzes(self) -> bool:
        return self.config.reanalyze_fraction > 0.0

    def reanalyze(self, state: State, steps: rl.Trajectory, key: jax.Array) -> rl.Trajectory:
        """Search again at the steps `[K + 1, B, ...]` of the first `reanalyze_fraction` sequences.

        The searches use the newest networks, and explore as those that act. The value's targets
        are the lambda-returns of their values within the sequence, which bootstrap on the network's
        value of its last successor.
        """
        number = math.ceil(self.config.reanalyze_fraction * steps.reward.shape[1])
        again = jax.tree.map(lambda leaf: leaf[:, :number], steps)
        flat = rl.flatten((again.obs, again.first, again.action_mask))
        inputs = rl.PolicyInput(obs=flat[0], first=flat[1], action_mask=flat[2])
        extras = self.search(state, inputs, key, explore=True).extras
        extras = jax.tree.map(lambda leaf: leaf.reshape(len(steps.reward), number, -1), extras)
        searched = {**extras, **{name: extras[name][..., 0] for name in ("value", "turn")}}

        def value_of(obs: rl.Obs) -> jax.Array:
            return self.value(state.learner.variables, obs)

        numbers = state.hyper.discount, state.hyper.td_lambda
        again = rl.with_search_targets(replace(again, extras=searched), value_of, *numbers)
        rest = jax.tree.map(lambda leaf: leaf[:, number:], steps)
        return jax.tree.map(lambda *both: jnp.concatenate(both, axis=1), again, rest)

    def loss(
        self,
        variables: nn.Variables,
        batch: tuple[rl.Trajectory, MuZeroHyperparams],
        key: jax.Array,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Unroll the model over sequences `[K + 1, B]`, and sum the cross-entropies (equation 1).

        L = mean(sum_k w_k (l(pi_k, p_k) + value_coef l(z_k, v_k) + reward_coef l(u_k, r_k))), with
        w_0 = 1 and else 1 / K, the searches' policies pi and returns z, and rewards u; r_0 has no
        loss. After a termination z and u are 0 and pi is free; after a truncation all are.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the networks' own randomness.
        """
        steps, hyper = batch
        num_steps, state = self.config.unroll_steps, dict(variables.state)
        keys = iter(jax.random.split(key, 2 * num_steps + 2))
        apply = self._apply(variables, state, keys)
        over, lost = _before(steps)
        log_probs, values, rewards = [], [], []
        latent = self._represent(apply, jax.tree.map(lambda leaf: leaf[0], steps.obs))
        for k in range(num_steps + 1):
            heads = apply("prediction", latent)
            log_probs.append(jax.nn.log_softmax(heads["logits"]))
            values.append(heads["value"])
            if k < num_steps:
                # Halved, so that the gradient of the first states does not grow with K.
                half = 0.5 * latent + 0.5 * jax.lax.stop_gradient(latent)
                latent, reward = self._advance(apply, half, steps.action[k])
                rewards.append(reward)
        probs, target = steps.extras["probs"], jnp.where(over, 0.0, steps.extras["target"])
        reward = jnp.where(over[:-1], 0.0, steps.reward[:-1])
        policy_loss = jnp.where(over, 0.0, -jnp.sum(probs * jnp.stack(log_probs), axis=-1))
        value_loss = jnp.where(lost, 0.0, self._errors(jnp.stack(values), target))
        reward_loss = jnp.where(lost[:-1], 0.0, self._errors(jnp.stack(rewards), reward))
        first, rest = policy_loss + hyper.value_coef * value_loss, hyper.reward_coef * reward_loss
        losses = first[0] + (first[1:] + rest).sum(axis=0) / num_steps
        return losses.mean(), (
            {
                "policy_loss": policy_loss.mean(),
                "value_loss": value_loss.mean(),
                "reward_loss": reward_loss.mean(),
                "search_entropy": rl.mean_entropy(probs),
                "explained_variance": rl.explained_variance(self._scalar(values[0]), target[0]),
            },
            state,
        )

    def _apply(
        self,
        variables: nn.Variables,
        state: dict[str, rl.PyTree] | None = None,
        keys: Iterator[jax.Array] | None = None,
    ) -> Apply:
        """Apply networks by name; with `keys`, in training, which replaces their `state`."""
        states = dict(variables.state) if state is None else state

        def apply(name: str, inputs: rl.PyTree) -> dict[str, jax.Array]:
            part_variables = nn.Variables(params=variables.params[name], state=states[name])
            options = {} if keys is None else {"key": next(keys), "train": True}
            outputs, states[name] = self.network.parts[name].apply(
                part_variables, inputs, **options
            )
            return outputs

        return apply

    def _represent(self, apply: Apply, obs: rl.Obs) -> jax.Array:
        return _scaled(apply("representation", rl.one_hot(self.obs_spec, obs))["latent"])

    def _advance(
        self, apply: Apply, latent: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        heads = apply("dynamics", (latent, rl.one_hot(self.action_spec, action)))
        return _scaled(heads["latent"]), heads["reward"]

    @property
    def _bins(self) -> rlax.TxPair:
        size, pair = self.config.support, rlax.SIGNED_HYPERBOLIC_PAIR
        return rlax.muzero_pair(-size, size, self.config.num_bins, pair)

    def _scalar(self, logits: jax.Array) -> jax.Array:
        return self._bins.apply_inv(jax.nn.softmax(logits))

    def _errors(self, logits: jax.Array, target: jax.Array) -> jax.Array:
        with jax.numpy_dtype_promotion("standard"):  # rlax compares floats with whole numbers
            probs = self._bins.apply(target)
        return -jnp.sum(probs * jax.nn.log_softmax(logits), axis=-1)


def _scaled(latent: jax.Array) -> jax.Array:
    """Scale latent states `[B, latent_size]` to [0, 1] (appendix G)."""
    low, high = latent.min(axis=-1, keepdims=True), latent.max(axis=-1, keepdims=True)
    return (latent - low) / jnp.maximum(high - low, 1e-5)


def _before(steps: rl.Trajectory) -> tuple[jax.Array, jax.Array]:
    """Say before which steps `[K + 1, B]` an episode ended, and where the first was truncated."""
    truncated = rl.truncations(steps)
    ended = jnp.cumsum((steps.terminated | truncated).astype(jnp.int32), axis=0)
    cut = jnp.cumsum((truncated & (ended == 1)).astype(jnp.int32), axis=0)
    none = jnp.zeros_like(ended[:1], bool)
    return jnp.concatenate([none, ended[:-1] > 0]), jnp.concatenate([none, cut[:-1] > 0])
