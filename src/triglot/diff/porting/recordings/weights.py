"""The recorded weights in the port, and where its own checkpoint has others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ....backends.calling import Inputs
from ....backends.libraries import storage_of
from ....backends.translate import move
from ....core.errors import TriglotError, user_error_context
from ....core.network import Leaf, Network, Variables
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
      pairing: the pairs of recorded parameters and the port's; None if they were not paired.
      names: canonical names of the port's parameters by the recording's names.
      causes: parameters of the checkpoint with other numbers than the recorded ones.
      notes: assumptions, in words.
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
    port: object,
    read_checkpoint: Callable[[Network], Variables] | None = None,
    mapping: Mapping[str, str] | None = None,
    name: str | None = None,
) -> Port:
    """Put the recorded weights into a port, and compare its own with them.

    Images are given to the port as they were recorded, or with the channels as last axis: the
    arrangement decides in which the weights fit.

    Args:
      recording: the recording of the original.
      port: the port, as `load_network` takes it.
      read_checkpoint: a function that reads the port's checkpoint into its network; None if there
        is none.
      mapping: canonical names of the recording to those of the port.
      name: the name of the port.

    Raises:
      TriglotError: if the port fails on the recorded inputs, or no arrangement fits.
    """
    attempts: list[tuple[str, Network, PyTree]] = []
    problems: list[str] = []
    for layout, arrays in arrangements([recording.arrays[n] for n in recording.inputs]):
        batch = list(map(jnp.asarray, arrays))
        inputs = tuple(batch) if len(batch) > 1 else batch[0]
        try:
            with np.errstate(all="ignore"):  # of initializers, where an arrangement does not fit
                network = load_network(port, _spec(arrays), name=name)
                start = jax.eval_shape(network.init, jax.random.key(0))
            shapes = ", ".join(f"{each.dtype} {list(each.shape)}" for each in batch)
            with user_error_context(f"{network.name!r} failed on the recorded inputs {shapes}"):
                jax.eval_shape(lambda v, i, n=network: n.apply(v, i)[0], start, inputs)
            attempts.append((layout, network, inputs))
        except TriglotError as error:
            problems.append(str(error))
    if not attempts:
        raise TriglotError(next(iter(problems), "no input arrangement"))
    problems = []
    order = _by_library(recording, attempts[0][1])
    for layout, network, inputs in sorted(attempts, key=lambda attempt: order.index(attempt[0])):
        notes = [f"the port reads the recorded inputs {layout}"] if layout else []
        try:
            paired, (source, variables, assumed) = _pair_weights(
                recording, network, inputs, mapping
            )
            translated = move(variables, source, network, paired.targets, split=bool(mapping))
        except TriglotError as error:
            problems.append(str(error).rstrip("."))
            if read_checkpoint is None:
                continue
            try:
                checkpoint = read_checkpoint(network)
            except TriglotError as checkpoint_error:
                problems[-1] = str(checkpoint_error).rstrip(".")
                continue
            notes.append(f"the weights of the checkpoint were not compared: {problems[-1]}")
            return Port(network, inputs, checkpoint, None, {}, (), tuple(notes))
        pairs, names = _pairing(paired, source, variables, network)
        notes += assumed
        causes: tuple[Cause, ...] = ()
        if read_checkpoint is not None:
            causes = tuple(_other_weights(names, network, translated, read_checkpoint(network)))
        if paired.is_guess:
            notes.append(f"parameters were paired by {paired.method.removeprefix('guessed by ')}")
        return Port(network, inputs, translated, pairs, names, causes, tuple(notes))
    raise TriglotError(
        f"the weights of {recording.path} do not fit {attempts[0][1].name!r}: {problems[0]}. "
        "State the pairs with --mapping, or give the port's own weights with --checkpoint."
    )


def arrangements(arrays: list[np.ndarray]) -> Iterator[tuple[str, list[np.ndarray]]]:
    """Yield inputs as they are, then with the channels of images as last axis, or as first."""
    as_recorded = [_narrow(array) for array in arrays]
    yield AS_RECORDED, as_recorded
    if any(array.ndim > 2 for array in as_recorded):
        for layout, axis, target in ((CHANNELS_LAST, 1, -1), (CHANNELS_FIRST, -1, 1)):
            yield (
                layout,
                [
                    np.moveaxis(a, axis, target) if a.ndim > 2 and a.dtype.kind == "f" else a
                    for a in as_recorded
                ],
            )


def _by_library(recording: Recording, network: Network) -> list[str]:
    """List the arrangements, the usual one between the two libraries first."""
    recorded_first, port_first = (
        storage_of(library).channels_first for library in (recording.library, network.backend)
    )
    layouts = [CHANNELS_LAST, CHANNELS_FIRST] if recorded_first else [CHANNELS_FIRST, CHANNELS_LAST]
    layouts.insert(0 if recorded_first == port_first else 1, AS_RECORDED)
    return layouts


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


def _pair_weights(
    recording: Recording, network: Network, inputs: PyTree, mapping: Mapping[str, str] | None
) -> tuple[Paired, FileNetwork]:
    arrays = {
        name: np.asarray(array, np.float32) if array.dtype.kind == "f" else array
        for name, array in recording.weights.items()
        if array.dtype.kind == "f" or name.endswith("num_batches_tracked")
    }
    source, variables, notes = network_of(
        arrays, recording.library, network, recording.path.name, known_layers(recording)
    )
    leaves = _leaves(source)
    order = [canonical for name in arrays if name in leaves for canonical in leaves[name].names]
    paired = pair(source, variables, network, mapping or None, inputs, order, by_use=True)
    return paired, FileNetwork(source, variables, notes)


def _leaves(source: Network) -> dict[str, Leaf]:
    codec = codec_of(source)
    return codec.treedef.unflatten(codec.leaves)


def _pairing(
    paired: Paired, source: Network, variables: Variables, network: Network
) -> tuple[Pairing, dict[str, str]]:
    pairs = tuple(Pair(name, to.name) for name, to in paired.targets.items())
    first, second = read_parameters(source, variables.params), read_parameters(network)
    pairing = Pairing(first, second, pairs, paired.method)
    names = {
        recorded_name: paired.targets[canonical].name
        for recorded_name, leaf in _leaves(source).items()
        for canonical in leaf.names
        if canonical in paired.targets
    }
    return pairing, names


def _other_weights(
    names: Mapping[str, str], network: Network, recorded: Variables, checkpoint: Variables
) -> Iterator[Cause]:
    """Yield the parameters and running statistics of a checkpoint that differ from the recorded."""
    recorded_names = {port: name for name, port in names.items()}
    recorded_values, checkpoint_values = (
        values.named_values(network, each) for each in (recorded, checkpoint)
    )
    pairs = {recorded_names.get(name, name): name for name in recorded_values}
    arrays = {name: recorded_values[port] for name, port in pairs.items()}
    author_names = values.display_names(network, checkpoint)
    return values.difference_causes(
        arrays,
        checkpoint_values,
        pairs,
        ("recording", "the port's checkpoint"),
        (author_names, author_names),
    )
