"""Questions to an environment that is compiled: are its types right, and its results the same?"""

from typing import Any

import jax
import jax.numpy as jnp

from ...core import specs
from ..messages import described
from ..report import Failed
from ..shared import by_path, different, lost_on_disk, unequal
from .calls import CHECKS
from .case import NUM_STARTS, EnvironmentCase, is_mask, spec_leaves


@CHECKS.check(
    "compiles",
    asks="Can reset and step be compiled?",
    why="Training is one compiled program of which they are a part.",
    mend="Write them with jax.numpy and jax.lax alone, on shapes that do not depend on values.",
    needs=["same twice"],
)
def _compiles(case: EnvironmentCase) -> None:
    _ = case.types


@CHECKS.check(
    "reward",
    asks="Is the reward one float32?",
    why="Returns are summed in float32, and another shape broadcasts without a word.",
    mend="reward=jnp.asarray(reward, jnp.float32), of shape ().",
    needs=["compiles"],
)
def _reward(case: EnvironmentCase) -> None:
    _scalars(case, ("reward",), "float32")


@CHECKS.check(
    "flags",
    asks="Are `terminated` and `truncated` one bool each?",
    why="Episodes are restarted, and values cut, by these two.",
    mend="Compare (`time >= limit`), or jnp.asarray(flag, bool); shape ().",
    needs=["compiles"],
)
def _flags(case: EnvironmentCase) -> None:
    _scalars(case, ("terminated", "truncated"), "bool")


def _scalars(case: EnvironmentCase, fields: tuple[str, ...], dtype: str) -> None:
    for method, result in zip(("reset", "step"), case.types, strict=True):
        for field in fields:
            value = getattr(result, field)
            if not hasattr(value, "dtype"):
                raise Failed(
                    f"after {method}, `{field}` is {described(value)}; expected {dtype}[]."
                )
            if value.shape != () or value.dtype != dtype:
                raise Failed(
                    f"after {method}, `{field}` is {described(value)}; expected {dtype}[]."
                )


@CHECKS.check(
    "observation",
    asks="Are observations of the structure, shape and dtype that `obs_spec` declares?",
    why="Networks are built for the declared observation, not for the one that comes.",
    mend="Declare what is returned, or return what is declared.",
    needs=["compiles"],
)
def _observation(case: EnvironmentCase) -> None:
    spec = case.env.obs_spec
    wanted = specs.zeros(spec)
    for method, result in zip(("reset", "step"), case.types, strict=True):
        if jax.tree.structure(result.obs) != jax.tree.structure(wanted):
            raise Failed(
                f"after {method}, obs is {described(result.obs)}; `obs_spec` declares {spec}."
            )
        for path, child, value in spec_leaves(spec, result.obs):
            if value.shape != child.shape or value.dtype != child.dtype:
                raise Failed(
                    f"after {method}, {path} is {described(value)}; `obs_spec` declares "
                    f"{child.dtype}{list(child.shape)}."
                )


@CHECKS.check(
    "action mask",
    asks="Is `action_mask` always None, or always one bool for each action?",
    why="Agents give the masked actions no probability.",
    mend="A bool array of shape (num_actions,), true where allowed, after reset and step alike.",
    needs=["compiles"],
)
def _action_mask(case: EnvironmentCase) -> None:
    spec = case.env.action_spec
    masks = [result.action_mask for result in case.types]
    if (masks[0] is None) != (masks[1] is None):
        has, lacks = ("step", "reset") if masks[0] is None else ("reset", "step")
        raise Failed(f"{has} gives an action_mask, and {lacks} gives none.")
    for method, mask in zip(("reset", "step"), masks, strict=True):
        if mask is not None and not is_mask(mask, spec):
            raise Failed(
                f"after {method}, action_mask is {described(mask)}; for {spec} "
                + (
                    f"expected bool[{spec.num_values}]."
                    if isinstance(spec, specs.Discrete)
                    else "there is none."
                )
            )


