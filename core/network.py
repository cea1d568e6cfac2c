"""`Network`: the interface to which every neural-network library is adapted."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import jax

from .errors import TriglotError, kind_of
from .types import Key, Params, PyTree, PyTreeDef, pytree_dataclass

# `loss(params) -> (scalar, aux)`, and what computes `((scalar, aux), gradient)` of one.
LossOfParams: TypeAlias = Callable[[Params], tuple[jax.Array, PyTree]]
GradOfParams: TypeAlias = Callable[[Params], tuple[tuple[jax.Array, PyTree], Params]]
ValueAndGrad: TypeAlias = Callable[[LossOfParams], GradOfParams]


@pytree_dataclass
class Variables:
    """The arrays of a network.

    Attributes:
      params: trainable floating-point arrays.
      state: other arrays (running statistics, integer buffers); no random keys and no carries.
    """

    params: Params
    state: PyTree


@pytree_dataclass
class Statistics:
    """Running statistics in a network's state with canonical names: the same in every library.

    Attributes:
      named: such as `norm/0/mean` and `norm/0/var`, `[size]` each.
    """

    named: dict[str, jax.Array]


@dataclass(frozen=True)
class Statistic:
    """One array of a library's own batch or spectral normalization, in a network's state.

    Attributes:
      name: `norm/0/mean` or `norm/0/var`; `norm/0/count` for what counts the updates. Of a layer
        with spectral normalization `layer/u` and `layer/v`, the singular vectors of its outputs
        and of its inputs, and `layer/sigma`, the singular value.
      decay: for an average that starts at 0: it is divided by `1 - decay**count` where it is read.
    """

    name: str
    decay: float | None = None

    @property
    def counts(self) -> bool:
        """Whether it counts updates, or tells the first one."""
        return self.name.endswith("/count")


def _as_tuple(array: jax.Array) -> tuple[jax.Array, ...]:
    return (array,)


def _identity(array: jax.Array) -> jax.Array:
    return array


@dataclass(frozen=True)
class Leaf:
    """One parameter array of a library: its canonical names and the conversion in both directions.

    The canonical layout is `[in, out]` for a dense kernel and `[height, width, in, out]` for a
    convolution kernel; `triglot.backends.layers.kinds` has the others. A library may concatenate
    several canonical arrays into one (the gates of a recurrent cell).

    Attributes:
      names: at least one canonical name.
      encode: `encode(array) -> arrays`, in canonical layout, one per name.
      decode: `decode(*arrays) -> array`, the inverse of `encode`.
      note: a convention of the layer that uses the array, such as the place of a reset gate; arrays
        with different notes are not interchangeable.
      layer: the type of the layer that uses the array, such as `a dense layer`; `translate` pairs
        arrays of different layers only if a mapping names them. Empty if any layer may use it.
      unknown: why the array's layout is unknown; `translate` then requires a mapping that names the
        array, unless both networks have this `layer`. Empty if the layout is known.
      whole: description of the whole array, if `names` are those of the layers that it stacks along
        its leading axes; None for one layer's array.
      spelling: the array's name in the library's spelling, such as `layers.0.weight`, as its author
        knows it; empty if it has none but the canonical names.
    """

    names: tuple[str, ...]
    encode: Callable[[jax.Array], tuple[jax.Array, ...]] = _as_tuple
    decode: Callable[..., jax.Array] = _identity
    note: str = ""
    layer: str = ""
    unknown: str = ""
    whole: "Leaf | None" = None
    spelling: str = ""

    @property
    def name(self) -> str:
        """The name of the whole array, its canonical names joined by `+`."""
        return "+".join(self.names)

    def display_name(self, name: str) -> str:
        """Return one of its canonical names as the author knows it.

        A part of an array has an index: the layer of a stack, the gate of a cell.

        >>> gates = Leaf(("rnn/i/bias", "rnn/f/bias"), spelling="rnn.bias_ih")
        >>> gates.display_name("rnn/f/bias")
        'rnn.bias_ih[f]'
        """
        if not self.spelling or len(self.names) == 1:
            return self.spelling or name
        columns = zip(name.split("/"), *(each.split("/") for each in self.names), strict=False)
        part = [word for word, *others in columns if set(others) != {word}]
        return f"{self.spelling}[{', '.join(part)}]"

    @classmethod
    def one(
        cls,
        name: str,
        encode: Callable[[jax.Array], jax.Array] = _identity,
        decode: Callable[[jax.Array], jax.Array] = _identity,
        note: str = "",
    ) -> "Leaf":
        """Describe an array that holds one canonical array."""
        return cls((name,), lambda array: (encode(array),), decode, note)

    def stored_canonically(self, name: str) -> "Leaf":
        """Describe one of its canonical arrays, stored as it is."""
        spelling = self.display_name(name) if self.spelling else ""
        return replace(self, names=(name,), encode=_as_tuple, decode=_identity, spelling=spelling)

    def spelled(self, spelling: str) -> "Leaf":
        """Describe it with the name that its author knows."""
        whole = self.whole and replace(self.whole, spelling=spelling)
        return replace(self, spelling=spelling, whole=whole)


@dataclass(frozen=True)
class Codec:
    """Conversion between a library's parameters and `{canonical name: array}`.

    Attributes:
      treedef: the structure of the library's own parameters.
      leaves: their leaves, in the order in which the library's structure flattens.
    """

    treedef: PyTreeDef
    leaves: tuple[Leaf, ...]

    def encode(self, params: Params, *, layout: bool = True) -> dict[str, jax.Array]:
        """Name the leaves of `params`; with `layout`, convert each to the canonical layout.

        It is valid for parameters only, not for gradients: a layout may add a constant.
        """
        named: dict[str, jax.Array] = {}
        for leaf, array in zip(self.leaves, self.treedef.flatten_up_to(params), strict=True):
            if layout:
                named.update(zip(leaf.names, leaf.encode(array), strict=True))
            else:
                named[leaf.name] = array
        return named

    def decode(self, named: Mapping[str, jax.Array], *, layout: bool = True) -> PyTree:
        """Convert named arrays to the library's parameters: the inverse of `encode`."""
        return self.treedef.unflatten(
            leaf.decode(*(named[name] for name in leaf.names)) if layout else named[leaf.name]
            for leaf in self.leaves
        )

    @property
    def by_name(self) -> dict[str, Leaf]:
        """The leaf of each canonical array."""
        return {name: leaf for leaf in self.leaves for name in leaf.names}

    @property
    def display_names(self) -> dict[str, str]:
        """The name of each canonical array as the author of the network knows it."""
        return {name: leaf.display_name(name) for leaf in self.leaves for name in leaf.names}

    @classmethod
    def named(
        cls, params: Params, leaves: Sequence[Leaf], spellings: Sequence[str] | None = None
    ) -> "Codec":
        """Build the codec of parameters that flatten to `leaves`.

        Args:
          params: the library's own parameters.
          leaves: their descriptions.
          spellings: their names in the library's spelling; None to keep those of `leaves`.

        Raises:
          TriglotError: if two leaves have the same name.
        """
        if spellings is not None:
            pairs = zip(leaves, spellings, strict=True)
            leaves = [leaf.spelled(spelling) for leaf, spelling in pairs]
        names = [name for leaf in leaves for name in leaf.names]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise TriglotError(f"two parameters have the name {twice[0]!r}: rename one module.")
        return cls(jax.tree.structure(params), tuple(leaves))


