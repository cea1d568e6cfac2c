"""How far brax's ant walks: a trained run, zero actions and random actions.

python -m benchmarks.ant runs/ant
"""

from pathlib import Path
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from tyro.conf import Positional

from triglot import make_env
from triglot.core import specs
from triglot.core.agent import Agent, PolicyInput, PolicyOutput
from triglot.core.loop.episode import play_episode
from triglot.envs.brax import Brax, x_position
from triglot.training.load import load_run

from . import harness


class Fixed:
    """A policy without parameters: random actions, or zeros."""

    def __init__(self, env: Brax, *, moves: bool) -> None:
        self.env, self.moves = env, moves

    def initial_carry(self, state: Any, num_envs: int) -> tuple:
        return ()

    def act(
        self, state: Any, carry: Any, inputs: PolicyInput, key: jax.Array, *, explore: bool
    ) -> PolicyOutput:
        spec = self.env.action_spec
        count = inputs.first.shape[0]
        drawn = jax.vmap(lambda k: specs.sample(spec, k))(jax.random.split(key, count))
        action = drawn if self.moves else jnp.zeros_like(drawn)
        return PolicyOutput(action=action, carry=carry, extras={})


def play(agent: Agent | Fixed, env: Brax, state: Any, episodes: int) -> tuple[np.ndarray, ...]:
    """Play episodes; return each one's return, length and distance forward in metres."""

    def one(key: jax.Array) -> tuple[jax.Array, ...]:
        seen = play_episode(agent, env, state, key, max_steps=env.episode_length)  # pyright: ignore[reportArgumentType]
        x = x_position(seen.states)
        return seen.episode_return, seen.length, x[seen.length] - x[0]

    played = jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(7), episodes))
    return tuple(np.asarray(leaf) for leaf in played)


def main(run: Positional[Annotated[Path | None, tyro.conf.arg(metavar="RUN")]] = None) -> None:
    """Play 16 episodes with each policy and print the means."""
    env: Any = make_env("brax:ant")
    rows = []
    for name, moves in (("standing still", False), ("random", True)):
        rows.append([name, *map(np.mean, play(Fixed(env, moves=moves), env, (), 16))])
    if run is not None:
        trained = load_run(run)
        for seed in range(jax.tree.leaves(trained.agent_states)[0].shape[0]):
            state = jax.tree.map(lambda leaf, s=seed: leaf[s], trained.agent_states)
            played = play(trained.agent, env, state, 16)
            rows.append([f"{run.name}, seed {seed}", *map(np.mean, played)])
    harness.print_table(
        ["policy", "return", "steps", "metres forward"],
        [[name, *(f"{value:.1f}" for value in values)] for name, *values in rows],
    )


if __name__ == "__main__":
    tyro.cli(main)
