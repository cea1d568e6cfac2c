"""`from_equinox`: from an Equinox module to a `Network`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ...core.errors import TriglotError, require, user_error_context
from ...core.network import Network, Statistic, Variables
from ...core.types import PyTree
from ..calling import InitialCarry, bind, display_name, lifted, parameters
from ..naming import normalize_separators, words_of
from ..objects import BATCH_AXIS, codec_of, constructor

if TYPE_CHECKING:
    import equinox

    EquinoxModule: TypeAlias = equinox.Module | tuple[equinox.Module, equinox.nn.State]


def from_equinox(
    module: "EquinoxModule | Callable[..., EquinoxModule]",
    *,
    name: str | None = None,
    initial_carry: InitialCarry | None = None,
) -> Network:
    """Wrap an Equinox module as a `Network`.

    Args:
      module: a class or another constructor that takes a key, as `key` if it has a parameter of
        that name; or a module, or a pair of a module and its `eqx.nn.State`, whose weights every
        training then starts from. It is called on one observation; a tuple of inputs becomes
        several arguments; the batch is a `jax.vmap` with the axis name `batch`. If it takes `key`,
        it gets one in training; a module with state (`eqx.nn.BatchNorm`) takes `state` and returns
        `(outputs, state)`. In evaluation `eqx.nn.inference_mode` is set.
      name: shown in errors and reports.
      initial_carry: for a recurrent module `(obs, carry) -> (outputs, carry)`:
        `initial_carry(num_envs)` returns the carry `[N, ...]` at an episode's start.

    Returns:
      The network; `params` is the module with only its inexact JAX arrays, `state` holds its other
      JAX arrays and those of its `eqx.nn.State`. Python numbers and NumPy arrays on the module are
      constants, which training does not change; use `jnp.asarray` to train one.

    Raises:
      MissingExtra: if Equinox is not installed.
      TriglotError: if the constructor fails or returns something else than a module, or a
        module with state does not take `state`.
    """
    eqx = require("equinox", "equinox")
    shown = name or display_name(module)
    is_built = isinstance(module, eqx.Module | tuple)
    construct = (lambda key: module) if is_built else constructor(module, "key", lambda key: key)

    def with_state(built: Any) -> tuple[PyTree, PyTree]:
        """Split a module from its state, whether built with `eqx.nn.make_with_state` or not."""
        if isinstance(built, tuple):
            return built
        return eqx.nn.delete_init_state(built), eqx.nn.State(built)

    def with_constants_hidden(key: jax.Array) -> tuple[PyTree, PyTree]:
        # filter_eval_shape would turn NumPy arrays into abstract arrays and lose their values.
        built, state = with_state(construct(key))
        return jax.tree.map(lambda leaf: _Constant(leaf) if _is_numpy(leaf) else leaf, built), state

    with user_error_context(f"the Equinox constructor {shown!r} failed when given a key"):
        hidden, abstract_state = eqx.filter_eval_shape(with_constants_hidden, jax.random.key(0))
    abstract = jax.tree.map(
        lambda leaf: leaf.value if isinstance(leaf, _Constant) else leaf, hidden
    )
    if not isinstance(abstract, eqx.Module) or not callable(abstract):
        raise TriglotError(
            f"from_equinox takes a callable eqx.Module or a function of a key that returns one; "
            f"{shown!r} returned a {type(abstract).__name__}."
        )
    # The skeleton holds everything but JAX arrays. It is found once, without computing an array,
    # and used for every later construction: indices of State compare by identity.
    abstract_params, rest = eqx.partition(abstract, _is_trainable)
    abstract_buffers, skeleton = eqx.partition(rest, _is_array)
    state_structure = jax.tree.structure(abstract_state)
    names = parameters(abstract)
    stateful = state_structure.num_leaves > 0
    if stateful and "state" not in names:
        raise TriglotError(
            f"the Equinox module {shown!r} holds state (such as BatchNorm's), but its __call__ "
            "does not take `state`: write __call__(self, obs, state) and return (outputs, state)."
        )

    def init(key: jax.Array) -> Variables:
        built, state = with_state(construct(key))
        params, rest = eqx.partition(built, _is_trainable)
        buffers = jax.tree.leaves(eqx.filter(rest, _is_array))
        return Variables(
            params=jax.tree.unflatten(jax.tree.structure(abstract_params), jax.tree.leaves(params)),
            state={"buffers": buffers, "state": jax.tree.leaves(state)},
        )

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        buffers = jax.tree.unflatten(
            jax.tree.structure(abstract_buffers), variables.state["buffers"]
        )
        built = eqx.combine(variables.params, buffers, skeleton)
        built = eqx.nn.inference_mode(built, value=not train)
        args, modes = bind(f"the Equinox module {shown!r}", names, inputs, train)
        keys = None
        if "key" in names and train and key is not None:
            keys = jax.random.split(key, jax.tree.leaves(args)[0].shape[0])

        def apply_row(
            row: tuple[PyTree, ...], own_key: jax.Array | None, state: PyTree
        ) -> tuple[PyTree, PyTree]:
            more = {} if own_key is None else {"key": own_key}
            if not stateful:
                return built(*row, **more, **modes), None
            outputs, state = built(*row, state=state, **more, **modes)
            return outputs, jax.tree.leaves(state)

        # Equinox refuses to use a State twice, so its leaves are carried instead.
        state = jax.tree.unflatten(state_structure, variables.state["state"])
        outputs, moved = jax.vmap(
            apply_row,
            in_axes=(0, None if keys is None else 0, None),
            out_axes=(0, None),
            axis_name=BATCH_AXIS,
        )(args, keys, state)
        if not stateful or not train:
            return outputs, variables.state
        return outputs, {"buffers": variables.state["buffers"], "state": moved}

    def is_layer(node: object) -> bool:
        return isinstance(node, eqx.Module)

    num_buffers = len(jax.tree.leaves(abstract_buffers))
    return lifted(
        shown,
        "equinox",
        init,
        apply,
        initial_carry,
        codec=codec_of("equinox", abstract, abstract_params, is_layer, spell=jax.tree_util.keystr),
        statistics=(*[None] * num_buffers, *_statistics(abstract, abstract_state)),
        random_start=not is_built,
        value_and_grad=lambda loss: eqx.filter_value_and_grad(loss, has_aux=True),
    )


def _statistics(module: Any, state: PyTree) -> list[Statistic | None]:
    """Describe the arrays of an `eqx.nn.State`: running statistics, or singular vectors."""
    eqx = require("equinox", "equinox")
    leaves, structure = jax.tree.flatten(state)
    places = jax.tree.unflatten(structure, range(len(leaves)))
    statistics: list[Statistic | None] = [None] * len(leaves)

    def is_norm(node: object) -> bool:
        return isinstance(node, eqx.nn.BatchNorm | eqx.nn.SpectralNorm)

    for path, norm in jax.tree_util.tree_leaves_with_path(module, is_leaf=is_norm):
        if not is_norm(norm):
            continue
        place = normalize_separators("/".join(words_of(path)))
        if isinstance(norm, eqx.nn.SpectralNorm):
            for index, last in zip(places.get(norm.uv_index), "uv", strict=True):
                statistics[index] = Statistic(f"{place}/{last}")
            continue
        is_ema = norm.mode == "ema"
        mean, var = places.get(norm.ema_state_index if is_ema else norm.batch_state_index)
        count = places.get(norm.ema_first_time_index if is_ema else norm.batch_counter)
        decay = None if is_ema else norm.momentum
        statistics[mean], statistics[var] = (
            Statistic(f"{place}/{n}", decay) for n in ("mean", "var")
        )
        statistics[count] = Statistic(f"{place}/count")
    return statistics


@dataclass(frozen=True, eq=False)
class _Constant:
    """A NumPy array, as a leaf that JAX does not take for an array."""

    value: np.ndarray | np.generic


def _is_numpy(leaf: object) -> bool:
    return isinstance(leaf, np.ndarray | np.generic)


def _is_array(leaf: object) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def _is_trainable(leaf: Any) -> bool:
    return _is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
