"""`triglot translate`: real architectures from library to library, and files of every kind."""

import inspect
import pickle
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import flax.serialization
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from safetensors.numpy import load_file, save_file

from tests.diff.porting import in_equinox, in_linen
from tests.extras import TORCH
from triglot.backends.haiku import from_haiku
from triglot.cli import main as cli
from triglot.core.network import Network, Variables
from triglot.core.specs import Box
from triglot.diff.loading import load_network
from triglot.diff.porting.files import read_weights, write_weights
from triglot.diff.porting.names import load_weights, named_arrays

IMAGES, TEXT = Box((32, 32, 3)), Box((12,), "int32", 0, 39)
MODELS = {"resnet": IMAGES, "vit": IMAGES, "gpt": TEXT}
LIBRARIES = {"linen": in_linen, "equinox": in_equinox}
PAIRS = [("linen", "equinox"), ("equinox", "linen")]
if TORCH:
    from tests.diff.porting import in_torch

    LIBRARIES["torch"] = in_torch
    PAIRS += [("torch", "linen"), ("equinox", "torch")]

pytestmark = pytest.mark.library_promotion("attention and batch norms of the libraries mix dtypes")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)


def trained(network: Network, num_updates: int = 2) -> Variables:
    """Move all weights away from constants, and the running statistics from where they start."""
    variables = network.init(jax.random.key(0))
    random = np.random.default_rng(0)

    def noisy(array: jax.Array) -> jax.Array:
        noise = random.standard_normal(array.shape).astype(np.float32)
        return array + 0.1 * noise if jnp.issubdtype(array.dtype, jnp.floating) else array

    variables = Variables(params=jax.tree.map(noisy, variables.params), state=variables.state)
    for step in range(num_updates if jax.tree.leaves(variables.state) else 0):
        images = jax.random.normal(jax.random.key(step), (4, *IMAGES.shape))
        _, state = network.apply(variables, images, train=True)
        variables = Variables(params=variables.params, state=state)
    return variables


def translated(weights: Path, model: str, to: str, *options: str) -> int:
    inputs = ["--inputs", "int32:12:0..39"] if model == "gpt" else ["--obs-shape", "32", "32", "3"]
    network = f"tests.diff.porting.in_{to}:{model}"
    return cli.main(["translate", str(weights), "--network", network, *inputs, *options])


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_becomes_the_other_library_s(
    model: str, one: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = (
        load_network(getattr(LIBRARIES[name], model), MODELS[model]) for name in (one, other)
    )
    variables = trained(source)
    write_weights(tmp_path / "weights.safetensors", named_arrays(variables, source))
    out = str(tmp_path / "out.npz")
    options = ["--source", f"tests.diff.porting.in_{one}:{model}", "--out", out]
    assert translated(tmp_path / "weights.safetensors", model, other, *options) == 0
    printed = capsys.readouterr().out
    assert "The functions agree" in printed and "guessed by " in printed

    moved = load_weights(tmp_path / "out.npz", target)
    key = jax.random.key(1)
    if model == "gpt":
        inputs = jax.random.randint(key, (3, 12), 0, 40)
    else:
        inputs = jax.random.normal(key, (3, *IMAGES.shape))
    expected, outputs = source.apply(variables, inputs)[0], target.apply(moved, inputs)[0]
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)

    # The printed pairs are what `--mapping` takes.
    pairs = printed.partition("--mapping ")[2].splitlines()[0].split()
    options_again = [*options[:-1], str(tmp_path / "again.npz"), "--mapping", *pairs]
    assert translated(tmp_path / "weights.safetensors", model, other, *options_again) == 0
    files = [read_weights(tmp_path / name) for name in ("out.npz", "again.npz")]
    assert all(np.array_equal(files[0][name], files[1][name]) for name in files[0])


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), PAIRS)
@pytest.mark.parametrize("model", MODELS)
def test_without_the_network_that_was_saved(
    model: str, one: str, other: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = load_network(getattr(LIBRARIES[one], model), MODELS[model])
    arrays = named_arrays(trained(source), source)
    for name in arrays:
        if name.endswith("num_batches_tracked") and one == "equinox":  # as after a long training
            arrays[name] = np.array(5000, arrays[name].dtype)
    write_weights(tmp_path / "weights.safetensors", arrays)
    outs = [tmp_path / "without.safetensors", tmp_path / "with.safetensors"]
    options = [["--from", one], ["--source", f"tests.diff.porting.in_{one}:{model}"]]
    for out, more in zip(outs, options, strict=True):
        code = translated(tmp_path / "weights.safetensors", model, other, *more, "--out", str(out))
        assert code == 0
        printed = capsys.readouterr().out
        assert ("The function was not checked" in printed) == (more[0] == "--from")
    first, second = map(load_file, outs)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], rtol=1e-6, err_msg=name)


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="torchax is not installed: triglot[torch]")
def test_a_state_dict_of_pytorch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    from tests.diff.porting import in_torch

    torch.manual_seed(0)
    module = in_torch.ResNet()
    images = torch.randn(4, 3, 32, 32)
    for _ in range(3):
        module(images)
    torch.save(module.state_dict(), tmp_path / "weights.pt")
    out = tmp_path / "out.msgpack"
    assert translated(tmp_path / "weights.pt", "resnet", "linen", "--out", str(out)) == 0
    variables: Any = flax.serialization.msgpack_restore(out.read_bytes())
    image_batch = jnp.asarray(images.permute(0, 2, 3, 1).numpy())
    outputs: Any = in_linen.resnet.apply(variables, image_batch, False)
    expected = module.eval()(images).detach().numpy()
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-5)


