"""Train the stages of a sweep: the rungs of each round, and the winner again with fresh seeds."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from shutil import rmtree

from . import halving
from .batches import Batch, capacities, divide
from .jobs import Sweep, train_batches
from .plan import SweepPlan, describe_setting
from .results import Outcome, outcomes, ranked
from .search import confirm, rounds
from .training import STATE


@dataclass
class Course:
    """How far a sweep is.

    Attributes:
      sweep: with the settings of all rounds up to now.
      sizes: the most trainings in a batch, by group.
      stages: the batches of each stage up to now.
      names: of all batches up to now.
      confirmed: the winners' outcomes with fresh seeds.
    """

    sweep: Sweep
    sizes: list[int]
    stages: list[list[Batch]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    confirmed: list[Outcome] = field(default_factory=list)

    @property
    def plan(self) -> SweepPlan:
        """The sweep's plan, with the settings of all rounds up to now."""
        return self.sweep.plan

    def outcomes(self) -> list[Outcome]:
        """Read the outcomes of all settings up to now."""
        return outcomes(self.plan, self.sweep.ledger, self.stages)


def stage_of(
    plan: SweepPlan, sizes: Sequence[int], stage: int, settings: Sequence[int], number: int = 0
) -> list[Batch]:
    """Divide the trainings of a stage of a round into batches."""
    spans, is_last = halving.spans(plan, stage), stage == halving.count_rungs(plan)
    prefix = f"{rounds.name_of(number)}-" if number else ""
    return divide(
        plan, sizes, stage=stage, settings=settings, spans=spans, is_last=is_last, prefix=prefix
    )


def train(course: Course, say: Callable[[str], None]) -> None:
    """Train every round and the winner, and add them to `course`.

    Args:
      course: of the sweep.
      say: prints a text.
    """
    plan = course.plan
    memory = course.sweep.executor.bytes_per_job if course.sweep.executor else None
    done, ended = 0, list[Outcome]()
    for number, size in enumerate(plan.rounds):
        if number:
            plan, course.sizes = rounds.next_round(
                course.plan,
                course.sizes,
                course.sweep.ledger,
                number,
                ended,
                lambda plan: capacities(plan, memory),
            )
            course.sweep = replace(course.sweep, plan=plan)
            say(_describe(plan, number, size, ended))
        done = _train_round(course, number, done)
        ended = course.outcomes()
    if plan.options.confirm:
        _confirm(course, done, ended)


def _describe(plan: SweepPlan, number: int, size: int, ended: Sequence[Outcome]) -> str:
    best = ranked(ended)[0]
    return (
        f"round {number + 1} of {len(plan.rounds)}: {plan.options.search} proposes {size} "
        f"setting{'' if size == 1 else 's'}; best return of {len(ended)}: {best.score:.4g} "
        f"({describe_setting(best.values)})"
    )


def _train_round(course: Course, number: int, done: int) -> int:
    """Train every stage of a round; return the environment steps up to now."""
    plan, ledger = course.plan, course.sweep.ledger
    alive = plan.in_round(number)
    for stage in range(halving.count_rungs(plan) + 1):
        if stage:
            scores = {
                outcome.number: outcome.training_score
                for outcome in course.outcomes()
                if outcome.number in alive
            }
            alive = halving.survivors(plan, alive, scores)
        if stage or number:
            course.stages.append(stage_of(plan, course.sizes, stage, alive, number))
        batches, earlier = course.stages[-1], course.stages[-2] if stage else []
        course.names += [batch.name for batch in batches]
        steps = {batch: _steps(plan, batch) for batch in batches}
        total = done + sum(steps.values()) + _later_steps(plan, number, stage)
        where = f"round {number + 1}, " if len(plan.rounds) > 1 else ""
        where += f"rung {stage + 1}, " if plan.options.halving else ""
        train_batches(course.sweep, steps, earlier, where=where, done=done, total=total)
        done += sum(steps.values())
        for batch in earlier:  # its trainings were stopped, or are continued by now
            rmtree(ledger.folder(batch.name) / STATE, ignore_errors=True)
    return done


def _confirm(course: Course, done: int, ended: Sequence[Outcome]) -> None:
    """Train the winner of each environment with fresh seeds."""
    best = confirm.winners(course.plan, ended)
    fresh = confirm.fresh_plan(course.plan, best)
    batches = confirm.batches(fresh, course.plan, course.sizes)
    course.names += [batch.name for batch in batches]
    steps = {batch: _steps(fresh, batch) for batch in batches}
    total = done + sum(steps.values())
    sweep = replace(course.sweep, plan=fresh, programs={})
    where, of = "fresh seeds, ", course.plan.options
    train_batches(sweep, steps, [], where=where, done=done, total=total, best=best, options=of)
    course.confirmed = outcomes(fresh, sweep.ledger, [batches])


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
