"""`triglot sweep`: train many settings, rank them, and write a report."""

from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..core.errors import counted
from ..core.records import JSON
from ..runs.devices import most_devices
from ..runs.jobs.choose import ALL, CORES, DEVICES, ONE, Executor, choose_devices
from ..runs.jobs.ledger import FILE, Ledger, read_facts
from ..runs.jobs.options import continuing
from ..runs.plan import default_folder
from ..runs.registry.environments import with_resolved_runs
from ..runs.registry.overrides import overrides_of
from ..runs.registry.presets.describe import announcement
from ..runs.storage.records import locked
from ..shared.machine.files import check_free, make_new_folder
from ..shared.machine.interrupt import Interrupt, Signalled, raising
from ..shared.pages.page import PAGE, open_report
from ..shared.pages.tables import as_text
from ..shared.terminal.progress import phase
from ..shared.terminal.wrapping import wrapped
from . import halving, logs, report
from .batches import capacities, describe
from .jobs import WHAT, Sweep, computing, sweep_executor
from .options import SweepCommandOptions
from .plan import SweepPlan, describe_setting, make_plan
from .results import SHOWN, ranking_table
from .search.choices import check_installed, has_rounds
from .search.confirm import sentence
from .stages import stage_of, train
from .training import has_checkpoint

# Options of `report.MACHINE` that a command which continues has as well.
CONTINUING = set(report.MACHINE) - {"preset", "no_preset"}


def sweep(options: SweepCommandOptions) -> tuple[int, JSON | None]:
    """Run a sweep, print its ranking and write its folder; or continue an interrupted one.

    Args:
      options: what was chosen.

    Returns:
      The exit code, 0, or 128 and the number of the signal after Ctrl-C, SIGTERM or SIGHUP; and the
      contents of `sweep.json`, None after an interruption.

    Raises:
      TriglotError: before anything compiles, if an option or a swept value is invalid, more memory
        is needed than is free, or the folder holds something else.
    """
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    env = with_resolved_runs(options.env)  # a sweep may be continued from another folder
    options = replace(options, env=env, config=config, hyper=hyper)
    out = options.out
    if out is not None and not (out / FILE).exists():
        check_free(out)
    logs.check(options)
    with phase("building"):
        plan = make_plan(options)
        check_installed(options)
        halving.count_rungs(plan)  # refuses what cannot be halved
        sizes = capacities(plan)
        batches = stage_of(plan, sizes, 0, plan.in_round(0))
    begun = read_facts(out, WHAT)
    executor = sweep_executor(plan, begun, len(batches))
    with closing(executor) if executor else nullcontext():
        devices = choose_devices(options.devices, out, WHAT, begun, executor, most_devices)
        plan = replace(plan, options=replace(plan.options, devices=devices))
        try:
            return 0, _sweep(plan, sizes, executor, out)
        except Signalled as signalled:
            return 128 + signalled.number, None


def _sweep(plan: SweepPlan, sizes: list[int], executor: Executor | None, out: Path | None) -> JSON:
    options = plan.options
    folder = out or default_folder("sweep", options.algorithm, options.env)
    memory = None
    if executor is not None:
        executor.prepare(folder)
        memory = executor.bytes_per_job
        sizes = capacities(plan, memory)
    if out is None:
        out = make_new_folder(folder)
    facts = {"sizes": sizes, CORES: ONE if executor else ALL, DEVICES: options.devices}
    ledger = Ledger.open(out, what=WHAT, options=computing(options), facts=facts)
    interrupt = Interrupt()
    sizes = ledger.facts["sizes"]
    first = stage_of(plan, sizes, 0, plan.in_round(0))
    current = Sweep(plan, ledger, executor, interrupt, sizes, stages=[first])
    continues = ledger.continuable(
        current.names,
        "batches",
        partial(has_checkpoint, ledger),
        continuing(report.command(options), replace(options, out=out), CONTINUING),
    )
    with locked(out), continues:
        ledger.tidy()
        batches = describe(plan, first, memory)
        if executor is not None:
            batches += f"; {executor.title}"
        elif options.devices is not None and options.devices > 1:
            batches += f"; at most {counted(options.devices, 'device')}"
        print(wrapped(_announcement(plan, batches)), flush=True)
        if num_done := sum(ledger.is_done(batch.name) for batch in first):
            print(f"continuing: {num_done} of {len(first)} batches are done", flush=True)
        with interrupt:
            train(current, lambda text: print(wrapped(text), flush=True))
        with raising(), phase("writing the report"):
            outcomes = current.outcomes()
            rungs = _describe_rungs(plan) if options.halving else None
            result = report.result_of(
                current.plan,
                outcomes,
                batches=batches,
                halving=rungs,
                confirmed=current.confirmed,
            )
            report.write(out, current.plan, result, outcomes)
            logs.send(out, current.plan, outcomes)
    print(_ending(result, out))
    if options.open:
        open_report(out)
    return result


def _announcement(plan: SweepPlan, batches: str) -> str:
    options = plan.options
    per_update = {group.experiment.steps_per_update for group in plan.groups}
    steps = sorted({group.experiment.num_steps for group in plan.groups})
    lines = [
        *announcement(options),
        f"{options.algorithm} on {', '.join(plan.envs)}, over {', '.join(plan.names)}:",
        batches,
        f"{' or '.join(f'{number:,}' for number in steps[:4])} steps each, "
        f"{len(plan.groups)} program{'' if len(plan.groups) == 1 else 's'}",
    ]
    if any(options.total_steps % number for number in per_update):
        lines[-1] += f" ({options.total_steps:,} rounded up to whole rollouts)"
    for group in plan.groups:
        starts, total = group.experiment.agent.learning_starts, group.options.total_steps
        if starts > total:
            lines.append(
                f"warning: {group.options.algorithm} will learn nothing, because learning starts "
                f"after {starts:,} steps (--learning-starts) and the run has {total:,}"
            )
            break
    if has_rounds(options):
        rounds = (
            f"{counted(len(plan.rounds), 'round')} of {plan.rounds[0]}, the first drawn at random"
        )
        lines.append(f"search: {options.search}, {options.num_settings} settings in {rounds}")
    if options.halving:
        lines.append(_describe_rungs(plan))
    return "\n".join(lines)


def _describe_rungs(plan: SweepPlan) -> str:
    counts, num_rungs = halving.expected(plan), halving.count_rungs(plan)
    shares = [plan.options.eta ** (num_rungs - rung) for rung in range(num_rungs)]
    parts = [
        f"{counted(count, 'setting')} until 1/{share} of the steps"
        for count, share in zip(counts, shares, strict=False)
    ]
    last = f"{counted(counts[-1], 'setting')} to the end"
    return f"successive halving: {', '.join([*parts, last])}"


def _ending(result: JSON, out: Path) -> str:
    """Format the table and what is in the folder."""
    table = ranking_table(result)
    lines = [as_text(replace(table, records=table.records[:SHOWN]))]
    if len(table.records) > SHOWN:
        lines.append(f"... {len(table.records) - SHOWN:,} more settings: {out / 'ranking.csv'}")
    lines.append("")
    for env, name in result["best"].items():
        best = next(record for record in result["settings"] if record["env"] == env)
        where = f" on {env}" if len(result["best"]) > 1 else ""
        lines.append(wrapped(f"best{where}: {describe_setting(best['values'])}; train it again by"))
        lines.append(wrapped(f"  triglot train --config {out / name} --seed 1"))
        lines += [
            wrapped(said) for said in (result["separation"][env], sentence(result, env)) if said
        ]
    return "\n".join([*lines, f"Report: {out / PAGE}"])
