"""`triglot sweep`: train many settings, rank them, and write a report."""

from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from ..jobs.choose import ALL, CORES, DEVICES, ONE, Executor, choose_devices
from ..jobs.ledger import FILE, Ledger, read_facts
from ..jobs.options import continuing
from ..machine.files import check_free, make_new_folder
from ..machine.interrupt import Interrupt, Signalled, raising
from ..registry.overrides import overrides_of
from ..registry.presets.describe import announcement
from ..report.page import PAGE, open_report
from ..report.tables import as_text
from ..terminal.progress import phase
from ..terminal.wrapping import wrapped
from ..training.devices import most_devices
from ..training.plan import default_folder
from ..training.storage.records import locked
from . import halving, report
from .batches import Batch, capacities, describe, divide
from .jobs import WHAT, Sweep, computing, sweep_executor, train_batches
from .options import SweepOptions
from .plan import SweepPlan, describe_setting, make_plan
from .results import SHOWN, outcomes, ranking_table
from .training import STATE, has_checkpoint

# Options of `report.MACHINE` that a command which continues has as well.
CONTINUING = set(report.MACHINE) - {"preset", "no_preset"}


def sweep(options: SweepOptions) -> tuple[int, dict[str, Any] | None]:
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
    options = replace(options, config=config, hyper=hyper)
    out = options.out
    if out is not None and not (out / FILE).exists():
        check_free(out)
    with phase("building"):
        plan = make_plan(options)
        halving.count_rungs(plan)  # refuses what cannot be halved
        sizes = capacities(plan)
        batches = _stage(plan, sizes, 0, range(len(plan.settings)))
    begun = read_facts(out, WHAT)
    executor = sweep_executor(plan, begun, len(batches))
    with closing(executor) if executor else nullcontext():
        devices = choose_devices(options.devices, out, WHAT, begun, executor, most_devices)
        plan = replace(plan, options=replace(plan.options, devices=devices))
        try:
            return 0, _sweep(plan, sizes, executor, out)
        except Signalled as signalled:
            return 128 + signalled.number, None


def _sweep(
    plan: SweepPlan, sizes: list[int], executor: Executor | None, out: Path | None
) -> dict[str, Any]:
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
    stages, names = [_stage(plan, ledger.facts["sizes"], 0, range(len(plan.settings)))], list[str]()
    continues = ledger.continuable(
        names,
        "batches",
        partial(has_checkpoint, ledger),
        continuing(report.command(options), replace(options, out=out), CONTINUING),
    )
    with locked(out), continues:
        ledger.tidy()
        batches = describe(plan, stages[0], memory)
        if executor is not None:
            batches += f"; {executor.title}"
        elif options.devices is not None and options.devices > 1:
            batches += f", divided among at most {options.devices} devices"
        print(wrapped(_announcement(plan, batches)), flush=True)
        if num_done := sum(ledger.is_done(batch.name) for batch in stages[0]):
            print(f"continuing: {num_done} of {len(stages[0])} batches are done", flush=True)
        with Interrupt() as interrupt:
            _train(Sweep(plan, ledger, executor, interrupt), stages, names)
        with raising(), phase("writing the report"):
            found = outcomes(plan, ledger, stages)
            rungs = _describe_rungs(plan) if options.halving else None
            result = report.result_of(plan, found, batches=batches, halving=rungs)
            report.write(out, plan, result, found)
    print(_ending(result, out))
    if options.open:
        open_report(out)
    return result


def _stage(
    plan: SweepPlan, sizes: Sequence[int], stage: int, settings: Sequence[int]
) -> list[Batch]:
    spans, is_last = halving.spans(plan, stage), stage == halving.count_rungs(plan)
    return divide(plan, sizes, stage=stage, settings=settings, spans=spans, is_last=is_last)


