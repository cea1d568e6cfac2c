"""GAE, V-trace, n-step returns and the replay, against NumPy written from the papers alone."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import strategies as st

from tests.properties import examples
from triglot.core.rl.losses import gae, vtrace
from triglot.core.rl.replay import Replay, Step, n_step_return
from triglot.core.specs import Box, Discrete


def flags(rng: np.random.Generator, shape: tuple[int, ...], share: float) -> tuple[Any, Any]:
    """Draw where episodes terminate and where they are truncated; at most one of the two."""
    terminated = rng.random(shape) < share
    return terminated, (rng.random(shape) < share) & ~terminated


@examples(
    quick=10,
    slow=500,
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 12),
    num_envs=st.integers(1, 3),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
def test_gae_is_the_sum_of_the_paper(
    seed: int,
    num_steps: int,
    num_envs: int,
    share: float,
    discount: float,
    gae_lambda: float,
) -> None:
    """A_t = sum_l (discount * lambda)^l delta_{t+l} (Schulman et al. 2016, equation 16).

    The sum ends with the episode or the rollout; a truncated episode's last delta has the value of
    its true successor, a terminated one's has none.
    """
    rng = np.random.default_rng(seed)
    shape = (num_steps, num_envs)
    reward, value, next_value = rng.normal(size=(3, *shape))
    terminated, truncated = flags(rng, shape, share)
    # The next step's state is the successor, except after an episode's end.
    next_value[:-1] = np.where((terminated | truncated)[:-1], next_value[:-1], value[1:])
    expected = np.zeros(shape)
    for env in range(num_envs):
        for start in range(num_steps):
            for step in range(start, num_steps):
                successor = 0.0 if terminated[step, env] else next_value[step, env]
                delta = reward[step, env] + discount * successor - value[step, env]
                expected[start, env] += (discount * gae_lambda) ** (step - start) * delta
                if terminated[step, env] or truncated[step, env]:
                    break
    advantage, target = jax.jit(gae)(
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        jnp.asarray(value, jnp.float32),
        jnp.asarray(next_value, jnp.float32),
        discount,
        gae_lambda,
    )
    np.testing.assert_allclose(advantage, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(target, expected + value, rtol=1e-4, atol=1e-4)


@examples(
    quick=10,
    slow=500,
    seed=st.integers(0, 2**32 - 1),
    num_steps=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    trace_lambda=st.sampled_from([0.0, 0.95, 1.0]),
    rho_clip=st.sampled_from([0.5, 1.0, 4.0]),
    pg_rho_clip=st.sampled_from([0.5, 1.0, 4.0]),
)
def test_vtrace_is_the_sum_of_the_paper(
    seed: int,
    num_steps: int,
    share: float,
    discount: float,
    trace_lambda: float,
    rho_clip: float,
    pg_rho_clip: float,
) -> None:
    """v_s = V(x_s) + sum_t discount^{t-s} (prod c_i) delta_t V (Espeholt et al. 2018, equation 1).

    The sum ends with the episode or the rollout, as that of `gae`.
    """
    rng = np.random.default_rng(seed)
    shape = (num_steps, 2)
    reward, value, next_value = rng.normal(size=(3, *shape))
    ratio = np.exp(rng.normal(size=shape))
    terminated, truncated = flags(rng, shape, share)
    next_value[:-1] = np.where((terminated | truncated)[:-1], next_value[:-1], value[1:])
    target, advantage = value.copy(), np.zeros(shape)
    for env in range(shape[1]):
        for start in reversed(range(num_steps)):
            trace = 1.0
            for step in range(start, num_steps):
                successor = 0.0 if terminated[step, env] else next_value[step, env]
                delta = reward[step, env] + discount * successor - value[step, env]
                rho = min(rho_clip, ratio[step, env])
                target[start, env] += discount ** (step - start) * trace * rho * delta
                trace *= trace_lambda * min(1.0, ratio[step, env])
                if terminated[step, env] or truncated[step, env]:
                    break
            after = 0.0 if terminated[start, env] else next_value[start, env]
            if start + 1 < num_steps and not (terminated | truncated)[start, env]:
                # rlax mixes the next target with the next value where the lambda is below 1.
                after += trace_lambda * (target[start + 1, env] - value[start + 1, env])
            q = reward[start, env] + discount * after
            advantage[start, env] = min(pg_rho_clip, ratio[start, env]) * (q - value[start, env])
    found = jax.jit(vtrace)(
        jnp.asarray(reward, jnp.float32),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        jnp.asarray(value, jnp.float32),
        jnp.asarray(next_value, jnp.float32),
        jnp.asarray(ratio, jnp.float32),
        discount,
        trace_lambda,
        rho_clip,
        pg_rho_clip,
    )
    np.testing.assert_allclose(found[0], advantage, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found[1], target, rtol=1e-4, atol=1e-4)


def oracle_n_step(
    reward: Any, terminated: Any, truncated: Any, discount: float
) -> tuple[float, float, int]:
    """Return the sum of rewards, the discount of the successor's value, and the last step."""
    total = 0.0
    for step in range(len(reward)):
        total += discount**step * reward[step]
        if terminated[step]:
            return total, 0.0, step
        if truncated[step]:
            return total, discount ** (step + 1), step
    return total, discount ** len(reward), len(reward) - 1


