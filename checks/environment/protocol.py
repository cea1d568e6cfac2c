"""Checks of an environment's interface: its attributes, its signatures and its TimeSteps."""

import inspect
import operator
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.environment import TimeStep
from ..members import check_hashable, check_members
from ..messages import describe_error, describe_value
from ..report import Checklist, Failed
from ..trees import by_path
from .case import EnvironmentCase

CHECKS: Checklist[EnvironmentCase] = Checklist()

MEMBERS: dict[str, type | str] = {
    "name": str,
    "obs_spec": object,
    "action_spec": object,
    "reset": "key",
    "step": "state, action, key",
}


@CHECKS.check()
def _protocol(case: EnvironmentCase) -> None:
    """Does it have a name, two specs, reset(key) and step(state, action, key)?

    Why: Agents are built from the specs; the training loop calls reset and step.

    Fix: Write a frozen dataclass with `name`, `obs_spec`, `action_spec`, `reset` and `step`, as
    documented in triglot.Environment; a base class is not needed.
    """
    env: Any = case.env
    if inspect.isclass(env):
        raise Failed(f"{env.__name__} is a class, not an environment.", f"Pass {env.__name__}().")
    if hasattr(env, "observation_space") and not hasattr(env, "obs_spec"):
        raise Failed(
            "it looks like a Gymnasium or gymnax environment: it has an observation_space, and no "
            "obs_spec.",
            "For gymnax, use triglot.envs.gymnax.make.",
        )
    check_members(env, MEMBERS)
    _check_spec("obs_spec", env.obs_spec)
    _check_spec("action_spec", env.action_spec)


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


@CHECKS.check(needs=["protocol"])
def _hashing(case: EnvironmentCase) -> None:
    """Is it hashable, and equal to itself?

    Why: It is a static argument of jitted functions; the compilation cache looks it up by hash.

    Fix: Make it a dataclass with frozen=True whose fields are numbers, strings and tuples; keep
    arrays in the state or create them in the methods.
    """
    env = case.env
    for name, value in (("it", env), ("obs_spec", env.obs_spec), ("action_spec", env.action_spec)):
        check_hashable(name, value)
    if env.obs_spec != env.obs_spec or env.action_spec != env.action_spec:
        raise Failed("its specs differ from one access to the next.")


@CHECKS.check(needs=["protocol"])
def _reset(case: EnvironmentCase) -> None:
    """Does reset(key) return a TimeStep?

    Why: Every episode starts with it.

    Fix: Return triglot.core.environment.first_step(state, obs).
    """
    _check_time_step("reset", case.start)


@CHECKS.check(needs=["reset"])
def _step(case: EnvironmentCase) -> None:
    """Does step(state, action, key) return a TimeStep?

    Why: The training loop reads the TimeStep by name.

    Fix: Return TimeStep(state=..., obs=..., reward=..., terminated=..., truncated=...).
    """
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


@CHECKS.check(needs=["step"])
def _arrays(case: EnvironmentCase) -> None:
    """Are all leaves of a TimeStep numeric arrays?

    Why: jit turns Python numbers and objects into constants of the compiled program.

    Fix: Convert numbers with jnp.asarray(x, dtype); keep settings in fields of the environment.
    """
    for method, result in (("reset", case.start), ("step", case.after)):
        for path, leaf in by_path(result).items():
            numeric = isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind not in "OUS"
            if not (numeric or isinstance(leaf, jax.Array)):
                kind = describe_value(leaf)
                raise Failed(f"after {method}, `{path}` is {kind}; expected an array of numbers.")
