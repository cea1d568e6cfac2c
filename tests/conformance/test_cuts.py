"""An episode that is cut from outside is learned as a truncated one, by every algorithm.

A host run that is resumed, and agents that explore by parameters, start new episodes although the
steps before have no end (`core.rl.cuts`). Here each algorithm learns from rollouts with such a cut,
and once more with the same steps of which the last before the cut are truncated: what it has
learned must be the same. Where it keeps something across rollouts, joining the two episodes instead
must give something else, or the test would show nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import triglot
from benchmarks.cases import CASES, REPLAY, SEQUENCES
from tests.wander import NUM_PLACES, Wander
from triglot.core.agent import Trajectory
from triglot.core.host.trainer import HostTrainer
from triglot.core.host_environment import HostStep
from triglot.core.loop.rollout import rollout
from triglot.core.loop.self_play import in_training
from triglot.core.loop.state import first_state
from triglot.core.loop.trainer import init_seeds
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.options import option_fields
from triglot.core.types import by_path, is_key
from triglot.runs.registry.algorithms import ALGORITHMS, EXTENSIONS, find_algorithm


class Variant(NamedTuple):
    """One algorithm with options.

    Attributes:
      keeps: it keeps across rollouts what a cut changes.
      quick: it is tried in CI; `pytest -m slow` tries all.
    """

    algorithm: str
    kind: str
    config: Mapping[str, Any] = {}
    keeps: bool = False
    quick: bool = False
    hyper: Mapping[str, Any] = {}

    @property
    def id(self) -> str:
        options = (f"{name}={value}" for name, value in self.config.items())
        return "-".join((self.algorithm, self.kind, *options))


def variants() -> list[Variant]:
    """List every algorithm, with the options by which it keeps something across rollouts."""
    found = []
    for name in ALGORITHMS:
        config = {one.name for one in option_fields(find_algorithm(name).Config)}
        discrete = Variant(name, "floats")
        scaled = Variant(name, "box", {"scale_rewards": True}, keeps=True, quick=name == "ppo")
        match CASES[name].family:
            case "tabular" if name == "q_learning":
                methods = ("q_learning", "sarsa", "expected_sarsa")
                found += [
                    Variant(name, "table", {"method": one}, one == "sarsa", one == "sarsa")
                    for one in methods
                ]
            case "tabular" if name == "monte_carlo":
                found += [
                    Variant(name, "table", {"visits": visits, "constant_step_size": constant},
                            keeps=True, quick=visits == "first")
                    for visits in ("first", "every") for constant in (True, False)
                ]  # fmt: skip
            case "tabular":
                found.append(Variant(name, "table"))
            case "policy gradient":
                found += [scaled, discrete, replace_config(discrete, cell="gru")]
                if name == "reinforce":
                    given: dict[str, Any] = {"config": {"discount_steps": True}}
                    given["hyper"] = {"discount": 0.5}  # so that a wrong age matters
                    found.append(discrete._replace(**given, keeps=True, quick=True))
            case "action values of rollouts":
                found += [discrete, replace_config(discrete, cell="gru")]
            case "recurrent action values":
                sequences = {**SEQUENCES, "rollout_length": 2}
                found.append(discrete._replace(config=sequences, keeps=True, quick=True))
            case "search" if name == "muzero":
                found.append(discrete._replace(keeps=True, quick=True))
            case "search" | "evolution":
                found.append(discrete)
            case "action values" | "actor and critic":
                kind = "box" if CASES[name].family == "actor and critic" else "floats"
                several = {"n_step": 3} if "n_step" in config else {}
                several |= {"prioritized": True} if "prioritized" in config else {}
                found.append(Variant(name, kind, several, "n_step" in config, name == "dqn"))
                if name in ("sac", "redq", "mpo"):
                    found.append(found[-1]._replace(kind="floats", quick=False))
    for extension in EXTENSIONS:
        found.append(Variant(f"dqn+{extension}", "floats", {"n_step": 3}, keeps=True))
        found.append(Variant(f"ppo+{extension}", "box", {"scale_rewards": True}, keeps=True))
    found.append(Variant("ppo+counts", "floats", {"counts_episodic": True}, quick=True))
    found.append(Variant(CUSTOM, "floats", {"sequence_length": 6}, keeps=True, quick=True))
    return found


# A custom algorithm, built from `rl.SequenceReplay`, which says nothing of cuts.
CUSTOM = "examples.awr:AWR"
REPLAY_OF_CUSTOM = {name: value for name, value in REPLAY.items() if name != "hidden_sizes"}


def replace_config(variant: Variant, **config: Any) -> Variant:
    return variant._replace(config={**variant.config, **config})


def make(variant: Variant) -> tuple[Any, Wander]:
    env, case = Wander(variant.kind), CASES.get(variant.algorithm.partition("+")[0], CASES["dqn"])
    given = REPLAY_OF_CUSTOM if variant.algorithm == CUSTOM else case.config
    config, hyper = {**given, **variant.config}, {**case.hyper, **variant.hyper}
    if case.family == "tabular":
        config |= {"num_envs": 2, "rollout_length": 1}
    backend = "table" if case.family == "tabular" else "jax"
    agent = triglot.make_agent(variant.algorithm, env, backend=backend, config=config, hyper=hyper)
    return agent, env


@dataclass
class Learning:
    """An agent and its compiled update, which all variants of one history share."""

    agent: Any
    env: VectorEnvironment
    key: jax.Array = field(default_factory=lambda: jax.random.key(3))

    def __post_init__(self) -> None:
        self.update = jax.jit(self.agent.update)
        self.num_before, self.num_after = (3, 12) if self.agent.online else (4, 4)

    def collect(self) -> list[Trajectory]:
        """Act for some rollouts, begin new episodes, and go on."""
        agent, env = self.agent, in_training(self.agent, self.env)
        now = first_state(agent, env.num_envs, env.reset, self.key, None)
        collect = jax.jit(lambda now, key: rollout(agent, env, now, key)[:2])
        found = []
        for number in range(self.num_before + self.num_after):
            act_key, learn_key, cut_key = jax.random.split(jax.random.fold_in(self.key, number), 3)
            if number == self.num_before:
                now = replace(now, env=env.restart(now.env, cut_key))
            now, trajectory = collect(now, act_key)
            found.append(trajectory)
            now = replace(now, agent=self.update(now.agent, trajectory, learn_key)[0])
        return found

    def learn(self, trajectories: list[Trajectory]) -> dict[str, np.ndarray]:
        """Learn from rollouts, always with the same keys; give all arrays of the agent's state."""
        state = first_state(self.agent, self.env.num_envs, lambda key: (), self.key, None).agent
        for number, trajectory in enumerate(trajectories):
            key = jax.random.split(jax.random.fold_in(self.key, number), 3)[1]
            state, _ = self.update(state, trajectory, key)
        return arrays_of(state)

    def truncated(self, given: list[Trajectory]) -> list[Trajectory]:
        """Truncate the last steps before the cut, where they have no end."""
        last = given[self.num_before - 1]
        rows = last.truncated.at[-1].set(last.truncated[-1] | ~last.terminated[-1])
        return self._with(given, self.num_before - 1, truncated=rows)

    def joined(self, given: list[Trajectory]) -> list[Trajectory]:
        """Hide that the step after the cut starts an episode."""
        before, after = given[self.num_before - 1], given[self.num_before]
        ended = before.terminated[-1] | before.truncated[-1]
        return self._with(given, self.num_before, first=after.first.at[0].set(ended))

    @staticmethod
    def _with(given: list[Trajectory], index: int, **changes: Any) -> list[Trajectory]:
        return [*given[:index], replace(given[index], **changes), *given[index + 1 :]]


