"""Monte Carlo control: tabular values from the returns of whole episodes.

Source: Sutton and Barto 2018, http://incompleteideas.net/book/the-book-2nd.html, section 5.4,
"On-policy first-visit MC control (for epsilon-soft policies)"; the constant step size is equation
6.1. Returns are summed forward in time, by eligibility traces (Singh and Sutton 1996,
https://doi.org/10.1007/BF00114726, theorems 1 and 2 with lambda = 1), so that an episode may have
any length and run over several rollouts, while nothing is learned before it ends.
Differences: the return of a truncated episode, whose rest is unknown, ends with the expected value
of its true last observation under the policy; a terminated one never bootstraps. With several
environments, episodes that end together are learned at once, as are the visits of one episode:
errors use the values from before, and changes of one entry add up. An episode that runs while
another one ends goes on with the new policy. An episode that is cut from outside, such as where a
run on the host is resumed, is known to be over when the next one starts: it is learned with those
that end in the next one's first step.
"""

from dataclasses import dataclass, replace
from typing import Literal

import jax
import jax.numpy as jnp

from .. import nn, rl

Visits = Literal["first", "every"]


@rl.pytree_dataclass
class MonteCarloHyperparams:
    """Hyperparameters of Monte Carlo control, which a sweep may vary under `vmap`.

    Attributes:
      learning_rate: step size towards a return, within [0, 1].
      discount: of future rewards, within [0, 1].
      epsilon: probability of an action drawn uniformly, within [0, 1].
    """

    learning_rate: rl.Number = rl.only_for("constant_step_size", rl.unit_interval(0.02))
    discount: rl.Number = rl.unit_interval(0.99)
    epsilon: rl.Number = rl.unit_interval(0.1)


@dataclass(frozen=True, kw_only=True)
class MonteCarloConfig(rl.TabularConfig):
    """Static configuration of Monte Carlo control.

    Attributes:
      visits: whether the return after the `first` visit of a state and action in an episode counts,
        or after `every` visit.
      constant_step_size: move values by the learning rate; otherwise they are averages of all
        returns so far.
    """

    visits: Visits = rl.one_of("first", "every")
    constant_step_size: bool = True


@rl.pytree_dataclass
class MonteCarloState(rl.AgentState):
    """Training state; `[S, A]` are the observations and actions.

    Attributes:
      trace: float32 `[N, S, A]`, in the unfinished episodes the sum over counted visits of the
        discount to the power of their age.
      returns: float32 `[N, S, A]`, the sum over these visits of the returns so far.
      visits: float32 `[N, S, A]`, their number.
      total_visits: float32 `[S, A]`, their number in all finished episodes.
      last_value: float32 `[N]`, the expected values of the newest observations, with which the
        returns end if the episodes are cut there.
    """

    trace: jax.Array
    returns: jax.Array
    visits: jax.Array
    total_visits: jax.Array
    last_value: jax.Array


