"""Random network distillation: a reward for observations that a network has not learned to predict.

Source: Burda et al. 2018, "Exploration by Random Network Distillation",
https://arxiv.org/abs/1810.12894, section 2.2 and algorithm 1.
Differences: the reward is added to the environment's, so that one value estimates both, and an
episode's end ends both; the predictor takes one gradient step on all observations of a rollout;
both networks are perceptrons. An agent with a replay learns from the reward that a step had when it
was stored, which the predictor's later progress does not renew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from ... import nn, rl


@rl.pytree_dataclass
class RNDHyperparams:
    """Hyperparameters of random network distillation.

    Attributes:
      rnd_coef: weight of the intrinsic reward, whose discounted sum has standard deviation 1.
      rnd_discount: of the intrinsic rewards in the sum that scales them, within [0, 1].
      rnd_learning_rate: of the predictor.
    """

    rnd_coef: rl.Number = 1.0
    rnd_discount: rl.Number = rl.unit_interval(0.99)
    rnd_learning_rate: rl.Number = 1e-3


@dataclass(frozen=True, kw_only=True)
class RNDConfig:
    """Static configuration of random network distillation.

    Attributes:
      rnd_hidden_sizes: units of the hidden layers of both networks.
      rnd_embedding_size: outputs of both networks.
    """

    rnd_hidden_sizes: tuple[int, ...] = (64, 64)
    rnd_embedding_size: int = 64


@rl.pytree_dataclass
class RNDState:
    """What it learns.

    Attributes:
      predictor: the learner of the network that imitates.
      target: the variables of the random network.
      obs: running statistics of the observations, as one vector.
      returns: running statistics of the discounted intrinsic returns.
      last_return: float32 `[N]`, the discounted intrinsic return so far.
    """

    predictor: rl.LearnerState
    target: nn.Variables
    obs: rl.RunningStats
    returns: rl.RunningStats
    last_return: jax.Array


class RND(rl.Extension):
    """The squared error of a predictor of a random network's outputs, as a reward.

    `rnd_predictor` and `rnd_target` give `embedding` `[B, E]`.
    """

    name = "rnd"
    Config = RNDConfig
    Hyperparams = RNDHyperparams

    @classmethod
    def networks(
        cls, obs_spec: rl.Spec, action_spec: rl.Spec, config: Any
    ) -> Mapping[str, nn.NetworkSpec]:
        """Describe the predictor and the target, which read one vector."""
        torso = nn.MLP(config.rnd_hidden_sizes, activation="relu")
        head = nn.Head(size=config.rnd_embedding_size)
        reads = rl.Box((rl.vector_size(obs_spec),))
        spec = nn.NetworkSpec(reads, torso, (("embedding", head),))
        return {"rnd_predictor": spec, "rnd_target": spec}

    @property
    def learner(self) -> rl.Learner:
        """The predictor with Adam."""
        return rl.Learner(self._part("rnd_predictor"), rl.adam)

    def _part(self, name: str) -> nn.Network:
        assert self.network is not None  # for the type checker: it lists networks
        return self.network.parts[name]

    @staticmethod
    def variables(state: RNDState) -> Mapping[str, nn.Variables]:
        """Select the variables of both networks."""
        return {"rnd_predictor": state.predictor.variables, "rnd_target": state.target}

    def init(self, key: jax.Array, num_envs: int, hyper: Any) -> RNDState:
        assert self.network is not None  # for the type checker
        whole = self.network.init(key)
        size = rl.vector_size(self.obs_spec)
        predictor = nn.part_of(whole, "rnd_predictor")
        return RNDState(
            predictor=self.learner.start(predictor, self.step_hyper(hyper)),
            target=nn.part_of(whole, "rnd_target"),
            obs=rl.RunningStats.zero((size,)),
            returns=rl.RunningStats.zero(()),
            last_return=jnp.zeros((num_envs,), jnp.float32),
        )

    def update(
        self, state: RNDState, trajectory: rl.Trajectory, key: jax.Array, hyper: Any
    ) -> tuple[rl.Trajectory, RNDState, rl.Metrics]:
        """Add the scaled error at each successor to the reward, then learn to predict it."""
        shape = trajectory.reward.shape
        flat = rl.vector(self.obs_spec, rl.flatten(trajectory.next_obs))
        stats = state.obs.add(flat)
        seen = stats.normalize(flat, limit=5.0)

        wanted = self._part("rnd_target").apply(state.target, seen)[0]["embedding"]

        def error(variables: nn.Variables, own_key: jax.Array | None) -> tuple[jax.Array, Any]:
            how = {"key": own_key, "train": own_key is not None}
            found, new_state = self._part("rnd_predictor").apply(variables, seen, **how)
            return jnp.square(found["embedding"] - wanted).mean(axis=1), new_state

        bonus = error(state.predictor.variables, None)[0].reshape(shape)
        # The episode's end ends nothing here: what was found is still new (section 2.3).
        never = jnp.zeros(shape, bool)
        last, sums = rl.discounted_sums(
            state.last_return, bonus, first=never, discount=hyper.rnd_discount
        )
        returns = state.returns.add(sums)
        scaled = bonus * returns.scale

        def loss(variables: nn.Variables, batch: Any, own_key: jax.Array) -> Any:
            del batch
            errors, new_state = error(variables, own_key)
            return errors.mean(), ({}, new_state)

        how = self.step_hyper(hyper)
        predictor, learned = self.learner.step(state.predictor, loss, (), key, how)
        after = replace(state, predictor=predictor, obs=stats, returns=returns, last_return=last)
        reward = trajectory.reward + hyper.rnd_coef * scaled
        metrics = {"reward": scaled.mean(), "loss": learned["loss"]}
        return replace(trajectory, reward=reward), after, metrics
