"""PPO on CartPole-v1 in plain JAX: the baseline for triglot's abstraction overhead.

`train` and the functions that it is made of, with dictionary parameters, optax and gymnax. The
hyperparameters are purejaxrl's, with value clipping. Unlike purejaxrl, it bootstraps at time
limits: `env.step_env` never resets, so V of the true successor is known at truncated steps. Nothing
is triglot's, but with `second_pass=False` the function that estimates the values of successors.

Choices that made it fast, with the run time of the alternative relative to this program (above 1 is
slower): medians of 40 interleaved rounds of 20 updates, pinned to one core (AMD EPYC, JAX 0.10.2),
without metrics and value clipping.

- Drawing the rollout's random numbers (action noise, fresh starts) in one batch before the scan:
  1.13 if drawn inside each step, 1.09 if only the keys are split before it.
- Computing the values of the whole rollout in one batch after it: 1.05 inside each step.
- Flattening the optimizer's leaves into one vector: 1.02 to 1.03 without.
- No unrolling: 1.03 with `unroll=4` in the scan over minibatches, 1.07 with it instead of
  flattening. On two cores `unroll=4` and flattening were equally good (0.95 and 0.96, relative to
  neither; a separate run of 80 rounds on a busy machine); 16 was slower and compiled for 18 s.

No difference (within 1%): gathering minibatches one by one or all at once, one scan over 16
minibatches or two nested ones, packing a minibatch's fields into one array, `argsort` of random
bits for `jax.random.permutation`, an associative scan for the returns, a one-hot product for the
gather of the action's log-probability. Unrolling the rollout by 4: 1.03.

Source: Schulman et al. 2017, https://arxiv.org/abs/1707.06347; hyperparameters of
https://github.com/luchris429/purejaxrl.
"""

import functools
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import optax
import rlax
from gymnax.environments.classic_control.cartpole import CartPole, EnvState

from triglot.core.rl.losses import successor_values

Layers: TypeAlias = dict[str, dict[str, jax.Array]]

ENV = CartPole()
ENV_PARAMS = ENV.default_params


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of one run, all of it static."""

    num_envs: int = 4
    rollout_length: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    hidden_sizes: tuple[int, int] = (64, 64)
    learning_rate: float = 2.5e-4
    decay_updates: int = 977  # updates over which the learning rate falls linearly to 0
    adam_eps: float = 1e-5
    max_grad_norm: float = 0.5
    clip_epsilon: float = 0.2
    clip_value: bool = True
    value_coef: float = 0.5
    entropy_coef: float = 0.01
    discount: float = 0.99
    gae_lambda: float = 0.95
    second_pass: bool = True  # of the critic, over all successors; False: as triglot values them

    @property
    def steps_per_update(self) -> int:
        return self.num_envs * self.rollout_length


def mlp(params: Layers, inputs: jax.Array) -> jax.Array:
    """Apply a tanh network `[..., 4] -> [..., outputs]`."""
    for layer in ("linear_0", "linear_1"):
        inputs = jnp.tanh(inputs @ params[layer]["w"] + params[layer]["b"])
    return inputs @ params["head"]["w"] + params["head"]["b"]


def init_mlp(
    key: jax.Array, hidden_sizes: tuple[int, int], outputs: int, head_scale: float
) -> Layers:
    """Draw orthogonal weights, sqrt(2) in the hidden layers; biases are 0."""
    first, second = hidden_sizes
    sizes = {
        "linear_0": (4, first, 2.0**0.5),
        "linear_1": (first, second, 2.0**0.5),
        "head": (second, outputs, head_scale),
    }
    return {
        name: {"w": jax.nn.initializers.orthogonal(scale)(k, (i, o)), "b": jnp.zeros(o)}
        for k, (name, (i, o, scale)) in zip(jax.random.split(key, 3), sizes.items(), strict=True)
    }


def reset(keys: jax.Array) -> tuple[jax.Array, EnvState]:
    """Start one episode per key of any leading shape; returns observations and states."""
    obs, state = jax.vmap(lambda k: ENV.reset_env(k, ENV_PARAMS))(keys.reshape(-1))
    # The state's Python integers become arrays of a definite type, as a scan's carry must be.
    return jax.tree.map(
        lambda x: jnp.asarray(x, x.dtype).reshape(*keys.shape, *x.shape[1:]), (obs, state)
    )


def step(
    env_state: EnvState, action: jax.Array
) -> tuple[jax.Array, EnvState, jax.Array, jax.Array, jax.Array]:
    """Step `[N]` environments, without automatic resets.

    Returns:
      The true successors' observations and states, rewards, and the flags terminated, truncated.
    """
    ignored = jax.random.key(0)  # CartPole draws no random numbers in a step.
    obs, env_state, reward, terminated, _ = jax.vmap(
        lambda s, a: ENV.step_env(ignored, s, a, ENV_PARAMS)
    )(env_state, action)
    return obs, env_state, reward, terminated, ENV.is_truncated(env_state, ENV_PARAMS)


def optimizer(config: Config) -> optax.GradientTransformation:
    """Build Adam after a global-norm clip; its learning rate falls once per update, as PPO's."""
    steps_per_update = config.num_epochs * config.num_minibatches

    def learning_rate(count: jax.typing.ArrayLike) -> jax.Array:
        done = jnp.asarray(count) // steps_per_update / config.decay_updates
        return config.learning_rate * jnp.maximum(1.0 - done, 0.0)

    adam = optax.adam(learning_rate, eps=config.adam_eps)
    return optax.flatten(optax.chain(optax.clip_by_global_norm(config.max_grad_norm), adam))


