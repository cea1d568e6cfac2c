"""Record two networks at equal parameters and inputs."""

from collections.abc import Mapping
from dataclasses import replace

import jax
import numpy as np

from ...core.errors import TriglotError
from ...core.network import Variables
from ...core.types import PyTree
from ..host import on_host
from ..measures.weights import canonical
from ..types import Array, Side, codec_of
from .recorder import Program, record
from .tape import Tape
from .wide import is_floating

BATCH = 3  # examples that are evaluated


def record_both(
    first_side: Side,
    second_side: Side,
    inputs: PyTree,
    *,
    train: bool,
    key: jax.Array,
    wide: bool = False,
    exact: bool = False,
    keeps_draws: bool = False,
) -> tuple[Tape, Tape]:
    """Record two networks.

    Args:
      first_side, second_side: networks with a codec.
      inputs: a batch for both.
      train, key: the mode and the key of both networks.
      wide: evaluate in float64.
      exact: evaluate all examples at exactly these parameters and inputs. Otherwise 3 examples, and
        arrays that hold one number get others: at a bias of 0 or a scale of 1 a difference may have
        no effect.
      keeps_draws: keep the random draws, see `record`.

    Raises:
      TriglotError: if a network has no codec or gives another number of outputs.
    """
    params_of_sides = [
        canonical(side.network, side.variables) for side in (first_side, second_side)
    ]
    shared: list[dict[str, np.ndarray]] = [{}, {}]
    if not exact:
        _share((first_side, second_side), params_of_sides, shared)
        inputs = jax.tree.map(_small, inputs)
    tapes = [
        record(
            replace(forward_program(side, params, inputs, train, key), keeps_draws=keeps_draws),
            wide=wide,
            shared=values,
        )
        for side, params, values in zip(
            (first_side, second_side), params_of_sides, shared, strict=True
        )
    ]
    if len(tapes[0].outputs) != len(tapes[1].outputs):
        raise TriglotError(
            f"{first_side.label} gives {len(tapes[0].outputs)} outputs and {second_side.label} "
            f"{len(tapes[1].outputs)}: compare networks with the same outputs."
        )
    return tapes[0], tapes[1]


def forward_program(
    side: Side, params: Mapping[str, Array], inputs: PyTree, train: bool, key: jax.Array
) -> Program:
    """Return a network's call as a function of its parameters by canonical name."""
    network, codec = side.network, codec_of(side.network)

    def function(
        params: dict[str, jax.Array], state: PyTree, inputs: PyTree, key: jax.Array
    ) -> tuple[PyTree, PyTree]:
        variables = Variables(params=codec.decode(params), state=state)
        return network.apply(variables, inputs, key=key, train=train)

    state = side.variables.state
    return Program(
        function=function,
        params=params,
        arrays_of=codec.by_name,
        state=state,
        inputs=inputs,
        key=key,
        of_batches=side.of_batches,
    )


def _share(
    sides: tuple[Side, Side],
    params_of_sides: list[dict[str, np.ndarray]],
    shared: list[dict[str, np.ndarray]],
) -> None:
    """Give shared parameters the first network's values, in float64 and in their own types."""
    for index, name in enumerate(sorted(sides[0].names.keys() & sides[1].names.keys())):
        array = _generic(params_of_sides[0][sides[0].names[name]], index)
        wide_array = array.astype(np.float64)
        for side, params, values in zip(sides, params_of_sides, shared, strict=True):
            initial = params[side.names[name]]
            params[side.names[name]] = np.asarray(array.reshape(initial.shape), initial.dtype)
            values[side.names[name]] = wide_array.reshape(initial.shape)


def _small(array: Array) -> Array:
    examples = on_host(array)
    examples = examples[:BATCH] if examples.ndim else examples
    return _generic(examples, 0) if isinstance(examples, np.ndarray) else examples  # keys


def _generic(array: np.ndarray, seed: int) -> np.ndarray:
    """Add noise to an array that holds one number."""
    if not is_floating(array.dtype) or not array.size or np.any(array != array.flat[0]):
        return array
    noise = np.random.default_rng(seed).uniform(-0.3, 0.3, array.shape)
    return (array.astype(np.float64) + noise).astype(array.dtype)
