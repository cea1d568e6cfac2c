"""`model.py` of each library, run where triglot cannot be imported: its outputs are the run's."""

import ast
import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.export.alone import run_alone
from tests.export.small_runs import seed_of, small_run
from triglot.backends.libraries import formats
from triglot.core.agent import PolicyInput
from triglot.core.errors import TriglotError
from triglot.core.networks.architecture import MLP, NetworkSpec, value_head
from triglot.core.networks.combinators import part_of
from triglot.core.specs import Box, sample
from triglot.export.models import model_files, specs_of, without_act
from triglot.export.sources import written
from triglot.runs.load import named_weights, safetensors_files, variables_of
from triglot.shared.machine.files import write_files

pytestmark = pytest.mark.packaging

# A run of each kind; `lstm` comes from another library than it goes to.
FROM = {
    "continuous": "linen",
    "clipped": "linen",
    "multi": "nnx",
    "images": "equinox",
    "tiles": "linen",
    "lstm": "haiku",
    "dueling": "nnx",
    "twins": "linen",
    "logits": "equinox",
    "quantiles": "haiku",
    "atoms": "nnx",
    "deterministic": "linen",
    "sequences": "equinox",
    "extended": "nnx",
    "table": "table",
}
SCRIPT = """
import importlib.util, sys
import numpy as np
RECURRENT = "lstm", "sequences"
for kind in sys.argv[2].split(","):
    folder = f"{sys.argv[1]}/{kind}"
    spec = importlib.util.spec_from_file_location(kind, f"{folder}/model.py")
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    given = np.load(f"{folder}/inputs.npz")
    obs = given["obs"]
    read = model.normalize(obs) if hasattr(model, "normalize") else obs
    results = {}
    for name in model.NETWORKS:
        reads_action = name.startswith("critic_") and kind != "logits"
        inputs = [read, given["action"]] if reads_action else [read]
        if kind in RECURRENT:
            inputs.append({name: given[name] for name in ("hidden", "cell")})
        outputs = model.apply(name, *inputs)
        outputs, carry = outputs if kind in RECURRENT else (outputs, {})
        results |= {f"{name}/{head}": array for head, array in {**outputs, **carry}.items()}
    more = [inputs[-1]] if kind in RECURRENT else []
    action = model.act(obs, *more)
    np.savez(f"{folder}/outputs.npz", action=action[0] if more else action, **results)
"""
# What each model is said to need.
NEEDED = {
    "haiku": ("dm-haiku", "jax"),  # which leaves the choice of jaxlib to its users
    "flax": ("flax",),
    "nnx": ("flax",),
    "equinox": ("equinox",),
    "keras": ("keras", "jax"),  # one of its backends
    "torch": ("torch", "safetensors", "numpy"),
}
NUM = 5
RECURRENT = "lstm", "sequences"


@functools.cache
def inputs_of(kind: str) -> dict[str, np.ndarray]:
    run, rng = small_run(kind, FROM[kind]), np.random.default_rng(1)
    keys = jax.random.split(jax.random.key(0), NUM)
    carry = {name: rng.normal(size=(NUM, 3)).astype(np.float32) for name in ("hidden", "cell")}
    obs = np.asarray(jax.vmap(lambda key: sample(run.env.obs_spec, key))(keys))
    return {"obs": obs, "action": rng.uniform(-1, 1, (NUM, 1)).astype(np.float32), **carry}


