"""The steps with which `check_environment` tries an environment that is stepped in Python."""

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.host.vector import HostRunner
from ...core.host_environment import HostEnvironment, HostInspectable, Transition
from ...core.specs import Spec
from ...core.types import Obs
from ..purity import attempt
from ..report import NotApplicable
from .case import Episodes

NUM_ENVS, NUM_STEPS, NUM_RAW, NUM_SHORT = 4, 256, 256, 48
MAX_SECONDS = 20.0  # of a rollout


@dataclass
class Raw:
    """What one environment returned, without any conversion.

    Attributes:
      space: of its observations.
      starts: the results of `reset`.
      steps: the results of `step`.
      mask_fault: what is wrong with an action mask, which ends the steps; "" if nothing.
    """

    space: Any
    starts: list[Any] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    mask_fault: str = ""


@dataclass(frozen=True)
class Played(Episodes):
    """Steps of several environments, `[T, N, ...]`; `next_obs` comes before any reset."""

    obs: Obs
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    next_obs: Obs
    next_action_mask: np.ndarray | None

    @property
    def done(self) -> np.ndarray:
        return self.terminated | self.truncated


class HostCase:
    """An environment being checked.

    Attributes:
      notes: observations that may or may not be mistakes.
    """

    def __init__(self, env: HostEnvironment, seed: int) -> None:
        self.env, self.seed, self.notes = env, seed, list[str]()

    def choose(self, number: int, step: int, mask: np.ndarray | None) -> np.ndarray:
        """Draw an allowed action for a step of an environment; the same for the same numbers."""
        rng = np.random.default_rng([self.seed, number, step])
        return drawn(self.env.action_spec, rng, mask)

    def actions(self, step: int, masks: np.ndarray | None) -> np.ndarray:
        """Draw the actions of `NUM_ENVS` environments, `[1, NUM_ENVS, ...]`."""
        actions = [
            self.choose(i, step, None if masks is None else masks[0, i]) for i in range(NUM_ENVS)
        ]
        return np.stack(actions)[None]

    def runner(self, seed: int | None = None) -> HostRunner:
        """Open `NUM_ENVS` environments and reset them."""
        seeds = [self.seed if seed is None else seed]
        return attempt("opening it", lambda: HostRunner(self.env, NUM_ENVS, seeds))

    def play(self, runner: HostRunner, num: int, *, start: int = 0) -> Played:
        """Take random actions, for at most `MAX_SECONDS`."""
        steps, until = [], time.monotonic() + MAX_SECONDS
        for number in range(start, start + num):
            obs = runner.obs
            action = self.actions(number, runner.action_mask)
            step = attempt("a rollout of random actions", runner.step, action)
            parts = (obs, *step[:4], step.next_action_mask)
            steps.append(jax.tree.map(lambda leaf: np.array(leaf[0]), parts))
            if time.monotonic() > until and len(steps) >= 2:
                break
        return Played(*jax.tree.map(lambda *leaves: np.stack(leaves), *steps))

    @cached_property
    def rollout(self) -> Played:
        """Random actions in `NUM_ENVS` environments."""
        with closing(self.runner()) as runner:
            return self.play(runner, NUM_STEPS)

    @cached_property
    def starts(self) -> Obs:
        """Observations after resets with different seeds, `[n, ...]`, and those of the rollout."""
        starts = []
        with closing(self.runner(self.seed + 1000)) as runner:
            for number in range(8):
                runner.restart([self.seed + 1000 + NUM_ENVS * number])
                starts.append(jax.tree.map(lambda leaf: np.array(leaf[0]), runner.obs))
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *starts)

    def short(
        self, run: Callable[[HostRunner], None] = lambda _: None, seed: int | None = None
    ) -> Played:
        """Play `NUM_SHORT` steps from a seed, after something else was done."""
        with closing(self.runner(seed)) as runner:
            run(runner)
            return self.play(runner, NUM_SHORT)

    @cached_property
    def first(self) -> Played:
        """The first `NUM_SHORT` steps."""
        return self.short()

    @property
    def inspectable(self) -> HostInspectable:
        """The environment, if it can be stepped alone."""
        if not isinstance(self.env, HostInspectable):
            raise NotApplicable("it cannot be stepped alone (HostInspectable).")
        return self.env

    @cached_property
    def raw(self) -> Raw:
        """What one environment returns to random actions; it ends at the first wrong form."""
        single = attempt("making it", self.inspectable.open_single)
        raw, until, reset = Raw(single.observation_space), time.monotonic() + MAX_SECONDS, True
        with closing(single):
            for number in range(NUM_RAW):
                if reset:
                    options = {} if raw.starts else {"seed": self.seed}
                    raw.starts.append(attempt("reset", lambda: single.reset(**options)))  # noqa: B023
                    if not _is_start(raw.starts[-1]):
                        break
                mask, raw.mask_fault = self._raw_mask(single, raw)
                if raw.mask_fault:
                    break
                action = self.choose(0, number, mask).astype(single.action_space.dtype)
                action = action if action.ndim else action[()]
                raw.steps.append(_copied(attempt("step", single.step, action)))
                if not _is_step(raw.steps[-1]) or time.monotonic() > until:
                    break
                reset = _ended(raw.steps[-1])
        return raw

    def _raw_mask(self, single: Any, raw: Raw) -> tuple[np.ndarray | None, str]:
        """Read the mask of the next action, or say what is wrong with it."""
        form: str = getattr(self.env, "mask_form", "")
        after_reset = not raw.steps or _ended(raw.steps[-1])
        last = raw.starts[-1] if after_reset else raw.steps[-1]
        where = "after a reset" if after_reset else f"after step {len(raw.steps)}"
        if not form:
            has_mask = "action_mask" in last[-1] and getattr(self.env, "use_action_mask", False)
            fault = f"{where}, info has an action_mask, and after the first reset none"
            return None, fault * has_mask
        if form == "method":
            mask = single.get_wrapper_attr("action_masks")()
        else:
            mask = last[0][form[4:]] if form.startswith("obs:") else last[-1].get("action_mask")
        if mask is None:
            return None, f"{where}, info has no action_mask, as it has after the first reset"
        nested = isinstance(mask, list | tuple) and any(np.ndim(part) for part in mask)
        array = np.concatenate([np.ravel(part) for part in mask]) if nested else np.asarray(mask)
        spec: Any = self.env.action_spec
        size = specs.mask_size(spec)
        if array.shape != (size,):
            return None, f"{where}, the mask has the shape {array.shape}; expected ({size},)"
        if not np.isin(array, (0, 1)).all():
            return None, f"{where}, the mask has values other than 0 and 1"
        parts = np.split(array.astype(bool), np.cumsum(np.ravel(spec.num_values))[:-1])
        if not all(part.any() for part in parts):
            return None, f"{where}, no action is allowed"
        return array.astype(bool), ""

    def transitions(self, mode: str) -> list[list[Transition]]:
        """Step two environments under an autoreset mode, or alone."""
        env = self.inspectable
        what = f"stepping it {'under ' + mode if mode else 'alone'}"
        arguments = (mode, 2, self.seed, self.choose, NUM_STEPS)
        return attempt(what, lambda: env.transitions(*arguments))

    @cached_property
    def alone(self) -> list[list[Transition]]:
        return self.transitions("")


