"""Combinators of networks: combine, ensemble, scalar, start_from, freeze, transform_inputs, ..."""

import fnmatch
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import jax
import jax.numpy as jnp

from ..errors import TriglotError, check_text, kind_of
from ..hyper import check_count, is_number
from ..network import Codec, Leaf, Network, Variables, check_network
from ..types import Key, PyTree, abstract_key, type_differences


def combine(networks: Mapping[str, Network]) -> Network:
    """Join networks into one set of variables: one global gradient norm, one optimizer state.

    `apply` gives the same inputs to all networks. Networks with different inputs are applied one by
    one: `combined.parts[name].apply(part_of(variables, name), inputs)`.

    Args:
      networks: at least one network by name.

    Returns:
      A network whose outputs, `params` and `state` are dictionaries by these names. If one of the
      networks is recurrent, so is the result, with a dictionary as carry. `value_and_grad` is the
      first network's.

    Raises:
      TriglotError: if `networks` is empty.
    """
    if not networks:
        raise TriglotError("combine needs at least one network, got none.")
    if not isinstance(networks, Mapping):
        raise TriglotError(f"combine takes networks by name, got {kind_of(networks)}.")
    for name, network in networks.items():
        check_network(f"combine's {name!r}", network)
    parts = dict(sorted(networks.items()))
    first = next(iter(parts.values()))
    recurrent = any(part.recurrent for part in parts.values())

    def init(key: Key) -> Variables:
        keys = jax.random.split(key, len(parts))
        drawn = {n: part.init(k) for (n, part), k in zip(parts.items(), keys, strict=True)}
        return join_parts(drawn)

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        keys = [None] * len(parts) if key is None else jax.random.split(key, len(parts))
        outputs, state, carry = {}, {}, {}
        for (n, part), k in zip(parts.items(), keys, strict=True):
            part_inputs = inputs[0] if recurrent else inputs
            part_inputs = (part_inputs, inputs[1][n]) if part.recurrent else part_inputs
            returned, state[n] = part.apply(part_of(variables, n), part_inputs, key=k, train=train)
            outputs[n], carry[n] = returned if part.recurrent else (returned, ())
        return (outputs, carry) if recurrent else outputs, state

    def initial_carry(variables: Variables, num_envs: int) -> PyTree:
        if not recurrent:
            return ()
        return {n: part.initial_carry(part_of(variables, n), num_envs) for n, part in parts.items()}

    def scatter_add(params: PyTree, inputs: PyTree, changes: PyTree) -> PyTree:
        return {n: add(params[n], inputs, changes[n]) for n, add in scatter_adds.items()}

    scatter_adds = {n: part.scatter_add for n, part in parts.items() if part.scatter_add}
    arithmetics = {part.arithmetic for part in parts.values() if part.backend != "core"}
    return Network(
        name="+".join(part.name for part in parts.values()),
        backend="+".join(sorted({part.backend for part in parts.values()})),
        init=init,
        apply=apply,
        value_and_grad=first.value_and_grad,
        scatter_add=scatter_add if len(scatter_adds) == len(parts) else None,
        recurrent=recurrent,
        initial_carry=initial_carry,
        random_start=any(part.random_start for part in parts.values()),
        codec=_combine_codecs({n: part.codec for n, part in parts.items()}),
        statistics=tuple(
            statistic and replace(statistic, name=f"{n}/{statistic.name}")
            for n, part in sorted(parts.items())
            for statistic in part.statistics
        ),
        arithmetic=arithmetics.pop() if len(arithmetics) == 1 else "mixed",
        parts=parts,
    )


def part_of(variables: Variables, name: str) -> Variables:
    """Select one network's variables from those of a combined network."""
    return Variables(params=variables.params[name], state=variables.state[name])


def join_parts(variables: Mapping[str, Variables]) -> Variables:
    """Join the variables of networks by name, as `combine` does; `part_of` selects them again."""
    return Variables(
        params={name: part_variables.params for name, part_variables in variables.items()},
        state={name: part_variables.state for name, part_variables in variables.items()},
    )


