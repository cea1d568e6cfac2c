"""Algorithms, environments and networks by name, the person's own among them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.extras import skip_missing, skip_missing_suite
from triglot.algorithms.ppo import PPO, PPOConfig, PPOHyperparams
from triglot.backends import build
from triglot.backends.libraries import LIBRARIES
from triglot.cli import list as listing
from triglot.core.environment import Environment
from triglot.core.errors import TriglotError
from triglot.core.hyper import for_environment
from triglot.core.specs import Box
from triglot.envs.gridworld import GridWorld
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.algorithms import find_algorithm
from triglot.runs.registry.environments import SUITES, make_env
from triglot.runs.registry.loading import load, load_networks
from triglot.runs.registry.overrides import from_overrides, overrides_of

OWN = """
from triglot import PPO
from triglot.backends import build
from triglot.core.network import Network
from triglot.envs.gridworld import GridWorld

class Agent(PPO):
    pass

class NoAgent:
    Config = dict

class DictConfig(PPO):
    Config = dict

class NoSpec(GridWorld):
    obs_spec = None

class Unhashable(GridWorld):
    __hash__ = None

env = GridWorld(2, 2)
unhashable = Unhashable(2, 2)
number = 3

def network(obs_spec, action_spec):
    return build("table", PPO.networks(obs_spec, action_spec))

