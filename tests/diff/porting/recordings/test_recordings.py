"""Files that are no recordings, recordings of something else, and the port's own weights."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from triglot import TriglotError, diff_recording
from triglot.cli import main as cli
from triglot.record import Recorder, RecordError, inputs_of, load_model, record, write
from triglot.record import main as record_command


class Linear:
    """Stands for a module: its class has the name and the settings of PyTorch's."""

    eps = 1e-5


Linear.__module__ = "torch.nn"


def write_recording(path: Path, **changes: Any) -> Path:
    """Record two linear layers and a relu, without PyTorch."""
    random = np.random.default_rng(0)
    first, second = random.normal(size=(8, 4)), random.normal(size=(8, 8))
    bias = random.normal(size=8)
    x = random.normal(size=(3, 4)).astype(np.float32)
    recorder = Recorder()
    for name, array in {
        "first.weight": first,
        "second.weight": second,
        "second.bias": bias,
    }.items():
        recorder.weight(name, np.asarray(array, np.float32))
    recorder.weight("first.bias", np.asarray(bias[::-1], np.float32))
    recorder.content.update(library="torch", library_version="2", train=False)
    recorder.content["inputs"] = [recorder.add(x, "inputs/0")]
    model = recorder.begin("", object(), {}, x)
    model["weights"] = []
    hidden = (x @ first.T + bias[::-1]).astype(np.float32)
    y = (np.maximum(hidden, 0) @ second.T + bias).astype(np.float32)
    for name, inputs, result in (("first", x, hidden), ("second", np.maximum(hidden, 0), y)):
        call = recorder.begin(name, Linear(), {"in_features": 4}, inputs)
        call["weights"] = [f"{name}.weight", f"{name}.bias"]
        call["random"] = changes.get("random") == name
        recorder.end(call, result)
    recorder.end(model, y)
    recorder.content["outputs"] = [recorder.add(y, "outputs/0")]
    for name, array in changes.get("arrays", {}).items():
        recorder.arrays[name] = array
    recorder.finish()
    write(str(path), recorder.arrays, recorder.content)
    return path


class Port(eqx.Module):
    first: eqx.nn.Linear
    second: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        one, other = jax.random.split(key)
        self.first = eqx.nn.Linear(4, 8, key=one)
        self.second = eqx.nn.Linear(8, 8, key=other)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.second(jax.nn.relu(self.first(x)))


class Other(nn.Module):
    size: int = 7

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(3)(nn.Dense(self.size)(x))


class Reader(nn.Module):
    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        return nn.Embed(9, 4)(tokens).sum(1)


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return write_recording(tmp_path / "recording.safetensors")


def test_an_equal_port_is_equivalent(recording: Path) -> None:
    report = diff_recording(recording, Port)
    assert report.verdict == "equivalent"
    assert [module.name.rpartition(" ")[2] for module in report.modules] == [
        "first", "second", "second"]  # fmt: skip
    assert json.loads(json.dumps(report.to_json()))["modules"][0]["state"] == "equal"


def write_modules(path: Path, weights: dict[str, Any], *modules: Any) -> Path:
    """Record modules, each given as name, class, settings, input and result, without PyTorch."""
    recorder = Recorder()
    for name, array in weights.items():
        recorder.weight(name, np.asarray(array, np.float32))
    x, y = np.float32(modules[0][3]), np.float32(modules[-1][4])
    recorder.content.update(library="torch", library_version="2", train=False)
    recorder.content["inputs"] = [recorder.add(x, "inputs/0")]
    model = recorder.begin("", object(), {}, x)
    model["weights"] = []
    for name, kind, settings, inputs, result in modules:
        module = type(kind, (), {"__module__": "torch.nn"})()
        call = recorder.begin(name, module, settings, np.float32(inputs))
        call["weights"] = [each for each in weights if each.startswith(f"{name}.")]
        recorder.end(call, np.float32(result))
    recorder.end(model, y)
    recorder.content["outputs"] = [recorder.add(y, "outputs/0")]
    recorder.finish()
    write(str(path), recorder.arrays, recorder.content)
    return path


class Normed(nn.Module):
    relu_first: bool

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        norm = nn.LayerNorm(epsilon=1e-5, name="norm")
        return nn.Dense(4, name="out")(norm(nn.relu(x)) if self.relu_first else nn.relu(norm(x)))


