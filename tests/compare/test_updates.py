"""A difference in the agent's own update is found in its loss, with file and line."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest
from safetensors.numpy import save_file

import triglot
from triglot.algorithms.dqn import DQN
from triglot.algorithms.ppo import PPO
from triglot.algorithms.q_learning import QLearning
from triglot.compare.jobs import weights_file
from triglot.compare.operations import Operations
from triglot.compare.options import CompareOptions
from triglot.compare.rungs import rung_of_arithmetic

from .in_process import OPTIONS, initial_weights


def is_second(agent: Any) -> bool:
    return "haiku" not in agent.network.backend


class OtherTotal(PPO):
    """One library sums the loss in another order; the other parts are equal."""

    def loss(self, variables: Any, batch: Any, key: jax.Array, hyper: Any) -> Any:
        _, rest = super().loss(variables, batch, key, hyper)
        outputs, _ = self.network.apply(variables, batch.obs, key=key, train=True)
        errors = jnp.square(outputs["critic"]["value"] - 0.7 * batch.target)
        if is_second(self):
            return jnp.cumsum(errors)[-1], rest
        return jnp.sum(errors), rest


class OtherEpsilon(PPO):
    """One library normalizes advantages with another epsilon."""

    def loss(self, variables: Any, batch: Any, key: jax.Array, hyper: Any) -> Any:
        spread = batch.advantage.std()
        if is_second(self):
            spread = spread + 1e-3
        scaled = replace(batch, advantage=(batch.advantage - 0.1) / spread)
        return super().loss(variables, scaled, key, hyper)


class OtherTarget(PPO):
    """One library trains the critic on a smaller target, outside of the loss."""

    def _prepare(self, state: Any, trajectory: Any) -> Any:
        prepared = super()._prepare(state, trajectory)
        if is_second(self):
            prepared = replace(prepared, target=0.99 * prepared.target)
        return prepared


class OtherError(DQN):
    """One library halves the temporal-difference error; learning starts after some batches."""

    def loss(self, variables: Any, batch: Any, key: jax.Array) -> Any:
        loss, rest = super().loss(variables, batch, key)
        if is_second(self):
            loss = 0.5 * loss
        return loss, rest


class OtherValue(QLearning):
    """One library takes a smaller next value; the agent learns after every step."""

    def _next_value(self, state: Any, step: Any, next_action: Any) -> jax.Array:
        value = super()._next_value(state, step, next_action)
        if is_second(self):
            value = 0.9 * value
        return value


DQN_CONFIG = {
    "hidden_sizes": [8], "num_envs": 2, "learning_starts": 20, "batch_size": 8, "buffer_size": 64,
}  # fmt: skip
SMALL_PPO = {
    "hidden_sizes": [8], "rollout_length": 16, "num_epochs": 1, "num_minibatches": 1,
    "normalize_advantage": False,
}  # fmt: skip
TABLE = {"num_envs": 2, "rollout_length": 8, "initial_value": 1.3}


def options_of(algorithm: type, config: dict[str, Any], **changes: Any) -> CompareOptions:
    name = algorithm.__name__
    known = {"PPO": "ppo", "DQN": "dqn", "QLearning": "q_learning"}
    text = known.get(name, f"{algorithm.__module__}:{name}")
    return replace(OPTIONS, algorithm=text, config=config, hyper={}, num_seeds=1, **changes)


class Own(nn.Module):
    """A custom network with dropout."""

    @nn.compact
    def __call__(self, obs: jax.Array, train: bool = False) -> Any:
        features = nn.Dropout(0.5, deterministic=not train)(nn.Dense(8)(obs))
        return {"logits": nn.Dense(2)(features), "value": nn.Dense(1)(features)[:, 0]}


def networks(obs_spec: Any, action_spec: Any) -> dict[str, Any]:
    """Build one network twice; the second stands for another library."""
    del action_spec
    network = triglot.from_linen(Own(), obs_spec)
    return {"haiku": replace(network, backend="haiku"), "linen": network}


@pytest.mark.slow
def test_random_draws_of_a_network_are_no_cause(tmp_path: Path) -> None:
    config = {name: value for name, value in SMALL_PPO.items() if name != "hidden_sizes"}
    path = (f"{__name__}:networks",)
    options = options_of(PPO, config, env="gymnax:CartPole-v1", network=path)
    cause, place = search(options, tmp_path)
    assert cause is None and place["operation"] is None
    assert "draws random numbers in training" in place["not_located"]


def find(options: CompareOptions, folder: Path, *, functions_only: bool = False) -> Any:
    """Give the cause and the operation in the updates of the first two libraries."""
    cause, place = search(options, folder, functions_only=functions_only)
    assert "not_located" not in place, place
    return cause, place["operation"]


def search(options: CompareOptions, folder: Path, *, functions_only: bool = False) -> Any:
    """Search the updates of the first two libraries, as a comparison does."""
    save_file(initial_weights(options, options.libraries[0]), weights_file(folder, 0))
    rung = rung_of_arithmetic(options.arithmetic)
    operations = Operations(replace(options, out=folder))
    pair: dict[str, Any] = {
        "backends": list(options.libraries),
        "first_difference": {"update": 1, "leaf": "w"},
        "sentence": "They differ.",
    }
    cause = operations.update_cause(
        options.env, rung, options.libraries, functions_only=functions_only
    )
    compiled = {"name": "compilation", "where": "", "evidence": ""}
    pair["causes"] = [cause or compiled]
    operations.add(options.env, rung, [pair])
    return cause, pair["first_difference"]


def line_of(function: Callable, text: str) -> str:
    """Give `file:line` of the line of a function that has this text."""
    lines, start = inspect.getsourcelines(function)
    (number,) = (i for i, line in enumerate(lines) if text in line)
    return f"{Path(__file__).name}:{start + number}"


# The algorithm, its configuration, the environment, the cause and its part, and the second side's
# line.
PLANTED = {
    "value": (OtherValue, TABLE, "triglot.envs.gridworld:GridWorld", "update", "update",
              line_of(OtherValue._next_value, "0.9 * value")),
    "order of a sum": (OtherTotal, SMALL_PPO, "gymnax:CartPole-v1", "summation_order", "loss",
                       line_of(OtherTotal.loss, "cumsum")),
    "epsilon": (OtherEpsilon, SMALL_PPO, "gymnax:CartPole-v1", "update", "loss",
                line_of(OtherEpsilon.loss, "1e-3")),
    "target": (OtherTarget, SMALL_PPO, "gymnax:CartPole-v1", "update", "update",
               line_of(OtherTarget._prepare, "0.99")),
    "error": (OtherError, DQN_CONFIG, "probe:two-step", "update", "loss",
              line_of(OtherError.loss, "0.5 * loss")),
}  # fmt: skip


@pytest.mark.covering(6)
@pytest.mark.parametrize("planted", PLANTED)
def test_a_difference_in_the_update_has_its_line(planted: str, tmp_path: Path) -> None:
    algorithm, config, env, name, part, line = PLANTED[planted]
    cause, operation = find(options_of(algorithm, config, env=env), tmp_path)
    assert (cause["name"], cause["part"]) == (name, "update"), cause
    assert operation["part"] == part, operation
    assert operation["other"]["source"].endswith(line), operation
    assert line in operation["sentence"] and line in cause["where"]


CLEAN = {
    "ppo": (PPO, SMALL_PPO, "gymnax:CartPole-v1", "linen"),
    "ppo of another rounding": (PPO, SMALL_PPO, "gymnax:CartPole-v1", "equinox"),
    "dqn": (DQN, DQN_CONFIG, "probe:two-step", "equinox"),
}


@pytest.mark.slow
@pytest.mark.parametrize("clean", CLEAN)
def test_equal_updates_have_no_cause(clean: str, tmp_path: Path) -> None:
    algorithm, config, env, other = CLEAN[clean]
    options = options_of(algorithm, config, env=env, backends=("haiku", other))
    # Equinox rounds differently, which has its own cause.
    assert find(options, tmp_path, functions_only=other == "equinox") == (None, None)


@pytest.mark.slow
def test_another_function_is_found_beside_rounding(tmp_path: Path) -> None:
    """Equinox rounds the outputs differently, so that all that follows has other bits."""
    options = options_of(
        OtherEpsilon, SMALL_PPO, env="gymnax:CartPole-v1", backends=("haiku", "equinox")
    )
    cause, operation = find(options, tmp_path, functions_only=True)
    assert cause["name"] == "update"
    assert line_of(OtherEpsilon.loss, "1e-3") in operation["sentence"]
