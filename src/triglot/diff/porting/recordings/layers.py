"""The recorded modules that are layers of the library: their arrays, and what they compute."""

import jax.numpy as jnp

from ....backends.layers.rules import Layer, UnknownLayout
from ....backends.layers.weight_norm import NORMS
from ....backends.libraries import find
from ...types import Array
from ..layouts import KnownLayer, layer_of_settings
from .reading import Call, Recording


def known_layers(recording: Recording) -> dict[str, KnownLayer]:
    """List the modules whose class the library defines, by the place before their arrays' names."""
    layers: dict[str, KnownLayer] = {}
    for call in recording.calls:
        layer = layer_of(recording, call)
        if layer is not None and (layer.parameters or layer.refused):
            place = place_of(recording, call).rstrip("./")
            layers[place] = KnownLayer(call.kind, layer, call.settings)
    return layers


def layer_of(recording: Recording, call: Call) -> Layer | None:
    """Return the layer that is listed for a module's class; None for a user's class."""
    if call.library != recording.library:
        return None
    return find(recording.library).storage.layers.get(call.kind)


def place_of(recording: Recording, call: Call) -> str:
    """Return what the names of a module's arrays begin with.

    PyTorch names modules as it names their arrays. Keras does not; all arrays of a layer are in
    one place.
    """
    if recording.library != "keras":
        return f"{call.name}." if call.name else ""
    return f"{call.weights[0].rpartition('/')[0]}/" if call.weights else f"{call.name}/"


def canonical_arrays(recording: Recording, call: Call, layer: Layer) -> dict[str, Array]:
    """Return a module's arrays by canonical names.

    Those without a canonical layout, as of a norm over several axes, have the library's names.
    """
    statistics = find(recording.library).storage.statistics
    place = place_of(recording, call)
    own_arrays = {
        name[len(place) :].replace(".", "/"): array
        for name, array in recording.weights.items()
        if name.startswith(place)
    }
    stand_in = layer_of_settings(
        call.settings, {name: array.shape for name, array in own_arrays.items()}
    )
    arrays: dict[str, Array] = {}
    for name, array in own_arrays.items():
        rule = layer.parameters.get(name)
        try:
            leaf = None if rule is None else rule(stand_in, array.shape)
        except (AttributeError, UnknownLayout):
            leaf = None
        if leaf is not None:
            arrays |= zip(leaf.names, leaf.encode(jnp.asarray(array)), strict=True)
            if leaf.names == ("scale",) and leaf.note == NORMS[-2]:
                arrays["scale"] = arrays["scale"][:, None]
        elif statistics.get(name) != "count":
            arrays[statistics.get(name) or name] = array
    return arrays


def num_parameters(recording: Recording) -> int:
    """Count the trainable scalars."""
    ends = tuple(find(recording.library).storage.statistics)
    return sum(a.size for name, a in recording.weights.items() if not name.endswith(ends))
