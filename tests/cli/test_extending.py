"""docs/guide: every file on its pages runs; those of `triglot new` pass their checks and train."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import numpy as np
import optax
import pytest

import triglot
from tests.extras import TORCH
from tests.project.documents import PAGES, ROOT, files
from triglot.cli import main as cli
from triglot.cli import new
from triglot.core.errors import TriglotError
from triglot.core.networks.combinators import part_of

pytestmark = pytest.mark.packaging

FILES = {name: text for page in PAGES for name, text in files(page).items()}
NETWORKS = [
    file
    for file in FILES
    if file.endswith("/my_network.py") and (TORCH or not file.startswith("torch/"))
]
TOY = ROOT / "tests" / "toy_library"  # tests/backends/test_libraries.py runs it


@pytest.fixture
def page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[Path]:
    """Change to a folder with the page's files; `my_network.py` is the requested library's."""
    for file, text in FILES.items():
        if "/" not in file or file == getattr(request, "param", NETWORKS[0]):
            (tmp_path / Path(file).name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    yield tmp_path
    for file in FILES:
        sys.modules.pop(Path(file).stem, None)


def train(command: str, out: Path) -> dict:
    """Train from the command line, and read the summary."""
    assert cli.main(["train", *command.split(), "--eval-episodes", "4", "--out", str(out)]) == 0
    return json.loads((out / "summary.json").read_text())


@pytest.mark.slow
def test_custom_networks_are_compared(page: Path) -> None:
    command = (
        "compare ppo gymnax:CartPole-v1 --network two_networks:networks --arithmetic native "
        "--num-envs 2 --rollout-length 16 --num-minibatches 2 --total-steps 64 --num-seeds 2 "
        "--eval-episodes 4 --repetitions 0 --out two"
    )
    assert cli.main(command.split()) == 0
    result = json.loads((page / "two" / "comparison.json").read_text())
    assert list(result["backends"]) == ["linen", "equinox"] and result["failures"] == []
    (pair,) = result["pairs"]
    assert pair["max_abs_param_difference"] < 1e-4
    assert {cause["name"] for cause in pair["causes"]} <= {"summation_order", "leaf_order"}
    assert "class EquinoxActorCritic" in result["code"]["equinox"]["source"]


def test_the_pages_hold_every_template() -> None:
    templates = {
        file.read_text() for file in new.TEMPLATES.glob("*.py") if file.name != "__init__.py"
    }
    assert templates <= set(FILES.values())
    stems = {Path(file).stem for file, text in FILES.items() if text in templates}
    assert stems == {module for module, _ in new.NAMES.values()}


def test_the_page_of_libraries_holds_the_toy_library() -> None:
    package = {str(file.relative_to(TOY)): file.read_text() for file in TOY.glob("*/*.py")}
    assert package == {name: text for name, text in FILES.items() if name in package}


def test_the_environment_passes_and_trains(page: Path) -> None:
    assert cli.main(["check", "random_walk:RandomWalk"]) == 0
    command = "ppo random_walk:RandomWalk --num-epochs 1 --total-steps 128 --rollout-length 8"
    train(command, page / "out")


@pytest.mark.covering(6)
@pytest.mark.parametrize(
    "page",
    [pytest.param(n, marks=pytest.mark.slow if i % 2 else ()) for i, n in enumerate(NETWORKS)],
    indirect=True,
)
def test_each_network_passes_with_the_heads_of_ppo(page: Path) -> None:
    command = "check my_network:my_network --algorithm ppo --env random_walk:RandomWalk"
    assert cli.main(command.split()) == 0


@pytest.mark.slow  # the quick tests train one of them: test_all_three_train_together
@pytest.mark.parametrize("page", NETWORKS, indirect=True)
def test_each_network_trains(page: Path) -> None:
    command = "ppo random_walk:RandomWalk --network my_network:my_network --num-epochs 1"
    train(f"{command} --total-steps 128 --rollout-length 8", page / "out")


@pytest.mark.slow
def test_the_agent_passes(page: Path) -> None:
    assert cli.main(["check", "reinforce:Reinforce", "--env", "probe:truncating"]) == 0


@pytest.mark.parametrize("agent", ["reinforce:Reinforce", "small_dqn:SmallDQN"])
def test_an_agent_for_discrete_actions_refuses_others(page: Path, agent: str) -> None:
    with pytest.raises(TriglotError, match="supports discrete actions"):
        triglot.make_agent(agent, triglot.make_env("probe:reach"))


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


def test_the_agent_bootstraps_truncated_episodes(page: Path) -> None:
    env = triglot.make_env("probe:truncating")
    agent = triglot.make_agent("reinforce:Reinforce", env, hyper={"discount": 0.9})
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=50_000)
    variables = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent.learner.variables)
    outputs, _ = agent.network.apply(variables, np.zeros((1, 1), np.float32))
    np.testing.assert_allclose(outputs["value"]["value"], [10.0], rtol=0.02)


@pytest.mark.slow
def test_the_agent_improves_on_cartpole(page: Path) -> None:
    found = returns(page, "gymnax:CartPole-v1", 200_000, 3)
    tenth = found.shape[1] // 10
    assert np.nanmean(found[:, -tenth:]) > np.nanmean(found[:, :tenth]) + 150


TINY = {"rollout_length": 8, "hidden_sizes": (8,), "num_epochs": 1, "num_minibatches": 1}


def trained(
    algorithm: str, total_steps: int = 64, env_name: str = "probe:two-step", **parts: Any
) -> tuple:
    """Train on a tiny environment; return the agent, its state and the metrics."""
    env = triglot.make_env(env_name)
    agent = triglot.make_agent(algorithm, env, **parts)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=total_steps)
    state = jax.tree.map(lambda leaf: leaf[0], result.runner_state.agent)
    return agent, state, result.metrics


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        "small_dqn:SmallDQN --learning-starts 16 --buffer-size 64 --batch-size 8",
        pytest.param("small_dqn:SmallDQN", marks=pytest.mark.slow),
        pytest.param("greedy_plan:GreedyPlan", marks=pytest.mark.slow),
        pytest.param("monte_carlo:MonteCarlo", marks=pytest.mark.slow),
        pytest.param("small_td3:SmallTD3", marks=pytest.mark.slow),
    ],
)
def test_the_other_agents_pass(
    page: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "probe:reach" if command.startswith("small_td3") else "probe:truncating"
    assert cli.main(["check", *command.split(), "--env", env]) == 0
    declared = "declares bootstraps = False" in capsys.readouterr().out
    assert declared == command.startswith("monte_carlo")


@pytest.mark.slow
def test_the_replay_agent_learns(page: Path) -> None:
    config = {"batch_size": 32, "buffer_size": 512, "learning_starts": 128}
    _, _, metrics = trained("small_dqn:SmallDQN", 2048, config=config)
    assert np.nanmean(metrics["episode_return"][:, -20:]) > 0.8


def test_the_agent_with_several_networks_learns_from_what_the_two_namespaces_give(
    page: Path,
) -> None:
    text = FILES["small_td3.py"]
    imports = {line for line in text.splitlines() if re.match("import|from", line)}
    assert imports == {
        "from dataclasses import dataclass, replace", "import jax", "import jax.numpy as jnp",
        "import rlax", "from triglot import nn, rl",
    }  # fmt: skip
    assert len(text.splitlines()) < 130
    config = {"batch_size": 64, "buffer_size": 2048, "learning_starts": 256}
    _, _, metrics = trained("small_td3:SmallTD3", 8192, "probe:reach", config=config)
    returns = metrics["episode_return"][0]
    assert np.nanmean(returns[:20]) < -3 and np.nanmean(returns[-50:]) > 0.2  # at best 0.5


def test_another_loss_changes_the_training(page: Path) -> None:
    _, _, plain = trained("ppo", config=TINY | {"num_epochs": 2})
    _, _, penalized = trained("penalty_ppo:PenaltyPPO", config=TINY | {"num_epochs": 2})
    assert not np.array_equal(plain["loss"], penalized["loss"])


def test_another_optimizer_changes_the_training(page: Path) -> None:
    options = (None, "my_optimizers:clipped_lion", lambda hyper: optax.lion(hyper.learning_rate))
    ends = []
    for optimizer in options:
        _, state, _ = trained("ppo", config=TINY, optimizer=optimizer)
        ends.append(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(state.learner)]))
    adam, *others = ends
    assert len(adam) > len(others[0])  # Lion keeps one moment
    assert not np.array_equal(others[0], others[1])  # clipping and weight decay


@pytest.mark.slow
def test_the_sweep_trains_each_rate(page: Path) -> None:
    sweep = importlib.import_module("rate_sweep")
    assert sweep.returns.shape == (3, 2, 32)
    rates = np.asarray(sweep.metrics["learning_rate"])[:, 0, 0]
    np.testing.assert_allclose(rates, [1e-4, 1e-3, 1e-2], rtol=1e-6)
    assert len(np.unique(np.asarray(sweep.metrics["loss"])[:, 0, -1])) == 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent_network", "transformer_memory"])
def test_a_recurrent_network_passes_and_trains(page: Path, name: str) -> None:
    assert cli.main(["check", f"{name}:{name}", "--env", "probe:two-step"]) == 0
    command = f"ppo probe:two-step --network {name}:{name} --num-epochs 1"
    train(f"{command} --total-steps 64 --rollout-length 8", page / "out")


def test_a_transformer_attends_to_its_window_only(page: Path) -> None:
    env = triglot.make_env("gymnax:MemoryChain-bsuite")
    module = importlib.import_module("transformer_memory")
    network = module.transformer_memory(env.obs_spec, env.action_spec)
    variables = network.init(jax.random.key(0))
    first = env.reset(jax.random.key(0)).obs
    obs = jax.random.normal(jax.random.key(1), (20, 2, *first.shape))

    def logits(steps: jax.Array) -> np.ndarray:
        outputs, carry = {}, network.initial_carry(variables, 2)
        for step in steps:
            (outputs, carry), _ = network.apply(variables, (step, carry))
        return np.asarray(outputs["logits"])

    before = logits(obs)
    np.testing.assert_array_equal(before, logits(obs[4:]))  # a window of 16 steps
    assert np.abs(before - logits(obs[5:])).max() > 1e-6  # the oldest step in it counts


@pytest.mark.parametrize(
    "trained_with, exported_to",
    [
        ("haiku", "equinox"),
        ("nnx", "linen"),
        pytest.param("linen", "nnx", marks=pytest.mark.slow),
        pytest.param("equinox", "haiku", marks=pytest.mark.slow),
    ],
)
def test_exported_parameters_give_the_agents_outputs(
    page: Path, trained_with: str, exported_to: str
) -> None:
    agent, state, _ = trained("ppo", backend=trained_with, config=TINY)
    variables = part_of(state.learner.variables, "actor")
    obs = jax.random.uniform(jax.random.key(1), (5, *agent.obs_spec.shape))
    expected, _ = agent.network.parts["actor"].apply(variables, obs)
    for library in (trained_with, exported_to):
        module = importlib.import_module(f"to_{library}")
        exported = getattr(module, f"to_{library}")(agent, state, "actor")
        outputs = call(library, exported, obs)
        np.testing.assert_allclose(outputs["logits"], expected["logits"], rtol=1e-5, atol=1e-7)


def call(library: str, exported: Any, obs: jax.Array) -> dict:
    """Call an exported network on a batch, as the page's comments say."""
    if library in ("haiku", "linen"):
        network, params = exported
        return network.apply(params, obs)
    return jax.vmap(exported)(obs) if library == "equinox" else exported(obs)


def test_a_custom_network_keeps_the_librarys_own_parameters(page: Path) -> None:
    """Linen's and Haiku's modules compute the agent's outputs from the state's parameters."""

    class Linen(nn.Module):
        @nn.compact
        def __call__(self, obs):
            return {"logits": nn.Dense(2)(obs), "value": nn.Dense(1)(obs)[..., 0]}

    def haiku(obs):
        return {"logits": hk.Linear(2)(obs), "value": hk.Linear(1)(obs)[..., 0]}

    spec: Any = triglot.make_env("probe:two-step").obs_spec
    obs = jax.random.uniform(jax.random.key(1), (5, *spec.shape))
    config = {"rollout_length": 8, "num_epochs": 1}
    for network, own in (
        (triglot.from_linen(Linen(), spec), lambda p: Linen().apply({"params": p}, obs)),
        (triglot.from_haiku(haiku, spec), lambda p: hk.transform(haiku).apply(p, None, obs)),
    ):
        agent, state, _ = trained("ppo", networks=network, config=config)
        expected, _ = agent.network.apply(state.learner.variables, obs)
        outputs: Any = own(state.learner.variables.params)
        np.testing.assert_array_equal(outputs["logits"], expected["logits"])
