"""Planted differences of losses, targets and updates are named with their lines."""

import inspect
import re
from types import ModuleType
from typing import Any

import pytest

from tests.diff.functions import ppo, returns, targets, updates
from triglot import diff_networks
from triglot.diff.report import DIFFERENT, Report

# A masked mean multiplies by the mask and divides by its sum.
ALONGSIDE = {"loss_reduction": ("bootstrap_flag",)}


def lines_of(report: Report, module: ModuleType, name: str) -> list[str]:
    """Return the lines of code that a cause of some name points to."""
    code = inspect.getsource(module).splitlines()
    where = " ".join(cause.where for cause in report.causes if cause.name == name)
    file = module.__name__.rpartition(".")[2]
    return [code[int(line) - 1] for line in re.findall(rf"/{file}\.py:(\d+)", where)]


def check(
    module: ModuleType, inputs: Any, one: Any, other: Any, name: str, line: str, evidence: str
) -> None:
    report = diff_networks(one, other, inputs, level="quick")
    assert report.verdict == DIFFERENT
    names = {cause.name for cause in report.causes}
    assert name in names and names <= {name, *ALONGSIDE.get(name, ())}, report
    assert any(line in code for code in lines_of(report, module, name)), report
    assert evidence in " ".join(cause.evidence for cause in report.causes), report


PPO = {
    "no standardization": ({"standardize": False}, "standardization", "advantage", "`advantage`"),
    "ddof": ({"ddof": 1}, "degrees_of_freedom", "advantage.std", "divides by 32"),
    "std epsilon": ({"std_eps": 1e-3}, "norm_epsilon", "std_eps", "1e-08"),
    "clip range": ({"clip": 0.1}, "clip_range", "jnp.clip(", "0.8 and 1.2"),
    "max of surrogates": ({"surrogate": "max"}, "clipping", "jnp.m", "min in"),
    "no clip": ({"surrogate": "plain"}, "clipping", "jnp.minimum", "the minimum"),
    "clip alone": ({"surrogate": "clipped"}, "clipping", "jnp.minimum", "the minimum"),
    "no value clip": ({"clip_value": "no"}, "clipping", "jnp.maximum", "the maximum"),
    "value clip alone": ({"clip_value": "only"}, "clipping", "jnp.maximum", "the maximum"),
    "value factor": ({"value_coef": 1.0}, "constant", "value_coef *", "0.5"),
    "no entropy": ({"entropy": "no"}, "loss_term", "0.01 * bonus", "lacks this term"),
    "entropy's sign": ({"entropy": "add"}, "loss_term", "0.01 * bonus", "subtracts"),
    "sum": ({"average": "sum"}, "loss_reduction", "losses.", "only sums"),
    "masked mean": ({"average": "mask"}, "loss_reduction", "losses", "mask"),
    "mask without count": ({"average": "mask_mean"}, "bootstrap_flag", "losses * mask", "`mask`"),
    "sign": ({"sign": -1.0}, "constant", "sign * total", "-1"),
    "value factor, other order": (
        {"order": "value last", "value_coef": 1.0}, "constant", "value_coef *", "0.5 times",
    ),
    "ddof, other order": (
        {"order": "value last", "ddof": 1}, "degrees_of_freedom", "advantage.std", "divides by 32",
    ),
}  # fmt: skip


@pytest.mark.covering(18)
@pytest.mark.parametrize("planted", PPO)
def test_ppo(planted: str) -> None:
    options, name, line, evidence = PPO[planted]
    check(ppo, ppo.INPUTS, ppo.make(), ppo.make(**options), name, line, evidence)


@pytest.mark.slow
def test_a_gradient_that_is_stopped() -> None:
    report = diff_networks(ppo.make(), ppo.make(stop="ratio"), ppo.INPUTS)
    assert report.verdict == DIFFERENT
    assert [cause.name for cause in report.causes] == ["stop_gradient"], report