@functools.partial(jax.jit, static_argnums=0)
def init(config: Config, key: jax.Array) -> dict[str, Any]:
    """Initialize the training state from a typed key."""
    actor_key, critic_key, env_key, run_key = jax.random.split(key, 4)
    params = {
        "actor": init_mlp(actor_key, config.hidden_sizes, ENV.num_actions, 0.01),
        "critic": init_mlp(critic_key, config.hidden_sizes, 1, 1.0),
    }
    obs, env_state = reset(jax.random.split(env_key, config.num_envs))
    return {
        "params": params,
        "opt_state": optimizer(config).init(params),
        "env_state": env_state,
        "obs": obs,
        "episode_return": jnp.zeros(config.num_envs),
        "key": run_key,
    }


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(
    config: Config, num_updates: int, state: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, jax.Array]]:
    """Run `num_updates` updates in one compiled program.

    Args:
      config: static.
      num_updates: static.
      state: from `init` or from `train`.

    Returns:
      The next state and float32 metrics `[num_updates]`; `episode_return` is NaN where no episode
      ended in an update's rollout.
    """

    def update(state, _):
        key, draw_key, shuffle_key = split(state["key"])
        params = state["params"]
        carry = {name: state[name] for name in ("obs", "env_state", "episode_return")}
        carry |= {"ended": jnp.zeros(()), "ended_return": jnp.zeros(())}
        carry, seen = collect(params["actor"], carry, draw(config, draw_key))
        batches = shuffle(config, shuffle_key, targets(config, params["critic"], seen))
        (params, opt_state), metrics = jax.lax.scan(
            functools.partial(gradient_step, config), (params, state["opt_state"]), batches
        )
        metrics = jax.tree.map(jnp.mean, metrics)
        metrics["episode_return"] = carry.pop("ended_return") / carry.pop("ended")
        return {"params": params, "opt_state": opt_state, "key": key, **carry}, metrics

    return jax.lax.scan(update, state, length=num_updates)


def split(key: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array], jax.Array]:
    """Split the key of an update: the next one, those of `draw`, and that of `shuffle`."""
    key, noise_key, start_key, shuffle_key = jax.random.split(key, 4)
    return key, (noise_key, start_key), shuffle_key


def draw(config: Config, keys: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, Any]:
    """Draw the noise of a rollout's actions, and an episode's start for each of its steps."""
    num_steps, num_envs = config.rollout_length, config.num_envs
    noise_key, start_key = keys
    noise = jax.random.gumbel(noise_key, (num_steps, num_envs, ENV.num_actions))
    return noise, reset(jax.random.split(start_key, (num_steps, num_envs)))


