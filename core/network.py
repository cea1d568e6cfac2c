"""The one normal form to which every neural-network library is lifted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import jax

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


def _whole(array: jax.Array) -> tuple[jax.Array, ...]:
    return (array,)


def _itself(array: jax.Array) -> jax.Array:
    return array


@dataclass(frozen=True)
class Leaf:
    """One parameter array: the canonical names of what it holds, and the way to and from them.

    The canonical layout is `[in, out]` for a dense kernel and `[height, width, in, out]` for a
    convolution's. A library may keep several canonical arrays side by side in one (the gates of a
    recurrent cell).

    Attributes:
      names: at least one canonical name.
      encode: `encode(array) -> arrays`, in canonical layout, one for each name.
      decode: `decode(*arrays) -> array`, which undoes it.
      note: a convention that whoever computes with the array must share, in words; arrays with
        different notes do not stand for each other.
    """

    names: tuple[str, ...]
    encode: Callable[[jax.Array], tuple[jax.Array, ...]] = _whole
    decode: Callable[..., jax.Array] = _itself
    note: str = ""

    @property
    def name(self) -> str:
        """Name the array where it is kept whole."""
        return "+".join(self.names)

    @classmethod
    def one(
        cls,
        name: str,
        encode: Callable[[jax.Array], jax.Array] = _itself,
        decode: Callable[[jax.Array], jax.Array] = _itself,
        note: str = "",
    ) -> "Leaf":
        """Describe an array that holds one canonical array."""
        return cls((name,), lambda array: (encode(array),), decode, note)


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
        """Name the leaves of `params`; with `layout`, bring each into the canonical layout.

        It is for parameters, not for gradients: a layout may add a number that a library adds.
        """
        named: dict[str, jax.Array] = {}
        for leaf, array in zip(self.leaves, self.treedef.flatten_up_to(params), strict=True):
            if layout:
                named.update(zip(leaf.names, leaf.encode(array), strict=True))
            else:
                named[leaf.name] = array
        return named

    def decode(self, named: Mapping[str, jax.Array], *, layout: bool = True) -> PyTree:
        """Undo `encode`."""
        return self.treedef.unflatten(
            leaf.decode(*(named[name] for name in leaf.names)) if layout else named[leaf.name]
            for leaf in self.leaves
        )

    @classmethod
    def named(cls, params: PyTree, leaves: Sequence[Leaf]) -> "Codec":
        """Build the codec of parameters that flatten to `leaves`.

        Raises:
          TriglotError: if two leaves have one name.
        """
        names = [name for leaf in leaves for name in leaf.names]
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
        and outputs are pytrees batched along their leading axis `[B, ...]`. A tuple of inputs is
        given to the library's module as that many arguments.
      value_and_grad: the library's own differentiation: takes `loss(params) -> (scalar, aux)`,
        returns `f(params) -> ((scalar, aux), gradients)`.
      recurrent: whether one step is `(inputs, carry) -> (outputs, carry)`; `core.unroll` runs it
        over time.
      scatter_add: of a lookup table, whose outputs are entries of its parameters:
        `scatter_add(params, inputs, changes) -> params` adds `changes`, shaped as the outputs, to
        the entries that `inputs` look up, as often as they do. None for the others.
      initial_carry: `initial_carry(variables, num_envs) -> carry` `[N, ...]` of a recurrent
        network; `()` for the others.
      random_start: whether `init` gives other parameters for another key.
      codec: the way to and from canonical parameters, or None where nobody has stated one.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`.
      parts: of what `core.combinators.combine` made, the networks by name.
    """

    name: str
    backend: str
    init: Callable[[Key], Variables]
    apply: Callable[..., tuple[PyTree, PyTree]]
    value_and_grad: Callable[[Callable[[PyTree], Any]], Callable[[PyTree], Any]] = _value_and_grad
    scatter_add: Callable[[PyTree, PyTree, PyTree], PyTree] | None = None
    recurrent: bool = False
    initial_carry: Callable[[Variables, int], PyTree] = _no_carry
    random_start: bool = True
    codec: Codec | None = field(default=None, repr=False)
    arithmetic: str = "native"
    parts: "Mapping[str, Network]" = field(default_factory=dict, repr=False)


def num_params(params: PyTree) -> int:
    """Count the trainable numbers."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
