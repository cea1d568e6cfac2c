"""The benchmark of peers leaves out what is not installed; its settings are options of triglot."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.peers import __main__ as peers
from benchmarks.peers import ours
from benchmarks.peers.rows import ROWS, Row


@pytest.mark.parametrize("row", ["ppo", "ppo-cleanrl"])
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
    folders = {"PureJaxRL": None, "Stoix": tmp_path, "CleanRL": tmp_path}
    assert peers.installed_peers(ROWS[row], 512, folders) == {}
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == list(ROWS[row].peers)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_triglot_takes_the_settings_of_each_row(row: Row) -> None:
    for suite in row.suites:
        env = f"{suite}:{row.env_id}"
        assert ours.contender(row.algorithm, env, row.total_steps, row.triglot, "linen").version
