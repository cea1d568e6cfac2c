"""The replay of sequences: what is kept, what is drawn, and how one reads across the ring."""

from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.agent import Trajectory
from triglot.core.errors import TriglotError
from triglot.core.rl.sequences import (
    SequenceReplay,
    SequenceReplayConfig,
    SequenceReplayState,
    sequence_priority,
)
from triglot.core.specs import Box, Discrete

N = 2
SPECS = {"obs_spec": Box((1,), "uint8", 0, 255), "action_spec": Discrete(2)}
EXTRAS = {"policy": jnp.zeros((N, 2))}
CARRY = {"hidden": jnp.zeros((N, 3))}


def rollout(start: int, length: int, seed: int = 0) -> Trajectory:
    """Make a rollout whose step `t` of environment `n` is `100 * n + t`, with random ends."""
    draws = np.random.default_rng([seed, start])
    time = jnp.arange(start, start + length)[:, None] + 100 * jnp.arange(N)[None]
    flags = [jnp.asarray(draws.random((length, N)) < 0.3) for _ in range(3)]
    masks = [jnp.asarray(draws.random((length, N, 2)) < 0.5) for _ in range(2)]
    return Trajectory(
        obs=time[..., None].astype(jnp.uint8),
        first=flags[0],
        action_mask=masks[0],
        action=time,
        reward=time.astype(jnp.float32),
        terminated=flags[1],
        truncated=flags[2],
        next_obs=time[..., None].astype(jnp.uint8) + jnp.uint8(1),
        next_action_mask=masks[1],
        extras={"policy": jnp.stack([time, -time], -1).astype(jnp.float32), "dropped": time},
        carry=jnp.tile(time[0, :, None].astype(jnp.float32), (1, 3)),
    )


def carries(trajectory: Trajectory, period: int) -> dict[str, jax.Array]:
    """Make a carry that says the time and the environment of the step it precedes."""
    starts = trajectory.reward[::period]
    return {"hidden": jnp.tile(starts[..., None], (1, 1, 3))}


