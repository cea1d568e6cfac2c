"""The page of parameter names lists those of every library's built-in networks."""

import re
from pathlib import Path

import jax
import pytest

import triglot
from tests.extras import skip_missing
from triglot.core.errors import TriglotError
from triglot.core.network import Statistics
from triglot.runs.identity import check_architecture

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "library-names.md"
KINDS = {"LAYER": "[0-9]+", "HEAD": "[a-z]+(/[a-z]+)?", "GATE": "[a-z]"}
CASES = [
    ("ppo", "gymnax:Pendulum-v1", {}),
    ("ppo", "gymnax:CartPole-v1", {"cell": "gru"}),
    ("ppo", "gymnax:CartPole-v1", {"cell": "lstm"}),
    ("ppo", "gymnax:Breakout-MinAtar", {}),
    ("dqn", "gymnax:CartPole-v1", {"dueling": True}),
    ("rainbow", "gymnax:CartPole-v1", {}),
    ("pqn", "gymnax:CartPole-v1", {}),
    ("crossq", "gymnax:Pendulum-v1", {}),
]


def documented() -> list[str]:
    """Turn the names in backticks into regular expressions."""
    names = re.findall(r"`((?:torso|head|norm|cell)/[\w/]+)`", PAGE.read_text())
    patterns = []
    for name in names:
        parts = (KINDS.get(part) or re.escape(part) for part in name.split("/"))
        patterns.append("/".join(parts))
    return patterns


@pytest.mark.covering(4)
@pytest.mark.parametrize(("algorithm", "env", "config"), CASES)
@pytest.mark.parametrize("library", ["linen", "equinox", "haiku"])
def test_built_in_networks_have_documented_names(
    library: str, algorithm: str, env: str, config: dict[str, object]
) -> None:
    skip_missing(library)
    made = triglot.make_env(env)
    network = triglot.make_agent(algorithm, made, backend=library, config=config).network
    assert network.codec is not None
    variables = jax.eval_shape(network.init, jax.random.key(0))
    names = {name for leaf in network.codec.leaves for name in leaf.names}
    states = variables.state.values() if isinstance(variables.state, dict) else [variables.state]
    statistics = {name for one in states if isinstance(one, Statistics) for name in one.named}
    assert bool(statistics) == (algorithm == "crossq")
    inner = {name.partition("/")[2] for name in names if not name.startswith("temperature/")}
    if algorithm == "rainbow":  # the page says where `mu` and `sigma` stand
        inner = {re.sub(r"/(mu|sigma)(?=/\w+$)", "", name) for name in inner}
    for name in inner | statistics:
        assert any(re.fullmatch(pattern, name) for pattern in documented()), name


def test_an_error_of_a_name_lists_the_names_that_exist() -> None:
    first = {"torso/0/kernel": (4, 8), "torso/0/bias": (8,)}
    toy = {"torso/0/weights": (4, 8), "torso/0/bias": (8,)}
    with pytest.raises(TriglotError) as error:
        check_architecture("toy", toy, first)
    message = str(error.value)
    assert "of toy" in message and "no torso/0/kernel" in message and "torso/0/weights" in message
    assert message.endswith("names are torso/0/bias (8,), torso/0/kernel (4, 8).")
    with pytest.raises(TriglotError, match=r"torso/0/kernel is \(8, 4\) here and \(4, 8\) there"):
        check_architecture("toy", first | {"torso/0/kernel": (8, 4)}, first)
