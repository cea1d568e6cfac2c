"""The one normal form to which every neural-network library is lifted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from .errors import TriglotError

PyTree: TypeAlias = Any
Key: TypeAlias = jax.Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Variables:
    """The arrays of a network.

    Attributes:
      params: trainable floating-point arrays.
      state: every other array (running statistics, integer buffers); never RNG, never a carry.
    """

    params: PyTree
    state: PyTree


def _identity(array: jax.Array) -> jax.Array:
    return array


@dataclass(frozen=True)
class Leaf:
    """One parameter array: its canonical name, and the way to and from its canonical layout.

    The canonical layout is `[in, out]` for a dense kernel and `[height, width, in, out]` for a
    convolution's.
    """

    name: str
    encode: Callable[[jax.Array], jax.Array] = _identity
    decode: Callable[[jax.Array], jax.Array] = _identity


@dataclass(frozen=True)
class Codec:
    """Two ways between a library's parameters and `{canonical name: array}`.

    Attributes:
      treedef: the structure of the library's own parameters.
      leaves: their leaves, in the order in which the library's structure flattens.
    """

    treedef: Any
    leaves: tuple[Leaf, ...]

    def encode(self, params: PyTree, *, layout: bool = True) -> dict[str, jax.Array]:
        """Name the leaves of `params`; with `layout`, bring each into the canonical layout."""
        arrays = self.treedef.flatten_up_to(params)
        return {
            leaf.name: leaf.encode(array) if layout else array
            for leaf, array in zip(self.leaves, arrays, strict=True)
        }

    def decode(self, named: Mapping[str, jax.Array], *, layout: bool = True) -> PyTree:
        """Undo `encode`."""
        return self.treedef.unflatten(
            leaf.decode(named[leaf.name]) if layout else named[leaf.name] for leaf in self.leaves
        )

    @classmethod
    def named(cls, params: PyTree, leaves: Sequence[Leaf]) -> "Codec":
        """Build the codec of parameters that flatten to `leaves`.

        Raises:
          TriglotError: if two leaves have one name.
        """
        names = [leaf.name for leaf in leaves]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TriglotError(f"two parameters are called {twice[0]!r}: rename one module.")
        return cls(jax.tree.structure(params), tuple(leaves))


def _no_carry(variables: Variables, num_envs: int) -> PyTree:
    del variables, num_envs
    return ()


def _value_and_grad(loss: Callable[[PyTree], Any]) -> Callable[[PyTree], Any]:
    return jax.value_and_grad(loss, has_aux=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A static record of pure functions; hashed by identity, so build it once.

    Attributes:
      name: how errors and reports call it.
      backend: the library it comes from.
      init: `init(key) -> Variables`; can be jitted and vmapped over keys.
      apply: `apply(variables, inputs, *, key=None, train=False) -> (outputs, new_state)`; inputs
        and outputs are pytrees batched along their leading axis `[B, ...]`.
      value_and_grad: the library's own differentiation: takes `loss(params) -> (scalar, aux)`,
        returns `f(params) -> ((scalar, aux), gradients)`.
      initial_carry: `initial_carry(variables, num_envs) -> carry` of a recurrent network, whose
        step is `(inputs, carry) -> (outputs, carry)`; `()` for the others.
      codec: the way to and from canonical parameters, or None where nobody has stated one.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`.
    """

    name: str
    backend: str
    init: Callable[[Key], Variables]
    apply: Callable[..., tuple[PyTree, PyTree]]
    value_and_grad: Callable[[Callable[[PyTree], Any]], Callable[[PyTree], Any]] = _value_and_grad
    initial_carry: Callable[[Variables, int], PyTree] = _no_carry
    codec: Codec | None = field(default=None, repr=False)
    arithmetic: str = "native"


