"""Checks of an agent in training: action masks, finite values and hyperparameters."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..purity import attempt
from ..report import Checklist, Failed, NotApplicable
from ..trees import by_path, find_not_finite, find_value_difference, to_float64
from .case import CHUNK_SIZE, AgentCase

CHECKS: Checklist[AgentCase] = Checklist(needs=["scan"])


@CHECKS.check(needs=["jit"])
def _action_mask(case: AgentCase) -> None:
    """Does it choose allowed actions only, exploring and greedily?

    Why: The result of an action that is not allowed is undefined.

    Fix: Set the logits or values to -inf (or the lowest float) where inputs.action_mask is False.
    """
    mask = case.inputs.action_mask
    if mask is None:
        raise NotApplicable("the environment has no action mask.")
    num_actions = mask.shape[-1]
    for number in range(8):
        key = case.key(20 + number)
        allowed = jax.random.randint(key, (case.num_envs,), 0, num_actions)
        one_allowed = jax.nn.one_hot(allowed, num_actions, dtype=bool)
        inputs = replace(case.inputs, action_mask=one_allowed)
        for explore, call in case.acts.items():
            output = call.compiled(case.made, case.carry, inputs, key)
            if (wrong := np.asarray(output.action != allowed)).any():
                row = int(wrong.argmax())
                raise Failed(
                    f"with explore={explore} it chose action {int(output.action[row])} of "
                    f"{num_actions}, but only {int(allowed[row])} was allowed."
                )


@CHECKS.check()
def _finite(case: AgentCase) -> None:
    """Is the state free of NaN and infinity after four updates?

    Why: One NaN spreads to every parameter in one update.

    Fix: Look for division by a standard deviation or a count of 0, log(0) and large step sizes.
    """
    state, metrics = case.second_chunk
    initial = by_path((case.made, case.carry))
    for path, leaf in by_path((state.agent, state.carry)).items():
        # An initial value may be infinite on purpose, such as the end of a schedule.
        found = find_not_finite(path, leaf)
        if found and not find_not_finite(path, initial[path]):
            raise Failed(f"after {2 * CHUNK_SIZE} updates, state.{found}.")
    for name, value in metrics.items():
        if jnp.isinf(value).any():
            raise Failed(f"metric {name!r} is {to_float64(value).tolist()} in updates 3 and 4.")


@CHECKS.check()
def _hyperparameters(case: AgentCase) -> None:
    """Is each hyperparameter stored in the state, so that a sweep is a vmap?

    Why: A hyperparameter outside the state is a constant of the compiled program: another value
    needs another compilation, and has no effect under vmap.

    Fix: In init, put `self.hyper if hyper is None else hyper` into the state as float32 arrays;
    read them from the state in act and update.
    """
    hyper = jax.tree.map(jnp.asarray, case.agent.hyper)
    if not jax.tree.leaves(hyper):
        raise NotApplicable("the agent has no hyperparameters.")

    def init(hyper: Any) -> Any:
        text = "`init(key, num_envs, hyper)`"
        return attempt(text, case.agent.init, case.key(1), case.num_envs, hyper)

    leaves, treedef = jax.tree.flatten(hyper)
    before = init(hyper)
    for index, path in enumerate(by_path(hyper)):
        changed = [_other_value(leaf) if i == index else leaf for i, leaf in enumerate(leaves)]
        if not find_value_difference("", before, init(treedef.unflatten(changed))):
            new, old = (to_float64(one[index]).tolist() for one in (changed, leaves))
            raise Failed(
                f"the state does not change if hyper.{path} is {new:g} in place of {old:g}."
            )
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, _other_value(leaf), leaf]), hyper)

    def train(hyper: Any) -> Any:
        return case.trainer.update(replace(case.start, agent=init(hyper)))

    attempt("training under jax.vmap over hyper", jax.eval_shape, jax.vmap(train), several)


def _other_value(number: jax.Array) -> jax.Array:
    if not jnp.issubdtype(number.dtype, jnp.inexact):
        return number + 1
    return jnp.where(jnp.isfinite(number) & (number != 0), number * 0.5, 0.125)
