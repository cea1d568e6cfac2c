"""Random network distillation: a reward for observations that a network has not learned to predict.

Source: Burda et al. 2018, "Exploration by Random Network Distillation",
https://arxiv.org/abs/1810.12894, section 2.2 and algorithm 1.
Differences: by default the reward is added to the environment's, so that one value estimates both,
and an episode's end ends both. With `rnd_own_value` intrinsic rewards have a value of their own,
whose returns go on across episodes (section 2.3), of a network of its own, not a second head of the
agent's. The predictor takes one gradient step on all observations of a rollout; all networks are
perceptrons. An agent with a replay learns from the reward that a step had when it was stored, which
the predictor's later progress does not renew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import rlax

from ... import nn, rl


@rl.pytree_dataclass
class RNDHyperparams:
    """Hyperparameters of random network distillation.

    Attributes:
      rnd_coef: weight of the intrinsic reward, whose discounted sum has standard deviation 1; with
        `rnd_own_value`, of its advantage.
      rnd_discount: of intrinsic rewards, in the sum that scales them and in the returns of
        `rnd_own_value`, within [0, 1].
      rnd_learning_rate: of the predictor, and of the value.
      rnd_gae_lambda: of the advantages of intrinsic rewards, within [0, 1].
    """

    rnd_coef: rl.Number = 1.0
    rnd_discount: rl.Number = rl.unit_interval(0.99)
    rnd_learning_rate: rl.Number = 1e-3
    rnd_gae_lambda: rl.Number = rl.only_for("rnd_own_value", rl.unit_interval(0.95))


@dataclass(frozen=True, kw_only=True)
class RNDConfig:
    """Static configuration of random network distillation.

    Attributes:
      rnd_hidden_sizes: units of the hidden layers of all its networks.
      rnd_embedding_size: outputs of the predictor and of the random network.
      rnd_own_value: estimate intrinsic returns, which no episode's end ends, by a value of their
        own, whose advantage is added to the agent's; for agents that estimate advantages.
      rnd_value_epochs: gradient steps on that value after each rollout, on all its steps.
    """

    rnd_hidden_sizes: tuple[int, ...] = (64, 64)
    rnd_embedding_size: int = 64
    rnd_own_value: bool = False
    rnd_value_epochs: int = rl.only_for("rnd_own_value", 4)


@rl.pytree_dataclass
class RNDState:
    """What it learns.

    Attributes:
      predictor: the learner of the network that imitates.
      target: the variables of the random network.
      obs: running statistics of the observations, as one vector.
      returns: running statistics of the discounted intrinsic returns.
      last_return: float32 `[N]`, the discounted intrinsic return so far.
      value: the learner of the intrinsic value, with `rnd_own_value`.
    """

    predictor: rl.LearnerState
    target: nn.Variables
    obs: rl.RunningStats
    returns: rl.RunningStats
    last_return: jax.Array
    value: rl.LearnerState | None = None


class RND(rl.Extension):
    """The squared error of a predictor of a random network's outputs, as a reward.

    `rnd_predictor` and `rnd_target` give `embedding` `[B, E]`, `rnd_value` gives `value` `[B]`.
    """

    name = "rnd"
    Config = RNDConfig
    Hyperparams = RNDHyperparams

    @classmethod
    def networks(
        cls, obs_spec: rl.Spec, action_spec: rl.Spec, config: Any
    ) -> Mapping[str, nn.NetworkSpec]:
        """Describe the predictor, the target and the value, which read one vector."""
        torso = nn.MLP(config.rnd_hidden_sizes, activation="relu")
        head = nn.Head(size=config.rnd_embedding_size)
        reads = rl.Box((rl.vector_size(obs_spec),))
        spec = nn.NetworkSpec(reads, torso, (("embedding", head),))
        described = {"rnd_predictor": spec, "rnd_target": spec}
        if config.rnd_own_value:
            described["rnd_value"] = nn.NetworkSpec(reads, torso, (("value", nn.Head(scale=1.0)),))
        return described

    def check(self, agent: rl.Agent) -> None:
        if self.config.rnd_own_value and not agent.learns_estimates:
            raise rl.TriglotError(
                f"rnd_own_value adds to an agent's advantages, and {agent.name} does not "
                "estimate any: leave it out, or extend ppo, a2c, reinforce or vmpo."
            )

    def learner(self, name: str) -> rl.Learner:
        """Return the learner of a network, with Adam."""
        return rl.Learner(self._part(name), rl.adam)

    def _part(self, name: str) -> nn.Network:
        assert self.network is not None  # for the type checker: it lists networks
        return self.network.parts[name]

    @staticmethod
    def variables(state: RNDState) -> Mapping[str, nn.Variables]:
        """Select the variables of its networks."""
        value_variables = {} if state.value is None else {"rnd_value": state.value.variables}
        return {
            "rnd_predictor": state.predictor.variables,
            "rnd_target": state.target,
            **value_variables,
        }

    def init(self, key: jax.Array, num_envs: int, hyper: rl.PyTree) -> RNDState:
        assert self.network is not None  # for the type checker
        whole = self.network.init(key)
        size = rl.vector_size(self.obs_spec)
        learner_hyper = self.step_hyper(hyper)

        def start(name: str) -> rl.LearnerState:
            return self.learner(name).start(nn.part_of(whole, name), learner_hyper)

        return RNDState(
            predictor=start("rnd_predictor"),
            target=nn.part_of(whole, "rnd_target"),
            obs=rl.RunningStats.zero((size,)),
            returns=rl.RunningStats.zero(()),
            last_return=jnp.zeros((num_envs,), jnp.float32),
            value=start("rnd_value") if self.config.rnd_own_value else None,
        )

    def update(
        self, state: RNDState, trajectory: rl.Trajectory, key: jax.Array, hyper: rl.PyTree
    ) -> tuple[rl.Trajectory, RNDState, rl.Metrics]:
        """Reward the scaled error at each successor, then learn to predict it."""
        value_key = None
        if self.config.rnd_own_value:
            key, value_key = jax.random.split(key)
        shape = trajectory.reward.shape
        flat = rl.vector(self.obs_spec, rl.flatten(trajectory.next_obs))
        stats = state.obs.add(flat)
        normalized = stats.normalize(flat, limit=5.0)

        wanted = self._part("rnd_target").apply(state.target, normalized)[0]["embedding"]

        def error(
            variables: nn.Variables, own_key: jax.Array | None
        ) -> tuple[jax.Array, rl.PyTree]:
            predictor, train = self._part("rnd_predictor"), own_key is not None
            outputs, new_state = predictor.apply(variables, normalized, key=own_key, train=train)
            return jnp.square(outputs["embedding"] - wanted).mean(axis=1), new_state

        bonus = error(state.predictor.variables, None)[0].reshape(shape)
        # The episode's end ends nothing here: what was found is still new (section 2.3).
        never = jnp.zeros(shape, bool)
        last, sums = rl.discounted_sums(
            state.last_return, bonus, first=never, discount=hyper.rnd_discount
        )
        returns = state.returns.add(sums)
        scaled = bonus * returns.scale

        def loss(
            variables: nn.Variables, batch: tuple[()], own_key: jax.Array
        ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
            del batch
            errors, new_state = error(variables, own_key)
            return errors.mean(), ({}, new_state)

        learner_hyper = self.step_hyper(hyper)
        predictor, learned = self.learner("rnd_predictor").step(
            state.predictor, loss, (), key, learner_hyper
        )
        after = replace(state, predictor=predictor, obs=stats, returns=returns, last_return=last)
        metrics = {"reward": scaled.mean(), "loss": learned["loss"]}
        if state.value is None or value_key is None:
            reward = trajectory.reward + hyper.rnd_coef * scaled
            return replace(trajectory, reward=reward), after, metrics
        value, advantage, learned = self._estimate(
            state.value, trajectory, stats, scaled, value_key, hyper
        )
        trajectory = rl.with_advantage(trajectory, hyper.rnd_coef * advantage)
        return trajectory, replace(after, value=value), {**metrics, **learned}

    def _estimate(
        self,
        learner: rl.LearnerState,
        trajectory: rl.Trajectory,
        stats: rl.RunningStats,
        reward: jax.Array,
        key: jax.Array,
        hyper: rl.PyTree,
    ) -> tuple[rl.LearnerState, jax.Array, rl.Metrics]:
        """Estimate the advantages `[T, N]` of intrinsic rewards, then learn their value.

        After an episode's end follows the next episode's first observation, with its value. Only
        after the rollout's last step, and where the environments were started anew, the true last
        observation bootstraps.
        """

        def normalized(obs: rl.Obs) -> jax.Array:
            return stats.normalize(rl.vector(self.obs_spec, obs), limit=5.0)

        def value_of(obs: rl.Obs) -> jax.Array:
            network = self._part("rnd_value")
            return network.apply(learner.variables, normalized(obs))[0]["value"]

        obs = rl.flatten(trajectory.obs)
        value = value_of(obs).reshape(reward.shape)
        never = jnp.zeros(reward.shape, bool)
        cut = rl.truncations(trajectory) & ~(trajectory.terminated | trajectory.truncated)
        next_value = rl.successor_values(value_of, value, trajectory.next_obs, never, cut)
        advantage, target = rl.gae(
            reward, never, cut, value, next_value, hyper.rnd_discount, hyper.rnd_gae_lambda
        )

        def loss(
            variables: nn.Variables, batch: tuple[jax.Array, jax.Array], own_key: jax.Array
        ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
            inputs, wanted = batch
            network = self._part("rnd_value")
            outputs, new_state = network.apply(variables, inputs, key=own_key, train=True)
            return rlax.l2_loss(outputs["value"], wanted).mean(), ({}, new_state)

        def step(
            state: rl.LearnerState, batch: tuple[jax.Array, jax.Array], own_key: jax.Array
        ) -> tuple[rl.LearnerState, rl.Metrics]:
            return self.learner("rnd_value").step(
                state, loss, batch, own_key, self.step_hyper(hyper)
            )

        learner, learned = rl.epochs_of_minibatches(
            step,
            learner,
            (normalized(obs), target.reshape(-1)),
            key,
            num_epochs=self.config.rnd_value_epochs,
            num_minibatches=1,
        )
        return learner, advantage, {"value_loss": learned["loss"], "value": value.mean()}
