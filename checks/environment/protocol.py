"""The first questions to an environment: is everything there, and can it be called so?"""

import inspect
import operator
from typing import Any

import jax

from ...core import specs
from ..messages import described, told
from ..report import Checklist, Failed
from .case import EnvironmentCase

CHECKS: Checklist[EnvironmentCase] = Checklist()


@CHECKS.check(
    "protocol",
    asks="Does it have a name, two specs, reset(key) and step(state, action, key)?",
    why="Agents are built from the specs, and everything else calls these two methods.",
    mend="Write a frozen dataclass with `name`, `obs_spec`, `action_spec`, `reset` and `step`, as "
    "triglot.Environment describes; no base class is needed.",
)
def _protocol(case: EnvironmentCase) -> None:
    env: Any = case.env
    if inspect.isclass(env):
        raise Failed(f"{env.__name__} is a class, not an environment.", f"Give {env.__name__}().")
    for attribute in ("name", "obs_spec", "action_spec", "reset", "step"):
        try:
            value = getattr(env, attribute)
        except AttributeError as error:
            if hasattr(type(env), attribute):
                raise Failed(f"its `{attribute}` raised {told(error)}") from None
            raise Failed(f"it has no `{attribute}`.{_resembles(env)}") from None
        except Exception as error:
            raise Failed(f"its `{attribute}` raised {told(error)}") from None
        _right_attribute(attribute, value)


def _resembles(env: Any) -> str:
    if env is None or isinstance(env, dict | list | tuple | str | int | float):
        return f" It is {described(env)}."
    if hasattr(env, "observation_space"):
        return (
            " It looks like an environment of Gymnasium or gymnax (it has an `observation_space`): "
            "for gymnax, use triglot.envs.gymnax.make."
        )
    return ""


def _right_attribute(attribute: str, value: Any) -> None:
    if attribute == "name":
        if not isinstance(value, str):
            raise Failed(f"its `name` is {described(value)}; a string was expected.")
    elif attribute in ("obs_spec", "action_spec"):
        _right_spec(attribute, value)
    elif not callable(value):
        raise Failed(f"its `{attribute}` is {described(value)}, and cannot be called.")
    else:
        _right_signature(attribute, value)


def _right_spec(attribute: str, spec: Any) -> None:
    if not isinstance(spec, specs.Discrete | specs.Box | specs.Dict):
        kind = f"{type(spec).__module__.split('.')[0]}'s {type(spec).__name__}"
        mend = ""
        if hasattr(spec, "sample") and hasattr(spec, "contains"):
            mend = "triglot.envs.gymnasium.spec_from_space converts a Gymnasium space."
        elif callable(spec):
            kind, mend = "a method", f"Make `{attribute}` an attribute or a @property."
        raise Failed(f"its `{attribute}` is {kind}; a Box, Discrete or Dict was expected.", mend)
    try:
        if isinstance(spec, specs.Discrete):
            operator.index(spec.num_values)
        specs.sample(spec, jax.random.key(0))
    except Exception as error:
        raise Failed(
            f"no value can be drawn from its `{attribute}` {spec}: {told(error)}"
        ) from None


def _right_signature(method: str, function: Any) -> None:
    expected = ["key"] if method == "reset" else ["state", "action", "key"]
    asked = f"{method}({', '.join(expected)})"
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin tells none; calling it will show
        return
    try:
        bound = signature.bind(*expected).arguments
    except TypeError as error:
        raise Failed(
            f"it is called as {asked}, and its own is {method}{signature}: {error}."
        ) from None
    given = [name for name in bound if name in expected]
    if given != [name for name in expected if name in given]:
        raise Failed(
            f"it is called as {asked}, and its own takes ({', '.join(bound)}), in another order."
        )


@CHECKS.check(
    "hashing",
    asks="Can it be hashed, and is it equal to itself?",
    why="It is a constant of the compiled program, which is found again by its hash.",
    mend="Make it a dataclass with frozen=True whose fields are numbers, strings and tuples, and "
    "keep arrays in the state or make them in the methods.",
    needs=["protocol"],
)
def _hashing(case: EnvironmentCase) -> None:
    env = case.env
    for what, value in (("it", env), ("obs_spec", env.obs_spec), ("action_spec", env.action_spec)):
        try:
            first, again, equal = hash(value), hash(value), bool(value == value)
        except Exception as error:
            raise Failed(f"{what} cannot be hashed and compared: {told(error)}") from None
        if first != again or not equal:
            raise Failed(f"{what} is not equal to itself, or has another hash each time.")
    if env.obs_spec != env.obs_spec or env.action_spec != env.action_spec:
        raise Failed("its specs are other ones each time they are asked for.")
