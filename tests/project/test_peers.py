"""The benchmark of peers leaves out what is not installed; its settings are options of triglot."""

import math
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from tests.extras import skip_missing_suite

sys.path.append(str(Path(__file__).parents[2]))  # benchmarks are not installed

from benchmarks.peers import ours, stoix
from benchmarks.peers.contender import Contender, greedy_returns
from benchmarks.peers.measure import BUILDERS, installed_peers
from benchmarks.peers.row import Row
from benchmarks.peers.rows import ROWS


@pytest.mark.parametrize("row", ["ppo", "ppo-cleanrl", "ppo-gymnasium"])
def test_a_peer_that_is_not_installed_is_left_out_in_one_line(
    row: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(sys.modules, "rejax", None)
    script = tmp_path / "cleanrl" / "ppo.py"  # a clone without an environment
    script.parent.mkdir()
    script.touch()
    paths = {"Stoix": tmp_path, "CleanRL": tmp_path, "Stable-Baselines3": tmp_path / "python"}
    assert installed_peers(ROWS[row], 512, paths) == {}
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(" is left out")[0] for line in lines] == list(ROWS[row].peers)


@pytest.mark.covering(8)
@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.suites[0] != "envpool"])
def test_triglot_takes_the_settings_of_each_row(name: str) -> None:
    row = ROWS[name]
    for suite in row.suites:
        env = f"{suite}:{row.env_id}"
        skip_missing_suite(env)
        assert ours.contender(row, env, row.total_steps, "linen").version


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_the_peers_of_a_row_are_known(row: Row) -> None:
    assert set(row.peers) <= BUILDERS.keys()


def test_a_setting_is_translated_into_a_peers_words() -> None:
    assert ROWS["dqn"].given("PureJaxRL") == {
        "NUM_ENVS": 10,
        "BUFFER_BATCH_SIZE": 128,
        "BUFFER_SIZE": 10_000,
        "LEARNING_STARTS": 10_000,
        "LR": 2.5e-4,
        "GAMMA": 0.99,
        "EPSILON_ANNEAL_TIME": 100_000.0,
        "TAU": 1.0,
        "MAX_GRAD_NORM": 10.0,  # which its DQN does not read
    }
    assert ROWS["ppo"].given("CleanRL") == {
        "num-envs": 4,
        "num-steps": 128,
        "learning-rate": 2.5e-4,
    }


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if "Stoix" in row.peers])
def test_stoix_takes_as_many_steps_and_gradient_steps_as_triglot(name: str) -> None:
    row = ROWS[name]
    given, theirs = row.setting, stoix.options(row, row.total_steps)
    steps = theirs["arch.total_num_envs"] * theirs["system.rollout_length"]
    updates = theirs["arch.total_timesteps"] // steps
    warmup = theirs.get("system.warmup_steps", 0) * theirs["arch.total_num_envs"]
    assert row.total_steps - steps < warmup + updates * steps <= row.total_steps
    assert theirs.get("system.epochs") == given.get("num_epochs", given.get("num_gradient_steps"))
    # triglot learns from the update on that reaches `learning_starts`, Stoix after its warm-up.
    unlearned = -(-given["learning_starts"] // steps) - 1 if warmup else 0
    assert updates == row.total_steps // steps - unlearned


def test_a_setting_is_translated_into_stoixs_words() -> None:
    theirs = stoix.options(ROWS["vmpo"], 51_200)
    assert theirs["system.actor_target_period"] == 16  # gradient steps of one update
    assert math.log1p(math.exp(theirs["system.init_log_alpha"])) == pytest.approx(5.0)
    assert "system.num_minibatches" not in theirs  # it has no such option
    assert theirs["network.critic_network.pre_torso.layer_sizes"] == [64, 64]
    theirs = stoix.options(ROWS["c51"], 20_000)
    assert theirs["system.q_lr"] == 5e-4
    assert theirs["arch.total_timesteps"] == 20_000 - 990


@pytest.mark.slow
def test_greedy_episodes_keep_a_memory() -> None:
    def alternate(policy: jax.Array, obs: jax.Array, last: jax.Array) -> tuple[jax.Array, Any]:
        return 1 - last, policy * (1 - last)

    def balance(alternates: int) -> float:
        one = Contender(
            compile=lambda keys: (lambda index: None, 0.0),
            act=alternate,
            start=lambda policy, num_envs: jnp.zeros(num_envs, jnp.int32),
            version="",
        )
        policies = jnp.array([alternates], jnp.int32)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):  # gymnax
            return float(greedy_returns("CartPole-v1", one, policies, jax.random.key(0), 4).mean())

    # Pushing to both sides in turns holds the pole longer than pushing to one.
    assert balance(1) > 2 * balance(0)
