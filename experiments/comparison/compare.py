"""Train one agent with several libraries from the same weights and keys, and report differences."""

import inspect
import itertools
import json
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from tqdm import tqdm

from ...backends import libraries
from ...backends.canonical import ARITHMETICS
from ...core.errors import TriglotError, unknown, user_error_context
from ...core.host_environment import require_jittable
from ...core.hyper import fill_schedule_horizon
from ...core.loop.trainer import updates_for
from ...core.trainers import make_trainer
from ..options import CompareOptions, SharedOptions
from ..programs.diff import diff_programs
from ..registry.algorithms import find_algorithm
from ..registry.bounds import Bounds, return_bounds
from ..registry.effects import check_effects
from ..registry.environments import make_env
from ..registry.loading import load_networks_by_library
from ..registry.overrides import from_overrides, overrides_of
from ..report import report
from ..runs import memory
from ..runs.interrupt import raising
from ..runs.plan import check_minimums, default_folder
from ..storage.files import make_new_folder, write_json
from ..storage.lock import locked
from . import against
from .assemble import Finished, assemble
from .cost.measure import measure
from .jobs import Job, Ledger, environments, job_list
from .rungs import RUNGS, rung_of_arithmetic
from .training import networks
from .training.run import BAR, Failure, Progress, run_jobs
from .verdict import identity
from .verdict.causes import find_growth, find_slower
from .verdict.pairs import DIFFERENT, INCONCLUSIVE

BACKENDS = ("haiku", "linen", "nnx", "equinox")
COST_BAR = "{desc:<32.32}{bar} {n_fmt}/{total_fmt} [{elapsed}]"  # counts processes
MAX_PROGRAM_LINES = 200  # of each pair in `comparison.json`
FAIL_ON = {DIFFERENT: (DIFFERENT,), INCONCLUSIVE: (DIFFERENT, INCONCLUSIVE)}


def compare(options: CompareOptions) -> dict[str, Any]:
    """Run a comparison, print its table and write its folder; or continue an interrupted one.

    Returns:
      The contents of `comparison.json`.

    Raises:
      TriglotError: before any process starts, if an option is invalid, a library is not installed
        or the folder holds something else; later, if fewer than two libraries could be trained.
    """
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    options = _with_backends(replace(options, config=config, hyper=hyper))
    before = against.read(options.against, options) if options.against else None
    excluded, bounds = check(options)
    out = options.out
    if out is None:
        out = make_new_folder(default_folder("compare", options.algorithm, options.env))
    options = replace(options, out=out)
    ledger = Ledger.open(out, options)
    jobs = [job for job in job_list(options) if (job.rung, job.backend) not in excluded]
    failures = [
        Failure(job, "translate", excluded[job.rung, job.backend])
        for job in job_list(options)
        if (job.rung, job.backend) in excluded
    ]
    with locked(out), raising():
        failures += _train(options, ledger, jobs)
        done = [job for job in jobs if ledger.is_done(job)]
        _check_enough(options, done, failures)
        finished = Finished(options=options, ledger=ledger, jobs=done, bounds=bounds)
        cost = _measure_costs(options, ledger, done)
        result = assemble(finished, command(options))
        result["cost"] = cost
        result["programs"] = _programs(finished)
        result["failures"] = [failure.as_json() for failure in failures]
        result["code"] = {name: _code(options, name) for name in result["backends"]}
        _add_causes(result, finished)
        result["against"] = (
            against.changes(options.against, before, result) if options.against and before else None
        )
        report.write(out, result)
    print(report.as_text(result))
    for failure in failures:
        print(f"\n{failure.job.backend} ({failure.job.rung}): {failure.message}")
    if result["against"]:
        print(f"\n{result['against']['sentence']}")
    print(f"\n{result['verdict']['sentence']}\n\nReport: {out / report.PAGE}")
    if options.open:
        report.open_report(out)
    return result


def exit_code(options: CompareOptions, result: Mapping[str, Any]) -> int:
    """Give the exit code that `--fail-on` asks for: 1 at that verdict or a worse one, else 0."""
    if options.fail_on is None:
        return 0
    levels = [result["verdict"]["level"], (result["against"] or {}).get("level")]
    return int(any(level in FAIL_ON[options.fail_on] for level in levels))


def _with_backends(options: CompareOptions) -> CompareOptions:
    """Fill in the default libraries: those of the custom networks, or the built-in ones."""
    if options.backends:
        return options
    if not options.network:
        return replace(options, backends=BACKENDS)
    custom = load_networks_by_library(options.network, make_env(options.env))
    return replace(options, backends=tuple(custom))


