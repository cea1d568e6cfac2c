"""Checks of an environment's interface: its attributes, its signatures and its TimeSteps.

`TYPES` are the checks of shapes and dtypes against its specs.
"""

import inspect
import operator
from typing import Any

import jax
import numpy as np

from ...core import specs
from ...core.environment import TimeStep
from ..members import check_hashable, check_members
from ..report import Checklist, Failed, describe_error, describe_value
from ..trees import by_path
from .case import EnvironmentCase, is_mask, spec_leaves

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


def _check_spec(attribute: str, spec: object) -> None:
    if not isinstance(spec, specs.Spec):
        kind = f"{type(spec).__module__.split('.')[0]}'s {type(spec).__name__}"
        fix = ""
        if hasattr(spec, "sample") and hasattr(spec, "contains"):
            fix = "triglot.envs.gymnasium.spec_from_space converts a Gymnasium space."
        elif callable(spec):
            kind, fix = "a method", f"Make `{attribute}` an attribute or a @property."
        wanted = "a Box, Discrete, MultiDiscrete or Dict"
        raise Failed(f"its `{attribute}` is {kind}; expected {wanted}.", fix)
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


def _check_time_step(method: str, result: object) -> None:
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


TYPES: Checklist[EnvironmentCase] = Checklist(needs=["jit"])


@TYPES.check()
def _reward(case: EnvironmentCase) -> None:
    """Is the reward a float32 scalar?

    Why: Returns are summed in float32; another shape broadcasts without an error.

    Fix: reward=jnp.asarray(reward, jnp.float32), of shape ().
    """
    _check_scalars(case, ("reward",), "float32")


@TYPES.check()
def _flags(case: EnvironmentCase) -> None:
    """Are `terminated` and `truncated` bool scalars?

    Why: They decide where episodes restart and where returns bootstrap.

    Fix: Compare (`time >= limit`), or use jnp.asarray(flag, bool); shape ().
    """
    _check_scalars(case, ("terminated", "truncated"), "bool")


def _check_scalars(case: EnvironmentCase, fields: tuple[str, ...], dtype: str) -> None:
    for method, result in case.compiled_steps.items():
        for field in fields:
            value = getattr(result, field)
            # The training casts a weakly typed reward, such as a Python number.
            cast = field == "reward" and getattr(value, "weak_type", False)
            if getattr(value, "shape", None) != () or (value.dtype != dtype and not cast):
                raise Failed(
                    f"after {method}, `{field}` is {describe_value(value)}; expected {dtype}[]."
                )


@TYPES.check()
def _observation(case: EnvironmentCase) -> None:
    """Do observations have the structure, shape and dtype that `obs_spec` declares?

    Why: Networks are built from the declared spec.

    Fix: Declare what is returned, or return what is declared.
    """
    spec = case.env.obs_spec
    expected = specs.zeros(spec)
    for method, result in case.compiled_steps.items():
        if jax.tree.structure(result.obs) != jax.tree.structure(expected):
            raise Failed(
                f"after {method}, obs is {describe_value(result.obs)}; `obs_spec` declares {spec}."
            )
        for path, child, value in spec_leaves(spec, result.obs):
            if value.shape != child.shape or value.dtype != child.dtype:
                raise Failed(
                    f"after {method}, {path} is {describe_value(value)}; `obs_spec` declares "
                    f"{child.dtype}{list(child.shape)}."
                )


@TYPES.check()
def _action_mask(case: EnvironmentCase) -> None:
    """Is `action_mask` always None, or always a bool per action?

    Why: Agents give masked actions probability 0.

    Fix: Return a bool array of shape (num_actions,), True for allowed actions, after reset and
    after step; for a MultiDiscrete of shape (sum(num_values),), one value after the other.
    """
    spec = case.env.action_spec
    masks = {method: result.action_mask for method, result in case.compiled_steps.items()}
    if (masks["reset"] is None) != (masks["step"] is None):
        has, lacks = ("step", "reset") if masks["reset"] is None else ("reset", "step")
        raise Failed(f"{has} returns an action_mask, but {lacks} returns None.")
    for method, mask in masks.items():
        if mask is not None and not is_mask(mask, spec):
            size = specs.mask_size(spec)
            expected = "None" if size is None else f"bool[{size}]"
            raise Failed(
                f"after {method}, action_mask is {describe_value(mask)}; expected {expected} for "
                f"{spec}."
            )
