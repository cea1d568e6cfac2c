"""R2D2's loss against numbers worked out by hand, and against NumPy on random sequences."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.algorithms.r2d2 import R2D2, R2D2Config, R2D2Hyperparams
from triglot.backends import build
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.errors import TriglotError
from triglot.core.families.action_values import ReplayedBatch
from triglot.core.hyper import as_float32
from triglot.core.network import Network, Variables
from triglot.core.rl.sequences import Sequences
from triglot.core.specs import Box, Discrete


def summing(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False) -> Any:
    """Sum what was seen since the episode's start, times a weight for each action."""
    del key, train
    obs, carry = inputs
    total = carry + obs[:, 0]
    return ({"q": total[:, None] * variables.params["w"][None]}, total), ()


SUMMING = Network(
    name="summing",
    backend="haiku",
    init=lambda key: Variables(params={"w": jnp.array([1.0, 2.0])}, state=()),
    apply=summing,
    recurrent=True,
    initial_carry=lambda variables, num_envs: jnp.zeros((num_envs,)),
)
ONLINE = Variables(params={"w": jnp.array([1.0, -1.0])}, state=())
TARGET = Variables(params={"w": jnp.array([0.5, 2.0])}, state=())
PLAIN = {"rescale_values": False, "prioritized": False}


def agent(**options: Any) -> R2D2:
    given = {"num_envs": 1, "rollout_length": 4, "learning_starts": 16, "batch_size": 1, **options}
    config = R2D2Config(**given)
    return R2D2(SUMMING, Box((1,)), Discrete(2), config, R2D2Hyperparams(discount=0.5))


def column(*numbers: Any) -> jax.Array:
    return jnp.asarray(numbers)[:, None]


def steps(**fields: Any) -> Trajectory:
    """Make four steps of one environment: the carry before is 1, and each observation is 1."""
    never = column(False, False, False, False)
    given = {
        "obs": jnp.ones((4, 1, 1)),
        "first": never,
        "action_mask": None,
        "action": column(0, 1, 0, 0),
        "reward": column(8.0, 1.0, 2.0, 4.0),
        "terminated": never,
        "truncated": never,
        "next_obs": jnp.ones((4, 1, 1)),
        "next_action_mask": None,
        "extras": {},
        "carry": jnp.array([1.0]),
        **fields,
    }
    return Trajectory(**given)


def errors(made: R2D2, given: Trajectory, weight: float = 1.0) -> tuple[float, dict[str, Any]]:
    sequences = Sequences(steps=given, slot=jnp.array([0]), probability=jnp.array([1.0]))
    batch = ReplayedBatch(
        sample=sequences,
        target=TARGET,
        weight=jnp.array([weight]),
        hyper=as_float32(made.hyper),
    )
    value, (metrics, _) = jax.jit(made.loss)(ONLINE, batch, jax.random.key(0))
    return float(value), metrics


ONE_STEP = {**PLAIN, "burn_in_length": 1, "unroll_length": 3, "n_step": 1, "double": False}
# After the burn-in the sum is 2, so the online values of the three steps are (3, -3), (4, -4) and
# (5, -5); those of actions 1, 0, 0 are -3, 4, 5. The target's of the successors, which sum to 4, 5
# and 6, are (2, 8), (2.5, 10) and (3, 12).


def test_one_step_errors_after_a_burn_in() -> None:
    total, metrics = errors(agent(**ONE_STEP), steps(), weight=0.5)
    # 1 + 0.5 * 8 + 3 = 8; 2 + 0.5 * 10 - 4 = 3; 4 + 0.5 * 12 - 5 = 5
    np.testing.assert_allclose(total, 0.5 * 0.5 * (64 + 9 + 25) / 3, rtol=1e-6)
    # 0.9 * 8 + 0.1 * 16 / 3
    np.testing.assert_allclose(metrics["td_errors"], [0.9 * 8 + 0.1 * 16 / 3], rtol=1e-6)
    np.testing.assert_allclose(metrics["q"], 0.0, atol=1e-6)


def test_double_q_learning_values_the_online_network_s_choice() -> None:
    total, _ = errors(agent(**{**ONE_STEP, "double": True}), steps())
    # The online network prefers action 0, whose values are 2, 2.5 and 3 in the target network:
    # 1 + 1 + 3 = 5; 2 + 1.25 - 4 = -0.75; 4 + 1.5 - 5 = 0.5
    np.testing.assert_allclose(total, 0.5 * (25 + 0.5625 + 0.25) / 3, rtol=1e-6)


def test_two_steps_and_the_end_of_the_sequence() -> None:
    total, _ = errors(agent(**{**ONE_STEP, "n_step": 2}), steps())
    # 1 + 0.5 * 2 + 0.25 * 10 + 3 = 7.5; 2 + 0.5 * 4 + 0.25 * 12 - 4 = 3; the last as before, 5
    np.testing.assert_allclose(total, 0.5 * (56.25 + 9 + 25) / 3, rtol=1e-6)


