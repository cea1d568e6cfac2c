"""Pictures of values on the grid world: which arrows, and for whom they are drawn."""

from pathlib import Path

import jax
import numpy as np
import pytest

from triglot import make_agent, make_env
from triglot.core.errors import TriglotError
from triglot.runs.plots.values import draw_values, greedy_actions, value_map


def test_every_greatest_action_has_an_arrow() -> None:
    q = np.array([[0.0, 1.0, 1.0 + 1e-7, 0.5], [0.0, 0.0, 0.0, 0.0]], np.float32)
    marked = greedy_actions(q).astype(int).tolist()
    assert marked == [[0, 1, 1, 0], [1, 1, 1, 1]]


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    ("algorithm", "env", "config", "drawn"),
    [
        ("q_learning", "gridworld:2x3", {}, True),
        ("dqn", "gridworld:2x3", {"hidden_sizes": (4,)}, True),
        ("ppo", "gridworld:2x3", {"hidden_sizes": (4,)}, False),
        ("dqn", "probe:two-step", {"hidden_sizes": (4,)}, False),
    ],
)
def test_values_are_drawn_where_there_are_some(
    algorithm: str, env: str, config: dict[str, tuple], drawn: bool, tmp_path: Path
) -> None:
    made = make_env(env)
    agent = make_agent(algorithm, made, config=config)
    state = agent.init(jax.random.key(0), agent.num_envs)
    seeds = jax.tree.map(lambda leaf: leaf[None], state)
    draw_values(tmp_path / "values.png", agent, made, seeds, "two lines")
    assert [file.name for file in tmp_path.iterdir()] == (["values.png"] if drawn else [])


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(TriglotError, match=r"values\.png cannot be written: No such file"):
        value_map(tmp_path / "no" / "values.png", np.zeros((6, 4)), (2, 3), title="")
