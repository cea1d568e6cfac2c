"""Which libraries each file imports, and what `import triglot` loads."""

import ast
import doctest
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path

import pytest

from tests.project.source import FILES, PACKAGE, PUBLIC, ROOT, imports, module_name, room_of

NETWORK_LIBRARIES = {"haiku", "flax", "equinox", "keras", "torch", "torchax"}
ENVIRONMENT_LIBRARIES = {
    "brax", "craftax", "envpool", "gymnasium", "gymnax", "jumanji", "mujoco_playground", "navix",
    "pgx", "xminigrid",
}  # fmt: skip
OF_OTHER_EXTRAS = {
    "IPython", "h5py", "imageio_ffmpeg", "jax2onnx", "mctx", "onnxruntime", "optuna", "pygame",
    "ray", "tensorboardX", "wandb",
}  # fmt: skip
# The library that a folder of `backends` adapts; `layers` and `zoo` are for all.
OF_FOLDER = {
    **{name: {name} for name in ("haiku", "equinox", "keras")},
    **{name: {"flax"} for name in ("linen", "nnx")},
    "torch": {"torch", "torchax"},
}
# The library that another file adapts, by its room and name.
OWN_LIBRARY = {
    **{("cli", f"network_{name}"): {name} for name in ("haiku", "equinox", "keras")},
    **{("cli", f"network_{name}"): {"flax"} for name in ("linen", "nnx")},
    ("cli", "network_torch"): {"torch"},
    **{("envs", name): {name} for name in ENVIRONMENT_LIBRARIES},
    ("envs", "maze"): {"jumanji"},
    ("envs", "spaces"): {"gymnasium"},
    ("envs", "masks"): {"gymnasium"},
    ("envs", "viewer"): {"brax"},
    ("envs", "playground"): {"mujoco_playground", "brax"},
    ("diff", "files"): {"flax", "torch"},  # reads the files of all
}
ALGORITHMS_MAY_IMPORT = {"jax", "rlax", "optax", "chex"} | {
    "__future__", "collections", "dataclasses", "functools", "math", "typing",
}  # fmt: skip


def libraries(file: Path) -> set[str]:
    """Collect the libraries, other than triglot, that a file imports."""
    return {name.split(".")[0] for name in imports(file)} - {"triglot"}


def allowed_libraries(file: Path) -> set[str]:
    """Return the optional libraries that a file may import: those of its own adapter."""
    if room_of(file) == "backends":
        return OF_FOLDER.get(file.parent.name, set())
    name = file.parent.name if file.stem == "__init__" else file.stem
    return OWN_LIBRARY.get((room_of(file), name), set())


def test_a_library_is_imported_only_by_its_own_adapter() -> None:
    optional = NETWORK_LIBRARIES | ENVIRONMENT_LIBRARIES
    used = {file: (libraries(file) & optional) - allowed_libraries(file) for file in FILES}
    assert {module_name(file): names for file, names in used.items() if names} == {}


IN_ALGORITHMS = [f for f in FILES if room_of(f) == "algorithms" and f.stem != "__init__"]


@pytest.mark.parametrize("file", IN_ALGORITHMS, ids=module_name)
def test_an_algorithm_imports_little(file: Path) -> None:
    assert libraries(file) <= ALGORITHMS_MAY_IMPORT
    ours = {name for name in imports(file) if name.startswith("triglot")}
    parents = {name for name in ours if name.startswith("triglot.algorithms.")}
    assert ours - parents <= {"triglot.rl", "triglot.nn"}


def declared_libraries() -> set[str]:
    """Collect the import names of what the package itself, without extras, depends on."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {canonical(re.split(r"[\[<>=!~ ]", need)[0]) for need in project["dependencies"]}
    return {
        library
        for library, distributions in metadata.packages_distributions().items()
        if declared & {canonical(distribution) for distribution in distributions}
    }


def canonical(distribution: str) -> str:
    """Normalise the name of a distribution (PEP 503)."""
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_what_is_imported_is_declared() -> None:
    optional = NETWORK_LIBRARIES | ENVIRONMENT_LIBRARIES | OF_OTHER_EXTRAS
    declared = optional | sys.stdlib_module_names | declared_libraries()
    undeclared = {module_name(file): libraries(file) - declared for file in FILES}
    assert {module: names for module, names in undeclared.items() if names} == {}


def test_import_triglot_loads_nothing_and_changes_no_setting() -> None:
    program = """
import json, sys, jax
settings, modules = dict(jax.config.values), set(sys.modules)
import triglot
changed = [name for name, value in jax.config.values.items() if settings[name] != value]
loaded = {name.split(".")[0] for name in set(sys.modules) - modules}
print(json.dumps([changed, sorted(loaded - sys.stdlib_module_names)]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == [[], ["triglot"]]


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_is_found_where_its_stub_says(name: str) -> None:
    module = import_module(name)
    assert module.__all__ == list(PUBLIC[name]) and set(module.__all__) <= set(dir(module))
    for own, home in PUBLIC[name].items():
        there = import_module(f"triglot.{home}")
        assert getattr(module, own) is (there if own == home else getattr(there, own))


@pytest.mark.parametrize("name", PUBLIC)
def test_a_stub_lists_all_that_it_imports(name: str) -> None:
    stub = PACKAGE / f"{name.partition('.')[2] or '__init__'}.pyi"
    nodes = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    imported = [alias.name for node in nodes for alias in node.names]
    assert sorted(imported) == sorted(PUBLIC[name])


@pytest.mark.parametrize("name", PUBLIC)
def test_an_unknown_public_name_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'PPPO'"):
        _ = import_module(name).PPPO


@pytest.mark.parametrize("name", ["triglot.rl", "triglot.nn"])
def test_a_namespace_is_made_of_core_alone(name: str) -> None:
    assert {home.split(".")[0] for home in PUBLIC[name].values()} == {"core"}


LONG_DOCTESTS = {
    "triglot.backends.translate",
    "triglot.checks.environment.check",
    "triglot.diff.compare",
}


@pytest.mark.parametrize(
    "file",
    [
        pytest.param(
            file,
            id=module_name(file),
            marks=pytest.mark.slow if module_name(file) in LONG_DOCTESTS else (),
        )
        for file in FILES
        if ">>> " in file.read_text()
    ],
)
def test_doctests(file: Path) -> None:
    if libraries(file) & {"torch", "torchax"}:
        pytest.importorskip("torch", reason="the extra torch is not installed")
    module = import_module(module_name(file))
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    # Running an empty one searches all source files for changes.
    examples = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    assert examples
    for test in examples:
        runner.run(test)
    assert runner.failures == 0


def test_each_module_can_be_imported() -> None:
    for file in FILES:
        if not libraries(file) & {"torch", "torchax"}:  # PyTorch may not be installed
            import_module(module_name(file))
