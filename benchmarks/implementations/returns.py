"""What a detail of PPO changes in the return: triglot's PPO with and without it, 10 seeds each."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

import triglot
from triglot.algorithms.ppo import PPO
from triglot.shared.statistics.returns import interval95

ENV, STEPS, SEEDS = "gymnax:CartPole-v1", 25_088, 10


class Details(PPO):
    """PPO with details of other implementations.

    Attributes:
      details: names of `SWITCHES`.
    """

    details: frozenset[str] = frozenset()

    def estimate(
        self, variables: Any, trajectory: Any, discount: Any, gae_lambda: Any
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        if "cut_at_truncation" in self.details:
            ended = trajectory.terminated | trajectory.truncated
            never = jnp.zeros_like(ended)
            trajectory = replace(trajectory, terminated=ended, truncated=never)
        value, advantage, target = super().estimate(variables, trajectory, discount, gae_lambda)
        if "rollout_standardization" in self.details:
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        return value, advantage, target

    def evaluate(self, variables: Any, batch: Any, key: Any) -> Any:
        actor, value, batch, state = super().evaluate(variables, batch, key)
        if "clipped_value_alone" in self.details:
            value = batch.value + jnp.clip(value - batch.value, -0.2, 0.2)
        if "unbiased_std" in self.details:
            deviation = batch.advantage.std(ddof=1) + 1e-8
            standardized = (batch.advantage - batch.advantage.mean()) / deviation
            batch = replace(batch, advantage=standardized)
        return actor, value, batch, state


def clipped_by_element(hyper: Any) -> optax.GradientTransformation:
    """Build Adam of gradients that are clipped element by element."""
    adam = optax.adam(hyper.learning_rate, eps=hyper.adam_eps)
    return optax.chain(optax.clip(hyper.max_grad_norm), adam)


def clipped_by_network(hyper: Any) -> optax.GradientTransformation:
    """Build Adam of gradients that are clipped by a norm of the actor's and one of the critic's."""
    clips: dict[Hashable, optax.GradientTransformation] = {
        name: optax.clip_by_global_norm(hyper.max_grad_norm) for name in ("actor", "critic")
    }
    adam = optax.adam(hyper.learning_rate, eps=hyper.adam_eps)
    return optax.chain(optax.partition(dict(clips), {name: name for name in clips}), adam)


OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "unbiased_std": {"normalize_advantage": False},
    "rollout_standardization": {"normalize_advantage": False},
    "clipped_value_alone": {"clip_value": False},
    "no_value_clip": {"clip_value": False},
    "double_value_loss": {"value_coef": 1.0},
    "no_entropy": {"entropy_coef": 0.0},
    "adam_eps": {"adam_eps": 1e-8},
    "constant_rate": {"learning_rate": 2.5e-4},
    "no_gradient_clip": {"max_grad_norm": 1e9},
    "cut_at_truncation": {},
    "clip_by_element": {},
    "clip_each_network": {},
}
OPTIMIZERS: Mapping[str, Callable[[Any], optax.GradientTransformation]] = {
    "clip_by_element": clipped_by_element,
    "clip_each_network": clipped_by_network,
}


@dataclass(frozen=True)
class Returns:
    """Returns of one variant.

    Attributes:
      detail: a name of `SWITCHES`; empty for triglot's PPO as it is.
      training: mean return of the training's episodes, one number for each seed.
      final: mean return of 32 greedy episodes after it, for each seed.
    """

    detail: str
    training: tuple[float, ...]
    final: tuple[float, ...]


def agent_with(detail: str, env: Any) -> Any:
    """Build triglot's PPO with one detail; as it is if the name is empty."""
    options = OPTIONS.get(detail, {})
    static = {each.name for each in fields(PPO.Config)}
    kind = type("PPO", (Details,), {"details": frozenset({detail})})
    return triglot.make_agent(
        kind,
        env,
        config={name: value for name, value in options.items() if name in static},
        hyper={name: value for name, value in options.items() if name not in static},
        optimizer=OPTIMIZERS.get(detail),
    )


def train(detail: str) -> Returns:
    """Train all seeds with one detail, in one compiled program."""
    env = triglot.make_env(ENV)
    agent = agent_with(detail, env)
    result = triglot.train(agent, env, key=jax.random.key(0), total_steps=STEPS, num_seeds=SEEDS)
    training = np.nanmean(np.asarray(result.metrics["episode_return"]), axis=1)
    final = np.asarray(result.evaluate(num_episodes=32).returns).mean(axis=1)
    return Returns(detail, tuple(map(float, training)), tuple(map(float, final)))


def difference(one: Returns, other: Returns) -> tuple[float, float, float]:
    """Return the mean difference of the training's return, with its 95 % interval.

    Both have the same keys, so that differences are those of pairs.
    """
    pairs = np.asarray(one.training) - np.asarray(other.training)
    interval = interval95(pairs.tolist())
    if interval is None:
        raise ValueError(f"an interval needs two seeds or more, got {len(pairs)}.")
    return float(pairs.mean()), float(interval[0]), float(interval[1])


def measure(names: Iterable[str]) -> Iterator[Returns]:
    """Train triglot's PPO, then with each detail of some names."""
    yield from map(train, ("", *names))
