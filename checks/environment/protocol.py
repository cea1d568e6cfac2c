"""Checks of an environment's interface: its attributes, its signatures and its TimeSteps."""

import inspect
import operator
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.environment import TimeStep
from ..messages import describe_error, describe_value
from ..report import Checklist, Failed
from ..trees import by_path
from .case import EnvironmentCase

CHECKS: Checklist[EnvironmentCase] = Checklist()


@CHECKS.check(
    question="Does it have a name, two specs, reset(key) and step(state, action, key)?",
    why="Agents are built from the specs; the training loop calls reset and step.",
    fix="Write a frozen dataclass with `name`, `obs_spec`, `action_spec`, `reset` and `step`, as "
    "documented in triglot.Environment; a base class is not needed.",
)
def _protocol(case: EnvironmentCase) -> None:
    env: Any = case.env
    if inspect.isclass(env):
        raise Failed(f"{env.__name__} is a class, not an environment.", f"Pass {env.__name__}().")
    for attribute in ("name", "obs_spec", "action_spec", "reset", "step"):
        try:
            value = getattr(env, attribute)
        except Exception as error:
            if isinstance(error, AttributeError) and not hasattr(type(env), attribute):
                raise Failed(f"it has no `{attribute}`.{_resembles(env)}") from None
            raise Failed(f"its `{attribute}` raised {describe_error(error)}.") from None
        _check_attribute(attribute, value)


def _resembles(env: Any) -> str:
    if env is None or isinstance(env, dict | list | tuple | str | int | float):
        return f" It is {describe_value(env)}."
    if hasattr(env, "observation_space"):
        return (
            " It looks like a Gymnasium or gymnax environment (it has an `observation_space`): "
            "for gymnax, use triglot.envs.gymnax.make."
        )
    return ""


def _check_attribute(attribute: str, value: Any) -> None:
    if attribute == "name":
        if not isinstance(value, str):
            raise Failed(f"its `name` is {describe_value(value)}; expected a string.")
    elif attribute in ("obs_spec", "action_spec"):
        _check_spec(attribute, value)
    elif not callable(value):
        raise Failed(f"its `{attribute}` is {describe_value(value)}; expected a method.")
    else:
        _check_signature(attribute, value)


def _check_spec(attribute: str, spec: Any) -> None:
    if not isinstance(spec, specs.Discrete | specs.Box | specs.Dict):
        kind = f"{type(spec).__module__.split('.')[0]}'s {type(spec).__name__}"
        fix = ""
        if hasattr(spec, "sample") and hasattr(spec, "contains"):
            fix = "triglot.envs.gymnasium.spec_from_space converts a Gymnasium space."
        elif callable(spec):
            kind, fix = "a method", f"Make `{attribute}` an attribute or a @property."
        raise Failed(f"its `{attribute}` is {kind}; expected a Box, Discrete or Dict.", fix)
    try:
        if isinstance(spec, specs.Discrete):
            operator.index(spec.num_values)
        specs.sample(spec, jax.random.key(0))
    except Exception as error:
        raise Failed(f"sampling its `{attribute}` {spec} raised {describe_error(error)}.") from None


def _check_signature(method: str, function: Any) -> None:
    expected = ["key"] if method == "reset" else ["state", "action", "key"]
    call = f"{method}({', '.join(expected)})"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins have no signature
        return
    try:
        bound = signature.bind(*expected).arguments
    except TypeError as error:
        raise Failed(
            f"it is called as {call}, but is defined as {method}{signature}: {error}."
        ) from None
    given = [name for name in bound if name in expected]
    if given != [name for name in expected if name in given]:
        raise Failed(
            f"it is called as {call}, but its parameters are ({', '.join(bound)}), in another "
            "order."
        )


@CHECKS.check(
    question="Is it hashable, and equal to itself?",
    why="It is a static argument of jitted functions; the compilation cache looks it up by hash.",
    fix="Make it a dataclass with frozen=True whose fields are numbers, strings and tuples; keep "
    "arrays in the state or create them in the methods.",
    needs=["protocol"],
)
def _hashing(case: EnvironmentCase) -> None:
    env = case.env
    for name, value in (("it", env), ("obs_spec", env.obs_spec), ("action_spec", env.action_spec)):
        try:
            first, again, equal = hash(value), hash(value), bool(value == value)
        except Exception as error:
            raise Failed(f"hashing or comparing {name} raised {describe_error(error)}.") from None
        if first != again or not equal:
            raise Failed(f"{name} is not equal to itself, or its hash changes.")
    if env.obs_spec != env.obs_spec or env.action_spec != env.action_spec:
        raise Failed("its specs differ from one access to the next.")


@CHECKS.check(
    question="Does reset(key) return a TimeStep?",
    why="Every episode starts with it.",
    fix="Return triglot.core.environment.first_step(state, obs).",
    needs=["protocol"],
)
def _reset(case: EnvironmentCase) -> None:
    _check_time_step("reset", case.start)


@CHECKS.check(
    question="Does step(state, action, key) return a TimeStep?",
    why="The training loop reads the TimeStep by name.",
    fix="Return TimeStep(state=..., obs=..., reward=..., terminated=..., truncated=...).",
    needs=["reset"],
)
def _step(case: EnvironmentCase) -> None:
    _check_time_step("step", case.after)


def _check_time_step(method: str, result: Any) -> None:
    if isinstance(result, TimeStep):
        return
    hint = ""
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        result.close()
        hint = " Use `return`, not `yield`, and no `async`."
    elif isinstance(result, tuple) and method == "step" and 4 <= len(result) <= 6:
        hint = " Other libraries return such tuples."
    elif result is None:
        hint = " Is a `return` missing?"
    raise Failed(f"{method} returned {describe_value(result)}; expected a TimeStep.{hint}")


@CHECKS.check(
    question="Are all leaves of a TimeStep numeric arrays?",
    why="jit turns Python numbers and objects into constants of the compiled program.",
    fix="Convert numbers with jnp.asarray(x, dtype); keep settings in fields of the environment.",
    needs=["step"],
)
def _arrays(case: EnvironmentCase) -> None:
    for method, result in (("reset", case.start), ("step", case.after)):
        for path, leaf in by_path(result).items():
            numeric = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OUS"
            if not (numeric or isinstance(leaf, jax.Array)):
                kind = describe_value(leaf)
                raise Failed(f"after {method}, `{path}` is {kind}; expected an array of numbers.")
