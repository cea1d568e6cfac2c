"""The host's loop: the same training as the compiled one, where an environment can be both."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.core.host import host_environments
from triglot import make_agent, make_env
from triglot.cli import main as cli
from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.host.player import film
from triglot.core.host.trainer import HostFailure, HostProgram, HostTrainer
from triglot.core.host.vector import HostRunner
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.loop.trainer import init_seeds
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs.adapting.host import GymnasiumVector

PPO = {
    "num_envs": 2,
    "rollout_length": 8,
    "num_epochs": 1,
    "num_minibatches": 2,
    "hidden_sizes": (8,),
}
DQN = {
    "num_envs": 2,
    "rollout_length": 2,
    "batch_size": 4,
    "buffer_size": 32,
    "learning_starts": 8,
    "hidden_sizes": (8,),
}
LIMIT = 6
COUNTER = "gymnasium:triglot/Counter-v0"


def lifted() -> Any:
    return make_env("gymnasium:triglot/Lifted-v0", max_episode_steps=LIMIT)


@pytest.mark.covering(4)
@pytest.mark.parametrize(
    "algorithm, backend, config",
    [
        ("ppo", "table", {**PPO, "hidden_sizes": (64, 64)}),
        ("dqn", "linen", DQN),
        ("q_learning", "table", {"num_envs": 2, "rollout_length": 8}),
        # Each rollout begins with new episodes, here in the middle of one.
        ("openai_es", "linen", {"num_envs": 2, "rollout_length": 8, "hidden_sizes": (8,)}),
    ],
)
def test_an_environment_trains_the_same_on_the_host_as_compiled(
    algorithm: str, backend: str, config: dict[str, Any]
) -> None:
    compiled = TimeLimit(make_env("gridworld:3x3"), LIMIT)
    results = []
    for env in (compiled, lifted()):
        agent = make_agent(algorithm, env, backend=backend, config=config)
        results.append(
            triglot.train(agent, env, key=jax.random.key(3), total_steps=160, num_seeds=2)
        )
    on_device, on_host = results
    assert on_host.num_steps == on_device.num_steps
    assert on_host.metrics.keys() == on_device.metrics.keys()
    assert np.nansum(on_host.metrics["num_episodes"]) > 0
    for name, values in on_device.metrics.items():
        np.testing.assert_allclose(
            on_host.metrics[name], values, rtol=1e-4, atol=1e-5, err_msg=name
        )
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5),
        *(jax.tree.map(as_numbers, r.runner_state.agent) for r in results),
    )


def as_numbers(leaf: jax.Array) -> np.ndarray:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def collected(trainer: HostTrainer, monkeypatch: pytest.MonkeyPatch, updates: int) -> Trajectory:
    """Train, and give what the agent learned from, `[S, updates * T, N, ...]`."""
    program, seen = HostProgram(trainer), []
    state = init_seeds(trainer, jax.random.split(jax.random.key(0), 1), trainer.agent.hyper)
    program.compile(state)
    learn = program._learn

    def keeping(agent_state: Any, trajectory: Trajectory, key: Any) -> Any:
        seen.append(jax.tree.map(np.asarray, trajectory))
        assert learn is not None
        return learn(agent_state, trajectory, key)

    monkeypatch.setattr(program, "_learn", keeping)
    program(state, updates)
    return jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *seen)


@pytest.mark.slow
def test_what_the_agent_learns_from(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = make_env(COUNTER, length=5, max_episode_steps=3)
    agent = make_agent("ppo", env, config=PPO)
    seen = collected(HostTrainer(agent, env), monkeypatch, 2)
    assert seen.reward.shape == (1, 16, 2) and seen.obs.shape == (1, 16, 2, 2)
    count = np.arange(16) % 3
    np.testing.assert_array_equal(seen.obs[0, :, 0, 0], count)
    np.testing.assert_array_equal(seen.next_obs[0, :, 0, 0], count + 1)
    np.testing.assert_array_equal(seen.reward[0, :, 0], count + 1)
    np.testing.assert_array_equal(seen.first[0, :, 0], count == 0)
    np.testing.assert_array_equal(seen.truncated[0, :, 0], count == 2)
    assert not seen.terminated.any()
    assert set(seen.action.ravel().tolist()) == {0, 1}
    assert seen.extras["logits"].shape == (1, 16, 2, 2)


@pytest.fixture(scope="module")
def counter() -> Any:
    return make_env(COUNTER)


@pytest.fixture(scope="module")
def ppo(counter: Any) -> Any:
    return make_agent("ppo", counter, config=PPO)


@pytest.mark.slow
def test_episodes_are_counted_across_rollouts(counter: Any, ppo: Any) -> None:
    told: list[int] = []
    result = triglot.train(
        ppo,
        counter,
        key=jax.random.key(0),
        total_steps=48,
        every_update=lambda done, metrics: told.append(done),
    )
    assert told == [1, 2, 3]
    np.testing.assert_array_equal(result.metrics["num_episodes"], [[4, 4, 4]])
    np.testing.assert_array_equal(result.metrics["episode_return"], [[10, 10, 10]])
    np.testing.assert_array_equal(result.metrics["episode_length"], [[4, 4, 4]])


def test_whole_episodes_are_played(counter: Any, ppo: Any) -> None:
    state = jax.jit(ppo.init, static_argnums=1)(jax.random.key(0), 2)
    episodes = triglot.evaluate(ppo, counter, state, jax.random.key(1), num_episodes=3)
    np.testing.assert_array_equal(episodes.returns, [10, 10, 10])
    np.testing.assert_array_equal(episodes.lengths, [4, 4, 4])
    assert episodes.finished.all()
    cut = triglot.evaluate(ppo, counter, state, jax.random.key(1), num_episodes=3, max_steps=2)
    np.testing.assert_array_equal(cut.lengths, [2, 2, 2])
    assert not cut.finished.any()


@pytest.mark.parametrize(
    "what, says",
    [
        ("reward", "returned reward nan in step 19 of environment 0"),
        ("obs", r"returned next_obs \[inf, 0.0\] in step 19 of environment 0"),
        ("shape", r"failed in step 19: environment 0 returned an observation of shape \(3,\)"),
        ("raise", "failed in step 19: RuntimeError: the simulator is gone"),
    ],
)
def test_a_failure_names_the_step_and_loses_nothing(ppo: Any, what: str, says: str) -> None:
    env = make_env("gymnasium:triglot/Failing-v0", what=what, when=19)
    with pytest.raises(HostFailure, match=f"gymnasium:triglot/Failing-v0 {says}") as failure:
        triglot.train(ppo, env, key=jax.random.key(0), total_steps=80)
    kept = failure.value.runner_state
    np.testing.assert_array_equal(kept.num_updates, [2])
    assert failure.value.metrics["loss"].shape == (1, 2)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(kept.agent.learner.variables))


@pytest.mark.parametrize("what", ["reward", "obs"])
def test_values_that_are_not_finite_end_an_evaluation(ppo: Any, what: str) -> None:
    env = make_env("gymnasium:triglot/Failing-v0", what=what, when=3)
    state = jax.jit(ppo.init, static_argnums=1)(jax.random.key(0), 2)
    with pytest.raises(TriglotError, match=f"returned .*{what} .* in step 3 of environment 0"):
        triglot.evaluate(ppo, env, state, jax.random.key(1), num_episodes=2)


@pytest.mark.slow
def test_a_failure_on_the_way_leaves_what_was_learned_online() -> None:
    env = make_env("gymnasium:triglot/Failing-v0", what="reward", when=5)
    agent = make_agent("ppo", env, config={**PPO, "rollout_length": 1, "num_minibatches": 1})
    object.__setattr__(agent, "online", True)
    with pytest.raises(HostFailure, match="step 5") as failure:
        triglot.train(agent, env, key=jax.random.key(0), total_steps=80)
    np.testing.assert_array_equal(failure.value.runner_state.num_updates, [4])


def test_a_film_shows_the_end_and_no_new_start(ppo: Any) -> None:
    env: Any = make_env("gymnasium:triglot/Renderable-v0")
    state = jax.jit(ppo.init, static_argnums=1)(jax.random.key(0), 2)
    frames, playing = [], film(ppo, env, state, jax.random.key(1))
    with pytest.raises(StopIteration) as stop:
        while True:
            frames.append(next(playing))
    outcome = stop.value.value
    assert [frame[0, 0, 0] for frame in frames] == [0, 20, 40, 60, 80]
    assert (int(outcome.length), float(outcome.episode_return)) == (4, 10.0)
    assert bool(outcome.finished) and env.milliseconds == 100
    cut = list(film(ppo, env, state, jax.random.key(1), max_steps=2))
    assert len(cut) == 3


def test_what_gives_no_pictures_is_refused_in_words(counter: Any, ppo: Any) -> None:
    state = jax.jit(ppo.init, static_argnums=1)(jax.random.key(0), 2)
    with pytest.raises(TriglotError, match=r"triglot/Counter-v0 .*render"):
        next(film(ppo, counter, state, jax.random.key(1)))


@pytest.mark.slow
@pytest.mark.parametrize("when", [0, 2, 1000])
def test_environments_are_closed_whatever_happens(
    when: int, ppo: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    monkeypatch.setattr(GymnasiumVector, "close", lambda vector: closed.append(vector))
    env = make_env("gymnasium:triglot/Failing-v0", what="raise", when=when, length=8)
    for run in (
        lambda: triglot.train(ppo, env, key=jax.random.key(0), total_steps=32),
        lambda: triglot.evaluate(
            ppo, env, jax.jit(ppo.init, static_argnums=1)(jax.random.key(0), 2), jax.random.key(1)
        ),
    ):
        closed.clear()
        with nullcontext() if when == 1000 else pytest.raises(TriglotError):
            run()
        assert len(closed) == 1


def test_one_that_cannot_be_closed_does_not_keep_others_open(
    counter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    def close(vector: Any) -> None:
        closed.append(vector)
        raise OSError("cannot close")

    runner = HostRunner(counter, 1, [0, 1, 2])
    monkeypatch.setattr(GymnasiumVector, "close", close)
    with pytest.raises(OSError, match="cannot close"):
        runner.close()
    assert len(closed) == 3


def test_it_cannot_be_compiled(counter: Any) -> None:
    with pytest.raises(TriglotError, match="stepped in Python"):
        VectorEnvironment(counter, 2)


def words(env: str, out: Path, cache: Path) -> list[str]:
    small = [w for n, v in PPO.items() if n != "hidden_sizes" for w in (f"--{n}", str(v))]
    small = [word.replace("_", "-") for word in small]
    rest = ["--hidden-sizes", "8", "--out", str(out), "--compilation-cache", str(cache)]
    return ["train", "ppo", env, "--total-steps", "80", "--eval-episodes", "3", *small, *rest]


@pytest.mark.slow
def test_the_command_trains_and_goes_on(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    assert cli.main([*words(COUNTER, out, cache), "--num-seeds", "2"]) == 0
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [line["env_steps"] for line in lines] == [16, 32, 48, 64, 80]
    assert lines[0]["episode_return"] == [10.0, 10.0]
    summary = json.loads((out / "summary.json").read_text())
    assert summary["evaluation"]["return_per_seed"] == [10.0, 10.0]
    assert "begin new episodes" not in capsys.readouterr().out
    assert cli.main(["resume", str(out)]) == 0
    assert "begin new episodes" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_saves_before_a_failure(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_environments.Failing.__init__, "__defaults__", ("obs", 19, 1000))
    out = tmp_path / "failing"
    assert cli.main(words("gymnasium:triglot/Failing-v0", out, cache)) == 2
    printed = capsys.readouterr().err
    assert "step 19" in printed and f"`triglot resume {out}` continues" in printed
    assert Checkpoints(out / "checkpoints").numbers()[-1] == 2
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
def test_ppo_learns_cartpole() -> None:
    env = make_env("gymnasium:CartPole-v1")
    hyper = {"learning_rate": "linear(1e-3, 0)"}
    agent = make_agent("ppo", env, config={"num_envs": 8}, hyper=hyper)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=150_000)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    episodes = triglot.evaluate(agent, env, state, jax.random.key(1), num_episodes=32)
    assert episodes.returns.mean() > 400
