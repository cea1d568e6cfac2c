"""Equinox's modules as `Network`s: `eqx.partition`, `eqx.combine`, `eqx.filter_value_and_grad`."""

from typing import Any

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError, require, user_error_context
from ..core.network import Codec, Network, Variables
from ..core.networks.architecture import NetworkSpec
from . import cells, equinox_layouts
from .calling import InitialCarry, arguments, mode_arguments, parameters

BATCH_AXIS = "batch"


def from_equinox(
    module: Any, *, name: str | None = None, initial_carry: InitialCarry | None = None
) -> Network:
    """Lift an Equinox module to a `Network`.

    Args:
      module: its class or another constructor, which takes a key (by the name `key` where there is
        one); or a module already made, whose present weights every training then starts from, with
        its `eqx.nn.State` in a pair where it has one. It is called on one observation, and on
        several inputs where they are a tuple; the batch is a `jax.vmap` over it with the axis name
        `batch`. Where it takes `key`, it is given one in training; a module with state
        (`eqx.nn.BatchNorm`) takes `state` and returns it beside its outputs. In evaluation
        `eqx.nn.inference_mode` is set.
      name: how errors and reports call it.
      initial_carry: of a recurrent module `(obs, carry) -> (outputs, carry)`: makes the carry
        `[N, ...]` for a number of environments.

    Returns:
      The network; `params` is the module with only its inexact arrays, `state` its other arrays and
      those of its `eqx.nn.State`. A Python number on the module is no parameter and never changes.

    Raises:
      MissingExtra: if Equinox is not installed.
      TriglotError: if the constructor fails or makes no module, or a module with state does not
        take it.
    """
    eqx = require("equinox", "equinox")
    made = isinstance(module, eqx.Module | tuple)
    by_name = "key" in parameters(module)

    def construct(key: jax.Array) -> Any:
        if made:
            return module
        # Constructors compute constants (`float(jnp.sqrt(d))`), which fails while tracing.
        with jax.ensure_compile_time_eval():
            return module(key=key) if by_name else module(key)

    def with_state(built: Any) -> tuple[Any, Any]:
        """Part a module from its state, be it made with `eqx.nn.make_with_state` or not."""
        if isinstance(built, tuple):
            return built
        return eqx.nn.delete_init_state(built), eqx.nn.State(built)

    called = name or getattr(module, "__name__", type(module).__name__)
    with user_error_context(f"the Equinox constructor {called!r} failed when given a key"):
        abstract, abstract_state = eqx.filter_eval_shape(
            lambda key: with_state(construct(key)), jax.random.key(0)
        )
    if not isinstance(abstract, eqx.Module) or not callable(abstract):
        raise TriglotError(
            f"from_equinox takes a callable eqx.Module or what makes one from a key; {called!r} "
            "made none."
        )
    # The skeleton is what is no array; it is found once, without computing any array. Its static
    # marks (an index of State is one by identity) stand for those of every later construction.
    abstract_params, rest = eqx.partition(abstract, _is_trainable)
    abstract_buffers, skeleton = eqx.partition(rest, _is_array)
    state_structure = jax.tree.structure(abstract_state)
    names = parameters(type(abstract).__call__)
    stateful = state_structure.num_leaves > 0
    if stateful and "state" not in names:
        raise TriglotError(
            f"the Equinox module {called!r} holds state (such as BatchNorm's), and its __call__ "
            "takes no `state`: write __call__(self, obs, state) and return (outputs, state)."
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
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        buffers = jax.tree.unflatten(
            jax.tree.structure(abstract_buffers), variables.state["buffers"]
        )
        built = eqx.combine(variables.params, buffers, skeleton)
        built = eqx.nn.inference_mode(built, value=not train)
        modes = mode_arguments(names, train)
        given = arguments(inputs)
        keys = None
        if "key" in names and train and key is not None:
            keys = jax.random.split(key, jax.tree.leaves(given)[0].shape[0])

        def one(given: tuple[Any, ...], own_key: jax.Array | None, state: Any) -> tuple[Any, Any]:
            more = {} if own_key is None else {"key": own_key}
            if not stateful:
                return built(*given, **more, **modes), None
            outputs, state = built(*given, state=state, **more, **modes)
            return outputs, jax.tree.leaves(state)

        # An eqx.nn.State can be used once only: its leaves are what is carried.
        state = jax.tree.unflatten(state_structure, variables.state["state"])
        outputs, moved = jax.vmap(
            one,
            in_axes=(0, None if keys is None else 0, None),
            out_axes=(0, None),
            axis_name=BATCH_AXIS,
        )(given, keys, state)
        if not stateful or not train:
            return outputs, variables.state
        return outputs, {"buffers": variables.state["buffers"], "state": moved}

    leaves = [
        equinox_layouts.leaf(eqx, abstract, path)
        for path, _ in jax.tree_util.tree_leaves_with_path(abstract_params)
    ]
    return Network(
        name=called if not made or name else type(abstract).__name__,
        backend="equinox",
        init=init,
        apply=apply,
        value_and_grad=lambda loss: eqx.filter_value_and_grad(loss, has_aux=True),
        recurrent=initial_carry is not None,
        initial_carry=lambda variables, n: initial_carry(n) if initial_carry else (),
        random_start=not made,
        codec=Codec.named(abstract_params, leaves),
    )


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a described network from Equinox's own layers."""
    require("equinox", "equinox")
    from .zoo.equinox import make

    initial_carry = spec.cell.initial_carry if spec.cell else None
    network = from_equinox(make(spec), name=name, initial_carry=initial_carry)
    return cells.match_initializers(network) if spec.cell else network


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | jax.ShapeDtypeStruct)


def _is_trainable(leaf: Any) -> bool:
    return _is_array(leaf) and jnp.issubdtype(leaf.dtype, jnp.inexact)
