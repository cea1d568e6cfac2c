"""Train Q-learning on a grid world; run it with `python examples/tabular_q_learning.py`."""

from pathlib import Path

import jax
import numpy as np

import triglot
from triglot.envs.gridworld import GridWorld
from triglot.runs.plots.values import draw_values

env = GridWorld(8, 8)
agent = triglot.make_agent("q_learning", env, backend="table", hyper={"discount": 0.9})
result = triglot.train(agent, env, key=jax.random.key(0), total_steps=200_000, num_seeds=30)
states = result.runner_state.agent
(tables,) = jax.tree.leaves(states.learner.variables.params)
start = np.asarray(tables)[:, -1].max(axis=-1)  # [seeds]; the start is the last cell

exact = env.optimal_values(0.9)[-1, -1]
print(f"Q(start), mean of 30 agents: {start.mean():.4f} (exactly {exact:.4f})")
draw_values(Path("q_learning.png"), agent, env, states, "Q-learning on an 8x8 grid world")