def subset(combined: Network, names: Collection[str]) -> Network:
    """Select some networks of a combination; their variables start as they do in it.

    Args:
      combined: as `combine` returns it.
      names: of its parts.
    """

    def init(key: Key) -> Variables:
        whole = combined.init(key)
        return join_parts({name: part_of(whole, name) for name in sorted(names)})

    return replace(combine({name: combined.parts[name] for name in names}), init=init)


def _combine_codecs(codecs: Mapping[str, Codec | None]) -> Codec | None:
    leaves: list[Leaf] = []
    trees = {}
    for name, codec in codecs.items():
        if codec is None:
            return None
        leaves += [
            replace(
                leaf,
                names=tuple(f"{name}/{leaf_name}" for leaf_name in leaf.names),
                spelling=_spelled_in(name, leaf.spelling),
            )
            for leaf in codec.leaves
        ]
        trees[name] = codec.treedef.unflatten(codec.leaves)
    structure = jax.tree.structure(trees, is_leaf=lambda node: isinstance(node, Leaf))
    return Codec(structure, tuple(leaves))


def _spelled_in(name: str, spelling: str) -> str:
    """Put the name of a network before a parameter's, such as `.layers[0].weight`."""
    if not spelling:
        return ""
    return f"{name}{spelling}" if spelling[0] in ".[" else f"{name}/{spelling}"


def transform_outputs(network: Network, transform: Callable[[PyTree], PyTree]) -> Network:
    """Apply a function to the outputs of a network, `[B, ...]`, such as a reshape.

    Args:
      network: any network.
      transform: `transform(outputs) -> outputs`.
    """

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        returned, state = network.apply(variables, inputs, key=key, train=train)
        if network.recurrent:
            return (transform(returned[0]), returned[1]), state
        return transform(returned), state

    return replace(network, apply=apply, scatter_add=None)


def transform_inputs(network: Network, transform: Callable[[PyTree], PyTree]) -> Network:
    """Apply a function to the inputs of a network, such as one that flattens dictionaries.

    Args:
      network: any network.
      transform: `transform(inputs) -> inputs`, of what `Network.apply` takes.
    """

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        return network.apply(variables, transform(inputs), key=key, train=train)

    return replace(network, apply=apply, scatter_add=None)


def ensemble(network: Network, size: int) -> Network:
    """Hold `size` independently initialized copies of a network, such as twin critics.

    Args:
      network: one member.
      size: number of copies, at least 1.

    Returns:
      A network whose variables and outputs have a leading axis `[size, ...]` and whose carry is
      `[N, size, ...]`. All members read the same inputs.
    """
    check_network("the member of an ensemble", network)
    check_count("the size of an ensemble", size)

    def init(key: Key) -> Variables:
        # Not vmapped: see `triglot.core.loop.trainer.init_seeds`.
        return jax.lax.map(network.init, jax.random.split(key, size))

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        keys = None if key is None else jax.random.split(key, size)
        # A carry keeps its environments first, so that an episode's start [N] reaches them.
        input_axes, output_axes = ((None, 1), (0, 1)) if network.recurrent else (None, 0)

        def member(
            member_variables: Variables, member_inputs: PyTree, own_key: Key | None
        ) -> tuple[PyTree, PyTree]:
            return network.apply(member_variables, member_inputs, key=own_key, train=train)

        in_axes = (0, input_axes, None if keys is None else 0)
        return jax.vmap(member, in_axes, (output_axes, 0), axis_size=size)(variables, inputs, keys)

    def initial_carry(variables: Variables, num_envs: int) -> PyTree:
        def member(member_variables: Variables) -> PyTree:
            return network.initial_carry(member_variables, num_envs)

        return jax.vmap(member, out_axes=1, axis_size=size)(variables)

    def stacked(leaf: Leaf) -> Leaf:
        return replace(leaf, encode=jax.vmap(leaf.encode), decode=jax.vmap(leaf.decode))

    codec = network.codec
    codec = codec and Codec(codec.treedef, tuple(map(stacked, codec.leaves)))
    copies = replace(network, name=f"{size}x{network.name}", scatter_add=None, codec=codec)
    return replace(copies, init=init, apply=apply, initial_carry=initial_carry)