NETWORKS = """
import equinox as eqx
import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp

def one(x):
    return hk.nets.MLP([8, 8, 2], activation=jnp.tanh)(x)

class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (8, 8):
            x = jnp.tanh(nn.Dense(width)(x))
        return nn.Dense(2)(x)

class Relu(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (8, 8):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(2)(x)

class Three(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(x)

def other(key):
    return eqx.nn.MLP(4, 2, 8, 2, activation=jnp.tanh, key=key)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a folder with three small networks and the weights of the first."""
    (tmp_path / "ported_networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    network, variables = haiku_mlp()
    write_weights(tmp_path / "w.npz", named_arrays(variables, network))
    return tmp_path


def haiku_mlp() -> tuple[Network, Variables]:
    def one(obs: jax.Array) -> jax.Array:
        return hk.nets.MLP([8, 8, 2], activation=jnp.tanh)(obs)

    network = from_haiku(one, Box((4,)))
    return network, trained(network)


def run(*words: str, network: str = "Linen") -> int:
    arguments = ["--network", f"ported_networks:{network}", "--obs-shape", "4"]
    return cli.main(["translate", *words, *arguments])


@pytest.mark.slow
def test_another_function_is_named_and_located(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("w.npz", "--source", "ported_networks:one", network="Relu") == 1
    printed = capsys.readouterr().out
    assert "The functions differ: outputs of 8 inputs differ by" in printed
    assert "activation" in printed and "ported_networks.py" in printed


class Linen(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        for width in (8, 8):
            obs = jnp.tanh(nn.Dense(width)(obs))
        return nn.Dense(2)(obs)


def kinds_of_files(folder: Path) -> dict[str, Path]:
    """Write the weights of `Linen` as people do, without triglot."""
    params: Any = Linen().init(jax.random.key(0), jnp.zeros((1, 4)))
    paths = {
        name: folder / name for name in ("w.msgpack", "w.pkl", "folder", "w.npz", "w.safetensors")
    }
    paths["w.msgpack"].write_bytes(flax.serialization.to_bytes(params))
    paths["w.pkl"].write_bytes(pickle.dumps(jax.tree.map(np.asarray, params)))
    ocp.PyTreeCheckpointer().save(paths["folder"], params)
    flat = {
        f"{layer}/{name}": np.asarray(array)
        for layer, arrays in params["params"].items()
        for name, array in arrays.items()
    }
    np.savez(paths["w.npz"], allow_pickle=False, **flat)
    save_file(flat, paths["w.safetensors"])
    return paths


@pytest.mark.parametrize("kind", ["w.msgpack", "w.pkl", "folder", "w.npz", "w.safetensors"])
def test_files_of_each_kind(folder: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = kinds_of_files(folder)[kind]
    arguments = ["--source", "ported_networks:Linen", "--trust", "--out", "out.safetensors"]
    assert run(str(path), *arguments, network="other") == 0
    assert "The functions" in capsys.readouterr().out
    with_names = ["--from", "linen", "--trust", "--out", "again.safetensors"]
    assert run(str(path), *with_names, network="other") == 0
    first, second = (load_file(name) for name in ("out.safetensors", "again.safetensors"))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_a_file_of_equinox_needs_the_module_that_was_saved(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = eqx.nn.MLP(4, 2, 8, 2, activation=jnp.tanh, key=jax.random.key(3))
    eqx.tree_serialise_leaves(folder / "w.eqx", module)
    assert run("w.eqx", "--source", "ported_networks:other", "--out", "out.msgpack") == 0
    restored: Any = flax.serialization.msgpack_restore(Path("out.msgpack").read_bytes())
    obs = jnp.linspace(-1.0, 1.0, 8).reshape(2, 4)
    output: Any = Linen().apply(restored, obs)
    np.testing.assert_allclose(output, jax.vmap(module)(obs), rtol=1e-5, atol=1e-6)
    assert run("w.eqx") == 2
    assert "has no names of arrays" in capsys.readouterr().err


def keras_mlp() -> Any:
    import keras

    layers = [keras.layers.Dense(n, activation=a) for n, a in ((8, "tanh"), (8, "tanh"), (2, None))]
    return keras.Sequential(layers)


@pytest.mark.library_promotion("Keras adds arrays of different ranks")
def test_a_file_of_keras_needs_the_model_that_was_saved(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = keras_mlp()
    obs = jnp.linspace(-1.0, 1.0, 8).reshape(2, 4)
    expected = saved(obs)
    saved.save_weights(folder / "w.weights.h5")
    (folder / "my_keras.py").write_text(f"from typing import Any\n\n{inspect.getsource(keras_mlp)}")
    source = ["--source", "my_keras:keras_mlp"]
    assert run("w.weights.h5", *source, "--out", "out.msgpack") == 0
    restored: Any = flax.serialization.msgpack_restore(Path("out.msgpack").read_bytes())
    output: Any = Linen().apply(restored, obs)
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
    assert run("w.weights.h5") == 2
    assert run("w.weights.h5", "--source", "ported_networks:Linen") == 2
    errors = capsys.readouterr().err
    assert "has no names of arrays" in errors and "loaded into a keras.Model" in errors


HOPELESS = {
    "no such file": (["missing.npz", "--from", "haiku"], "missing.npz does not exist"),
    "kind": (["ported_networks.py", "--from", "haiku"], "has the suffix '.py'"),
    "library": (["w.npz"], "any library may have written w.npz: give --from"),
    "unknown library": (["w.npz", "--from", "pytorch"], "pytorch"),
    "plain functions": (["w.npz", "--from", "jax"], "give the network of the file, --source"),
    "pickle": (["w.pkl", "--from", "linen"], "add --trust if you trust its author"),
    "damaged": (["damaged.safetensors", "--from", "haiku"], "cannot be read as .safetensors"),
    "no arrays": (["empty.npz", "--from", "haiku"], "empty.npz holds no arrays"),
    "another library's network": (["w.npz", "--from", "haiku", "--to", "nnx"], "is a network of"),
    "other sizes": (["w.npz", "--from", "haiku", "--network", "Three"], "the architectures differ"),
    "another source": (
        ["w.npz", "--source", "ported_networks:Three"],
        r"lacks 2 of the 2 arrays of 'ported_networks:Three' (params/Dense_0/bias [3], params",
    ),
    "ignored": (["w.npz", "--from", "haiku", "--ignore", "mask*"], "mask* matches no array"),
    "mapping": (["w.npz", "--from", "haiku", "--mapping", "a"], "must have the form NAME=NAME"),
    "mapped": (["w.npz", "--from", "haiku", "--mapping", "a=b"], "no parameter is named 'a'"),
    "out": (["w.npz", "--from", "haiku", "--out", "w.txt"], "expected one of .msgpack, .npz"),
}


@pytest.mark.parametrize("case", HOPELESS)
def test_mistakes_in_a_sentence(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = HOPELESS[case]
    (folder / "w.pkl").write_bytes(pickle.dumps({}))
    (folder / "damaged.safetensors").write_bytes(b"no header")
    np.savez(folder / "empty.npz")
    if "--network" in words:
        *words, _, network = words
        code = run(*words, network=network)
    else:
        code = run(*words)
    error = capsys.readouterr().err
    assert code == 2 and message in error and "Traceback" not in error
    assert not (folder / "w.txt").exists()


def test_what_a_file_has_besides_may_be_left_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = dict(np.load(folder / "w.npz")) | {"mask": np.ones((1, 1, 8, 8), np.float32)}
    np.savez(folder / "more.npz", allow_pickle=False, **arrays)
    assert run("more.npz", "--from", "haiku") == 2
    assert run("more.npz", "--from", "haiku", "--ignore", "mask") == 0
    assert run("more.npz", "--source", "ported_networks:one") == 0
    assert "has no place for them: mask" in capsys.readouterr().out