def check(
    options: CompareOptions,
) -> tuple[dict[tuple[str, str], str], dict[str, Bounds]]:
    """Reject invalid options before anything starts.

    Returns:
      Why a library cannot be trained, by rung and library: custom networks whose weights cannot be
      translated; and the bounds of the return by environment.

    Raises:
      TriglotError: with the option and the nearest valid choice.
    """
    algorithm = find_algorithm(options.algorithm)
    config = from_overrides(algorithm.Config, options.config)
    from_overrides(algorithm.Hyperparams, options.hyper)
    for backend in options.backends:
        libraries.find(backend).require()
    if len(set(options.backends)) < max(2, len(options.backends)):
        raise TriglotError(
            "compare needs at least two backends, each named once; got "
            f"{' '.join(options.backends) or 'none'}."
        )
    if options.arithmetic not in ARITHMETICS:
        raise unknown("arithmetic", options.arithmetic, ARITHMETICS)
    if options.fail_on not in (None, *FAIL_ON):
        raise unknown("verdict", str(options.fail_on), FAIL_ON)
    if options.margin is not None and not options.margin > 0:
        raise TriglotError(f"margin must be a positive return, got {options.margin}.")
    if options.mapping is not None and not options.network:
        raise TriglotError("--mapping has no effect: it pairs custom networks (--network).")
    networks.read_mapping(options.mapping)
    check_minimums(options, num_seeds=1, eval_episodes=1, repetitions=0)
    names = environments(options)
    if len(set(names)) < len(names):
        raise TriglotError(f"each environment is given once; got {' '.join(names)}.")
    excluded: dict[tuple[str, str], str] = {}
    bounds = {}
    for name in names:
        env = make_env(name)
        bounds[name] = return_bounds(env, name)
        excluded |= _check_programs(options, env, config)
    return excluded, bounds


def _check_programs(options: CompareOptions, env: Any, config: Any) -> dict[tuple[str, str], str]:
    """Build every backend's agent, without computing anything, and compare what they need."""
    require_jittable(env)
    check_effects(options, find_algorithm(options.algorithm), env, config)
    rung = rung_of_arithmetic(options.arithmetic)
    agents = {
        backend: networks.build_agent(options, env, backend, rung) for backend in options.backends
    }
    first = agents[options.backends[0]]
    trainer = make_trainer(first, env)
    num_updates = updates_for(trainer, options.total_steps)
    with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
        excluded = _check_weights(options, agents)
        needed = memory.of_training(
            trainer,
            fill_schedule_horizon(first.hyper, num_updates),
            num_seeds=options.num_seeds,
            num_lines=num_updates,
            eval_episodes=options.eval_episodes,
        )
    memory.check(needed, num_seeds=options.num_seeds)
    return excluded


def _check_weights(
    options: CompareOptions, agents: Mapping[str, Any]
) -> dict[tuple[str, str], str]:
    """Find the libraries that cannot start from the first one's weights.

    Raises:
      TriglotError: if none can.
    """
    first, *others = options.backends
    reference = agents[first].network
    mapping = networks.read_mapping(options.mapping)
    why: dict[str, str] = {}
    for backend in others:
        network = agents[backend].network
        try:
            if options.network:
                networks.shared_names(network, reference, mapping.get(backend))
            else:
                shapes = identity.shapes_of(network), identity.shapes_of(reference)
                identity.check_architecture(backend, *shapes)
        except TriglotError as error:
            if not options.network:
                raise
            why[backend] = str(error)
    if len(why) == len(others):
        raise TriglotError(
            f"no network can start from the weights of {first}. {next(iter(why.values()))}"
        )
    return {
        (one.name, backend): message
        for one in RUNGS
        if one.shared_weights
        for backend, message in why.items()
    }


def _train(options: CompareOptions, ledger: Ledger, jobs: list[Job]) -> list[Failure]:
    left = [job for job in jobs if not ledger.is_done(job)]
    if len(left) < len(jobs):
        print(f"continuing: {len(jobs) - len(left)} of {len(jobs)} trainings are done")
    with tqdm(bar_format=BAR, dynamic_ncols=True, leave=False) as bar:
        progress = Progress(bar, num_jobs=len(left))
        try:
            return run_jobs(options, ledger, left, progress)
        except BaseException:
            _say_what_is_left(options, ledger, jobs, progress)
            ledger.drop_if_empty()
            raise


