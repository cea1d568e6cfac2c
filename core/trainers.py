"""Choose the trainer for an environment, compiled or stepped in Python; compile its programs.

Programs are compiled side by side: XLA compiles without holding Python's lock.
"""

from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, TypeGuard

import jax
import numpy as np

from .agent import Agent
from .arguments import check_agent, check_env
from .environment import Environment
from .errors import TriglotError
from .host.trainer import HostTrainer
from .host_environment import HostEnvironment
from .loop.callbacks import Callback, OnStage, ignore_stage
from .loop.population import Population
from .loop.sharding import Sharding, fewest_devices, make_sharding
from .loop.state import RunnerState
from .loop.trainer import Program, Trainer, TrainerLike, init_seeds, play_seeds
from .loop.vectorize import VectorEnvironment
from .rl.planning import check_model
from .specs import check_fits
from .types import PyTree
from .wrappers.levels import held_out


def make_trainer(
    agent: Agent,
    env: Environment | HostEnvironment,
    *,
    every_update: Callback | None = None,
    sharding: Sharding | None = None,
    population: Population | None = None,
) -> TrainerLike:
    """Build the trainer for either kind of environment.

    Args:
      agent: the algorithm; it steps `agent.num_envs` environments.
      env: a single environment.
      every_update: called after each update, see `train`.
      sharding: how the training is divided among devices; None for one device.
      population: how the seeds learn from each other, from `Population.for_agent`; or None.

    Raises:
      TriglotError: if a host environment is to be divided or gets a population, if JAX's types
        cannot hold the values that it declares, or if the agent cannot plan in it.
    """
    check_agent(agent)
    check_env(env)
    check_model(agent, env)
    if isinstance(env, HostEnvironment):
        check_fits(env.obs_spec, f"an observation of {env.name}, {env.obs_spec},")
        check_fits(env.action_spec, f"an action of {env.name}, {env.action_spec},")
        if sharding is not None:
            raise TriglotError(
                f"{env.name} is stepped in Python, by one process, so its training cannot be "
                f"divided among {sharding.num_devices} devices: choose an environment in JAX, or "
                "one device."
            )
        if population is not None:
            raise TriglotError(
                f"{env.name} is stepped in Python, and its state cannot be copied from one member "
                "of a population to another: choose an environment in JAX, or leave the population "
                "out."
            )
        return HostTrainer(agent, env, every_update=every_update)
    if population is not None and sharding is not None and sharding.shard == "seeds":
        check_members_divide(population, sharding.num_devices)
    vector = VectorEnvironment(env, agent.num_envs)
    return Trainer(
        agent, vector, every_update=every_update, sharding=sharding, population=population
    )


def check_members_divide(population: Population, num_devices: int) -> None:
    """Refuse devices that do not divide a population.

    Raises:
      TriglotError: naming both numbers.
    """
    if population.size % num_devices:
        raise TriglotError(
            f"{num_devices} devices must divide the population, {population.size}: choose another "
            "number of either."
        )


def greedy_returns(
    trainer: TrainerLike, agent_states: PyTree, keys: jax.Array, num_episodes: int
) -> list[np.ndarray]:
    """Play greedy episodes as the training was, and on levels held out if it has any.

    Args:
      trainer: of either kind.
      agent_states, keys: `[S, ...]`, as for `evaluate_seeds`.
      num_episodes: of each seed.

    Returns:
      The mean return of each seed, float32 `[S]`; then that on levels held out.
    """
    trainers, unseen = [trainer], held_out(trainer.single_env)
    if unseen is not None and isinstance(trainer, Trainer):
        trainers.append(make_trainer(trainer.agent, unseen, sharding=trainer.sharding))
    how = {"num_episodes": num_episodes, "max_steps": 100_000, "explore": False}
    played = [each.evaluate_seeds(agent_states, keys, **how) for each in trainers]
    return [np.asarray(episodes.returns).mean(axis=1) for episodes in played]


def divide_seeds(trainer: TrainerLike, num_seeds: int, most: int) -> TrainerLike:
    """Divide a trainer's seeds among the fewest devices with which each has as few as possible.

    Args:
      trainer: on one device. One that steps environments in Python stays there.
      num_seeds: `S`.
      most: the most devices.

    Raises:
      TriglotError: if there are not as many devices.
    """
    devices = fewest_devices(num_seeds, most)
    if isinstance(trainer, Trainer) and trainer.population is not None:
        devices = max(count for count in range(1, devices + 1) if num_seeds % count == 0)
    if devices == 1 or not isinstance(trainer, Trainer):
        return trainer
    num_envs = trainer.agent.num_envs
    sharding = make_sharding(devices, "seeds", num_seeds=num_seeds, num_envs=num_envs)
    return replace(trainer, sharding=sharding)


def initialize_and_compile(
    trainer: TrainerLike,
    program: Program,
    keys: jax.Array,
    hyper: PyTree,
    background: Executor,
    on_stage: OnStage = ignore_stage,
) -> RunnerState:
    """Initialize every seed while the training compiles.

    Host environments, and several processes, need the states before they compile.

    Args:
      trainer: of either kind.
      program: of the trainer; it is compiled.
      keys, hyper: as for `init_seeds`.
      background: runs the initialization on another thread.
      on_stage: see `CompiledProgram.compile`; called with `init` as well.

    Returns:
      The initial states, `[S, ...]`.
    """
    if not _compiles_from_shapes(trainer):
        state = jax.block_until_ready(init_seeds(trainer, keys, hyper))
        on_stage("init")
        program.compile(state, on_stage)
        return state
    # Traced here: on two threads, both would wait for Python's lock in turns.
    lowered = init_seeds.lower(trainer, keys, hyper)
    pending = background.submit(lambda: jax.block_until_ready(lowered.compile()(keys, hyper)))
    on_stage("init")
    program.compile(init_seeds.eval_shape(trainer, keys, hyper), on_stage)
    return pending.result()


def compile_evaluation(
    trainer: TrainerLike, runner_states: RunnerState, keys: jax.Array, **options: Any
) -> None:
    """Compile `trainer.evaluate_seeds` before it is called, if it is one program.

    Args:
      trainer: of either kind.
      runner_states: `[S, ...]`; they and `keys` are read for their shapes only.
      keys, options: as for `evaluate_seeds`.
    """
    if not _compiles_from_shapes(trainer):
        return
    given = (runner_states.agent, keys)
    if trainer.seed_sharding is not None:
        given = trainer.seed_sharding.placed_shapes(given)
    play_seeds.lower(trainer, *given, **options).compile()


def _compiles_from_shapes(trainer: TrainerLike) -> TypeGuard[Trainer]:
    return isinstance(trainer, Trainer) and jax.process_count() == 1
