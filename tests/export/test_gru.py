"""`model.py` of libraries whose GRU has two biases in a gate, of a run whose GRU has one."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from tests.export.small_runs import small_run
from tests.extras import TORCH, skip_missing
from triglot.backends.libraries import find
from triglot.core.networks.combinators import part_of
from triglot.export.models import model_files, specs_of
from triglot.runs.load import variables_of
from triglot.shared.machine.files import write_files

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.library_promotion("Keras's GRU adds arrays of different ranks"),
]


def check_own_cell(library: str, module: Any) -> int:
    """Check that a module has the library's own cell; return its size."""
    if library == "keras":
        import keras

        assert type(module.cell) is keras.layers.GRUCell
        assert np.asarray(module.cell.bias)[1].any()
        return module.cell.units
    import torch

    assert type(module.cell) is torch.nn.GRUCell
    assert module.cell.bias_hh.any()
    return module.cell.hidden_size


@pytest.mark.covering(6)
@pytest.mark.parametrize("backend", ["linen", "keras", *TORCH])
@pytest.mark.parametrize("library", ["keras", "torch"])
def test_a_gru_is_the_librarys_own(library: str, backend: str, tmp_path: Path) -> None:
    skip_missing(library)
    run = small_run("gru", backend)
    write_files(tmp_path / "out", model_files(run, 0, find(library), "Weights."))
    model: dict[str, Any] = {"__file__": str(tmp_path / "out" / "model.py")}
    exec((tmp_path / "out" / "model.py").read_text(), model)
    rng = np.random.default_rng(0)
    for name, spec in specs_of(run).items():
        obs = rng.normal(size=(5, *spec.obs_shape)).astype(np.float32)
        size = check_own_cell(library, model["MODELS"][name])
        hidden = rng.normal(size=(5, size)).astype(np.float32)
        found, after = model["apply"](name, obs, {"hidden": hidden})
        network, variables = run.agent.network.parts[name], part_of(variables_of(run, 0), name)
        carry = {"hidden": jnp.asarray(hidden)}
        wanted, carry = network.apply(variables, (jnp.asarray(obs), carry))[0]
        for head in wanted:
            np.testing.assert_allclose(found[head], wanted[head], rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(after["hidden"], carry["hidden"], rtol=1e-6, atol=1e-6)
