"""OpenAI-ES, an evolution strategy: no gradients of the network, only returns of perturbed copies.

Source: Salimans et al. 2017, https://arxiv.org/abs/1703.03864, algorithm 1 with mirrored sampling,
fitness shaping by centered ranks and weight decay (section 2.1); the optimizer is Adam.
Differences: each environment runs one member of the population during a whole rollout, so that a
member whose episodes are short is judged by the mean of several; an episode that the rollout cuts
does not count, unless it is all there is (`fitness`). Equal returns share the mean of their ranks.
Actions have no noise of their own, and observations are normalized by running statistics instead of
virtual batch normalization.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import optax

from .. import nn, rl


@rl.pytree_dataclass
class ESHyperparams:
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
class ESConfig(nn.ConvolutionConfig, rl.AgentConfig):
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
class ESState(rl.AgentState):
    """Training state; the learner has the mean of the population.

    Attributes:
      members: parameters of the population by canonical name, `[N, ...]`; rows `i` and `N / 2 + i`
        are a mirrored pair.
      obs_stats: statistics of the observations, or None.
    """

    members: rl.PyTree
    obs_stats: rl.RunningStats | None


@dataclass(frozen=True)
class ES(rl.AgentBase):
    """The agent; its network may be recurrent.

    The network gives `logits` `[B, num_actions]` for discrete actions, or `mean` `[B, n]`, before a
    tanh, for a bounded `Box` of floats.
    """

    config: ESConfig = ESConfig()
    hyper: ESHyperparams = ESHyperparams()

    Config = ESConfig
    Hyperparams = ESHyperparams
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
        obs_spec: rl.Spec, action_spec: rl.Spec, config: ESConfig = ESConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `actor`."""
        torso = nn.default_torso(obs_spec, config.hidden_sizes, config)
        cell = None if config.cell == "none" else nn.RecurrentCell(config.cell, config.cell_size)
        heads = nn.policy_heads(action_spec, algorithm="OpenAI-ES")
        heads = tuple(head for head in heads if head[0] != "log_std")
        return {"actor": nn.NetworkSpec(obs_spec, torso, heads, cell)}

    def init(self, key: jax.Array, num_envs: int, hyper: ESHyperparams | None = None) -> ESState:
        learner_key, noise_key = jax.random.split(key)
        learned = super().init(learner_key, num_envs, hyper)
        return ESState(
            **vars(learned),
            members=self.population(learned.learner, noise_key, num_envs, learned.hyper),
            obs_stats=rl.RunningStats.of(self.obs_spec) if self.config.normalize_obs else None,
        )

    def network_obs(self, state: ESState, obs: rl.Obs) -> rl.Obs:
        return rl.normalized(state.obs_stats, obs)

    def initial_carry(self, state: ESState, num_envs: int) -> rl.Carry:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def act(
        self,
        state: ESState,
        carry: rl.Carry,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        """Let each member act in its environment where `explore`, and else the mean everywhere."""
        mean, obs = state.learner.variables, self.network_obs(state, inputs.obs)

        def act_alone(named: rl.PyTree, *rows: rl.PyTree) -> rl.PyTree:
            member_variables = nn.Variables(params=self._decode(named), state=mean.state)
            batch = jax.tree.map(lambda leaf: leaf[None], rows)
            return jax.tree.map(
                lambda leaf: leaf[0], nn.apply_step(self.network, member_variables, *batch)
            )

        if explore:
            members = _repeated(state.members, inputs.first.shape[0])
            outputs, carry = jax.vmap(act_alone)(members, obs, inputs.first, carry)
        else:
            outputs, carry = nn.apply_step(self.network, mean, obs, inputs.first, carry)
        heads = nn.merge_heads(outputs)
        raw = heads.get("mean")
        if raw is None:
            raw = rl.policy(self.action_spec, heads, inputs.action_mask).mode()
        action = rl.to_action(self.action_spec, raw)
        return rl.PolicyOutput(action=action, carry=carry, extras={})

    def update(
        self, state: ESState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[ESState, rl.Metrics]:
        loss_key, noise_key = jax.random.split(key)
        hyper, stats, returns = state.hyper, state.obs_stats, fitness(trajectory)
        batch = self.estimate(state, centered_ranks(returns)), hyper.weight_decay
        learner, metrics = self.learner.step(state.learner, self.loss, batch, loss_key, hyper)
        members = self.population(learner, noise_key, returns.shape[0], hyper)
        stats = None if stats is None else stats.add(trajectory.obs)
        metrics = {"fitness": returns.mean(), "best_fitness": returns.max(), **metrics}
        del metrics["loss"]  # only its gradient has a meaning
        return replace(state, learner=learner, members=members, obs_stats=stats), metrics

    def population(
        self, learner: rl.LearnerState, key: jax.Array, num_envs: int, hyper: ESHyperparams
    ) -> rl.PyTree:
        """Perturb parameters in mirrored pairs, theta + sigma * eps and theta - sigma * eps."""
        mean, eps = self._encode(learner.variables.params), self.noise(learner, key, num_envs // 2)
        change = jax.tree.map(lambda leaf: hyper.noise_std * leaf, eps)
        pairs = jax.tree.map(lambda leaf: jnp.concatenate([leaf, -leaf]), change)
        return jax.tree.map(lambda leaf, pair: leaf[None] + pair, mean, pairs)

    def noise(self, learner: rl.LearnerState, key: jax.Array, num_pairs: int) -> rl.PyTree:
        """Draw standard normal numbers `[num_pairs, ...]` for each parameter by canonical name.

        So they are the same for every library.
        """
        shapes = jax.eval_shape(self._encode, learner.variables.params)
        leaves, structure = jax.tree.flatten(shapes)
        keys = jax.random.split(key, len(leaves))
        pairs = zip(keys, leaves, strict=True)
        draws = [jax.random.normal(leaf_key, (num_pairs, *leaf.shape)) for leaf_key, leaf in pairs]
        return jax.tree.unflatten(structure, draws)

    def estimate(self, state: ESState, utility: jax.Array) -> rl.PyTree:
        """Estimate the gradient of the expected utility (algorithm 1, line 7), by canonical name.

        g = 1 / (N * sigma) * sum_i F_i eps_i, which with F_j of the mirrored member j is a sum over
        pairs, 1 / (N * sigma) * sum_i (F_i - F_j) eps_i; eps_i = (theta_i - theta_j) / (2 sigma).

        Args:
          state: with the members.
          utility: F, `[N]`.
        """
        num_envs = utility.shape[0]
        half, scale = num_envs // 2, 2.0 * num_envs * state.hyper.noise_std**2
        weight = (utility[:half] - utility[half:]) / scale

        def over_pairs(leaf: jax.Array) -> jax.Array:
            return jnp.tensordot(weight, leaf[:half] - leaf[half:], axes=1)

        return jax.tree.map(over_pairs, state.members)

    def loss(
        self, variables: nn.Variables, batch: tuple[rl.PyTree, jax.Array], key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Give the optimizer the gradient -g + weight_decay * theta.

        L = sum(-g * theta + 0.5 * weight_decay * theta^2), with g of `estimate`.
        """
        estimate, weight_decay = batch
        theta = self._encode(variables.params)
        ascent = optax.tree.vdot(estimate, theta)
        decay = 0.5 * weight_decay * optax.tree.norm(theta, squared=True)
        return decay - ascent, ({}, variables.state)

    def _encode(self, params: rl.PyTree) -> rl.PyTree:
        codec = self.network.codec
        return params if codec is None else codec.encode(params)

    def _decode(self, named: rl.PyTree) -> rl.PyTree:
        codec = self.network.codec
        return named if codec is None else codec.decode(named)


def _repeated(members: rl.PyTree, number: int) -> rl.PyTree:
    """Repeat the `N` members up to a number of environments."""
    size = jax.tree.leaves(members)[0].shape[0]
    index = jnp.arange(number) % size
    return members if number == size else jax.tree.map(lambda leaf: leaf[index], members)


def fitness(trajectory: rl.Trajectory) -> jax.Array:
    """Average the returns of each environment's whole episodes, float32 `[N]`.

    An episode is whole if it begins and ends in the trajectory. An environment without one gives
    the rewards since its last episode began, or else all rewards of the trajectory.
    """

    def step(before: tuple, step_data: rl.Trajectory) -> tuple[tuple, None]:
        since, begun, total, count = before
        since = jnp.where(step_data.first, 0.0, since) + step_data.reward
        begun = begun | step_data.first
        whole = (begun & (step_data.terminated | step_data.truncated)).astype(jnp.float32)
        return (since, begun, total + whole * since, count + whole), None

    zero = jnp.zeros(trajectory.reward.shape[1:], jnp.float32)
    start, steps = (zero, zero > 0.0, zero, zero), replace(trajectory, carry=())
    (since, _, total, count), _ = jax.lax.scan(step, start, steps)
    return jnp.where(count > 0.0, total / jnp.maximum(count, 1.0), since)


def centered_ranks(values: jax.Array) -> jax.Array:
    """Replace `N` values by their ranks, scaled to [-0.5, 0.5]; equal ones share the mean rank.

    >>> centered_ranks(jnp.array([3.0, 7.0, 7.0, -1.0, 9.0])).tolist()
    [-0.25, 0.125, 0.125, -0.5, 0.5]
    """
    return (jax.scipy.stats.rankdata(values) - 1.0) / (values.shape[0] - 1) - 0.5
