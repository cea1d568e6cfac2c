"""The first operation that differs is found in the libraries' programs, with file and line."""

import inspect
import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
from safetensors.numpy import save_file

import triglot
from triglot.compare import traced
from triglot.compare.jobs import weights_file
from triglot.compare.operations import Operations, add_operations, add_places
from triglot.compare.options import CompareOptions
from triglot.compare.programs import Program, difference, program_text
from triglot.compare.rungs import rung_named, rung_of_arithmetic
from triglot.compare.search import PARTS
from triglot.compare.training.networks import build_agent

from .in_process import OPTIONS, initial_weights


def a_pair(*backends: str, cause: str, part: str = "outputs") -> dict[str, Any]:
    """Make as much of a pair as is read."""
    return {
        "backends": list(backends),
        "causes": [{"name": cause, "where": "the program", "evidence": "a", "part": part}],
        "first_difference": {"update": 1, "leaf": "w"},
        "sentence": "They differ.",
    }


def with_weights(options: CompareOptions, folder: Path) -> CompareOptions:
    """Write the first library's weights, and return the options with their folder."""
    save_file(initial_weights(options, options.libraries[0]), weights_file(folder, 0))
    return replace(options, out=folder)


def locate(options: CompareOptions, folder: Path, pair: dict[str, Any], programs: Any = ()) -> None:
    """Locate the difference of one pair on the rung that is judged."""
    operations = Operations(with_weights(options, folder))
    operations.add(options.env, rung_of_arithmetic(options.arithmetic), [pair], programs)


