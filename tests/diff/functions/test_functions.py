"""Functions of a batch are lifted, shipped losses are references, and mistakes are explained."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.extras import TORCH
from triglot import Box, TriglotError, assert_same_function, diff_networks
from triglot.cli.main import main
from triglot.diff.functions.algorithms import load_reference
from triglot.diff.functions.arguments import arguments_of, parse_arguments


def squared(value: jax.Array, target: jax.Array) -> jax.Array:
    return 0.5 * jnp.mean((value - target) ** 2)


def of_record(batch: Any) -> jax.Array:
    return jnp.mean((batch.value - batch["target"]) ** 2) / 2


INPUTS = {"value": "param:32", "target": "return:32"}


def test_a_record_gets_all_inputs() -> None:
    report = assert_same_function(squared, of_record, INPUTS, level="standard")
    assert any(each.quantity.name == "gradients" for each in report.measurements)


@pytest.mark.slow
def test_names_choose_the_inputs_and_numbers_are_not_traced() -> None:
    def scaled(target: jax.Array, value: jax.Array, scale: float) -> jax.Array:
        assert isinstance(scale, float)
        return scale * jnp.mean((value - target) ** 2)

    assert_same_function(squared, scaled, {**INPUTS, "scale": 0.5})
    report = diff_networks(squared, scaled, {**INPUTS, "scale": 1.0}, level="quick")
    assert [cause.name for cause in report.causes] == ["constant"]


def test_a_recorded_batch_is_the_first(tmp_path: Path) -> None:
    value, target = np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    np.savez(tmp_path / "batch.npz", value=value, target=target)
    arguments = parse_arguments((str(tmp_path / "batch.npz"),))
    batch = arguments.draw(3, jax.random.key(0))
    assert np.array_equal(batch["value"][0], value)
    assert set(np.unique(batch["value"][1:])) <= set(value.tolist())
    assert_same_function(squared, of_record, {"value": value, "target": target})


@pytest.mark.parametrize(
    "texts", [("value:32", "value:32"), ("a=nothing:32",), ("missing.npz",), ("value=value:y",)]
)
def test_wrong_inputs_are_refused(texts: tuple[str, ...]) -> None:
    with pytest.raises(TriglotError):
        parse_arguments(texts)


def test_inputs_that_do_not_fit_are_refused() -> None:
    with pytest.raises(TriglotError, match="name an input for"):
        diff_networks(squared, squared, {"value": Box((4,)), "a": 1.0, "b": 2.0})

    def of_params(params: Any, obs: jax.Array) -> jax.Array:
        return jnp.mean(obs @ params)

    with pytest.raises(TriglotError, match="give a pair"):
        diff_networks(of_params, of_params, {"obs": Box((4, 2))})
    with pytest.raises(TriglotError):
        arguments_of({"a": object()})
    with pytest.raises(TriglotError, match="the inputs are missing"):
        diff_networks(squared, squared)


@pytest.mark.slow
def test_a_loss_among_networks_is_one_number_per_batch() -> None:
    def init(key: jax.Array) -> Any:
        return {"w": jax.random.normal(key, (4, 2))}

    def loss(scale: float) -> Any:
        def apply(params: Any, obs: jax.Array, target: jax.Array) -> Any:
            return {"loss": scale * jnp.mean((obs @ params["w"] - target) ** 2)[None]}

        return init, apply

    report = diff_networks(loss(0.5), loss(1.0), (Box((4,)), Box((2,))), level="quick")
    assert [cause.name for cause in report.causes] == ["constant"]
    assert "0.5" in report.causes[0].evidence


def dqn(
    q: jax.Array,
    next_target_q: jax.Array,
    action: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
    weight: jax.Array,
) -> jax.Array:
    chosen = jnp.take_along_axis(q, action[:, None], -1)[:, 0]
    errors = reward + discount * next_target_q.max(-1) - chosen
    return jnp.mean(weight * 0.5 * errors**2)


def critic(
    q: jax.Array,
    next_target_q: jax.Array,
    next_log_prob: jax.Array,
    log_temperature: jax.Array,
    reward: jax.Array,
    discount: jax.Array,
) -> jax.Array:
    value = next_target_q.min(0) - jnp.exp(log_temperature) * next_log_prob
    return (0.5 * (q - (reward + discount * value)[None]) ** 2).mean(-1).sum()


@pytest.mark.slow
def test_shipped_losses_are_references() -> None:
    assert_same_function("algorithm:dqn", dqn, level="standard")
    assert_same_function("algorithm:sac", critic, level="standard")
    with pytest.raises(AssertionError, match="loss_weight"):
        assert_same_function(
            "algorithm:dqn",
            lambda q, next_target_q, action, reward, discount, weight: dqn(
                q, next_target_q, action, reward, discount, jnp.ones_like(weight)
            ),
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["ppo", "a2c", "reinforce", "c51", "qr_dqn", "rainbow", "dqn,double=true",
             "sac.actor", "sac.temperature", "redq", "ppo,clip_value=false", "a2c.continuous"],
)  # fmt: skip
def test_references_can_be_called(name: str) -> None:
    reference = load_reference(f"algorithm:{name}")
    batch = reference.arguments.draw(2, jax.random.key(0))
    learned = reference.arguments.learned
    values = [
        learned[each].draw(jax.random.key(1)) if each in learned else batch[each][0]
        for each in reference.arguments.names
    ]
    assert reference.function(*values).shape == ()
    assert learned


@pytest.mark.parametrize("name", ["nothing", "muzero", "sac.nothing", "ppo,nothing=1"])
def test_references_that_do_not_exist_are_refused(name: str) -> None:
    with pytest.raises(TriglotError):
        load_reference(f"algorithm:{name}")


@pytest.mark.slow
@pytest.mark.skipif(not TORCH, reason="torchax is not installed: triglot[torch]")
def test_losses_of_pytorch() -> None:
    from tests.diff.functions import in_torch

    assert_same_function("algorithm:ppo", in_torch.shipped)
    assert_same_function("algorithm:ppo.continuous,entropy_coef=0.01", in_torch.continuous)
    report = diff_networks("algorithm:ppo", in_torch.unbiased, level="quick")
    assert [cause.name for cause in report.causes] == ["degrees_of_freedom"]
    assert "algorithms/ppo.py" in report.causes[0].where
    assert "in_torch.py" in report.causes[0].where

    def init(key: jax.Array) -> Any:
        return {"out": {"w": jax.random.normal(key, (4, 2)), "b": jnp.ones(2)}}

    def loss(params: Any, obs: jax.Array, action: jax.Array, target: jax.Array) -> jax.Array:
        q = obs @ params["out"]["w"] + params["out"]["b"][None]
        return jnp.mean((jnp.take_along_axis(q, action[:, None], 1)[:, 0] - target) ** 2)

    inputs = {"obs": "float32:32,4", "action": "action:32", "target": "return:32"}
    assert_same_function((init, loss), (in_torch.Network, in_torch.dqn), inputs)


@pytest.mark.slow
def test_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "loss", "my_loss", "--like", "a2c"]) == 0
    written = capsys.readouterr().out
    assert "def loss(logits, value, action, advantage, target)" in written
    assert (tmp_path / "my_loss" / "test_my_loss.py").exists()
    monkeypatch.chdir(tmp_path / "my_loss")
    assert main(["diff", "algorithm:a2c", "my_loss:loss", "--quick"]) == 1
    assert "different" in capsys.readouterr().out
    assert main(["diff", "algorithm:a2c", "my_loss:loss", "--obs-shape", "4"]) == 2
    assert main(["diff", "algorithm:nothing", "my_loss:loss"]) == 2
