"""Questions to an environment that is called as it stands, without compiling anything."""

import inspect
from typing import Any

import jax
import numpy as np

from ...core.environment import TimeStep
from ..messages import described, told
from ..report import Failed
from ..shared import by_path, changed, copied, unequal
from .case import EnvironmentCase
from .protocol import CHECKS


@CHECKS.check(
    "reset",
    asks="Does reset(key) return a TimeStep?",
    why="An episode starts with it.",
    mend="Return triglot.core.environment.first_step(state, obs).",
    needs=["protocol"],
)
def _reset(case: EnvironmentCase) -> None:
    _time_step("reset", case.start)


@CHECKS.check(
    "step",
    asks="Does step(state, action, key) return a TimeStep?",
    why="Training does nothing else, millions of times.",
    mend="Return TimeStep(state=..., obs=..., reward=..., terminated=..., truncated=...), by name.",
    needs=["reset"],
)
def _step(case: EnvironmentCase) -> None:
    _time_step("step", case.after)


def _time_step(method: str, result: Any) -> None:
    if isinstance(result, TimeStep):
        return
    hint = ""
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()
        hint = " Return instead of `yield`, and no `async`."
    elif isinstance(result, tuple) and method == "step" and 4 <= len(result) <= 6:
        hint = " Other libraries return such tuples."
    elif result is None:
        hint = " Is a `return` missing?"
    raise Failed(f"{method} returned {described(result)}; a TimeStep was expected.{hint}")


@CHECKS.check(
    "arrays",
    asks="Is everything in a TimeStep an array?",
    why="JAX compiles functions of arrays; Python's numbers and objects would be frozen into it.",
    mend="Wrap numbers as jnp.asarray(x, dtype), with the dtype; keep settings on the environment.",
    needs=["step"],
)
def _arrays(case: EnvironmentCase) -> None:
    for method, result in (("reset", case.start), ("step", case.after)):
        for path, leaf in by_path(result).items():
            if not isinstance(leaf, jax.Array | np.ndarray | np.generic):
                raise Failed(f"after {method}, `{path}` is {described(leaf)}, and no array.")
            if isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in "OUS":
                raise Failed(
                    f"after {method}, `{path}` is an array of {leaf.dtype}, not of numbers."
                )


@CHECKS.check(
    "arguments unchanged",
    asks="Does step leave the state and the action that it was given as they were?",
    why="A state is stored and stepped again; changed in place, it is another one.",
    mend="Build a new state: dataclasses.replace(state, ...), {**state, ...}, array.at[i].set(x).",
    needs=["arrays"],
)
def _arguments_unchanged(case: EnvironmentCase) -> None:
    given = {"state": case.reset(0).state, "action": case.action}
    kept = copied(given)
    case.step(given["state"], given["action"], 2)
    found = changed("the argument", kept, given)
    if found:
        raise Failed(f"after one step, {found}.")


@CHECKS.check(
    "same twice",
    asks="Do the same key, state and action give the same result again?",
    why="Runs repeat, and resume, where all that changes is in the state or drawn from the key.",
    mend="Move counters into the state, and draw with jax.random and the key: no numpy.random, no "
    "time, nothing written to `self` or to a global.",
    needs=["arguments unchanged"],
)
def _same_twice(case: EnvironmentCase) -> None:
    first = case.reset(0)
    stepped = case.step(first.state, case.action, 2)
    other = case.reset(7)  # whatever this leaves behind must not show
    case.step(other.state, case.action, 8)
    found = unequal("TimeStep", stepped, case.step(first.state, case.action, 2))
    if found:
        raise Failed(f"step with the same state, action and key gave another result: {found}.")
    found = unequal("TimeStep", first, case.reset(0))
    if found:
        raise Failed(f"reset with the same key gave another result: {found}.")


@CHECKS.check(
    "key used once",
    asks="Is each key used once, or split?",
    why="Two draws from one key are the same numbers: noise and start, say, are then correlated.",
    mend="first, second = jax.random.split(key), and draw once from each; a key in the state is "
    "split at every step, and one half goes into the next state.",
    needs=["same twice"],
)
def _key_used_once(case: EnvironmentCase) -> None:
    keys = [case.key(number) for number in range(9, 13)]
    action = case.action
    method = "reset"
    with jax.debug_key_reuse(True):
        try:
            step = case.env.reset(keys[0])
            method = "step"
            for key in keys[1:]:
                step = case.env.step(step.state, action, key)
        except jax.errors.KeyReuseError as error:
            reused = RuntimeError("a key was used a second time")
            found = told(reused.with_traceback(error.__traceback__)).removeprefix("RuntimeError: ")
            raise Failed(f"in {method}, {found}.") from None
        except Exception:  # of a later step, which other checks ask about; or JAX knows no rule
            return
