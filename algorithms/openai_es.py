"""OpenAI-ES, an evolution strategy: no gradients of the network, only returns of perturbed copies.

Source: Salimans et al. 2017, https://arxiv.org/abs/1703.03864, algorithm 1 with mirrored sampling,
fitness shaping by centered ranks and weight decay (section 2.1); the optimizer is Adam.
Differences: each environment runs one member of the population during a whole rollout, without a
reset at its start: an episode that another member began does not count, nor does one that the
rollout cuts, unless it is all there is (`fitness`). So a rollout should be twice as long as an
episode. Equal returns share the mean of their ranks. Actions have no noise of their own, and
observations are normalized by running statistics instead of virtual batch normalization.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from .. import nn, rl


@rl.pytree_dataclass
class OpenAIESHyperparams:
    """Hyperparameters of OpenAI-ES, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the optimizer.
      noise_std: sigma, standard deviation of the perturbations.
      weight_decay: of the parameters, added to the estimated gradient.
      adam_eps: Adam's epsilon.
    """

    learning_rate: rl.Number = 1e-2
    noise_std: rl.Number = rl.positive(0.05)
    weight_decay: rl.Number = 5e-3
    adam_eps: rl.Number = rl.only_for("optimizer", 1e-8)


@dataclass(frozen=True, kw_only=True)
class OpenAIESConfig(nn.ConvolutionConfig, rl.AgentConfig):
    """Static configuration of OpenAI-ES.

    Attributes:
      num_envs: size of the population, an even number; one environment for each member.
      rollout_length: steps of each member in a generation.
      normalize_obs: normalize observations by running statistics.
      hidden_sizes: units of the hidden layers.
      cell: `lstm` or `gru` for a recurrent cell before the heads; or `none`.
      cell_size: units of the cell.
    """

    num_envs: int = 64
    rollout_length: int = 1000
    normalize_obs: bool = False
    hidden_sizes: tuple[int, ...] = rl.only_for("networks", (64, 64))
    cell: str = rl.only_for("networks", rl.one_of("none", *nn.CELLS))
    cell_size: int = rl.only_for("networks", 64)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_envs % 2:
            raise rl.TriglotError(
                "OpenAI-ES samples perturbations in mirrored pairs, so that num_envs, the size of "
                f"the population, must be even, got {self.num_envs}."
            )


@rl.pytree_dataclass
class OpenAIESState(rl.AgentState):
    """Training state; the learner has the mean of the population.

    Attributes:
      key: of the population's perturbations.
      members: parameters of the population by canonical name, `[N, ...]`; rows `i` and `N / 2 + i`
        are a mirrored pair.
      obs_stats: statistics of the observations, or None.
    """

    key: jax.Array
    members: Any
    obs_stats: rl.RunningStats | None


@dataclass(frozen=True)
class OpenAIES(rl.AgentBase):
    """The agent; its network may be recurrent.

    The network gives `logits` `[B, num_actions]` for discrete actions, or `mean` `[B, n]`, before a
    tanh, for a bounded `Box` of floats.
    """

    config: OpenAIESConfig = OpenAIESConfig()
    hyper: OpenAIESHyperparams = OpenAIESHyperparams()

    Config = OpenAIESConfig
    Hyperparams = OpenAIESHyperparams
    explores_by_parameters = True
    bootstraps = False

    def __post_init__(self) -> None:
        rl.require_normalizable("OpenAI-ES", self.config.normalize_obs, self.obs_spec)
        super().__post_init__()

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        shapes = nn.policy_shapes(self.action_spec, algorithm="OpenAI-ES")
        return {name: shape for name, shape in shapes.items() if name != "log_std"}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: OpenAIESConfig = OpenAIESConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `actor`."""
        torso = nn.default_torso(obs_spec, config.hidden_sizes, config)
        cell = None if config.cell == "none" else nn.RecurrentCell(config.cell, config.cell_size)
        heads = nn.policy_heads(action_spec, algorithm="OpenAI-ES")
        heads = tuple(head for head in heads if head[0] != "log_std")
        return {"actor": nn.NetworkSpec(obs_spec, torso, heads, cell)}

    def init(self, key: jax.Array, num_envs: int, hyper: Any | None = None) -> OpenAIESState:
        learner_key, noise_key = jax.random.split(key)
        learned = super().init(learner_key, num_envs, hyper)
        params = learned.learner.variables.params
        return OpenAIESState(
            **vars(learned),
            key=noise_key,
            members=self.population(params, noise_key, num_envs, learned.hyper),
            obs_stats=rl.RunningStats.of(self.obs_spec) if self.config.normalize_obs else None,
        )

    def initial_carry(self, state: OpenAIESState, num_envs: int) -> Any:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def act(
        self,
        state: OpenAIESState,
        carry: Any,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        """Let each member act in its environment where `explore`, and else the mean everywhere."""
        mean, seen = state.learner.variables, (inputs.first, carry)
        obs = rl.normalized(state.obs_stats, inputs.obs)
        if explore:
            number = jnp.arange(inputs.first.shape[0]) % self._size(state.members)
            same = number.shape[0] == self._size(state.members)
            members = state.members if same else jax.tree.map(lambda x: x[number], state.members)

            def member(named: Any, *rows: Any) -> Any:
                own = nn.Variables(params=self._decode(named), state=mean.state)
                batch = jax.tree.map(lambda leaf: leaf[None], rows)
                returned = nn.apply_step(self.network, own, *batch)
                return jax.tree.map(lambda leaf: leaf[0], returned)

            outputs, carry = jax.vmap(member)(members, obs, *seen)
        else:
            outputs, carry = nn.apply_step(self.network, mean, obs, *seen)
        heads = nn.merge_heads(outputs)
        raw = heads.get("mean")
        if raw is None:
            raw = rl.policy(self.action_spec, heads, inputs.action_mask).mode()
        action = rl.to_action(self.action_spec, raw)
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: OpenAIESState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[OpenAIESState, rl.Metrics]:
        loss_key, noise_key = jax.random.split(key)
        returns = fitness(trajectory)
        estimate = self.estimate(state, centered_ranks(returns))
        learner, metrics = self.learner.step(
            state.learner, self.loss, (estimate, state.hyper), loss_key, state.hyper
        )
        num_envs, params, stats = returns.shape[0], learner.variables.params, state.obs_stats
        state = replace(
            state,
            learner=learner,
            key=noise_key,
            members=self.population(params, noise_key, num_envs, state.hyper),
            obs_stats=None if stats is None else stats.add(trajectory.obs),
        )
        return state, {
            "fitness": returns.mean(),
            "best_fitness": returns.max(),
            "grad_norm": metrics["grad_norm"],
        }

    def population(
        self, params: Any, key: jax.Array, num_envs: int, hyper: OpenAIESHyperparams
    ) -> Any:
        """Perturb parameters in mirrored pairs, theta + sigma * eps and theta - sigma * eps."""

        def around(mean: jax.Array, eps: jax.Array) -> jax.Array:
            change = hyper.noise_std * eps
            return jnp.concatenate([mean[None] + change, mean[None] - change])

        return jax.tree.map(around, self._encode(params), self.noise(params, key, num_envs // 2))

    def noise(self, params: Any, key: jax.Array, num_pairs: int) -> Any:
        """Draw standard normal numbers `[num_pairs, ...]` for each parameter by canonical name.

        So they are the same for every library.
        """
        leaves, structure = jax.tree.flatten(jax.eval_shape(self._encode, params))
        keys = jax.random.split(key, len(leaves))
        draws = [
            jax.random.normal(own, (num_pairs, *leaf.shape), leaf.dtype)
            for own, leaf in zip(keys, leaves, strict=True)
        ]
        return jax.tree.unflatten(structure, draws)

    def estimate(self, state: OpenAIESState, utility: jax.Array) -> Any:
        """Estimate the gradient of the expected utility (algorithm 1, line 7), by canonical name.

        g = 1 / (N * sigma) * sum_i F_i eps_i, over pairs with F_i of eps and F_j of -eps:
        1 / (N * sigma) * sum_i (F_i - F_j) eps_i.

        Args:
          state: with the key of the perturbations.
          utility: F, `[N]`.
        """
        num_pairs = utility.shape[0] // 2
        eps = self.noise(state.learner.variables.params, state.key, num_pairs)
        weight = utility[:num_pairs] - utility[num_pairs:]
        weight = weight / (utility.shape[0] * state.hyper.noise_std)
        return jax.tree.map(lambda leaf: jnp.tensordot(weight, leaf, axes=1), eps)

    def loss(
        self, variables: nn.Variables, batch: tuple[Any, OpenAIESHyperparams], key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, Any]]:
        """Give the optimizer the gradient -g + weight_decay * theta.

        L = sum(-g * theta + 0.5 * weight_decay * theta^2), with g of `estimate`.
        """
        estimate, hyper = batch

        def of_leaf(theta: jax.Array, ascent: jax.Array) -> jax.Array:
            return jnp.sum(-ascent * theta + 0.5 * hyper.weight_decay * theta**2)

        losses = jax.tree.map(of_leaf, self._encode(variables.params), estimate)
        return jax.tree.reduce(jnp.add, losses), ({}, variables.state)

    def _encode(self, params: Any) -> Any:
        codec = self.network.codec
        return params if codec is None else codec.encode(params)

    def _decode(self, named: Any) -> Any:
        codec = self.network.codec
        return named if codec is None else codec.decode(named)

    def _size(self, members: Any) -> int:
        return jax.tree.leaves(members)[0].shape[0]


def fitness(trajectory: rl.Trajectory) -> jax.Array:
    """Average the returns of each environment's whole episodes, float32 `[N]`.

    An episode is whole if it begins and ends in the trajectory. An environment without one gives
    the rewards since its last episode began, or else all rewards of the trajectory.
    """
    ended = trajectory.terminated | trajectory.truncated

    def step(before: tuple, seen: tuple) -> tuple[tuple, None]:
        since, begun, total, count = before
        first, reward, ended = seen
        since, begun = jnp.where(first, 0.0, since) + reward, begun | first
        whole = begun & ended
        total, count = total + jnp.where(whole, since, 0.0), count + whole.astype(jnp.float32)
        return (since, begun, total, count), None

    zero = jnp.zeros(ended.shape[1:], jnp.float32)
    start = (zero, jnp.zeros(ended.shape[1:], bool), zero, zero)
    rows = (trajectory.first, trajectory.reward, ended)
    (since, _, total, count), _ = jax.lax.scan(step, start, rows)
    return jnp.where(count > 0.0, total / jnp.maximum(count, 1.0), since)


def centered_ranks(values: jax.Array) -> jax.Array:
    """Replace `N` values by their ranks, scaled to [-0.5, 0.5]; equal ones share the mean rank.

    >>> centered_ranks(jnp.array([3.0, 7.0, 7.0, -1.0, 9.0])).tolist()
    [-0.25, 0.125, 0.125, -0.5, 0.5]
    """
    return (jax.scipy.stats.rankdata(values) - 1.0) / (values.shape[0] - 1) - 0.5