class Oracle:
    """A list of all steps ever added, `[time, N, ...]`; sequences are slices of it."""

    def __init__(self, rollouts: list[Trajectory], capacity: int) -> None:
        names = [one.name for one in fields(Trajectory) if one.name not in ("extras", "carry")]
        self.steps = {
            name: np.concatenate([np.asarray(getattr(one, name)) for one in rollouts])
            for name in names
        }
        # A rollout that starts an episode truncates the step before it, if that one has no end.
        for last in np.cumsum([len(one.reward) for one in rollouts])[:-1] - 1:
            cut = self.steps["first"][last + 1] & ~self.steps["terminated"][last]
            self.steps["truncated"][last] |= cut
        policy = [np.asarray(one.extras["policy"]) for one in rollouts]
        self.steps["policy"] = np.concatenate(policy)
        self.end = len(self.steps["reward"])
        self.oldest = max(self.end - capacity // N, 0)

    def starts(self, length: int, period: int) -> set[int]:
        times = range(self.oldest, self.end - length + 1)
        return {time + 100 * env for time in times if time % period == 0 for env in range(N)}


def filled(made: SequenceReplay, rollouts: list[Trajectory]) -> SequenceReplayState:
    state = made.init(CARRY, EXTRAS)
    add = jax.jit(lambda state, one: made.add(state, one, carries(one, made.period)))
    for one in rollouts:
        state = add(state, one)
    return state


# Of 12 time steps in the ring.
CASES = [
    pytest.param(5, 1, 4, 2, id="not-yet-full"),
    pytest.param(5, 1, 4, 3, id="full"),
    pytest.param(5, 1, 4, 4, id="around-the-end"),
    pytest.param(5, 2, 4, 5, id="period-2"),
    pytest.param(5, 4, 4, 7, id="period-of-a-rollout"),
    pytest.param(4, 4, 4, 4, id="adjacent"),
    pytest.param(7, 1, 2, 9, id="longer-than-a-rollout"),
    pytest.param(1, 1, 3, 6, id="single-steps"),
    pytest.param(12, 3, 3, 5, id="all-of-the-ring"),
    pytest.param(3, 1, 12, 2, id="rollouts-of-the-whole-ring"),
]


@pytest.mark.covering(4)
@pytest.mark.parametrize("prioritized", [False, True])
@pytest.mark.parametrize(("length", "period", "rollout_length", "num_rollouts"), CASES)
def test_sequences_are_slices_of_the_steps_that_are_kept(
    length: int, period: int, rollout_length: int, num_rollouts: int, prioritized: bool
) -> None:
    made = SequenceReplay(
        **SPECS,
        capacity=12 * N,
        num_envs=N,
        sequence_length=length,
        period=period,
        prioritized=prioritized,
    )
    rollouts = [rollout(index * rollout_length, rollout_length) for index in range(num_rollouts)]
    oracle, state = Oracle(rollouts, made.capacity), filled(made, rollouts)
    expected = oracle.starts(length, period)
    assert int(made.num_starts(state)) == len(expected)

    sequences = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 400)
    first_step = np.asarray(sequences.steps.reward[0]).astype(int)
    assert set(first_step.tolist()) == expected
    # Each is as likely as the others, and says so.
    np.testing.assert_allclose(sequences.probability, 1 / len(expected), rtol=1e-5)
    np.testing.assert_array_equal(
        sequences.steps.carry["hidden"], np.tile(first_step[:, None], (1, 3))
    )
    assert set(sequences.steps.extras) == {"policy"}
    got = {**vars(sequences.steps), **sequences.steps.extras}
    for name, steps in oracle.steps.items():
        slices = [steps[one % 100 : one % 100 + length, one // 100] for one in first_step]
        np.testing.assert_array_equal(got[name], np.stack(slices, axis=1), strict=True)


def test_a_sequence_of_the_newest_step_and_the_oldest_is_never_read() -> None:
    """In the ring, step 5 is followed by step 2: no sequence goes from one to the other."""
    made = SequenceReplay(**SPECS, capacity=4 * N, num_envs=N, sequence_length=2)
    state = filled(made, [rollout(time, 2) for time in (0, 2, 4)])
    sequences = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 100)
    pairs = {tuple(pair) for pair in np.asarray(sequences.steps.reward).T.astype(int).tolist()}
    assert pairs == {(t + e, t + e + 1) for t in (2, 3, 4) for e in (0, 100)}


def test_carries_of_the_rollouts_start_are_the_default() -> None:
    made = SequenceReplay(**SPECS, capacity=12 * N, num_envs=N, sequence_length=6, period=3)
    state = made.init(jnp.zeros((N, 3)))
    for time in (0, 3, 6):
        state = jax.jit(made.add)(state, rollout(time, 3))
    steps = jax.jit(made.sample, static_argnums=2)(state, jax.random.key(0), 50).steps
    np.testing.assert_array_equal(steps.carry[:, 0], steps.reward[0])
    with pytest.raises(TriglotError, match="every 3 of 6 steps: give the carries"):
        made.add(state, rollout(9, 6))


def test_a_rollout_that_does_not_fit_is_refused() -> None:
    made = SequenceReplay(**SPECS, capacity=12 * N, num_envs=N, sequence_length=4, period=2)
    for length in (5, 3):  # 5 does not divide the slots, 2 does not divide 3
        with pytest.raises(TriglotError, match=f"got one of {length} steps of 2"):
            made.add(made.init(CARRY), rollout(0, length), carries(rollout(0, length), 2))


def test_without_masks_all_actions_are_allowed() -> None:
    made = SequenceReplay(**SPECS, capacity=4 * N, num_envs=N, sequence_length=2)
    state = made.add(made.init(), replace(rollout(0, 2), action_mask=None, carry=()))
    mask = made.read(state, jnp.array([0])).action_mask
    assert mask is not None
    assert bool(mask.all())


def test_whole_numbers_are_stored_in_bytes_and_sampled_as_declared() -> None:
    spec = Box((1,), "float32", 0, 255, whole=True)
    made = SequenceReplay(
        obs_spec=spec, action_spec=Discrete(2), capacity=4 * N, num_envs=N, sequence_length=2
    )
    one = replace(rollout(0, 4), carry=())
    floats = replace(
        one, obs=one.obs.astype(jnp.float32), next_obs=one.next_obs.astype(jnp.float32)
    )
    state = made.add(made.init(), floats)
    assert state.steps.obs.dtype == state.steps.next_obs.dtype == jnp.uint8
    read = made.read(state, jnp.array([2, 3]))
    np.testing.assert_array_equal(read.obs, floats.obs[1:3], strict=True)
    np.testing.assert_array_equal(read.next_obs, floats.next_obs[1:3], strict=True)


@pytest.mark.slow
def test_samples_by_priority_follow_it() -> None:
    """New sequences get the largest weight so far; those that were overwritten are gone."""
    made = SequenceReplay(
        **SPECS, capacity=8 * N, num_envs=N, sequence_length=4, period=2, prioritized=True
    )

    def weights(state: SequenceReplayState) -> list[float]:
        assert state.priorities is not None
        return state.priorities.weight[: made.starts.capacity].tolist()

    state = filled(made, [rollout(0, 4)])
    assert weights(state) == [1, 1, 0, 0, 0, 0, 0, 0]  # the sequence at step 2 is not complete
    state = made.update_priorities(state, jnp.array([1]), jnp.array([3.0]))
    counts = np.bincount(made.sample(state, jax.random.key(0), 400).slot, minlength=8)
    np.testing.assert_allclose(counts, [100, 300, 0, 0, 0, 0, 0, 0], atol=1.01)
    add = lambda state, time: made.add(state, rollout(time, 4), carries(rollout(time, 4), 2))  # noqa: E731
    state = add(state, 4)
    assert weights(state) == [1, 3, 3, 3, 3, 3, 0, 0]
    state = made.update_priorities(state, jnp.array([4, 5]), jnp.array([0.5, 0.25]))
    state = add(state, 8)  # over the first four starts; those at step 6 are complete now
    assert weights(state) == [3, 3, 0, 0, 0.5, 0.25, 3, 3]


def test_priorities_of_a_uniform_replay_change_nothing() -> None:
    made = SequenceReplay(**SPECS, capacity=4 * N, num_envs=N, sequence_length=2)
    state = made.init()
    assert made.update_priorities(state, jnp.array([0]), jnp.array([1.0])) is state


def test_the_priority_mixes_the_largest_and_the_average_error() -> None:
    error = jnp.array([[1.0, 0.0], [-3.0, 0.0], [2.0, 6.0]])
    # 0.75 * 3 + 0.25 * 2 and 0.75 * 6 + 0.25 * 2.
    np.testing.assert_allclose(sequence_priority(error, 0.75), [2.75, 5.0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_starts": 10}, r"sequence length \* num_envs <= learning_starts .* got 12, 10"),
        ({"buffer_size": 8}, "got 12, 16 and 8"),
        ({"sequence_period": 3}, "sequence_period must divide rollout_length = 4, got 3"),
    ],
)
def test_impossible_sizes_are_refused(options: dict[str, Any], message: str) -> None:
    class RecallConfig(SequenceReplayConfig):
        sequence_length = 6
        sequence_period = options.pop("sequence_period", 1)

    given: dict[str, Any] = {
        "num_envs": 2,
        "rollout_length": 4,
        "buffer_size": 64,
        "learning_starts": 16,
    }
    with pytest.raises(TriglotError, match=message):
        RecallConfig(**given | options)
