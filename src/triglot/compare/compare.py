"""Train one agent with several libraries from the same weights and keys, and report differences."""

import inspect
import itertools
import shlex
import sys
from contextlib import closing, nullcontext
from dataclasses import fields, replace

from ..backends import libraries
from ..core.errors import TriglotError, counted
from ..core.loop.checkpoint import Checkpoints
from ..core.loop.sharding import fewest_devices
from ..core.options import option_values
from ..core.records import JSON, JSONDict
from ..runs.devices import most_devices
from ..runs.effects import with_effect
from ..runs.jobs.choose import ALL, CORES, DEVICES, ONE, Executor, choose_devices, choose_executor
from ..runs.jobs.ledger import Ledger, read_facts
from ..runs.jobs.options import JobOptions, continuing
from ..runs.plan import default_folder
from ..runs.registry.algorithms import find_algorithm
from ..runs.registry.arg import option_words
from ..runs.registry.environments import make_env, with_resolved_runs
from ..runs.registry.overrides import from_overrides, overrides_of
from ..runs.registry.own import own_parts
from ..runs.registry.presets.describe import announcement
from ..runs.storage.records import locked
from ..shared.machine.files import make_new_folder
from ..shared.machine.interrupt import raising
from ..shared.pages.page import PAGE, open_report
from ..shared.terminal.progress import phase
from ..shared.terminal.wrapping import wrapped
from . import against
from .assemble import Finished, assemble
from .check import FAIL_ON, Checked, check, with_backends
from .cost.measure import measure_costs
from .jobs import WHAT, Failure, computing, environments, job_list, run_jobs, size_of
from .operations import Operations, add_operations
from .options import CompareOptions
from .pages import comparison
from .pages.contents import AT_ONCE
from .programs import diff_all
from .verdict.causes import add_causes


def compare(options: CompareOptions) -> JSONDict:
    """Run a comparison, print its table and write its folder; or continue an interrupted one.

    Returns:
      The contents of `comparison.json`.

    Raises:
      TriglotError: before any process starts, if an option is invalid, a library is not installed
        or the folder holds something else; later, if fewer than two libraries could be trained.
    """
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    # A comparison may be continued from another folder.
    env, *envs = map(with_resolved_runs, environments(options))
    options = replace(options, env=env, envs=tuple(envs), config=config, hyper=hyper)
    options = with_backends(options)
    with phase("building"):
        before = against.read(options.against, options) if options.against else None
        checked = check(options)

    def custom() -> list[str]:
        parts = [own_parts(replace(options, env=env)) for env in environments(options)]
        return [*itertools.chain(*parts), *options.network]

    def default_devices() -> int:
        """Count those of the comparison `before`, which would have other bits, or the most."""
        return before[DEVICES] if before else fewest_devices(options.num_seeds, most_devices())

    begun = read_facts(options.out, WHAT)
    # Without a choice one training at a time runs, so that speeds can be compared.
    executor = choose_executor(options, WHAT, begun, custom)
    with closing(executor) if executor else nullcontext():
        devices = choose_devices(
            options.devices, options.out, WHAT, begun, executor, default_devices
        )
        return _compare(replace(options, devices=devices), executor, before, checked)


def _compare(
    options: CompareOptions,
    executor: Executor | None,
    before: JSON | None,
    checked: Checked,
) -> JSONDict:
    folder = options.out or default_folder("compare", options.algorithm, options.env)
    if executor is not None:
        executor.prepare(folder)
    out = options.out or make_new_folder(folder)
    options = replace(options, out=out)
    facts = {CORES: ONE if executor else ALL, DEVICES: options.devices}
    ledger = Ledger.open(out, what=WHAT, options=computing(options), facts=facts)
    excluded = {job: checked.excluded.get((job.rung, job.backend)) for job in job_list(options)}
    jobs = [job for job, why in excluded.items() if why is None]
    failures = [Failure(job, "translate", why) for job, why in excluded.items() if why is not None]
    continues = ledger.continuable(
        [job.name for job in jobs],
        "trainings",
        lambda name: bool(Checkpoints(ledger.checkpoints(name)).numbers()),
        continuing(command(options), options, {*_ADDED, *_JOB_OPTIONS}),
    )
    with locked(out), raising(), continues:
        for line in announcement(options):
            print(wrapped(line), flush=True)
        ledger.tidy()
        if num_done := sum(ledger.is_done(job.name) for job in jobs):
            print(f"continuing: {num_done} of {counted(len(jobs), 'training')} are done")
        if num_done < len(jobs):
            print(wrapped(f"{checked.size}\n{size_of(jobs)}"), flush=True)
        failures += run_jobs(executor, options, ledger, jobs)
        operations = Operations(options)
        finished = Finished(
            options=options,
            ledger=ledger,
            jobs=[job for job in jobs if ledger.is_done(job.name)],
            bounds=checked.bounds,
            operations=operations,
        )
        if not finished.compared:
            messages = "; ".join(
                f"{failure.job.backend}: {failure.message}" for failure in failures
            )
            raise TriglotError(f"fewer than two libraries could be trained. {messages}")
        cost = measure_costs(finished)
        with phase("writing the report"):
            result = assemble(finished, command(options))
            result["full_command"] = command(_spelled_out(options))
            result["cost"] = cost
            result["programs"] = diff_all(finished.main_records)
            add_operations(operations, result, finished.compared)
            result["executor"] = executor.title if executor else None
            result["failures"] = [failure.as_json() for failure in failures]
            result["code"] = {name: _code(options, name) for name in result["backends"]}
            add_causes(result, finished.main_records)
            result["against"] = (
                against.changes(options.against, before, result)
                if options.against and before
                else None
            )
            comparison.write(out, result)
    print(comparison.as_text(result))
    paragraphs = [
        f"{failure.job.backend} ({failure.job.rung}): {failure.message}" for failure in failures
    ]
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


def exit_code(options: CompareOptions, result: JSON) -> int:
    """Give the exit code that `--fail-on` asks for: 1 at that verdict or a worse one, else 0."""
    if options.fail_on is None:
        return 0
    levels = [result["verdict"]["level"], (result["against"] or {}).get("level")]
    return int(any(level in FAIL_ON[options.fail_on] for level in levels))


def _code(options: CompareOptions, backend: str) -> JSONDict:
    """Give the source of a library's network."""
    if options.network:
        text = next((t for t in options.network if t.startswith(f"{backend}=")), options.network[0])
        module = sys.modules.get(text.rpartition("=")[2].partition(":")[0])
        path = text
    else:
        module = inspect.getmodule(libraries.find(backend).load_zoo())
        path = getattr(module, "__name__", backend)
    try:
        source = inspect.getsource(module) if module else ""
    except OSError:  # written in an interpreter
        source = ""
    return {"path": path, "lines": len(source.splitlines()), "source": source}


_JOB_OPTIONS = [field.name for field in fields(JobOptions)]
_ADDED = ("open", "against", "fail_on")  # options that change what is reported


def command(options: CompareOptions) -> str:
    """Format the command line of a comparison, with every option that it depends on."""
    words = ["triglot", "compare", options.algorithm, options.env]
    options = replace(options, no_preset=True)  # all settings that differ from defaults are given
    left_out = {"algorithm", "env", "config", "hyper", "preset", *_ADDED, *_JOB_OPTIONS}
    for name, value in vars(options).items():
        if name not in left_out and not (value is None or value is False or value == ()):
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
    spelled_out = [
        {n: value for n, value in option_values(owner).items() if n in used and value is not None}
        for owner in (config, hyper)
    ]
    return replace(options, config=spelled_out[0], hyper=spelled_out[1])
