"""Checks of an environment in use: its starts, observations, actions and episode ends."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.rl.distributions import policy
from ...core.types import Obs, PyTree
from ..report import Checklist, Failed, NotApplicable, reject
from ..trees import by_path, is_inexact, to_float64
from . import episode_ends
from .case import NUM_STARTS, EnvironmentCase, spec_leaves

CHECKS: Checklist[EnvironmentCase] = Checklist(needs=["scan"])


@CHECKS.check()
def _clean_start(case: EnvironmentCase) -> None:
    """Are the reward and both flags 0 after a reset?

    Why: An episode that starts ended is reset forever.

    Fix: Return first_step(state, obs), which sets reward and flags.
    """
    for field in ("terminated", "truncated", "reward"):
        value = np.asarray(getattr(case.starts, field))
        if value.any():
            raise Failed(
                f"`{field}` is {value[value != 0][0]} after {np.mean(value != 0):.0%} of "
                f"{len(value)} resets."
            )


@CHECKS.check()
def _one_end(case: EnvironmentCase) -> None:
    """Is at most one of `terminated` and `truncated` True?

    Why: Agents bootstrap after a truncated step, and do not after a terminated one.

    Fix: truncated=truncated & ~terminated.
    """
    after = case.rollout.after
    both = np.asarray(after.terminated) & np.asarray(after.truncated)
    if both.any():
        first = case.rollout.where(int(np.flatnonzero(both)[0]))
        raise Failed(
            f"both are True at {both.sum()} of {case.rollout.done.sum()} episode ends ({first})."
        )


@CHECKS.check()
def _finite(case: EnvironmentCase) -> None:
    """Are observations and rewards finite?

    Why: One NaN spreads to every parameter in one update.

    Fix: Look for division by zero, square roots and logarithms of numbers <= 0, and overflow;
    jax_debug_nans finds the line.
    """
    starts, after = case.starts, case.rollout.after
    for place, value, _ in _not_finite({"obs": starts.obs, "reward": starts.reward}, 1):
        raise Failed(f"{place} is {value} after a reset.")
    for place, value, at in _not_finite({"obs": after.obs, "reward": after.reward}, 2):
        raise Failed(f"{place} is {value} at {_where(case, at)}.")


# The first wrong element of each array: its path, its value and its indices.
Wrong: TypeAlias = Iterator[tuple[str, str, list[int]]]


def _not_finite(tree: PyTree, leading: int) -> Wrong:
    for path, leaf in by_path(tree).items():
        if is_inexact(leaf):
            yield from _first(path, leaf, ~np.isfinite(to_float64(leaf)), leading)


def _first(path: str, leaf: np.ndarray, wrong: np.ndarray, leading: int) -> Wrong:
    for at in np.argwhere(wrong)[:1].tolist():
        place = f"{path}{at[leading:]}" if at[leading:] else path
        yield place, str(np.asarray(leaf)[tuple(at)]), at


def _where(case: EnvironmentCase, at: list[int]) -> str:
    return case.rollout.where(at[0] * case.rollout.done.shape[1] + at[1])


@CHECKS.check()
def _declared_bounds(case: EnvironmentCase) -> None:
    """Are observations within the bounds that `obs_spec` declares?

    Why: Observations are scaled by these bounds, tables are sized by them, and whole numbers are
    replayed from integers.

    Fix: Widen the bounds (infinite bounds are allowed), or clip the observation.
    """
    spec = case.env.obs_spec
    for place, value, _ in _outside(spec, case.starts.obs, 1):
        raise Failed(f"{place} is {value}, after a reset.")
    for place, value, at in _outside(spec, case.rollout.after.obs, 2):
        raise Failed(f"{place} is {value}, at {_where(case, at)}.")


def _outside(spec: specs.Spec, obs: Obs, leading: int) -> Wrong:
    for path, child, leaf in spec_leaves(spec, obs):
        low, high = child.bounds()
        values = np.asarray(leaf)
        wrong = np.isfinite(to_float64(leaf)) & ((values < low) | (values > high))
        for place, value, at in _first(path, leaf, wrong, leading):
            element = tuple(at[leading:])
            yield place, f"{value}, outside [{low[element]}, {high[element]}]", at
        if isinstance(child, specs.Box) and child.whole:
            for place, value, at in _first(path, leaf, values != np.round(values), leading):
                yield place, f"{value}, where `whole` declares whole numbers", at


@CHECKS.check()
def _allowed_actions(case: EnvironmentCase) -> None:
    """Does the action mask allow at least one action before every step?

    Why: If no action is allowed, the probabilities of the policy become NaN. Each integer of a
    MultiDiscrete needs an allowed value.

    Fix: End the episode when no action is left, or allow one that does nothing.
    """
    if case.starts.action_mask is None:
        raise NotApplicable("it has no action_mask.")
    if not _any_allowed(case, case.starts.action_mask).all():
        raise Failed("after a reset, no action is allowed.")
    none_left = ~_any_allowed(case, case.rollout.after.action_mask)
    wanting = np.flatnonzero(none_left & ~np.asarray(case.rollout.after.terminated))
    if len(wanting):
        raise Failed(f"no action is allowed after {case.rollout.where(int(wanting[0]))}.")


def _any_allowed(case: EnvironmentCase, mask: jax.Array | None) -> np.ndarray:
    """Return where masks `[..., n]` allow an action, bool `[...]`."""
    spec: Any = case.env.action_spec
    starts = np.cumsum([0, *np.ravel(spec.num_values)[:-1]])
    return np.asarray(np.logical_or.reduceat(np.asarray(mask), starts, axis=-1).all(axis=-1))


@CHECKS.check(needs=["finite"])
def _every_action(case: EnvironmentCase) -> None:
    """Do all actions of `action_spec`, including its bounds, give finite results?

    Why: An exploring agent takes all of them.

    Fix: Handle the actions at the bounds of `action_spec`, or declare narrower bounds.
    """
    spec = case.env.action_spec
    number = jnp.arange(NUM_STARTS)
    keys = jax.random.split(case.key(13), NUM_STARTS)
    actions = jax.vmap(lambda i, key: _action_number(spec, i, key))(number, keys)
    after = case.step.batched(case.starts.state, actions, keys)
    allowed = np.ones(NUM_STARTS, bool)
    if (mask := case.starts.action_mask) is not None:
        uniform = policy(spec, {"logits": jnp.zeros(mask.shape)}, mask)
        allowed = np.asarray(uniform.log_prob(actions)) > np.finfo(np.float32).min
    for path, leaf in by_path({"obs": after.obs, "reward": after.reward}).items():
        values = np.asarray(leaf).reshape(NUM_STARTS, -1)
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)).all(axis=1) & allowed)
        if len(bad):
            row = bad[0]
            action = jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row].tolist(), actions)
            raise Failed(f"after action {action}, `{path}` is not finite.")


def _action_number(spec: Any, number: jax.Array, key: jax.Array) -> PyTree:
    """Return a bound of the range for numbers 0 and 1, otherwise the next or a random action."""
    if isinstance(spec, specs.Dict):
        keys = jax.random.split(key, len(spec.items))
        return {
            name: _action_number(child, number, k)
            for (name, child), k in zip(spec.items, keys, strict=True)
        }
    drawn = specs.sample(spec, key)
    low, high = (jnp.asarray(bound) for bound in spec.bounds())
    if isinstance(spec, specs.Discrete):
        in_turn = jnp.where(number == 1, spec.num_values - 1, number % spec.num_values)
        return in_turn.astype(drawn.dtype)
    if spec.dtype != "bool":
        low, high = (jnp.where(jnp.isfinite(bound), bound, drawn) for bound in (low, high))
    return jnp.where(number == 0, low, jnp.where(number == 1, high, drawn))


@CHECKS.check("no self-reset", needs=["finite"])
def _no_self_reset(case: EnvironmentCase) -> None:
    """Does `step` return the last state of an episode, without a reset?

    Why: triglot resets. If `step` resets, the last state is lost, and a truncated episode
    bootstraps on the next episode's first observation.

    Fix: Return the state that follows the action, without a reset.
    """
    reject(episode_ends.resets_itself(case))


@CHECKS.check(needs=["no self-reset"])
def _last_observation(case: EnvironmentCase) -> None:
    """Does the last observation of an episode show its last state?

    Why: Agents bootstrap on it after a truncation.

    Fix: Compute obs from the returned state: after the last action, before any reset.
    """
    reject(episode_ends.wrong_successor(case))
