"""Train the best setting again with fresh seeds, which did not choose it."""

from collections.abc import Sequence
from dataclasses import replace

from ...core.errors import counted
from ...core.records import JSON
from ...shared.pages import numbers
from ...shared.statistics.estimate import mean
from ..batches import Batch, divide
from ..plan import SweepPlan, extended
from ..results import Outcome, bounds_by_env, ranked

PREFIX = "confirm-"


def winners(plan: SweepPlan, outcomes: Sequence[Outcome]) -> list[int]:
    """List the number of the best setting of each environment."""
    return [
        ranked([outcome for outcome in outcomes if outcome.env == env])[0].number
        for env in plan.envs
    ]


def fresh_plan(plan: SweepPlan, best: Sequence[int]) -> SweepPlan:
    """Plan the trainings of some settings with the seeds of the next `--seed`.

    They are those of `triglot train --config best.toml --seed SEED+1 --num-seeds N`, which no
    setting of the sweep was trained with.
    """
    options = replace(
        plan.options,
        seed=plan.options.seed + 1,
        num_seeds=plan.options.confirm,
        search=None,
        search_batch=None,
        num_settings=None,
        halving=False,
    )
    empty = SweepPlan(options=options, settings=(), groups=())
    return extended(empty, [dict(plan.settings[number]) for number in best])


def batches(fresh: SweepPlan, plan: SweepPlan, sizes: Sequence[int]) -> list[Batch]:
    """Divide the trainings of `fresh_plan` into batches of the sizes that the sweep has."""
    by_program = {group.program: size for group, size in zip(plan.groups, sizes, strict=True)}
    return divide(
        fresh,
        [by_program[group.program] for group in fresh.groups],
        stage=0,
        settings=range(len(fresh.settings)),
        spans=[(0, group.num_updates) for group in fresh.groups],
        is_last=True,
        prefix=PREFIX,
    )


def as_json(plan: SweepPlan, confirmed: Sequence[Outcome]) -> JSON:
    """Describe the returns on fresh seeds for `sweep.json`, by environment."""
    bounds = bounds_by_env(plan)
    return {
        outcome.env: {
            "seed": plan.options.seed + 1,
            "num_seeds": len(outcome.returns),
            "return": mean(outcome.known, bounds.get(outcome.env)).as_json()
            if len(outcome.known)
            else None,
            "returns": outcome.returns,
            "num_diverged": outcome.num_diverged,
        }
        for outcome in confirmed
    }


def sentence(result: JSON, env: str) -> str:
    """Say the return on fresh seeds beside that on the seeds that selected; empty without one."""
    confirmed = result["confirmed"].get(env)
    if confirmed is None:
        return ""
    of_env = [record for record in result["settings"] if record["env"] == env]
    fresh, chosen = (
        numbers.with_interval(estimate, numbers.returns) if estimate else "none"
        for estimate in (confirmed["return"], of_env[0]["return"])
    )
    diverged = confirmed["num_diverged"]
    also = f", of which {diverged} diverged" if diverged else ""
    return (
        f"Return with {counted(confirmed['num_seeds'], 'fresh seed')} (--seed {confirmed['seed']}"
        f"{also}): {fresh}. The return that selected the setting, {chosen}, is biased upwards: it "
        f"is the best of {len(of_env):,}."
    )