def needs_more(obs_spec):
    return network
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Stand in a folder with a module of the person's own, and give its name."""
    name = f"own_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(OWN)
    (tmp_path / f"{name}_broken.py").write_text("import there_is_no_such_library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["/nowhere"])
    yield name


@pytest.fixture(scope="module")
def env() -> Environment:
    return make_env("gridworld:3x3")


@pytest.mark.parametrize("name", ["gymnax:CartPole-v1", "gridworld:3x4", "probe:truncating"])
def test_an_environment_is_made_by_suite_and_name(name: str) -> None:
    assert make_env(name).name == name


def test_options_reach_the_environment() -> None:
    made = make_env("gridworld:3x3", observation="onehot")
    assert made.obs_spec == Box((9,), "float32", 0.0, 1.0)


@pytest.mark.parametrize("suite", SUITES)
def test_the_example_of_a_suite_is_one_of_its_environments(suite: str) -> None:
    skip_missing_suite(suite)
    example = SUITES[suite].example
    assert make_env(f"{suite}:{example}").name == f"{suite}:{example}"
    assert f"{suite}:{example}" in listing.suite(suite).splitlines()


@pytest.mark.parametrize(
    "name, says",
    [
        ("CartPole-v1", "did you mean 'gymnax:CartPole-v1'"),
        ("8x8", "did you mean 'gridworld:8x8'"),
        ("gymnx:CartPole-v1", "did you mean 'gymnax'"),
        ("gymnasum:CartPole-v1", "did you mean 'gymnasium'"),
        ("gymnax:CartPol-v1", "did you mean 'CartPole-v1'"),
        ("gymnax:", "suite:name"),
        ("there.is.none:env", "unknown environment suite 'there.is.none'"),
        ("json:dump", "json is a module of Python itself"),
        ("numpy:ndarray", "a class without reset and step"),
        ("numpy:loadtx", "did you mean 'loadtxt'"),
    ],
)
def test_a_wrong_environment_is_told_with_the_nearest(name: str, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        make_env(name)


@pytest.mark.parametrize("backend", LIBRARIES)
def test_an_agent_is_built_on_every_backend(backend: str, env: Environment) -> None:
    skip_missing(backend)
    agent = make_agent("ppo", env, backend=backend, config={"num_envs": 2})
    assert isinstance(agent, PPO)
    assert agent.network.backend == backend
    assert (agent.num_envs, agent.hyper) == (2, for_environment(PPOHyperparams(), ()))


def test_an_agent_takes_the_class_and_its_options(env: Environment) -> None:
    config, hyper = PPOConfig(num_envs=8), PPOHyperparams(discount=0.5)
    agent = make_agent(PPO, env, config=config, hyper=hyper, arithmetic="canonical")
    assert isinstance(agent, PPO)
    found = (agent.config, agent.hyper, agent.network.arithmetic)
    assert found == (for_environment(config, ()), for_environment(hyper, ()), "canonical")


def test_own_networks_take_the_place_of_the_zoo(env: Environment) -> None:
    specs = PPO.networks(env.obs_spec, env.action_spec)
    parts = {name: build("table", {name: spec}) for name, spec in specs.items()}
    whole = build("table", specs)
    assert make_agent("ppo", env, networks=whole).network is whole  # pyright: ignore
    agent = make_agent("ppo", env, networks=whole, arithmetic="canonical")
    assert agent.network.arithmetic == "canonical"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TriglotError, match="unknown network 'acter'; did you mean 'actor'"):
        make_agent("ppo", env, networks={"acter": parts["actor"]})
    with pytest.raises(TriglotError, match="'critic' is missing"):
        make_agent("ppo", env, networks={"actor": parts["actor"]})


def test_an_environment_the_algorithm_cannot_serve() -> None:
    with pytest.raises(TriglotError, match="discrete actions"):
        make_agent("dqn", make_env("gymnax:Pendulum-v1"))


def test_an_unknown_algorithm_is_told_with_the_nearest() -> None:
    with pytest.raises(TriglotError, match="unknown algorithm 'poo'; did you mean 'ppo'"):
        find_algorithm("poo")


def test_overrides_are_what_departs_from_the_defaults() -> None:
    config = PPOConfig(num_envs=8, hidden_sizes=(3,))
    assert overrides_of(config) == {"num_envs": 8, "hidden_sizes": (3,)}
    as_json = {"num_envs": 8, "hidden_sizes": [3]}
    assert from_overrides(PPOConfig, as_json) == config
    with pytest.raises(TriglotError, match="did you mean 'num_envs'"):
        from_overrides(PPOConfig, {"num_env": 8})


def test_own_parts_are_loaded_from_the_current_folder(own: str) -> None:
    assert find_algorithm(f"{own}:Agent").__name__ == "Agent"
    env = make_env(f"{own}:env")
    assert env.obs_spec == GridWorld(2, 2).obs_spec
    network = load_networks([f"{own}:network"], env)
    agent = make_agent(f"{own}:Agent", env, networks=network)
    assert agent.network is network  # pyright: ignore[reportAttributeAccessIssue]
    assert load_networks([], env) is None
    named = load_networks([f"actor={own}:network", f"critic={own}:network"], env)
    assert isinstance(named, dict) and list(named) == ["actor", "critic"]


def test_a_wrong_part_of_the_persons_own_is_told(own: str) -> None:
    env = GridWorld(2, 2)
    with pytest.raises(TriglotError, match="lacks Hyperparams, networks"):
        find_algorithm(f"{own}:NoAgent")
    with pytest.raises(TriglotError, match=r"Config of the algorithm .* must be a dataclass"):
        find_algorithm(f"{own}:DictConfig")
    with pytest.raises(TriglotError, match=r"the obs_spec of environment .* got None"):
        make_env(f"{own}:NoSpec")
    with pytest.raises(TriglotError, match="did you mean 'Agent'"):
        find_algorithm(f"{own}:Agnt")
    with pytest.raises(TriglotError, match="no module 'elsewhere'"):
        find_algorithm("elsewhere:Agent")
    with pytest.raises(TriglotError, match=r"must be an Environment .* got 3"):
        make_env(f"{own}:number")
    with pytest.raises(TriglotError, match="is not hashable"):
        make_env(f"{own}:unhashable")
    with pytest.raises(TriglotError, match="got a int"):
        load_networks([f"{own}:number"], env)
    with pytest.raises(TriglotError, match="called with obs_spec, action_spec"):
        load_networks([f"{own}:needs_more"], env)
    with pytest.raises(TriglotError, match="NAME="):
        load_networks([f"actor={own}:network", f"{own}:network"], env)


def test_a_library_that_the_persons_module_lacks_is_told_with_its_line(own: str) -> None:
    with pytest.raises(
        TriglotError, match=rf"'there_is_no_such_library' \({own}_broken.py, line 1\)"
    ):
        load("algorithm", f"{own}_broken:Agent")


def test_the_list_names_every_backend() -> None:
    shown = listing.everything()
    assert all(f"\n  {name} " in shown for name in LIBRARIES)


def test_options_follow_an_environments_name() -> None:
    env: Any = make_env("gymnax:CartPole-v1,max_steps_in_episode=20", max_steps_in_episode=30)
    assert dict(env.options) == {"max_steps_in_episode": 30}
    maze: Any = make_env("jumanji:Maze-v0,num_rows=5,observation=image")
    assert maze.obs_spec.shape == (5, 10, 3)


@pytest.mark.parametrize(
    "name, says",
    [
        ("gymnax:CartPole-v1,20", "got '20'"),
        ("gymnax:CartPole-v1,max_steps=20", "max_steps_in_episode"),
        ("gymnax:CartPole-v1,=20", "name,option=value"),
    ],
)
def test_options_in_a_name_are_checked(name: str, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        make_env(name)
