"""The records of the libraries, and a fifth library that an installed package adds."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import pytest

import triglot
from tests.extras import skip_missing
from triglot.backends import build, libraries
from triglot.backends.layers.kinds import DENSE
from triglot.cli import list as listing
from triglot.cli import main as cli
from triglot.compare.compare import compare
from triglot.compare.options import CompareOptions
from triglot.core.errors import MissingExtra, TriglotError
from triglot.core.networks.architecture import MLP, NetworkSpec, policy_head, value_head
from triglot.core.networks.combinators import part_of
from triglot.core.specs import Box, zeros
from triglot.diff.porting.layouts import network_of
from triglot.envs.probes import make
from triglot.runs.load import run_of, variables_of
from triglot.runs.registry.loading import load_networks

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "toy_library"
SPEC = NetworkSpec(Box((4,)), MLP((8,)), (("logits", policy_head(2)), ("value", value_head())))
USER_FILE = """
import math

import toy_nn
from triglot_toy.lifting import from_toy

def network(obs_spec, action_spec):
    hidden = toy_nn.Dense(math.prod(obs_spec.shape), 8)
    heads = {"logits": toy_nn.Dense(8, action_spec.num_values)}
    return from_toy(toy_nn.TorsoAndHeads((hidden,), heads), obs_spec)

module = toy_nn.Dense(4, 2)
"""

Install = Callable[[str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Give a function that installs the toy package with an entry point of the backend `toy`."""
    for folder in (TOY, tmp_path):
        monkeypatch.syspath_prepend(folder)
    # Workers of a comparison are processes of their own.
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (tmp_path, TOY, ROOT))))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "_set_compilation_cache", lambda options: None)
    (tmp_path / "user_file.py").write_text(USER_FILE)

    def write(value: str = "triglot_toy:LIBRARY") -> None:
        info = tmp_path / "triglot_toy-1.5.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: triglot-toy\nVersion: 1.5\n")
        (info / "entry_points.txt").write_text(f"[triglot.backends]\ntoy = {value}\n")

    yield write
    for name in [
        name for name in sys.modules if name.startswith(("triglot_toy", "toy_nn", "user_file"))
    ]:
        del sys.modules[name]


def test_a_fifth_library_is_listed_without_being_imported(install: Install) -> None:
    install("triglot_toy:LIBRARY")
    lines = listing.everything().splitlines()
    (index,) = [index for index, line in enumerate(lines) if line.startswith("  toy ")]
    assert lines[index + 1].strip() == "from triglot-toy 1.5, triglot_toy:LIBRARY"
    assert libraries.names() == [*libraries.LIBRARIES, "toy"]
    assert not [name for name in sys.modules if name.startswith("triglot_toy")]


@pytest.mark.slow
@pytest.mark.parametrize("value", ["triglot_toy:LIBRARY", "triglot_toy:library"])
def test_its_networks_pass_the_check(install: Install, value: str) -> None:
    install(value)
    network = build("toy", {"both": SPEC}).parts["both"]
    assert network.backend == "toy"
    report = triglot.check_network(network, SPEC.obs_spec)
    assert report.passed, report


