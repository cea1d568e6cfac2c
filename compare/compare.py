"""Train one agent with several libraries from the same weights and keys, and report differences."""

import inspect
import itertools
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from ..backends import libraries
from ..core.errors import TriglotError
from ..core.loop.sharding import fewest_devices
from ..jobs.choose import SEQUENTIAL, chosen, make_executor
from ..jobs.custom import custom_files
from ..jobs.executor import Executor
from ..jobs.options import JobOptions
from ..machine.files import make_new_folder
from ..machine.interrupt import raising
from ..registry.algorithms import find_algorithm
from ..registry.arg import option_words
from ..registry.environments import make_env
from ..registry.options import SharedOptions
from ..registry.overrides import from_overrides, overrides_of
from ..registry.own import own_parts
from ..registry.presets.describe import announcement
from ..report import comparison
from ..report.contents import AT_ONCE
from ..report.page import PAGE, open_report
from ..terminal.progress import Bar, phase
from ..terminal.wrapping import wrapped
from ..training.devices import most_devices
from ..training.effects import with_effect
from ..training.plan import default_folder
from ..training.storage.lock import locked
from . import against
from .assemble import Finished, assemble
from .check import FAIL_ON, check, with_backends
from .jobs import Job, Ledger, environments, job_list, recorded_devices
from .measurements import add_causes, measure_costs, programs
from .operations import Operations, add_operations
from .options import CompareOptions
from .rungs import rung_of_arithmetic
from .training.run import BAR, Failure, Progress, run_jobs
from .training.tasks import num_saved, run_at_once


def compare(options: CompareOptions) -> dict[str, Any]:
    """Run a comparison, print its table and write its folder; or continue an interrupted one.

    Returns:
      The contents of `comparison.json`.

    Raises:
      TriglotError: before any process starts, if an option is invalid, a library is not installed
        or the folder holds something else; later, if fewer than two libraries could be trained.
    """
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    options = with_backends(replace(options, config=config, hyper=hyper))
    with phase("building"):
        before = against.read(options.against, options) if options.against else None
        excluded, bounds = check(options)
    executor = _executor(options)
    options = replace(options, devices=_num_devices(options, executor, before))
    with closing(executor) if executor else nullcontext():
        return _compare(options, executor, before, excluded, bounds)


def _executor(options: CompareOptions) -> Executor | None:
    """Connect to what runs the trainings; None runs one after the other."""

    def modules() -> dict[str, Path]:
        parts = [own_parts(replace(options, env=env)) for env in environments(options)]
        return custom_files([*itertools.chain(*parts), *options.network])

    # Speeds can be compared if one training at a time runs.
    return make_executor(chosen(options) or SEQUENTIAL, options, modules)


def _num_devices(options: CompareOptions, executor: Executor | None, before: Any) -> int:
    """Choose among how many devices the seeds are divided; jobs of an executor have one core.

    As many as in the folder, or as in the comparison `before`, which would have other bits.
    """
    if options.devices is not None and options.devices > 1 and executor is not None:
        raise TriglotError(
            f"--devices {options.devices} divides the seeds among devices, and each training has "
            f"one core here ({executor.title}): leave out --devices, or --jobs and --executor."
        )
    recorded = recorded_devices(options.out)
    if options.devices is not None:
        return options.devices
    if recorded is not None:
        return recorded
    if before is not None:
        return before["devices"]
    return 1 if executor else fewest_devices(options.num_seeds, most_devices())


def _compare(
    options: CompareOptions,
    executor: Executor | None,
    before: Any,
    excluded: Mapping[tuple[str, str], str],
    bounds: Any,
) -> dict[str, Any]:
    folder = options.out or default_folder("compare", options.algorithm, options.env)
    if executor is not None:
        executor.prepare(folder)
    out = options.out or make_new_folder(folder)
    options = replace(options, out=out)
    ledger = Ledger.open(out, options, one_core=executor is not None)
    jobs = [job for job in job_list(options) if (job.rung, job.backend) not in excluded]
    failures = [
        Failure(job, "translate", excluded[job.rung, job.backend])
        for job in job_list(options)
        if (job.rung, job.backend) in excluded
    ]
    with locked(out), raising():
        for line in announcement(options):
            print(wrapped(line), flush=True)
        failures += _train(options, ledger, jobs, executor)
        done = [job for job in jobs if ledger.is_done(job)]
        _check_enough(options, done, failures)
        operations = Operations(options, ledger)
        finished = Finished(
            options=options, ledger=ledger, jobs=done, bounds=bounds, operations=operations
        )
        with _continuable(out):
            cost = measure_costs(options, ledger, done)
        with _continuable(out), phase("writing the report"):
            result = assemble(finished, command(options))
            result["full_command"] = command(_spelled_out(options))
            result["cost"] = cost
            result["programs"] = programs(finished)
            add_operations(operations, result, finished.compared)
            result["executor"] = executor.title if executor else None
            result["failures"] = [failure.as_json() for failure in failures]
            result["code"] = {name: _code(options, name) for name in result["backends"]}
            add_causes(result, finished)
            result["against"] = (
                against.changes(options.against, before, result)
                if options.against and before
                else None
            )
            comparison.write(out, result)
    print(comparison.as_text(result))
    paragraphs = [f"{one.job.backend} ({one.job.rung}): {one.message}" for one in failures]
    if executor is not None and not result["cost"]:
        paragraphs.append(f"{AT_ONCE} A training alone has all cores.")
    if result["against"]:
        paragraphs.append(result["against"]["sentence"])
    headline, _, rest = result["verdict"]["sentence"].partition(". ")
    for text in (*paragraphs, f"{headline.removesuffix('.')}.", rest):
        if text:
            print(f"\n{wrapped(text)}")
    print(f"\nReport: {out / PAGE}")
    if options.open:
        open_report(out)
    return result