def arrays_of(state: Any) -> dict[str, np.ndarray]:
    return {
        path: np.asarray(jax.random.key_data(leaf) if is_key(leaf) else leaf)
        for path, leaf in by_path(state).items()
    }


def differences(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Give the largest difference of each array, relative to the larger of its size and 1."""
    assert one.keys() == other.keys()
    return {
        path: float(np.max(np.abs(wide(array) - wide(other[path])) / size(array), initial=0.0))
        for path, array in one.items()
    }


def wide(array: np.ndarray) -> np.ndarray:
    return np.nan_to_num(array.astype(np.float64), posinf=1e30, neginf=-1e30)


def size(array: np.ndarray) -> np.ndarray:
    return np.maximum(np.abs(wide(array)), 1.0)


@pytest.mark.covering(53)
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(one, id=one.id, marks=() if one.quick else pytest.mark.slow)
        for one in variants()
    ],
)
def test_a_cut_is_learned_as_a_truncation(variant: Variant) -> None:
    agent, env = make(variant)
    learning = Learning(agent, VectorEnvironment(env, agent.num_envs))
    cut = learning.collect()
    last, start = cut[learning.num_before - 1], cut[learning.num_before]
    assert not (last.terminated | last.truncated)[-1].all() and start.first[0].all()
    found, real = learning.learn(cut), learning.learn(learning.truncated(cut))
    wrong = {path: size for path, size in differences(found, real).items() if size > 1e-5}
    assert not wrong
    if variant.keeps:
        joined = differences(found, learning.learn(learning.joined(cut)))
        assert max(value for path, value in joined.items() if "learner" in path) > 1e-4


class World:
    """Environments of Python that go on with their time wherever a program opens them.

    What they show depends on the time and on whether an episode starts, so that a run that is
    resumed after `cut_at` steps sees what one sees whose episodes are truncated there.
    """

    def __init__(self, like: Wander, num_envs: int, cut_at: int | None) -> None:
        draw, shape = np.random.default_rng(0), (80, num_envs)
        self.obs_spec, self.action_spec, self.name = like.obs_spec, like.action_spec, "test:world"
        self.rewards = draw.normal(size=shape).astype(np.float32)
        self.shown, self.starts = (
            draw.integers(NUM_PLACES, size=shape).astype(np.int32)
            if like.kind == "table"
            else draw.uniform(size=(*shape, 3)).astype(np.float32)
            for _ in range(2)
        )
        self.cut_at, self.time, self.none = cut_at, 0, np.zeros(num_envs, bool)

    def open(self, num_envs: int) -> "World":
        assert num_envs == len(self.none)
        return self

    def reset(self, seed: int) -> np.ndarray:
        return self.starts[self.time]

    def step(self, action: np.ndarray) -> HostStep:
        self.time += 1
        cut, shown = self.none | (self.time == self.cut_at), self.shown[self.time]
        obs = self.starts[self.time] if cut.any() else shown
        return HostStep(self.rewards[self.time], self.none, cut, shown, obs)

    def close(self) -> None:
        """Keep the time."""


ON_HOST = [one for one in variants() if one.algorithm not in ("alphazero", "openai_es")]
QUICK_ON_HOST = ("dqn", "q_learning")


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(one, id=one.id, marks=() if quick else pytest.mark.slow)
        for one in ON_HOST
        for quick in [one.quick and one.algorithm in QUICK_ON_HOST]
    ],
)
def test_a_resumed_host_run_learns_what_a_truncation_teaches(variant: Variant) -> None:
    # Monte Carlo learns of a cut one step later: its first action must not depend on the values.
    hyper = {"epsilon": 1.0} if variant.algorithm == "monte_carlo" else {}
    agent, env = make(variant._replace(hyper={**variant.hyper, **hyper}))
    before, after = (3, 9) if agent.online else (4, 4)

    def train(*parts: int, cut_at: int | None = None) -> dict[str, np.ndarray]:
        world: Any = World(env, agent.num_envs, cut_at)
        trainer = HostTrainer(agent, world)
        state = init_seeds(trainer, jax.random.split(jax.random.key(0), 1))
        for count in parts:  # a program each, as `triglot resume` has
            program = trainer.program()
            state, _ = program(state, count)
            program.close()
        return arrays_of(state.agent)

    resumed = train(before, after)
    real = train(before + after, cut_at=before * agent.rollout_length)
    assert not {path: size for path, size in differences(resumed, real).items() if size > 1e-5}


def test_every_algorithm_is_tried() -> None:
    assert {one.algorithm.partition("+")[0] for one in variants()} == {*ALGORITHMS, CUSTOM}