def combine(networks: Mapping[str, Network]) -> Network:
    """Join networks that read the same inputs into one set of variables.

    One set means one global gradient norm and one optimizer state.

    Args:
      networks: at least one network by name.

    Returns:
      A network whose outputs, `params` and `state` are dictionaries by those names. It takes its
      differentiation from the first.

    Raises:
      TriglotError: if `networks` is empty.
    """
    if not networks:
        raise TriglotError("combine needs at least one network, got none.")
    parts = dict(sorted(networks.items()))
    first = next(iter(parts.values()))

    def init(key: Key) -> Variables:
        keys = jax.random.split(key, len(parts))
        made = {n: part.init(k) for (n, part), k in zip(parts.items(), keys, strict=True)}
        return Variables(
            params={n: variables.params for n, variables in made.items()},
            state={n: variables.state for n, variables in made.items()},
        )

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        keys = [None] * len(parts) if key is None else jax.random.split(key, len(parts))
        outputs, state = {}, {}
        for (n, part), k in zip(parts.items(), keys, strict=True):
            own = Variables(params=variables.params[n], state=variables.state[n])
            outputs[n], state[n] = part.apply(own, inputs, key=k, train=train)
        return outputs, state

    def initial_carry(variables: Variables, num_envs: int) -> PyTree:
        own = {n: Variables(params=variables.params[n], state=variables.state[n]) for n in parts}
        return {n: part.initial_carry(own[n], num_envs) for n, part in parts.items()}

    arithmetics = {part.arithmetic for part in parts.values()}
    return Network(
        name="+".join(part.name for part in parts.values()),
        backend="+".join(sorted({part.backend for part in parts.values()})),
        init=init,
        apply=apply,
        value_and_grad=first.value_and_grad,
        initial_carry=initial_carry,
        codec=_combine_codecs({n: part.codec for n, part in parts.items()}),
        arithmetic=arithmetics.pop() if len(arithmetics) == 1 else "mixed",
    )


def _combine_codecs(codecs: Mapping[str, Codec | None]) -> Codec | None:
    leaves: list[Leaf] = []
    trees = {}
    for name, codec in codecs.items():
        if codec is None:
            return None
        leaves += [replace(leaf, name=f"{name}/{leaf.name}") for leaf in codec.leaves]
        trees[name] = codec.treedef.unflatten(codec.leaves)
    structure = jax.tree.structure(trees, is_leaf=lambda node: isinstance(node, Leaf))
    return Codec(structure, tuple(leaves))


def ensemble(network: Network, size: int) -> Network:
    """Hold `size` independently initialised copies of a network, such as twin critics.

    Args:
      network: the member.
      size: number of copies, at least 1.

    Returns:
      A network whose variables and outputs have a leading axis `[size, ...]`; all members read
      the same inputs.
    """
    if size < 1:
        raise TriglotError(f"an ensemble needs at least one member, got size {size}.")

    def init(key: Key) -> Variables:
        return jax.vmap(network.init)(jax.random.split(key, size))

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        if key is None:
            return jax.vmap(lambda v: network.apply(v, inputs, train=train))(variables)
        keys = jax.random.split(key, size)
        return jax.vmap(lambda v, k: network.apply(v, inputs, key=k, train=train))(variables, keys)

    codec = network.codec and Codec(
        network.codec.treedef,
        tuple(
            Leaf(leaf.name, jax.vmap(leaf.encode), jax.vmap(leaf.decode))
            for leaf in network.codec.leaves
        ),
    )
    return replace(
        network,
        name=f"{size}x{network.name}",
        init=init,
        apply=apply,
        initial_carry=lambda v, n: jax.vmap(lambda own: network.initial_carry(own, n))(v),
        codec=codec,
    )


def scalar(value: float, name: str = "scalar") -> Network:
    """Hold one trainable number, such as a log-temperature; its inputs are ignored.

    Args:
      value: the number at the start.
      name: its name in canonical parameters.

    Returns:
      A network whose output is a float32 array of shape `[]`.
    """

    def init(key: Key) -> Variables:
        del key
        return Variables(params=jnp.asarray(value, jnp.float32), state=())

    def apply(
        variables: Variables, inputs: PyTree = None, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        del inputs, key, train
        return variables.params, variables.state

    return Network(
        name=name,
        backend="core",
        init=init,
        apply=apply,
        codec=Codec.named(0.0, [Leaf(name)]),
    )


def num_params(params: PyTree) -> int:
    """Count the trainable numbers."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
