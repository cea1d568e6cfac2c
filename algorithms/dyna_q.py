"""Dyna-Q: tabular Q-learning that also learns from steps of a learned model.

Source: Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, section 8.2,
"Tabular Dyna-Q"; option `plus` is Dyna-Q+ of section 8.3 with the footnote on actions that were
never tried.
Differences: a truncated episode bootstraps from its true last observation. With `N` environments,
each of the planning steps draws `N` pairs of observation and action, as many as a real step has;
the transitions of a step are learned at once: targets use the values from before, and changes of
one entry add up. Of two environments at one pair, the model keeps what the later one observed.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from .. import rl


@rl.pytree_dataclass
class DynaQHyperparams(rl.TabularHyperparams):
    """Hyperparameters of Dyna-Q, which a sweep may vary under `vmap`.

    Attributes:
      bonus: kappa; a planned reward grows by kappa times the square root of the steps since the
        action was last tried.
    """

    bonus: rl.Number = rl.only_for("plus", 1e-3)


@dataclass(frozen=True, kw_only=True)
class DynaQConfig(rl.TabularConfig):
    """Static configuration of Dyna-Q.

    Attributes:
      planning_steps: steps learned from the model after each real step.
      plus: plan with a bonus for actions not tried for long, and also with those never tried.
    """

    planning_steps: int = 10
    plus: bool = False


@rl.pytree_dataclass
class Transition:
    """Transitions to learn from, as in `Trajectory`, `[N, ...]`."""

    obs: jax.Array
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    next_obs: jax.Array
    next_action_mask: jax.Array


@rl.pytree_dataclass
class Model:
    """What followed each observation and action the last time, `[S, A]` each.

    A pair that was never tried pays 0 and stays where it is, which only `plus` plans with.

    Attributes:
      reward, terminated, next_obs: of that step.
      tried: bool, whether there was such a step.
      last_tried: int32, its number, counted from 1; 0 before the first.
      allowed: bool, the last mask of the observation's actions.
    """

    reward: jax.Array
    terminated: jax.Array
    next_obs: jax.Array
    tried: jax.Array
    last_tried: jax.Array
    allowed: jax.Array


@rl.pytree_dataclass
class DynaQState(rl.AgentState):
    """Training state; `num_steps` counts the steps of each environment, int32 `[]`."""

    model: Model
    num_steps: jax.Array


@dataclass(frozen=True)
class DynaQ(rl.Tabular):
    """The agent; its network gives `q` `[B, num_actions]`.

    A lookup table makes the update the classic rule. Observations and actions are `Discrete`.
    """

    config: DynaQConfig = DynaQConfig()
    hyper: DynaQHyperparams = DynaQHyperparams()

    Config = DynaQConfig
    Hyperparams = DynaQHyperparams
    title = "Dyna-Q"

    def init(
        self, key: jax.Array, num_envs: int, hyper: DynaQHyperparams | None = None
    ) -> DynaQState:
        pairs = self.num_states, self.actions.num_values
        own_obs = jnp.arange(pairs[0], dtype=rl.zeros(self.obs_spec).dtype)
        model = Model(
            reward=jnp.zeros(pairs, jnp.float32),
            terminated=jnp.zeros(pairs, bool),
            next_obs=jnp.broadcast_to(own_obs[:, None], pairs),
            tried=jnp.zeros(pairs, bool),
            last_tried=jnp.zeros(pairs, jnp.int32),
            allowed=jnp.ones(pairs, bool),
        )
        learned = super().init(key, num_envs, hyper)
        return DynaQState(**vars(learned), model=model, num_steps=jnp.zeros((), jnp.int32))

    def learn(
        self, state: DynaQState, step: rl.Trajectory, key: jax.Array
    ) -> tuple[DynaQState, rl.Metrics]:
        """Learn from a step, store its outcome in the model, and plan with the model."""
        real_key, draw_key, plan_key = jax.random.split(key, 3)
        num_envs, num_plans = step.reward.shape[0], self.config.planning_steps
        learner, metrics = self._q_learning(state.learner, step, real_key, state.hyper)
        now = state.num_steps + 1
        model = self.observe(state.model, step, now)
        uniform = jax.random.uniform(draw_key, (num_plans, num_envs))
        planned = self.recall(model, uniform, now, state.hyper)
        learner, _ = jax.lax.scan(
            lambda learner, inputs: self._q_learning(learner, *inputs, state.hyper),
            learner,
            (planned, jax.random.split(plan_key, num_plans)),
        )
        return replace(state, learner=learner, model=model, num_steps=now), metrics

    def observe(self, model: Model, step: rl.Trajectory, now: jax.Array) -> Model:
        """Store the outcomes of step `now`, Model(S, A) <- R, S', one environment after another."""

        def store(model: Model, transition: rl.Trajectory) -> tuple[Model, None]:
            pair, allowed = (transition.obs, transition.action), model.allowed
            if transition.action_mask is not None:
                allowed = allowed.at[transition.obs].set(transition.action_mask)
                allowed = allowed.at[transition.next_obs].set(transition.next_action_mask)
            stored = Model(
                reward=model.reward.at[pair].set(transition.reward),
                terminated=model.terminated.at[pair].set(transition.terminated),
                next_obs=model.next_obs.at[pair].set(transition.next_obs),
                tried=model.tried.at[pair].set(True),
                last_tried=model.last_tried.at[pair].set(now),
                allowed=allowed,
            )
            return stored, None

        return jax.lax.scan(store, model, step)[0]

    def recall(
        self, model: Model, uniform: jax.Array, now: jax.Array, hyper: DynaQHyperparams
    ) -> Transition:
        """Draw pairs of observation and action, and what followed them, `[K, N]` each.

        Pairs that were tried are equally likely; with `plus`, all allowed actions of observations
        in which one was tried. The reward is then r + bonus * sqrt(tau), with tau the steps since
        the pair was last tried: 0 if that was the step `now`, and `now` if it never was.

        Args:
          model: at least one pair was tried.
          uniform: float `[K, N]` within [0, 1).
          now: int32 `[]`, the number of the newest step, counted from 1.
          hyper: with `bonus`.
        """
        candidates = model.tried
        if self.config.plus:
            candidates = model.allowed & jnp.any(model.tried, axis=-1, keepdims=True)
        rank = jnp.cumsum(candidates.ravel().astype(jnp.int32))
        wanted = (uniform * rank[-1].astype(jnp.float32)).astype(jnp.int32)
        wanted = jnp.minimum(wanted, rank[-1] - 1)  # the product may be rounded up
        index = jnp.searchsorted(rank, wanted, side="right")
        obs, action = jnp.unravel_index(index, candidates.shape)
        reward, next_obs = model.reward[obs, action], model.next_obs[obs, action]
        if self.config.plus:
            untried = (now - model.last_tried[obs, action]).astype(jnp.float32)
            reward = reward + hyper.bonus * jnp.sqrt(untried)
        return Transition(
            obs=obs.astype(next_obs.dtype),
            action=action.astype(self.actions.dtype),
            reward=reward,
            terminated=model.terminated[obs, action],
            next_obs=next_obs,
            next_action_mask=model.allowed[next_obs],
        )

    def _q_learning(
        self,
        learner: rl.LearnerState,
        step: rl.Trajectory | Transition,
        key: jax.Array,
        hyper: DynaQHyperparams,
    ) -> tuple[rl.LearnerState, rl.Metrics]:
        """Q(s, a) += learning_rate * (r + discount * (1 - d) * max_a' Q(s', a') - Q(s, a))."""
        next_q = rl.mask_q(self.values(learner, step.next_obs), step.next_action_mask)
        next_value = jnp.where(step.terminated, 0.0, jnp.max(next_q, axis=-1))
        target = step.reward + hyper.discount * next_value
        return self.move(learner, step.obs, step.action, target, key, hyper)
