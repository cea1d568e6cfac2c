"""triglot's own program: the pieces that `triglot.train` calls, compiled ahead of time."""

import time
from dataclasses import replace

import jax

import triglot
from triglot import nn
from triglot.core.agent import PolicyInput
from triglot.core.loop.trainer import init_seeds
from triglot.core.types import AnyAgentState, Carry

from .contender import Contender, Train
from .row import Row


def contender(row: Row, env: str, total_steps: int, backend: str) -> Contender:
    """Build triglot's program.

    Args:
      row: its setting.
      env: a name of `triglot.make_env`. One that is stepped in Python stays open between rounds.
      total_steps: environment steps of each seed.
      backend: library of the networks.
    """
    made = triglot.make_env(env)
    agent = triglot.make_agent(
        row.algorithm, made, backend=backend, config=row.config, hyper=row.hyper
    )
    experiment = triglot.Experiment(agent, made, key=jax.random.key(0), total_steps=total_steps)

    def compile(keys: jax.Array) -> tuple[Train, float]:
        hyper, seeds = experiment.hyperparams, replace(experiment, num_seeds=len(keys[0]))
        start = time.perf_counter()
        init = init_seeds.lower(experiment.trainer, keys[0], hyper).compile()
        program = experiment.program()
        program.compile(init(keys[0], hyper))
        seconds = time.perf_counter() - start

        def train(index: int) -> AnyAgentState:
            states = init(keys[index], hyper)
            for chunk in seeds.chunks(states, program=program):
                states = chunk.runner_states
            return states.agent

        return train, seconds

    def act(state: AnyAgentState, obs: jax.Array, memory: Carry) -> tuple[jax.Array, Carry]:
        inputs = PolicyInput(obs=obs, first=jax.numpy.zeros(len(obs), bool), action_mask=None)
        output = agent.act(state, memory, inputs, jax.random.key(0), explore=False)
        return output.action, output.carry

    def greedy(state: AnyAgentState, obs: jax.Array) -> jax.Array:
        if plans:  # by its network, since gymnax's states are not the model's
            heads, _ = nn.apply_heads(agent.network, state.learner.variables, obs)
            return jax.numpy.argmax(heads["logits"], axis=-1)
        return act(state, obs, agent.initial_carry(state, len(obs)))[0]

    recurrent, plans = agent.network.recurrent, agent.plans
    return Contender(
        compile=compile,
        act=act if recurrent else greedy,
        start=agent.initial_carry if recurrent else None,
        version=triglot.__version__,
    )
