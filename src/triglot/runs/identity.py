"""Whether trainings are bitwise identical, and where they first differ.

The fingerprints are computed inside the compiled program after every update; the rest is NumPy.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.agent import AgentState
from ..core.errors import TriglotError
from ..core.families.extension import ExtendedState
from ..core.learner import LearnerState
from ..core.loop.trainer import Monitor
from ..core.network import Codec, Network, Variables
from ..core.networks.combinators import join_parts, part_of
from ..core.records import JSON, JSONDict
from ..core.types import AnyAgentState, PyTree, abstract_key

Arrays: TypeAlias = Mapping[str, np.ndarray]
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]

PREFIX = "fingerprint/"  # of the metrics that the monitor adds, one per parameter array


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What one training of `S` seeds and `U` updates left behind.

    Attributes:
      metrics: by name, `[S, U]`; those called `fingerprint/...` are fingerprints, uint32.
      params: the final parameters by canonical name, `[S, ...]`.
    """

    metrics: Arrays
    params: Arrays


def fingerprint(array: jax.Array) -> jax.Array:
    """Reduce the bits of an array to one number, uint32 `[]`.

    Integers are summed exactly, so the order of summation is free. One flipped bit always changes
    the sum, as each word is mapped one to one; so do, but for chance, entries that change places.
    """
    unsigned = {1: jnp.uint8, 2: jnp.uint16}.get(array.dtype.itemsize, jnp.uint32)
    words = jnp.ravel(jax.lax.bitcast_convert_type(array, unsigned)).astype(jnp.uint32)
    # Without the shift, x and -x could change places unseen: odd factors differ by even numbers.
    words = words ^ (words >> jnp.uint32(16))
    position = jnp.arange(words.size, dtype=jnp.uint32)
    factor = (position * jnp.uint32(0x9E3779B9)) | jnp.uint32(1)
    return jnp.sum(words * factor, dtype=jnp.uint32)


def fingerprints(encode: Callable[[PyTree], Mapping[str, jax.Array]]) -> Monitor:
    """Build the monitor that fingerprints the parameters an agent learns.

    Args:
      encode: names the parameters, in canonical layout.
    """

    def monitor(agent_state: AnyAgentState) -> dict[str, jax.Array]:
        named = encode(learned(agent_state).params)
        return {f"{PREFIX}{name}": fingerprint(named[name]) for name in sorted(named)}

    return monitor


def codec_of(network: Network) -> Codec:
    """Give a network's codec.

    Raises:
      TriglotError: if it has none.
    """
    return network.require_codec("weights have no canonical names")


def shapes_of(network: Network) -> Shapes:
    """Describe a network's parameters by canonical name; nothing is computed.

    Raises:
      TriglotError: if it has no codec.
    """
    codec = codec_of(network)
    shapes = jax.eval_shape(lambda key: codec.encode(network.init(key).params), abstract_key())
    return {name: array.shape for name, array in shapes.items()}


def check_architecture(backend: str, shapes: Shapes, expected: Shapes) -> None:
    """Reject parameters that differ from the first backend's in a name or a shape.

    The error of a name lists those that only one of them has, and all of the first's.

    Args:
      backend: the other library.
      shapes: its parameters by canonical name.
      expected: the first backend's.

    Raises:
      TriglotError: naming the first parameter that differs.
    """
    differs = f"the architecture of {backend} differs from the first backend's"
    missing, unknown = (
        sorted(expected.keys() - shapes.keys()),
        sorted(shapes.keys() - expected.keys()),
    )
    if missing or unknown:
        lacks = [f"it has no {', '.join(missing)}"] if missing else []
        has = [f"only it has {', '.join(unknown)}"] if unknown else []
        names = ", ".join(f"{name} {expected[name]}" for name in sorted(expected))
        raise TriglotError(
            f"{differs}: {'; '.join(lacks + has)}. The first one's names are {names}."
        )
    for name in sorted(shapes):
        if shapes[name] != expected[name]:
            raise TriglotError(
                f"{differs}: {name} is {shapes[name]} here and {expected[name]} there."
            )


def learned(agent_state: AnyAgentState) -> Variables:
    """Find the variables that an agent's learners train, structured as those of its network.

    Those of an `AgentState` are its `learner`'s: others in it, such as one of multipliers, train no
    network. Another agent with several learners keeps their states in a dictionary by the names of
    `network.parts`; their variables are joined as `combine` joins them, and those of an extension's
    networks with them.

    Raises:
      TriglotError: if the state holds no `LearnerState`, or several that are not in one dictionary.
    """
    if isinstance(agent_state, ExtendedState):
        variables, added = learned(agent_state.agent), agent_state.variables
        if not added:
            return variables
        return join_parts(
            {**{name: part_of(variables, name) for name in variables.params}, **added}
        )
    if isinstance(agent_state, AgentState):
        return agent_state.learner.variables
    leaves = jax.tree_util.tree_leaves_with_path(agent_state, is_leaf=_is_learner)
    states = [(path, node) for path, node in leaves if _is_learner(node)]
    if len(states) == 1:
        return states[0][1].variables
    names = [path[-1].key for path, _ in states if isinstance(path[-1], jax.tree_util.DictKey)]
    if not states or len(names) < len(states) or len({path[:-1] for path, _ in states}) > 1:
        raise TriglotError(
            f"the agent's state ({type(agent_state).__name__}) holds {len(states)} LearnerStates: "
            "to be compared it needs one, or one dictionary of them by the names of its networks."
        )
    return join_parts({name: node.variables for name, (_, node) in zip(names, states, strict=True)})


