"""`triglot new algorithm --like`: the copy of each shipped algorithm is the same program."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import pytest

import triglot
from triglot.cli import main as cli
from triglot.cli.fitting import SMALL, small_agent
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.types import by_path
from triglot.runs.registry.algorithms import ALGORITHMS, find_algorithm

TINY = "--total-steps 2048 --num-seeds 2 --eval-episodes 4 --no-compilation-cache --no-preset"


@pytest.fixture
def copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[str]:
    """Copy an algorithm to the current folder; return the copy as `module:class`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))  # to which commands add the current folder
    name = f"own_{request.param}"
    assert cli.main(["new", "algorithm", name, "--like", request.param]) == 0
    monkeypatch.chdir(name)
    yield f"{name}:{''.join(word.capitalize() for word in name.split('_'))}"
    sys.modules.pop(name, None)


def original(copy: str) -> str:
    return copy.partition(":")[0].removeprefix("own_")


def env_of_test(copy: str) -> Any:
    """Make the environment in which the test beside the copy checks it."""
    test = Path(f"test_{copy.partition(':')[0]}.py").read_text()
    (name,) = re.findall(r'make_env\("(.+)"\)', test)
    return triglot.make_env(name)


def program(algorithm: str, env: Any) -> str:
    """Trace the start and one update of a small agent."""
    agent = small_agent(algorithm, env, {})
    trainer = triglot.Trainer(agent, VectorEnvironment(env, agent.num_envs))
    text = str(jax.make_jaxpr(lambda key: trainer.update(trainer.init(key)))(jax.random.key(0)))
    return re.sub("0x[0-9a-f]+", "", text)


@pytest.mark.slow
@pytest.mark.parametrize("copy", ALGORITHMS, indirect=True)
def test_the_copy_is_the_same_program_under_another_name(copy: str) -> None:
    module, _, name = copy.partition(":")
    text = Path(f"{module}.py").read_text()
    old = ALGORITHMS[original(copy)].partition(":")[2]
    assert re.search(r"^from triglot import (nn, )?rl$", text, re.M)
    assert not re.search(r"^\s*from \.", text, re.M)
    assert re.search(rf"^class {name}\(", text, re.M)
    assert not re.search(rf"^class {old}", text, re.M)
    made = find_algorithm(copy)
    assert made.Config.__name__.startswith(name) and made.__module__ == module
    env = env_of_test(copy)
    assert program(copy, env) == program(original(copy), env)


JOINT_STATISTICS = pytest.mark.xfail(
    reason="CrossQ: its batch statistics count next_obs of terminated steps too, as in the paper",
    strict=True,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "copy",
    [pytest.param(n, marks=JOINT_STATISTICS if n == "crossq" else ()) for n in ALGORITHMS],
    indirect=True,
)
def test_the_copy_passes_its_check_and_trains_with_equal_bits(copy: str) -> None:
    env = env_of_test(copy)
    assert cli.main(["check", copy, "--env", env.name]) == 0
    states = {}
    config = vars(small_agent(copy, env, {}).config)
    numbers = {name: config[name] for name in SMALL if isinstance(config.get(name), int)}
    sizes = [f"--{name.replace('_', '-')}={number}" for name, number in numbers.items()]
    for algorithm in (original(copy), copy):
        command = ["train", algorithm, env.name, *TINY.split(), *sizes]
        assert cli.main([*command, "--out", f"runs/{len(states)}"]) == 0
        states[algorithm] = by_path(triglot.load_run(f"runs/{len(states)}").agent_states)
    first, second = states.values()
    assert first.keys() == second.keys()
    for path, leaf in first.items():
        assert leaf.tobytes() == second[path].tobytes(), path


def test_the_test_beside_the_copy_is_short_enough_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    assert cli.main(["new", "algorithm", "own_ppo", "--like", "ppo"]) == 0
    lines = Path("own_ppo/test_own_ppo.py").read_text().splitlines()
    assert max(map(len, lines)) <= 100
    assert "    agent = triglot.make_agent(OwnPpo, env, config=config)" in lines
    assert "triglot train own_ppo gymnax:CartPole-v1" in Path("own_ppo/README.md").read_text()
