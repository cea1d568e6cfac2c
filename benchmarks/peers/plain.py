"""The hand-written program of `benchmarks/plain_ppo.py`: what a whole process takes at least.

gymnax is imported as triglot does it, without what it loads for drawing.
"""

import importlib
from typing import Any

import jax

from triglot.core.errors import require
from triglot.core.types import PyTree

from .contender import Contender, compile_one_program
from .row import Row


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build the program of PPO on CartPole, initialization included.

    Args:
      row: of PPO on gymnax's CartPole-v1, at the other numbers of `plain_ppo.Config`.
      total_steps: environment steps of each seed.
      folder: unused.
    """
    require("gymnax", "gymnax")
    plain_ppo: Any = importlib.import_module("benchmarks.plain_ppo")
    config = plain_ppo.Config(**row.config, second_pass=False)
    num_updates = total_steps // config.steps_per_update

    def train(key: jax.Array) -> PyTree:
        state = plain_ppo.init(config, jax.random.wrap_key_data(key))
        return plain_ppo.train(config, num_updates, state)

    def greedy(params: PyTree, obs: jax.Array) -> jax.Array:
        return plain_ppo.mlp(params["actor"], obs).argmax(axis=-1)

    return Contender(
        compile=compile_one_program(train, lambda trained: trained[0]["params"]),
        act=greedy,
        version="of this repository",
    )
