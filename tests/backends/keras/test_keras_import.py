"""Keras is imported on JAX or refused, and changes nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.source import ROOT

pytest.importorskip("keras", reason="the extra keras is not installed")


def run(program: str, home: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    names = ("KERAS_BACKEND", "KERAS_HOME", "TF_FORCE_GPU_ALLOW_GROWTH")
    rest = {name: value for name, value in os.environ.items() if name not in names}
    environment = {**rest, "HOME": str(home), **settings}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True
    )


@pytest.mark.slow
def test_an_import_writes_no_file_and_changes_no_setting(tmp_path: Path) -> None:
    program = """
import json, os, jax
settings, variables = dict(jax.config.values), dict(os.environ)
from triglot.backends.keras.importing import import_keras
keras = import_keras()
changed = [name for name, value in jax.config.values.items() if settings[name] != value]
added = sorted(set(os.environ) - set(variables))
print(json.dumps([keras.config.backend(), changed, added]))
"""
    done = run(program, tmp_path)
    assert done.returncode == 0, done.stderr
    # The last one is Keras's own, for TensorFlow on GPUs.
    assert json.loads(done.stdout) == ["jax", [], ["KERAS_BACKEND", "TF_FORCE_GPU_ALLOW_GROWTH"]]
    assert not (tmp_path / ".keras").exists()


@pytest.mark.slow
def test_a_users_settings_are_read_except_the_backend(tmp_path: Path) -> None:
    settings = {"floatx": "float64", "backend": "torch", "image_data_format": "channels_first"}
    folder = tmp_path / ".keras"
    folder.mkdir()
    (folder / "keras.json").write_text(json.dumps({"epsilon": 1e-6, **settings}))
    program = """
import jax
from triglot.backends import build
from triglot.core.networks.architecture import CNN, NetworkSpec, value_head
from triglot.core.specs import Box
spec = NetworkSpec(Box((6, 6, 2)), CNN((3,), (2,), (4,)), (("value", value_head()),))
network = build("keras", {"critic": spec})
import keras
print(keras.config.floatx(), keras.config.backend())
print({str(a.dtype) for a in jax.tree.leaves(network.init(jax.random.key(0)))})
"""
    done = run(program, tmp_path)
    assert done.stdout.split("\n")[:2] == ["float64 jax", "{'float32'}"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", "torch", "numpy", "openvino"])
def test_another_backend_is_one_sentence(backend: str, tmp_path: Path) -> None:
    command = ["triglot", "train", "ppo", "probe:two-step", "--backend", "keras"]
    start = "from triglot.__main__ import main; sys.exit(main())"
    done = run(f"import sys; sys.argv = {command}; {start}", tmp_path, KERAS_BACKEND=backend)
    assert done.returncode == 2
    assert done.stderr.strip() == (
        f"triglot: error: on probe:two-step: KERAS_BACKEND is {backend!r}, and triglot trains "
        "on JAX: set KERAS_BACKEND=jax before Keras is first imported."
    )


@pytest.mark.slow
def test_a_file_that_imports_keras_is_imported_on_jax(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import keras\n\nBACKEND = keras.config.backend()\n")
    program = f"""
import os, sys
os.chdir({str(tmp_path)!r})
from triglot.runs.registry.loading import load
try:
    print(load("network", "mine:BACKEND"))
except Exception as error:
    print(error)
"""
    home = {"KERAS_HOME": str(tmp_path)}
    assert run(program, tmp_path, **home).stdout == "jax\n"
    refused = run(program, tmp_path, KERAS_BACKEND="tensorflow", **home).stdout
    assert (
        "importing mine failed: KERAS_BACKEND is 'tensorflow', and triglot trains on JAX" in refused
    )


@pytest.mark.slow
def test_keras_that_is_imported_on_another_backend_is_one_sentence(tmp_path: Path) -> None:
    program = """
import keras, triglot
try:
    triglot.from_keras(keras.layers.Dense(2), triglot.Box((4,)))
except triglot.TriglotError as error:
    print(error)
"""
    done = run(program, tmp_path, KERAS_BACKEND="numpy", KERAS_HOME=str(tmp_path))
    assert done.stdout.startswith("Keras was imported with the backend 'numpy', and triglot"), done


def test_a_training_on_another_library_does_not_import_keras(tmp_path: Path) -> None:
    program = """
import sys
from triglot.backends import build
from triglot.core.networks.architecture import MLP, NetworkSpec, value_head
from triglot.core.specs import Box
build("linen", {"critic": NetworkSpec(Box((4,)), MLP(), (("value", value_head()),))})
print("keras" in sys.modules)
"""
    assert run(program, tmp_path).stdout.strip() == "False"