@pytest.mark.slow
def test_a_rounding_difference_has_a_place(tmp_path: Path) -> None:
    options = replace(OPTIONS, backends=("haiku", "equinox"), num_seeds=1)
    pair = a_pair("haiku", "equinox", cause="summation_order")
    locate(options, tmp_path, pair)
    operation = pair["first_difference"]["operation"]
    assert operation["one"]["source"].startswith("haiku/")
    assert operation["other"]["source"].startswith("equinox/")
    assert 0 < operation["max_abs"] < 1e-6
    assert len(pair["causes"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("cause", ["seed", "weights", "compilation"])
def test_a_cause_outside_of_the_update_has_no_operation(cause: str, tmp_path: Path) -> None:
    pair = a_pair("haiku", "linen", cause=cause)
    options = replace(OPTIONS, num_seeds=1)
    locate(options, tmp_path, pair)
    assert pair["first_difference"]["operation"] is None


def half_gradients(agent: Any) -> Any:
    """Halve the gradients, not the outputs."""

    def changed(part: Any) -> Any:
        def apply(variables: Any, inputs: Any, **options: Any) -> Any:
            outputs, state = part.apply(variables, inputs, **options)
            return jax.tree.map(
                lambda out: jax.lax.stop_gradient(out / 2) + out / 2, outputs
            ), state

        return replace(part, apply=apply)

    parts = {name: changed(part) for name, part in agent.network.parts.items()}
    return replace(agent, network=replace(agent.network, parts=parts))


def larger_epsilon(agent: Any) -> Any:
    """Use Adam with another epsilon, which no hyperparameter shows."""

    def optimizer(hyper: Any) -> optax.GradientTransformation:
        clip = optax.clip_by_global_norm(hyper.max_grad_norm)
        return optax.chain(clip, optax.adam(hyper.learning_rate, eps=1e-3))

    return replace(agent, optimizer=optimizer)


# The second side's change and arithmetic, the cause and its part, and the operations.
PLANTED = {
    "leaf order": (lambda agent: agent, "leaf_order", "leaf_order", "optimizer",
                   ("add in optax/tree_utils/", "add in optax/tree_utils/")),
    "gradient": (half_gradients, "weights", "gradient", "gradients",
                 ("nothing", "div in tests/compare/test_operations.py:")),
    "epsilon": (larger_epsilon, "weights", "optimizer", "optimizer",
                ("add in optax/", "add in optax/")),
}  # fmt: skip


@pytest.mark.covering(3)
@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_of_the_update_has_a_place(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sides are Equinox, which orders weight before bias; the second has the defect."""
    change, rung, cause, part, places = PLANTED[planted]

    def build(options: CompareOptions, env: Any, backend: str, shared: Any) -> Any:
        if backend == "haiku":
            return build_agent(options, env, "equinox", shared)
        return change(build_agent(options, env, "equinox", rung_named(rung)))

    config = {"hidden_sizes": [32, 32]}  # a norm of many entries
    options = replace(OPTIONS, backends=("haiku", "linen"), num_seeds=1, config=config)
    monkeypatch.setattr("triglot.compare.training.networks.build_agent", build)
    pair = a_pair("haiku", "linen", cause=cause, part=part)
    locate(options, tmp_path, pair)
    operation = pair["first_difference"]["operation"]
    assert operation["part"] == part and not operation["compiled_only"]
    assert operation["max_abs"] > 0
    for side, place in zip(("one", "other"), places, strict=True):
        found = operation[side]
        shown = f"{found['name']} in {found['source']}" if found else "nothing"
        assert shown.startswith(place), operation
    verdict = add_places({"level": "equivalent", "sentence": f"Well. {pair['sentence']}"}, [pair])
    assert f"They differ. {PARTS[part]} at " in verdict["sentence"]


def program(function: Callable, *args: Any) -> Program:
    return Program(program_text(jax.jit(function).lower(*args).compile()))


def test_the_first_operation_explains_what_only_the_compiled_training_has(tmp_path: Path) -> None:
    x = jnp.arange(24.0).reshape(2, 3, 4)
    compared = difference(
        program(lambda x: jnp.sum(jnp.exp(x), axis=2), x),
        program(lambda x: jnp.sum(jnp.exp(x), axis=(1, 2)), x),
    )
    pair = a_pair("haiku", "linen", cause="compilation")
    options = replace(OPTIONS, num_seeds=1)
    locate(options, tmp_path, pair, [{"backends": ["haiku", "linen"], **compared}])
    operation, (cause,) = pair["first_difference"]["operation"], pair["causes"]
    assert operation["compiled_only"] and operation["part"] == "program"
    assert operation["one"]["name"] == operation["other"]["name"] == "reduce"
    test = test_the_first_operation_explains_what_only_the_compiled_training_has
    line = inspect.getsourcelines(test)[1]
    assert operation["one"]["source"].endswith(f"{Path(__file__).name}:{line + 3}")
    assert operation["other"]["source"].endswith(f"{Path(__file__).name}:{line + 4}")
    assert operation["one"]["source"] in cause["where"]
    assert "Haiku computes f32[2,3]" in cause["evidence"]
    assert "dimensions={1,2}" in cause["evidence"]
    assert operation["other"]["source"] in operation["sentence"]


def test_a_search_that_fails_leaves_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(traced, "MAX_PARAMS", 10)
    pair = a_pair("haiku", "linen", cause="leaf_order", part="optimizer")
    options = replace(OPTIONS, num_seeds=1)
    locate(options, tmp_path, pair)
    assert pair["first_difference"]["operation"] is None
    assert "parameters, and operations" in pair["first_difference"]["not_located"]


class Own(nn.Module):
    """A custom network with a choice of activation."""

    activation: Any

    @nn.compact
    def __call__(self, obs: jax.Array) -> Any:
        features = self.activation(nn.Dense(8)(obs))
        return {"logits": nn.Dense(2)(features), "value": nn.Dense(1)(features)[:, 0]}


def networks(obs_spec: Any, action_spec: Any) -> dict[str, Any]:
    """Build two networks with different activations; the second stands for another library."""
    del action_spec
    tanh, relu = Own(jnp.tanh), Own(jax.nn.relu)
    return {
        "linen": triglot.from_linen(tanh, obs_spec),
        "haiku": replace(triglot.from_linen(relu, obs_spec), backend="haiku"),
    }


@pytest.mark.slow
def test_the_cause_in_custom_networks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = types.ModuleType("my_networks")
    module.networks = networks
    monkeypatch.setitem(sys.modules, "my_networks", module)
    config = {"rollout_length": 8, "num_epochs": 1, "num_minibatches": 1}
    options = replace(
        OPTIONS,
        backends=("linen", "haiku"),
        network=("my_networks:networks",),
        num_seeds=1,
        config=config,
    )
    pair = a_pair("linen", "haiku", cause="network")
    locate(options, tmp_path, pair)
    assert [cause["name"] for cause in pair["causes"]] == ["network", "activation"]
    assert Path(__file__).name in pair["first_difference"]["operation"]["one"]["source"]


@pytest.mark.slow
def test_every_environment_and_rung_has_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = ("probe:two-step", "probe:obs-reward")
    options = replace(
        OPTIONS, env=others[0], envs=others[1:], backends=("haiku", "equinox"), num_seeds=1
    )
    options = with_weights(options, tmp_path)
    save_file(initial_weights(options, "haiku", others[1]), weights_file(tmp_path, 1))
    pairs = {env: a_pair("haiku", "equinox", cause="summation_order") for env in others}
    ladder = {
        name: a_pair("haiku", "equinox", cause="summation_order", part="gradients")
        for name in ("weights", "leaf_order")
    }
    result: dict[str, Any] = {
        "environments": {env: {"pairs": [pair]} for env, pair in pairs.items()},
        "ladder": [
            {"rung": "defaults", "run": False, "pairs": None},
            *({"rung": name, "run": True, "pairs": [pair]} for name, pair in ladder.items()),
        ],
        "programs": {"pairs": []},
        "verdict": {"level": "equivalent", "sentence": "Well. They differ."},
    }
    operations = Operations(options)
    add_operations(operations, result, others)
    for pair in (*pairs.values(), *ladder.values()):
        assert pair["first_difference"]["operation"]["other"]["source"].startswith("equinox/")
        assert pair["sentence"].startswith("They differ. The ")
    # What goes beyond the judged rung in the first environment has a limit of time.
    monkeypatch.setattr("triglot.compare.operations.MAX_SECONDS", 0.0)
    late = a_pair("haiku", "equinox", cause="leaf_order", part="optimizer")
    operations.add(options.env, rung_named("canonical"), [late])
    assert late["first_difference"]["operation"] is None
    assert "are located for 0 s in all" in late["first_difference"]["not_located"]
