"""Adapter for plain JAX: functions `init` and `apply`, and the zoo without a library."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError, unknown, user_error_context
from ..core.network import Codec, Leaf, Network, Variables
from ..core.networks.architecture import NetworkSpec, Table
from ..core.networks.combinators import hold
from . import calling, table
from .layers.describe import describe
from .layers.rules import DENSE, several_axes
from .naming import canonical_name, words_of
from .objects import constants_of
from .signatures import KEY, SHAPE, Signature, is_functions
from .zoo.lifting import inputs_of, lift_zoo

LEAF_NAMES = {"w": "kernel", "W": "kernel", "weight": "kernel", "weights": "kernel", "b": "bias"}
INIT = "init(key), init(key, inputs) or init(key, input_shape)"
APPLY = "apply(params, inputs), apply(params, state, inputs, key, train) or a part of these"

Describe: TypeAlias = Callable[[tuple[str, ...], tuple[int, ...]], Leaf]


def from_functions(
    init: Any,
    apply: Callable[..., Any] | None = None,
    *,
    obs_spec: calling.Inputs | None = None,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
    layouts: Mapping[str, str] | None = None,
) -> Network:
    """Lift plain functions of JAX arrays to a `Network`.

    The arguments are chosen by the names of the parameters, in any order: `params`; `state`; `key`
    or `rng`; `train`, `is_training` or `deterministic`. All others are inputs, a batch `[B, ...]`
    each. Parameters with a default and another name keep the default.

    Args:
      init: `init(key) -> params`, or `(params, state)` if `apply` takes `state`. It may also take
        example inputs, or, like stax, `input_shape`, and then returns `(output_shape, params)`.
        Alternatively a pair `(init, apply)`, or an object with these two methods.
      apply: `apply(params, inputs) -> outputs`. If it takes `state`, it returns
        `(outputs, state)`. If it takes `key`, it gets one in training, and in evaluation None; one
        that also takes `train` gets every key. The key of `**kwargs` is `rng`.
      obs_spec: one observation, a tuple of specs for several inputs; required if `init` takes
        inputs or their shape. With it, errors of `apply` are found at once.
      name: shown in errors and reports.
      initial_carry: for a recurrent `apply(params, obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.
      layouts: the axes of stored kernels by the parameter's name, such as
        `{"hidden/w": "in out", "conv/w": "out in height width"}`; `translate` pairs arrays of
        other libraries with those whose layout is known.

    Returns:
      The network; `params` is what `init` returns. Integer parameters are kept in the state.

    Raises:
      TriglotError: if a signature is not understood, `init` returns no arrays, a function fails, or
        a layout does not fit.

    >>> def init(key):
    ...     return {"w": jax.random.normal(key, (4, 2)), "b": jnp.zeros(2)}
    >>> def apply(params, obs):
    ...     return obs @ params["w"] + params["b"]
    >>> network = from_functions(init, apply, layouts={"w": "in out"})
    >>> [leaf.name for leaf in network.codec.leaves]
    ['bias', 'kernel']
    """
    shown = name or _name_of(init)
    functions = _pair_of(init, shown) if apply is None else (init, apply)
    layouts = layouts or {}
    wanted = {canonical_name(each.split("/"), LEAF_NAMES): each for each in layouts}
    axes = {each: layouts[given].split() for each, given in wanted.items()}
    dense = {each.rpartition("/")[0]: _kind(words) for each, words in axes.items()}
    found: set[str] = set()

    def leaf_of(words: tuple[str, ...], shape: tuple[int, ...]) -> Leaf:
        leaf = describe("jax", words, (), shape, LEAF_NAMES)
        found.add(leaf.name)
        if leaf.name in axes:
            return _with_layout(leaf.name, axes[leaf.name], shape)
        if not several_axes(shape) and (kind := dense.get(leaf.name.rpartition("/")[0])):
            return replace(leaf, layer=kind)
        return leaf

    network = lift(*functions, obs_spec, shown, initial_carry, leaf_of)
    if missing := sorted(axes.keys() - found):
        raise unknown("parameter in layouts", wanted[missing[0]], sorted(found))
    return network


def lift_if_functions(
    made: Any, obs_spec: calling.Inputs, name: str | None = None, *, tried: bool = True
) -> Any:
    """Lift a pair `(init, apply)` or an object with these methods; return a `Network` as it is.

    Args:
      made: a network, or what `from_functions` takes.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      tried: whether `apply` is called with such observations, to find its errors.
    """
    if isinstance(made, Network) or not is_functions(made):
        return made
    shown = name or _name_of(made)
    init, apply = _pair_of(made, shown)
    known = obs_spec if tried or _signature_of(init, shown).requires_observations else None
    return from_functions(init, apply, obs_spec=known, name=shown)


def lift(
    init: Callable[..., Any],
    apply: Callable[..., Any],
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
    starts = _signature_of(init, name)
    calls = Signature.of(apply, f"apply of {name!r}", first="params", expected=APPLY)
    if starts.requires_observations and obs_spec is None:
        raise TriglotError(
            f"{starts.shown} takes {', '.join(starts.names)}, so the observation must be known: "
            "pass obs_spec=."
        )
    stateful, constants = calls.takes("state"), constants_of(init)

    def init_network(key: jax.Array) -> Variables:
        known: dict[str, Any] = {KEY: key, "train": False, "evaluate": True}
        example: tuple[Any, ...] = ()
        if obs_spec is not None and starts.requires_inputs:
            example = calling.example_arguments(obs_spec, initial_carry)
        if obs_spec is not None and starts.takes(SHAPE):
            known[SHAPE] = _input_shape(obs_spec)
        with constants():
            made = starts.call(example, known)
        if starts.takes(SHAPE) and _is_pair(made) and _is_shape(made[0]):
            _, made = made
        if stateful and not _is_pair(made):
            raise TriglotError(
                f"{calls.shown} takes `state`, so {starts.shown} must return (params, state); it "
                f"returned a {type(made).__name__}: name the parameter `carry` if it is the carry "
                "of a recurrent network."
            )
        params, state = made if stateful else (made, ())
        return Variables(params=_arrays(params, starts.shown), state=_arrays(state, starts.shown))

    def apply_network(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        known = {"params": variables.params, "train": train, "evaluate": not train}
        switched = calls.takes("train") or calls.takes("evaluate")
        known[KEY] = key if train or switched else None
        if not stateful:
            return calls.call(calling.arguments(inputs), known), variables.state
        made = calls.call(calling.arguments(inputs), {**known, "state": variables.state})
        if not _is_pair(made):
            raise TriglotError(
                f"{calls.shown} takes `state`, so it must return (outputs, state); it returned a "
                f"{type(made).__name__}."
            )
        return made[0], made[1] if train else variables.state

    with user_error_context(f"{starts.shown} failed when given a key"):
        example = jax.eval_shape(init_network, jax.random.key(0))
    if not (paths := jax.tree_util.tree_leaves_with_path(example.params)):
        raise TriglotError(
            f"{starts.shown} returned no arrays; expected a pytree of arrays, such as a dictionary."
        )
    leaves = [leaf_of(words_of(path) or ("params",), array.shape) for path, array in paths]
    codec = Codec.named(example.params, leaves)
    network = calling.lifted(name, "jax", init_network, apply_network, initial_carry, codec=codec)
    if obs_spec is not None:
        arguments: Any = calling.example_arguments(obs_spec, initial_carry)
        given = arguments[0] if len(arguments) == 1 else arguments
        with user_error_context(f"{calls.shown} failed on {calling.describe_inputs(obs_spec)}"):
            jax.eval_shape(network.apply, example, given)
    arrays = [array for _, array in paths]
    buffers = {
        leaf.name
        for leaf, array in zip(leaves, arrays, strict=True)
        if not jnp.issubdtype(array.dtype, jnp.inexact)
    }
    return hold(network, buffers) if buffers else network


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a network whose parameters are stored by canonical name in the canonical layout."""
    if isinstance(spec.torso, Table):
        return replace(table.zoo(spec, name), backend="jax")
    from .zoo.jax import leaf_of, make

    init, apply = make(spec)

    def build(*, name: str, initial_carry: calling.InitialCarry | None = None) -> Network:
        return lift(init, apply, inputs_of(spec), name, initial_carry, partial(leaf_of, spec))

    return lift_zoo(build, spec, name, statistic=lambda path: path[-1])


def _signature_of(init: Any, name: str) -> Signature:
    return Signature.of(init, f"init of {name!r}", first=KEY, expected=INIT)


def _pair_of(made: Any, shown: str) -> tuple[Any, Any]:
    if isinstance(made, type) and is_functions(made):
        with user_error_context(f"the class {shown} failed when it was called with nothing"):
            made = made()
    if isinstance(made, Network) or not is_functions(made):
        raise TriglotError(
            f"from_functions takes two functions init and apply, a pair of them, or an object with "
            f"these methods; got a {type(made).__name__}: pass both functions."
        )
    return made if type(made) is tuple else (made.init, made.apply)


def _name_of(made: Any) -> str:
    named = getattr(made, "__qualname__", "")
    return "functions" if type(made) is tuple or named == "init" else calling.display_name(made)


def _is_pair(made: Any) -> bool:
    return isinstance(made, tuple | list) and len(made) == 2


def _is_shape(made: Any) -> bool:
    """Check for an output's shape, or several, as stax returns them."""
    return all(isinstance(size, int) for size in jax.tree.leaves(made))


def _input_shape(inputs: calling.Inputs) -> Any:
    """Give the shape of a batch, or several, with -1 for its size as stax writes it."""
    shapes = [
        jax.tree.map(lambda array: (-1, *array.shape[1:]), zeros)
        for zeros in calling.example_arguments(inputs, None)
    ]
    return tuple(shapes) if isinstance(inputs, tuple) else shapes[0]


def _arrays(tree: Any, shown: str) -> Any:
    """Convert the leaves to arrays, without weak types."""

    def convert(leaf: Any) -> jax.Array:
        try:
            return jnp.asarray(leaf, jnp.result_type(leaf))
        except TypeError:
            raise TriglotError(
                f"{shown} returned a {type(leaf).__name__} among its arrays: return arrays only, "
                "and keep functions and texts outside of it."
            ) from None

    return jax.tree.map(convert, tree)


def _kind(axes: list[str]) -> str:
    return DENSE if len(axes) == 2 else "a convolution"


def _with_layout(name: str, axes: list[str], shape: tuple[int, ...]) -> Leaf:
    """Describe a kernel with these axes, canonically those of the window, `in` and `out`."""
    if len(set(axes)) != len(shape) or len(axes) != len(shape) or not {"in", "out"} <= set(axes):
        raise TriglotError(
            f"the layout {' '.join(axes)!r} of {name!r} does not fit its shape {shape}: name each "
            "axis once, among them `in` and `out`, such as 'in out' or 'height width in out'."
        )
    canonical = [*(axis for axis in axes if axis not in ("in", "out")), "in", "out"]
    stored = [axes.index(axis) - len(axes) for axis in canonical]
    last = list(range(-len(axes), 0))
    leaf = Leaf.one(
        name,
        lambda array: jnp.moveaxis(array, stored, last),
        lambda array: jnp.moveaxis(array, last, stored),
    )
    return replace(leaf, layer=_kind(axes))
