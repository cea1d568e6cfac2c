"""Read a recording: what `python -m triglot.record` wrote of a model and one of its calls."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ....core.errors import TriglotError, printable, shown

FORMAT, VERSION = "triglot.record", 1
SUFFIX = ".safetensors"
ADVICE = "record it with `python -m triglot.record my_model:Net --inputs float32:2,3,32,32`"
CLOUSEAU = (".forward", ".__call__")


@dataclass(frozen=True)
class Call:
    """One call of a module.

    Attributes:
      index: the position in the order in which calls begin.
      name: the name of the module, such as `layer1.0.bn2`; empty for the model.
      kind: the class of the module.
      library: the package of its class, such as `torch`.
      settings: plain attributes, such as `eps`.
      source: `file:line` of the caller, else of the class's own code.
      defined_at: `file:line` of the code that the class computes with; empty for a library's.
      parent: the index of the call that it is in; None for the model's.
      finished: the number of calls that had begun when this one ended.
      inputs, outputs: names of arrays.
      weights: names of the module's own parameters and buffers.
      is_random: whether it drew random numbers.
    """

    index: int
    name: str
    kind: str
    library: str
    settings: Mapping[str, object]
    source: str
    defined_at: str
    parent: int | None
    finished: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    is_random: bool

    @property
    def is_leaf(self) -> bool:
        """Whether it called no other module."""
        return self.finished == self.index + 1

    def __str__(self) -> str:
        return f"{self.name or 'the model'}: {self.kind}" + (
            f" ({self.source})" if self.source else ""
        )


@dataclass(frozen=True)
class Recording:
    """What one call of a model computed.

    Attributes:
      path: the path of the file.
      library: `torch` or `keras`.
      arrays: all arrays by name.
      calls: the calls of modules, in the order in which they began.
      inputs, outputs: names of the model's inputs and outputs.
      train: whether it was in training mode.
      notes: what the recorder noted, such as weights that are NaN.
    """

    path: Path
    library: str
    arrays: Mapping[str, np.ndarray]
    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    train: bool
    notes: tuple[str, ...]

    @cached_property
    def weights(self) -> dict[str, np.ndarray]:
        """Parameters and buffers by the library's names, in the order of the calls."""
        used_names = [name for call in self.calls for name in call.weights]
        stored = [name[8:] for name in self.arrays if name.startswith("weights/")]
        return {name: self.arrays[f"weights/{name}"] for name in dict.fromkeys(used_names + stored)}


def is_recording(text: str) -> bool:
    """Return whether a network is given as a recording's file."""
    return text.endswith(SUFFIX)


def read_recording(path: Path) -> Recording:
    """Read a recording.

    Raises:
      TriglotError: if it is missing, damaged, no recording, or not to be compared with a port.
    """
    arrays, metadata = read_safetensors(path)
    if metadata.get("format") != FORMAT:
        if arrays and all(name.endswith(CLOUSEAU) for name in arrays):
            raise TriglotError(
                f"{path} was written by clouseau, which keeps outputs of modules, no inputs and no "
                f"weights: {ADVICE}."
            )
        raise TriglotError(
            f"{path} holds arrays such as {', '.join(list(arrays)[:3]) or 'none'}, and is no "
            f"recording: {ADVICE}; a checkpoint goes to --checkpoint."
        )
    version = metadata.get("version", "0")
    if not re.fullmatch("[0-9]{1,3}", str(version)) or int(version) > VERSION:
        raise TriglotError(
            f"{path} has version {version} of the recording format, and this triglot reads up to "
            f"{VERSION}: update triglot, or record with this one's triglot/record.py."
        )
    try:
        content = json.loads(metadata["content"])
        calls = tuple(_call(index, each) for index, each in enumerate(content["calls"]))
        recording = Recording(
            path, content["library"], arrays, calls, tuple(content["inputs"]),
            tuple(content["outputs"]), content["train"], tuple(content["notes"]),
        )  # fmt: skip
        names = [n for call in calls for n in (*call.inputs, *call.outputs)]
        names += [f"weights/{name}" for call in calls for name in call.weights]
        missing = [n for n in (*names, *recording.inputs, *recording.outputs) if n not in arrays]
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise TriglotError(f"{path} is a damaged recording ({error}): {ADVICE}.") from None
    problem = _problem(recording)
    if problem:
        raise TriglotError(f"{path} is a damaged recording: {problem}. {ADVICE.capitalize()}.")
    if missing:
        raise TriglotError(f"{path} is a damaged recording, without {missing[0]}: {ADVICE}.")
    _check(recording)
    return recording


def read_safetensors(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Read the arrays of a file in the order in which they are stored, and its metadata.

    Raises:
      TriglotError: if it is missing, cut off or of another format.
    """
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise TriglotError(f"{path} does not exist: give a recording; {ADVICE}.")
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.offset_keys()}
            return arrays, file.metadata() or {}
    except (SafetensorError, TypeError) as error:  # a type that NumPy lacks
        raise TriglotError(
            f"{path} is not a safetensors file, or is damaged or cut off ({error}). Copy it again, "
            f"or {ADVICE}."
        ) from None


def _problem(recording: Recording) -> str:
    """Say what contradicts how calls are nested, or would change what a terminal shows."""
    for call in recording.calls:
        if call.parent is not None and not (
            type(call.parent) is int and 0 <= call.parent < call.index
        ):
            return (
                f"call {call.index} is inside of {shown(call.parent)}, which is not an earlier call"
            )
        if type(call.finished) is not int or not call.index < call.finished <= len(recording.calls):
            return (
                f"call {call.index} ends before {shown(call.finished)}, which is not a later call"
            )
    texts = [
        field
        for call in recording.calls
        for field in (call.name, call.kind, call.library, call.source)
    ]
    texts += [*recording.arrays, *recording.notes, recording.library]
    for text in texts:
        if not isinstance(text, str) or printable(text) != text:
            return f"{shown(text)} is not a name"
    return ""


def _call(index: int, content: Mapping[str, Any]) -> Call:
    return Call(
        index=index,
        name=content["name"],
        kind=content["class"],
        library=content["library"],
        settings=content["settings"],
        source=content["called_at"] or content["defined_at"],
        defined_at=content["defined_at"],
        parent=content["parent"],
        finished=content["finished"],
        inputs=tuple(content["inputs"]),
        outputs=tuple(content["outputs"]),
        weights=tuple(content["weights"]),
        is_random=bool(content.get("random")),
    )


def _check(recording: Recording) -> None:
    """Reject what cannot be compared with a port: random draws, and numbers that are NaN."""
    random = [call for call in recording.calls if call.is_random]
    if random:
        raise TriglotError(
            f"{recording.path}: {random[0].name or 'the model'} ({random[0].kind}) drew random "
            "numbers, and a port draws others: record without --train, or with a rate of 0."
        )
    nonfinite = [n for n, array in recording.weights.items() if not _finite(array)]
    if nonfinite:
        more = f" and {len(nonfinite) - 1} more" if nonfinite[1:] else ""
        raise TriglotError(
            f"{recording.path}: the weights {nonfinite[0]}{more} are NaN or infinite, so that all "
            "outputs are: record the model with another checkpoint."
        )
    if not recording.inputs:
        raise TriglotError(f"{recording.path} has no inputs: {ADVICE}.")
    if not recording.outputs or not recording.calls:
        raise TriglotError(f"{recording.path} has no outputs of modules: {ADVICE}.")


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.all(np.isfinite(array)))
