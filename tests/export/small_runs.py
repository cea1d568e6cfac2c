"""Runs with tiny networks and random weights, made without training."""

import functools
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from triglot.runs.load import Run
from triglot.runs.registry.agents import make_agent
from triglot.runs.registry.environments import make_env

SMALL: dict[str, Any] = {"hidden_sizes": (5, 6), "num_envs": 4, "rollout_length": 4}
SMALL |= {"num_epochs": 4, "num_minibatches": 4}
REPLAY = {"hidden_sizes": (5, 6), "num_envs": 2, "rollout_length": 1, "buffer_size": 32}
REPLAY |= {"batch_size": 4, "learning_starts": 4}
SEQUENCES = {**REPLAY, "cell_size": 3, "rollout_length": 2, "burn_in_length": 1, "unroll_length": 2}
SEQUENCES |= {"n_step": 1, "num_gradient_steps": 1, "learning_starts": 16, "buffer_size": 64}
IMAGES = {**SMALL, "hidden_sizes": (6,), "channels": (3, 2), "kernel_size": 2, "stride": (2, 1)}
CLIPPED = {"bounds": "clip", "state_dependent_std": True, "initial_std": 0.5}
RESIDUAL = {**SMALL, "hidden_sizes": (6,), "torso": "impala", "channels": (2,)}

# Algorithm, environment and configuration.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "discrete": ("ppo", "probe:two-step", SMALL),
    "continuous": ("ppo", "probe:reach", SMALL),
    "clipped": ("ppo", "probe:reach", {**SMALL, **CLIPPED}),
    "multi": ("ppo", "probe:two-dials", SMALL),
    "shared": ("ppo", "probe:two-step", {**SMALL, "shared_torso": True}),
    "images": ("ppo", "tests.conformance.pictures:Pictures", IMAGES),
    "residual": ("ppo", "tests.conformance.pictures:Pictures", RESIDUAL),
    "tiles": ("ppo", "tests.conformance.pictures:Tiles", IMAGES),
    "lstm": ("ppo", "probe:two-step", {**SMALL, "cell": "lstm", "cell_size": 3}),
    "gru": ("ppo", "probe:two-step", {**SMALL, "cell": "gru", "cell_size": 3}),
    "dueling": ("dqn", "probe:two-step", {**REPLAY, "dueling": True}),
    "twins": ("sac", "probe:reach", {**REPLAY, "normalize_obs": True}),
    "logits": ("sac", "probe:two-step", REPLAY),
    "quantiles": ("qr_dqn", "probe:two-step", {**REPLAY, "num_quantiles": 3}),
    "atoms": ("c51", "probe:two-step", {**REPLAY, "num_atoms": 4}),
    "deterministic": ("td3", "probe:reach", REPLAY),
    "sequences": ("r2d2", "probe:two-step", SEQUENCES),
    "extended": ("ppo+rnd", "probe:two-step", {**SMALL, "normalize_obs": True}),
    "drawn": ("iqn", "probe:two-step", REPLAY),
    "table": ("q_learning", "gridworld:3x3", {}),
}


@functools.cache
def small_run(kind: str, backend: str = "linen", arithmetic: str = "canonical") -> Run:
    """Make a run of two seeds whose weights and statistics are random; nothing is trained."""
    algorithm, name, config = KINDS[kind]
    env = make_env(name)
    agent = make_agent(algorithm, env, backend=backend, arithmetic=arithmetic, config=config)
    one = jax.eval_shape(lambda: agent.init(jax.random.key(0), agent.num_envs))
    states = jax.tree_util.tree_map_with_path(_random, one)
    return Run(agent=agent, env=env, agent_states=states, num_updates=3)


def _random(path: Any, leaf: Any) -> jax.Array:
    """Draw an array by its path, so that it is the same whatever other arrays there are."""
    shape, name = (2, *leaf.shape), jax.tree_util.keystr(path)
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if leaf.dtype != np.float32:
        return jnp.zeros(shape, leaf.dtype)
    low, high = (0.5, 1.5) if "variance" in name else (-1.0, 1.0)
    return jnp.asarray(rng.uniform(low, high, shape), jnp.float32)


def seed_of(run: Run, index: int) -> Any:
    """Select the agent state of one seed."""
    return jax.tree.map(lambda leaf: leaf[index], run.agent_states)
