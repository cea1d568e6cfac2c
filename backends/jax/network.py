"""The network of two plain functions."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from ...core.errors import TriglotError, user_error_context
from ...core.network import Codec, Leaf, Network, Variables
from ...core.tracing.jaxprs import scan_lengths
from ...core.types import PyTree, abstract_key
from .. import calling
from ..layers.stacks import Stack, find_scanned, stacked
from ..naming import words_of
from ..objects import constants_of
from .signatures import KEY, SHAPE, Signature

INIT = "init(key), init(key, inputs) or init(key, input_shape)"
APPLY = "apply(params, inputs), apply(params, state, inputs, key, train) or a part of these"

Describe: TypeAlias = Callable[[tuple[str, ...], tuple[int, ...]], Leaf]


def read_init(init: Any, name: str) -> Signature:
    """Read the signature of a network's `init`."""
    return Signature.of(init, f"init of {name!r}", first=KEY, expected=INIT)


def lift(
    init: Callable[..., PyTree],
    apply: Callable[..., PyTree],
    obs_spec: calling.Inputs | None,
    name: str,
    initial_carry: calling.InitialCarry | None,
    leaf_of: Describe,
) -> Network:
    """Build the network of two functions, as `from_functions` does.

    Args:
      init, apply, obs_spec, name, initial_carry: as those of `from_functions`.
      leaf_of: describes a parameter, from the words of its path and its shape.
    """
    starts = read_init(init, name)
    calls = Signature.of(apply, f"apply of {name!r}", first="params", expected=APPLY)
    if starts.requires_observations and obs_spec is None:
        raise TriglotError(
            f"{starts.shown} takes {', '.join(starts.names)}, so the observation must be known: "
            "pass obs_spec=."
        )
    stateful, constants = calls.takes("state"), constants_of(init)

    def init_network(key: jax.Array) -> Variables:
        known: dict[str, Any] = {KEY: key, "train": False, "evaluate": True}
        example: tuple[PyTree, ...] = ()
        if obs_spec is not None and starts.requires_inputs:
            example = calling.example_arguments(obs_spec, initial_carry)
        if obs_spec is not None and starts.takes(SHAPE):
            known[SHAPE] = _input_shape(obs_spec)
        with constants():
            pair = starts.call(example, known)
        if starts.takes(SHAPE) and _is_pair(pair) and _is_shape(pair[0]):
            _, pair = pair
        if stateful and not _is_pair(pair):
            raise TriglotError(
                f"{calls.shown} takes `state`, so {starts.shown} must return (params, state); it "
                f"returned a {type(pair).__name__}: name the parameter `carry` if it is the carry "
                "of a recurrent network."
            )
        params, state = pair if stateful else (pair, ())
        return Variables(params=_arrays(params, starts.shown), state=_arrays(state, starts.shown))

    def apply_network(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        known = {"params": variables.params, "train": train, "evaluate": not train}
        switched = calls.takes("train") or calls.takes("evaluate")
        known[KEY] = key if train or switched else None
        if not stateful:
            return calls.call(calling.arguments(inputs), known), variables.state
        returned = calls.call(calling.arguments(inputs), {**known, "state": variables.state})
        if not _is_pair(returned):
            raise TriglotError(
                f"{calls.shown} takes `state`, so it must return (outputs, state); it returned a "
                f"{type(returned).__name__}."
            )
        return returned[0], returned[1] if train else variables.state

    with user_error_context(f"{starts.shown} failed when given a key"):
        example = jax.eval_shape(init_network, abstract_key())
    if not (paths := jax.tree_util.tree_leaves_with_path(example.params)):
        raise TriglotError(
            f"{starts.shown} returned no arrays; expected a pytree of arrays, such as a dictionary."
        )
    words = [words_of(path) or ("params",) for path, _ in paths]
    arrays = [array for _, array in paths]
    stacks: list[Stack | None] = [None] * len(arrays)
    if obs_spec is not None:
        arguments: tuple[PyTree, ...] = calling.example_arguments(obs_spec, initial_carry)
        example_inputs = arguments[0] if len(arguments) == 1 else arguments
        with user_error_context(f"{calls.shown} failed on {calling.describe_inputs(obs_spec)}"):
            program = jax.make_jaxpr(apply_network)(example, example_inputs).jaxpr
        stacks = find_scanned(words, [array.shape for array in arrays], scan_lengths(program))
    leaves = [
        leaf_of(path, array.shape)
        if stack is None
        else stacked(leaf_of(path, array.shape[1:]), array.shape, stack)
        for path, array, stack in zip(words, arrays, stacks, strict=True)
    ]
    codec = Codec.named(example.params, leaves, ["/".join(path) for path in words])
    network = calling.lifted(name, "jax", init_network, apply_network, initial_carry, codec=codec)
    return calling.without_integers(network, leaves, arrays)


def _is_pair(returned: object) -> bool:
    return isinstance(returned, tuple | list) and len(returned) == 2


def _is_shape(shape: PyTree) -> bool:
    """Check for an output's shape, or several, as stax returns them."""
    return all(isinstance(size, int) for size in jax.tree.leaves(shape))


def _input_shape(inputs: calling.Inputs) -> PyTree:
    """Give the shape of a batch, or several, with -1 for its size as stax writes it."""
    shapes = [
        jax.tree.map(lambda array: (-1, *array.shape[1:]), zeros)
        for zeros in calling.example_arguments(inputs, None)
    ]
    return tuple(shapes) if isinstance(inputs, tuple) else shapes[0]


def _arrays(tree: PyTree, shown: str) -> PyTree:
    """Convert the leaves to arrays, without weak types."""

    def convert(leaf: ArrayLike) -> jax.Array:
        try:
            return jnp.asarray(leaf, jnp.result_type(leaf))
        except TypeError:
            raise TriglotError(
                f"{shown} returned a {type(leaf).__name__} among its arrays: return arrays only, "
                "and keep functions and texts outside of it."
            ) from None

    return jax.tree.map(convert, tree)
