"""Questions to an environment that is played: does it keep its word, and are its ends true?"""

from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ..agent import episode_ends
from ..report import Failed, NotApplicable
from ..shared import by_path, numbers
from .case import NUM_STARTS, EnvironmentCase, spec_leaves
from .types import CHECKS


@CHECKS.check(
    "compiled play",
    asks="Can it be played in one compiled loop?",
    why="So it is trained.",
    mend="Look at what was raised; jax.disable_jit() shows where.",
    needs=["batched agrees", "stable types", "flags", "observation"],
)
def _compiled_play(case: EnvironmentCase) -> None:
    _ = case.played


@CHECKS.check(
    "clean start",
    asks="Is nothing over, and nothing paid, after a reset?",
    why="An episode that starts ended is restarted for ever.",
    mend="Return first_step(state, obs), which sets reward and flags.",
    needs=["compiled play"],
)
def _clean_start(case: EnvironmentCase) -> None:
    for field in ("terminated", "truncated", "reward"):
        value = np.asarray(getattr(case.starts, field))
        if value.any():
            raise Failed(
                f"`{field}` is {value[value != 0][0]} after {np.mean(value != 0):.0%} of "
                f"{len(value)} resets."
            )


@CHECKS.check(
    "one end",
    asks="Is an episode's end either `terminated` or `truncated`?",
    why="The one says that nothing follows, the other that the task would go on: agents bootstrap "
    "after the one and not after the other.",
    mend="truncated=truncated & ~terminated: where the task ended, it ended.",
    needs=["compiled play"],
)
def _one_end(case: EnvironmentCase) -> None:
    after = case.played.after
    both = np.asarray(after.terminated) & np.asarray(after.truncated)
    if both.any():
        first = case.played.where(int(np.flatnonzero(both)[0]))
        raise Failed(f"both are true at {both.sum()} of {case.played.done.sum()} ends ({first}).")


@CHECKS.check(
    "finite",
    asks="Are observations and rewards finite numbers?",
    why="One NaN makes every parameter NaN at the next update.",
    mend="Look for divisions by zero, square roots and logarithms of numbers <= 0, and overflow; "
    "jax_debug_nans finds the line.",
    needs=["compiled play"],
)
def _finite(case: EnvironmentCase) -> None:
    starts, after = case.starts, case.played.after
    for place, value, _ in _not_finite({"obs": starts.obs, "reward": starts.reward}, 1):
        raise Failed(f"{place} is {value} after a reset.")
    for place, value, at in _not_finite({"obs": after.obs, "reward": after.reward}, 2):
        raise Failed(f"{place} is {value} at {_where(case, at)}.")


# The first that is wrong in each array: its place, its value, and its indices.
Wrong: TypeAlias = Iterator[tuple[str, str, list[int]]]


def _not_finite(tree: Any, leading: int) -> Wrong:
    for path, leaf in by_path(tree).items():
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            yield from _first(path, leaf, ~np.isfinite(numbers(leaf)), leading)


def _first(path: str, leaf: Any, wrong: np.ndarray, leading: int) -> Wrong:
    for at in np.argwhere(wrong)[:1].tolist():
        place = f"{path}{at[leading:]}" if at[leading:] else path
        yield place, str(np.asarray(leaf)[tuple(at)]), at


def _where(case: EnvironmentCase, at: list[int]) -> str:
    return case.played.where(at[0] * case.played.done.shape[1] + at[1])


@CHECKS.check(
    "declared bounds",
    asks="Do observations stay within the bounds that `obs_spec` declares?",
    why="Observations are scaled by their bounds, and tables are as large as they say.",
    mend="Widen the bounds to what occurs (infinite is allowed), or clip what is returned.",
    needs=["compiled play"],
)
def _declared_bounds(case: EnvironmentCase) -> None:
    spec = case.env.obs_spec
    for place, found, _ in _outside(spec, case.starts.obs, 1):
        raise Failed(f"{place} is {found}, after a reset.")
    for place, found, at in _outside(spec, case.played.after.obs, 2):
        raise Failed(f"{place} is {found}, at {_where(case, at)}.")