@pytest.mark.covering(2)
@pytest.mark.parametrize("relu_first", [False, True])
def test_modules_in_another_order_are_named(relu_first: bool, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    shapes = {"norm.weight": (8,), "norm.bias": (8,), "out.weight": (4, 8), "out.bias": (4,)}
    weights = {name: random.normal(size=shape) for name, shape in shapes.items()}
    x = random.normal(size=(5, 8))
    scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    normed = scaled * weights["norm.weight"] + weights["norm.bias"]
    y = np.maximum(normed, 0) @ weights["out.weight"].T + weights["out.bias"]
    path = write_modules(
        tmp_path / "normed.safetensors",
        weights,
        ("norm", "LayerNorm", {"normalized_shape": [8], "eps": 1e-5}, x, normed),
        ("act", "ReLU", {}, normed, np.maximum(normed, 0)),
        ("out", "Linear", {"in_features": 8}, np.maximum(normed, 0), y),
    )
    report = diff_recording(path, Normed(relu_first))
    assert [cause.name for cause in report.causes] == ["operation_order"] * relu_first, str(report)
    assert not relu_first or "LayerNorm of norm" in report.causes[0].where


class Flattened(eqx.Module):
    out: eqx.nn.Linear
    columns_first: bool = eqx.field(static=True)

    def __init__(self, key: jax.Array, columns_first: bool) -> None:
        self.out = eqx.nn.Linear(6, 4, key=key)
        self.columns_first = columns_first

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.out((x.T if self.columns_first else x).reshape(-1))


@pytest.mark.parametrize("kind", ["Linear", "Unknown"])
@pytest.mark.parametrize("columns_first", [False, True])
def test_another_order_of_flattened_axes_is_named(
    columns_first: bool, kind: str, tmp_path: Path
) -> None:
    """By the formula of the module that reads them, and by trying where it has none."""
    random = np.random.default_rng(0)
    weights = {"out.weight": random.normal(size=(4, 6)), "out.bias": random.normal(size=4)}
    x = random.normal(size=(5, 2, 3))
    flat = x.reshape(5, 6)
    y = flat @ weights["out.weight"].T + weights["out.bias"]
    path = write_modules(
        tmp_path / "flat.safetensors",
        weights,
        ("flat", "Flatten", {}, x, flat),
        ("out", kind, {"in_features": 6}, flat, y),
    )
    port = functools.partial(Flattened, columns_first=columns_first)
    report = diff_recording(path, port)
    assert [cause.name for cause in report.causes] == ["flatten_order"] * columns_first, str(report)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def text(path: Path) -> None:
    path.write_bytes((9).to_bytes(8, "little") + b"not JSON!")


def checkpoint(path: Path) -> None:
    save_file({"weight": np.zeros(3, np.float32)}, path)


def clouseau(path: Path) -> None:
    save_file({"dense.forward": np.zeros(3, np.float32)}, path, {"0": "dense.forward"})


def newer(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"version": "1"', b'"version": "7"'))


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'\\"calls\\"', b'\\"calms\\"'))


def removed(path: Path) -> None:
    path.unlink()


def not_a_number(path: Path) -> None:
    wrong = np.full(8, np.nan, np.float32)
    write_recording(path, arrays={"weights/second.bias": wrong})


def random(path: Path) -> None:
    write_recording(path, random="first")


FILES: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut off": (truncated, "is damaged or cut off ("),
    "empty": (emptied, "is damaged or cut off ("),
    "another format": (text, "is not a safetensors file, or is damaged or cut off ("),
    "a checkpoint": (checkpoint, "holds arrays such as weight, and is no recording"),
    "clouseau's": (clouseau, "was written by clouseau, which keeps outputs of modules"),
    "of a newer version": (newer, "has version 7 of the recording format"),
    "damaged": (damaged, "is a damaged recording"),
    "missing": (removed, "does not exist"),
    "NaN in weights": (not_a_number, "the weights second.bias are NaN or infinite"),
    "random": (random, "first (Linear) drew random numbers"),
}


@pytest.mark.parametrize(("change", "words"), FILES.values(), ids=FILES)
def test_other_files_are_refused_in_a_sentence(
    change: Callable[[Path], None], words: str, recording: Path
) -> None:
    change(recording)
    with pytest.raises(TriglotError) as caught:
        diff_recording(recording, Port)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("port", "words"),
    [
        pytest.param(Other(), "do not fit 'Other'", id="nothing in common"),
        pytest.param(Reader(), "failed", id="other inputs"),
    ],
)
def test_other_ports_are_refused(port: Any, words: str, recording: Path) -> None:
    with pytest.raises(TriglotError) as caught:
        diff_recording(recording, port)
    assert words in str(caught.value)


def port_weights(recording: Path) -> dict[str, np.ndarray]:
    """Return the recorded weights as the port's own file has them."""
    arrays = load_file(recording)
    return {name[8:]: array for name, array in arrays.items() if name.startswith("weights/")}


