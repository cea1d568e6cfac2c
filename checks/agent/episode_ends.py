"""What an environment shows at an episode's end: its true successor, a new start or an old view.

Nothing here knows the environment's rules, so each finding asks for evidence that a sound
environment does not give: ends that look like starts where steps in mid-episode do not, a successor
that follows from the key alone, or an observation that parts there from the state it copied at
every other step.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..environment.case import NUM_STARTS, EnvironmentCase, flat
from ..report import NotApplicable

MIN_ENDS = 3


def resets_itself(case: EnvironmentCase) -> str | None:
    """Say by what signs the state after an episode's end is a new start's, if there are any."""
    _need_ends(case)
    played = case.played
    starts, after = flat(case.starts.state, 1), flat(played.after.state, 2)
    if not after.shape[1]:
        raise NotApplicable("its state holds no numbers.")
    at_ends, in_middle = _alike(starts, after, played.ends), _alike(starts, after, played.middles)
    if at_ends >= 0.9 and in_middle <= 0.5:
        return (
            f"the state after {at_ends:.0%} of {len(played.ends)} episode ends is like that of a "
            f"reset, and after {in_middle:.0%} of the steps in mid-episode"
        )
    if _follows_from_key(case, "state"):
        return (
            "at an episode's end the returned state follows from the key alone: different states "
            "and actions gave the same one, another key another one, as a reset does"
        )
    return None


def wrong_successor(case: EnvironmentCase) -> str | None:
    """Say by what signs the observation at an episode's end is not the last state's."""
    _need_ends(case)
    played = case.played
    if _follows_from_key(case, "obs"):
        return (
            "at an episode's end the returned obs follows from the key alone: different states and "
            "actions gave the same one, another key another one, as a reset does"
        )
    starts, after = flat(case.starts.obs, 1), flat(played.after.obs, 2)
    unchanged = (flat(played.before.obs, 2) == after).all(axis=1)
    moved = flat(played.before.state, 2) != flat(played.after.state, 2)
    # Counters, keys and what else moves in mid-episode while obs stands still need no new obs.
    unseen = moved[played.middles][unchanged[played.middles]].any(axis=0)
    stale = bool((unchanged & (moved & ~unseen).any(axis=1))[played.ends].all())
    fresh = _alike(starts, after, played.ends) >= 0.9
    if not (fresh or stale):
        return None
    told = (
        f"the obs at all {len(played.ends)} episode ends is that of the step before"
        if stale
        else f"the obs at {len(played.ends)} episode ends is like that of a reset"
    )
    broken = _broken_links(case)
    if broken is not None:
        told += ", and parts from the state, from which it follows at all other steps"
        return told if broken else None
    if stale:
        changed = ~unchanged[_comparable_middles(case)]
        if not len(changed) or changed.mean() <= 0.5:
            return None
        return (
            f"{told}; in mid-episode the same actions changed it at {changed.mean():.0%} of steps"
        )
    in_middle = _alike(starts, after, played.middles)
    told += f"; in mid-episode {in_middle:.0%} of them are"
    if in_middle <= 0.5 and np.ptp(starts) == 0:  # a blank may well stand at both ends
        case.notes.append(f"{told}. All is well if this environment ends as it starts.")
        return None
    return told if in_middle <= 0.5 else None


def _need_ends(case: EnvironmentCase) -> None:
    count = len(case.played.ends)
    if count < MIN_ENDS:
        raise NotApplicable(
            f"{count} episodes of two steps or more ended in {case.played.done.size} random steps, "
            f"and it takes {MIN_ENDS} to tell."
        )


def _alike(starts: np.ndarray, values: np.ndarray, rows: np.ndarray) -> float:
    """Give the share of `rows` in which every number lies where a reset may put it."""
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.25 * (high - low)
    chosen = values[rows]
    alike = (chosen >= low - margin) & (chosen <= high + margin)
    return float(alike.all(axis=1).mean()) if len(rows) else 1.0


def _follows_from_key(case: EnvironmentCase, field: str) -> bool:
    """Tell whether steps that end an episode, and no others, forget all but their key."""
    played = case.played
    half = NUM_STARTS // 2
    rows = np.concatenate([np.resize(played.ends, half), np.resize(played.middles, half)])

    def pick(leaf: Any) -> Any:
        return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])[rows]

    state, action = jax.tree.map(pick, (played.before.state, played.action))
    results = []
    for number in (5, 6):
        keys = jnp.broadcast_to(case.key(number), (NUM_STARTS,))
        after = case.call("`step` under jax.vmap", case.steps, state, action, keys)
        ended = np.asarray(after.terminated | after.truncated)
        results.append((flat(getattr(after, field), 1), ended))
    (one, ended), (other, ended_again) = results
    if not one.shape[1]:
        return False
    ends = np.flatnonzero((ended & ended_again)[:half])
    in_middle = one[half:][~ended[half:]]
    if len(np.unique(flat(state, 1)[ends], axis=0)) < 2 or len(in_middle) < 2:
        return False
    # What is drawn anew at every step follows from the key everywhere, and tells nothing.
    remembered = np.ptp(in_middle, axis=0) > 0
    one, other = one[ends][:, remembered], other[ends][:, remembered]
    return bool(np.all(one == one[0]) and np.any(one != other))


def _broken_links(case: EnvironmentCase) -> bool | None:
    """Tell whether numbers of obs that follow linearly from the state stop doing so at the ends.

    Returns:
      None where no number of obs follows linearly from the state in mid-episode.
    """
    played = case.played
    state, obs = flat(played.after.state, 2), flat(played.after.obs, 2)
    known, tested = played.middles[::2], played.middles[1::2]
    if not 0 < state.shape[1] < min(129, len(known) // 4):
        return None
    scale = np.abs(state).max(axis=0)
    state = np.concatenate(
        [state / np.where(scale > 0, scale, 1), np.ones((len(state), 1))], axis=1
    )
    moving = np.ptp(obs[played.middles], axis=0) > 0
    obs = obs[:, moving]
    weights, *_ = np.linalg.lstsq(state[known], obs[known], rcond=None)
    missed = np.abs(state @ weights - obs) > 1e-4 * (1 + np.abs(obs))
    linked = ~missed[known].any(axis=0) & ~missed[tested].any(axis=0)
    if not linked.any():
        return None
    return bool(missed[played.ends][:, linked].any(axis=1).mean() > 0.5)


def _comparable_middles(case: EnvironmentCase) -> np.ndarray:
    """Find the steps in mid-episode whose action, where it is one of few, also ended an episode."""
    played = case.played
    actions = flat(played.action, 2)
    if actions.shape[1] != 1 or not np.issubdtype(np.asarray(played.action).dtype, np.integer):
        return played.middles
    return played.middles[np.isin(actions[played.middles, 0], actions[played.ends, 0])]