def scalar(value: float, name: str = "scalar") -> Network:
    """Hold one scalar parameter, such as a log-temperature; inputs are ignored.

    Args:
      value: the initial value.
      name: its canonical name.

    Returns:
      A network whose output is a float32 array of shape `[]`.
    """

    if not is_number(value):
        raise TriglotError(f"scalar's value must be a number, got {kind_of(value)}.")

    def init(key: Key) -> Variables:
        del key
        return Variables(params=jnp.asarray(value, jnp.float32), state=())

    def apply(
        variables: Variables, inputs: PyTree = None, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        del inputs, key, train
        return variables.params, variables.state

    codec = Codec.named(0.0, [Leaf.one(name)])
    return Network(
        name=name, backend="core", init=init, apply=apply, random_start=False, codec=codec
    )


def start_from(network: Network, variables: Variables) -> Network:
    """Initialize a network with given variables for every key.

    Args:
      network: any network.
      variables: with the structure of `network.init(key)`, such as those of a trained agent.

    Raises:
      TriglotError: if structure, shapes or dtypes differ, naming the first array that does.
    """
    check_network("start_from's network", network)
    if not isinstance(variables, Variables):
        raise TriglotError(
            "start_from takes Variables, as network.init(key), load_weights and translate return "
            f"them; got {kind_of(variables)}."
        )
    expected = jax.eval_shape(network.init, abstract_key())
    for name, (given_type, needed) in type_differences(variables, expected).items():
        raise TriglotError(
            f"the variables do not fit the {network.backend} network {network.name!r}: {name} is "
            f"{given_type}, expected {needed}."
        )
    return replace(network, init=lambda key: variables, random_start=False)


def freeze(network: Network, *patterns: str) -> Network:
    """Exclude some parameters from training by moving them to the state.

    Zero gradients would not be enough: weight decay changes such a parameter too.

    Args:
      network: a network with a codec.
      patterns: canonical names, with `*` for any text, such as `"torso/*"`.

    Returns:
      A network whose `params` are the other parameters, in a dictionary by canonical name.

    Raises:
      TriglotError: if a pattern matches no parameter (the names are listed), or all are matched.
    """
    check_network("freeze's network", network)
    for pattern in patterns:
        check_text("freeze's pattern", pattern)
    codec = network.require_codec("parameters cannot be selected by name")
    names = [leaf.name for leaf in codec.leaves]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise TriglotError(
                f"no parameter of {network.name!r} matches {pattern!r}; its parameters are "
                f"{', '.join(names)}."
            )
    chosen = {name for pattern in patterns for name in fnmatch.filter(names, pattern)}
    if chosen == set(names):
        raise TriglotError(f"{patterns} leaves no parameter of {network.name!r} to train.")
    return hold(network, chosen)


def hold(network: Network, chosen: Collection[str]) -> Network:
    """Move the parameters with these canonical names to the state."""
    codec = network.require_codec("parameters cannot be selected by name")
    free = {leaf.name: leaf for leaf in codec.leaves if leaf.name not in chosen}

    def init(key: Key) -> Variables:
        start = network.init(key)
        named = codec.encode(start.params, layout=False)
        held = {name: named[name] for name in named if name not in free}
        params = {name: named[name] for name in sorted(free)}
        return Variables(params=params, state={"held": held, "own": start.state})

    def whole(variables: Variables) -> Variables:
        named = {**variables.params, **variables.state["held"]}
        params = codec.decode(named, layout=False)
        return Variables(params=params, state=variables.state["own"])

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        outputs, new_state = network.apply(whole(variables), inputs, key=key, train=train)
        return outputs, {"held": variables.state["held"], "own": new_state}

    def initial_carry(variables: Variables, num_envs: int) -> PyTree:
        return network.initial_carry(whole(variables), num_envs)

    free_codec = Codec.named(dict.fromkeys(sorted(free), 0), [free[name] for name in sorted(free)])
    rest = replace(network, scatter_add=None, parts={}, codec=free_codec, statistics=())
    return replace(rest, init=init, apply=apply, initial_carry=initial_carry)
