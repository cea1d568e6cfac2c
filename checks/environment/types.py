"""Checks of the shapes and dtypes that an environment returns, against its specs."""

import jax

from ...core import specs
from ..messages import describe_value
from ..report import Checklist, Failed
from .case import EnvironmentCase, is_mask, spec_leaves

CHECKS: Checklist[EnvironmentCase] = Checklist(needs=["jit"])


@CHECKS.check()
def _reward(case: EnvironmentCase) -> None:
    """Is the reward a float32 scalar?

    Why: Returns are summed in float32; another shape broadcasts without an error.

    Fix: reward=jnp.asarray(reward, jnp.float32), of shape ().
    """
    _check_scalars(case, ("reward",), "float32")


@CHECKS.check()
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
            if getattr(value, "shape", None) != () or value.dtype != dtype:
                raise Failed(
                    f"after {method}, `{field}` is {describe_value(value)}; expected {dtype}[]."
                )


@CHECKS.check()
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


@CHECKS.check()
def _action_mask(case: EnvironmentCase) -> None:
    """Is `action_mask` always None, or always a bool per action?

    Why: Agents give masked actions probability 0.

    Fix: Return a bool array of shape (num_actions,), True for allowed actions, after reset and
    after step.
    """
    spec = case.env.action_spec
    masks = {method: result.action_mask for method, result in case.compiled_steps.items()}
    if (masks["reset"] is None) != (masks["step"] is None):
        has, lacks = ("step", "reset") if masks["reset"] is None else ("reset", "step")
        raise Failed(f"{has} returns an action_mask, but {lacks} returns None.")
    for method, mask in masks.items():
        if mask is not None and not is_mask(mask, spec):
            expected = f"bool[{spec.num_values}]" if isinstance(spec, specs.Discrete) else "None"
            raise Failed(
                f"after {method}, action_mask is {describe_value(mask)}; expected {expected} for "
                f"{spec}."
            )
