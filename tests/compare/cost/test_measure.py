"""Costs are measured by a process per library and repetition, in random turns."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from triglot.compare.cost import measure as module
from triglot.compare.cost import noise
from triglot.compare.cost.measure import FACTS, ROUNDS, STAGES, measure
from triglot.compare.cost.noise import Noise
from triglot.compare.options import CompareOptions
from triglot.core.errors import TriglotError
from triglot.runs.jobs.job import Outcome, Task

OPTIONS = CompareOptions(
    algorithm="q_learning",
    env="gridworld:3x3",
    backends=("haiku", "linen", "equinox"),
    num_seeds=2,
    seed=0,
    total_steps=64,
    config={"rollout_length": 8},
    eval_episodes=2,
)
BACKENDS = ("haiku", "linen", "equinox")
SLOW = 1.2  # the planted slow-down of linen's update


class FakeProcess:
    """Ends its turns at once, with planted times."""

    log: ClassVar[list[tuple[str, str]]] = []
    fails: ClassVar[dict[str, int]] = {}  # at which turn
    rng = np.random.default_rng(0)

    def __init__(self, task: Task, *, one_core: bool) -> None:
        assert not one_core
        self.task, self.backend, self.turns = task, task.arguments["backend"], 0
        self.log.append((self.backend, "process"))
        json.dumps(task.arguments)

    def go(self) -> None:
        self.turns += 1
        self.log.append((self.backend, "turn"))

    def kill(self) -> None:
        self.log.append((self.backend, "exit"))

    def wait(self) -> Outcome | None:
        if self.fails.get(self.backend) == self.turns:
            return Outcome("died", "its process died")
        if self.turns < self.task.arguments["rounds"]:
            return None
        times: dict[str, Any] = {
            part: (0.01 * self.rng.normal(1, 0.02, ROUNDS)).tolist()
            for part in ("rollout", "update", "evaluation", "training")
        }
        if self.backend == "linen":
            times["update"] = [SLOW * each for each in times["update"]]
        facts = {**dict.fromkeys(FACTS.values(), 1.5), "peak_memory_bytes": 2_000_000}
        found = {"facts": {**facts, "steps_per_update": 16}, "times": times}
        found["times"]["dispatch"] = [2e-5, 3e-5, 3e-5, 3e-5, 1.0]
        Path(self.task.arguments["result"]).write_text(json.dumps(found))
        return Outcome("done")


@pytest.fixture(autouse=True)
def fakes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the processes, except in the test of a real one."""
    monkeypatch.setattr(noise, "LOOPS", 1000)
    if "real" not in request.node.name:
        monkeypatch.setattr(module, "JobProcess", FakeProcess)
    monkeypatch.setattr(FakeProcess, "log", [])
    monkeypatch.setattr(FakeProcess, "fails", {})
    yield


def test_every_stage_of_every_library_is_summarized() -> None:
    result = measure(OPTIONS, BACKENDS, 6)
    assert [stage["name"] for stage in result["stages"]] == [stage.name for stage in STAGES]
    assert list(result["backends"]) == list(BACKENDS) and result["failed"] == {}
    haiku = result["backends"]["haiku"]
    assert haiku["import"] == {"median": 1.5, "low": 1.5, "high": 1.5, "count": 6}
    assert haiku["memory"]["median"] == 2.0
    assert haiku["dispatch"]["median"] == pytest.approx(30)  # the slowest call has no weight
    assert 9.5 < haiku["rollout"]["low"] <= haiku["rollout"]["median"] < 10.5
    assert haiku["steps_per_second"]["median"] == pytest.approx(16 * 2 / 0.01, rel=0.05)
    json.dumps(result)


def test_a_slow_down_of_a_fifth_is_named_and_nothing_else() -> None:
    (found,) = measure(OPTIONS, BACKENDS, 6)["slower"]
    assert (found["stage"], found["backend"]) == ("update", "linen")
    assert found["ratio"] == pytest.approx(SLOW, rel=0.05)
    pattern = r"Update: Flax Linen 1[12]\.?\d* ms, 1\.\d\d times (Haiku|Equinox)'s [\d.]+ ms\."
    assert re.fullmatch(pattern, found["sentence"])
    assert measure(OPTIONS, ("haiku", "equinox"), 6)["slower"] == []