@examples(
    quick=10,
    slow=500,
    seed=st.integers(0, 2**32 - 1),
    n_step=st.integers(1, 6),
    share=st.sampled_from([0.0, 0.2, 0.5]),
    discount=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
)
def test_n_step_returns_are_the_sum_of_the_book(
    seed: int, n_step: int, share: float, discount: float
) -> None:
    """G = R_1 + discount R_2 + ... (Sutton and Barto 2018, equation 7.1)."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(n_step, 8))
    terminated, truncated = flags(rng, reward.shape, share)
    found = jax.jit(n_step_return)(
        jnp.asarray(reward, jnp.float32), jnp.asarray(terminated), jnp.asarray(truncated), discount
    )
    for column in range(reward.shape[1]):
        expected = oracle_n_step(
            reward[:, column], terminated[:, column], truncated[:, column], discount
        )
        for mine, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine[column], other, rtol=1e-5, atol=1e-5)


@examples(
    quick=5,
    slow=150,
    seed=st.integers(0, 2**32 - 1),
    num_envs=st.integers(1, 3),
    length=st.integers(1, 3),
    num_blocks=st.integers(1, 4),
    num_rollouts=st.integers(1, 12),
    n_step=st.integers(1, 4),
    prioritized=st.booleans(),
)
def test_a_replay_is_a_list_of_the_last_steps(
    seed: int,
    num_envs: int,
    length: int,
    num_blocks: int,
    num_rollouts: int,
    n_step: int,
    prioritized: bool,
) -> None:
    """Every sample is `n_step` successive kept steps of one environment, drawn as often as it says.

    The list of all steps of each environment is the oracle.
    """
    capacity, discount = length * num_envs * num_blocks, 0.9
    kept = min(num_rollouts * length, length * num_blocks)  # of each environment
    if kept < n_step:
        return
    replay = Replay(
        obs_spec=Box((1,)),
        action_spec=Discrete(1000),
        capacity=capacity,
        num_envs=num_envs,
        n_step=n_step,
        prioritized=prioritized,
    )
    rng = np.random.default_rng(seed)
    state, add = replay.init(), jax.jit(replay.add)
    draw = jax.jit(replay.sample, static_argnums=2)
    total = num_rollouts * length
    reward = rng.normal(size=(total, num_envs)).astype(np.float32)
    terminated, truncated = flags(rng, reward.shape, 0.2)
    number = np.arange(total * num_envs).reshape(total, num_envs)  # names each step
    for start in range(0, total, length):
        rows = slice(start, start + length)
        obs = jnp.asarray(number[rows, :, None], jnp.float32)
        state = add(
            state,
            Step(
                obs=obs,
                action=jnp.asarray(number[rows]),
                reward=jnp.asarray(reward[rows]),
                terminated=jnp.asarray(terminated[rows]),
                truncated=jnp.asarray(truncated[rows]),
                next_obs=obs + 0.5,
                next_action_mask=jnp.ones((length, num_envs, 1000), bool),
            ),
        )
    starts = {int(number[step, env]) for step in range(total - kept, total - n_step + 1)
              for env in range(num_envs)}  # fmt: skip
    weights = dict.fromkeys(starts, 1.0)
    if prioritized:  # give each slot a weight of its own
        first = draw(state, jax.random.key(1), 64, discount)
        slots = np.unique(np.asarray(first.slot), return_index=True)
        given = rng.uniform(0.1, 2.0, size=len(slots[0])).astype(np.float32)
        state = jax.jit(replay.update_priorities)(state, jnp.asarray(slots[0]), jnp.asarray(given))
        names = np.asarray(first.action)[slots[1]]
        weights.update(dict(zip(map(int, names), map(float, given), strict=True)))
    drawn = draw(state, jax.random.key(seed % 1000), 256, discount)
    sample = jax.tree.map(np.asarray, drawn)
    assert {int(name) for name in sample.action} <= starts
    for index in range(0, 256, 5):
        step, env = divmod(int(sample.action[index]), num_envs)
        rows = slice(step, step + n_step)
        value, factor, last = oracle_n_step(
            reward[rows, env], terminated[rows, env], truncated[rows, env], discount
        )
        np.testing.assert_allclose(sample.reward[index], value, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(sample.discount[index], factor, rtol=1e-5)
        assert float(sample.obs[index, 0]) == number[step, env]
        assert float(sample.next_obs[index, 0]) == number[step + last, env] + 0.5
        probability = weights[int(sample.action[index])] / sum(weights.values())
        np.testing.assert_allclose(sample.probability[index], probability, rtol=1e-4)