def test_values_are_rescaled() -> None:
    made = agent(**{**ONE_STEP, "rescale_values": True, "unroll_length": 1})
    given = jax.tree.map(lambda leaf: leaf[:2], replace(steps(), carry=()))
    _, metrics = errors(made, replace(given, carry=jnp.array([1.0])))
    # h^-1(8) = ((sqrt(1 + 0.004 * (8 + 1 + 0.001)) - 1) / 0.002)^2 - 1 = 78.591...
    inverse = ((np.sqrt(1 + 4e-3 * (8 + 1 + 1e-3)) - 1) / 2e-3) ** 2 - 1
    target = 1.0 + 0.5 * inverse
    expected = np.sqrt(target + 1) - 1 + 1e-3 * target + 3.0
    np.testing.assert_allclose(metrics["td_errors"], [expected], rtol=1e-4)


def test_a_new_episode_inside_a_sequence_starts_from_the_initial_carry() -> None:
    """A truncated step bootstraps from its own successor, and a terminated one does not."""
    ended = column(False, True, False, False)
    seen = {"first": column(False, False, True, False), "next_obs": jnp.full((4, 1, 1), 3.0)}
    made = agent(**{**ONE_STEP, "n_step": 2})
    truncated, _ = errors(made, steps(**seen, truncated=ended))
    # The successor 3 of the sum 3 is 6, worth 12: 1 + 0.5 * 12 + 3 = 10, the next episode's rewards
    # do not count. Then the sums are 1 and 2, and the last successor is worth 2 * (2 + 3) = 10:
    # 2 + 0.5 * 4 + 0.25 * 10 - 1 = 5.5; 4 + 0.5 * 10 - 2 = 7
    np.testing.assert_allclose(truncated, 0.5 * (100 + 30.25 + 49) / 3, rtol=1e-6)
    terminated, _ = errors(made, steps(**seen, terminated=ended))
    # 1 + 3 = 4
    np.testing.assert_allclose(terminated, 0.5 * (16 + 30.25 + 49) / 3, rtol=1e-6)


def test_an_episode_that_starts_in_the_burn_in_forgets_the_stored_carry() -> None:
    made = agent(**ONE_STEP)
    first = column(True, False, False, False)
    carries = [errors(made, steps(first=first, carry=jnp.array([one]))) for one in (1.0, 7.0)]
    assert carries[0][0] == carries[1][0]


def test_forbidden_actions_are_not_bootstrapped_on() -> None:
    mask = jnp.tile(jnp.array([True, False]), (4, 1, 1)).at[3].set(False)
    ended = column(False, False, False, True)  # where nothing is allowed, nothing is NaN
    total, _ = errors(agent(**ONE_STEP), steps(next_action_mask=mask, terminated=ended))
    # As with double Q-learning; the last one is 4 - 5 = -1.
    np.testing.assert_allclose(total, 0.5 * (25 + 0.5625 + 1) / 3, rtol=1e-6)


def oracle(made: R2D2, given: Trajectory) -> np.ndarray:
    """Compute the errors `[L, B]` step by step in NumPy."""
    config, discount = made.config, 0.5
    w, w_target = np.array([1.0, -1.0]), np.array([0.5, 2.0])
    got = {name: np.asarray(leaf) for name, leaf in vars(given).items() if name != "extras"}
    length, batch = got["reward"].shape
    q, value = np.zeros((length, batch)), np.zeros((length, batch))

    def h(x: float) -> float:
        return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x

    def inverse(x: float) -> float:
        root = np.sqrt(1 + 4e-3 * (abs(x) + 1 + 1e-3))
        return np.sign(x) * (((root - 1) / 2e-3) ** 2 - 1)

    for row in range(batch):
        total = got["carry"][row]
        for time in range(length):
            total = (0.0 if got["first"][time, row] else total) + got["obs"][time, row, 0]
            q[time, row] = total * w[got["action"][time, row]]
            after = total + got["next_obs"][time, row, 0]
            allowed = got["next_action_mask"][time, row]
            best = np.argmax(np.where(allowed, after * w, -np.inf))
            value[time, row] = inverse(after * w_target[best])
    found = np.zeros((length, batch))
    for row in range(batch):
        for time in range(length):
            target, factor = 0.0, 1.0
            for now in range(time, min(time + config.n_step, length)):
                target += factor * got["reward"][now, row]
                factor *= 0.0 if got["terminated"][now, row] else discount
                last = now == min(time + config.n_step, length) - 1
                last |= got["first"][min(now + 1, length - 1), row]  # the episode was cut
                if last or got["truncated"][now, row] or got["terminated"][now, row]:
                    target += factor * value[now, row]
                    break
            found[time, row] = h(target) - q[time, row]
    return found[config.burn_in_length :]


