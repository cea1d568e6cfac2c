"""Acting equals learning: a dozen planted bugs are found, without false positives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from benchmarks.cases import CASES
from tests.checks.planted_agents import (
    CORRECT,
    OBS,
    PLANTED,
    POLICY,
    REPLAYED,
    HeadWithoutMask,
    MaskAfterReset,
    MixedCarries,
    build,
)
from triglot.algorithms.dqn import DQN
from triglot.algorithms.ppo import PPO
from triglot.checks.acting.check import check_training, compare_on_probe
from triglot.checks.acting.compare import Outcome
from triglot.checks.acting.differences import Difference, with_differences
from triglot.checks.acting.probe import Probe
from triglot.core.errors import TriglotError
from triglot.core.loop.trainer import Trainer
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.core.network import Variables
from triglot.core.specs import MultiDiscrete

slow = pytest.mark.slow
KEY = jax.random.key(0)
LIBRARIES = ("haiku", "linen", "nnx", "equinox", "keras", "torch", "jax")
QUICK = {MaskAfterReset, MixedCarries}
# With each library once, and each kind of agent; the others are slow.
COVERING = {("ppo", "haiku"), ("dqn", "nnx"), ("q_learning", "jax"), ("sac", "equinox")}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "recurrent ppo": ("ppo", {"cell": "lstm"}),
    "recurrent a2c": ("a2c", {"cell": "gru"}),
    "recurrent impala": ("impala", {"cell": "gru"}),
    "recurrent vmpo": ("vmpo", {"cell": "gru"}),
    "recurrent reinforce": ("reinforce", {"cell": "gru"}),
    "recurrent pqn": ("pqn", {"cell": "lstm"}),
    "recurrent openai_es": ("openai_es", {"cell": "gru"}),
    "shared ppo": ("ppo", {"shared_torso": True, "normalize_obs": True}),
    "shared vmpo": ("vmpo", {"shared_torso": True}),
    "pqn by batches": ("pqn", {"normalization": "batch"}),
    "alphazero by batches": ("alphazero", {"normalization": "batch"}),
    "muzero by trees": ("muzero", {"gumbel": False}),
    "dqn with all": ("dqn", {"n_step": 3, "prioritized": True, "double": True, "dueling": True}),
    "normalized sac": ("sac", {"normalize_obs": True}),
    "ppo+rnd": ("ppo+rnd", {}),
    "dqn+counts": ("dqn+counts", {}),
}


def compare(algorithm: str, library: str = "linen", **config: Any) -> Outcome:
    case = CASES[algorithm.partition("+")[0]]
    env = triglot.make_env(case.envs[0])
    config = {**case.config, **config}
    agent = triglot.make_agent(algorithm, env, backend=library, config=config, hyper=case.hyper)
    return compare_on_probe(agent, env, KEY, masked=True)


@pytest.mark.covering(2)
@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.__name__, marks=() if k in QUICK else slow) for k in PLANTED]
)
def test_a_planted_bug_is_found(kind: type) -> None:
    make, array = PLANTED[kind]
    outcome = compare_on_probe(make(), None, KEY, masked=True)
    assert outcome.first is not None, str(outcome)
    found = sorted({finding.array for finding in outcome.findings})
    assert any(name.startswith(array) for name in found), str(found)


@slow
@pytest.mark.parametrize("name", CORRECT)
def test_the_same_agent_without_its_bug_passes(name: str) -> None:
    outcome = compare_on_probe(CORRECT[name](), None, KEY, masked=True)
    assert outcome.first is None, str(outcome.first)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "library"),
    [
        pytest.param(a, lib, marks=() if (a, lib) in COVERING else slow)
        for a in CASES
        for lib in LIBRARIES
    ],
)
def test_no_algorithm_has_a_false_positive(algorithm: str, library: str) -> None:
    outcome = compare(algorithm, library)
    assert outcome.first is None, str(outcome.first)
    assert outcome.compared or algorithm == "openai_es", str(outcome)


@slow
@pytest.mark.parametrize("name", VARIANTS)
def test_no_variant_has_a_false_positive(name: str) -> None:
    algorithm, config = VARIANTS[name]
    outcome = compare(algorithm, **config)
    assert outcome.first is None, str(outcome.first)


@slow
def test_actions_of_several_integers_have_no_false_positive() -> None:
    agent = build(PPO, POLICY, MultiDiscrete((2, 3)))
    outcome = compare_on_probe(agent, None, KEY, masked=True)
    assert outcome.first is None and outcome.compared["masks"], str(outcome)


def _on_host(loss: Any, variables: Any, batch: Any) -> list[Difference]:
    found: list[Difference] = []

    def emit(made: Any, *arrays: jax.Array) -> None:
        found.append(made(*map(np.asarray, arrays)))

    with_differences(loss, emit)(variables, batch, KEY)
    return found


def test_differences_of_stored_and_computed_numbers_are_seen() -> None:
    def loss(variables: Variables, batch: Any, key: jax.Array) -> Any:
        log_prob = variables.params * batch["obs"][:, 0]
        ratio = jnp.exp(log_prob - batch["log_prob"])
        return jnp.mean(ratio * batch["advantage"]), ({}, ())

    batch = {
        "obs": jnp.array([[1.0], [2.0], [3.0]]),
        "log_prob": jnp.array([2.0, 4.0, 7.0]),
        "advantage": jnp.ones(3),
    }
    variables = Variables(params=jnp.float32(2.0), state=())
    (one,) = _on_host(loss, variables, batch)
    assert (one.names, one.named) == (("log_prob",), True)
    assert one.stored.tolist() == [2.0, 4.0, 7.0] and one.computed.tolist() == [2.0, 4.0, 6.0]


def test_an_observed_loss_has_the_same_value_and_gradient() -> None:
    def loss(variables: Variables, batch: Any, key: jax.Array) -> Any:
        error = batch - jax.nn.relu(variables.params * batch)
        return jnp.sum(error**2) + jax.random.normal(key), ({"error": error}, ())

    def value(params: Any, function: Any) -> Any:
        return function(Variables(params=params, state=()), jnp.array([1.0, -2.0]), KEY)[0]

    observed = with_differences(loss, lambda *_: None)
    expected, got = (jax.value_and_grad(value)(jnp.float32(3.0), f) for f in (loss, observed))
    assert jax.tree.map(float, expected) == jax.tree.map(float, got)


@pytest.mark.slow
def test_masks_of_a_probe_allow_something_and_depend_on_the_observation() -> None:
    probe = Probe(OBS, MultiDiscrete((2, 3)), masked=True)
    starts = jax.vmap(probe.reset)(jax.random.split(KEY, 64))
    assert starts.action_mask is not None
    assert starts.action_mask[:, :2].any(axis=-1).all()
    assert starts.action_mask[:, 2:].any(axis=-1).all()
    assert len(np.unique(starts.action_mask, axis=0)) > 4
    assert probe.mask(jax.tree.map(lambda leaf: leaf[0], starts.obs)).tolist() == (  # pyright: ignore
        starts.action_mask[0].tolist()
    )


def trainer_of(agent: Any) -> Trainer:
    probe = Probe(agent.obs_spec, agent.action_spec, masked=True)
    return Trainer(agent, VectorEnvironment(probe, agent.num_envs))


@slow
def test_a_training_is_checked_in_its_own_environments() -> None:
    assert "compared inputs" in check_training(trainer_of(build(DQN, REPLAYED)), KEY)
    with pytest.raises(TriglotError, match="update 1, step"):
        check_training(trainer_of(build(HeadWithoutMask, POLICY)), KEY)


@slow
def test_the_checker_of_agents_runs_it() -> None:
    agent = build(MaskAfterReset, {**REPLAYED, "num_envs": 2, "rollout_length": 4})
    report = triglot.check_agent(agent, Probe(OBS, agent.action_spec, masked=True))
    assert report.failed == ("next action mask", "acting"), str(report)
    assert any("compared: " in note for note in report.notes)


@pytest.mark.slow
def test_an_update_that_reads_nothing_fails() -> None:
    class Idle(DQN):
        def update(self, state: Any, trajectory: Any, key: Any) -> Any:
            return state, {"loss": jnp.zeros(())}

    small = {**REPLAYED, "buffer_size": 32, "learning_starts": 32}
    outcome = compare_on_probe(build(Idle, small), None, KEY, masked=True)
    assert outcome.first is not None and "nothing was compared" in str(outcome.first)