CHECKPOINTS: dict[str, tuple[str, Callable[[np.ndarray], Any], str, str]] = {
    "equal": ("first.weight", lambda array: array, "", ""),
    "transposed": ("second.weight", lambda array: array.T, "kernel_layout", "transposed"),
    "gates": (
        "second.weight",
        lambda array: np.concatenate([array[4:], array[:4]]),
        "weights",
        "2 blocks along axis 1",
    ),
    "shuffled": (
        "first.weight", lambda array: array.ravel()[::-1].reshape(array.shape), "weights",
        "the same numbers in another order"),
    "other": ("first.bias", lambda array: array + 0.5, "weights", "differ by up to 0.5"),
    "exchanged": ("first.bias", lambda array: array[::-1], "weights", "the numbers of second"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "change", "cause", "words"), CHECKPOINTS.values(), ids=CHECKPOINTS
)
def test_wrongly_converted_weights_are_named(
    name: str, change: Callable[[np.ndarray], Any], cause: str, words: str, recording: Path
) -> None:
    arrays = port_weights(recording)
    arrays[name] = np.array(change(arrays[name]), order="C")
    path = recording.with_name("own.safetensors")
    save_file(arrays, path)
    report = diff_recording(recording, Port, checkpoint=path)
    assert [each.name for each in report.causes] == [cause] * bool(cause)
    assert report.verdict == ("different" if cause else "equivalent")
    if cause:
        assert words in report.causes[0].evidence
        assert name in report.causes[0].where
        assert "the port computes the recorded outputs" in report.notes[-1]


def test_the_recording_is_no_checkpoint(recording: Path) -> None:
    with pytest.raises(TriglotError, match="is the recording"):
        diff_recording(recording, Port, checkpoint=recording)


@pytest.fixture
def folder(recording: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand beside the recording, with two networks."""
    (recording.parent / "recorded_ports.py").write_text(PORTS)
    monkeypatch.chdir(recording.parent)
    monkeypatch.syspath_prepend(recording.parent)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    return recording.parent


PORTS = """
import flax.linen as nn
import equinox as eqx
import jax

class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(8, name="second")(nn.relu(nn.Dense(8, name="first")(x)))

class Wrong(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(8, name="second")(nn.gelu(nn.Dense(8, name="first")(x)))
"""


def test_the_command_compares_and_writes_json(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["diff", "recording.safetensors", "recorded_ports:Linen"]) == 0
    capsys.readouterr()
    words = ["recording.safetensors", "recorded_ports:Wrong", "--json", "diff.json"]
    assert cli.main(["diff", *words]) == 1
    assert "activation: relu in the recording, gelu" in capsys.readouterr().out
    written = json.loads((folder / "diff.json").read_text())
    assert written["causes"][0]["name"] == "activation"
    assert "different" in {module["state"] for module in written["modules"]}


@pytest.mark.slow
def test_two_networks_are_compared_at_their_checkpoints(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = port_weights(folder / "recording.safetensors")
    weights = {f"params/{n}/kernel": arrays[f"{n}.weight"].T.copy() for n in ("first", "second")}
    weights |= {f"params/{n}/bias": arrays[f"{n}.bias"] for n in ("first", "second")}
    save_file(weights, "one.safetensors")
    weights["params/second/kernel"] = weights["params/second/kernel"].T.copy()
    save_file(weights, "other.safetensors")
    names = ["recorded_ports:Linen", "recorded_ports:Linen", "--obs-shape", "4", "--quick"]
    assert cli.main(["diff", *names, "--checkpoint", "one.safetensors"]) == 0
    assert cli.main(["diff", *names, "--checkpoint", "one.safetensors", "one.safetensors"]) == 0
    capsys.readouterr()
    assert cli.main(["diff", *names, "--checkpoint", "one.safetensors", "other.safetensors"]) == 1
    assert "kernel_layout: the second checkpoint holds it transposed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["float32:2,4", "int64:3:0..5"], ""),
        (["floot:2"], "must have the form"),
        (["float32"], "must have the form"),
        (["missing.npy"], "cannot be read"),
    ],
)
def test_inputs_are_drawn_or_refused(words: list[str], message: str) -> None:
    if message:
        with pytest.raises(RecordError, match=message):
            inputs_of(words, 0)
    else:
        first, second = inputs_of(words, 0)
        assert first.shape == (2, 4) and second.dtype == np.int64 and second.max() <= 5


@pytest.mark.parametrize(
    ("model", "message"),
    [("nowhere:Net", "No module named"), ("math", "module:object"), ("math:nothing", "has no")],
)
def test_models_that_cannot_be_made_are_refused(model: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        load_model(model)


def test_what_is_no_module_is_not_recorded() -> None:
    with pytest.raises(RecordError, match="neither a PyTorch module nor a Keras model"):
        record(object(), np.zeros(3))
    with pytest.raises(RecordError, match="no inputs"):
        record(object())


def test_torch_models_that_fail_on_the_inputs_are_named_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip("torch")
    file = Path(__file__).with_name("original_torch.py")
    assert record_command([f"{file}:normed", "--inputs", "float32:3,5"]) == 2
    printed = capsys.readouterr().err
    assert "normed failed on float32 [3, 5]: RuntimeError" in printed and "Traceback" not in printed