def _train(sweep: Sweep, stages: list[list[Batch]], names: list[str]) -> None:
    """Train every stage, whose batches are added to `stages`, and their names to `names`."""
    plan, ledger = sweep.plan, sweep.ledger
    alive, done = list(range(len(plan.settings))), 0
    for stage in range(halving.count_rungs(plan) + 1):
        if stage:
            scores = {
                one.number: one.training_score
                for one in outcomes(plan, ledger, stages)
                if one.number in alive
            }
            alive = halving.survivors(plan, alive, scores)
            stages.append(_stage(plan, ledger.facts["sizes"], stage, alive))
        batches, earlier = stages[-1], stages[-2] if stage else []
        names += [batch.name for batch in batches]
        steps = {batch: _steps(plan, batch) for batch in batches}
        total = done + sum(steps.values()) + _later_steps(plan, stage)
        train_batches(sweep, steps, earlier, stage=stage, done=done, total=total)
        done += sum(steps.values())
        for batch in earlier:  # its trainings were stopped, or are continued by now
            rmtree(ledger.folder(batch.name) / STATE, ignore_errors=True)


def _steps(plan: SweepPlan, batch: Batch) -> int:
    """Count the environment steps of all trainings in a batch."""
    per_update = plan.groups[batch.group].trainer.steps_per_update
    return len(batch) * (batch.stop - batch.start) * per_update


def _later_steps(plan: SweepPlan, stage: int) -> int:
    """Estimate the environment steps of later stages from the steps per setting of this one."""
    counts, total = halving.expected(plan), 0.0
    for later in range(stage + 1, len(counts)):
        spans = halving.spans(plan, later)
        each = [
            (stop - start) * group.trainer.steps_per_update * len(group.settings)
            for group, (start, stop) in zip(plan.groups, spans, strict=True)
        ]
        total += counts[later] * sum(each) / len(plan.settings)
    return int(total * plan.options.num_seeds)


def _announcement(plan: SweepPlan, batches: str) -> str:
    options = plan.options
    per_update = {group.trainer.steps_per_update for group in plan.groups}
    steps = sorted({g.num_updates * g.trainer.steps_per_update for g in plan.groups})
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
        starts, total = group.trainer.agent.learning_starts, group.options.total_steps
        if starts > total:
            lines.append(
                f"warning: {group.options.algorithm} will learn nothing, because learning starts "
                f"after {starts:,} steps (--learning-starts) and the run has {total:,}"
            )
            break
    if options.halving:
        lines.append(f"successive halving: {_describe_rungs(plan)}")
    return "\n".join(lines)


def _describe_rungs(plan: SweepPlan) -> str:
    counts, num_rungs = halving.expected(plan), halving.count_rungs(plan)
    shares = [plan.options.eta ** (num_rungs - rung) for rung in range(num_rungs)]
    parts = [
        f"{count:,} settings until 1/{share} of the steps"
        for count, share in zip(counts, shares, strict=False)
    ]
    last = f"{counts[-1]:,} setting{'' if counts[-1] == 1 else 's'} to the end"
    return ", ".join([*parts, last])


def _ending(result: dict[str, Any], out: Path) -> str:
    """Format the table and what is in the folder."""
    table = ranking_table(result)
    lines = [as_text(replace(table, records=table.records[:SHOWN]))]
    if len(table.records) > SHOWN:
        lines.append(f"... {len(table.records) - SHOWN:,} more settings: {out / 'ranking.csv'}")
    lines.append("")
    for env, name in result["best"].items():
        best = next(one for one in result["settings"] if one["env"] == env)
        where = f" on {env}" if len(result["best"]) > 1 else ""
        lines.append(wrapped(f"best{where}: {describe_setting(best['values'])}; train it again by"))
        lines.append(wrapped(f"  triglot train --config {out / name} --seed 1"))
        lines += [wrapped(said) for said in [result["separation"][env]] if said]
    return "\n".join([*lines, f"Report: {out / PAGE}"])