def _no_carry(variables: Variables, num_envs: int) -> PyTree:
    del variables, num_envs
    return ()


def value_and_grad_of(loss: LossOfParams) -> GradOfParams:
    """Differentiate `loss(params) -> (scalar, aux)` with JAX."""
    return jax.value_and_grad(loss, has_aux=True)


@dataclass(frozen=True, kw_only=True, eq=False)
class Network:
    """A static record of pure functions; hashed by identity, so build it once.

    Attributes:
      name: shown in errors and reports.
      backend: the name of its library.
      init: `init(key) -> Variables`; can be jitted and vmapped over keys.
      apply: `apply(variables, inputs, *, key=None, train=False) -> (outputs, new_state)`; inputs
        and outputs are pytrees batched along their leading axis `[B, ...]`. A tuple of inputs
        becomes several arguments of the library's module.
      value_and_grad: the library's own differentiation: takes `loss(params) -> (scalar, aux)`,
        returns `f(params) -> ((scalar, aux), gradients)`.
      recurrent: whether one step is `(inputs, carry) -> (outputs, carry)`; `unroll` scans it over
        time.
      scatter_add: for lookup tables, whose outputs are rows of their parameters:
        `scatter_add(params, inputs, changes) -> params` adds `changes`, shaped as the outputs, to
        the rows of `inputs`; rows that occur several times add up. None for other networks.
      initial_carry: `initial_carry(variables, num_envs) -> carry` `[N, ...]` of a recurrent
        network; `()` for other networks.
      random_start: whether the initial parameters depend on the key.
      codec: the conversion to canonical parameters; None if there is none.
      statistics: what each array of the state is, in the order in which it flattens; None for
        another array than a running statistic.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`.
      parts: the networks by name, of a network made by `combine`.
    """

    name: str
    backend: str
    init: Callable[[Key], Variables]
    apply: Callable[..., tuple[PyTree, PyTree]]
    value_and_grad: ValueAndGrad = value_and_grad_of
    scatter_add: Callable[[PyTree, PyTree, PyTree], PyTree] | None = None
    recurrent: bool = False
    initial_carry: Callable[[Variables, int], PyTree] = _no_carry
    random_start: bool = True
    codec: Codec | None = field(default=None, repr=False)
    statistics: "tuple[Statistic | None, ...]" = field(default=(), repr=False)
    arithmetic: str = "native"
    parts: "Mapping[str, Network]" = field(default_factory=dict, repr=False)

    def require_codec(self, purpose: str) -> Codec:
        """Return the codec.

        Args:
          purpose: what is impossible without one, for the message.

        Raises:
          TriglotError: if there is none.
        """
        if self.codec is None:
            raise TriglotError(
                f"the {self.backend} network {self.name!r} has no codec, so its {purpose}: give "
                "Network(..., codec=...)."
            )
        return self.codec


def check_network(owner: str, network: object) -> None:
    """Refuse what is not a `Network`, such as a module of a library.

    Args:
      owner: whose network it is, for the message.
      network: what was given.

    Raises:
      TriglotError: saying how to make one.
    """
    if not isinstance(network, Network):
        raise TriglotError(
            f"{owner} must be a triglot Network, got {kind_of(network)}: wrap a module by the "
            "function of its library (triglot.from_haiku, from_linen, from_nnx, from_equinox, "
            "from_keras, from_torch), functions (init, apply) by triglot.from_functions."
        )


def num_params(params: Params) -> int:
    """Count the parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))