def _is_learner(node: object) -> bool:
    return isinstance(node, LearnerState)


def params_sha256(named: Arrays) -> str:
    """Hash parameters in canonical form: sorted names, and each array's dtype, shape and bytes."""
    digest = hashlib.sha256()
    for name in sorted(named):
        array = np.ascontiguousarray(named[name])
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def differing(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Mark the entries of two arrays whose bits differ; any NaN equals any NaN, 0 is not -0."""
    if one.shape != other.shape or one.dtype != other.dtype:
        raise TriglotError(
            f"cannot compare {one.dtype} {one.shape} with {other.dtype} {other.shape}."
        )
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    unsigned = np.dtype(f"u{one.dtype.itemsize}")
    marked = one.view(unsigned) != other.view(unsigned)
    return marked & ~((one != one) & (other != other))


def compare_traces(traces: Mapping[str, Trace], steps_per_update: int) -> JSONDict:
    """Compare trainings bit for bit, and find where each diverges from the first of them.

    Args:
      traces: at least one, by backend; all of the same seeds and updates.
      steps_per_update: environment steps of one seed in one update.

    Returns:
      `identical`: parameters after every update, final parameters and all metrics are equal.
      `first_difference`: None, or `update` (1 is the first), `step` (environment steps of a seed
      until then), `leaf` (the first by name of the `num_differing`), `seed` (the first) and
      `backends` (those that differ from the first backend by then).
      `metrics_identical` and `first_metric_difference` (with `metric` for `leaf`): the same for
      the logged metrics.
      `groups`: backends that are equal among themselves.
      `backends`: for each, its own `first_difference`, `first_metric_difference` and
      `largest_difference` of a final parameter from the first backend's.
    """
    reference = next(iter(traces.values()))
    rows = {
        name: {
            "first_difference": _first(_params_differing(reference, trace), "leaf"),
            "first_metric_difference": _first(_metrics_differing(reference, trace), "metric"),
            "largest_difference": _largest_difference(reference.params, trace.params),
        }
        for name, trace in traces.items()
    }
    for row in rows.values():
        for place in (row["first_difference"], row["first_metric_difference"]):
            if place is not None:
                place["step"] = place["update"] * steps_per_update
    first = _earliest({name: row["first_difference"] for name, row in rows.items()})
    first_metric = _earliest({name: row["first_metric_difference"] for name, row in rows.items()})
    return {
        "identical": first is None and first_metric is None,
        "first_difference": first,
        "metrics_identical": first_metric is None,
        "first_metric_difference": first_metric,
        "groups": _groups(traces),
        "backends": rows,
    }


def _params_differing(one: Trace, other: Trace) -> dict[str, np.ndarray]:
    """Mark by leaf the seeds and updates `[S, U]` after which parameters differ."""
    marks = {}
    for name in sorted(one.params):
        marked = differing(one.metrics[PREFIX + name], other.metrics[PREFIX + name])
        final = differing(one.params[name], other.params[name])
        marked[:, -1] |= final.reshape(len(final), -1).any(axis=1)
        marks[name] = marked
    return marks


def _metrics_differing(one: Trace, other: Trace) -> dict[str, np.ndarray]:
    names = sorted(name for name in one.metrics if not name.startswith(PREFIX))
    return {name: differing(one.metrics[name], other.metrics[name]) for name in names}


def _first(marks: Mapping[str, np.ndarray], kind: str) -> JSON | None:
    anywhere = np.stack(list(marks.values()))  # [leaf, S, U]
    if not anywhere.any():
        return None
    update = int(anywhere.any(axis=(0, 1)).argmax())
    leaf, seed = (int(index) for index in np.argwhere(anywhere[:, :, update])[0])
    return {
        "update": update + 1,
        kind: list(marks)[leaf],
        "num_differing": int(anywhere[:, :, update].any(axis=1).sum()),
        "seed": seed,
    }


def _earliest(places: Mapping[str, JSON | None]) -> JSON | None:
    differing_places = {name: place for name, place in places.items() if place is not None}
    if not differing_places:
        return None
    update = min(place["update"] for place in differing_places.values())
    backends = [name for name, place in differing_places.items() if place["update"] == update]
    return {**differing_places[backends[0]], "backends": backends}


def _largest_difference(one: Arrays, other: Arrays) -> float:
    return max(float(np.max(np.abs(one[n] - other[n]), initial=0.0)) for n in one)


def _groups(traces: Mapping[str, Trace]) -> list[list[str]]:
    groups: list[list[str]] = []
    for name, trace in traces.items():
        for group in groups:
            if not _any_differ(traces[group[0]], trace):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _any_differ(one: Trace, other: Trace) -> bool:
    marks = _params_differing(one, other) | _metrics_differing(one, other)
    return any(marked.any() for marked in marks.values())
