"""Checks of environments that are stepped in Python."""

import numbers
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.host.vector import HostRunner
from ...core.host_environment import HostInspectable, host_mask_size
from ...core.specs import check_fits
from ...core.types import Obs
from ..members import check_hashable, check_members
from ..purity import attempt
from ..report import Checklist, Failed, NotApplicable, describe_value, reject
from ..trees import find_value_difference, flat
from .case import spec_leaves
from .episode_ends import ends_like_starts, notes_of_lengths, require_ends
from .host_case import NUM_ENVS, HostCase, Played, Raw, drawn
from .reading import reading_notes

CHECKS: Checklist[HostCase] = Checklist()
MEMBERS: dict[str, type | str] = {
    "name": str, "obs_spec": object, "action_spec": object, "open": "num_envs",
}  # fmt: skip
RETURNS = "return obs, reward, terminated, truncated, info"


@CHECKS.check()
def _protocol(case: HostCase) -> None:
    """Does it have a name, two specs and open(num_envs)?

    Why: Agents are built from the specs; the training opens the environments.

    Fix: Write a frozen dataclass as documented in triglot.core.host_environment.HostEnvironment.
    """
    check_members(case.env, MEMBERS)
    for attribute in ("obs_spec", "action_spec"):
        spec = getattr(case.env, attribute)
        if not isinstance(spec, specs.Spec):
            raise Failed(f"its `{attribute}` is {describe_value(spec)}; expected a Box, Discrete, "
                         "MultiDiscrete or Dict.")  # fmt: skip
        check_fits(spec, f"a value of {attribute}, {spec},")
    host_mask_size(case.env)


@CHECKS.check(needs=["protocol"])
def _hashing(case: HostCase) -> None:
    """Is it hashable, and equal to itself?

    Why: Compiled programs are looked up by it.

    Fix: Make it a dataclass with frozen=True whose fields are numbers, strings and tuples.
    """
    check_hashable("it", case.env)


@CHECKS.check(needs=["protocol"])
def _reset(case: HostCase) -> None:
    """Does reset return an observation and a dictionary?

    Why: Every episode starts with it; the dictionary may hold an action mask.

    Fix: def reset(self, *, seed=None, options=None): super().reset(seed=seed); return obs, {}
    """
    for result in case.raw.starts:
        if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)):
            raise Failed(f"reset returned {describe_value(result)}; expected (obs, info).")


@CHECKS.check(needs=["reset"])
def _step(case: HostCase) -> None:
    """Does step return an observation, a reward, two flags and a dictionary?

    Why: `terminated` and `truncated` are kept separate: agents bootstrap after a truncation only.

    Fix: return obs, reward, terminated, truncated, info
    """
    for result in case.raw.steps:
        if not (isinstance(result, tuple) and len(result) == 5 and isinstance(result[4], dict)):
            raise Failed(
                f"step returned {describe_value(result)}; expected five values: {RETURNS}."
            )


def _raw_observations(raw: Raw) -> Iterator[tuple[str, Obs]]:
    for result in raw.starts:
        yield "after a reset", result[0]
    for number, result in enumerate(raw.steps, 1):
        yield f"after step {number}", result[0]


@CHECKS.check(needs=["step"])
def _observation(case: HostCase) -> None:
    """Do observations have the structure, the shape and the dtype that the space declares?

    Why: A vector environment copies them into arrays of the declared dtype: larger integers wrap.

    Fix: Declare what is returned, or convert: np.array(obs, self.observation_space.dtype).
    """
    for when, obs in _raw_observations(case.raw):
        for path, child, value in _pairs(case.raw.space, obs, "obs", when):
            if not hasattr(child, "dtype") or child.dtype is None or child.shape is None:
                continue
            array = np.asarray(value)
            if array.shape != child.shape:
                raise Failed(
                    f"{when}, {path} has the shape {array.shape}; {child} declares {child.shape}."
                )
            is_index = array.dtype.kind in "iu" and np.dtype(child.dtype).kind in "iu"
            if array.dtype != child.dtype and not (is_index and array.ndim == 0):
                raise Failed(f"{when}, {path} is {array.dtype}; {child} declares {child.dtype}.")