def collect(
    actor: dict[str, Any] | None, carry: dict[str, Any], drawn: tuple[jax.Array, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Step the environments through a rollout; without an actor, all logits are 0."""

    def env_step(carry, inputs):
        noise, (start_obs, start_state) = inputs
        logits = jnp.zeros_like(noise) if actor is None else mlp(actor, carry["obs"])
        action = jnp.argmax(logits + noise, axis=-1)
        next_obs, next_state, reward, terminated, truncated = step(carry["env_state"], action)
        done = terminated | truncated
        episode_return = carry["episode_return"] + reward
        seen = {
            "obs": carry["obs"],
            "logits": logits,
            "action": action,
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "next_obs": next_obs,
        }
        ended = done.astype(jnp.float32)
        return {
            "obs": jnp.where(done[:, None], start_obs, next_obs),
            "env_state": jax.tree.map(
                lambda start, going_on: jnp.where(done, start, going_on), start_state, next_state
            ),
            "episode_return": jnp.where(done, 0.0, episode_return),
            "ended": carry["ended"] + ended.sum(),
            "ended_return": carry["ended_return"] + (ended * episode_return).sum(),
        }, seen

    return jax.lax.scan(env_step, carry, drawn)


def targets(config: Config, critic: dict[str, Any], seen: dict[str, Any]) -> dict[str, Any]:
    """Compute values, returns and advantages of a rollout: what the loss reads."""

    def value_of(obs):
        return mlp(critic, obs)[..., 0]

    value = value_of(seen["obs"])
    if config.second_pass:
        next_value = value_of(seen["next_obs"])
    else:
        ended = seen["terminated"], seen["truncated"]
        next_value = successor_values(value_of, value, seen["next_obs"], *ended)
    target = jax.vmap(rlax.lambda_returns, in_axes=1, out_axes=1)(
        seen["reward"],
        config.discount * (1.0 - seen["terminated"].astype(jnp.float32)),
        next_value,
        config.gae_lambda * (1.0 - seen["truncated"].astype(jnp.float32)),
    )
    return {
        "obs": seen["obs"],
        "action": seen["action"],
        "log_prob": select(jax.nn.log_softmax(seen["logits"]), seen["action"]),
        "value": value,
        "advantage": target - value,
        "target": target,
    }


def shuffle(config: Config, key: jax.Array, rollout: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Shuffle a rollout once per epoch: `[epochs * minibatches, B, ...]`."""
    permute = jax.vmap(lambda k: jax.random.permutation(k, config.steps_per_update))
    order = permute(jax.random.split(key, config.num_epochs))
    order = order.reshape(config.num_epochs * config.num_minibatches, -1)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[order], rollout)


def loss(
    config: Config, params: dict[str, Any], batch: dict[str, jax.Array]
) -> tuple[Any, dict[str, Any]]:
    """Compute PPO's loss and metrics of a minibatch."""
    log_probs = jax.nn.log_softmax(mlp(params["actor"], batch["obs"]))
    log_ratio = select(log_probs, batch["action"]) - batch["log_prob"]
    ratio = jnp.exp(log_ratio)
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = rlax.clipped_surrogate_pg_loss(ratio, advantage, config.clip_epsilon)
    value = mlp(params["critic"], batch["obs"])[:, 0]
    error = (value - batch["target"]) ** 2
    if config.clip_value:
        change = jnp.clip(value - batch["value"], -config.clip_epsilon, config.clip_epsilon)
        error = jnp.maximum(error, (batch["value"] + change - batch["target"]) ** 2)
    value_loss = 0.5 * error.mean()
    entropy = -(jnp.exp(log_probs) * log_probs).sum(-1).mean()
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {
        "loss": total,
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "approx_kl": (ratio - 1.0 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1.0) > config.clip_epsilon).mean(),
    }


def gradient_step(
    config: Config, carry: tuple[Any, Any], batch: dict[str, jax.Array]
) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Improve the parameters by one minibatch."""
    params, opt_state = carry
    grads, metrics = jax.grad(loss, argnums=1, has_aux=True)(config, params, batch)
    updates, opt_state = optimizer(config).update(grads, opt_state, params)
    metrics["grad_norm"] = optax.tree.norm(grads)
    return (optax.apply_updates(params, updates), opt_state), metrics


def select(values: jax.Array, action: jax.Array) -> jax.Array:
    """Pick `values[..., action]`."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
