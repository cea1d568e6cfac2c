"""Record a model's weights, its inputs and the output of each module in one file.

Copy this file into the environment of PyTorch or Keras, where nothing of triglot is needed:

    python record.py my_model:Net --inputs float32:2,3,32,32 --out recording.safetensors

Where triglot is installed, `triglot diff recording.safetensors my_port:net` then compares a port
with the recording. In a notebook: `record(model, inputs, out="recording.safetensors")`.

The format is triglot's own, because a port is compared from recorded inputs and weights: clouseau
keeps outputs only, TorchLens is for PyTorch only and needs its own package to read its files.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

FORMAT, VERSION = "triglot.record", 1
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32",
    "int16": "I16", "int8": "I8", "uint64": "U64", "uint32": "U32", "uint16": "U16",
    "uint8": "U8", "bool": "BOOL",
}  # fmt: skip
PLAIN = (int, float, str, bool, type(None))
MAX_SETTINGS = 40
HERE = os.path.abspath(__file__)


class RecordError(Exception):
    """A mistake in what was asked for, in one sentence."""


def record(
    model: Any, *inputs: Any, out: str = "recording.safetensors", train: bool = False
) -> list[str]:
    """Run a model once and write its weights, its inputs and all outputs of its modules.

    Args:
      model: a PyTorch module or a Keras model, with its weights.
      inputs: its arguments: tensors or NumPy arrays, batch included.
      out: the file to write; an existing one is replaced.
      train: run in training mode; otherwise in evaluation.

    Returns:
      Notes, such as weights that are NaN.

    Raises:
      RecordError: if the model is of neither library, or gets no inputs.
    """
    if not inputs:
        raise RecordError("no inputs are given: pass what the model is called with.")
    recorder = Recorder()
    for run in (_Keras, _Torch):  # with PyTorch below Keras, a Keras model is both
        if run.fits(model):
            run(model, recorder, train).record([np.asarray(_numpy(each)) for each in inputs])
            break
    else:
        raise RecordError(
            f"{type(model).__name__} is neither a PyTorch module nor a Keras model: give one."
        )
    recorder.content["train"] = train
    recorder.finish()
    write(out, recorder.arrays, recorder.content)
    return list(recorder.content["notes"])


class Recorder:
    """Arrays by name, each stored once, and the calls of modules in order."""

    def __init__(self) -> None:
        """Start an empty recording."""
        self.arrays: dict[str, np.ndarray] = {}
        self.content: dict[str, Any] = {"calls": [], "notes": []}
        self._known: dict[Any, str] = {}
        self._open: list[int] = []

    def weight(self, name: str, array: Any) -> None:
        """Add a parameter or a buffer."""
        self.arrays[f"weights/{name}"] = _numpy(array)

    def add(self, array: Any, name: str) -> str:
        """Add an array and return its name; that of an equal one that is there already."""
        own = _numpy(array)
        digest = hashlib.sha1(np.ascontiguousarray(own).tobytes()).hexdigest()
        key = (str(own.dtype), own.shape, digest)
        if key not in self._known:
            self._known[key] = name
            self.arrays[name] = own.copy()
        return self._known[key]

    def begin(self, name: str, module: Any, settings: dict[str, Any], given: Any) -> dict[str, Any]:
        """Note that a module is called."""
        calls = self.content["calls"]
        place = f"modules/{len(calls):04d}/{name or 'model'}"
        kind = _class_of(module)
        call = {
            "name": name,
            "class": kind.__name__,
            "library": kind.__module__.split(".")[0],
            "settings": settings,
            "defined_at": _defined_at(module),
            "called_at": _called_at(),
            "parent": self._open[-1] if self._open else None,
            "inputs": [self.add(x, f"{place}/in{i}") for i, x in enumerate(_flat(given))],
            "place": place,
        }
        self._open.append(len(calls))
        calls.append(call)
        return call

    def end(self, call: dict[str, Any], result: Any) -> None:
        """Note what a module returned."""
        self._open.pop()
        place = call.pop("place")
        call["outputs"] = [self.add(x, f"{place}/{i}") for i, x in enumerate(_flat(result))]
        call["finished"] = len(self.content["calls"])

    def finish(self) -> None:
        """Note what is not finite."""
        notes, calls = self.content["notes"], self.content["calls"]
        for name, array in self.arrays.items():
            if name.startswith("weights/") and not _finite(array):
                notes.append(f"{name[8:]} has NaN or infinite numbers")
        apart = [call for call in calls if any(np.any(np.isnan(self.arrays[n]))
                 for n in call["outputs"] if self.arrays[n].dtype.kind == "f")]  # fmt: skip
        inner = [call for call in apart if call["finished"] == calls.index(call) + 1]
        if apart:
            first = (inner or apart)[0]
            notes.append(f"the first NaN is in the output of {first['name']} ({first['class']})")


def write(path: str, arrays: dict[str, np.ndarray], content: dict[str, Any]) -> None:
    """Write arrays and JSON in the format of safetensors."""
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT, "version": str(VERSION), "content": json.dumps(content)
        }
    }  # fmt: skip
    chunks, end = [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array).tobytes()
        header[name] = {
            "dtype": DTYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [end, end + len(data)],
        }
        end += len(data)
        chunks.append(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for data in chunks:
            file.write(data)


class _Torch:
    """Run a PyTorch module with a hook before and after each of its modules."""

    def __init__(self, model: Any, recorder: Recorder, train: bool) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.model, self.recorder, self.train = model, recorder, train

    @staticmethod
    def fits(model: Any) -> bool:
        torch = sys.modules.get("torch")
        return torch is not None and isinstance(model, torch.nn.Module)

    def record(self, inputs: list[np.ndarray]) -> None:
        torch, model, recorder = self.torch, self.model, self.recorder
        modes = {module: module.training for module in model.modules()}
        model.train(self.train)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            recorder.weight(name, tensor)
        first = next(iter(model.parameters()), None)
        device = "cpu" if first is None else first.device
        given = [torch.from_numpy(np.array(array)).to(device) for array in inputs]
        recorder.content.update(library="torch", library_version=torch.__version__)
        recorder.content.update(
            inputs=[recorder.add(x, f"inputs/{i}") for i, x in enumerate(given)]
        )
        handles = []
        for name, module in model.named_modules():
            handles += self._hooked(name, module)
        mha = getattr(torch.backends, "mha", None)
        fast = mha.get_fastpath_enabled() if mha else None
        if mha:  # it computes a whole layer without calling its modules
            mha.set_fastpath_enabled(False)
        try:
            with torch.no_grad():
                result = model(*given)
        finally:
            for handle in handles:
                handle.remove()
            if mha:
                mha.set_fastpath_enabled(fast)
            for module, mode in modes.items():
                module.training = mode
        outputs = [recorder.add(x, f"outputs/{i}") for i, x in enumerate(_flat(result))]
        recorder.content["outputs"] = outputs

    def _hooked(self, name: str, module: Any) -> list[Any]:
        states: list[Any] = []

        def before(module: Any, args: Any, kwargs: Any) -> None:
            call = self.recorder.begin(name, module, _settings(vars(module)), (args, kwargs))
            own = [n for n, _ in module.named_parameters(recurse=False)]
            own += [n for n, _ in module.named_buffers(recurse=False)]
            call["weights"] = [f"{name}.{each}" if name else each for each in own]
            states.append((call, self.torch.get_rng_state()))

        def after(module: Any, args: Any, result: Any) -> None:
            call, state = states.pop()
            self.recorder.end(call, result)
            inside = self.recorder.content["calls"]
            drawn = not self.torch.equal(state, self.torch.get_rng_state())
            if drawn and not any(c.get("random") for c in inside[inside.index(call) + 1 :]):
                call["random"] = True

        return [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after),
        ]


class _Keras:
    """Run a Keras model, of any backend, with `Layer.__call__` wrapped."""

    def __init__(self, model: Any, recorder: Recorder, train: bool) -> None:
        self.keras: Any = importlib.import_module("keras")
        self.model, self.recorder, self.train = model, recorder, train

    @staticmethod
    def fits(model: Any) -> bool:
        keras = sys.modules.get("keras")
        return keras is not None and isinstance(model, keras.layers.Layer)

    def record(self, inputs: list[np.ndarray]) -> None:
        model, recorder, layer = self.model, self.recorder, self.keras.layers.Layer
        given = [inputs[0]] if len(inputs) == 1 else [list(inputs)]
        if not model.built:
            model(*given, training=False)  # makes the weights
        for variable in model.variables:
            name = getattr(variable, "path", variable.name)
            if "seed_generator" not in name:
                recorder.weight(name, variable)
        version = self.keras.__version__
        recorder.content.update(library="keras", library_version=version)
        recorder.content["inputs"] = [recorder.add(x, f"inputs/{i}") for i, x in enumerate(inputs)]
        original = layer.__call__

        def call(own: Any, *args: Any, **kwargs: Any) -> Any:
            noted = recorder.begin(
                getattr(own, "path", "") or own.name,
                own,
                _settings(own.get_config()),
                (args, kwargs),
            )
            names = [getattr(v, "path", v.name) for v in own.variables]
            noted["weights"] = [name for name in names if "seed_generator" not in name]
            rate = getattr(own, "rate", 0) or getattr(own, "stddev", 0)
            noted["random"] = bool(self.train and rate and hasattr(own, "seed_generator"))
            result = original(own, *args, **kwargs)
            recorder.end(noted, result)
            return result

        layer.__call__ = call
        try:
            result = model(*given, training=self.train)
        finally:
            layer.__call__ = original
        recorder.content["outputs"] = [
            recorder.add(x, f"outputs/{i}") for i, x in enumerate(_flat(result))
        ]


def _flat(tree: Any) -> Iterator[Any]:
    """Yield the arrays of nested arguments or results."""
    if isinstance(tree, dict):
        for each in tree.values():
            yield from _flat(each)
    elif isinstance(tree, (list, tuple)):
        for each in tree:
            yield from _flat(each)
    elif hasattr(tree, "shape") and hasattr(tree, "dtype"):
        yield tree
    elif hasattr(tree, "__dataclass_fields__"):
        yield from _flat(vars(tree))


def _numpy(array: Any) -> np.ndarray:
    if hasattr(array, "detach"):
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
        return array.numpy()
    if hasattr(array, "numpy") and not isinstance(array, np.ndarray):
        array = array.numpy()
    own = np.asarray(array)
    return own if own.dtype.name in DTYPES else own.astype(np.float32)


def _finite(array: np.ndarray) -> bool:
    return array.dtype.kind != "f" or bool(np.all(np.isfinite(array)))


def _settings(known: dict[str, Any]) -> dict[str, Any]:
    """Keep the plain values of a module's attributes or configuration."""
    found: dict[str, Any] = {}
    for name, value in known.items():
        if name.startswith("_") or len(found) == MAX_SETTINGS:
            continue
        if isinstance(value, dict) and isinstance(value.get("config"), str):
            value = value["config"]  # a function that Keras names
        if isinstance(value, PLAIN):
            found[name] = value
        elif isinstance(value, (list, tuple)) and all(isinstance(each, PLAIN) for each in value):
            found[name] = list(value)
        elif callable(value) and hasattr(value, "__name__") and not isinstance(value, type):
            found[name] = value.__name__
    return found


