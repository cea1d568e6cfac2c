"""`triglot translate --out x.weights.h5`: what Keras's own `load_weights` reads."""

from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from keras import layers

from tests.diff.porting.test_translate_command import trained
from triglot import Network, Variables, from_keras, from_linen
from triglot.cli import main as cli
from triglot.core.specs import Box
from triglot.diff.porting.files import write_weights
from triglot.diff.porting.names import named_arrays

pytestmark = pytest.mark.library_promotion("Keras adds arrays of different ranks")
OBS = Box((4,))
HERE = "tests.diff.porting.test_keras_files"


class Linen(nn.Module):
    """A batch norm whose statistics move, and a GRU whose gates have one bias."""

    @nn.compact
    def __call__(self, obs: jax.Array, train: bool = False) -> jax.Array:
        features = nn.BatchNorm(not train, momentum=0.9, epsilon=1e-3)(nn.Dense(6)(obs))
        features = jnp.tanh(features)
        features = nn.GRUCell(6)(jnp.zeros_like(features), features)[1]
        return nn.Dense(2)(features)


def sequential() -> Any:
    norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-3)
    over_one_step = layers.RNN(layers.GRUCell(6))
    return keras.Sequential(
        [layers.Dense(6), norm, layers.Activation("tanh"), layers.Reshape((1, 6)), over_one_step,
         layers.Dropout(0.5), layers.Dense(2)]
    )  # fmt: skip


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = layers.Dense(6), layers.Dense(2)
        self.norm = layers.BatchNormalization(momentum=0.9, epsilon=1e-3)
        self.cell = layers.GRUCell(6)

    def call(self, obs: Any, training: bool = False) -> Any:
        features = keras.ops.tanh(self.norm(self.first(obs), training=training))
        return self.last(self.cell(features, keras.ops.zeros_like(features))[0])


def functional() -> Any:
    obs = keras.Input((4,))
    features = layers.BatchNormalization(momentum=0.9, epsilon=1e-3)(layers.Dense(6)(obs))
    features = layers.Activation("tanh")(features)
    features = layers.GRUCell(6)(features, keras.ops.zeros_like(features))[0]
    return keras.Model(obs, layers.Dense(2)(features))


subclassed = Subclassed()
MODELS = {"sequential": sequential, "functional": functional, "Subclassed": Subclassed}
MODELS["subclassed"] = Subclassed  # an object in the file, which has its weights already


def saved(path: Path) -> tuple[Network, Variables]:
    network = from_linen(Linen(), OBS)
    variables = trained_on(network)
    write_weights(path, named_arrays(variables, network))
    return network, variables


def trained_on(network: Network) -> Variables:
    """Move the weights, and the statistics."""
    variables = trained(network, num_updates=0)
    for step in range(3):
        obs = 1.0 + 2.0 * jax.random.normal(jax.random.key(step), (8, 4))
        _, state = network.apply(variables, obs, train=True)
        variables = Variables(params=variables.params, state=state)
    return variables


def run(weights: Path, network: str, out: Path, *words: str) -> int:
    options = ["--network", f"{HERE}:{network}", "--obs-shape", "4", "--out", str(out)]
    return cli.main(["translate", str(weights), *options, *words])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_load_weights_reads_what_is_written(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    network, variables = saved(tmp_path / "w.safetensors")
    out = tmp_path / "out.weights.h5"
    source = ["--source", f"{HERE}:Linen"]
    assert run(tmp_path / "w.safetensors", name, out, *source) == 0
    assert "The functions agree" in capsys.readouterr().out
    obs = jax.random.normal(jax.random.key(9), (5, 4))
    model = MODELS[name]()
    model(obs)
    model.load_weights(out)
    expected = network.apply(variables, obs)[0]
    np.testing.assert_allclose(model(obs, training=False), expected, rtol=1e-5, atol=1e-6)

    back = tmp_path / "back.safetensors"
    assert run(out, "Linen", back, "--source", f"{HERE}:{name}") == 0
    second_path = tmp_path / "again.weights.h5"
    assert run(back, name, second_path, *source) == 0
    assert out.read_bytes()[:8] == second_path.read_bytes()[:8]
    model.load_weights(second_path)
    np.testing.assert_allclose(model(obs, training=False), expected, rtol=1e-5, atol=1e-6)


def lifted(obs_spec: Box) -> Network:
    return from_keras(Subclassed, obs_spec)


@pytest.mark.parametrize(
    ("network", "out", "message"),
    [
        ("Linen", "x.weights.h5", "x.weights.h5 is a file of Keras, and"),
        ("Subclassed", "x.h5", "has the suffix '.h5'; expected one of .msgpack, .npz, .pt"),
        ("lifted", "x.weights.h5", "give the model, or a function without arguments"),
    ],
)
def test_mistakes_are_one_sentence(
    network: str, out: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved(tmp_path / "w.safetensors")
    assert run(tmp_path / "w.safetensors", network, tmp_path / out, "--from", "linen") == 2
    error = capsys.readouterr().err
    assert message in error and "Traceback" not in error
    assert not (tmp_path / out).exists()