@functools.cache
def expected(kind: str) -> dict[str, Any]:
    """Apply the run's own networks."""
    given = {name: jnp.asarray(array) for name, array in inputs_of(kind).items()}
    run = small_run(kind, FROM[kind])
    state, variables = seed_of(run, 1), variables_of(run, 1)
    learned = getattr(state, "agent", state)  # an extended agent holds another one's state
    stats = getattr(learned, "obs_stats", None) or getattr(
        getattr(learned, "normalizer", None), "obs_stats", None
    )
    obs = given["obs"] if stats is None else stats.normalize(given["obs"])
    carry = {name: given[name] for name in ("hidden", "cell")}
    whole: Any = {name: carry for name in run.agent.network.parts} if kind in RECURRENT else ()
    inputs = PolicyInput(obs=given["obs"], first=jnp.zeros(NUM, bool))
    act = jax.jit(lambda c: run.agent.act(state, c, inputs, jax.random.key(0), explore=False))
    found: dict[str, Any] = {"action": act(whole).action}
    for name, spec in specs_of(run).items():
        network, own = run.agent.network.parts[name], part_of(variables, name)
        seen: Any = (obs, given["action"]) if len(spec.inputs) > 1 else obs
        outputs, _ = jax.jit(network.apply)(own, (obs, carry) if kind in RECURRENT else seen)
        outputs, after = outputs if kind in RECURRENT else (outputs, {})
        for head, array in {**outputs, **after}.items():
            if spec.ensemble_size > 1:
                found |= {f"{name}_{i}/{head}": one for i, one in enumerate(array)}
            else:
                found[f"{name}/{head}"] = array
    return found


@pytest.mark.covering(6)
@pytest.mark.parametrize("library", NEEDED)
def test_its_outputs_are_the_runs_without_triglot(library: str, tmp_path: Path) -> None:
    if library == "torch":
        pytest.importorskip("torch", reason="the extra torch is not installed")
    for kind, backend in FROM.items():
        run = small_run(kind, backend)
        files = model_files(run, 1, formats()[library], "Weights.")
        assert list(files) == [formats()[library].load_style().file, "model.py"]
        write_files(tmp_path / kind, files)
        np.savez(tmp_path / kind / "inputs.npz", **inputs_of(kind))  # pyright: ignore
    run_alone(SCRIPT, tmp_path, NEEDED[library], str(tmp_path), ",".join(FROM))
    for kind in FROM:
        found = dict(np.load(tmp_path / kind / "outputs.npz"))
        wanted = expected(kind)
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            message = f"{library} {kind} {name}"
            same_shape = found[name].reshape(array.shape)  # a head with atoms is flat in `model.py`
            np.testing.assert_allclose(same_shape, array, rtol=2e-5, atol=2e-6, err_msg=message)


@pytest.mark.parametrize(
    "library, backend, says",
    [
        ("nnx", "linen", "NNX's GRUCell has no bias inside the product with the reset gate"),
        ("haiku", "linen", "They compute different functions, so no weights make them equal"),
    ],
)
def test_a_cell_that_a_library_lacks_is_refused(library: str, backend: str, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        model_files(small_run("gru", backend), 0, formats()[library], "Weights.")


def test_files_without_act_say_so_and_what_to_export_instead(tmp_path: Path) -> None:
    write_files(tmp_path, model_files(small_run("drawn"), 0, formats()["flax"], "Weights."))
    text = (tmp_path / "model.py").read_text()
    assert "def act(" not in text
    said = " ".join((ast.get_docstring(ast.parse(text)) or "").split())
    assert without_act(small_run("drawn")) in said and "stablehlo" in said
    assert without_act(small_run("extended")) == ""


def test_bytes_with_bounds_of_each_element_are_refused() -> None:
    spec = Box((2,), "uint8", (0, 1), (4, 5))
    heads = (("value", value_head()),)
    with pytest.raises(TriglotError, match="the same bounds"):
        written(NetworkSpec(spec, MLP((3,)), heads), formats()["flax"])


def test_safetensors_hold_all_weights_by_canonical_name(tmp_path: Path) -> None:
    from safetensors import safe_open

    run = small_run("twins", "equinox", "native")
    write_files(tmp_path, safetensors_files(run, 1, {"seed": "1"}))
    named = named_weights(run, 1)
    with safe_open(tmp_path / "weights.safetensors", "np") as file:
        assert file.metadata() == {"seed": "1"}
        names = set(file.keys())
        assert names == {*named, "observation/mean", "observation/variance"}
        for name, array in named.items():
            np.testing.assert_array_equal(file.get_tensor(name), array)
        mean = run.agent_states.obs_stats.mean[1]
        np.testing.assert_array_equal(file.get_tensor("observation/mean"), mean)
    assert named["critic/torso/0/kernel"].shape == (2, 2, 5)  # twins, [in, out]
    assert named["temperature/log"].shape == ()
