"""EnvPool's environments as the host loop steps them."""

import importlib.util
import sys
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import triglot
from triglot import Box, Dict, Discrete
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.host.player import film
from triglot.core.host_environment import HostEnvironment, HostVector
from triglot.core.specs import zeros
from triglot.envs.envpool import make

needs_envpool = pytest.mark.skipif(
    importlib.util.find_spec("envpool") is None, reason="envpool is not installed: triglot[envpool]"
)
ANGLE = 0.2095  # beyond which CartPole terminates


def left(num_envs: int) -> np.ndarray:
    """Push every cart to the left, until its pole falls."""
    return np.zeros(num_envs, np.int32)


def steps_to_end(limit: int) -> tuple[int, bool, bool]:
    """Play one CartPole; give its length, and whether it was terminated and truncated."""
    vector = make("CartPole-v1", max_episode_steps=limit).open(1)
    vector.reset(seed=3)
    for time in range(1, 600):
        step = vector.step(left(1))
        if step.terminated[0] or step.truncated[0]:
            return time, bool(step.terminated[0]), bool(step.truncated[0])
    raise AssertionError("the pole did not fall")


@needs_envpool
@pytest.mark.parametrize(
    "name, obs_spec, action_spec",
    [
        ("HalfCheetah-v5", Box((17,)), Box((6,), "float32", -1.0, 1.0)),
        ("Pong-v5", Box((84, 84, 4), "uint8", 0, 255), Discrete(6)),
        ("FrozenLake-v1", Discrete(16), Discrete(4)),
        (
            "CheetahRun-v1",
            Dict({"position": Box((8,)), "velocity": Box((9,))}),
            Box((6,), "float32", -1.0, 1.0),
        ),
    ],
)
def test_an_environment_hashes_and_declares_what_it_returns(
    name: str, obs_spec: Any, action_spec: Any
) -> None:
    env = triglot.make_env(f"envpool:{name}")
    assert isinstance(env, HostEnvironment) and env.name == f"envpool:{name}"
    assert (env.obs_spec, env.action_spec) == (obs_spec, action_spec)
    assert hash(env) == hash(make(name)) and env != make(name, max_episode_steps=7)
    obs = env.open(2).reset(seed=0)
    found = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), obs)
    assert found == jax.tree.map(lambda leaf: ((2, *leaf.shape), leaf.dtype), zeros(obs_spec))


@needs_envpool
def test_each_step_follows_from_the_last_across_resets() -> None:
    vector = make("CartPole-v1", max_episode_steps=12).open(3)
    alone: Any = gymnasium.make("CartPole-v1").unwrapped
    alone.reset(seed=0)
    obs, rng = vector.reset(seed=3), np.random.default_rng(0)
    lengths, ends = np.zeros(3, int), {"terminated": 0, "truncated": 0}
    for time in range(90):
        action = rng.integers(2, size=3) if time > 30 else left(3)
        step = vector.step(action.astype(np.int32))
        lengths += 1
        for index in range(3):  # a step between two episodes would fit no dynamics
            alone.state, alone.steps_beyond_terminated = obs[index].astype(np.float64), None
            expected, reward, terminated, *_ = alone.step(int(action[index]))
            np.testing.assert_allclose(step.next_obs[index], expected, atol=1e-5)
            assert step.reward[index] == reward == 1.0
            assert step.terminated[index] == terminated == (abs(expected[2]) > ANGLE)
        np.testing.assert_array_equal(step.truncated, (lengths == 12) & ~step.terminated)
        done = step.terminated | step.truncated
        np.testing.assert_array_equal(step.obs[~done], step.next_obs[~done])
        assert (np.abs(step.obs[done]) <= 0.05).all()
        ends = {name: count + getattr(step, name).sum() for name, count in ends.items()}
        lengths[done], obs = 0, step.obs
    assert min(ends.values()) > 2


@needs_envpool
def test_a_termination_at_the_limit_is_no_truncation() -> None:
    length, terminated, _ = steps_to_end(500)
    assert terminated and 5 < length < 50
    assert steps_to_end(length) == (length, True, False)
    assert steps_to_end(length - 1) == (length - 1, False, True)


def seen_from(seed: int) -> np.ndarray:
    vector: HostVector = make("Hopper-v5").open(2)
    starts = vector.reset(seed)
    steps = [vector.step(np.ones((2, 3), np.float32)).obs for _ in range(60)]  # with ends
    return np.stack([starts, *steps])


@needs_envpool
def test_a_seed_repeats_all_episodes() -> None:
    first = seen_from(5)
    np.testing.assert_array_equal(first, seen_from(5))
    assert (first[0] != seen_from(6)[0]).any()
    assert (first[:, 0] != first[:, 1]).any()  # two environments


@needs_envpool
def test_stacked_frames_are_channels_and_move_by_one() -> None:
    vector = make("Pong-v5").open(2)
    before = vector.reset(seed=0)
    for _ in range(25):
        step = vector.step(np.array([2, 3], np.int32))
        np.testing.assert_array_equal(step.obs[..., :3], before[..., 1:])
        before = step.obs
    assert (before[..., 3] != before[..., 2]).any() and before[0].flags.c_contiguous


@needs_envpool
def test_ppo_trains() -> None:
    env = triglot.make_env("envpool:HalfCheetah-v5,max_episode_steps=5")
    config = {"num_envs": 2, "rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
    agent = triglot.make_agent("ppo", env, config={**config, "hidden_sizes": (4,)})
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=32)
    np.testing.assert_array_equal(result.metrics["num_episodes"], [[2, 4]])
    np.testing.assert_array_equal(result.metrics["episode_length"], [[5, 5]])
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    with pytest.raises(TriglotError, match="HalfCheetah-v5 cannot render"):
        next(film(agent, make("HalfCheetah-v5"), state, jax.random.key(0)))


@needs_envpool
def test_a_film_shows_the_end_and_no_new_start() -> None:
    vector = make("CartPole-v1", max_episode_steps=3).open_filmed()
    vector.reset(seed=0)
    steps = [vector.step(left(1)) for _ in range(3)]
    assert steps[-1].truncated.all() and (steps[-1].obs == steps[-1].next_obs).all()
    assert vector.frame().shape == (400, 600, 3) and vector.frame().dtype == np.uint8


@needs_envpool
@pytest.mark.parametrize(
    "name, options, says",
    [
        ("HalfCheeta-v5", {}, "did you mean 'HalfCheetah-v5' or .* lists all 1,"),
        ("pong", {}, "did you mean 'Pong-v5'?"),
        ("Snake-v1", {}, "envpool:Snake-v1 is not supported: EnvPool's jumanji environments"),
        ("Pong-v5", {"frame_skp": 2}, "unknown option .* did you mean 'frame_skip'?"),
        ("Pong-v5", {"seed": 2}, "unknown option 'seed' of envpool:Pong-v5"),
        ("Pong-v5", {"frame_skip": "all"}, "frame_skip of envpool:Pong-v5 must be an integer"),
        ("Pong-v5", {"max_episode_steps": 0}, "max_episode_steps .* must be at least 1, got 0"),
    ],
)
def test_an_invalid_name_or_option_is_explained(name: str, options: dict, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        triglot.make_env(f"envpool:{name}", **options)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(MissingExtra, match=r"pip install 'triglot\[envpool\]'"):
        triglot.make_env("envpool:Pong-v5")
