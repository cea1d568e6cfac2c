"""The benchmark of peers leaves out what is not installed; its settings are options of triglot."""

import sys
from pathlib import Path

import pytest

from tests.extras import skip_missing_suite

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.peers import ours
from benchmarks.peers.measure import BUILDERS, installed_peers
from benchmarks.peers.row import PEERS, Row
from benchmarks.peers.rows import ROWS


@pytest.mark.parametrize("row", ["ppo", "ppo-cleanrl", "ppo-gymnasium"])
def test_a_peer_that_is_not_installed_is_left_out_in_one_line(
    row: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "rejax", None)
    script = tmp_path / "cleanrl" / "ppo.py"  # a clone without an environment
    script.parent.mkdir()
    script.touch()
    paths = {"Stoix": tmp_path, "CleanRL": tmp_path, "Stable-Baselines3": tmp_path / "python"}
    assert installed_peers(ROWS[row], 512, paths) == {}
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == list(ROWS[row].peers)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.suites[0] != "envpool"])
def test_triglot_takes_the_settings_of_each_row(name: str) -> None:
    row = ROWS[name]
    for suite in row.suites:
        env = f"{suite}:{row.env_id}"
        skip_missing_suite(env)
        assert ours.contender(row, env, row.total_steps, "linen").version


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_peers_of_a_row_are_known(row: Row) -> None:
    others = {"purejaxql", "Stable-Baselines3", "brax", "Craftax_Baselines", "XLand-MiniGrid"}
    assert set(row.peers) <= BUILDERS.keys() == {*PEERS, *others}


def test_a_setting_is_translated_into_a_peers_words() -> None:
    assert ROWS["dqn"].given("PureJaxRL") == {
        "NUM_ENVS": 10,
        "BUFFER_BATCH_SIZE": 128,
        "BUFFER_SIZE": 10_000,
        "LEARNING_STARTS": 10_000,
        "LR": 2.5e-4,
        "GAMMA": 0.99,
        "EPSILON_ANNEAL_TIME": 100_000.0,
        "TAU": 1.0,
        "MAX_GRAD_NORM": 10.0,  # which its DQN does not read
    }
    assert ROWS["ppo"].given("CleanRL") == {
        "num-envs": 4,
        "num-steps": 128,
        "learning-rate": 2.5e-4,
    }
