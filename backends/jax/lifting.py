"""`from_functions`: from plain functions `init` and `apply` to a `Network`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...core.errors import TriglotError, check_text, unknown, user_error_context
from ...core.network import Leaf, Network
from ...core.types import PyTree
from .. import calling
from ..layers.describe import describe
from ..layers.rules import several_axes
from ..libraries import find
from ..naming import canonical_name
from .layers import STORAGE, kind_of_kernel, with_layout
from .network import lift, read_init
from .signatures import is_functions


def from_functions(
    init: Any,
    apply: Callable[..., PyTree] | None = None,
    *,
    obs_spec: calling.Inputs | None = None,
    name: str | None = None,
    initial_carry: calling.InitialCarry | None = None,
    layouts: Mapping[str, str] | None = None,
) -> Network:
    """Wrap plain functions of JAX arrays as a `Network`.

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

    >>> import jax
    >>> import jax.numpy as jnp
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
    for parameter, words in layouts.items():
        check_text(f"the layout of {parameter!r}, such as 'in out',", words)
    wanted = {
        canonical_name(parameter.split("/"), STORAGE.leaf_names): parameter for parameter in layouts
    }
    axes = {canonical: layouts[declared].split() for canonical, declared in wanted.items()}
    dense = {
        canonical.rpartition("/")[0]: kind_of_kernel(words) for canonical, words in axes.items()
    }
    library, leaf_names = find("jax"), set[str]()

    def leaf_of(words: tuple[str, ...], shape: tuple[int, ...]) -> Leaf:
        leaf = describe(library, words, (), shape)
        leaf_names.add(leaf.name)
        if leaf.name in axes:
            return with_layout(leaf.name, axes[leaf.name], shape)
        if not several_axes(shape) and (kind := dense.get(leaf.name.rpartition("/")[0])):
            return replace(leaf, layer=kind)
        return leaf

    network = lift(*functions, obs_spec, shown, initial_carry, leaf_of)
    if missing := sorted(axes.keys() - leaf_names):
        raise unknown("parameter in layouts", wanted[missing[0]], sorted(leaf_names))
    return network


def lift_if_functions(
    functions: Any, obs_spec: calling.Inputs, name: str | None = None, *, tried: bool = True
) -> Any:
    """Wrap a pair `(init, apply)` or an object with these methods; return a `Network` as it is.

    Args:
      functions: a network, or what `from_functions` takes.
      obs_spec: one observation; a tuple of specs for several inputs.
      name: shown in errors and reports.
      tried: whether `apply` is called with such observations, to find its errors.
    """
    if isinstance(functions, Network) or not is_functions(functions):
        return functions
    shown = name or _name_of(functions)
    init, apply = _pair_of(functions, shown)
    known = obs_spec if tried or read_init(init, shown).requires_observations else None
    return from_functions(init, apply, obs_spec=known, name=shown)


def _pair_of(functions: Any, shown: str) -> tuple[Callable[..., PyTree], Callable[..., PyTree]]:
    if isinstance(functions, type) and is_functions(functions):
        with user_error_context(f"the class {shown} failed when it was called with nothing"):
            functions = functions()
    if isinstance(functions, Network) or not is_functions(functions):
        raise TriglotError(
            f"from_functions takes two functions init and apply, a pair of them, or an object with "
            f"these methods; got a {type(functions).__name__}: pass both functions."
        )
    return functions if type(functions) is tuple else (functions.init, functions.apply)


def _name_of(functions: object) -> str:
    named = getattr(functions, "__qualname__", "")
    return (
        "functions"
        if type(functions) is tuple or named == "init"
        else calling.display_name(functions)
    )