GAE = {
    "reward_shift": ("time_shift", "delta = r", "`reward`"),
    "done": ("bootstrap_flag", "after * kept", "`terminated`"),
    "no_cut": ("bootstrap_flag", "after * kept", "`terminated`"),
    "value_shift": ("time_shift", "after * kept", "`value`"),
    "no_done": ("bootstrap_flag", "trace * going", "`truncated`"),
    "done_shift": ("time_shift", "is_done", "truncated"),
    "no_value": ("loss_term", "advantage + value", "`value`"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", GAE)
def test_gae(planted: str) -> None:
    name, line, evidence = GAE[planted]
    check(targets, targets.INPUTS, targets.gae(), targets.gae(planted), name, line, evidence)


@pytest.mark.slow
def test_a_time_limit_that_ends_an_episode_is_a_flag_in_any_formula() -> None:
    report = diff_networks(targets.gae(), targets.gae_of_returns, targets.INPUTS, level="quick")
    assert [cause.name for cause in report.causes] == ["bootstrap_flag"], report
    assert "`truncated`" in report.causes[0].evidence
    report = diff_networks(
        targets.gae("joined"), targets.gae_of_returns, targets.INPUTS, level="quick"
    )
    assert report.verdict != DIFFERENT, report


Q_LOSSES = {
    "double": ("greedy_action", "`next_q`"),
    "huber": ("error_loss", "linear beyond 1"),
    "square": ("constant", "0.5"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", Q_LOSSES)
def test_q_learning(planted: str) -> None:
    name, evidence = Q_LOSSES[planted]
    report = diff_networks(targets.q_loss(), targets.q_loss(planted), targets.Q_LOSS, level="quick")
    assert [cause.name for cause in report.causes] == [name], report
    assert evidence in report.causes[0].evidence


@pytest.mark.slow
def test_a_flag_that_joins_two_is_no_clip() -> None:
    one, other = targets.q_loss(), targets.q_loss("square", joined=True)
    report = diff_networks(one, other, targets.Q_LOSS, level="quick")
    assert {cause.name for cause in report.causes} == {"constant", "bootstrap_flag"}, report


@pytest.mark.slow
@pytest.mark.parametrize("option", ["discount", "trace"])
def test_numbers_of_gae(option: str) -> None:
    numbers: dict[str, Any] = {option: 0.9}
    other = targets.gae(**numbers)
    check(targets, targets.INPUTS, targets.gae(), other, "constant", "discount *", "a factor is")


N_STEP = {
    "one_later": ("time_shift", "total", "slice of value"),
    "no_discount": ("loss_weight", "rate", "discount"),
    "half": ("constant", "0.5 * total", "0.5"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", N_STEP)
def test_n_step(planted: str) -> None:
    name, line, evidence = N_STEP[planted]
    one, other = targets.n_step(), targets.n_step(planted)
    check(targets, targets.N_STEP, one, other, name, line, evidence)


RETURNS = {
    "target network": (
        returns.Q_LEARNING, returns.q_learning(), returns.q_learning("online"),
        "target_network", "return jnp.tanh", "'target'",
    ),
    "clip of rho": (
        returns.V_TRACE, returns.v_trace(), returns.v_trace("rho"),
        "clip_range", "# clipped rho", "1.5",
    ),
    "no clip of the trace": (
        returns.V_TRACE, returns.v_trace(), returns.v_trace("trace"),
        "clipping", "# clipped trace", "the minimum",
    ),
    "lambda": (
        returns.LAMBDA, returns.lambda_returns(), returns.lambda_returns(trace=0.9),
        "constant", "# the mixture", "0.95",
    ),
    "value of the wrong step": (
        returns.LAMBDA, returns.lambda_returns(), returns.lambda_returns("shift"),
        "time_shift", "after = jnp.concatenate", "one step later",
    ),
    "width of atoms": (
        returns.PROJECTION, returns.projection(), returns.projection("width"),
        "constant", "# in atoms", "2.75",
    ),
    "no clip to the support": (
        returns.PROJECTION, returns.projection(), returns.projection("no clip"),
        "clipping", "", "clips within numbers",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("planted", RETURNS)
def test_returns_and_target_networks(planted: str) -> None:
    inputs, one, other, name, line, evidence = RETURNS[planted]
    check(returns, inputs, one, other, name, line, evidence)


ADAM = {
    "epsilon": ({"eps": 1e-5}, "optimizer_epsilon", "+ eps", "1e-05"),
    "decay of means": ({"b1": 0.8}, "optimizer_decay", "b1", "0.9 in"),
    "decay of squares": ({"b2": 0.99}, "optimizer_decay", "b2", "0.99"),
    "decoupled": ({"decoupled": 0.01}, "weight_decay", "decoupled * p", "0.01"),
    "coupled": ({"coupled": 0.01}, "weight_decay", "coupled * p", "0.01"),
    "no correction": ({"corrected": False}, "bias_correction", "first", "1 - decay^t"),
    "by element": ({"clip": "element"}, "gradient_clipping", "jnp.clip", "by element"),
    "no clip": ({"clip": "no"}, "gradient_clipping", "jnp.minimum", "not clipped"),
    "by each norm": ({"clip": "each"}, "gradient_clipping", "jnp.minimum", "one array"),
    "rate": ({"rate": 3e-4}, "constant", "size * u", "0.0003"),
}


@pytest.mark.slow
@pytest.mark.parametrize("planted", ADAM)
def test_adam(planted: str) -> None:
    options, name, line, evidence = ADAM[planted]
    check(updates, updates.INPUTS, updates.adam(), updates.adam(**options), name, line, evidence)


@pytest.mark.slow
def test_the_order_of_clip_and_scale() -> None:
    one, other = updates.adam(scale="before"), updates.adam(scale="after")
    line, evidence = "jnp.minimum", "after it is clipped"
    check(updates, updates.INPUTS, one, other, "operation_order", line, evidence)


@pytest.mark.slow
def test_the_unit_of_a_schedule() -> None:
    one, other = updates.adam(schedule="steps"), updates.adam(schedule="updates")
    check(updates, updates.INPUTS, one, other, "schedule_unit", "count /", "`step`")


def falling(rate: float, ahead: int = 0) -> Any:
    return lambda step: rate * (1 - (step // 16 + ahead) / 100)


def constant(rate: float) -> Any:
    return lambda step: rate


RATES = {
    "a constant": (falling(1e-3), constant(1e-3), "schedule_unit", "0.001"),
    "a constant first": (constant(1e-3), falling(1e-3), "schedule_unit", "0.001"),
    "one update ahead": (falling(1e-3), falling(1e-3, 1), "schedule_unit", "`step`"),
    "another constant": (constant(1e-3), constant(3e-4), "constant", "0.0003"),
}


@pytest.mark.covering
@pytest.mark.parametrize("case", RATES)
def test_learning_rates_as_functions_of_a_count(case: str) -> None:
    one, other, name, evidence = RATES[case]
    report = diff_networks(one, other, {"step": "step:"}, level="quick")
    assert report.verdict == DIFFERENT
    assert [cause.name for cause in report.causes] == [name], report
    assert evidence in report.causes[0].evidence


CLEAN = {
    "gae": (targets.gae(), targets.gae_in_a_loop, targets.INPUTS),
    "ppo": (ppo.make(), ppo.reformulated(), ppo.INPUTS),
    "adam": (updates.adam(clip="no"), updates.with_optax(), updates.INPUTS),
    "target network": (
        returns.q_learning(),
        returns.q_learning_by_one_hot(),
        returns.Q_LEARNING,
    ),
    "v-trace": (returns.v_trace(), returns.v_trace_in_a_loop, returns.V_TRACE),
    "lambda-returns": (
        returns.lambda_returns(),
        returns.lambda_returns_of_errors,
        returns.LAMBDA,
    ),
    "projection": (returns.projection(), returns.projection_by_index, returns.PROJECTION),
    "clipped adam": (updates.adam(clip="element"), updates.with_optax(0.5), updates.INPUTS),
}


@pytest.mark.covering(8)
@pytest.mark.parametrize("name", CLEAN)
def test_the_same_function_has_no_false_positive(name: str) -> None:
    one, other, inputs = CLEAN[name]
    report = diff_networks(one, other, inputs)
    assert report.verdict != DIFFERENT, report
    assert not report.causes, report