def _pairs(space: Any, value: Any, path: str, when: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, space and value of each part of an observation."""
    children = getattr(space, "spaces", None)
    if children is None:
        yield path, space, value
        return
    named = children.items() if hasattr(children, "items") else enumerate(children)
    names = {name for name, _ in named}
    keys = set(value) if isinstance(value, dict) else set(range(len(value)))
    if keys != names:
        raise Failed(f"{when}, {path} has the parts {sorted(map(str, keys))}; its space declares "
                     f"{sorted(map(str, names))}.")  # fmt: skip
    for name in names:
        yield from _pairs(children[name], value[name], f"{path}[{name!r}]", when)


@CHECKS.check("declared bounds", needs=["observation"])
def _declared_bounds(case: HostCase) -> None:
    """Are observations within the space that is declared?

    Why: Bytes are scaled by the bounds, and tables and one-hot vectors are sized by them.

    Fix: Widen the bounds (infinite ones are allowed), or clip the observation.
    """
    for when, obs in _raw_observations(case.raw):
        for path, child, value in _pairs(case.raw.space, obs, "obs", when):
            low, high = _limits(child)
            array = np.asarray(value)
            if low is None or array.dtype.kind not in "iufb":
                continue
            wrong = np.isfinite(array.astype(np.float64)) & ((array < low) | (array > high))
            if wrong.any():
                at = np.argwhere(wrong)[0]
                ends = [np.broadcast_to(end, array.shape)[tuple(at)] for end in (low, high)]
                raise Failed(
                    f"{when}, {path}{at.tolist() or ''} is {array[tuple(at)]}, outside of "
                    f"[{ends[0]}, {ends[1]}]."
                )


def _limits(space: Any) -> tuple[Any, Any]:
    if hasattr(space, "low"):
        return space.low, space.high
    if hasattr(space, "nvec"):
        return space.start, space.start + space.nvec - 1
    if hasattr(space, "start"):
        return space.start, space.start + space.n - 1
    return (0, 1) if hasattr(space, "n") else (None, None)


@CHECKS.check(needs=["step"])
def _reward(case: HostCase) -> None:
    """Is the reward one number?

    Why: An array or a missing reward fails in the middle of a training, or changes its shape.

    Fix: return float(reward) from step.
    """
    for number, result in enumerate(case.raw.steps, 1):
        reward = result[1]
        scalar = np.ndim(reward) == 0 and isinstance(reward, numbers.Real | np.number | np.bool_)
        if not scalar and not (isinstance(reward, np.ndarray) and reward.shape == ()):
            raise Failed(f"after step {number}, the reward is {describe_value(reward)}; expected "
                         "one number.")  # fmt: skip


@CHECKS.check(needs=["step"])
def _flags(case: HostCase) -> None:
    """Are `terminated` and `truncated` True or False?

    Why: They decide where episodes restart and where returns bootstrap.

    Fix: return bool(terminated), bool(truncated): a comparison of arrays gives an array.
    """
    both = 0
    for number, result in enumerate(case.raw.steps, 1):
        for name, flag in zip(("terminated", "truncated"), result[2:4], strict=True):
            if not isinstance(flag, bool | np.bool_):
                raise Failed(f"after step {number}, {name} is {describe_value(flag)}; expected "
                             "True or False.")  # fmt: skip
        both += bool(result[2] and result[3])
    if both:
        case.notes.append(
            f"Both flags are True at {both:,} of the episodes' ends. Such an end is a termination, "
            "without a bootstrap."
        )


@CHECKS.check(needs=["step"])
def _action_masks(case: HostCase) -> None:
    """Does every reset and step give an action mask that allows an action, or none of them any?

    Why: Agents give masked actions probability 0; if no action is allowed, the probabilities
    become NaN.

    Fix: Return info["action_mask"] from reset and from step, with 0 and 1 for each action, and end
    the episode when no action is left.
    """
    reject(case.raw.mask_fault)
    if host_mask_size(case.env) is None:
        raise NotApplicable("it gives no action masks.")


TYPED = ["protocol", "hashing", "reset", "step", "observation", "reward", "flags", "action masks"]


@CHECKS.check(needs=TYPED)
def _rollout(case: HostCase) -> None:
    """Do several environments run with random actions?

    Why: Training steps several at once. Values that a type of JAX cannot hold are refused.

    Fix: Read the message: it names the step and what it returned.
    """
    _ = case.rollout


@CHECKS.check(needs=["rollout"])
def _finite(case: HostCase) -> None:
    """Are observations and rewards finite?

    Why: One NaN spreads to every parameter in one update.

    Fix: Look for division by zero, square roots and logarithms of numbers <= 0, and overflow.
    """
    played = case.rollout
    for name in ("obs", "next_obs", "reward"):
        for leaf in jax.tree.leaves(getattr(played, name)):
            values = np.asarray(leaf)
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                bad = values[~np.isfinite(values)].flat[0]
                raise Failed(f"{name} contains {bad} in {len(values) * NUM_ENVS:,} steps.")


@CHECKS.check(needs=["finite", "declared bounds"])
def _declared_ranges(case: HostCase) -> None:
    """Do the converted observations fit `obs_spec`?

    Why: Indices of tables and one-hot vectors outside of their range give wrong rows in silence.

    Fix: Widen the declared range, or clip the observation.
    """
    for path, leaf, value in spec_leaves(case.env.obs_spec, case.rollout.next_obs):
        low, high = leaf.bounds()
        if ((value < low) | (value > high)).any():
            worst = value[(value < low) | (value > high)].flat[0]
            raise Failed(f"{path} contains {worst}, outside of [{np.min(low)}, {np.max(high)}].")


@CHECKS.check(needs=["finite"])
def _seeding(case: HostCase) -> None:
    """Does the same seed give the same trajectory?

    Why: Otherwise a run cannot be repeated, and seeds mean nothing.

    Fix: Call super().reset(seed=seed) and draw from self.np_random only, not from np.random or
    random; seed what you call as well.
    """
    difference = _difference(case.first, case.short())
    if difference:
        raise Failed(f"two rollouts from one seed with the same actions: {difference}.")
    if not _difference(case.first, case.short(seed=case.seed + 12345)):
        case.notes.append("Every seed gives the same trajectory: the seed has no effect.")


def _difference(first: Played, second: Played) -> str:
    length = min(len(first.reward), len(second.reward))
    cut = [jax.tree.map(lambda leaf: leaf[:length], vars(played)) for played in (first, second)]
    return find_value_difference("", *cut)


@CHECKS.check(needs=["seeding"])
def _resets(case: HostCase) -> None:
    """Does a reset in mid-episode leave nothing of the episode before?

    Why: Episodes would depend on what was played before them, such as by a counter that goes on.

    Fix: Set every attribute that step changes in reset.
    """

    def played_before(runner: HostRunner) -> None:
        for number in range(3):
            runner.step(case.actions(900 + number, runner.action_mask))
        runner.restart([case.seed])

    if difference := _difference(case.first, case.short(played_before)):
        raise Failed(
            f"reset with the same seed after three steps of another episode: {difference}."
        )


@CHECKS.check(needs=["seeding"])
def _independent(case: HostCase) -> None:
    """Do environments that are open at the same time leave each other alone?

    Why: Training, evaluation and several seeds have environments open in one process.

    Fix: Keep the state on self, set in __init__ or reset, not on the class or in a global.
    """
    with closing(case.runner(case.seed + 777)) as other:

        def disturb(number: int) -> None:
            other.step(case.actions(number + 500, other.action_mask))

        with closing(case.runner()) as runner:
            rows = []
            for number in range(len(case.first.reward)):
                disturb(number)
                rows.append(case.play(runner, 1, start=number))
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *map(vars, rows))
    if difference := _difference(case.first, Played(**joined)):
        raise Failed(f"with other environments stepped in between: {difference}.")


@CHECKS.check(needs=["independent"])
def _last_observation(case: HostCase) -> None:
    """Is the last observation of an episode the true one, however environments are reset?

    Why: Agents bootstrap on it after a truncation.

    Fix: Return a copy, np.array(self.state), not an array that reset or step writes to again.
    """
    if not any(step.terminated or step.truncated for steps in case.alone for step in steps):
        raise NotApplicable("no episode ended.")
    for mode in case.inspectable.autoreset_modes:
        several = case.transitions(mode)
        for number, (expected, result) in enumerate(zip(case.alone, several, strict=True)):
            for index, (one, other) in enumerate(zip(expected, result, strict=True), 1):
                texts = (one._asdict(), other._asdict())
                if text := find_value_difference("", *texts):
                    raise Failed(
                        f"under autoreset mode {mode}, transition {index} of environment {number} "
                        f"differs from the same one alone: {text}."
                    )


@CHECKS.check("no self-reset", needs=["last observation"])
def _no_self_reset(case: HostCase) -> None:
    """Does step return the last observation of an episode, without a reset?

    Why: The last state is lost otherwise, and a truncated episode bootstraps on the next one's
    first observation.

    Fix: Do not call reset in step. A vector environment returns the last observations in
    info["final_obs"].
    """
    require_ends(case.rollout)
    starts, after = flat(case.starts, 1), flat(case.rollout.next_obs, 2)
    problem = ends_like_starts("observation", case.rollout, starts, after)
    if problem and np.ptp(starts) == 0:  # a blank observation may be at both ends
        case.notes.append(f"{problem}. This is correct if episodes end as they start.")
        return
    reject(problem)


@CHECKS.check(needs=["finite"])
def _every_action(case: HostCase) -> None:
    """Do all actions, including the bounds of a box, give finite results?

    Why: An exploring agent takes all of them.

    Fix: Handle the actions at the bounds of the action space, or declare narrower bounds.
    """
    spec: Any = case.env.action_spec
    rng = np.random.default_rng(case.seed)
    if isinstance(spec, specs.Box):
        low, high = spec.bounds()
        bounds = [np.where(np.isfinite(end), end, drawn(spec, rng)) for end in (low, high)]
        actions = [bound.astype(spec.dtype) for bound in bounds]
    else:
        count = int(np.max(spec.num_values))
        chosen = [
            np.minimum(value, np.asarray(spec.num_values) - 1) for value in range(min(count, 64))
        ]
        actions = [np.asarray(value, spec.dtype).reshape(spec.shape) for value in chosen]
    with closing(case.runner()) as runner:
        for action in actions:
            runner.restart([case.seed])
            if not _allowed(spec, action, runner.action_mask):
                continue
            batch = np.broadcast_to(action, (1, NUM_ENVS, *spec.shape)).copy()
            step = attempt(f"action {action.tolist()}", runner.step, batch)
            for name, leaf in (("obs", step.next_obs), ("reward", step.reward)):
                for values in jax.tree.leaves(leaf):
                    if np.asarray(values).dtype.kind == "f" and not np.isfinite(values).all():
                        raise Failed(f"after action {action.tolist()}, `{name}` is not finite.")


def _allowed(spec: Any, action: np.ndarray, masks: np.ndarray | None) -> bool:
    if masks is None:
        return True
    offsets = np.cumsum([0, *np.ravel(spec.num_values)[:-1]])
    return bool(masks[0][:, offsets + np.ravel(action)].all())


def add_notes(case: HostCase) -> None:
    """Note properties that may or may not be mistakes."""
    played = case.rollout
    case.notes += reading_notes(case.env.obs_spec, [case.starts, played.next_obs])
    if isinstance(case.env, HostInspectable):
        _note_types(case)
    advice, truncated = "return it as `truncated`", bool(played.truncated.any())
    case.notes += notes_of_lengths(played, truncated=truncated, advice=advice)


def _note_types(case: HostCase) -> None:
    """Note what float32 rounds."""
    for when, obs in _raw_observations(case.raw):
        for path, _, value in _pairs(case.raw.space, obs, "obs", when):
            array = np.asarray(value)
            if array.dtype != np.float64:
                continue
            whole = (np.abs(array) > 2**24) & (array == np.round(array)) & np.isfinite(array)
            if (array[whole] != array[whole].astype(np.float32)).any():
                case.notes.append(
                    f"{path} has whole numbers such as {array[whole].flat[0]:.0f}, which "
                    "float32 rounds: it holds whole numbers up to 16,777,216."
                )
                return
