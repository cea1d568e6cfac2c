"""Find out whether the state and observation at an episode's end are the true successors.

The rules of the environment are unknown here, so each finding needs evidence that a correct
environment does not give: ends that look like starts although other steps do not, a successor
that depends on the key alone, or an observation that stops following the state at episode ends.
"""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from ..report import NotApplicable
from ..trees import flat
from .case import NUM_STARTS, EnvironmentCase, Episodes

MIN_ENDS = 3


def resets_itself(case: EnvironmentCase) -> str:
    """Describe the evidence that `step` resets at an episode's end; "" if there is none."""
    rollout = case.rollout
    require_ends(rollout)
    starts, after = flat(case.starts.state, 1), flat(rollout.after.state, 2)
    if not after.shape[1]:
        raise NotApplicable("its state contains no arrays.")
    return ends_like_starts("state", rollout, starts, after) or _follows_from_key(case, "state")


def wrong_successor(case: EnvironmentCase) -> str:
    """Describe the evidence that the last observation is not of the last state, or ""."""
    rollout = case.rollout
    require_ends(rollout)
    if problem := _follows_from_key(case, "obs"):
        return problem
    starts, after = flat(case.starts.obs, 1), flat(rollout.after.obs, 2)
    unchanged = (flat(rollout.before.obs, 2) == after).all(axis=1)
    moved = flat(rollout.before.state, 2) != flat(rollout.after.state, 2)
    # Counters, keys and other values may change in mid-episode without a change of obs.
    unobserved = moved[rollout.middles][unchanged[rollout.middles]].any(axis=0)
    stale = bool((unchanged & (moved & ~unobserved).any(axis=1))[rollout.ends].all())
    fresh = _alike(starts, after, rollout.ends) >= 0.9
    if not (fresh or stale):
        return ""
    text = (
        f"the obs at all {len(rollout.ends)} episode ends equals that of the step before"
        if stale
        else f"the obs at {len(rollout.ends)} episode ends looks like that of a reset"
    )
    if (broken := _broken_links(case)) is not None:
        text += ", and does not match the state, as it does at all other steps"
        return text if broken else ""
    if stale:
        changed = ~unchanged[_comparable_middles(case)]
        if not len(changed) or changed.mean() <= 0.5:
            return ""
        return (
            f"{text}; in mid-episode the same actions changed it at {changed.mean():.0%} of steps"
        )
    in_middle = _alike(starts, after, rollout.middles)
    text += f"; in mid-episode {in_middle:.0%} do"
    if in_middle <= 0.5 and np.ptp(starts) == 0:  # a blank observation may be at both ends
        case.notes.append(f"{text}. This is correct if episodes end as they start.")
        return ""
    return text if in_middle <= 0.5 else ""


def require_ends(episodes: Episodes) -> None:
    """Raise `NotApplicable` if too few episodes ended to tell anything."""
    count = len(episodes.ends)
    if count < MIN_ENDS:
        raise NotApplicable(
            f"only {count} episodes of at least two steps ended in {episodes.done.size} random "
            f"steps; at least {MIN_ENDS} are needed."
        )


def ends_like_starts(name: str, episodes: Episodes, starts: np.ndarray, after: np.ndarray) -> str:
    """Describe the evidence that what follows ends, but not other steps, is a start; or ""."""
    at_ends = _alike(starts, after, episodes.ends)
    in_middle = _alike(starts, after, episodes.middles)
    if at_ends < 0.9 or in_middle > 0.5:
        return ""
    return (
        f"the {name} after {at_ends:.0%} of {len(episodes.ends)} episode ends looks like "
        f"that of a reset, but only after {in_middle:.0%} of the other steps"
    )


def notes_of_lengths(episodes: Episodes, *, truncated: bool, advice: str) -> Iterator[str]:
    """Note that no episode ended, or that all have one length, which may be a time limit.

    Args:
      episodes: of random actions.
      truncated: whether any of them was truncated.
      advice: what to do where that is a time limit.
    """
    lengths = episodes.time[episodes.done]
    if not len(lengths):
        yield f"No episode ended in {episodes.done.size} random steps."
    elif len(lengths) >= 4 and lengths.min() == lengths.max() >= 10 and not truncated:
        yield (
            f"All {len(lengths)} episodes terminated after {lengths[0]} steps. If that is a time "
            f"limit and not part of the task, {advice}."
        )


