"""The benchmark of peers leaves out what is not installed; its settings are options of triglot."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.peers import __main__ as peers
from benchmarks.peers import ours
from benchmarks.peers.rows import ROWS, Row


def test_a_peer_that_is_not_installed_is_left_out_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "rejax", None)
    folders = {"PureJaxRL": None, "Stoix": tmp_path}
    assert peers.installed_peers(ROWS["ppo"], 512, folders) == {}
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == list(ROWS["ppo"].peers)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_triglot_takes_the_settings_of_each_row(row: Row) -> None:
    program = ours.contender(row.algorithm, row.env_id, row.total_steps, row.triglot, "linen")
    assert program.version
