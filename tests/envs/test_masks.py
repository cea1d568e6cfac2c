"""Action masks of environments stepped in Python: each form, across resets, in every agent."""

from dataclasses import dataclass
from typing import Any, ClassVar, cast

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import triglot
from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.host.player import film, play_episodes
from triglot.core.host.trainer import HostProgram, HostTrainer
from triglot.core.host.vector import HostRunner
from triglot.core.host_environment import HostStart, HostStep
from triglot.core.loop.frozen import num_masked
from triglot.core.loop.trainer import init_seeds
from triglot.core.specs import Box, Dict, Discrete, MultiDiscrete, Spec
from triglot.envs.gymnasium import make

NUM, LIMIT = 5, 3
NUMBER = spaces.Box(0, 100, (1,), np.float32)
MASK = spaces.Box(0, 1, (NUM,), np.int8)
OBSERVED: dict[str, Any] = {
    "info": NUMBER,
    "list": NUMBER,
    "method": NUMBER,
    "obs": spaces.Dict({"obs": NUMBER, "mask": spaces.MultiBinary(NUM)}),
    "observation": spaces.Dict({"observation": NUMBER, "action_mask": MASK}),
    "text": spaces.Dict({"agent_id": spaces.Text(9), "obs": NUMBER, "mask": MASK}),
    "parts": spaces.Dict({"speed": NUMBER, "goal": NUMBER, "action_mask": MASK}),
}
FORMS = {
    "info": "info", "list": "info", "method": "method", "obs": "obs:mask",
    "observation": "obs:action_mask", "text": "obs:mask", "parts": "obs:action_mask",
}  # fmt: skip


