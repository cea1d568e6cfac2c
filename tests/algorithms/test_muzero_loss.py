"""MuZero's loss against numbers worked out by hand, and against a loop over sequences in NumPy."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import triglot
from triglot.algorithms.muzero import MuZero, MuZeroConfig, MuZeroHyperparams
from triglot.core.agent import PolicyInput, Trajectory
from triglot.core.loop.rollout import rollout
from triglot.core.network import Network, Variables
from triglot.core.networks.combinators import combine
from triglot.core.specs import Box, Discrete
from triglot.core.trainers import make_trainer

OBS, ACTIONS, BINS = Box((2,)), Discrete(2), 3


def part(name: str, outputs: Any) -> Network:
    """Make a network of one number `[]`, its parameter: `outputs(number, inputs)` are its heads."""

    def apply(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False) -> Any:
        return outputs(variables.params, inputs), variables.state

    def init(key: jax.Array) -> Variables:
        del key
        return Variables(params=jnp.float32(1.0), state=())

    return Network(name=name, backend="core", init=init, apply=apply)


def represent(number: jax.Array, obs: jax.Array) -> Any:
    return {"latent": number * obs}


def advance(number: jax.Array, inputs: Any) -> Any:
    latent, action = inputs
    moved = latent[:, ::-1] * (1.0 + action)
    return {"latent": moved, "reward": number * jnp.pad(action, ((0, 0), (0, 1)))}


def predict(number: jax.Array, latent: jax.Array) -> Any:
    return {"logits": number * latent, "value": number * jnp.pad(latent, ((0, 0), (1, 0)))}


def agent(unroll_steps: int, support: float = 1.0) -> MuZero:
    parts = {"representation": represent, "dynamics": advance, "prediction": predict}
    config = MuZeroConfig(
        unroll_steps=unroll_steps, latent_size=2, num_bins=BINS, support=support, hidden_sizes=(4,)
    )
    network = combine({name: part(name, outputs) for name, outputs in parts.items()})
    return MuZero(network, OBS, ACTIONS, config)


def steps(**fields: Any) -> Trajectory:
    nothing = jnp.zeros(fields["reward"].shape, bool)
    values = {
        "first": nothing,
        "action_mask": None,
        "terminated": nothing,
        "truncated": nothing,
        "next_obs": fields["obs"],
        "next_action_mask": None,
        "carry": (),
    }
    return Trajectory(**values | fields)


def loss(made: MuZero, given: Trajectory) -> tuple[float, dict[str, jax.Array]]:
    hyper = MuZeroHyperparams(value_coef=0.25, reward_coef=1.0)
    variables = made.network.init(jax.random.key(0))
    total, (metrics, _) = jax.jit(made.loss)(variables, (given, hyper), jax.random.key(0))
    return float(total), metrics


def test_one_step_by_hand() -> None:
    given = steps(
        obs=jnp.array([[[0.0, 1.0]], [[5.0, 5.0]]]),
        action=jnp.array([[0], [1]]),
        reward=jnp.array([[3.0], [7.0]]),
        extras={
            "probs": jnp.array([[[1.0, 0.0]], [[0.5, 0.5]]]),
            "target": jnp.array([[0.0], [-3.0]]),
        },
    )
    total, metrics = loss(agent(1), given)
    # The latent state (0, 1) has the logits (0, 1), and (0, 0, 1) over the bins -1, 0 and 1.
    e = np.e
    policy = [np.log(1 + e), np.log(1 + e) - 0.5]
    # h(0) = 0 is the middle bin. h(-3) = -(2 - 1) - 0.003, clipped to the first bin.
    # Action 0 is (1, 0): it moves the state to (1, 0) * (2, 1) = (2, 0), which is scaled to (1, 0).
    value = [np.log(2 + e), np.log(2 + e)]
    # h(3) = 1.003 is the last bin, and the reward's logits are (1, 0, 0).
    reward = np.log(2 + e)
    expected = policy[0] + policy[1] + 0.25 * (value[0] + value[1]) + reward
    np.testing.assert_allclose(total, expected, rtol=1e-4)
    np.testing.assert_allclose(metrics["policy_loss"], np.mean(policy), rtol=1e-5)
    np.testing.assert_allclose(metrics["reward_loss"], reward, rtol=1e-5)


@pytest.mark.slow
def test_reanalyzed_sequences_have_the_targets_of_new_searches() -> None:
    """Whatever was stored for them; the other sequences keep what was stored."""
    num_steps, batch, fresh = 3, 5, 2
    made = agent(num_steps, support=2.0)
    config = replace(made.config, reanalyze_fraction=0.4, num_simulations=4)
    made, rng = replace(made, config=config, two_players=True), np.random.default_rng(0)
    shape = (num_steps + 1, batch)
    terminated, truncated = np.zeros((2, *shape), bool)
    terminated[1, 0] = truncated[2, 1] = True
    given = steps(
        obs=jnp.float32(rng.normal(size=(*shape, 2))),
        action=jnp.zeros(shape, jnp.int32),
        reward=jnp.float32(rng.normal(size=shape)),
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        next_obs=jnp.float32(rng.normal(size=(*shape, 2))),
        action_mask=jnp.asarray(rng.random((*shape, 2)) < 0.7).at[..., 0].set(True),
        extras={"probs": jnp.full((*shape, 2), 0.5), "target": jnp.full(shape, 99.0)},
    )
    state, key = jax.jit(made.init, static_argnums=1)(jax.random.key(0), 2), jax.random.key(1)
    hyper = state.hyper
    found = jax.jit(made.reanalyze)(state, given, key)

    flat = jax.tree.map(lambda leaf: leaf[:, :fresh].reshape(-1, *leaf.shape[2:]), given)
    inputs = PolicyInput(obs=flat.obs, first=flat.first, action_mask=flat.action_mask)
    searched = jax.jit(partial(made.search, explore=True))(state, inputs, key)
    assert (np.asarray(searched.probs)[~np.asarray(flat.action_mask)] == 0.0).all()
    probs = np.asarray(searched.probs).reshape(num_steps + 1, fresh, 2)
    value = np.asarray(searched.value).reshape(num_steps + 1, fresh)
    last = np.asarray(made.value(state.learner.variables, flat.next_obs)).reshape(value.shape)
    # Backwards in time; the other player moves next, so that what follows has the other sign.
    target = np.zeros_like(value)
    discount, decay = float(hyper.discount), float(hyper.td_lambda)
    for env in range(fresh):
        for t in reversed(range(num_steps + 1)):
            if terminated[t, env]:
                following = 0.0
            elif truncated[t, env] or t == num_steps:
                following = last[t, env]
            else:
                following = (1 - decay) * value[t + 1, env] + decay * target[t + 1, env]
            target[t, env] = given.reward[t, env] - discount * following
    np.testing.assert_allclose(found.extras["probs"][:, :fresh], probs, atol=1e-6)
    np.testing.assert_allclose(found.extras["target"][:, :fresh], target, rtol=1e-4)
    np.testing.assert_array_equal(found.extras["probs"][:, fresh:], 0.5)
    np.testing.assert_array_equal(found.extras["target"][:, fresh:], 99.0)
    kept = replace(found, extras=given.extras)
    assert jax.tree.all(jax.tree.map(np.array_equal, kept, given))


@pytest.mark.slow
def test_the_update_reanalyzes() -> None:
    """With all sequences searched again, what was stored of the searches changes nothing."""
    config: dict[str, Any] = {"num_envs": 2, "rollout_length": 8, "num_gradient_steps": 1}
    config |= {"batch_size": 4, "unroll_steps": 1, "hidden_sizes": (4,), "latent_size": 4}
    config |= {"buffer_size": 16, "learning_starts": 16, "num_simulations": 2}
    env: Any = triglot.make_env("probe:two-step")

    def change(fraction: float) -> bool:
        given = {**config, "reanalyze_fraction": fraction}
        made: Any = triglot.make_agent("muzero", env, backend="jax", config=given)
        trainer: Any = make_trainer(made, env)
        state = jax.jit(trainer.init)(jax.random.key(0))

        @jax.jit
        def learned(scale: jax.Array) -> Any:
            _, trajectory, _ = rollout(made, trainer.env, state, jax.random.key(1))
            extras = {**trajectory.extras, "value": trajectory.extras["value"] + scale}
            changed = replace(trajectory, extras=extras)
            return made.update(state.agent, changed, jax.random.key(2))[0].learner.variables.params

        pair = learned(jnp.float32(0.0)), learned(jnp.float32(9.0))
        return not jax.tree.all(jax.tree.map(np.array_equal, *pair))

    assert change(0.0) and not change(1.0)


def softmax_error(labels: np.ndarray, logits: np.ndarray) -> float:
    return float(-np.sum(labels * (logits - np.log(np.sum(np.exp(logits))))))


def two_hot(number: float, support: float) -> np.ndarray:
    """Share h(number) between the two nearest of the bins -support, 0 and support."""
    scaled = np.sign(number) * (np.sqrt(abs(number) + 1) - 1) + 0.001 * number
    place = np.clip(scaled / support, -1, 1) + 1
    low = min(int(place), 1)
    labels = np.zeros(BINS)
    labels[low], labels[low + 1] = low + 1 - place, place - low
    return labels


def scaled(latent: np.ndarray) -> np.ndarray:
    return (latent - latent.min()) / max(latent.max() - latent.min(), 1e-5)


@pytest.mark.slow
def test_random_sequences_with_ends_are_those_of_numpy() -> None:
    """Loop over the sequences and their steps: what follows an end, and of which kind, counts."""
    num_steps, batch, support = 4, 24, 2.0
    made = agent(num_steps, support)
    for seed in range(3):
        rng = np.random.default_rng(seed)
        shape = (num_steps + 1, batch)
        terminated = rng.random(shape) < 0.15
        truncated = (rng.random(shape) < 0.15) & ~terminated
        obs, reward, target = rng.normal(size=(*shape, 2)), *rng.normal(size=(2, *shape)) * 3
        action, probs = rng.integers(2, size=shape), rng.dirichlet([1.0, 1.0], size=shape)
        total = 0.0
        for b in range(batch):
            latent = scaled(obs[0, b])
            over = lost = False
            for k in range(num_steps + 1):
                weight = 1.0 if k == 0 else 1.0 / num_steps
                if not over:
                    total += weight * softmax_error(probs[k, b], latent)
                if not lost:
                    labels = two_hot(0.0 if over else target[k, b], support)
                    total += weight * 0.25 * softmax_error(labels, np.pad(latent, (1, 0)))
                if k == num_steps:
                    break
                taken = np.eye(2)[action[k, b]]
                if not lost:
                    labels = two_hot(0.0 if over else reward[k, b], support)
                    total += softmax_error(labels, np.pad(taken, (0, 1))) / num_steps
                latent = scaled(latent[::-1] * (1.0 + taken))
                lost |= bool(truncated[k, b]) and not over
                over |= bool(terminated[k, b] | truncated[k, b])
        given = steps(
            obs=jnp.float32(obs),
            action=jnp.asarray(action, jnp.int32),
            reward=jnp.float32(reward),
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
            extras={"probs": jnp.float32(probs), "target": jnp.float32(target)},
        )
        np.testing.assert_allclose(loss(made, given)[0], total / batch, rtol=1e-4)
