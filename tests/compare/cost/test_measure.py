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
from triglot.compare.cost.measure import ROUNDS, STAGES, measure
from triglot.compare.cost.noise import Noise
from triglot.compare.options import CompareOptions
from triglot.core.errors import TriglotError

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


class FakeWorker:
    """Answers at once, with planted times."""

    log: ClassVar[list[tuple[str, str]]] = []
    fails: ClassVar[dict[str, str]] = {}
    rng = np.random.default_rng(0)

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.log.append((backend, "process"))

    def __enter__(self) -> "FakeWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        self.log.append((self.backend, "exit"))

    def ask(self, stage: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        self.log.append((self.backend, arguments.get("part", stage)))
        if self.fails.get(self.backend) == stage:
            raise TriglotError(f"{self.backend} died during {stage}")
        if stage == "prepare":
            return {"parts": ["rollout", "update", "evaluation", "training"]}, {}
        if stage == "dispatch":
            return {"seconds": [2e-5, 3e-5, 1.0]}, {}
        seconds = 0.01 * self.rng.normal(1, 0.02)
        if self.backend == "linen" and arguments.get("part") == "update":
            seconds *= SLOW
        facts = {**dict.fromkeys(module.SECONDS_OF.values(), 1.5), "steps_per_update": 16}
        return {"seconds": seconds, "peak_memory_bytes": 2_000_000, **facts}, {"w": np.ones(2)}


@pytest.fixture(autouse=True)
def fakes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the processes, except in the test of a real one."""
    monkeypatch.setattr(noise, "LOOPS", 1000)
    if "real" not in request.node.name:
        monkeypatch.setattr(module, "Worker", FakeWorker)
    monkeypatch.setattr(FakeWorker, "log", [])
    monkeypatch.setattr(FakeWorker, "fails", {})
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
    starts = [name for name, what in FakeWorker.log if what == "process"]
    rounds = [tuple(starts[i : i + 3]) for i in range(0, len(starts), 3)]
    assert [sorted(each) for each in rounds] == [sorted(BACKENDS)] * 5
    assert len(set(rounds)) > 1
    turns = [name for name, what in FakeWorker.log if what == "dispatch"]
    assert len(turns) == 3 * 5 * ROUNDS
    # In turns: no library is measured more than twice in a row.
    assert all(len(set(turns[i : i + 3])) > 1 for i in range(len(turns) - 3))
    parts = [
        what for name, what in FakeWorker.log if name == "haiku" and what in ("rollout", "update")
    ]
    assert parts[::2] != ["rollout"] * len(parts[::2])


@pytest.mark.parametrize("stage", ["start", "compile", "time"])
def test_the_others_finish_when_a_library_fails(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeWorker, "fails", {"haiku": stage})
    result = measure(OPTIONS, BACKENDS, 2)
    assert list(result["backends"]) == ["linen", "equinox"]
    assert result["failed"] == {"haiku": f"haiku died during {stage}"}
    assert result["backends"]["linen"]["update"]["count"] == 2
    assert (
        FakeWorker.log.count(("haiku", "process")) == FakeWorker.log.count(("haiku", "exit")) == 1
    )
    with pytest.raises(TriglotError, match="haiku died"):
        measure(OPTIONS, ("haiku",), 2)


def test_a_real_process_measures_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    result = measure(OPTIONS, ("table",), 1, announce=print)
    names = [stage["name"] for stage in result["stages"]]
    # An online agent has no rollout of its own.
    assert names == [stage.name for stage in STAGES if stage.name != "rollout"]
    assert all(row["median"] > 0 for row in result["backends"]["table"].values())
    assert capsys.readouterr().out == "measure speed 1/1: table\n"


def test_a_quiet_machine_is_called_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "cores", lambda: 4)
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
    monkeypatch.setattr(noise, "cores", lambda: 4)
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
