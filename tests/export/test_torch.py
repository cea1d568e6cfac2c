"""`model.py` of PyTorch: cells with a second bias, and what it lacks."""

from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.export.small_runs import small_run
from triglot.core.errors import TriglotError
from triglot.core.networks.combinators import part_of
from triglot.export.models import model_files, specs_of
from triglot.export.sources import network_source
from triglot.export.styles import LIBRARIES
from triglot.machine.files import write_files
from triglot.training.load import variables_of

torch: Any = pytest.importorskip("torch", reason="the extra torch is not installed")


@pytest.mark.parametrize("backend", ["linen", "torch"])
def test_a_gru_is_pytorchs_own(backend: str, tmp_path: Any) -> None:
    run = small_run("gru", backend)
    write_files(tmp_path / "out", model_files(run, 0, "torch", "Weights."))
    model: dict[str, Any] = {"__file__": str(tmp_path / "out" / "model.py")}
    exec((tmp_path / "out" / "model.py").read_text(), model)
    rng = np.random.default_rng(0)
    for name, spec in specs_of(run).items():
        obs = rng.normal(size=(5, *spec.obs_shape)).astype(np.float32)
        module = model["MODELS"][name]
        assert type(module.cell) is torch.nn.GRUCell
        hidden = rng.normal(size=(5, module.cell.hidden_size)).astype(np.float32)
        found, after = model["apply"](name, obs, {"hidden": hidden})
        network, variables = run.agent.network.parts[name], part_of(variables_of(run, 0), name)
        carry = {"hidden": jnp.asarray(hidden)}
        wanted, carry = network.apply(variables, (jnp.asarray(obs), carry))[0]
        for head in wanted:
            np.testing.assert_allclose(found[head], wanted[head], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(after["hidden"], carry["hidden"], rtol=1e-5, atol=1e-5)


def test_an_activation_that_pytorch_lacks_is_refused() -> None:
    spec = next(iter(specs_of(small_run("continuous")).values()))
    other = replace(spec, torso=replace(spec.layers, activation="squareplus"))
    with pytest.raises(TriglotError, match="torch has no activation 'squareplus'"):
        network_source("actor", other, LIBRARIES["torch"])
