"""Parallelised Q-network (PQN), for discrete actions where environment steps are cheap.

Source: Gallici et al. 2025, https://arxiv.org/abs/2407.04811: Q(lambda) on rollouts of parallel
environments, without replay and target network, made stable by layer normalization.
Differences: a truncated episode bootstraps from its true last observation; kernels are orthogonal
at the start; with a recurrent network, targets come from the values of the rollout, as without.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import jax
import jax.numpy as jnp
import rlax

from .. import nn, rl


@rl.pytree_dataclass
class PQNHyperparams:
    """Hyperparameters of PQN, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: of the optimizer; it falls linearly to 0 over the whole run.
      discount: of future rewards, within [0, 1].
      q_lambda: mixes returns of all lengths: 0 is one step of Q-learning, 1 the whole return.
      epsilon: probability of a random action.
      max_grad_norm: clip threshold of the global gradient norm.
      adam_eps: Adam's epsilon.
      epochs: how many of the `num_epochs` passes are taken; may be a fraction. None: all.
    """

    learning_rate: rl.Number = rl.non_negative(rl.schedule("linear(5e-4, 0)"))
    discount: rl.Number = rl.unit_interval(0.99)
    q_lambda: rl.Number = rl.unit_interval(0.65)
    epsilon: rl.Number = rl.unit_interval(rl.schedule("linear(1, 0.05, 250_000)"))
    max_grad_norm: rl.Number = rl.between(10.0, 0.0)
    adam_eps: rl.Number = rl.only_for("optimizer", 1e-8)
    epochs: rl.Number | None = rl.part_of("num_epochs")


@dataclass(frozen=True, kw_only=True)
class PQNConfig(nn.ConvolutionConfig, rl.AgentConfig):
    """Static configuration of PQN.

    Attributes:
      num_envs: environments stepped at a time, `N`.
      rollout_length: steps from each between updates, `T`.
      num_epochs: passes over a rollout.
      num_minibatches: gradient steps in one pass; must divide `N * T`.
      normalization: of each layer's outputs before the activation: `layer`, `batch` or `none`.
      hidden_sizes: units of the hidden layers; None: 128 128, and those of the `torso` for images.
      dueling: sum a value and advantages in the network's head.
      cell: `lstm` or `gru` for a recurrent cell before the head; or `none`.
      cell_size: units of the cell.
    """

    num_envs: int = 32
    rollout_length: int = 32
    num_epochs: int = 2
    num_minibatches: int = 16
    normalization: str = rl.only_for("networks", rl.one_of("layer", "batch", "none"))
    hidden_sizes: tuple[int, ...] | None = rl.only_for("networks", None)
    dueling: bool = rl.only_for("networks", False)
    cell: str = rl.only_for("networks", rl.one_of("none", *nn.CELLS))
    cell_size: int = rl.only_for("networks", 64)

    vector_sizes: ClassVar[tuple[int, ...]] = (128, 128)


@rl.pytree_dataclass
class Batch:
    """Samples of a rollout: `[B, ...]`, or with a recurrent network whole rollouts `[B, T, ...]`.

    `first` and `carry` `[B, ...]`, from before the first step, are for recurrent networks.
    """

    obs: rl.Obs
    action: jax.Array
    target: jax.Array
    first: jax.Array | None = None
    carry: rl.Carry = ()


@dataclass(frozen=True)
class PQN(rl.AgentBase):
    """The agent; its network gives `q` `[B, num_actions]`, and may be recurrent."""

    config: PQNConfig = PQNConfig()
    hyper: PQNHyperparams = PQNHyperparams()
    optimizer: rl.OptimizerFn = rl.radam

    Config = PQNConfig
    Hyperparams = PQNHyperparams

    def __post_init__(self) -> None:
        super().__post_init__()
        config = self.config
        samples, what = config.steps_per_update, "num_envs * rollout_length"
        if self.network.recurrent:
            samples, what = config.num_envs, "num_envs (the network is recurrent)"
        rl.check_divides("PQN", "num_minibatches", config.num_minibatches, samples, what)

    @property
    def learns_otherwise(self) -> str:
        if self.config.normalization != "batch":
            return ""
        return "the loss normalizes by the minibatch, as in the paper's code, and acting does not"

    @property
    def heads(self) -> dict[str, tuple[int, ...]]:
        return {"q": (nn.num_actions(self.action_spec, algorithm="PQN"),)}

    @staticmethod
    def networks(
        obs_spec: rl.Spec, action_spec: rl.Spec, config: PQNConfig = PQNConfig()
    ) -> dict[str, nn.NetworkSpec]:
        """Describe the `q_network`."""
        (spec,) = nn.q_network(obs_spec, action_spec, config, algorithm="PQN").values()
        cell = None if config.cell == "none" else nn.RecurrentCell(config.cell, config.cell_size)
        return {"q_network": replace(spec, cell=cell)}

    def initial_carry(self, state: rl.AgentState, num_envs: int) -> rl.Carry:
        return self.network.initial_carry(state.learner.variables, num_envs)

    def action_values(self, state: rl.AgentState, obs: rl.Obs) -> jax.Array:
        """Estimate the action values, float32 `[B, num_actions]`, of a network without a carry."""
        return nn.apply_heads(self.network, state.learner.variables, obs)[0]["q"]

    def act(
        self,
        state: rl.AgentState,
        carry: rl.Carry,
        inputs: rl.PolicyInput,
        key: jax.Array,
        *,
        explore: bool,
    ) -> rl.PolicyOutput:
        variables, mask = state.learner.variables, inputs.action_mask
        outputs, carry = nn.apply_step(self.network, variables, inputs.obs, inputs.first, carry)
        q = nn.merge_heads(outputs)["q"]
        action = rl.greedy(q, mask)
        if explore:
            action = rl.epsilon_greedy(action, q.shape[-1], mask, state.hyper.epsilon, key)
        value = rl.mask_q(q, mask).max(axis=-1)
        return rl.PolicyOutput(action=action, carry=carry, extras={"value": value})

    def update(
        self, state: rl.AgentState, trajectory: rl.Trajectory, key: jax.Array
    ) -> tuple[rl.AgentState, rl.Metrics]:
        config, hyper = self.config, state.hyper

        def step(
            learner: rl.LearnerState, minibatch: Batch, own_key: jax.Array
        ) -> tuple[rl.LearnerState, rl.Metrics]:
            return self.learner.step(learner, self.loss, minibatch, own_key, hyper)

        learner, metrics = rl.epochs_of_minibatches(
            step,
            state.learner,
            self._prepare(state, trajectory),
            key,
            num_epochs=config.num_epochs,
            num_minibatches=config.num_minibatches,
            epochs=hyper.epochs,
        )
        metrics |= {"epsilon": hyper.epsilon, "learning_rate": hyper.learning_rate}
        return replace(state, learner=learner), metrics

    def _prepare(self, state: rl.AgentState, trajectory: rl.Trajectory) -> Batch:
        """Compute the targets (`rl.lambda_returns` of V = max_a Q), and reshape to samples.

        G_t = r_t + discount * ((1 - lambda) * max_a Q(s_{t+1}, a) + lambda * G_{t+1}), where the
        episode terminated r_t alone, and where a time limit ended it r_t + discount * max_a Q of
        the true last observation.
        """
        t, variables = trajectory, state.learner.variables
        successors = t.next_obs
        if self.network.recurrent:
            _, after = nn.carries(self.network, variables, t.obs, t.first, t.carry)
            successors = successors, after

        def value_of(next_inputs: dict[str, rl.PyTree]) -> jax.Array:
            outputs, _ = self.network.apply(variables, next_inputs["successor"])
            heads = nn.merge_heads(outputs[0] if self.network.recurrent else outputs)
            return rl.mask_q(heads["q"], next_inputs["mask"]).max(axis=-1)

        hyper, ended = state.hyper, (t.terminated, t.truncated)
        next_inputs = {"successor": successors, "mask": t.next_action_mask}
        next_value = rl.successor_values(value_of, t.extras["value"], next_inputs, *ended)
        target = rl.lambda_returns(t.reward, *ended, next_value, hyper.discount, hyper.q_lambda)
        steps = Batch(obs=t.obs, action=t.action, target=target)
        if not self.network.recurrent:
            return rl.flatten(steps)
        return replace(rl.swap_time(replace(steps, first=t.first)), carry=t.carry)

    def loss(
        self, variables: nn.Variables, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Average 0.5 * (Q(s, a) - G)^2 over samples, with the targets G from before the update.

        Returns the loss, float32 `[]`, with the metrics and the network's new state; `key` is for
        the network's own randomness.
        """
        if self.network.recurrent:
            steps = rl.swap_time(replace(batch, carry=()))
            outputs, _, new_state = nn.unroll(
                self.network, variables, steps.obs, steps.first, batch.carry, key=key, train=True
            )
            outputs, batch = rl.flatten((outputs, steps))
        else:
            outputs, new_state = self.network.apply(variables, batch.obs, key=key, train=True)
        q = rl.at_action(nn.merge_heads(outputs)["q"], batch.action)
        errors = batch.target - q
        loss = jnp.mean(rlax.l2_loss(errors))
        return loss, ({"q": q.mean(), "td_error": jnp.abs(errors).mean()}, new_state)