@pytest.mark.covering(3)
@pytest.mark.parametrize(("burn_in", "n_step"), [(0, 1), (3, 3), (2, 12)])
def test_it_is_the_loss_of_the_paper_on_random_sequences(burn_in: int, n_step: int) -> None:
    draws, shape = np.random.default_rng(0), (9, 16)
    ended = draws.random(shape)
    mask = draws.random((*shape, 2)) < 0.7
    mask[..., 0] |= ~mask.any(-1)
    obs, first = draws.normal(size=(*shape, 1)), draws.random(shape) < 0.2
    # An episode goes on with the next step, unless it ended or that one begins another.
    goes_on = (ended[:-1] >= 0.1) & (ended[:-1] <= 0.9) & ~first[1:]
    next_obs = draws.normal(size=(*shape, 1))
    next_obs[:-1] = np.where(goes_on[..., None], obs[1:], next_obs[:-1])
    given = Trajectory(
        obs=jnp.asarray(obs, jnp.float32),
        first=jnp.asarray(first),
        action_mask=jnp.ones((*shape, 2), bool),
        action=jnp.asarray(draws.integers(0, 2, shape), jnp.int32),
        reward=jnp.asarray(draws.normal(size=shape), jnp.float32),
        terminated=jnp.asarray(ended < 0.1),
        truncated=jnp.asarray(ended > 0.9),
        next_obs=jnp.asarray(next_obs, jnp.float32),
        next_action_mask=jnp.asarray(mask),
        extras={},
        carry=jnp.asarray(draws.normal(size=16), jnp.float32),
    )
    made = agent(burn_in_length=burn_in, unroll_length=9 - burn_in, n_step=n_step, batch_size=16)
    weight = jnp.asarray(draws.random(16), jnp.float32)
    sequences = Sequences(steps=given, slot=jnp.arange(16), probability=jnp.ones(16) / 16)
    hyper = as_float32(made.hyper)
    batch = ReplayedBatch(sample=sequences, target=TARGET, weight=weight, hyper=hyper)
    total, (metrics, _) = jax.jit(made.loss)(ONLINE, batch, jax.random.key(0))
    found = oracle(made, given)
    size = np.abs(found)
    np.testing.assert_allclose(
        metrics["td_errors"], 0.9 * size.max(0) + 0.1 * size.mean(0), rtol=2e-3, atol=2e-3
    )
    expected = np.mean(np.asarray(weight) * 0.5 * np.mean(found**2, axis=0))
    np.testing.assert_allclose(total, expected, rtol=2e-3)


def test_the_gradient_flows_through_the_chosen_values_alone() -> None:
    made = agent(**ONE_STEP)
    sequences = Sequences(steps=steps(), slot=jnp.array([0]), probability=jnp.array([1.0]))
    hyper = as_float32(made.hyper)
    batch = ReplayedBatch(sample=sequences, target=TARGET, weight=jnp.ones(1), hyper=hyper)
    gradient = jax.jit(jax.grad(lambda v: made.loss(v, batch, jax.random.key(0))[0]))(
        ONLINE
    ).params["w"]
    # -error * sum / 3, with the errors 3 and 5 of action 0 at the sums 4 and 5, and 8 of action 1
    # at the sum 3; the sums after the burn-in do not depend on the weights.
    np.testing.assert_allclose(gradient, [-(3 * 4 + 5 * 5) / 3, -8 * 3 / 3], rtol=1e-6)


def test_each_environment_has_its_own_epsilon() -> None:
    """With epsilon 0.5 and alpha 3 those of three environments are 2^-1, 2^-2.5 and 2^-4."""
    made = agent(num_envs=3, learning_starts=3000)
    hyper = replace(made.hyper, epsilon=0.5, epsilon_alpha=3.0)
    state = made.init(jax.random.key(0), 3, hyper)
    inputs = PolicyInput(obs=jnp.ones((3, 1)), first=jnp.zeros(3, bool))

    def act(key: jax.Array) -> jax.Array:
        return made.act(state, jnp.zeros(3), inputs, key, explore=True).action

    actions = jax.vmap(act)(jax.random.split(jax.random.key(1), 20_000))
    # The greedy action is 1; half of the random ones are 0.
    share = 2.0 * jnp.mean((actions == 0).astype(jnp.float32), axis=0)
    np.testing.assert_allclose(share, [0.5, 2**-2.5, 2**-4], atol=0.02)


def test_a_network_without_a_carry_is_refused() -> None:
    plain = build("linen", R2D2.networks(Box((1,)), Discrete(2)))
    R2D2(plain, Box((1,)), Discrete(2))
    one_step = replace(plain, recurrent=False)
    with pytest.raises(TriglotError, match=r"R2D2 replays sequences .* has no carry: use DQN"):
        R2D2(one_step, Box((1,)), Discrete(2))


def test_other_actions_are_refused() -> None:
    with pytest.raises(TriglotError, match="R2D2 supports discrete actions"):
        R2D2.networks(Box((1,)), Box((1,), low=-1.0, high=1.0))