class Forced(gymnasium.Env):
    """Allow one action: number t after t steps, at first number 4; another raises.

    After the last step of an episode another action is allowed than after the reset.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012 (as in the base class)
    action_space: Any = spaces.Discrete(NUM)

    def __init__(self, form: str = "info", fault: str = "", render_mode: Any = None) -> None:
        self.form, self.fault, self.render_mode = form, fault, render_mode
        self.observation_space = OBSERVED[form]
        if form == "method":
            self.action_masks = self.allowed

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        return self.observe(), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if not self.allowed()[int(action)]:
            raise RuntimeError(f"{action} is forbidden")
        self.time += 1
        return self.observe(), 1.0, False, self.time == LIMIT, self.info()

    def allowed(self) -> np.ndarray:
        mask = np.zeros(NUM, np.int8)
        mask[self.time or 4] = 1
        return mask

    def observe(self) -> Any:
        number, mask = np.array([self.time], np.float32), self.allowed()
        match self.form:
            case "obs" | "text":
                more = {"agent_id": "me"} if self.form == "text" else {}
                return {"obs": number, "mask": mask, **more}
            case "observation":
                return {"observation": number, "action_mask": mask}
            case "parts":
                return {"speed": number, "goal": number, "action_mask": mask}
        return number

    def info(self) -> dict[str, Any]:
        if self.fault == "missing" and self.time == 2:
            return {}
        if self.fault == "late":
            return {"action_mask": self.allowed()} if self.time else {}
        if self.fault == "shape":
            return {"action_mask": np.ones((2, 3), np.int8)}
        if self.fault == "values":
            return {"action_mask": np.full(NUM, 0.5)}
        if self.fault == "none allowed" and self.time == 2:
            return {"action_mask": np.zeros(NUM, np.int8)}
        if self.form in ("info", "list"):
            mask = self.allowed()
            return {"action_mask": mask.tolist() if self.form == "list" else mask, "other": 1}
        return {}

    def render(self) -> Any:
        return np.full((4, 4, 3), self.time, np.uint8)


class ForcedVector(gymnasium.vector.VectorEnv):
    """Several `Forced` in one vector environment of its own, which stacks masks in `info`."""

    metadata: dict[str, Any] = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # noqa: RUF012 (as in the base class)

    def __init__(self, num_envs: int, **options: Any) -> None:
        self.num_envs, self.time = num_envs, np.zeros(num_envs, int)
        self.single_observation_space, self.single_action_space = NUMBER, Forced.action_space
        self.observation_space = gymnasium.vector.utils.batch_space(NUMBER, num_envs)
        self.action_space = gymnasium.vector.utils.batch_space(Forced.action_space, num_envs)

    def allowed(self) -> np.ndarray:
        return np.eye(NUM, dtype=np.int8)[np.where(self.time == 0, 4, self.time)]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict]:
        self.time[:] = 0
        return self.time[:, None].astype(np.float32), {"action_mask": self.allowed()}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict]:
        if not self.allowed()[np.arange(self.num_envs), actions].all():
            raise RuntimeError(f"{actions} are forbidden")
        self.time += 1
        done, info = self.time == LIMIT, {}
        if done.any():
            final = np.empty(self.num_envs, object)
            final[:] = list(self.time[:, None].astype(np.float32))
            info = {"final_obs": final, "final_info": {"action_mask": self.allowed()}}
            self.time[done] = 0
        info["action_mask"] = self.allowed()
        obs, reward = self.time[:, None].astype(np.float32), np.ones(self.num_envs)
        return obs, reward, np.zeros(self.num_envs, bool), done, info


FORCED = cast(Any, Forced)
gymnasium.register("triglot/Forced-v0", FORCED, max_episode_steps=50)
gymnasium.register("triglot/ForcedVector-v0", FORCED, vector_entry_point=ForcedVector)


class TwoDials(gymnasium.Env):
    """Allow value 1 of the first integer, and the values 0 and 2 of the second."""

    observation_space: Any = NUMBER
    action_space: Any = spaces.MultiDiscrete([2, 3])

    def __init__(self, nested: bool = False) -> None:
        self.nested = nested

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), self.info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        if action[0] != 1 or action[1] == 1:
            raise RuntimeError(f"{action} is forbidden")
        self.time += 1
        return np.zeros(1, np.float32), 1.0, self.time == LIMIT, False, self.info()

    def info(self) -> dict[str, Any]:
        parts = (np.array([0, 1], np.int8), np.array([1, 0, 1], np.int8))
        return {"action_mask": parts if self.nested else np.concatenate(parts)}


gymnasium.register("triglot/TwoDials-v0", cast(Any, TwoDials))
ONLY = np.eye(NUM, dtype=bool)
every_form = pytest.mark.parametrize("form", FORMS)


def first_part(obs: Any) -> np.ndarray:
    return np.asarray(obs["goal"] if isinstance(obs, dict) else obs)[:, 0]


@pytest.mark.parametrize(
    ("name", "options", "mode"),
    [
        *((("triglot/Forced-v0", {"form": form}, "sync")) for form in FORMS),
        *((("triglot/Forced-v0", {"form": form}, "async")) for form in ("list", "method", "obs")),
        ("triglot/ForcedVector-v0", {}, "vector_entry_point"),
    ],
)
def test_masks_are_of_the_true_successor_and_of_the_next_input(
    name: str, options: dict, mode: str
) -> None:
    vector = make(name, vectorization_mode=mode, **options).open(2)
    start = vector.reset(0)
    assert isinstance(start, HostStart)
    np.testing.assert_array_equal(start.action_mask, ONLY[[4, 4]])
    actions, steps = [4, 1, 2, 4], []
    for action in actions:
        steps.append(vector.step(np.full(2, action, np.int32)))
    vector.close()
    assert [step.truncated.tolist() for step in steps] == [[n == 2] * 2 for n in range(4)]
    for step, after, now in zip(steps, [1, 2, 3, 1], [1, 2, 4, 1], strict=True):
        np.testing.assert_array_equal(step.next_action_mask, ONLY[[after, after]])
        np.testing.assert_array_equal(step.action_mask, ONLY[[now, now]])
        assert step.next_action_mask.dtype == step.action_mask.dtype == bool
        assert first_part(step.next_obs).tolist() == [after, after]
        assert first_part(step.obs).tolist() == [now % 4, now % 4]


@every_form
def test_the_mask_is_found_and_is_no_part_of_the_observation(form: str) -> None:
    env = make("triglot/Forced-v0", form=form)
    assert env.mask_form == FORMS[form] and env.has_action_mask
    assert num_masked(env) == NUM
    number = Box((1,), "float32", 0.0, 100.0)
    assert env.obs_spec == (Dict({"speed": number, "goal": number}) if form == "parts" else number)
    assert hash(env) == hash(make("triglot/Forced-v0", form=form))


@pytest.mark.parametrize("form", ["info", "method"])
def test_masks_can_be_ignored(form: str) -> None:
    env = make("triglot/Forced-v0", form=form, use_action_mask=False)
    assert not env.has_action_mask and num_masked(env) is None
    vector = env.open(1)
    assert not isinstance(vector.reset(0), HostStart)
    assert vector.step(np.array([4])).action_mask is None
    kept = make("triglot/Forced-v0", form="observation", use_action_mask=False)
    assert kept.obs_spec.items[0][0] == "action_mask"  # pyright: ignore


CONFIGS: dict[str, dict[str, Any]] = {
    "ppo": {"num_envs": 2, "rollout_length": 6, "num_epochs": 1, "num_minibatches": 2},
    "dqn": {"num_envs": 2, "rollout_length": 2, "batch_size": 4, "buffer_size": 32},
    "sac": {"num_envs": 2, "rollout_length": 2, "batch_size": 4, "buffer_size": 32},
    "r2d2": {
        "num_envs": 2, "rollout_length": 4, "batch_size": 2, "buffer_size": 64, "burn_in_length": 0,
        "unroll_length": 4, "n_step": 1, "learning_starts": 16, "cell_size": 4,
    },
    "q_learning": {"num_envs": 2, "rollout_length": 4},
}  # fmt: skip


def small(algorithm: str) -> dict[str, Any]:
    config = dict(CONFIGS[algorithm])
    if algorithm in ("dqn", "sac"):
        config["learning_starts"] = 8
    return config if algorithm == "q_learning" else config | {"hidden_sizes": (4,)}


def trained(algorithm: str, env: Any, **more: Any) -> Any:
    backend: dict[str, Any] = {} if algorithm == "q_learning" else {"backend": "jax"}
    agent = triglot.make_agent(algorithm, env, config=small(algorithm), **backend)
    return triglot.train(agent, env, key=jax.random.key(0), total_steps=36, **more)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "form"),
    [("ppo", "info"), ("ppo", "observation"), ("dqn", "method"), ("sac", "obs"), ("r2d2", "parts")],
)
def test_an_agent_takes_allowed_actions_only(algorithm: str, form: str) -> None:
    env: Any = triglot.make_env("gymnasium:triglot/Forced-v0", form=form)
    result = trained(algorithm, env, num_seeds=2)  # a forbidden action raises
    returns = result.metrics["episode_return"]
    assert (returns[np.isfinite(returns)] == LIMIT).all() and np.isfinite(returns).any()


@pytest.mark.slow
def test_it_fails_without_masks() -> None:
    env: Any = triglot.make_env("gymnasium:triglot/Forced-v0", use_action_mask=False)
    with pytest.raises(TriglotError, match="is forbidden"):
        trained("ppo", env)


@pytest.mark.slow
@pytest.mark.parametrize("nested", [False, True])
def test_several_integers_have_one_mask_after_the_other(nested: bool) -> None:
    env: Any = triglot.make_env("gymnasium:triglot/TwoDials-v0", nested=nested)
    assert env.action_spec == MultiDiscrete((2, 3), env.action_spec.dtype)
    assert (trained("ppo", env).metrics["episode_return"] == LIMIT).all()


def test_taxis_mask_is_read() -> None:
    env: Any = triglot.make_env("gymnasium:Taxi-v4")
    runner = HostRunner(env, 2, [0])
    raw = gymnasium.make("Taxi-v4")
    raw.reset()
    state: Any = raw.unwrapped
    masks = [state.action_mask(int(obs)) for obs in runner.obs[0]]
    assert runner.action_mask is not None
    np.testing.assert_array_equal(runner.action_mask[0], np.array(masks, bool))
    assert np.isfinite(trained("q_learning", env).metrics["td_error"]).all()


@pytest.mark.slow
def test_the_agent_learns_from_the_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    env: Any = triglot.make_env("gymnasium:triglot/Forced-v0")
    agent = triglot.make_agent("ppo", env, backend="jax", config=small("ppo"))
    trainer = HostTrainer(agent, env)
    state = init_seeds(trainer, jax.random.split(jax.random.key(0), 2), None)
    program, seen = HostProgram(trainer), []
    program.compile(state)
    learn: Any = program._learn

    def keeping(agent_state: Any, trajectory: Trajectory, key: Any) -> Any:
        seen.append(jax.tree.map(np.asarray, trajectory))
        return learn(agent_state, trajectory, key)

    monkeypatch.setattr(program, "_learn", keeping)
    program(state, 2)
    for trajectory in seen:
        assert trajectory.action_mask.shape == (2, 6, 2, NUM)
        np.testing.assert_array_equal(trajectory.action[0, :, 0], [4, 1, 2] * 2)
        np.testing.assert_array_equal(trajectory.action_mask[0, :, 0], ONLY[[4, 1, 2] * 2])
        np.testing.assert_array_equal(trajectory.next_action_mask[0, :, 0], ONLY[[1, 2, 3] * 2])


@pytest.mark.slow
def test_evaluation_films_and_exported_policies_take_the_mask() -> None:
    env: Any = triglot.make_env("gymnasium:triglot/Forced-v0")
    agent = triglot.make_agent("ppo", env, backend="jax", config=small("ppo"))
    state, key = jax.jit(agent.init, static_argnums=1)(jax.random.key(0), 2), jax.random.key(1)
    for explore in (False, True):
        how = {"num_episodes": 3, "max_steps": 9, "explore": explore}
        played = play_episodes(agent, env, state, key, **how)  # pyright: ignore
        assert played.returns.tolist() == [LIMIT] * 3
    assert len(list(film(agent, env, state, key))) == LIMIT + 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"fault": "shape"}, r"action mask has the shape \(2, 3\); expected \(5,\)"),
        ({"fault": "values"}, "an entry of the action mask is 0.5"),
        ({"use_action_mask": "yes"}, "use_action_mask .* must be True or False"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_at_once(options: dict, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        make("triglot/Forced-v0", **options)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("missing", "step 2: the info of step has no action_mask"),
        ("late", "step 1: the info of step has an action_mask, and that of reset has none"),
        ("none allowed", "step 2: the action mask of environment 0 allows no action"),
    ],
)
def test_a_mask_that_comes_and_goes_ends_the_step(fault: str, says: str) -> None:
    runner = HostRunner(make("triglot/Forced-v0", fault=fault), 2, [0])
    with pytest.raises(TriglotError, match=says):
        for action in (4, 1, 2):
            runner.step(np.full((1, 2), action, np.int32))


def test_a_box_of_actions_has_no_mask() -> None:
    class Continuous(Forced):
        action_space = spaces.Box(-1, 1, (1,), np.float32)

    gymnasium.register("triglot/Continuous-v0", cast(Any, Continuous))
    with pytest.raises(TriglotError, match="only Discrete and MultiDiscrete actions have masks"):
        make("triglot/Continuous-v0")
    make("triglot/Continuous-v0", use_action_mask=False)


@dataclass(frozen=True)
class Custom:
    """An environment of the host's protocol that gives masks."""

    action_spec: Spec = Discrete(3)
    mask: Any = ((True, False, True),)
    has_action_mask: bool = True
    name = "custom"
    obs_spec: ClassVar[Spec] = Box((1,))

    def open(self, num_envs: int) -> "Custom":
        assert num_envs == 1
        return self

    def reset(self, seed: int) -> Any:
        del seed
        obs = np.zeros((1, 1), np.float32)
        return obs if self.mask is None else HostStart(obs, np.array(self.mask))

    def step(self, action: np.ndarray) -> HostStep:
        assert action[0] != 1
        obs, flag = np.zeros((1, 1), np.float32), np.zeros(1, bool)
        mask = None if self.mask is None else np.array(self.mask)
        return HostStep(np.ones(1, np.float32), flag, ~flag, obs, obs, mask, mask)

    def close(self) -> None:
        pass


@pytest.mark.slow
def test_a_custom_environment_declares_its_masks() -> None:
    env: Any = Custom()
    config = {**small("ppo"), "num_envs": 1}
    agent = triglot.make_agent("ppo", env, backend="jax", config=config)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=12)
    assert np.isfinite(result.metrics["episode_return"]).all()


@pytest.mark.parametrize(
    ("env", "says"),
    [
        (Custom(mask=None), "has_action_mask is True"),
        (Custom(has_action_mask=False), "has_action_mask is False"),
        (Custom(mask=((True, False),)), r"must have the shape \(1, 3\)"),
        (Custom(mask=((False, False, False),)), "allows no action"),
        (Custom(Box((2,))), "for Discrete and MultiDiscrete"),
    ],
)
def test_masks_that_are_not_as_declared_are_refused(env: Any, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        HostRunner(env, 1, [0])
