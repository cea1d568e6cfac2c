"""`check_agent` passes correct agents, and reports each defect with one check."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import pytest

from tests.checks.broken_agents import BROKEN, Broken
from tests.checks.defects import cases, only_failure
from tests.checks.sound_agent import ENV, ActorCritic, Masked, linear
from triglot import check_agent, make_agent, make_env
from triglot.checks.agent.check import CHECKS
from triglot.core.agent import PolicyInput, PolicyOutput, Trajectory

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


@pytest.mark.covering(40)
@pytest.mark.parametrize("broken", cases(BROKEN))
def test_one_check_finds_the_defect_and_no_other(broken: Broken) -> None:
    result = only_failure(check_agent(broken.agent, broken.env), broken.check, *broken.also)
    assert broken.words in result.found


def test_every_check_has_a_broken_agent() -> None:
    found = {broken.check for broken in BROKEN} | {"acting"}  # tests/checks/planted_agents.py
    assert found == {check.name for check in CHECKS.checks}


@pytest.mark.covering(2)
@pytest.mark.parametrize("env", [ENV, Masked()], ids=["plain", "masked"])
def test_the_base_of_the_broken_agents_passes(env: Any) -> None:
    assert_passes(ActorCritic(), env)


# The quick tests check Q-learning (conformance/test_agents.py) and a DQN (test_extending.py).
@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
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
    """Learns from complete episodes only, without truncated ones, and never bootstraps."""

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
    """Learns from a replay buffer once it is full."""

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


@pytest.mark.slow
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
    """Stores the flag in its replay buffer, and does not use it in its targets."""

    def bootstrap(self, trajectory: Trajectory, next_value: jax.Array) -> jax.Array:
        return next_value


@dataclass(frozen=True)
class EvolutionStrategy(ActorCritic):
    """Perturbs its parameters once per update, acts greedily with them, and never bootstraps."""

    deviation: float = 0.1

    def init(self, key: Any, num_envs: int, hyper: Any = None) -> Any:
        mean_key, noise_key = jax.random.split(key)
        state = super().init(mean_key, num_envs, hyper)
        return {**state, "noise": self.draw(noise_key, state["params"])}

    def draw(self, key: jax.Array, params: Any) -> Any:
        leaves, treedef = jax.tree.flatten(params)
        keys = jax.random.split(key, len(leaves))
        drawn = [jax.random.normal(k, leaf.shape) for k, leaf in zip(keys, leaves, strict=True)]
        return treedef.unflatten(drawn)

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: Any, *, explore: bool
    ) -> PolicyOutput:
        params = state["params"]
        if explore:
            noise = state["noise"]
            params = jax.tree.map(lambda p, n: p + self.deviation * n, params, noise)
        logits, _ = linear(params, inputs.obs)
        action = jnp.argmax(logits, axis=-1).astype(jnp.int32)
        return PolicyOutput(action=action, carry=carry, extras={"logits": logits})

    def update(self, state: Any, trajectory: Trajectory, key: Any) -> Any:
        hyper = state["hyper"]
        score = hyper.learning_rate * hyper.discount * trajectory.reward.mean() / self.deviation
        params = jax.tree.map(lambda p, n: p + score * n, state["params"], state["noise"])
        noise = self.draw(key, params)
        state = {**state, "params": params, "noise": noise, "count": state["count"] + 1}
        return state, {"score": score}


class DeclaredEvolutionStrategy(EvolutionStrategy):
    """Declares how it explores and learns."""

    explores_by_parameters: ClassVar[bool] = True
    bootstraps: ClassVar[bool] = False


@pytest.mark.slow
def test_declared_exceptions_skip_their_checks() -> None:
    assert check_agent(EvolutionStrategy(), ENV).failed == ("exploration", "time limits")
    report = check_agent(DeclaredEvolutionStrategy(), ENV)
    assert report.passed, str(report)
    assert "skipped  exploration: the agent declares explores_by_parameters" in str(report)
    assert "skipped  time limits: the agent declares bootstraps = False" in str(report)


@pytest.mark.slow
def test_stored_data_does_not_count_as_learned() -> None:
    assert check_agent(ForgetfulReplay(), ENV).failed == ("time limits",)
