"""The recorded weights in the port, and where its own checkpoint has others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ....backends.calling import Inputs
from ....backends.libraries import storage_of
from ....backends.translate import move
from ....core.errors import TriglotError, user_error_context
from ....core.network import Network, Variables
from ....core.specs import Box
from ....core.types import PyTree
from ...loading import load_network
from ...pairing import values
from ...pairing.parameters import Pair, Pairing, read_parameters
from ...types import Cause, codec_of
from ..layouts import FileNetwork, network_of
from ..pairs import Paired, pair
from .layers import known_layers
from .reading import Recording

# How a port reads recorded images.
AS_RECORDED = ""
CHANNELS_LAST, CHANNELS_FIRST = "with the channels as last axis", "with the channels as first axis"


@dataclass(frozen=True)
class Port:
    """A port with the weights of a recording.

    Attributes:
      network: the port.
      inputs: the recorded batch, as the port takes it.
      variables: the recorded weights in the port; those of its checkpoint if they were not found.
      pairing: of the recorded parameters and the port's; None if they were not paired.
      names: canonical names of the port's parameters by the recording's names.
      causes: parameters of the checkpoint with other numbers than the recorded ones.
      notes: what was assumed.
    """

    network: Network
    inputs: PyTree
    variables: Variables
    pairing: Pairing | None
    names: Mapping[str, str]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...]


def fit(
    recording: Recording,
    made: Any,
    read: Callable[[Network], Variables] | None = None,
    mapping: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Port:
    """Put the recorded weights into a port, and compare its own with them.

    Images are given to the port as they were recorded, or with the channels as last axis: the
    arrangement decides in which the weights fit.

    Args:
      recording: of the original.
      made: the port, as `load_network` takes it.
      read: `read(network) -> Variables` reads the port's checkpoint; None if there is none.
      mapping: canonical names of the recording to those of the port.
      name: of the port.

    Raises:
      TriglotError: if the port fails on the recorded inputs, or no arrangement fits.
    """
    attempts: list[tuple[str, Network, Any]] = []
    problems: list[str] = []
    for what, arrays in arrangements([recording.arrays[n] for n in recording.inputs]):
        batch = list(map(jnp.asarray, arrays))
        inputs = tuple(batch) if len(batch) > 1 else batch[0]
        try:
            with np.errstate(all="ignore"):  # of initializers, where an arrangement does not fit
                network = load_network(made, _spec(arrays), name=name)
                start = jax.eval_shape(network.init, jax.random.key(0))
            shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in batch)
            with user_error_context(f"{network.name!r} failed on the recorded inputs {shapes}"):
                jax.eval_shape(lambda v, i, n=network: n.apply(v, i)[0], start, inputs)
            attempts.append((what, network, inputs))
        except TriglotError as error:
            problems.append(str(error))
    if not attempts:
        raise TriglotError(next(iter(problems), "no input arrangement"))
    problems = []
    order = _by_library(recording, attempts[0][1])
    for what, network, inputs in sorted(attempts, key=lambda attempt: order.index(attempt[0])):
        notes = [f"the port reads the recorded inputs {what}"] if what else []
        try:
            paired, (source, variables, assumed) = _paired(recording, network, inputs, mapping)
            moved = move(variables, source, network, paired.targets, split=bool(mapping))
        except TriglotError as error:
            problems.append(str(error).rstrip("."))
            if read is None:
                continue
            try:
                own = read(network)
            except TriglotError as wrong:
                problems[-1] = str(wrong).rstrip(".")
                continue
            notes.append(f"the weights of the checkpoint were not compared: {problems[-1]}")
            return Port(network, inputs, own, None, {}, (), tuple(notes))
        pairs, names = _pairing(recording, paired, source, variables, network)
        notes += assumed
        causes: tuple[Cause, ...] = ()
        if read is not None:
            causes = tuple(_other_weights(names, network, moved, read(network)))
        if paired.is_guess:
            notes.append(f"parameters were paired by {paired.how.removeprefix('guessed by ')}")
        return Port(network, inputs, moved, pairs, names, causes, tuple(notes))
    raise TriglotError(
        f"the weights of {recording.path} do not fit {attempts[0][1].name!r}: {problems[0]}. "
        "State the pairs with --mapping, or give the port's own weights with --checkpoint."
    )


def arrangements(arrays: list[np.ndarray]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield inputs as they are, then with the channels of images as last axis, or as first."""
    own = [_narrow(array) for array in arrays]
    yield AS_RECORDED, own
    if any(array.ndim > 2 for array in own):
        last = [np.moveaxis(a, 1, -1) if a.ndim > 2 and a.dtype.kind == "f" else a for a in own]
        yield CHANNELS_LAST, last
        first = [np.moveaxis(a, -1, 1) if a.ndim > 2 and a.dtype.kind == "f" else a for a in own]
        yield CHANNELS_FIRST, first


