"""The replay: what is kept, what is drawn, and how several steps become one sample."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rlax

from triglot.core.errors import TriglotError
from triglot.core.rl.priorities import sample_proportional
from triglot.core.rl.replay import Replay, ReplayState, Step, n_step_return
from triglot.core.specs import Box, Discrete

DISCOUNT = 0.5


def rollout(start: int, length: int, num_envs: int) -> Step:
    """Make a rollout whose step `t` of environment `n` is `100 * n + t`, and pays as much."""
    time = jnp.arange(start, start + length)[:, None] + 100 * jnp.arange(num_envs)[None]
    flag = jnp.zeros((length, num_envs), bool)
    return Step(
        obs=time[..., None].astype(jnp.uint8),
        action=time,
        reward=time.astype(jnp.float32),
        terminated=flag,
        truncated=flag,
        next_obs=time[..., None].astype(jnp.uint8) + jnp.uint8(1),
        next_action_mask=jnp.ones((length, num_envs, 2), bool),
    )


SPECS = {"obs_spec": Box((1,), "uint8", 0, 255), "action_spec": Discrete(2)}


def filled(made: Replay, num_rollouts: int, length: int) -> ReplayState:
    state = made.init()
    add = jax.jit(made.add)
    for index in range(num_rollouts):
        state = add(state, rollout(index * length, length, made.num_envs))
    return state


@pytest.mark.covering(6)
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(
    ("n_step", "num_rollouts", "length", "starts"),
    [
        (1, 2, 2, range(4)),  # not yet full
        (1, 5, 2, range(4, 10)),  # the oldest are gone
        (3, 2, 2, range(2)),  # the last two lack successors
        (3, 5, 2, range(4, 8)),  # across the ring's end
        (3, 7, 1, range(1, 5)),  # rollouts shorter than a sample
        (2, 2, 6, range(6, 11)),  # rollouts that fill all of it
    ],
)
def test_samples_start_wherever_all_their_steps_are_kept(
    n_step: int, num_rollouts: int, length: int, starts: range, prioritized: bool
) -> None:
    made = Replay(**SPECS, capacity=12, num_envs=2, n_step=n_step, prioritized=prioritized)
    state = filled(made, num_rollouts, length)
    assert int(made.num_starts(state)) == 2 * len(starts)

    sample = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 512, DISCOUNT)
    expected = {time + 100 * env for env in range(2) for time in starts}
    assert set(np.asarray(sample.action).tolist()) == expected
    # Each is as likely as the others, and says so.
    np.testing.assert_allclose(sample.probability, 1 / len(expected), rtol=1e-5)
    # The next observation and the rewards are of the same environment.
    np.testing.assert_array_equal(
        sample.next_obs[:, 0], sample.obs[:, 0] + jnp.uint8(n_step), strict=True
    )
    first = np.asarray(sample.action, np.float32)
    total = sum(DISCOUNT**step * (first + step) for step in range(n_step))
    np.testing.assert_allclose(sample.reward, total)
    np.testing.assert_allclose(sample.discount, DISCOUNT**n_step)


def test_observations_keep_their_dtype() -> None:
    made = Replay(**SPECS, capacity=4, num_envs=2)
    state = filled(made, 1, 2)
    assert state.steps.obs.dtype == jnp.uint8
    assert made.sample(state, jax.random.key(0), 3, DISCOUNT).next_obs.dtype == jnp.uint8


def test_whole_numbers_are_stored_in_bytes_and_sampled_as_declared() -> None:
    spec = Box((1,), "float32", 0, 255, whole=True)
    made = replace(Replay(**SPECS, capacity=4, num_envs=2), obs_spec=spec)
    steps = rollout(3, 2, 2)
    floats = replace(
        steps, obs=steps.obs.astype(jnp.float32), next_obs=steps.next_obs.astype(jnp.float32)
    )
    state = made.add(made.init(), floats)
    assert state.steps.obs.dtype == state.steps.next_obs.dtype == jnp.uint8
    drawn = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 8, DISCOUNT)
    assert drawn.obs.dtype == drawn.next_obs.dtype == jnp.float32
    np.testing.assert_array_equal(drawn.obs, floats.obs.reshape(4, 1)[drawn.slot])
    np.testing.assert_array_equal(drawn.next_obs, drawn.obs + 1)


def test_a_rollout_that_does_not_divide_the_slots_is_refused() -> None:
    made = Replay(**SPECS, capacity=10, num_envs=2)
    with pytest.raises(TriglotError, match="10 slots takes rollouts that divide it, got one of 6"):
        made.add(made.init(), rollout(0, 3, 2))


@pytest.mark.parametrize("length", [1, 2])
def test_no_sample_crosses_a_cut(length: int) -> None:
    """The first environment starts an episode at step 4, where the one before has no end."""
    made = Replay(**SPECS, capacity=16, num_envs=2, n_step=3)
    state = made.init()
    for start in range(0, 10, length):  # step 7 is the last slot of the ring
        first = jnp.zeros((length, 2), bool).at[0, 0].set(start == 4)
        state = jax.jit(made.add)(state, replace(rollout(start, length, 2), first=first))
    flags = np.asarray(state.steps.truncated).reshape(8, 2)
    assert not state.steps.terminated.any() and flags.sum() == 1 and flags[3, 0]
    sample = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 512, DISCOUNT)
    steps = np.where(np.asarray(sample.action) == 2, 2, np.where(sample.action == 3, 1, 3))
    assert {1, 2} < set(steps.tolist())
    np.testing.assert_array_equal(sample.next_obs[:, 0], np.asarray(sample.obs[:, 0]) + steps)
    np.testing.assert_allclose(sample.discount, DISCOUNT**steps)  # it is bootstrapped there
    first = np.asarray(sample.action, np.float32)
    total = sum(DISCOUNT**k * (first + k) * (k < steps) for k in range(3))
    np.testing.assert_allclose(sample.reward, total)


def test_a_cut_changes_no_termination_and_no_empty_slot() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2, n_step=2)
    steps = replace(rollout(0, 2, 2), first=jnp.ones((2, 2), bool))
    steps = replace(steps, terminated=steps.terminated.at[1].set(jnp.array([True, False])))
    state = made.add(made.init(), steps)
    assert not state.steps.truncated.any()
    state = jax.jit(made.add)(state, steps)
    np.testing.assert_array_equal(np.flatnonzero(state.steps.truncated), [3])


def test_uniform_samples_are_uniform() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2)
    sample = jax.jit(made.sample, static_argnums=2)(
        filled(made, 1, 4), jax.random.key(0), 80_000, DISCOUNT
    )
    counts = np.bincount(sample.slot, minlength=8)
    np.testing.assert_allclose(counts, 10_000, atol=500)  # five standard deviations


def test_an_episode_s_end_ends_the_sum() -> None:
    reward = jnp.tile(jnp.array([1.0, 2.0, 4.0])[:, None], (1, 6))
    #                         none, then terminated or truncated at the first, second, third
    terminated = jnp.array([[0, 1, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0], [0, 1, 0, 1, 0, 0]], bool)
    truncated = jnp.array([[0, 0, 0, 0, 1, 0], [0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0]], bool)
    total, factor, last = n_step_return(reward, terminated, truncated, DISCOUNT)
    np.testing.assert_allclose(total, [3.0, 1.0, 2.0, 3.0, 1.0, 2.0])
    np.testing.assert_allclose(factor, [0.125, 0.0, 0.0, 0.0, 0.5, 0.25])
    np.testing.assert_array_equal(last, [2, 0, 1, 2, 0, 1])


def test_it_is_rlax_s_n_step_return() -> None:
    keys = jax.random.split(jax.random.key(0), 4)
    length, batch = 4, 256
    reward = jax.random.normal(keys[0], (length, batch))
    terminated = jax.random.bernoulli(keys[1], 0.2, (length, batch))
    truncated = jax.random.bernoulli(keys[2], 0.2, (length, batch)) & ~terminated
    next_value = jax.random.normal(keys[3], (length, batch))

    total, factor, last = n_step_return(reward, terminated, truncated, 0.9)
    ours = total + factor * jnp.take_along_axis(next_value, last[None], axis=0)[0]
    theirs = jax.vmap(
        lambda r, d, v, keep: rlax.n_step_bootstrapped_returns(r, d, v, length, keep),
        in_axes=1,
        out_axes=1,
    )(
        reward,
        0.9 * (1.0 - terminated.astype(jnp.float32)),
        next_value,
        1.0 - truncated.astype(jnp.float32),
    )
    np.testing.assert_allclose(ours, jnp.asarray(theirs)[0], rtol=1e-5, atol=1e-6)


def test_choices_follow_the_weights() -> None:
    weight = jnp.array([0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 4.0, 0.0])
    share = jnp.array([0.0, 0.124, 0.126, 0.499, 0.501, 0.999, 1.0])
    index, total = sample_proportional(weight, share)
    np.testing.assert_array_equal(index, [1, 1, 3, 3, 6, 6, 6])
    np.testing.assert_allclose(total, 8.0)


def test_choices_never_fall_on_a_weight_of_zero() -> None:
    """Rounding errors of sums must not lead outside the weights that there are."""
    key, weight_key, mask_key = jax.random.split(jax.random.key(0), 3)
    weight = jax.random.uniform(weight_key, (22**3,)) ** 4 * 1e3
    weight = jnp.where(jax.random.bernoulli(mask_key, 0.05, weight.shape), weight, 0.0)
    share = jnp.concatenate([jax.random.uniform(key, (20_000,)), jnp.linspace(0, 1, 20_001)])
    index, total = jax.jit(sample_proportional)(weight, share)
    assert bool((weight[index] > 0.0).all())
    exact = np.cumsum(np.asarray(weight, np.float64))
    # Each share lies within its weight's interval, but for float32's rounding of the sums.
    end = exact[index] / exact[-1]
    assert np.all(share <= end + 1e-5)
    assert np.all(share >= end - np.asarray(weight[index]) / exact[-1] - 1e-5)
    np.testing.assert_allclose(total, exact[-1], rtol=1e-5)


def test_samples_by_priority_follow_it() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2, prioritized=True)
    state = filled(made, 1, 2)  # four steps of weight 1
    state = made.update_priorities(state, jnp.array([1, 2]), jnp.array([5.0, 0.5]))
    sample = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 3000, DISCOUNT)
    counts = np.bincount(sample.slot, minlength=8)
    # Stratified: within one of the exact number.
    np.testing.assert_allclose(counts, [400, 2000, 200, 400, 0, 0, 0, 0], atol=1.01)
    weights = jnp.array([1.0, 5.0, 0.5, 1.0])
    np.testing.assert_allclose(sample.probability, weights[sample.slot] / 7.5, rtol=1e-6)


def test_new_steps_get_the_greatest_weight_so_far() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2, n_step=2, prioritized=True)
    state = filled(made, 1, 2)
    weights = [1, 1, 0, 0, 0, 0, 0, 0]  # the second step of both waits for its successor

    def check(state: ReplayState) -> None:
        assert state.priorities is not None
        np.testing.assert_allclose(state.priorities.weight[:8], weights)

    check(state)
    state = made.update_priorities(state, jnp.array([0]), jnp.array([7.0]))
    state = jax.jit(made.add)(state, rollout(2, 2, 2))
    weights = [7, 1, 7, 7, 7, 7, 0, 0]
    check(state)
    state = made.update_priorities(state, jnp.array([0, 2]), jnp.array([2.0, 3.0]))
    state = jax.jit(made.add)(state, rollout(4, 2, 2))  # over the first four slots
    weights = [7, 7, 0, 0, 7, 7, 7, 7]
    check(state)


def test_reweighting_a_uniform_replay_changes_nothing() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2)
    state = filled(made, 1, 2)
    assert made.update_priorities(state, jnp.array([0]), jnp.array([1.0])) is state


@pytest.mark.slow
def test_seeds_are_batched_by_vmap() -> None:
    made = Replay(**SPECS, capacity=8, num_envs=2, n_step=2, prioritized=True)

    def draw(key: jax.Array, start: jax.Array) -> tuple[jax.Array, jax.Array]:
        steps = rollout(0, 4, 2)
        state = made.add(made.init(), replace(steps, reward=steps.reward + start))
        sample = jax.jit(made.sample, static_argnums=2)(state, key, 4, DISCOUNT)
        return sample.slot, sample.reward

    keys, starts = jax.random.split(jax.random.key(0), 3), jnp.array([0.0, 1.0, 2.0])
    batched = jax.vmap(draw)(keys, starts)
    for index in range(3):
        one = draw(keys[index], starts[index])
        np.testing.assert_array_equal(batched[0][index], one[0])
        np.testing.assert_allclose(batched[1][index], one[1])
