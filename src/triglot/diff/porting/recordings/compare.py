"""Compare a port with a recording: weights, then each module's output, then the outputs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import jax

from ....backends.libraries import title
from ....core.errors import TriglotError, user_error_context
from ....core.network import Network, Variables, num_params
from ...pairing.parameters import Pairing
from ...programs import record
from ...programs.explain import merge_equal
from ...programs.recording import forward_program
from ...report import DIFFERENT, EQUIVALENT, Module, Report
from ...types import Cause, Difference, Side
from ..files import read_weights
from ..names import variables_from
from .align import Alignment, Mismatch
from .causes import causes_of, local_causes, num_causes
from .events import Event
from .layers import num_parameters
from .placing import find_end
from .reading import Recording, is_recording, read_recording
from .weights import Port, fit

MAX_MISMATCHES = 16
EQUAL, DIFFERS, CONSEQUENCE = "equal", "different", "computed from different values"
NOT_ONE_VALUE = "not computed as one value"


def diff_recording(
    recording: str | Path,
    port: object,
    *,
    checkpoint: str | Path | None = None,
    mapping: Mapping[str, str] | None = None,
    name: str | None = None,
    trust: bool = False,
    begin: Callable[[str], None] = lambda stage: None,
) -> Report:
    """Compare a port with a recording of the original, whose library is not needed.

    The port gets the recorded weights and inputs. Where the port does not compute a recorded value
    although it has the values that this one is computed from, the recorded value is substituted and
    the comparison continues, so that it finds several differences.

    Args:
      recording: the file that `triglot.record` wrote.
      port: a network in any form that `triglot.diff.loading.load_network` accepts.
      checkpoint: the port's own weights, which are compared with the recorded ones first.
      mapping: canonical names of the recording to those of the port; None to pair by names, shapes
        and the order of use.
      name: the name of the port in the report.
      trust: read a checkpoint that is a pickle, which may run code.
      begin: a function that is called with the name of each stage.

    Raises:
      TriglotError: if a file is damaged or of another kind, the port fails on the recorded inputs,
        or the weights do not fit.
    """
    begin("reading the recording")
    parsed = read_recording(Path(recording))
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and is_recording(str(path)) and path.resolve() == parsed.path.resolve():
        raise TriglotError(f"--checkpoint {path} is the recording: give the port's own weights.")
    arrays = None if path is None else read_weights(path, trust=trust)

    def read_checkpoint(network: Network) -> Variables:
        assert arrays is not None and path is not None
        return variables_from(arrays, network, path)[0]

    begin("putting the recorded weights into the port")
    fitted = fit(parsed, port, None if path is None else read_checkpoint, mapping, name)
    begin("evaluating the port operation by operation")
    aligned = align(parsed, fitted)
    begin("comparing modules")
    return report_of(aligned, fitted)


def align(recording: Recording, port: Port) -> Alignment:
    """Evaluate the port on the recorded inputs and find the recorded values in it."""
    network, variables = port.network, port.variables
    params = network.require_codec("its parameters have no names").encode(variables.params)
    side = Side(label=network.name, network=network, variables=variables, names={})
    key = jax.random.key(0)
    with user_error_context(f"{network.name!r} failed on the recorded inputs"):
        tape = record(
            forward_program(side, dict(params), port.inputs, recording.train, key), wide=True
        )
    return Alignment(recording, tape, port.names)


def report_of(aligned: Alignment, port: Port) -> Report:
    """Name all differences and their causes."""
    recording, network = aligned.recording, port.network
    label = f"{network.name} ({title(network.backend)})"
    states: dict[str, str] = {}
    first: Difference | None = None
    causes: list[Cause] = []
    located: list[tuple[int, Difference, list[Cause]]] = []
    agree = aligned.outputs_agree
    for _ in range(MAX_MISMATCHES):
        event = aligned.first_missing()
        if event is None:
            break
        mismatch = find_end(aligned, event, lambda each, end: num_causes(aligned, each, end))
        difference, new_causes = causes_of(aligned, mismatch, label)
        located.append((event.index, difference, new_causes))
        states.update({each.array: DIFFERS for each in mismatch.events})
        confirmed = any(cause.name != "unknown" for cause in new_causes)
        has_place = mismatch.end is not None and mismatch.substitute is not None
        if not (mismatch.sure or confirmed or has_place):
            mismatch = Mismatch(mismatch.events)
        aligned.substitute(mismatch)
    for event in aligned.events:
        new_causes = local_causes(aligned, event) if event.array not in aligned.settled else []
        if new_causes:
            difference, new_causes = _local(aligned, event, new_causes, label)
            located.append((event.index, difference, new_causes))
            states[event.array] = DIFFERS
    for _, difference, new_causes in sorted(located, key=lambda each: each[0]):
        first = first or difference
        causes += new_causes
    modules = tuple(_module(aligned, event, states) for event in aligned.events)
    notes = [*recording.notes, *port.notes]
    if not agree and not located:
        causes.append(_unlocated_cause(label))
    different = not agree or bool(located)
    if port.causes and not different:
        notes.append("with the recorded weights, the port computes the recorded outputs")
    return Report(
        labels=(f"{recording.path} ({title(recording.library)})", label),
        verdict=DIFFERENT if different or port.causes else EQUIVALENT,
        first_difference=first,
        causes=(*port.causes, *merge_equal(causes)),
        pairing=port.pairing or Pairing({}, {}, (), "not compared"),
        num_params=(num_parameters(recording), num_params(port.variables.params)),
        modules=modules,
        notes=tuple(notes),
    )


def _local(
    aligned: Alignment, event: Event, named_causes: list[tuple[str, str]], label: str
) -> tuple[Difference, list[Cause]]:
    mismatch = Mismatch([event], aligned.places[event.array])
    difference, base_causes = causes_of(aligned, mismatch, label)
    size = aligned.error(event)
    causes = [Cause(name, base_causes[0].where, evidence) for name, evidence in named_causes]
    return replace(difference, max_abs=size[0], max_rel=size[1]), causes


def _module(aligned: Alignment, event: Event, states: Mapping[str, str]) -> Module:
    state = states.get(event.array, EQUAL)
    if event.array in aligned.lost and state == EQUAL:
        state = CONSEQUENCE
    if state == EQUAL and event.array not in aligned.places:
        state = NOT_ONE_VALUE
    return Module(event.scope, event.operation, event.source, state, aligned.error(event)[1])


def _unlocated_cause(label: str) -> Cause:
    return Cause(
        "unknown",
        f"outputs; {label}",
        "the values of all recorded modules are found, and the outputs differ: the port returns "
        "another value, or continues computing after it",
    )
