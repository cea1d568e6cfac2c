"""Train the stages of a sweep: the rungs of each round, and the winner again with fresh seeds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from shutil import rmtree

from . import halving
from .batches import Batch, capacities, divide
from .jobs import Sweep, train_batches
from .plan import SweepPlan, describe_setting
from .results import Outcome, outcomes, ranked
from .search import confirm, rounds
from .training import STATE


def stage_of(
    plan: SweepPlan, sizes: Sequence[int], stage: int, settings: Sequence[int], number: int = 0
) -> list[Batch]:
    """Divide the trainings of a stage of a round into batches."""
    spans, is_last = halving.spans(plan, stage), stage == halving.count_rungs(plan)
    prefix = f"{rounds.name_of(number)}-" if number else ""
    return divide(
        plan, sizes, stage=stage, settings=settings, spans=spans, is_last=is_last, prefix=prefix
    )


def train(sweep: Sweep, say: Callable[[str], None]) -> None:
    """Train every round and the winner, and add them to `sweep`.

    Args:
      sweep: with the first stage of the first round.
      say: prints a text.
    """
    plan = sweep.plan
    memory = sweep.executor.bytes_per_job if sweep.executor else None
    done, ended = 0, list[Outcome]()
    for number, size in enumerate(plan.rounds):
        if number:
            plan, sweep.sizes = rounds.next_round(
                sweep.plan,
                sweep.sizes,
                sweep.ledger,
                number,
                ended,
                lambda plan: capacities(plan, memory),
            )
            sweep.plan = plan
            say(_describe(plan, number, size, ended))
        done = _train_round(sweep, number, done)
        ended = sweep.outcomes()
    if plan.options.confirm:
        _confirm(sweep, done, ended)


def _describe(plan: SweepPlan, number: int, size: int, ended: Sequence[Outcome]) -> str:
    best = ranked(ended)[0]
    return (
        f"round {number + 1} of {len(plan.rounds)}: {plan.options.search} proposes {size} "
        f"setting{'' if size == 1 else 's'}; best return of {len(ended)}: {best.score:.4g} "
        f"({describe_setting(best.values)})"
    )


def _train_round(sweep: Sweep, number: int, done: int) -> int:
    """Train every stage of a round; return the environment steps up to now."""
    plan, ledger = sweep.plan, sweep.ledger
    alive = plan.in_round(number)
    for stage in range(halving.count_rungs(plan) + 1):
        if stage:
            scores = {
                outcome.number: outcome.training_score
                for outcome in sweep.outcomes()
                if outcome.number in alive
            }
            alive = halving.survivors(plan, alive, scores)
        if stage or number:
            sweep.stages.append(stage_of(plan, sweep.sizes, stage, alive, number))
        batches, earlier = sweep.stages[-1], sweep.stages[-2] if stage else []
        sweep.names += [batch.name for batch in batches]
        steps = {batch: _steps(plan, batch) for batch in batches}
        total = done + sum(steps.values()) + _later_steps(plan, number, stage)
        where = f"round {number + 1}, " if len(plan.rounds) > 1 else ""
        where += f"rung {stage + 1}, " if plan.options.halving else ""
        train_batches(sweep, steps, earlier, where=where, done=done, total=total)
        done += sum(steps.values())
        for batch in earlier:  # its trainings were stopped, or are continued by now
            rmtree(ledger.folder(batch.name) / STATE, ignore_errors=True)
    return done


def _confirm(sweep: Sweep, done: int, ended: Sequence[Outcome]) -> None:
    """Train the winner of each environment with fresh seeds."""
    best = confirm.winners(sweep.plan, ended)
    fresh = confirm.fresh_plan(sweep.plan, best)
    batches = confirm.batches(fresh, sweep.plan, sweep.sizes)
    sweep.names += [batch.name for batch in batches]
    steps = {batch: _steps(fresh, batch) for batch in batches}
    total = done + sum(steps.values())
    confirming = replace(sweep, plan=fresh, programs={})
    where, of = "fresh seeds, ", sweep.plan.options
    train_batches(confirming, steps, [], where=where, done=done, total=total, best=best, options=of)
    sweep.confirmed = outcomes(fresh, sweep.ledger, [batches])


def _steps(plan: SweepPlan, batch: Batch) -> int:
    """Count the environment steps of all trainings in a batch."""
    per_update = plan.groups[batch.group].experiment.steps_per_update
    return len(batch) * (batch.stop - batch.start) * per_update


def _later_steps(plan: SweepPlan, number: int, stage: int) -> int:
    """Estimate the environment steps that come after a stage of a round.

    The steps per setting of later stages are taken from the settings up to now.
    """

    def of_stages(first: int) -> float:
        total = 0.0
        for later in range(first, len(counts)):
            spans = halving.spans(plan, later)
            steps = [
                (stop - start) * group.experiment.steps_per_update * len(group.settings)
                for group, (start, stop) in zip(plan.groups, spans, strict=True)
            ]
            total += counts[later] * sum(steps) / len(plan.settings)
        return total * plan.options.num_seeds

    counts, sizes = halving.expected(plan), plan.rounds
    whole = of_stages(0)
    later = whole * sum(sizes[number + 1 :]) / sizes[0]
    fresh = whole / counts[0] * (plan.options.confirm or 0) / plan.options.num_seeds
    return int(of_stages(stage + 1) * sizes[number] / sizes[0] + later + fresh)
