"""Run a comparison's trainings in this process, with defects planted in one of them."""

from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from triglot.compare.jobs import Job, weights_file
from triglot.compare.options import CompareOptions
from triglot.compare.results import Arrays, Record
from triglot.compare.rungs import rung_named
from triglot.compare.start import Started
from triglot.compare.training import train as module
from triglot.compare.training.library import LibraryExperiment
from triglot.runs.jobs.job import RunningJob
from triglot.runs.jobs.ledger import Ledger
from triglot.runs.registry.environments import make_env

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

Plant = Callable[[LibraryExperiment], LibraryExperiment]


def no_process(*given: object, **more: object) -> None:
    """Stand in for a class of processes that must not start."""
    pytest.fail("a process was started")


def train(
    folder: Path,
    *,
    backend: str = "linen",
    rung: str = "weights",
    plant: Plant | None = None,
    running: RunningJob | None = None,
    **changes: Any,
) -> Record:
    """Train one library; the first one in a folder gives the weights.

    Args:
      folder: of the comparison.
      backend: the library.
      rung: what is shared.
      plant: changes the experiment before it trains.
      running: the job; None shows nothing.
      changes: options that differ from `OPTIONS`.
    """
    folder.mkdir(exist_ok=True)
    options = replace(OPTIONS, out=folder, **changes)
    job = Job(options.env, rung, backend)
    running = RunningJob(lambda event: None) if running is None else running
    running.go()
    arguments = {"job": asdict(job), "leads": True}
    build = LibraryExperiment.build

    def planted(*args: Any, **parts: Any) -> LibraryExperiment:
        library = build(*args, **parts)
        return library if plant is None else plant(library)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LibraryExperiment, "build", planted)
        module.train(Started(options, arguments, running, {"import_seconds": 0.0}))
    return Record.load(Ledger(folder).folder(job.name))


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
    library = LibraryExperiment.build(options, backend, rung=rung_named(rung))
    if plant is not None:
        library = plant(library)
    if rung_named(rung).shared_weights:
        state = library.start_from(weights_file(folder, 0))
    else:
        state = library.experiment.start()
    return Record(probe=library.probe(state))


def initial_weights(options: CompareOptions, backend: str, env: str | None = None) -> Arrays:
    """Draw the weights with which a library's seeds start, by shared name."""
    library = LibraryExperiment.build(options, backend, env=make_env(env or options.env))
    return library.named_params(library.experiment.start())