def _class_of(module: Any) -> type:
    """Return a module's class, without those that PyTorch's parametrizations derive from it."""
    kind = type(module)
    is_derived = kind.__module__ == "torch.nn.utils.parametrize" and len(kind.__bases__) == 1
    return kind.__bases__[0] if is_derived and kind.__name__.startswith("Parametrized") else kind


def _defined_at(module: Any) -> str:
    """Return `file:line` of the function that a module's class computes with."""
    kind: Any = type(module)
    function: Any = getattr(kind, "forward", None) or getattr(kind, "call", None)
    code = getattr(function, "__code__", None)
    if code is None or _in_library(code.co_filename):
        return ""
    return f"{_shown(code.co_filename)}:{code.co_firstlineno}"


def _called_at() -> str:
    """Return `file:line` of the innermost frame of the user's code."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if os.path.abspath(file) != HERE and not _in_library(file):
            return f"{_shown(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _in_library(file: str) -> bool:
    return file.startswith("<") or any(
        part in file for part in ("site-packages", "dist-packages", os.path.dirname(os.__file__))
    )


def _shown(file: str) -> str:
    inside = os.path.relpath(file)
    return os.path.basename(file) if inside.startswith("..") else inside


def inputs_of(texts: list[str], seed: int) -> list[np.ndarray]:
    """Draw inputs, each `DTYPE:SHAPE` or `DTYPE:SHAPE:LOW..HIGH`, or read a `.npy` or `.npz` file.

    Raises:
      RecordError: if a text has another form or a file cannot be read.
    """
    random, found = np.random.default_rng(seed), []
    for text in texts:
        if text.endswith((".npy", ".npz")):
            try:
                read = np.load(text, allow_pickle=False)
            except (OSError, ValueError) as error:
                raise RecordError(f"{text} cannot be read: {error}") from None
            found += [read] if isinstance(read, np.ndarray) else list(read.values())
            continue
        match = re.fullmatch(r"(\w+):([\d,x]*)(?::(-?[\d.]+?)\.\.(-?[\d.]+))?", text)
        if match is None or match[1] not in DTYPES:
            raise RecordError(
                f"input {text!r} must have the form DTYPE:SHAPE with the batch, such as "
                "float32:2,3,32,32, or DTYPE:SHAPE:LOW..HIGH, such as int64:2,16:0..99, or be a "
                ".npy file."
            )
        dtype, shape = np.dtype(match[1]), tuple(map(int, re.findall(r"\d+", match[2])))
        if dtype.kind == "f":
            drawn = random.standard_normal(shape)
            if match[3] is not None:
                drawn = random.uniform(float(match[3]), float(match[4]), shape)
        else:
            low, high = (0, 1) if match[3] is None else (int(match[3]), int(match[4]))
            drawn = random.integers(low, high, shape, endpoint=True)
        found.append(np.asarray(drawn, dtype))
    return found


def load_model(text: str) -> Any:
    """Import `module:object`, or `file.py:object`, and make a model of it.

    Raises:
      RecordError: if there is none.
    """
    module, colon, name = text.rpartition(":")
    if not colon or not module or not name:
        raise RecordError(f"{text!r} must have the form module:object, such as my_model:Net.")
    folder, file = os.path.split(module)
    sys.path.insert(0, os.path.abspath(folder) if file.endswith(".py") else os.getcwd())
    module = file[:-3] if file.endswith(".py") else module
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise RecordError(f"{text}: {error}.") from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise RecordError(f"{module} has no {name}: give the name of a class or a model.")
        found = getattr(found, part)
    if any(run.fits(found) for run in (_Torch, _Keras)):
        return found
    try:
        return found()
    except TypeError as error:
        raise RecordError(
            f"{text} cannot be called without arguments ({error}): give a function that returns "
            "the model."
        ) from None


def load_weights(model: Any, path: str) -> None:
    """Read a checkpoint into a model.

    Raises:
      RecordError: if the file is missing or does not fit.
    """
    if not os.path.exists(path):
        raise RecordError(f"{path} does not exist: give a file of weights.")
    try:
        if _Keras.fits(model):
            model.load_weights(path)
            return
        if path.endswith(".safetensors"):
            state = importlib.import_module("safetensors.torch").load_file(path)
        else:
            torch: Any = importlib.import_module("torch")
            state = torch.load(path, map_location="cpu", weights_only=True)
        model.load_state_dict(state.get("state_dict", state.get("model", state)))
    except Exception as error:
        raise RecordError(f"{path} does not fit the model: {error}") from None


def _recorded(model: Any, inputs: list[Any], options: argparse.Namespace) -> list[str]:
    """Record a model, and say in a sentence where it fails on the inputs."""
    try:
        return record(model, *inputs, out=options.out, train=options.train)
    except RecordError:
        raise
    except Exception as error:
        shown = ", ".join(f"{each.dtype} {list(each.shape)}" for each in inputs)
        raise RecordError(
            f"{options.model} failed on {shown}: {type(error).__name__}: {error}. Give inputs as "
            "it takes them, with the batch."
        ) from None


def main(words: list[str] | None = None) -> int:
    """Record a model from the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="record", description="Record the weights, inputs and module outputs of a model."
    )
    parser.add_argument("model", help="a class, function or model: my_model:Net")
    parser.add_argument(
        "--inputs",
        nargs="+",
        required=True,
        metavar="INPUT",
        help="DTYPE:SHAPE with the batch, such as float32:2,3,32,32 or int64:2,16:0..99; or a file",
    )
    parser.add_argument("--out", default="recording.safetensors", metavar="FILE")
    parser.add_argument("--weights", metavar="FILE", help="a checkpoint to load first")
    parser.add_argument("--train", action="store_true", help="run in training mode")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default 0)")
    options = parser.parse_args(words)
    try:
        inputs = inputs_of(options.inputs, options.seed)
        model = load_model(options.model)
        if options.weights:
            load_weights(model, options.weights)
        notes = _recorded(model, inputs, options)
    except RecordError as error:
        print(f"record: {error}", file=sys.stderr)
        return 2
    for note in notes:
        print(f"note: {note}")
    print(f"Recorded {options.model}: {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
