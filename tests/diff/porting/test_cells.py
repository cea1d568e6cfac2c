"""`triglot translate` on files of PyTorch's recurrent cells, which have two biases in each gate."""

from pathlib import Path
from typing import Any

import flax.linen as nn
import flax.serialization
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import skip_missing
from triglot.cli import main as cli

pytestmark = pytest.mark.library_promotion("cells of the libraries broadcast and promote")

SIZE, STEPS = 4, 5  # a GRU's 12 rows could be 4 gates of 3, too


class LSTM(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        zeros = jnp.zeros((obs.shape[0], SIZE))
        for _ in range(2):
            obs = nn.OptimizedLSTMCell(SIZE)((zeros, zeros), obs)[1]
        return nn.Dense(2)(obs)


class GRU(nn.Module):
    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        for _ in range(2):
            obs = nn.GRUCell(SIZE)(jnp.zeros((obs.shape[0], SIZE)), obs)[1]
        return nn.Dense(2)(obs)


class OverTime(nn.Module):
    """Two LSTMs over time, from the last outputs of the second."""

    @nn.compact
    def __call__(self, obs: jax.Array) -> jax.Array:
        features: Any = obs
        for _ in range(2):
            features = nn.RNN(nn.OptimizedLSTMCell(SIZE))(features)
        return nn.Dense(2)(features[:, -1])


LINEN = {"LSTM": LSTM, "GRU": GRU, "OverTime": OverTime}


def in_torch(kind: str) -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            make = getattr(torch.nn, f"{kind}Cell")
            self.first, self.second = make(4, SIZE), make(SIZE, SIZE)
            self.head = torch.nn.Linear(SIZE, 2)

        def forward(self, obs: Any) -> Any:
            for cell in (self.first, self.second):
                obs = cell(obs)[0] if kind == "LSTM" else cell(obs)
            return self.head(obs)

    torch.manual_seed(0)
    return Net()


def over_time() -> Any:
    import torch

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = torch.nn.LSTM(4, SIZE, num_layers=2, batch_first=True)
            self.head = torch.nn.Linear(SIZE, 2)

        def forward(self, obs: Any) -> Any:
            return self.head(self.lstm(obs)[0][:, -1])

    torch.manual_seed(0)
    return Net()


def lstm() -> Any:
    return in_torch("LSTM")


def gru() -> Any:
    return in_torch("GRU")


@pytest.mark.slow
@pytest.mark.parametrize("has_source", [True, False])
@pytest.mark.parametrize("source", [lstm, gru, over_time])
def test_a_state_dict_of_cells_becomes_linens(
    source: Any, has_source: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_missing("torch")
    import torch

    module = source()
    torch.save(module.state_dict(), tmp_path / "w.pt")
    kind = {lstm: "LSTM", gru: "GRU", over_time: "OverTime"}[source]
    shape = (STEPS, 4) if source is over_time else (4,)
    words = ["--network", f"tests.diff.porting.test_cells:{kind}", "--obs-shape", *map(str, shape)]
    if has_source:
        words += ["--source", f"tests.diff.porting.test_cells:{source.__name__}"]
    out = tmp_path / "out.msgpack"
    assert cli.main(["translate", str(tmp_path / "w.pt"), *words, "--out", str(out)]) == 0
    assert ("The function was not checked" in capsys.readouterr().out) != has_source
    restored: Any = flax.serialization.msgpack_restore(out.read_bytes())
    obs = np.random.default_rng(0).normal(size=(3, *shape)).astype(np.float32)
    output: Any = LINEN[kind]().apply(restored, obs)
    expected = module(torch.from_numpy(obs)).detach().numpy()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)
