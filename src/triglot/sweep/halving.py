"""Successive halving: train all settings a little, and only the better ones longer.

Source: Jamieson and Talwalkar 2016, https://arxiv.org/abs/1502.07943, algorithm 1, with these
differences. The settings that remain at the end get all of `total_steps`, instead of a share of
one budget. The best `1/eta` are kept, rounded up, where the paper keeps the better half. A setting
is judged by the mean over its seeds of the return of recent training episodes. A learning rate
that decays does so over the whole training, so a setting that is stopped was trained at the start
of its schedule only.
"""

import math
from collections.abc import Mapping, Sequence

from ..core.errors import TriglotError
from .plan import SweepPlan


def count_rungs(plan: SweepPlan) -> int:
    """Count how often settings are stopped: until one remains, or a rung has less than an update.

    Raises:
      TriglotError: if nothing can be stopped.
    """
    if not plan.options.halving:
        return 0
    eta, shortest = plan.options.eta, min(group.num_updates for group in plan.groups)
    left = max(len(_of_env(plan, env)) for env in plan.envs)
    if left == 1:
        raise TriglotError("--halving needs at least two settings: add values to --over.")
    if shortest < eta:
        raise TriglotError(
            f"--halving needs at least {eta} updates (--eta), and this training has {shortest:,}: "
            "raise --total-steps."
        )
    rungs = 0
    while left > 1 and shortest >= eta ** (rungs + 1):
        left, rungs = -(-left // eta), rungs + 1
    return rungs


def spans(plan: SweepPlan, stage: int) -> list[tuple[int, int]]:
    """Give each group's updates before and after a stage; the last stage ends the training."""
    num_rungs = count_rungs(plan)

    def until(num_updates: int, rung: int) -> int:
        return -(-num_updates // plan.options.eta ** (num_rungs - rung))

    return [
        (0 if stage == 0 else until(group.num_updates, stage - 1), until(group.num_updates, stage))
        for group in plan.groups
    ]


def survivors(plan: SweepPlan, settings: Sequence[int], scores: Mapping[int, float]) -> list[int]:
    """Choose the settings that are trained further, in each environment by itself.

    The choice follows from stored arrays alone, so it is not recorded.

    Args:
      plan: the sweep.
      settings: those that were trained up to now.
      scores: of each; NaN, of a setting in which no episode ended, counts as the lowest.

    Returns:
      The best `1/eta` of them, rounded up, in the order of the sweep; all of them in an environment
      where no episode ended.
    """
    kept: list[int] = []
    for env in plan.envs:
        in_env = [number for number in settings if plan.env_of(number) == env]
        known = {n: -math.inf if math.isnan(scores[n]) else scores[n] for n in in_env}
        if all(math.isnan(scores[number]) for number in in_env):
            kept += in_env
            continue
        best = sorted(in_env, key=lambda number: (-known[number], number))
        kept += best[: -(-len(in_env) // plan.options.eta)]
    return sorted(kept)


def expected(plan: SweepPlan) -> list[int]:
    """Count the settings of each stage of a round, if an episode ends before each rung."""
    counts = [[len(_of_env(plan, env))] for env in plan.envs]
    for stages in counts:
        for _ in range(count_rungs(plan)):
            stages.append(-(-stages[-1] // plan.options.eta))
    return [sum(stage) for stage in zip(*counts, strict=True)]


def _of_env(plan: SweepPlan, env: str) -> list[int]:
    """List the settings of the first round, the largest, in an environment."""
    return [number for number in plan.in_round(0) if plan.env_of(number) == env]
