"""`triglot.load_policy`: the same actions as `evaluate`, and what a policy refuses."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from tests.checks.sound_environments import Masks
from tests.export.small_runs import KINDS, seed_of, small_run
from triglot.cli import main as cli
from triglot.core.errors import TriglotError
from triglot.core.specs import sample
from triglot.runs.acting import Acting
from triglot.runs.load import Run
from triglot.runs.policy import Policy
from triglot.runs.registry.agents import make_agent

pytestmark = pytest.mark.packaging

NUM_EPISODES, MAX_STEPS = 6, 4


def policy_of(kind: str, seed_index: int = 1, **how: Any) -> Policy:
    return Policy(Acting.of(small_run(kind), seed_index, **how), 3)


def spec_of(kind: str) -> Any:
    return small_run(kind).env.action_spec


def returns_of(policy: Policy, env: Any, key: jax.Array) -> np.ndarray:
    """Play episodes step by step in Python, as `play_episodes` does in one program."""
    reset_key, loop_key = jax.random.split(key)
    step = jax.jit(jax.vmap(env.reset))(jax.random.split(reset_key, NUM_EPISODES))
    advance = jax.jit(jax.vmap(env.step))
    running, returns = np.ones(NUM_EPISODES, bool), np.zeros(NUM_EPISODES, np.float32)
    policy.reset()
    for time in range(MAX_STEPS):
        action = policy(step.obs, step.action_mask)
        _, env_key = jax.random.split(jax.random.fold_in(loop_key, time))
        step = advance(step.state, action, jax.random.split(env_key, NUM_EPISODES))
        returns += np.where(running, step.reward, 0.0).astype(np.float32)
        running &= ~np.asarray(step.terminated | step.truncated)
    return returns


@pytest.mark.covering(6)
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"shared", "gru"}))
def test_its_returns_are_those_of_evaluate(kind: str) -> None:
    run, key = small_run(kind), jax.random.key(5)
    how: Any = {"num_episodes": NUM_EPISODES, "max_steps": MAX_STEPS}
    expected = triglot.evaluate(run.agent, run.env, seed_of(run, 1), key, **how).returns
    np.testing.assert_allclose(returns_of(policy_of(kind), run.env, key), expected, rtol=1e-6)


def test_masks_are_obeyed_and_required() -> None:
    env: Any = Masks()
    agent = make_agent(
        "dqn",
        env,
        config={"hidden_sizes": (4,), "buffer_size": 16, "learning_starts": 4, "batch_size": 4},
    )
    states = jax.tree.map(lambda leaf: leaf[None], agent.init(jax.random.key(0), 2))
    policy = Policy(Acting.of(Run(agent=agent, env=env, agent_states=states, num_updates=0), 0), 0)
    obs, count = np.zeros((3, *env.obs_spec.shape), np.float32), 3
    only = np.eye(count, dtype=bool)[[1, 0, 1]]
    assert policy(obs, only).tolist() == [1, 0, 1]
    assert policy(obs[0], only[1]) == 0
    with pytest.raises(TriglotError, match="give action_mask, bool"):
        policy(obs)
    with pytest.raises(TriglotError, match=r"give action_mask, bool \[3, "):
        policy(obs, only[:2])
    with pytest.raises(TriglotError, match="trained without action masks"):
        policy_of("discrete")(np.zeros(1, np.float32), np.ones(2, bool))


@pytest.mark.parametrize("kind", ["discrete", "twins"])
def test_one_observation_equals_its_row_of_a_batch(kind: str) -> None:
    policy, spec = policy_of(kind), spec_of(kind)
    obs = np.linspace(-1, 1, 5, dtype=np.float64)[:, None]  # cast to float32
    batch = policy(obs)
    assert batch.shape == (5, *spec.shape) and batch.dtype == spec.dtype
    assert isinstance(batch, np.ndarray)
    one = policy(obs[2].tolist())
    assert one.shape == spec.shape
    np.testing.assert_allclose(one, batch[2], rtol=1e-6)
    in_jax = jnp.asarray(obs, jnp.float32)
    assert isinstance(policy(in_jax), jax.Array)
    np.testing.assert_array_equal(jax.jit(policy)(in_jax), policy(in_jax))


def test_a_recurrent_policy_keeps_its_carry_until_reset() -> None:
    policy = policy_of("lstm")
    assert policy.recurrent and not policy_of("discrete").recurrent
    obs = jnp.ones((2, 1))

    def hidden() -> np.ndarray:
        return np.asarray(jax.tree.leaves(policy._carry)[1])

    policy(obs)
    after_one = hidden()
    policy(obs)
    assert np.abs(hidden() - after_one).min() > 1e-6
    policy.reset(np.array([False, True]))
    before = hidden()
    policy(obs)
    assert np.abs(hidden()[0] - before[0]).min() > 1e-6
    np.testing.assert_array_equal(hidden()[1], after_one[1])
    with pytest.raises(TriglotError, match="has the carry of 2 observations and got 3: call reset"):
        policy(jnp.ones((3, 1)))
    with pytest.raises(TriglotError, match=r"reset takes bool \[2\].* got bool \[3\]"):
        policy.reset(np.ones(3, bool))
    with pytest.raises(TriglotError, match=r"reset takes bool \[2\].* got int64 \[2\]"):
        policy.reset([0, 1])
    policy.reset()
    assert policy(jnp.ones((3, 1))).shape == (3, *spec_of("lstm").shape)


def test_sampled_actions_vary_and_repeat_with_the_seed() -> None:
    run, obs = small_run("continuous"), np.zeros((4, 1), np.float32)
    acting = Acting.of(run, 0, explore=True)
    one, other, again = (Policy(acting, 3, seed=seed) for seed in (0, 1, 0))
    first, second = one(obs), one(obs)
    assert np.unique(np.concatenate([first, second, other(obs)])).size == 12
    np.testing.assert_array_equal(again(obs), first)
    low, high = spec_of("continuous").bounds()
    assert np.all((first >= low) & (first <= high))


def test_only_what_the_policy_reads_is_kept() -> None:
    acting = Acting.of(small_run("dueling"), 0)
    assert len(acting.arrays) == 2 * 2 + 2 * 2  # two layers, and the two streams of the head
    assert len(acting.arrays) < len(jax.tree.leaves(small_run("dueling").agent_states)) / 2


@pytest.mark.parametrize(
    "kind, obs, says",
    [
        ("discrete", np.zeros((2, 3)), r"reads one observation \[1\] or a batch \[N, 1\] of floa"),
        ("discrete", np.zeros((2, 2, 1)), r"got the shape \[2, 2, 1\]"),
        ("discrete", np.zeros((0, 1)), r"got the shape \[0, 1\]"),
        ("discrete", "east", r"got the shape \[\]"),
        ("discrete", np.array(["east"]), "reads float32 observations, got <U4"),
        ("discrete", {"obs": np.zeros(1)}, r"got the shape \[\]"),
        ("table", np.float32(2.0), "reads int32 observations, got float32"),
        ("table", 9, "reads integers from 0 to 8; got 9 to 9"),
        ("table", np.array([1, -1]), "got -1 to 1"),
    ],
)
def test_what_does_not_fit_is_refused(kind: str, obs: Any, says: str) -> None:
    with pytest.raises(TriglotError, match=says):
        policy_of(kind)(obs)


def test_a_dictionary_is_checked_by_its_parts() -> None:
    from triglot.core.specs import Box, Dict, Discrete
    from triglot.runs.policy import _batch, _converted

    spec = Dict({"speed": Box((2,)), "room": Discrete(3)})
    one = sample(spec, jax.random.key(0))
    assert _batch(spec, one) is None
    assert _converted(spec, one)["speed"].shape == (2,)
    assert _batch(spec, {"speed": np.zeros((4, 2)), "room": np.zeros(4, int)}) == 4
    with pytest.raises(TriglotError, match="batches of"):
        _batch(spec, {"speed": np.zeros((4, 2)), "room": np.zeros(3, int)})
    with pytest.raises(TriglotError, match=r"reads a dictionary with \['room', 'speed'\], got"):
        _batch(spec, {"speed": np.zeros((4, 2))})


def test_a_run_is_loaded_from_its_folder(tmp_path: Path) -> None:
    words = (
        "train ppo probe:reach --total-steps 64 --num-envs 4 --rollout-length 8 "
        "--num-minibatches 1 --hidden-sizes 4 --out"
    )
    out = tmp_path / "run"
    assert cli.main([*words.split(), str(out), "--num-seeds", "2", "--eval-episodes", "0"]) == 0
    policy, run, key = (
        triglot.load_policy(out, seed_index=1),
        triglot.load_run(out),
        jax.random.key(2),
    )
    assert (policy.num_updates, policy.masked) == (2, False)
    how: Any = {"num_episodes": NUM_EPISODES, "max_steps": MAX_STEPS}
    expected = triglot.evaluate(run.agent, run.env, seed_of(run, 1), key, **how).returns
    np.testing.assert_allclose(returns_of(policy, run.env, key), expected, rtol=1e-6)
    with pytest.raises(TriglotError, match="less than the run's number of seeds, 2; got 2"):
        triglot.load_policy(out, seed_index=2)
    with pytest.raises(TriglotError, match="seed_index must be at least 0"):
        triglot.load_policy(out, -1)
    with pytest.raises(TriglotError, match="is not a triglot run directory"):
        triglot.load_policy(tmp_path)
