"""`check_agent` finds what leaks from one episode into another, and accuses no correct agent."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.checks import n_step_sarsa as sarsa
from triglot import make_agent, make_env, rl
from triglot.algorithms.monte_carlo import MonteCarlo
from triglot.algorithms.q_learning import QLearning
from triglot.algorithms.r2d2 import R2D2, _n_step_returns
from triglot.checks.agent.episodes import CHECKS
from triglot.checks.agent.feeder import LearningCase
from triglot.checks.report import Result
from triglot.cli.fitting import small_agent
from triglot.core.families.policy_gradient import PolicyGradient
from triglot.core.rl import losses
from triglot.core.rl.replay import n_step_return

BOX, PENDULUM, GRID = "probe:two-step", "gymnax:Pendulum-v1", "gridworld:4x4"
LATER, EARLIER, LAST = (check.name for check in CHECKS.checks)


def results(agent: Any, env: Any) -> tuple[Result, ...]:
    return CHECKS.run(LearningCase(agent, env, 0))


def failed(agent: Any, env: Any) -> str:
    """Return the name of the first check that failed, and what it found."""
    found = [f"{one.name}: {one.found}" for one in results(agent, env) if one.outcome == "failed"]
    return found[0] if found else ""


def assert_compared(agent: Any, env: Any) -> None:
    for result in results(agent, env):
        assert result.outcome == "passed", str(result)
        assert "compared" in result.found


@pytest.mark.parametrize(
    "algorithm",
    [
        sarsa.NStepSarsa,
        pytest.param(sarsa.AverageSubtracted, marks=pytest.mark.slow),
        pytest.param(sarsa.Stacking, marks=pytest.mark.slow),
        pytest.param(sarsa.SarsaLambda, marks=pytest.mark.slow),
    ],
)
def test_correct_agents_pass(algorithm: Any) -> None:
    env = make_env(GRID if algorithm is sarsa.SarsaLambda else BOX)
    assert_compared(make_agent(algorithm, env), env)


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    ("algorithm", "check"),
    [
        (sarsa.EndsTerminated, LATER),
        (sarsa.EndsTruncated, LATER),
        (sarsa.CutEarly, LAST),
        pytest.param(sarsa.NextRow, LATER, marks=pytest.mark.slow),
        pytest.param(sarsa.NeighbouringEnd, LATER, marks=pytest.mark.slow),
        pytest.param(sarsa.AgeGoesOn, EARLIER, marks=pytest.mark.slow),
        pytest.param(sarsa.LastRewardLost, LAST, marks=pytest.mark.slow),
        pytest.param(sarsa.RewardIgnored, LAST, marks=pytest.mark.slow),
        pytest.param(sarsa.TracesGoOn, LATER, marks=pytest.mark.slow),
        pytest.param(sarsa.StackJoined, EARLIER, marks=pytest.mark.slow),
    ],
)
def test_agents_that_join_episodes_are_found(algorithm: Any, check: str) -> None:
    env = make_env(GRID if algorithm is sarsa.TracesGoOn else BOX)
    assert failed(make_agent(algorithm, env), env).startswith(check)


@dataclass(frozen=True)
class Planted:
    """A mistake in a shipped algorithm.

    Attributes:
      defect: what is wrong.
      check: the first check that fails.
      algorithm, env, config: the agent.
      patches: wrong functions by the path of the right ones.
    """

    defect: str
    check: str
    algorithm: str
    patches: dict[Any, Callable[..., Any]]
    env: str = BOX
    config: dict[str, Any] = field(default_factory=dict)


def _nowhere(flag: jax.Array) -> jax.Array:
    return jnp.zeros_like(flag)


discounted_sums = rl.discounted_sums
lambda_returns, vtrace, gae = losses.lambda_returns, losses.vtrace, losses.gae


def returns_over_truncations(reward: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
    return lambda_returns(reward, terminated, _nowhere(truncated), *rest)


def returns_shifted(reward: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
    late = (jnp.roll(flag, 1, axis=0) for flag in (terminated, truncated))
    return lambda_returns(reward, *late, *rest)


def vtrace_over_truncations(reward: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
    return vtrace(reward, terminated, _nowhere(truncated), *rest)


def gae_without_truncated(
    reward: Any, terminated: Any, truncated: Any, value: Any, next_value: Any, *rest: Any
) -> Any:
    # The deltas of truncated steps are 0: such a step pays what it is worth, and ends.
    paid = jnp.where(truncated, value, reward)
    return gae(paid, terminated | truncated, truncated, value, next_value, *rest)


def gae_without_bootstrap(reward: Any, terminated: Any, truncated: Any, *rest: Any) -> Any:
    return gae(reward, terminated | truncated, truncated, *rest)


def next_rows(value_of: Any, value: Any, successors: Any, terminated: Any, truncated: Any) -> Any:
    return losses.successor_values(value_of, value, successors, terminated, _nowhere(truncated))


def n_step_over_truncations(reward: Any, terminated: Any, truncated: Any, discount: Any) -> Any:
    return n_step_return(reward, terminated, _nowhere(truncated), discount)


def n_step_over_ends(reward: Any, terminated: Any, truncated: Any, discount: Any) -> Any:
    total, factor, last = n_step_return(reward, _nowhere(terminated), truncated, discount)
    return total, jnp.where(terminated[0], 0.0, factor), last


def n_step_without_last(reward: Any, terminated: Any, truncated: Any, discount: Any) -> Any:
    paid = jnp.where(terminated | truncated, 0.0, reward)
    return n_step_return(paid, terminated, truncated, discount)


unroll_r2d2, evaluate = R2D2._unroll, PolicyGradient.evaluate
mc_learn = MonteCarlo.learn


def unroll_joined(self: Any, variables: Any, steps: Any, **options: Any) -> Any:
    return unroll_r2d2(self, variables, replace(steps, first=_nowhere(steps.first)), **options)


def evaluate_joined(self: Any, variables: Any, batch: Any, key: Any) -> Any:
    return evaluate(self, variables, replace(batch, first=_nowhere(batch.first)), key)


def r2d2_returns_joined(steps: Any, next_value: Any, hyper: Any, n_step: int) -> Any:
    # Without `first` too: an episode that starts after a step tells of its end.
    joined = replace(steps, truncated=_nowhere(steps.truncated), first=_nowhere(steps.first))
    return _n_step_returns(joined, next_value, hyper, n_step)


def carry_kept(mask: Any, initial: Any, carry: Any) -> Any:
    return carry


def sums_joined(start: Any, reward: Any, *, first: Any, discount: Any) -> Any:
    return discounted_sums(start, reward, first=_nowhere(first), discount=discount)


def traces_kept(self: Any, state: Any, step: Any, key: Any) -> Any:
    so_far = self.extend(state, step)
    after, metrics = mc_learn(self, state, step, key)
    kept = {name: getattr(so_far, name) for name in ("trace", "returns", "visits")}
    return replace(after, **kept), metrics


def next_action_over_truncations(self: Any, state: Any, step: Any, next_action: Any) -> Any:
    return rl.at_action(self.values(state.learner, step.next_obs), next_action)


def no_end_before(steps: Any) -> Any:
    never = _nowhere(steps.terminated)
    return never, never


IN_GAE = "triglot.core.rl.losses.lambda_returns"
PLANTED = [
    Planted("GAE goes on over truncated ends", LATER, "ppo", {IN_GAE: returns_over_truncations}),
    Planted("GAE cuts one step late", LATER, "ppo", {IN_GAE: returns_shifted}),
    Planted(
        "GAE leaves truncated steps out",
        LAST,
        "ppo",
        {"triglot.core.families.policy_gradient.gae": gae_without_truncated},
    ),
    Planted(
        "no bootstrap at truncated steps",
        LAST,
        "a2c",
        {"triglot.core.families.policy_gradient.gae": gae_without_bootstrap},
    ),
    Planted(
        "bootstrap from the next episode's first observation",
        LATER,
        "ppo",
        {"triglot.core.families.policy_gradient.successor_values": next_rows},
    ),
    Planted("V-trace goes on", LATER, "impala", {"triglot.rl.vtrace": vtrace_over_truncations}),
    Planted(
        "lambda-returns go on",
        LATER,
        "pqn",
        {"triglot.rl.lambda_returns": returns_over_truncations},
    ),
    Planted(
        "n-step replay reads over truncated ends",
        LATER,
        "dqn",
        {"triglot.core.rl.replay.n_step_return": n_step_over_truncations},
        config={"n_step": 3},
    ),
    Planted(
        "n-step replay reads over terminated ends",
        LATER,
        "rainbow",
        {"triglot.core.rl.replay.n_step_return": n_step_over_ends},
    ),
    Planted(
        "n-step replay leaves the last reward out",
        LAST,
        "c51",
        {"triglot.core.rl.replay.n_step_return": n_step_without_last},
        config={"n_step": 2},
    ),
    Planted(
        "sequences learned without a reset", EARLIER, "r2d2", {(R2D2, "_unroll"): unroll_joined}
    ),
    Planted(
        "n-step returns of sequences go on",
        LATER,
        "r2d2",
        {"triglot.algorithms.r2d2._n_step_returns": r2d2_returns_joined},
    ),
    Planted(
        "a carry that is never reset",
        EARLIER,
        "r2d2",
        {"triglot.core.networks.unroll.where_rows": carry_kept},
    ),
    Planted(
        "recurrent PPO learned without a reset",
        EARLIER,
        "ppo",
        {(PolicyGradient, "evaluate"): evaluate_joined},
        config={"cell": "gru"},
    ),
    Planted(
        "Monte Carlo returns go on",
        LATER,
        "monte_carlo",
        {(MonteCarlo, "learn"): traces_kept},
        GRID,
    ),
    Planted(
        "SARSA reads the next episode's action",
        LATER,
        "q_learning",
        {(QLearning, "_next_value"): next_action_over_truncations},
        GRID,
        {"method": "sarsa"},
    ),
    Planted(
        "the running return that scales rewards goes on",
        LATER,
        "ppo",
        {"triglot.core.rl.normalize.discounted_sums": sums_joined},
        PENDULUM,
    ),
    Planted(
        "MuZero unrolls its model over ends",
        LATER,
        "muzero",
        {"triglot.algorithms.muzero._before": no_end_before},
    ),
    Planted("AlphaZero's returns go on", LATER, "alphazero", {IN_GAE: returns_over_truncations}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted",
    [
        pytest.param(one, id=one.defect, marks=() if number in (0, 7) else pytest.mark.slow)
        for number, one in enumerate(PLANTED)
    ],
)
def test_mistakes_planted_in_shipped_algorithms_are_found(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make_env(planted.env)
    agent = small_agent(planted.algorithm, env, planted.config)
    for where, wrong in planted.patches.items():
        if isinstance(where, str):
            monkeypatch.setattr(where, wrong)
        else:
            owner, name = where
            monkeypatch.setattr(owner, name, wrong)
    assert failed(agent, env).startswith(planted.check)
