"""Gymnasium's environments as the host loop steps them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
import pytest

import triglot
from tests.core.host import host_environments
from triglot.core.errors import TriglotError
from triglot.core.host_environment import HostEnvironment, check_shapes
from triglot.core.specs import Box, Dict, Discrete, MultiDiscrete
from triglot.envs.gymnasium import make

ANGLE = 0.2095  # beyond which CartPole terminates


def test_an_environment_hashes_and_tells_its_specs() -> None:
    env = triglot.make_env("gymnasium:triglot/Counter-v0", length=3)
    assert isinstance(env, HostEnvironment) and env.name == "gymnasium:triglot/Counter-v0"
    assert env.obs_spec == Box((2,), "float32", 0.0, 1000.0)
    assert env.action_spec == Discrete(2)
    assert hash(env) == hash(make("triglot/Counter-v0", length=3))
    assert env != make("triglot/Counter-v0")


def test_an_end_keeps_the_true_successor_and_tells_how_it_came() -> None:
    vector = make("triglot/Counter-v0", length=3, max_episode_steps=5).open(2)
    starts: Any = vector.reset(seed=7)
    assert starts.dtype == np.float32
    np.testing.assert_array_equal(starts[:, 0], [0, 0])
    assert starts[0, 1] != starts[1, 1]  # each has a seed of its own
    seen = [vector.step(np.zeros(2, np.int32)) for _ in range(4)]
    assert [step.terminated.tolist() for step in seen] == [[n == 2] * 2 for n in range(4)]
    assert not any(step.truncated.any() for step in seen)
    assert [step.reward[0] for step in seen] == [1, 2, 3, 1]
    assert [step.next_obs[0, 0] for step in seen] == [1, 2, 3, 1]
    assert [step.obs[0, 0] for step in seen] == [1, 2, 0, 1]
    assert seen[2].obs[0, 1] == seen[3].next_obs[0, 1] != starts[0, 1]  # another episode
    assert seen[0].reward.dtype == np.float32


def test_a_time_limit_truncates() -> None:
    vector = make("triglot/Counter-v0", max_episode_steps=2).open(1)
    vector.reset(seed=0)
    first, second = (vector.step(np.zeros(1, np.int32)) for _ in range(2))
    assert not first.truncated.any()
    assert second.truncated.all() and not second.terminated.any()
    assert (second.next_obs[0, 0], second.obs[0, 0]) == (2, 0)


def test_an_end_at_the_limit_is_an_end() -> None:
    vector = make("triglot/Counter-v0", length=2, max_episode_steps=2).open(1)
    vector.reset(seed=0)
    step = [vector.step(np.zeros(1, np.int32)) for _ in range(2)][-1]
    assert step.terminated.all() and not step.truncated.any()


def test_dictionaries_come_out_and_boxes_go_in() -> None:
    env = make("triglot/Named-v0", length=2)
    assert env.obs_spec == Dict({"count": Discrete(1000), "image": Box((2, 2), "uint8", 0, 255)})
    vector = env.open(2)
    start: Any = vector.reset(seed=0)
    assert start["count"].dtype == np.int32
    action = np.array([[-0.31, 0.5], [0.0, 0.71]], np.float32)
    step = [vector.step(action) for _ in range(2)][-1]
    np.testing.assert_array_equal(step.next_obs["count"], [2, 2])
    np.testing.assert_array_equal(step.next_obs["image"], np.full((2, 2, 2), 2, np.uint8))
    np.testing.assert_array_equal(step.obs["count"], [0, 0])
    vector.step(action)
    first, second = (env.unwrapped for env in vector._vector.envs)  # pyright: ignore
    assert isinstance(first, host_environments.Named)
    np.testing.assert_allclose(first.actions[-1], [-0.3, 0.5])
    np.testing.assert_allclose(second.actions[-1], [0.0, 0.7])
    assert first.actions[-1].dtype == np.float64


def test_tuples_become_dictionaries_without_texts() -> None:
    env = make("triglot/Hands-v0", length=2, action_scale=2.0)
    hand = Dict({"1": Discrete(5), "2": Box((1,), "float32", 0.0, 9.0)})
    assert env.obs_spec == Dict({"hand": hand, "signs": MultiDiscrete((2, 3))})
    assert env.action_spec == Box((2,), "float32", -2.0, 2.0)
    vector = env.open(2)
    start: Any = vector.reset(seed=0)
    np.testing.assert_array_equal(start["hand"]["1"], [0, 0])  # it starts at 2 in Gymnasium
    check_shapes(env.obs_spec, start, 2)
    action = np.array([[5.0, 0.0], [0.0, -1.0]], np.float32)
    step = [vector.step(action) for _ in range(2)][-1]
    assert step.terminated.all()
    for obs, count in ((step.next_obs, 2), (step.obs, 0)):
        check_shapes(env.obs_spec, obs, 2)
        np.testing.assert_array_equal(obs["hand"]["1"], [count] * 2)
        np.testing.assert_array_equal(obs["hand"]["2"], [[count]] * 2)
        np.testing.assert_array_equal(obs["signs"], [[1, count]] * 2)
    first: Any = vector._vector.envs[0].unwrapped  # pyright: ignore
    vector.step(action)
    np.testing.assert_array_equal(first.actions[-1], [2.0, 0.0])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "dqn"])
def test_blackjack_trains(algorithm: str) -> None:
    env = triglot.make_env("gymnasium:Blackjack-v1")
    assert env.obs_spec == Dict({"0": Discrete(32), "1": Discrete(11), "2": Discrete(2)})
    agent = triglot.make_agent(algorithm, env, config={"num_envs": 2})
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=64)
    assert (np.abs(result.metrics["episode_return"]) <= 1).any()


def test_actions_without_bounds_need_a_scale() -> None:
    env = triglot.make_env("gymnasium:triglot/Hands-v0")
    for algorithm in ("ppo", "sac"):
        with pytest.raises(TriglotError, match=r"within\(1.0\) .* or .* action_scale=1.0"):
            triglot.make_agent(algorithm, env)


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_cartpole_moves_and_ends_as_it_does_by_itself(mode: str) -> None:
    env = make("CartPole-v1", max_episode_steps=8, vectorization_mode=mode)
    vector = env.open(3)
    alone: Any = gymnasium.make("CartPole-v1").unwrapped
    alone.reset(seed=0)
    obs: Any = vector.reset(seed=3)
    ends = {"terminated": 0, "truncated": 0}
    rng = np.random.default_rng(0)
    for time in range(60):
        action = rng.integers(2, size=3) if time % 2 else np.array([1, 1, 0])
        step = vector.step(action.astype(np.int32))
        for index in range(3):
            alone.state, alone.steps_beyond_terminated = obs[index].astype(np.float64), None
            expected, reward, terminated, *_ = alone.step(int(action[index]))
            np.testing.assert_allclose(step.next_obs[index], expected, atol=1e-5)
            assert step.reward[index] == reward == 1.0
            assert step.terminated[index] == terminated == (abs(expected[2]) > ANGLE)
        done = step.terminated | step.truncated
        assert not (step.terminated & step.truncated).any()
        np.testing.assert_array_equal(step.obs[~done], step.next_obs[~done])
        assert (np.abs(step.obs[done]) <= 0.05).all()
        ends = {name: count + getattr(step, name).sum() for name, count in ends.items()}
        obs = step.obs
    assert len(set(obs[:, 0])) == 3
    assert ends["truncated"] > 2


@pytest.mark.parametrize("num_envs, kind", [(3, "SyncVectorEnv"), (4, "CartPoleVectorEnv")])
def test_many_cartpoles_are_stepped_by_their_own_vector(num_envs: int, kind: str) -> None:
    vector: Any = make("CartPole-v1").open(num_envs)._vector
    assert type(vector.unwrapped).__name__ == kind


@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_a_given_vectorization_is_taken(mode: str) -> None:
    kinds = {"vector_entry_point": "CartPoleVectorEnv", "sync": "SyncVectorEnv"}
    vector: Any = make("CartPole-v1", vectorization_mode=mode).open(3)._vector
    assert type(vector.unwrapped).__name__ == kinds[mode]


def test_frozen_lake_has_no_vector_that_serves() -> None:
    with pytest.raises(TriglotError, match="choose vectorization_mode='sync'"):
        make("FrozenLake-v1", vectorization_mode="vector_entry_point").open(2)


@pytest.mark.parametrize(
    "name, options, says",
    [
        ("CartPol-v1", {}, "did you mean 'CartPole-v1'"),
        ("CartPole-v9", {}, "unknown environment 'CartPole-v9' of gymnasium"),
        ("no_such_module:Foo-v0", {}, "no_such_module"),
        ("triglot/Hands-v0", {"unread": "graph"}, "in 'hand', in '1', the Gymnasium space Graph"),
        ("triglot/Hands-v0", {"unread": "texts"}, "has no numbers, and a text is left out"),
        (
            "CartPole-v1",
            {"action_scale": 1.0},
            "action_scale is for a Box of actions, got Discrete",
        ),
        ("Pendulum-v1", {"action_scale": 1.0}, "has bounds already: leave out the scale"),
        ("triglot/Hands-v0", {"action_scale": 0}, "Hands-v0: a scale must be finite and above 0"),
        ("triglot/Hands-v0", {"action_scale": "big"}, "action_scale of .* must be a number"),
        ("CartPole-v1", {"lenght": 3}, "cannot be built with {'lenght': 3}"),
        ("CartPole-v1", {"vectorization_mode": "snyc"}, "did you mean 'sync'"),
        (
            "CartPole-v1",
            {"vectorization_mode": "vector_entry_point", "max_episode_steps": -1},
            "choose vectorization_mode='sync'",
        ),
        ("CartPole-v1", {"render_mode": ["human"]}, "can be hashed"),
    ],
)
def test_what_cannot_be_made_is_told_in_a_sentence(name: str, options: dict, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        triglot.make_env(f"gymnasium:{name}", **options)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def make_none(*_: object, **__: object) -> None:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr(gymnasium, "make", make_none)
    with pytest.raises(TriglotError, match="LunarLander-v3 needs a further package: Box2D"):
        make("LunarLander-v3")


def test_a_package_that_is_missing_is_named_where_a_render_mode_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load_none(_: str) -> None:
        raise gymnasium.error.DependencyNotInstalled("Box2D is not installed")

    monkeypatch.setattr("gymnasium.envs.registration.load_env_creator", load_none)
    with pytest.raises(TriglotError, match="LunarLander-v3 needs a further package: Box2D"):
        make("LunarLander-v3", render_mode="rgb_array")


def test_a_first_observation_of_another_shape_than_the_space_is_named() -> None:
    class Wide(gymnasium.Env[Any, Any]):
        observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
            return np.zeros(3, np.float32), {}

    env: Any = triglot.make_env(Wide)
    with pytest.raises(TriglotError, match=r"environment 0 .* shape \(3,\), .* declares \(2,\)"):
        env.open(2).reset(seed=0)


def test_an_observation_that_changes_its_shape_is_told() -> None:
    vector = make("triglot/Failing-v0", what="shape").open(2)
    vector.reset(seed=0)
    with pytest.raises(TriglotError, match=r"environment 0 .* shape \(3,\), .* declares \(2,\)"):
        for _ in range(3):
            vector.step(np.zeros(2, np.int32))


def test_a_last_observation_that_changes_its_shape_is_told() -> None:
    vector = make("triglot/Failing-v0", what="shape", when=2, length=2).open(1)
    vector.reset(seed=0)
    vector.step(np.zeros(1, np.int32))
    with pytest.raises(TriglotError, match=r"shape \(3,\)"):
        vector.step(np.zeros(1, np.int32))


def test_an_id_without_a_version_or_with_a_module_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "registers_mine.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v3', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.warns(UserWarning, match="latest versioned"):
        assert make("Acrobot").env_id == "Acrobot-v1"
    env = make("registers_mine:Mine-v3")
    vector = env.open(2)
    start: Any = vector.reset(0)
    assert env.milliseconds == 20 and start.shape == (2, 4)
    vector.close()


class Vectors(gymnasium.vector.VectorEnv):
    """Episodes of three steps in environments that exist as a vector alone."""

    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012 (as in the base class)
    final = True

    def __init__(self, num_envs: int = 1, **options: Any) -> None:
        del options
        self.num_envs, self.time = num_envs, np.zeros(num_envs, int)
        self.single_observation_space = gymnasium.spaces.Box(-1, 10, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.time[:] = 0
        return self._obs(), {}

    def step(self, actions: Any) -> Any:
        self.time += 1
        done, last = self.time >= 3, self._obs()
        self.time[done] = 0
        info = {"final_obs": np.array([*last, None], object)[:-1]} if self.final else {}
        truncated = np.zeros(self.num_envs, bool)
        return self._obs(), np.ones(self.num_envs, np.float32), done, truncated, info

    def _obs(self) -> Any:
        return self.time[:, None].astype(np.float32)


class WithoutFinal(Vectors):
    final = False


class Late(Vectors):
    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012 (as in the base class)


@pytest.fixture
def registered() -> Iterator[None]:
    kinds = {"Alone-v0": Vectors, "WithoutFinal-v0": WithoutFinal, "Late-v0": Late}
    for name, kind in kinds.items():
        gymnasium.register(name, vector_entry_point=kind)
    yield
    for name in kinds:
        del gymnasium.registry[name]


@pytest.mark.usefixtures("registered")
def test_an_id_with_a_vector_entry_point_alone_is_stepped() -> None:
    vector = make("Alone-v0").open(2)
    vector.reset(0)
    steps = [vector.step(np.zeros(2, np.int32)) for _ in range(3)]
    assert steps[-1].terminated.all()
    np.testing.assert_array_equal(steps[-1].next_obs, [[3.0], [3.0]])
    np.testing.assert_array_equal(steps[-1].obs, [[0.0], [0.0]])
    with pytest.raises(TriglotError, match="vectorization_mode cannot be 'sync'"):
        make("Alone-v0", vectorization_mode="sync")
    with pytest.raises(TriglotError, match="cannot render"):
        make("Alone-v0").open_filmed()
    with pytest.raises(TriglotError, match="register an entry_point too"):
        make("Late-v0")


@pytest.mark.usefixtures("registered")
def test_a_vector_without_the_true_last_observation_is_explained() -> None:
    vector = make("WithoutFinal-v0").open(2)
    vector.reset(0)
    for _ in range(2):
        vector.step(np.zeros(2, np.int32))
    with pytest.raises(TriglotError, match=r"no info.'final_obs'.*true last observation"):
        vector.step(np.zeros(2, np.int32))
