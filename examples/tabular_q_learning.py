"""Learn a grid world by Q-learning; run it with `python examples/tabular_q_learning.py`."""

from pathlib import Path

import jax
import numpy as np

import triglot
from triglot.algorithms.q_learning import QLearning
from triglot.experiments.grid_plots import value_map

env = triglot.make_env("gridworld:8x8")
agent = triglot.make_agent(QLearning, env, backend="table", hyper={"discount": 0.9})
result = triglot.train(agent, env, key=jax.random.key(0), total_steps=200_000, num_seeds=30)
(tables,) = jax.tree.leaves(result.runner_state.agent.learner.variables.params)
tables = np.asarray(tables)  # [seeds, cells, actions]

exact = 0.9**13  # The goal is 14 steps away, and pays on arrival.
print(f"Q(start), mean of 30 agents: {tables[:, -1].max(-1).mean():.4f} (exactly {exact:.4f})")
value_map(Path("q_learning.png"), tables[0], (8, 8), title="Q-learning on an 8x8 grid world")