def _outside(spec: specs.Spec, obs: Any, leading: int) -> Wrong:
    for path, child, leaf in spec_leaves(spec, obs):
        if isinstance(child, specs.Discrete):
            low, high = np.asarray(0), np.asarray(child.num_values - 1)
        else:
            low, high = child.bounds()
        values = np.asarray(leaf)
        wrong = np.isfinite(numbers(leaf)) & ((values < low) | (values > high))
        for place, value, at in _first(path, leaf, wrong, leading):
            element = tuple(at[leading:])
            yield place, f"{value} and not within [{low[element]}, {high[element]}]", at


@CHECKS.check(
    "allowed actions",
    asks="Does the mask allow an action wherever one is to be taken?",
    why="A policy with no action left has no probabilities: they become NaN.",
    mend="End the episode where no action is left, or allow one that does nothing.",
    needs=["compiled play"],
)
def _allowed_actions(case: EnvironmentCase) -> None:
    if case.starts.action_mask is None:
        raise NotApplicable("it gives no action_mask.")
    if not np.asarray(case.starts.action_mask).any(axis=-1).all():
        raise Failed("after a reset, no action is allowed.")
    none_left = ~np.asarray(case.played.after.action_mask).any(axis=-1)
    wanting = np.flatnonzero(none_left & ~np.asarray(case.played.after.terminated))
    if len(wanting):
        raise Failed(f"no action is allowed after {case.played.where(int(wanting[0]))}.")


@CHECKS.check(
    "every action",
    asks="Is every declared action taken without NaN, the bounds themselves included?",
    why="Sooner or later an agent takes it.",
    mend="Handle the actions at the bounds of `action_spec`, or declare narrower ones.",
    needs=["finite"],
)
def _every_action(case: EnvironmentCase) -> None:
    spec = case.env.action_spec
    number = jnp.arange(NUM_STARTS)
    keys = jax.random.split(case.key(13), NUM_STARTS)
    actions = jax.vmap(lambda i, key: _action_number(spec, i, key))(number, keys)
    after = case.call("`step` under jax.vmap", case.steps, case.starts.state, actions, keys)
    allowed = np.ones(NUM_STARTS, bool)
    if case.starts.action_mask is not None:
        allowed = np.asarray(case.starts.action_mask)[np.arange(NUM_STARTS), np.asarray(actions)]
    for path, leaf in by_path({"obs": after.obs, "reward": after.reward}).items():
        values = np.asarray(leaf).reshape(NUM_STARTS, -1)
        bad = np.flatnonzero(~np.isfinite(values.astype(np.float64)).all(axis=1) & allowed)
        if len(bad):
            row = bad[0]
            action = jax.tree.map(lambda leaf, row=row: np.asarray(leaf)[row].tolist(), actions)
            raise Failed(f"after action {action}, `{path}` is not finite.")


def _action_number(spec: Any, number: jax.Array, key: jax.Array) -> Any:
    """Give an end of the range for numbers 0 and 1, and then the others in order or at random."""
    if isinstance(spec, specs.Dict):
        keys = jax.random.split(key, len(spec.items))
        return {
            name: _action_number(child, number, k)
            for (name, child), k in zip(spec.items, keys, strict=True)
        }
    drawn = specs.sample(spec, key)
    if isinstance(spec, specs.Discrete):
        return jnp.where(number == 1, spec.num_values - 1, number % spec.num_values).astype(
            drawn.dtype
        )
    low, high = (jnp.asarray(bound) for bound in spec.bounds())
    if spec.dtype != "bool":
        low, high = (
            jnp.where(jnp.isfinite(low), low, drawn),
            jnp.where(jnp.isfinite(high), high, drawn),
        )
    return jnp.where(number == 0, low, jnp.where(number == 1, high, drawn))


@CHECKS.check(
    "no self-reset",
    asks="Does it stay where it is when an episode ends?",
    why="The caller resets; an environment that does so itself hides the last state, and the value "
    "of a truncated episode is then taken from the next one's start.",
    mend="Return the state that the action led to, and let triglot reset.",
    needs=["finite"],
)
def _no_self_reset(case: EnvironmentCase) -> None:
    found = episode_ends.resets_itself(case)
    if found:
        raise Failed(f"{found}.")


@CHECKS.check(
    "last observation",
    asks="Is the observation at an episode's end that of its last state?",
    why="Where an episode was cut, agents bootstrap on it.",
    mend="Compute obs from the state that is returned, after the last action and before any reset.",
    needs=["no self-reset"],
)
def _last_observation(case: EnvironmentCase) -> None:
    found = episode_ends.wrong_successor(case)
    if found:
        raise Failed(f"{found}.")
