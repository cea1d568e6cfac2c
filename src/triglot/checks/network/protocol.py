"""Checks of a network's interface: its fields, its variables and what `apply` returns."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import jax

from ...core.network import Network, Variables, num_params
from ...core.specs import Spec
from ...core.types import PyTree, is_key
from .. import trees
from ..members import check_members, check_pair
from ..report import Checklist, Failed, NotApplicable, describe_value, reject
from .case import BATCH_SIZE, NetworkCase

CHECKS: Checklist[NetworkCase] = Checklist()

MEMBERS: dict[str, type | str] = {
    "init": "key",
    "apply": "variables, inputs",
    "value_and_grad": "loss",
    "initial_carry": "variables, num_envs",
    "recurrent": bool,
    "random_start": bool,
    "name": str,
}
_ADAPTERS = {
    "flax.linen": "from_linen(module, obs_spec)",
    "flax.nnx": "from_nnx(module)",
    "equinox": "from_equinox(module)",
    "keras": "from_keras(model, obs_spec)",
    "torch.nn": "from_torch(module, obs_spec)",
    "haiku": "from_haiku(function, obs_spec)",
}


@CHECKS.check()
def _protocol(case: NetworkCase) -> None:
    """Is it a triglot Network with a function or value of the right type in each field?

    Why: Agents call init, apply, value_and_grad and initial_carry, and read recurrent.

    Fix: Build it with from_haiku, from_linen, from_nnx, from_equinox, from_keras, from_torch or
    from_functions, or construct triglot.Network(name=..., backend=..., init=..., apply=...).
    """
    network: Any = case.network
    if not isinstance(network, Network):
        raise Failed(f"it is {describe_value(network)}; expected a Network.", _adapter(network))
    check_members(network, MEMBERS)
    several = case.obs_spec if isinstance(case.obs_spec, tuple) else (case.obs_spec,)
    for spec in several or (None,):
        if not isinstance(spec, Spec):
            raise Failed(
                f"the obs_spec is {describe_value(spec)}; expected a Box, Discrete, MultiDiscrete "
                "or Dict.",
                "Pass env.obs_spec, or a tuple of specs for several inputs.",
            )


def _adapter(adapted: object) -> str:
    kinds = adapted.__mro__ if isinstance(adapted, type) else type(adapted).__mro__
    for kind in kinds:
        for library, call in _ADAPTERS.items():
            if kind.__module__.startswith(library):
                return f"Convert it with triglot.{call}."
    is_pair = type(adapted) is tuple and len(adapted) == 2 and all(map(callable, adapted))
    return "Convert it with triglot.from_functions(init, apply)." if is_pair else ""


@CHECKS.check(needs=["protocol"])
def _init(case: NetworkCase) -> None:
    """Does init(key) return Variables of JAX arrays, with floating-point params?

    Why: Optimizers, vmap and checkpoints need arrays; a Python or NumPy number becomes a constant
    of the compiled program, or fails.

    Fix: Return Variables(params=..., state=...) with jnp arrays: trainable arrays in params, all
    others in state, random keys in neither.
    """
    with _carry_advice(case):
        variables = case.variables
    if not isinstance(variables, Variables):
        raise Failed(f"init returned {describe_value(variables)}; expected Variables.")
    reject(
        trees.find_non_array("params", variables.params)
        or trees.find_non_array("state", variables.state)
    )
    for path, leaf in trees.by_path(variables.params).items():
        if not trees.is_inexact(leaf):
            kind = describe_value(leaf)
            raise Failed(f"params.{path} is {kind}, which has no gradient: move it to state.")
    for path, leaf in trees.by_path(variables.state).items():
        if is_key(leaf):
            raise Failed(
                f"state.{path} is a random key: use the `key` argument of apply in its place."
            )
    if not num_params(variables.params):
        case.notes.append("it has no parameters, so there is nothing to train.")


@contextmanager
def _carry_advice(case: NetworkCase) -> Iterator[None]:
    """Advise to pass `initial_carry` where a module misses an argument: it may be recurrent."""
    try:
        yield
    except Failed as failure:
        missing = re.search("missing .*argument|initial_carry", failure.found)
        if case.network.recurrent or not missing:
            raise
        raise Failed(
            failure.found,
            "If the module is recurrent, (obs, carry) -> (outputs, carry), pass "
            "initial_carry=lambda num_envs: ... to the from_... function that converts it. "
            "Otherwise it must take one argument for each spec in obs_spec.",
        ) from None


@CHECKS.check(needs=["init"])
def _carry(case: NetworkCase) -> None:
    """Does initial_carry return arrays [N, ...] for N environments?

    Why: The carry is reset for each environment separately when an episode starts.

    Fix: Build it from num_envs, e.g. jnp.zeros((num_envs, hidden_size)).
    """
    if not case.network.recurrent:
        raise NotApplicable("the network is not recurrent.")
    for num_envs in (BATCH_SIZE, 2):
        carry = case.initial_carry(num_envs)
        if not jax.tree.leaves(carry):
            raise Failed(
                f"initial_carry(variables, {num_envs}) returned {carry!r}, which contains no "
                "arrays; a recurrent network needs a carry.",
                "Pass initial_carry with recurrent=True: a function that returns the carry of "
                "num_envs environments, e.g. jnp.zeros((num_envs, hidden_size)). Set "
                "recurrent=False if the network has no carry.",
            )
        reject(trees.find_unbatched("the carry", carry, num_envs), f"for {num_envs} environments, ")


@CHECKS.check(needs=["init", "carry"])
def _apply(case: NetworkCase) -> None:
    """Does apply accept a batch of observations and return (outputs, state)?

    Why: Agents unpack the pair; the outputs of a recurrent network are the pair (outputs, carry).

    Fix: Return outputs, variables.state; the outputs are a dictionary of heads.
    """
    with _carry_advice(case):
        result = case.evaluation.result
    _check_pair(case, result)
    if not case.network.recurrent and isinstance(result[0], tuple):
        case.notes.append(
            f"its outputs are {describe_value(result[0])}; agents need a dictionary of heads. If "
            "this is (outputs, carry) of a recurrent module, pass initial_carry when converting it."
        )


@CHECKS.check(needs=["apply"])
def _training(case: NetworkCase) -> None:
    """Does apply accept train=True and a key, and return the same heads as in evaluation?

    Why: Losses call the network this way; dropout and running statistics need it.

    Fix: Accept `key` and `train` as keyword arguments, and return the same heads in both modes.
    """
    _check_pair(case, case.training.result)
    evaluated, trained = (case.heads(c.result[0]) for c in (case.evaluation, case.training))
    reject(trees.find_type_change("outputs", evaluated, trained), "in evaluation and training, ")


def _check_pair(case: NetworkCase, result: Any) -> None:
    check_pair("apply", result, "(outputs, state)")
    outputs = result[0]
    if case.network.recurrent:
        _check_recurrent_pair(case, outputs)
    reject(
        trees.find_non_array("outputs", outputs) or trees.find_non_array("the new state", result[1])
    )
    if not jax.tree.leaves(case.heads(outputs)):
        raise Failed(f"apply returned no outputs: {outputs!r}.")


def _check_recurrent_pair(case: NetworkCase, outputs: PyTree) -> None:
    if not (isinstance(outputs, tuple) and len(outputs) == 2):
        raise Failed(
            "a recurrent network must return the pair (outputs, carry); its outputs are "
            f"{describe_value(outputs)}.",
            "Return (outputs, new_carry) from the module, or set recurrent=False.",
        )
    carry = case.inputs[1]
    if _same_types(carry, outputs[0]) and not _same_types(carry, outputs[1]):
        raise Failed(
            "a recurrent network must return (outputs, carry); it returned (carry, outputs), the "
            "order of Flax's cells.",
            "Swap the pair: `carry, y = cell(carry, x)`, then return heads(y), carry.",
        )


def _same_types(before: PyTree, after: PyTree) -> bool:
    return not trees.find_type_change("", before, after)
