"""Runs of older versions, whose options were elsewhere, are continued and evaluated."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import triglot
from triglot.cli import main as cli
from triglot.core.families.extension import ExtendedState
from triglot.core.loop import checkpoint
from triglot.core.types import by_path
from triglot.runs.plan import prepare
from triglot.runs.resume.restoring import restore
from triglot.runs.storage.config import options_of_run

COMMAND = (
    "train dqn probe:two-step --rollout-length 4 --buffer-size 64 --learning-starts 8 "
    "--batch-size 4 --num-envs 2 --hidden-sizes 5 --eval-episodes 0 --num-seeds 2 "
    "--checkpoint-seconds 0 --target-update-period 3"
)


def params(folder: Path) -> dict[str, np.ndarray]:
    states: Any = triglot.load_run(folder).agent_states
    found = by_path(states)
    return {path: np.asarray(leaf) for path, leaf in found.items() if "params" in path}


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """Make a run as a version wrote it that had the target's period in `config`."""
    folder = tmp_path / "older"
    assert cli.main([*COMMAND.split(), "--out", str(folder), "--total-steps", "24"]) == 0
    plan = prepare(options_of_run(folder, trust=True))
    state: Any = restore(replace(plan, out=folder)).state
    hyper = replace(state.agent.hyper, target_update_period=None)
    path = folder / "checkpoints" / f"{3:08d}"
    shutil.rmtree(path)
    checkpoint.save(path, replace(state, agent=replace(state.agent, hyper=hyper)))
    config = json.loads((folder / "config.json").read_text())
    config["config"]["target_update_period"] = int(config["hyper"].pop("target_update_period"))
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_an_older_run_goes_on_bit_for_bit(older: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert cli.main([*COMMAND.split(), "--out", str(whole), "--total-steps", "48"]) == 0
    assert cli.main(["resume", str(older), "--total-steps", "48"]) == 0
    wanted, found = params(whole), params(older)
    assert wanted.keys() == found.keys() and wanted
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    # Its own checkpoint has the number where it is now.
    assert triglot.load_run(older).agent_states.hyper.target_update_period.tolist() == [3.0, 3.0]


def test_an_older_run_is_evaluated(older: Path) -> None:
    assert cli.main(["evaluate", str(older), "--episodes", "2"]) == 0


@pytest.mark.slow
def test_another_missing_array_is_refused(older: Path) -> None:
    config = json.loads((older / "config.json").read_text())
    del config["config"]["target_update_period"]
    (older / "config.json").write_text(json.dumps(config))
    assert cli.main(["evaluate", str(older), "--episodes", "2"]) == 2


EXTENDED = (
    "train a2c+counts+contrast probe:two-step --rollout-length 4 --num-envs 2 --hidden-sizes 5 "
    "--eval-episodes 0 --checkpoint-seconds 0 --learning-rate 1e-3 --counts-bits 3 "
    "--contrast-size 2"
)


def as_fields(state: Any) -> dict[str, Any]:
    """Write an extension's state as a field of its algorithm's, as triglot 0.2 did."""
    if not isinstance(state, ExtendedState):
        return vars(state)
    own = {state.kind.name: state.extension, "hyper": state.hyper}
    return {**as_fields(state.agent), **own}


@pytest.mark.slow
def test_an_older_run_with_extensions_goes_on_bit_for_bit(tmp_path: Path) -> None:
    whole, older = tmp_path / "whole", tmp_path / "older"
    assert cli.main([*EXTENDED.split(), "--out", str(older), "--total-steps", "16"]) == 0
    assert cli.main([*EXTENDED.split(), "--out", str(whole), "--total-steps", "32"]) == 0
    plan = prepare(options_of_run(older, trust=True))
    state: Any = restore(replace(plan, out=older)).state
    path = older / "checkpoints" / f"{2:08d}"
    shutil.rmtree(path)
    checkpoint.save(path, replace(state, agent=as_fields(state.agent)))
    assert cli.main(["resume", str(older), "--total-steps", "32"]) == 0
    wanted, found = params(whole), params(older)
    assert wanted.keys() == found.keys() and wanted
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