def _by_library(recording: Recording, network: Network) -> list[str]:
    """List the arrangements, the usual one between the two libraries first."""
    recorded, own = (
        storage_of(library).channels_first for library in (recording.library, network.backend)
    )
    moved = [CHANNELS_LAST, CHANNELS_FIRST] if recorded else [CHANNELS_FIRST, CHANNELS_LAST]
    return [AS_RECORDED, *moved] if recorded == own else [moved[0], AS_RECORDED, moved[1]]


def _narrow(array: np.ndarray) -> np.ndarray:
    narrow = {"float64": "float32", "float16": "float32", "int64": "int32", "uint64": "uint32"}
    return array.astype(narrow.get(str(array.dtype), array.dtype))


def _spec(arrays: list[np.ndarray]) -> Inputs:
    specs = []
    for array in arrays:
        if array.dtype.kind == "f":
            specs.append(Box(array.shape[1:], str(array.dtype)))
        else:
            high = max(1, int(array.max(initial=0)))
            low = min(0, int(array.min(initial=0)))
            specs.append(Box(array.shape[1:], str(array.dtype), low, high))
    return specs[0] if len(specs) == 1 else tuple(specs)


def _paired(
    recording: Recording, network: Network, inputs: PyTree, mapping: Mapping[str, str] | None
) -> tuple[Paired, FileNetwork]:
    given = {
        name: np.asarray(array, np.float32) if array.dtype.kind == "f" else array
        for name, array in recording.weights.items()
        if array.dtype.kind == "f" or name.endswith("num_batches_tracked")
    }
    source, variables, notes = network_of(
        given, recording.library, network, recording.path.name, known_layers(recording)
    )
    leaves = _leaves(source)
    order = [own for name in given if name in leaves for own in leaves[name].names]
    paired = pair(source, variables, network, mapping or None, inputs, order, by_use=True)
    return paired, FileNetwork(source, variables, notes)


def _leaves(source: Network) -> dict[str, Any]:
    codec = codec_of(source)
    return codec.treedef.unflatten(codec.leaves)


def _pairing(
    recording: Recording, paired: Paired, source: Network, variables: Variables, network: Network
) -> tuple[Pairing, dict[str, str]]:
    pairs = tuple(Pair(name, to.name) for name, to in paired.targets.items())
    one, other = read_parameters(source, variables.params), read_parameters(network)
    pairing = Pairing(one, other, pairs, paired.how)
    names = {
        own: paired.targets[canonical].name
        for own, leaf in _leaves(source).items()
        for canonical in leaf.names
        if canonical in paired.targets
    }
    return pairing, names


def _other_weights(
    names: Mapping[str, str], network: Network, recorded: Variables, own: Variables
) -> Iterator[Cause]:
    """Yield the parameters and running statistics of a checkpoint that differ from the recorded."""
    recorded_names = {port: name for name, port in names.items()}
    wanted, held = (values.named_values(network, each) for each in (recorded, own))
    pairs = {recorded_names.get(name, name): name for name in wanted}
    arrays = {name: wanted[port] for name, port in pairs.items()}
    shown = values.display_names(network, own)
    return values.differing(
        arrays, held, pairs, ("recording", "the port's checkpoint"), (shown, shown)
    )