def exit_code(options: CompareOptions, result: Mapping[str, Any]) -> int:
    """Give the exit code that `--fail-on` asks for: 1 at that verdict or a worse one, else 0."""
    if options.fail_on is None:
        return 0
    levels = [result["verdict"]["level"], (result["against"] or {}).get("level")]
    return int(any(level in FAIL_ON[options.fail_on] for level in levels))


def _train(
    options: CompareOptions, ledger: Ledger, jobs: list[Job], executor: Executor | None
) -> list[Failure]:
    ledger.tidy()
    left = [job for job in jobs if not ledger.is_done(job)]
    if len(left) < len(jobs):
        print(f"continuing: {len(jobs) - len(left)} of {len(jobs)} trainings are done")
    if not left:
        return []
    progress = Progress(num_jobs=len(left))
    try:
        if executor is not None:
            return run_at_once(executor, options, ledger, left)
        with Bar(bar_format=BAR, leave=False) as progress.bar:
            return run_jobs(options, ledger, left, progress)
    except BaseException:
        _say_what_is_left(options, ledger, jobs, progress)
        ledger.drop_if_empty()
        raise


def _say_what_is_left(
    options: CompareOptions, ledger: Ledger, jobs: list[Job], progress: Progress
) -> None:
    done = sum(ledger.is_done(job) for job in jobs)
    at_once, saved = num_saved(ledger, jobs), progress.num_saved
    if not done and not at_once and not any(one.updates for one in progress.records.values()):
        return
    running = f", and the running one is saved after {saved:,} updates" if saved else ""
    if at_once and not progress.records:
        running = f", and {at_once} more have a checkpoint"
    text = (
        f"The comparison did not finish: {done} of {len(jobs)} trainings are done and kept"
        f"{running}. Continue with the same command and --out {options.out}"
    )
    print(wrapped(text), file=sys.stderr)


@contextmanager
def _continuable(out: Path) -> Iterator[None]:
    """Say how to get the report, if the block is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        text = "All trainings are done and kept. Write the report with the same command and"
        print(wrapped(f"{text} --out {out}"), file=sys.stderr)
        raise


def _check_enough(options: CompareOptions, done: list[Job], failures: list[Failure]) -> None:
    """Check that two libraries can be compared."""
    main = rung_of_arithmetic(options.arithmetic).name
    counts = [
        sum((job.env, job.rung) == (env, main) for job in done) for env in environments(options)
    ]
    if max(counts) < 2:
        messages = "; ".join(f"{one.job.backend}: {one.message}" for one in failures)
        raise TriglotError(f"fewer than two libraries could be trained. {messages}")


def _code(options: CompareOptions, backend: str) -> dict[str, Any]:
    """Give the source of a library's network."""
    if options.network:
        text = next((t for t in options.network if t.startswith(f"{backend}=")), options.network[0])
        module = sys.modules.get(text.rpartition("=")[2].partition(":")[0])
        path = text
    else:
        adapter = libraries.find(backend).load_adapter()
        zoo = getattr(adapter, "zoo", None)
        module = sys.modules.get(f"triglot.backends.zoo.{backend}") or inspect.getmodule(zoo)
        path = getattr(module, "__name__", backend)
    try:
        source = inspect.getsource(module) if module else ""
    except OSError:  # written in an interpreter
        source = ""
    return {"path": path, "lines": len(source.splitlines()), "source": source}


def command(options: CompareOptions) -> str:
    """Format the command line of a comparison, with every option that it depends on."""
    words = ["triglot", "compare", options.algorithm, options.env]
    options = replace(options, no_preset=True)  # all settings that differ from defaults are given
    names = [one.name for one in fields(options)]
    given = {"algorithm", "env", "config", "hyper", "open", "against", "fail_on", "preset"}
    given |= {one.name for one in fields(JobOptions)}
    first = [one.name for one in fields(SharedOptions)]
    for name in sorted(names, key=lambda name: (name not in first, names.index(name))):
        value = getattr(options, name)
        if name not in given and not (value is None or value is False or value == ()):
            words += option_words(name, value)
    for name, value in (options.config | options.hyper).items():
        words += option_words(name, value)
    return shlex.join(words)


def _spelled_out(options: CompareOptions) -> CompareOptions:
    """Give every field that has an effect a value, so that no default matters."""
    algorithm = find_algorithm(options.algorithm)
    config = from_overrides(algorithm.Config, options.config)
    hyper = from_overrides(algorithm.Hyperparams, options.hyper)
    used = with_effect(options, algorithm, make_env(options.env), config)
    given = [
        {name: value for name, value in asdict(one).items() if name in used and value is not None}
        for one in (config, hyper)
    ]
    return replace(options, config=given[0], hyper=given[1])