def test_few_repetitions_have_no_interval() -> None:
    result = measure(OPTIONS, BACKENDS, 4)
    assert result["slower"] == []
    row = result["backends"]["haiku"]["compile"]
    assert row == {"median": 1.5, "low": None, "high": None, "count": 4}
    with pytest.raises(TriglotError, match="repetitions must be at least 1, got 0"):
        measure(OPTIONS, BACKENDS, 0)


def test_processes_are_new_and_their_order_is_random() -> None:
    measure(OPTIONS, BACKENDS, 5)
    starts = [name for name, what in FakeProcess.log if what == "process"]
    rounds = [tuple(starts[i : i + 3]) for i in range(0, len(starts), 3)]
    assert [sorted(each) for each in rounds] == [sorted(BACKENDS)] * 5
    assert len(set(rounds)) > 1
    turns = [name for name, what in FakeProcess.log if what == "turn"]
    assert len(turns) == 3 * 5 * ROUNDS
    # In turns: no library is measured more than twice in a row.
    assert all(len(set(turns[i : i + 3])) > 1 for i in range(len(turns) - 3))


@pytest.mark.parametrize("turn", [0, 1, ROUNDS])
def test_the_others_finish_when_a_library_fails(turn: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProcess, "fails", {"haiku": turn})
    result = measure(OPTIONS, BACKENDS, 2)
    assert list(result["backends"]) == ["linen", "equinox"]
    assert result["failed"] == {"haiku": "its process died"}
    assert result["backends"]["linen"]["update"]["count"] == 2
    assert (
        FakeProcess.log.count(("haiku", "process")) == FakeProcess.log.count(("haiku", "exit")) == 1
    )
    with pytest.raises(TriglotError, match="haiku: its process died"):
        measure(OPTIONS, ("haiku",), 2)


@pytest.mark.slow
def test_a_real_process_measures_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    result = measure(OPTIONS, ("table",), 1, announce=print)
    names = [stage["name"] for stage in result["stages"]]
    # An online agent has no rollout of its own.
    assert names == [stage.name for stage in STAGES if stage.name != "rollout"]
    assert all(row["median"] > 0 for row in result["backends"]["table"].values())
    assert capsys.readouterr().out == "measure speed 1/1: table\n"


def test_a_quiet_machine_is_called_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "free_cores", lambda: range(4))
    found = Noise(load=0.3, seconds=[1.0, 1.015, 1.02, 0.985]).as_json()
    assert not found["noisy"] and 0 < found["spread"] < 0.05 and found["load"] == 0.3
    assert found["sentence"] == (
        "The machine was quiet: the times of a fixed calculation vary by 3% and the load average "
        "was 0.3 on 4 cores."
    )


@pytest.mark.parametrize(
    ("load", "seconds", "described"),
    [
        (3.9, [1.0] * 5, "vary by 0% and the load average was 3.9 on 4 cores"),
        (0.0, [1.0, 1.0, 1.3, 1.4, 1.0], "vary by 36% and the load average was 0.0 on 4 cores"),
        (None, [1.0, 2.0, 1.0, 2.0], "vary by 67%"),
    ],
)
def test_a_busy_machine_is_called_busy(
    load: float | None, seconds: list[float], described: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noise, "free_cores", lambda: range(4))
    found = Noise(load=load, seconds=seconds).as_json()
    assert found["noisy"]
    assert found["sentence"] == (
        f"The machine was busy: the times of a fixed calculation {described}. Repeat the "
        "measurement on an idle machine."
    )


def test_a_calibration_is_timed() -> None:
    found = Noise()
    for _ in range(3):
        found.calibrate()
    assert len(found.seconds) == 3 and min(found.seconds) > 0 and found.spread is not None
    if Path("/proc/loadavg").exists():
        assert found.load is not None and found.load >= 0
