"""Checks that nothing leaks from one episode into another, on a network separated by observation.

Two environments exchange what follows an episode's end, or what precedes it. Whatever is computed
from all steps alike, such as the mean of the advantages or the running scale of rewards, stays as
it was, and what was learned on the other side of the end must stay too.
"""

from collections.abc import Collection

import numpy as np

from ..report import Checklist, Failed, NotApplicable
from ..trees import find_value_difference
from .feeder import LearningCase
from .worlds import REACH, TOLERANCE, EpisodeCase, Kind

CHECKS: Checklist[LearningCase] = Checklist(needs=["learns"])
CLEAR = 3 * TOLERANCE  # an effect that is neither rounding nor missed by another of about its size


@CHECKS.check()
def _later_episodes(case: LearningCase) -> str:
    """Is what was learned up to an episode's end independent of what follows it?

    Why: A return that goes on over an end adds the rewards and values of another episode, which
    these actions did not earn.

    Fix: Cut sums, lambda-returns and traces where terminated | truncated; bootstrap from next_obs,
    not from the next row of obs.
    """
    episodes = EpisodeCase.of(case)
    episodes.require_learning()
    for kind in ("terminated", "truncated"):
        moved = episodes.effects((kind, "nothing"), (kind, "later")) > CLEAR
        back = _distances(episodes, moved, kind, later=False)
        if back:
            _require_no_statistic(episodes, kind)
            raise Failed(
                f"at {kind} ends, with another episode after them, what was learned of the steps "
                f"{_listed(back)} before the end changed (0: the last step)."
            )
    return episodes.compared("compared before and after another episode follows")


@CHECKS.check(needs=["later episodes"])
def _earlier_episodes(case: LearningCase) -> str:
    """Is what is done and learned after an episode's end independent of what preceded it?

    Why: A carry, a trace or a running return that is not reset takes one episode into the next.

    Fix: Start from the initial carry where `first` is True, in act and in update; reset what is
    kept for each environment where terminated | truncated.
    """
    episodes = EpisodeCase.of(case)
    for kind in ("terminated", "truncated"):
        base, other = (episodes.worlds[kind, what] for what in ("nothing", "earlier"))
        after, changed = (episodes.played_later(world) for world in (base, other))
        if difference := find_value_difference("", after, changed, rtol=1e-4, atol=1e-5):
            raise Failed(
                f"at {kind} ends, with another episode before them, what act returns: {difference}."
            )
    episodes.require_learning()
    for kind in ("terminated", "truncated"):
        moved = episodes.effects((kind, "nothing"), (kind, "earlier")) > CLEAR
        if on := _distances(episodes, moved, kind, later=True):
            _require_no_statistic(episodes, kind)
            raise Failed(
                f"at {kind} ends, with another episode before them, what was learned of the steps "
                f"{_listed(on)} after the end changed (1: the first step)."
            )
    return episodes.compared("compared after another episode preceded")


@CHECKS.check(needs=["earlier episodes"])
def _last_steps(case: LearningCase) -> str:
    """Do the reward and the true successor of an episode's last step teach as those of other steps?

    Why: A return that is cut one step early never learns from the last reward, often the only one.

    Fix: The reward of a step that ends an episode belongs to it and to the steps before; a
    truncated step adds the value of its next_obs. If the agent does not bootstrap, declare
    bootstraps = False: it may then leave truncated episodes out.
    """
    episodes = EpisodeCase.of(case)
    episodes.require_learning()
    within = _effects(episodes, "nowhere", "its reward")
    if not any(within.values()):
        raise Failed("a reward has no effect on what is learned of the step and of those before.")
    kinds: tuple[Kind, ...] = ("terminated", "truncated")
    for kind in kinds if episodes.agent.bootstraps else kinds[:1]:
        effects = _effects(episodes, kind, "its reward")
        if missing := [away for away in within if within[away] > CLEAR and not effects[away]]:
            raise Failed(
                f"another reward at the last step changes nothing at the steps {_listed(missing)} "
                f"before a {kind} end (0: the last step), unlike a reward within an episode."
            )
    if episodes.agent.bootstraps:
        effects = _effects(episodes, "truncated", "its next_obs")
        # Another value may change much less than another reward, and further back still less.
        share = effects[0] / within[0] if within[0] else 1.0
        expected = [away for away in within if within[away] * min(1.0, share) > CLEAR]
        # Where a reward moves later steps too, as by the mean of all, it does not tell the reach.
        moved = episodes.effects(("nowhere", "nothing"), ("nowhere", "its reward")) > TOLERANCE
        if _distances(episodes, moved, "nowhere", later=True):
            expected = []
        if missing := [away for away in {0, *expected} if not effects[away]]:
            raise Failed(
                f"another next_obs of a truncated step changes nothing at the steps "
                f"{_listed(missing)} before the end (0: the last step)."
            )
    return episodes.compared("compared with another last reward and successor")


def _require_no_statistic(episodes: EpisodeCase, kind: Kind) -> None:
    """Raise `NotApplicable` if all steps change together, so that a leak would not be told."""
    if episodes.samples_a_statistic(kind):
        raise NotApplicable(
            "not checked: another episode in two environments changes what is learned of the "
            "others, as by a mean over steps that a replay samples."
        )


def _effects(episodes: EpisodeCase, kind: Kind, change: str) -> dict[int, float]:
    """Measure the effect of a change at an end by the steps before it, 0 to `REACH` - 1.

    Effects of at most `TOLERANCE` are 0.
    """
    effects = episodes.effects((kind, "nothing"), (kind, change))
    away = episodes.cut - episodes.time
    of_steps = effects[episodes.worlds[kind, "nothing"].obs]
    largest = {steps: float(of_steps[away == steps].max(initial=0.0)) for steps in range(REACH)}
    return {steps: effect if effect > TOLERANCE else 0.0 for steps, effect in largest.items()}


def _distances(episodes: EpisodeCase, moved: np.ndarray, kind: Kind, *, later: bool) -> set[int]:
    """Measure how many steps from the end those are whose observations `moved`.

    Args:
      episodes: the case.
      moved: bool `[P]`.
      kind: of the world.
      later: whether to look at the steps after the end, or at the last `REACH` up to it.
    """
    away = episodes.time - episodes.cut
    where = moved[episodes.worlds[kind, "nothing"].obs] & ((away > 0) == later)
    if not later:
        where &= away > -REACH
    return {int(distance) for distance in np.abs(away[where])}


def _listed(distances: Collection[int]) -> str:
    return ", ".join(map(str, sorted(distances)))
