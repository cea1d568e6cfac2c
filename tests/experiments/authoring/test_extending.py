"""docs/extending.md: every file on it is a template, passes its check and trains."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest

import triglot
from triglot.experiments import cli
from triglot.experiments.authoring import new

PAGE = (Path(__file__).parents[3] / "docs" / "extending.md").read_text()
FILES = dict(re.findall(r"`([\w/]+\.py)`:\n\n```python\n(.*?)```", PAGE, re.DOTALL))
NETWORKS = [file for file in FILES if "/" in file]
MODULES = ("reinforce", "random_walk", "my_network")


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Stand in a folder with the page's files; of the networks, the one that is asked for."""
    for file, text in FILES.items():
        if "/" not in file or file == getattr(request, "param", NETWORKS[0]):
            (tmp_path / Path(file).name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


def train(command: str, out: Path) -> dict:
    """Train from the command line, and read the summary."""
    assert cli.main(["train", *command.split(), "--eval-episodes", "4", "--out", str(out)]) == 0
    return json.loads((out / "summary.json").read_text())


def test_the_page_holds_every_template() -> None:
    templates = {
        file.read_text() for file in new.TEMPLATES.glob("*.py") if file.name != "__init__.py"
    }
    assert set(FILES.values()) == templates
    assert PAGE.count("```python") == len(FILES) == 6
    for file, text in FILES.items():
        assert any(Path(file).stem == old for old, _ in new.NAMES.values()) and text


def test_the_agent_is_short() -> None:
    assert len(FILES["reinforce.py"].splitlines()) < 80


def test_the_environment_passes_and_trains(page: Path) -> None:
    assert cli.main(["check", "random_walk:RandomWalk"]) == 0
    command = "ppo random_walk:RandomWalk --num-epochs 1 --total-steps 128 --rollout-length 8"
    train(command, page / "out")


@pytest.mark.parametrize(
    "page",
    [pytest.param(n, marks=pytest.mark.slow if i % 2 else ()) for i, n in enumerate(NETWORKS)],
    indirect=True,
)
def test_each_network_passes_and_trains(page: Path) -> None:
    assert cli.main(["check", "my_network:my_network", "--env", "random_walk:RandomWalk"]) == 0
    command = "ppo random_walk:RandomWalk --network my_network:my_network --num-epochs 1"
    train(f"{command} --total-steps 128 --rollout-length 8", page / "out")


@pytest.mark.slow
def test_the_agent_passes(page: Path) -> None:
    assert cli.main(["check", "reinforce:Reinforce", "--env", "probe:truncating"]) == 0


def test_all_three_train_together(page: Path) -> None:
    parts = "reinforce:Reinforce random_walk:RandomWalk --network my_network:my_network"
    train(f"{parts} --total-steps 1024 --learning-rate 1e-3 --num-seeds 2", page / "out")


def returns(page: Path, env_name: str, total_steps: int, num_seeds: int) -> np.ndarray:
    """Train the page's agent and give its episodes' returns, `[S, updates]`."""
    env = triglot.make_env(env_name)
    agent = triglot.make_agent("reinforce:Reinforce", env)
    key = jax.random.key(0)
    result = triglot.train(agent, env, key=key, total_steps=total_steps, num_seeds=num_seeds)
    return result.metrics["episode_return"]


def test_the_agent_solves_a_probe(page: Path) -> None:
    assert returns(page, "probe:action-reward", 20_000, 1)[:, -5:].mean() > 0.9


def test_the_agent_bootstraps_what_was_only_cut(page: Path) -> None:
    env = triglot.make_env("probe:truncating")
    agent = triglot.make_agent("reinforce:Reinforce", env, hyper={"discount": 0.9})
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=50_000)
    variables = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent["learner"].variables)
    network = agent.network  # pyright: ignore[reportAttributeAccessIssue]
    outputs, _ = network.apply(variables, np.zeros((1, 1), np.float32))
    np.testing.assert_allclose(outputs["value"]["value"], [10.0], rtol=0.02)


@pytest.mark.slow
def test_the_agent_improves_on_cartpole(page: Path) -> None:
    found = returns(page, "gymnax:CartPole-v1", 200_000, 3)
    tenth = found.shape[1] // 10
    assert np.nanmean(found[:, -tenth:]) > np.nanmean(found[:, :tenth]) + 150
