"""Run a comparison's workers in this process, with defects planted in one of them."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from triglot.compare.jobs import Job, Ledger
from triglot.compare.options import CompareOptions
from triglot.compare.results import Record
from triglot.compare.rungs import rung_named
from triglot.compare.training import run
from triglot.compare.training.run import Progress
from triglot.compare.training.session import Session
from triglot.registry.overrides import from_overrides

SMALL = {"hidden_sizes": [8], "rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
OPTIONS = CompareOptions(
    algorithm="ppo",
    env="probe:two-step",
    backends=("haiku", "linen"),
    arithmetic="native",
    num_seeds=2,
    seed=0,
    total_steps=24 * 32,
    repetitions=0,
    config=SMALL,
    hyper={"learning_rate": 1e-3},
    eval_episodes=4,
)

Plant = Callable[[Session], None]


class InProcessWorker:
    """Answers as a worker process does, from a `Session` in this process."""

    plant: Plant | None = None

    def __init__(self, backend: str) -> None:
        self.backend = backend

    def __enter__(self) -> "InProcessWorker":
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def ask(self, stage: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        if stage == "start":
            options = from_overrides(CompareOptions, arguments["options"])
            self.session = Session(
                options,
                self.backend,
                env=arguments["env"],
                rung=rung_named(arguments["rung"]),
                reference=arguments["reference"],
            )
            if self.plant is not None:
                self.plant(self.session)
            return self.session.facts, {}
        reply = getattr(self.session, stage)(**arguments)
        return reply.facts, reply.arrays


class NoBar:
    """Shows nothing."""

    total = 0

    def update(self, n: int = 1) -> None:
        pass

    def write(self, text: str) -> None:
        pass

    def set_description_str(self, text: str) -> None:
        pass


def train(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    backend: str = "linen",
    rung: str = "weights",
    plant: Plant | None = None,
    **changes: Any,
) -> Record:
    """Train one library; the first one in a folder gives the weights.

    Args:
      folder: of the comparison.
      monkeypatch: replaces the worker.
      backend: the library.
      rung: what is shared.
      plant: called with the session before it trains.
      changes: options that differ from `OPTIONS`.
    """

    class Planted(InProcessWorker):
        pass

    Planted.plant = staticmethod(plant) if plant else None
    monkeypatch.setattr(run, "Worker", Planted)
    options = replace(OPTIONS, out=folder, **changes)
    ledger, job = Ledger(folder), Job(options.env, rung, backend)
    folder.mkdir(exist_ok=True)
    bar: Any = NoBar()
    failures = run.run_jobs(options, ledger, [job], Progress(num_jobs=1, bar=bar))
    assert not failures, failures
    return Record.load(ledger.folder(job))


def probe(
    folder: Path,
    *,
    backend: str = "linen",
    rung: str = "weights",
    plant: Plant | None = None,
    **changes: Any,
) -> Record:
    """Compute only the parts of the first update; see `train`."""
    options = replace(OPTIONS, out=folder, **changes)
    session = Session(options, backend, rung=rung_named(rung))
    if plant is not None:
        plant(session)
    session.init()
    if rung_named(rung).shared_weights:
        session.load(str(Ledger(folder).weights(0)))
    return Record(probe=session.probe().arrays)