def _say_what_is_left(
    options: CompareOptions, ledger: Ledger, jobs: list[Job], progress: Progress
) -> None:
    done = sum(ledger.is_done(job) for job in jobs)
    if not done and not any(record.updates for record in progress.records.values()):
        return
    print(
        f"The comparison did not finish: {done} of {len(jobs)} trainings are done and kept. "
        f"Continue with the same command and --out {options.out}",
        file=sys.stderr,
    )


def _check_enough(options: CompareOptions, done: list[Job], failures: list[Failure]) -> None:
    """Check that two libraries can be compared."""
    main = rung_of_arithmetic(options.arithmetic).name
    counts = [
        sum((job.env, job.rung) == (env, main) for job in done) for env in environments(options)
    ]
    if max(counts) < 2:
        messages = "; ".join(f"{one.job.backend}: {one.message}" for one in failures)
        raise TriglotError(f"fewer than two libraries could be trained. {messages}")


def _measure_costs(
    options: CompareOptions, ledger: Ledger, done: list[Job]
) -> dict[str, Any] | None:
    """Measure the costs of the libraries that were trained, unless that was done before."""
    main = rung_of_arithmetic(options.arithmetic).name
    backends = [job.backend for job in done if (job.env, job.rung) == (options.env, main)]
    if options.repetitions == 0 or not backends:
        return None
    path = ledger.costs()
    if path.exists():
        found = json.loads(path.read_text())
        if found["repetitions"] == options.repetitions:
            return found["cost"]
    with tqdm(bar_format=COST_BAR, dynamic_ncols=True, leave=False) as bar:
        bar.total = options.repetitions * len(backends)

        def announce(text: str) -> None:
            bar.set_description_str(text)
            bar.update()

        cost = measure(options, backends, options.repetitions, announce=announce)
    shutil.rmtree(path.parent, ignore_errors=True)
    with ledger.writing(path.parent.name) as folder:
        write_json(folder / path.name, {"repetitions": options.repetitions, "cost": cost})
    return cost


def _programs(finished: Finished) -> dict[str, Any]:
    """Describe the training programs, and compare them in pairs."""
    main = rung_of_arithmetic(finished.options.arithmetic)
    records = finished.records(finished.options.env, main)
    pairs = []
    for one, other in itertools.combinations(records, 2):
        found = diff_programs(records[one].program, records[other].program).as_json()
        lines = found["lines"]
        rest = len(lines) - MAX_PROGRAM_LINES
        if rest > 0:
            lines = [*lines[:MAX_PROGRAM_LINES], f"... {rest:,} more lines"]
        pairs.append({"backends": [one, other], **found, "lines": lines})
    facts = {name: record.facts["program"] for name, record in records.items()}
    return {"backends": facts, "pairs": pairs}


def _add_causes(result: dict[str, Any], finished: Finished) -> None:
    """Report memory that grows without an end, and libraries that are slower than another."""
    main = rung_of_arithmetic(finished.options.arithmetic)
    speeds = {
        name: stages["steps_per_second"]
        for name, stages in (result["cost"] or {"backends": {}})["backends"].items()
    }
    best = max(speeds, key=lambda name: speeds[name]["median"], default="")
    for name, record in finished.records(finished.options.env, main).items():
        found = [find_growth(record), find_slower(name, speeds, best) if name in speeds else None]
        result["backends"][name]["causes"] = [cause for cause in found if cause is not None]
        if name in speeds:
            result["backends"][name] |= _costs_in_table(result["cost"]["backends"][name])


def _costs_in_table(stages: Mapping[str, Any]) -> dict[str, Any]:
    """Give the measured costs under the names of a backend's facts."""
    names = {
        "import_library_seconds": "import",
        "trace_seconds": "trace",
        "compile_seconds": "compile",
        "steps_per_second": "steps_per_second",
        "dispatch_microseconds": "dispatch",
    }
    return {name: stages[stage]["median"] for name, stage in names.items() if stage in stages}


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
    names = [one.name for one in fields(options)]
    given = {"algorithm", "env", "config", "hyper", "open", "against", "fail_on"}
    first = [one.name for one in fields(SharedOptions)]
    for name in sorted(names, key=lambda name: (name not in first, names.index(name))):
        value = getattr(options, name)
        if name not in given and value not in (None, (), False):
            words += _option(name, value)
    for name, value in (options.config | options.hyper).items():
        words += _option(name, value)
    return shlex.join(words)


def _option(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, list | tuple) else [value]
    return [f"--{flag}", *(str(each) for each in values)]
