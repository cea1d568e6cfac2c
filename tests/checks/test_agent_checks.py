"""`check_agent` passes what is sound, and finds each defect by the check meant for it."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.checks.broken_agents import BROKEN, Broken
from tests.checks.sound_agent import ENV, ActorCritic, Masked, linear
from triglot import check_agent, make_agent, make_env
from triglot.checks.agent.check import CHECKS
from triglot.core.agent import Trajectory

BACKENDS = ("haiku", "linen", "nnx", "equinox")
SMALL = {
    "num_envs": 2,
    "rollout_length": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "hidden_sizes": (8,),
}


def assert_passes(agent: object, env: object) -> None:
    report = check_agent(agent, env)
    assert report.passed, str(report)
    assert len(report.results) == len(CHECKS.checks)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken.check}: {broken.defect}")
def test_one_check_finds_the_defect_and_no_other(broken: Broken) -> None:
    report = check_agent(broken.agent, broken.env)
    assert report.failed == (broken.check,), str(report)
    (result,) = [r for r in report.results if r.outcome == "failed"]
    assert broken.words in result.found
    assert result.found and result.fix and result.why
    assert "\n" not in result.found and "Traceback" not in str(report)


def test_every_check_has_a_broken_agent() -> None:
    assert {broken.check for broken in BROKEN} == {check.name for check in CHECKS.checks}


@pytest.mark.parametrize("env", [ENV, Masked()], ids=["plain", "masked"])
def test_the_agent_that_the_broken_ones_part_from_is_sound(env: Any) -> None:
    assert_passes(ActorCritic(), env)


@pytest.mark.parametrize(
    "backend",
    [
        "linen",
        *(pytest.param(name, marks=pytest.mark.slow) for name in BACKENDS if name != "linen"),
    ],
)
def test_ppo_passes(backend: str) -> None:
    assert_passes(make_agent("ppo", ENV, backend=backend, config=SMALL), ENV)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gymnax:CartPole-v1", "gridworld:8x8", "probe:truncating"])
def test_ppo_passes_elsewhere(name: str) -> None:
    env = make_env(name)
    assert_passes(make_agent("ppo", env, config=SMALL), env)


@pytest.mark.slow
def test_ppo_passes_at_its_defaults() -> None:
    assert_passes(make_agent("ppo", ENV), ENV)


class Reinforce(ActorCritic):
    """It learns from whole episodes only, drops those cut by a time limit, and bootstraps never."""

    def loss(self, params: Any, state: Any, trajectory: Trajectory, key: jax.Array) -> jax.Array:
        def back(after: Any, step: Any) -> Any:
            total, whole = after
            reward, terminated, truncated = step
            ended = terminated | truncated
            total = reward + state["hyper"].discount * jnp.where(ended, 0.0, total)
            whole = jnp.where(ended, terminated, whole)
            return (total, whole), (total, whole)

        steps = (trajectory.reward, trajectory.terminated, trajectory.truncated)
        start = (jnp.zeros(self.num_envs), jnp.zeros(self.num_envs, bool))
        _, (total, whole) = jax.lax.scan(back, start, steps, reverse=True)
        logits, _ = linear(params, trajectory.obs)
        log_prob = jax.nn.log_softmax(logits)
        chosen = jnp.take_along_axis(log_prob, trajectory.action[..., None], axis=-1)[..., 0]
        return -jnp.mean(jnp.where(whole, total * chosen, 0.0))


@dataclass(frozen=True)
class Replaying(ActorCritic):
    """It keeps transitions, and learns once there are enough of them."""

    capacity: int = 64

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        state = super().init(key, num_envs, hyper)
        floats = {name: jnp.zeros(self.capacity) for name in ("obs", "next_obs", "reward", "going")}
        replay = {**floats, "action": jnp.zeros(self.capacity, jnp.int32)}
        return {**state, "replay": replay}

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        shown = {
            "obs": trajectory.obs[..., 0],
            "next_obs": trajectory.next_obs[..., 0],
            "reward": trajectory.reward,
            "going": 1.0 - trajectory.terminated.astype(jnp.float32),
            "action": trajectory.action,
        }
        size = trajectory.reward.size
        replay = jax.tree.map(
            lambda old, new: jnp.concatenate([old[size:], new.ravel()]), state["replay"], shown
        )
        full = (state["count"] + 1) * size >= self.capacity
        drawn = jax.random.randint(key, (8,), 0, self.capacity)
        batch = jax.tree.map(lambda leaf: leaf[drawn], replay)
        again = replace(
            trajectory,
            obs=batch["obs"][:, None],
            next_obs=batch["next_obs"][:, None],
            reward=batch["reward"],
            terminated=batch["going"] == 0.0,
            action=batch["action"],
        )
        after, metrics = super().update(state, again, key)
        params = jax.tree.map(
            lambda new, old: jnp.where(full, new, old), after["params"], state["params"]
        )
        return {**after, "params": params, "replay": replay}, metrics


@pytest.mark.parametrize(
    "agent",
    [
        pytest.param(Reinforce(), id="whole episodes only"),
        pytest.param(Replaying(), id="a replay", marks=pytest.mark.slow),
        pytest.param(Replaying(capacity=256), id="a replay that fills late"),
    ],
)
def test_other_kinds_of_agent_pass(agent: Any) -> None:
    assert_passes(agent, ENV)


class ForgetfulReplay(Replaying):
    """Its replay stores the flag, and its targets make nothing of it."""

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        return next_value


def test_what_is_only_stored_is_not_taken_for_learned() -> None:
    assert check_agent(ForgetfulReplay(), ENV).failed == ("time limits",)