def _is_start(result: object) -> bool:
    return isinstance(result, tuple) and len(result) == 2


def _is_step(result: object) -> bool:
    return isinstance(result, tuple) and len(result) == 5


def _ended(result: Any) -> bool:
    return bool(np.any(result[2]) or np.any(result[3]))


def _copied(result: Any) -> Any:
    if not _is_step(result):
        return result
    return (jax.tree.map(lambda leaf: np.array(leaf), result[0]), *result[1:])


def drawn(spec: Spec, rng: np.random.Generator, mask: np.ndarray | None = None) -> np.ndarray:
    """Draw one value uniformly; a mask, bool `[num_values]`, says which are allowed."""
    if isinstance(spec, specs.Discrete | specs.MultiDiscrete):
        counts = np.ravel(spec.num_values)
        allowed = np.ones(counts.sum(), bool) if mask is None else np.asarray(mask, bool)
        parts = np.split(allowed, np.cumsum(counts)[:-1])
        values = [rng.choice(np.flatnonzero(part)) if part.any() else 0 for part in parts]
        return np.array(values, spec.dtype).reshape(spec.shape)
    if isinstance(spec, specs.Dict):
        raise NotApplicable("actions that are a Dict have no agent.")
    low, high = (bound.astype(np.float64) for bound in spec.bounds())
    high = np.where(np.isfinite(high), high, np.where(np.isfinite(low), low + 1, 1))
    low = np.where(np.isfinite(low), low, high - 2)
    if np.dtype(spec.dtype).kind in "iub":
        return np.floor(low + rng.random(spec.shape) * (high - low + 1)).astype(spec.dtype)
    return (low + rng.random(spec.shape) * (high - low)).astype(spec.dtype)