@dataclass(frozen=True)
class MonteCarlo(rl.Tabular):
    """The agent; its network gives `q` `[B, num_actions]`.

    A lookup table makes the update the classic rule. Observations and actions are `Discrete`.
    """

    config: MonteCarloConfig = MonteCarloConfig()
    hyper: MonteCarloHyperparams = MonteCarloHyperparams()

    Config = MonteCarloConfig
    Hyperparams = MonteCarloHyperparams
    title = "Monte Carlo control"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.config.constant_step_size and self.optimizer is not rl.sgd:
            raise rl.TriglotError(
                "without constant_step_size, values are averages of returns, which optimizer sgd "
                "computes: leave out the optimizer, or set constant_step_size."
            )

    def init(
        self, key: jax.Array, num_envs: int, hyper: MonteCarloHyperparams | None = None
    ) -> MonteCarloState:
        pairs = self.num_states, self.actions.num_values
        zeros = jnp.zeros((num_envs, *pairs), jnp.float32)
        return MonteCarloState(
            **vars(super().init(key, num_envs, hyper)),
            trace=zeros,
            returns=jnp.copy(zeros),  # donated buffers must not alias
            visits=jnp.copy(zeros),
            total_visits=jnp.zeros(pairs, jnp.float32),
            last_value=jnp.zeros((num_envs,), jnp.float32),
        )

    def learn(
        self, state: MonteCarloState, step: rl.Trajectory, key: jax.Array
    ) -> tuple[MonteCarloState, rl.Metrics]:
        """Extend the episodes by a step; learn from those that end with it or were cut before."""
        # Where an episode starts, what is left of the one before had no end.
        cut = step.first[:, None, None]
        rest = state.returns + state.trace * state.last_value[:, None, None]
        left = [jnp.where(cut, of_env, 0.0) for of_env in (rest, state.visits)]
        state = self.extend(_kept(state, ~cut), step)
        ended = (step.terminated | step.truncated)[:, None, None]
        over = [jnp.where(ended, of_env, 0.0) for of_env in (state.returns, state.visits)]
        returns, visits = (jnp.sum(sum(both), axis=0) for both in zip(over, left, strict=True))
        total_visits = state.total_visits + visits
        weight, hyper = jnp.ones_like(visits), state.hyper
        if not self.config.constant_step_size:
            # Each of `n` returns of `N` so far moves the average by 1 / N of its error.
            weight = 1.0 / jnp.maximum(total_visits, 1.0)
            hyper = replace(hyper, learning_rate=jnp.ones(()))
        episodes = returns, visits, weight
        learner, metrics = self.learner.step(state.learner, self.loss, episodes, key, hyper)
        state = replace(_kept(state, ~ended), learner=learner, total_visits=total_visits)
        return state, {"error": metrics["error"]}

    def extend(self, state: MonteCarloState, step: rl.Trajectory) -> MonteCarloState:
        """Extend the unfinished episodes by one step.

        With e(s, a) the trace, after (s_t, a_t, r_{t+1}) for all s and a:
        e(s, a) += 1 at (s_t, a_t), for first visits unless visited before;
        G(s, a) += e(s, a) r_{t+1}; e(s, a) *= discount.
        """
        rows = jnp.arange(step.action.shape[0])
        here = jnp.zeros_like(state.visits).at[rows, step.obs, step.action].set(1.0)
        if self.config.visits == "first":
            here = jnp.where(state.visits > 0.0, 0.0, here)
        q = self.values(state.learner, step.next_obs)
        rest = rl.epsilon_greedy_value(q, state.hyper.epsilon, step.next_action_mask)
        reward = step.reward + jnp.where(step.truncated, state.hyper.discount * rest, 0.0)
        trace = state.trace + here
        return replace(
            state,
            trace=trace * state.hyper.discount,
            returns=state.returns + trace * reward[:, None, None],
            visits=state.visits + here,
            last_value=rest,
        )

    def loss(
        self,
        variables: nn.Variables,
        episodes: tuple[jax.Array, jax.Array, jax.Array],
        key: jax.Array,
    ) -> tuple[jax.Array, tuple[rl.Metrics, rl.PyTree]]:
        """Sum half the squared errors of the returns.

        L = sum_{s, a} w(s, a) sum_i 0.5 (G_i(s, a) - Q(s, a))^2, up to a constant, whose gradient
        step is Q(s, a) += learning_rate * w(s, a) * sum_i (G_i(s, a) - Q(s, a)).

        Args:
          variables: of the network.
          episodes: the sums of the returns `[S, A]`, their numbers, and the weights w.
          key: for the network's own randomness.
        """
        returns, visits, weight = episodes
        obs = jnp.arange(self.num_states, dtype=rl.zeros(self.obs_spec).dtype)
        heads, new_state = nn.apply_heads(self.network, variables, obs, key=key, train=True)
        mean_error = (returns - visits * heads["q"]) / jnp.maximum(visits, 1.0)
        loss = 0.5 * jnp.sum(weight * visits * mean_error**2)
        return loss, ({"error": jnp.max(jnp.abs(mean_error))}, new_state)


def _kept(state: MonteCarloState, goes_on: jax.Array) -> MonteCarloState:
    """Keep what is known of the episodes that go on, bool `[N, 1, 1]`, and forget the others."""
    trace, returns, visits = (
        jnp.where(goes_on, of_env, 0.0) for of_env in (state.trace, state.returns, state.visits)
    )
    last_value = jnp.where(goes_on[:, 0, 0], state.last_value, 0.0)
    return replace(state, trace=trace, returns=returns, visits=visits, last_value=last_value)
