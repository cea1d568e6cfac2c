"""DQN on CartPole-v1 in plain JAX: the baseline for triglot's abstraction overhead.

One function, `train`, with dictionary parameters, optax and gymnax, without triglot. The
hyperparameters are purejaxrl's, with triglot's clipping of the global gradient norm. Unlike
purejaxrl, it bootstraps at time limits: `env.step_env` never resets, so the replay stores the true
successor. All random numbers are drawn before the loop.

Source: Mnih et al. 2015, https://doi.org/10.1038/nature14236; hyperparameters of
https://github.com/luchris429/purejaxrl.
"""

import functools
import time
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tyro
from tqdm import tqdm

from .harness import compile_timed
from .plain_ppo import ENV, ENV_PARAMS, reset, select, step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of one run, all of it static."""

    num_envs: int = 10
    batch_size: int = 128
    buffer_size: int = 10_000
    learning_starts: int = 10_000
    target_update_period: int = 50  # gradient steps
    hidden_sizes: tuple[int, int] = (120, 84)
    learning_rate: float = 2.5e-4
    adam_eps: float = 1e-8
    max_grad_norm: float = 10.0
    discount: float = 0.99
    epsilon_start: float = 1.0
    epsilon_end: float = 0.05
    epsilon_decay_steps: int = 250_000


def mlp(params: dict[str, Any], inputs: jax.Array) -> jax.Array:
    """Apply a relu network `[B, 4] -> [B, num_actions]`."""
    for layer in ("linear_0", "linear_1"):
        inputs = jax.nn.relu(inputs @ params[layer]["w"] + params[layer]["b"])
    return inputs @ params["head"]["w"] + params["head"]["b"]


def init_mlp(key: jax.Array, hidden_sizes: tuple[int, int]) -> dict[str, Any]:
    """Draw orthogonal weights, sqrt(2) in the hidden layers; biases are 0."""
    first, second = hidden_sizes
    sizes = {
        "linear_0": (4, first, 2.0**0.5),
        "linear_1": (first, second, 2.0**0.5),
        "head": (second, ENV.num_actions, 1.0),
    }
    return {
        name: {"w": jax.nn.initializers.orthogonal(scale)(k, (i, o)), "b": jnp.zeros(o)}
        for k, (name, (i, o, scale)) in zip(jax.random.split(key, 3), sizes.items(), strict=True)
    }


def optimizer(config: Config) -> optax.GradientTransformation:
    """Build Adam behind a global-norm clip."""
    clip = optax.clip_by_global_norm(config.max_grad_norm)
    return optax.flatten(optax.chain(clip, optax.adam(config.learning_rate, eps=config.adam_eps)))


@functools.partial(jax.jit, static_argnums=0)
def init(config: Config, key: jax.Array) -> dict[str, Any]:
    """Initialize the training state from a typed key."""
    net_key, env_key, run_key = jax.random.split(key, 3)
    params = init_mlp(net_key, config.hidden_sizes)
    obs, env_state = reset(jax.random.split(env_key, config.num_envs))
    size = config.buffer_size
    return {
        "params": params,
        "target": params,
        "opt_state": optimizer(config).init(params),
        "env_state": env_state,
        "obs": obs,
        "episode_return": jnp.zeros(config.num_envs),
        "replay": {
            "obs": jnp.zeros((size, 4)),
            "next_obs": jnp.zeros((size, 4)),
            "action": jnp.zeros(size, jnp.int32),
            "reward": jnp.zeros(size),
            "discount": jnp.zeros(size),
        },
        "num_updates": jnp.zeros((), jnp.int32),
        "key": run_key,
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(
    config: Config, num_updates: int, state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """Run `num_updates` updates in one compiled program.

    Args:
      config: static; `num_envs` divides `buffer_size`.
      num_updates: static.
      state: from `init` or from `train`.

    Returns:
      The next state and float32 metrics `[num_updates]`, with `episode_return`: NaN if no
      episode ended in an update's step.
    """
    num_envs, batch_size = config.num_envs, config.batch_size
    transform = optimizer(config)

    def loss(params, batch, next_q):
        q = mlp(params, batch["obs"])
        target = batch["reward"] + batch["discount"] * next_q.max(-1)
        error = jax.lax.stop_gradient(target) - select(q, batch["action"])
        value = 0.5 * (error**2).mean()
        return value, {"loss": value, "q": q.mean(), "td_error": jnp.abs(error).mean()}

    def learn(learner, replay, slots, num_updates):
        params, target, opt_state = learner
        batch = jax.tree.map(lambda leaf: leaf[slots], replay)
        next_q = mlp(target, batch["next_obs"])
        grads, metrics = jax.grad(loss, has_aux=True)(params, batch, next_q)
        updates, opt_state = transform.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        learned = num_updates - config.learning_starts // num_envs
        is_time = learned % config.target_update_period == 0
        target = jax.tree.map(lambda new, old: jnp.where(is_time, new, old), params, target)
        return (params, target, opt_state), metrics | {"grad_norm": optax.tree.norm(grads)}

    def update(state, drawn):
        replay, count = state["replay"], state["num_updates"]
        share = jnp.minimum(count * num_envs / config.epsilon_decay_steps, 1.0)
        epsilon = config.epsilon_start + share * (config.epsilon_end - config.epsilon_start)
        greedy = jnp.argmax(mlp(state["params"], state["obs"]), axis=-1)
        random = (drawn["act"] / epsilon * ENV.num_actions).astype(jnp.int32)
        action = jnp.where(drawn["act"] < epsilon, random, greedy)
        next_obs, next_state, reward, terminated, truncated = step(state["env_state"], action)
        done = terminated | truncated

        seen = {
            "obs": state["obs"],
            "next_obs": next_obs,
            "action": action,
            "reward": reward,
            "discount": config.discount * (1.0 - terminated),
        }
        position = count * num_envs % config.buffer_size
        replay = jax.tree.map(
            lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, position, 0),
            replay,
            seen,
        )
        count = count + 1
        size = jnp.minimum(count * num_envs, config.buffer_size)
        slots = (drawn["slots"] % size.astype(jnp.uint32)).astype(jnp.int32)
        learner = (state["params"], state["target"], state["opt_state"])

        def wait(learner, *_):
            names = ("loss", "q", "td_error", "grad_norm")
            return learner, dict.fromkeys(names, jnp.nan)

        ready = size >= config.learning_starts
        learner, metrics = jax.lax.cond(ready, learn, wait, learner, replay, slots, count)

        episode_return = state["episode_return"] + reward
        metrics["epsilon"] = epsilon
        metrics["num_episodes"] = done.sum()
        metrics["episode_return"] = (done * episode_return).sum() / metrics["num_episodes"]
        start_obs, start_state = drawn["start"]
        params, target, opt_state = learner
        return {
            "params": params,
            "target": target,
            "opt_state": opt_state,
            "env_state": jax.tree.map(
                lambda start, going_on: jnp.where(done, start, going_on), start_state, next_state
            ),
            "obs": jnp.where(done[:, None], start_obs, next_obs),
            "episode_return": jnp.where(done, 0.0, episode_return),
            "replay": replay,
            "num_updates": count,
            "key": state["key"],
        }, metrics

    key, act_key, start_key, slot_key = jax.random.split(state["key"], 4)
    drawn = {
        "act": jax.random.uniform(act_key, (num_updates, num_envs)),
        "start": reset(jax.random.split(start_key, (num_updates, num_envs))),
        "slots": jax.random.bits(slot_key, (num_updates, batch_size)),
    }
    return jax.lax.scan(update, state | {"key": key}, drawn)


@functools.partial(jax.jit, static_argnames="num_episodes")
def evaluate(params: dict[str, Any], key: jax.Array, num_episodes: int = 64) -> jax.Array:
    """Play whole episodes greedily; returns their undiscounted returns `[num_episodes]`."""
    obs, env_state = reset(jax.random.split(key, num_episodes))

    def greedy_step(carry, _):
        obs, env_state, total, running = carry
        obs, env_state, reward, terminated, truncated = step(
            env_state, jnp.argmax(mlp(params, obs), axis=-1)
        )
        total = total + jnp.where(running, reward, 0.0)
        return (obs, env_state, total, running & ~(terminated | truncated)), None

    carry = (obs, env_state, jnp.zeros(num_episodes), jnp.ones(num_episodes, bool))
    length = ENV_PARAMS.max_steps_in_episode
    return jax.lax.scan(greedy_step, carry, length=length)[0][2]


def main(seed: int = 0, num_seeds: int = 5, total_steps: int = 500_000) -> None:
    """Train several seeds in sequence; print compile time, speed and greedy returns.

    Args:
      seed: random seed, from which those of the runs are split.
      num_seeds: number of runs, in sequence.
      total_steps: environment steps per run, rounded up to whole updates.
    """
    config = Config()
    num_updates = -(-total_steps // config.num_envs)
    keys = jax.random.split(jax.random.key(seed), (num_seeds, 2))

    made = compile_timed(train, config, num_updates, init(config, keys[0, 0]))
    traced = made.trace_seconds + made.lower_seconds
    print(f"trace {traced:.2f} s, compile {made.compile_seconds:.2f} s")

    seconds, returns = [], []
    for init_key, eval_key in tqdm(keys, desc="seeds"):
        state = jax.block_until_ready(init(config, init_key))
        start = time.perf_counter()
        state, _ = jax.block_until_ready(made.call(state))
        seconds.append(time.perf_counter() - start)
        returns.append(float(evaluate(state["params"], eval_key).mean()))
    speed = num_updates * config.num_envs / np.median(seconds)
    print(f"{speed:,.0f} environment steps/s (median of {num_seeds} runs, without compilation)")
    print(f"greedy return, mean of {num_seeds} seeds: {np.mean(returns):.1f} (each: {returns})")


if __name__ == "__main__":
    tyro.cli(main)