@pytest.mark.slow
def test_a_users_module_of_it_passes_the_check_command(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("triglot_toy:LIBRARY")
    assert cli.main(["check", "user_file:network"]) == 0, capsys.readouterr().out
    with pytest.raises(TriglotError, match=r"wraps it in triglot_toy\.lifting\.from_toy"):
        load_networks(["user_file:module"], make("two-step"))


@pytest.mark.slow
def test_it_trains_ppo(install: Install, tmp_path: Path) -> None:
    install("triglot_toy:LIBRARY")
    command = "train ppo probe:two-step --backend toy --hidden-sizes 8 --rollout-length 8"
    options = "--total-steps 96 --eval-episodes 0 --out run"
    assert cli.main([*command.split(), *options.split()]) == 0
    assert (tmp_path / "run" / "summary.json").exists()


def test_its_layers_are_translated(install: Install) -> None:
    install("triglot_toy:LIBRARY")
    ours, theirs = build("toy", {"both": SPEC}), build("haiku", {"both": SPEC})
    codec = ours.require_codec("its layers are not known")
    assert {leaf.layer for leaf in codec.leaves} == {DENSE}
    variables, inputs = ours.init(jax.random.key(0)), jnp.ones((3, 4))
    moved = triglot.translate(variables, ours, theirs)
    chex.assert_trees_all_close(
        ours.apply(variables, inputs)[0], theirs.apply(moved, inputs)[0], rtol=1e-5
    )


@pytest.mark.slow
def test_a_run_is_exported_to_it(install: Install, tmp_path: Path) -> None:
    install("triglot_toy:LIBRARY")
    command = "train ppo probe:two-step --hidden-sizes 8 --rollout-length 8 --total-steps 96"
    assert cli.main([*command.split(), *["--eval-episodes", "0", "--out", "run"]]) == 0
    assert cli.main(["export", "run", "--format", "toy", "--out", "plain"]) == 0
    spec = importlib.util.spec_from_file_location("model", tmp_path / "plain" / "model.py")
    assert spec is not None and spec.loader is not None
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    run = run_of(tmp_path / "run")
    obs = zeros(run.env.obs_spec, 2)
    outputs = run.agent.network.parts["actor"].apply(part_of(variables_of(run, 0), "actor"), obs)[0]
    chex.assert_trees_all_close(model.apply("actor", obs), outputs, rtol=1e-5)


@pytest.mark.slow
def test_it_is_compared_with_linen_and_equal(install: Install, tmp_path: Path) -> None:
    install("triglot_toy:LIBRARY")
    result = compare(
        CompareOptions(
            algorithm="ppo",
            env="probe:two-step",
            backends=("linen", "toy"),
            num_seeds=1,
            seed=0,
            total_steps=96,
            out=tmp_path / "comparison",
            config={"hidden_sizes": [8], "rollout_length": 8, "num_minibatches": 1},
            eval_episodes=4,
            repetitions=0,
        )
    )
    assert result["identity"]["identical"] is True
    assert result["backends"]["toy"]["import_library_seconds"] > 0
    assert "Toy NN" in (tmp_path / "comparison" / "report.html").read_text()


@pytest.mark.parametrize(
    "value, says",
    [
        ("triglot_toy:nowhere", "backend 'toy' of triglot-toy 1.5 .* cannot be loaded"),
        ("triglot_toy:__name__", "must be a .*Library with name='toy'.*got 'triglot_toy'"),
        ("user_file:network", "failed when it was called: TypeError"),
    ],
)
def test_an_invalid_record_is_reported_with_its_package(
    install: Install, value: str, says: str
) -> None:
    install(value)
    with pytest.raises(TriglotError, match=says):
        build("toy", {"both": SPEC})
    assert libraries.find_by_class(int) is None
    assert libraries.title("toy") == "toy"


def test_the_record_and_the_entry_point_have_one_name(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("triglot_toy:LIBRARY")
    record = libraries.find("toy")
    monkeypatch.setattr("triglot_toy.LIBRARY", replace(record, name="other"))
    with pytest.raises(TriglotError, match=r"Library with name='toy'.*name='other'"):
        libraries.find("toy")


@pytest.mark.parametrize(
    "folder, says",
    [
        ("nowhere", "the folder nowhere of backend 'toy' failed: .*No module named"),
        ("user_folder", "user_folder of backend .toy. failed: .*No module named 'nothing'"),
        ("triglot.core", r"no module triglot.core.zoo, which builds networks from"),
        ("unfinished", r"unfinished.zoo of backend 'toy' has no zoo, which builds networks from"),
    ],
)
def test_an_invalid_folder_is_reported(
    install: Install, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, says: str
) -> None:
    install("triglot_toy:LIBRARY")
    for name, text in (("user_folder", "import nothing"), ("unfinished", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
        (tmp_path / name / "zoo.py").write_text(text)
    monkeypatch.setattr("triglot_toy.LIBRARY", replace(libraries.find("toy"), folder=folder))
    with pytest.raises(TriglotError, match=says):
        build("toy", {"both": SPEC})


def test_each_module_of_a_folder_may_be_missing(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("triglot_toy:LIBRARY")
    only_zoo = replace(libraries.find("toy"), folder="triglot.backends.table")
    monkeypatch.setattr("triglot_toy.LIBRARY", only_zoo)
    with pytest.raises(TriglotError, match=r"no module .*table\.lifting, which turns a user's mod"):
        libraries.find("toy").load_lift()
    with pytest.raises(
        TriglotError, match=r"no module .*table\.source, which writes a plain modul"
    ):
        libraries.find("toy").load_style()
    assert not libraries.find("toy").storage.layers
    with pytest.raises(TriglotError, match="no layouts of its layers are known"):
        network_of({}, "toy", build("linen", {"both": SPEC}), "file")


def test_a_zoo_must_return_a_network(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install("triglot_toy:LIBRARY")
    libraries.find("toy").load_zoo()
    monkeypatch.setattr("triglot_toy.zoo.zoo", lambda spec, name: None)
    with pytest.raises(TriglotError, match="must return a Network; got a NoneType"):
        build("toy", {"both": SPEC})


def test_an_unknown_backend_is_reported_with_the_installed_ones(install: Install) -> None:
    install("triglot_toy:LIBRARY")
    with pytest.raises(TriglotError, match=r"did you mean 'toy'\? Choices: .*linen.*toy"):
        build("tooy", {"both": SPEC})


def test_a_missing_library_is_reported_with_its_install_command(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("triglot_toy:LIBRARY")
    toy = libraries.find("toy")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"needs toy-nn, .* run `pip install toy-nn`"):
        toy.require()
    with pytest.raises(MissingExtra, match=r"needs dm-haiku, .*'triglot\[haiku\]'"):
        libraries.find("haiku").require()


def test_a_library_that_pip_does_not_install_has_no_install_command(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("triglot_toy:LIBRARY")
    private = replace(libraries.find("toy"), distribution=None, module="company.networks")
    assert private.install_command is None
    with pytest.raises(MissingExtra) as refused:
        private.require()
    assert "company.networks" in str(refused.value) and "pip" not in str(refused.value)


def test_the_list_shows_how_each_library_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    outside = replace(libraries.find("haiku"), name="new", distribution="new-nn", extra=None)
    monkeypatch.setitem(libraries.LIBRARIES, "new", outside)
    assert "needs new-nn: pip install new-nn\n" in listing.everything()


def test_a_function_that_triglot_does_not_export_is_named_by_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert libraries.find("haiku").lift_path == "triglot.from_haiku"
    new = replace(libraries.find("haiku"), name="new", folder="triglot.backends.new")
    for lift in ("from_new", "from_haiku"):
        outside = replace(new, folder="new_nn", lift=lift)
        assert outside.lift_path == f"new_nn.lifting.{lift}"
    monkeypatch.setitem(libraries.LIBRARIES, "new", replace(new, lift="from_new"))
    assert libraries.find("new").lift_path == "triglot.backends.new.lifting.from_new"


def test_a_refusal_names_the_part_that_a_library_lacks(install: Install) -> None:
    install("triglot_toy:LIBRARY")
    normalized = replace(SPEC, torso=MLP((8,), normalization="layer"))
    for backend, spec, part in (("toy", normalized, "normalization"), ("table", SPEC, "MLP")):
        with pytest.raises(TriglotError, match=part) as refused:
            build(backend, {"both": spec})
        assert "NetworkSpec" not in str(refused.value) and len(str(refused.value)) < 200


@pytest.mark.parametrize("name", [n for n, lib in libraries.LIBRARIES.items() if lib.distribution])
def test_a_built_in_record_is_true_of_its_library(name: str) -> None:
    skip_missing(name)
    library = libraries.find(name)
    assert library.installed
    assert hasattr(triglot, str(library.lift))
    module = importlib.import_module(library.module)
    base = module.Layer if name == "keras" else module.Module
    assert libraries.find_by_class(type("Mine", (base,), {})) is library


def test_plain_jax_needs_no_library_and_has_no_classes() -> None:
    plain = libraries.find("jax")
    plain.require()
    assert (plain.title, plain.lift_path) == ("Plain JAX", "triglot.from_functions")
    assert libraries.find_by_class(jax.tree_util.Partial) is None
