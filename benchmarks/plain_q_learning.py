"""Tabular Q-learning on the grid world in plain JAX: the baseline for the abstraction overhead.

One scan that carries the table, without triglot: epsilon-greedy with ties broken at random, no
bootstrap at the goal, a reset after it, one random draw per step.

Choices that made it fast, with the run time of the alternative relative to this program (above 1 is
slower): medians of 9 interleaved rounds of 262,144 steps on one core (AMD EPYC, JAX 0.10.2) of a
busy machine, so accurate to 10 or 20 %.

- The source of random numbers. `keyed` draws one number from the key of each step, a block of steps
  ahead. 27 if drawn within the step (`in_loop`): a threefry draw is a loop, and XLA then no longer
  compiles the surrounding loop as one call. 0.7 if a block is drawn from one key (`bulk`).
- Blocks of 4,096 steps: 1.2 with 1,024, 1.1 with everything in one block.
- Inverting the distribution function of the policy, which takes one number: 1.2 if that number
  is split into "explore?" and "which of the best?".
- No unrolling: 12 with `unroll=4`, which also prevents compilation as one call.

Source: Watkins 1989; Sutton and Barto 2018, section 6.5,
http://incompleteideas.net/book/the-book-2nd.html.
"""

import functools
from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

NUM_ACTIONS = 4  # 0 up, 1 right, 2 down, 3 left


@dataclass(frozen=True, kw_only=True)
class Config:
    """Configuration of one run, all of it static."""

    size: int = 10
    learning_rate: float = 0.1
    discount: float = 0.9
    epsilon: float = 0.1
    block: int = 4096  # steps whose random numbers are drawn at once
    randomness: Literal["keyed", "in_loop", "bulk"] = "keyed"


def choose(q: jax.Array, epsilon: float, uniform: jax.Array) -> jax.Array:
    """Draw an epsilon-greedy action from `q` `[4]` with one number, ties broken at random."""
    best = (q == q.max()).astype(jnp.float32)
    policy = epsilon / NUM_ACTIONS + (1.0 - epsilon) * best / best.sum()
    cumulative = (jnp.tril(jnp.ones((NUM_ACTIONS, NUM_ACTIONS))) * policy[None]).sum(-1)
    return (uniform * cumulative[-1] >= cumulative).sum().astype(jnp.int32)


def move(size: int, row: jax.Array, column: jax.Array, action: jax.Array) -> tuple:
    """Take one step; returns the new cell and whether it is the goal, the top left one."""
    down = (action == 2).astype(jnp.int32) - (action == 0).astype(jnp.int32)
    right = (action == 1).astype(jnp.int32) - (action == 3).astype(jnp.int32)
    row, column = jnp.clip(row + down, 0, size - 1), jnp.clip(column + right, 0, size - 1)
    return row, column, (row == 0) & (column == 0)


@functools.partial(jax.jit, static_argnums=(0, 1))
def train(config: Config, num_steps: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Learn for `num_steps` steps, whole blocks, from a table of zeros; one compiled program.

    Returns:
      The table `[size * size, 4]` and the number of episodes finished.
    """
    last = config.size - 1

    def step(carry: tuple, random: jax.Array) -> tuple[tuple, None]:
        table, row, column, episodes = carry
        uniform = jax.random.uniform(random) if config.randomness == "in_loop" else random
        cell = row * config.size + column
        q = table[cell]
        action = choose(q, config.epsilon, uniform)
        row, column, arrived = move(config.size, row, column, action)
        following = jnp.where(arrived, 0.0, table[row * config.size + column].max())
        target = arrived.astype(jnp.float32) + config.discount * following
        table = table.at[cell, action].add(config.learning_rate * (target - q[action]))
        row, column = jnp.where(arrived, last, row), jnp.where(arrived, last, column)
        return (table, row, column, episodes + arrived.astype(jnp.int32)), None

    def block(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
        if config.randomness == "bulk":
            random = jax.random.uniform(key, (config.block,))
        else:
            random = jax.random.split(key, config.block)
            if config.randomness == "keyed":
                random = jax.vmap(jax.random.uniform)(random)
        return jax.lax.scan(step, carry, random)[0], None

    table = jnp.zeros((config.size * config.size, NUM_ACTIONS))
    start = (table, jnp.int32(last), jnp.int32(last), jnp.int32(0))
    keys = jax.random.split(key, num_steps // config.block)
    (table, _, _, episodes), _ = jax.lax.scan(block, start, keys)
    return table, episodes


def exact_values(config: Config) -> np.ndarray:
    """Find the optimal values by value iteration, float64 `[size, size]`; the goal's is 0."""
    size = config.size
    values = np.zeros((size, size))
    rows, columns = np.indices((size, size))
    while True:
        candidates = []
        for down, right in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            row, column = np.clip(rows + down, 0, size - 1), np.clip(columns + right, 0, size - 1)
            arrived = (row == 0) & (column == 0)
            candidates.append(arrived + config.discount * ~arrived * values[row, column])
        better = np.max(candidates, axis=0)
        better[0, 0] = 0.0
        if np.array_equal(better, values):
            return values
        values = better