@CHECKS.check(
    "stable types",
    asks="Is the state after a step of the same structure, shapes and dtypes as after a reset?",
    why="A loop carries the state from step to step, and its types are fixed.",
    mend="Give the arrays of the first state the dtypes that arithmetic gives those of the next.",
    needs=["compiles"],
)
def _stable_types(case: EnvironmentCase) -> None:
    start, after = (result.state for result in case.types)
    found = different("state", start, after)
    if found:
        raise Failed(f"between reset and step, {found}.")


@CHECKS.check(
    "strong types",
    asks="Has every array a dtype of its own?",
    why="An array made of a Python number has a weak dtype, which other calls, and a checkpoint, "
    "turn into a strong one: then everything is compiled a second time.",
    mend="Say the dtype: jnp.zeros((), jnp.float32), jnp.int32(0), jnp.asarray(x, jnp.float32).",
    needs=["compiles"],
)
def _strong_types(case: EnvironmentCase) -> None:
    for method, result in zip(("reset", "step"), case.types, strict=True):
        for path, leaf in by_path(result).items():
            if getattr(leaf, "weak_type", False):
                raise Failed(f"after {method}, `{path}` is a weakly typed {described(leaf)}.")


@CHECKS.check(
    "compiled agrees",
    asks="Does the compiled environment do what the plain one does?",
    why="People debug the one and train on the other.",
    mend="Let nothing depend on Python values at the time of compiling: no isinstance(x, Tracer), "
    "no global that changes.",
    needs=["compiles", "action mask"],
)
def _compiled_agrees(case: EnvironmentCase) -> None:
    start = case.call("`reset` under jax.jit", case.compiled_reset, case.key(0))
    _agree("reset, plain and compiled:", case.start, start)
    state, action, key = case.start.state, case.action, case.key(2)
    after = case.call("`step` under jax.jit", case.compiled_step, state, action, key)
    _agree("step, plain and compiled:", case.after, after)


def _agree(what: str, one: Any, other: Any) -> None:
    found = unequal("TimeStep", one, other, rtol=1e-3, atol=1e-5)
    if found:
        raise Failed(f"of {what} {found}.")


@CHECKS.check(
    "batched agrees",
    asks="Does each of many environments under jax.vmap do what a single one does?",
    why="Many environments are always stepped at once.",
    mend="Write for one environment, with axes counted from its own arrays; a callback needs the "
    "right vmap_method.",
    needs=["compiled agrees"],
)
def _batched_agrees(case: EnvironmentCase) -> None:
    keys = jax.random.split(case.key(3), NUM_STARTS)
    actions = jax.vmap(case.choose, in_axes=(0, 0))(case.starts.action_mask, keys)
    after = case.call("`step` under jax.vmap", case.steps, case.starts.state, actions, keys)
    for i in (0, 1, NUM_STARTS - 1):
        start = case.compiled_reset(keys[i])
        state, action = jax.tree.map(lambda leaf, i=i: leaf[i], (case.starts.state, actions))
        step = case.compiled_step(state, action, keys[i])
        for method, single, batch in (("reset", start, case.starts), ("step", step, after)):
            row = jax.tree.map(lambda leaf, i=i: leaf[i], batch)
            _agree(f"{method}, single and as number {i} of a batch:", single, row)


@CHECKS.check(
    "checkpoint",
    asks="Does a TimeStep come back from a checkpoint as it was?",
    why="A long run is resumed after a crash, environments included.",
    mend="Keep arrays and typed keys in the state, in dictionaries, lists, dataclasses.",
    needs=["compiles"],
)
def _checkpoint(case: EnvironmentCase) -> None:
    step = jax.tree.map(jnp.asarray, case.after)
    leaves = by_path(step)
    if len(leaves) < len(jax.tree.leaves(step)):
        raise Failed(
            "two arrays of the state have one name, once the names on the way are joined by dots.",
            "Use names without dots.",
        )
    for path, leaf in leaves.items():
        if not leaf.size:
            raise Failed(
                f"`{path}` is {described(leaf)}: an array without elements cannot be saved.",
                "Leave it out, or put None in its place.",
            )
    found = case.call("a checkpoint", lost_on_disk, "the TimeStep", step)
    if found:
        raise Failed(f"through a checkpoint, {found}.")