def _alike(starts: np.ndarray, values: np.ndarray, rows: np.ndarray) -> float:
    """Return the fraction of `rows` whose values are all in the range of the starts."""
    low, high = starts.min(axis=0), starts.max(axis=0)
    margin = 0.25 * (high - low)
    chosen = values[rows]
    alike = (chosen >= low - margin) & (chosen <= high + margin)
    return float(alike.all(axis=1).mean()) if len(rows) else 1.0


def _follows_from_key(case: EnvironmentCase, field: str) -> str:
    """Describe the evidence that only at ends a step's result depends on nothing but the key."""
    rollout = case.rollout
    half = NUM_STARTS // 2
    rows = np.concatenate([np.resize(rollout.ends, half), np.resize(rollout.middles, half)])

    def pick(leaf: jax.Array) -> jax.Array:
        return leaf.reshape(leaf.shape[0] * leaf.shape[1], *leaf.shape[2:])[rows]

    state, action = jax.tree.map(pick, (rollout.before.state, rollout.action))
    results = []
    for number in (5, 6):
        keys = jnp.broadcast_to(case.key(number), (NUM_STARTS,))
        after = case.step.batched(state, action, keys)
        ended = np.asarray(after.terminated | after.truncated)
        results.append((flat(getattr(after, field), 1), ended))
    (one, ended), (other, ended_again) = results
    if not one.shape[1]:
        return ""
    ends = np.flatnonzero((ended & ended_again)[:half])
    in_middle = one[half:][~ended[half:]]
    if len(np.unique(flat(state, 1)[ends], axis=0)) < 2 or len(in_middle) < 2:
        return ""
    # Values that are drawn at every step always depend on the key alone.
    remembered = np.ptp(in_middle, axis=0) > 0
    one, other = one[ends][:, remembered], other[ends][:, remembered]
    if np.any(one != one[0]) or np.all(one == other):
        return ""
    return (
        f"at an episode's end the returned {field} depends on the key alone, as after a reset: it "
        "is equal for different states and actions, and differs for another key"
    )


def _broken_links(case: EnvironmentCase) -> bool | None:
    """Return True if elements of obs are linear in the state, but not at episode ends.

    Returns:
      None if no element of obs is linear in the state in mid-episode.
    """
    rollout = case.rollout
    state, obs = flat(rollout.after.state, 2), flat(rollout.after.obs, 2)
    known, tested = rollout.middles[::2], rollout.middles[1::2]
    if not 0 < state.shape[1] < min(129, len(known) // 4):
        return None
    scale = np.abs(state).max(axis=0)
    scaled = state / np.where(scale > 0, scale, 1)
    state = np.concatenate([scaled, np.ones((len(state), 1))], axis=1)
    moving = np.ptp(obs[rollout.middles], axis=0) > 0
    obs = obs[:, moving]
    weights, *_ = np.linalg.lstsq(state[known], obs[known], rcond=None)
    missed = np.abs(state @ weights - obs) > 1e-4 * (1 + np.abs(obs))
    linked = ~missed[known].any(axis=0) & ~missed[tested].any(axis=0)
    if not linked.any():
        return None
    return bool(missed[rollout.ends][:, linked].any(axis=1).mean() > 0.5)


def _comparable_middles(case: EnvironmentCase) -> np.ndarray:
    """Return the steps in mid-episode whose discrete action also ended an episode."""
    rollout = case.rollout
    actions = flat(rollout.action, 2)
    if actions.shape[1] != 1 or not np.issubdtype(np.asarray(rollout.action).dtype, np.integer):
        return rollout.middles
    return rollout.middles[np.isin(actions[rollout.middles, 0], actions[rollout.ends, 0])]
