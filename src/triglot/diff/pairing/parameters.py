"""The parameters of two networks, and the pairs between them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import jax

from ...backends import cells
from ...backends.layers.kinds import ATTENTION
from ...backends.pairing.author_names import display_place
from ...core.network import Leaf, Network
from ...core.types import PyTree
from ..types import codec_of

OF_GATE = re.compile(r"(?:(.*?)/)?((?:(?:input|recurrent)/)?[a-z]/(?:kernel|bias))")
CELLS = dict.fromkeys(
    (cells.LSTM, cells.RESET_AFTER, cells.RESET_BEFORE, cells.KEEPS_BY_UPDATE), OF_GATE
) | {cells.SIMPLE_CELL: re.compile(r"(?:(.*?)/)?((?:(?:input|recurrent)/)?(?:kernel|bias))")}


@dataclass(frozen=True)
class Parameter:
    """One canonical array of a network.

    Attributes:
      name: its canonical name.
      shape, dtype: the array's shape and dtype in the canonical layout.
      leaf: the array of the library that holds it.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    leaf: Leaf

    def __str__(self) -> str:
        return f"{self.display_name} {list(self.shape)}"

    @property
    def display_name(self) -> str:
        """Its name as the author of the network knows it."""
        return self.leaf.display_name(self.name)

    def display_place(self, place: str) -> str:
        """Return the place of its module as the author of the network knows it."""
        return display_place(self.leaf, self.name, place)


@dataclass(frozen=True)
class Pair:
    """Two parameters, one of each network, that hold the same values.

    Attributes:
      one, other: canonical names.
      transposed: whether the two are stored as transposed matrices of each other.
    """

    one: str
    other: str
    transposed: bool = False


@dataclass(frozen=True)
class Pairing:
    """The parameters of two networks, paired.

    Attributes:
      one, other: all parameters of each side by canonical name.
      pairs: the pairs, in the order in which the first network stores the parameters.
      source: how the pairs were found: `by name`, `stated`, or `guessed` and by what.
    """

    one: Mapping[str, Parameter]
    other: Mapping[str, Parameter]
    pairs: tuple[Pair, ...]
    source: str

    @property
    def only_one(self) -> tuple[Parameter, ...]:
        """The first network's parameters without a counterpart."""
        paired = {pair.one for pair in self.pairs}
        return tuple(self.one[name] for name in self.one if name not in paired)

    @property
    def only_other(self) -> tuple[Parameter, ...]:
        """The second network's parameters without a counterpart."""
        paired = {pair.other for pair in self.pairs}
        return tuple(self.other[name] for name in self.other if name not in paired)

    @property
    def is_complete(self) -> bool:
        """Whether each parameter of both networks has a counterpart."""
        return not (self.only_one or self.only_other)

    def display_names(self, pair: Pair) -> tuple[str, str]:
        """Return the names of a pair as the authors of both networks know them."""
        return self.one[pair.one].display_name, self.other[pair.other].display_name

    def place_of(self, pair: Pair, labels: tuple[str, str]) -> str:
        """Write where a pair is in both networks."""
        first_name, second_name = self.display_names(pair)
        return f"{first_name} ({labels[0]}); {second_name} ({labels[1]})"

    def by_name(self) -> dict[str, Pair]:
        """Name each pair by the first side's name, or by the second's if the first's is shared."""
        first_names = [pair.one for pair in self.pairs]
        return {p.one if first_names.count(p.one) == 1 else p.other: p for p in self.pairs}


def display_names(side: Mapping[str, Parameter], names: Iterable[str]) -> list[str]:
    """Return some parameters' names as the author of the network knows them."""
    return [side[name].display_name for name in names]


def is_inner_bias(name: str) -> bool:
    """Return whether a parameter is a GRU's bias inside the product with the reset gate.

    Only one of the two variants has it.
    """
    return name.endswith(cells.INNER_BIAS)


def place_of(parameter: Parameter) -> tuple[str, str]:
    """Split a canonical name into the place of its layer, and the name inside."""
    if parameter.leaf.layer in CELLS:
        match = CELLS[parameter.leaf.layer].fullmatch(parameter.name)
        assert match is not None  # such are the names of all cells
        return match[1] or "", match[2]
    words = parameter.name.split("/")
    depth = 2 if parameter.leaf.layer == ATTENTION else 1
    return "/".join(words[:-depth]), "/".join(words[-depth:])


def read_parameters(network: Network, params: PyTree = None) -> dict[str, Parameter]:
    """List a network's parameters by canonical name.

    Args:
      network: a network with a codec.
      params: the network's parameters, which may be abstract; None for those of `network.init`.

    Raises:
      TriglotError: if the network has no codec.
    """
    codec = codec_of(network)
    if params is None:
        params = jax.eval_shape(network.init, jax.random.key(0)).params
    arrays = jax.eval_shape(codec.encode, params)
    leaves = {name: leaf for leaf in codec.leaves for name in leaf.names}
    return {
        name: Parameter(name, tuple(array.shape), str(array.dtype), leaves[name])
        for name, array in arrays.items()
    }
