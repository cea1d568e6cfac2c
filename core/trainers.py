"""Choose the trainer for an environment, compiled or stepped in Python."""

from .agent import Agent
from .arguments import check_agent, check_env
from .environment import Environment
from .errors import TriglotError
from .host.trainer import HostTrainer
from .host_environment import HostEnvironment
from .loop.callbacks import Callback
from .loop.population import Population
from .loop.sharding import Sharding
from .loop.trainer import USUAL_CHUNK, Monitor, Trainer, TrainerLike
from .loop.vectorize import VectorEnvironment
from .rl.planning import check_model
from .specs import check_fits


def make_trainer(
    agent: Agent,
    env: Environment | HostEnvironment,
    *,
    every_update: Callback | None = None,
    monitor: Monitor | None = None,
    sharding: Sharding | None = None,
    population: Population | None = None,
    chunk_size: int = USUAL_CHUNK,
) -> TrainerLike:
    """Build the trainer for either kind of environment.

    Args:
      agent: the algorithm; it steps `agent.num_envs` environments.
      env: a single environment.
      every_update: called after each update, see `train`.
      monitor: further metrics of the agent's state after each update; of JAX environments only.
      sharding: how the training is divided among devices; None for one device.
      population: how the seeds learn from each other, from `Population.for_agent`; or None.
      chunk_size: the most updates between two returns to Python.

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
        if monitor is not None:
            raise TriglotError(
                f"{env.name} is stepped in Python, where monitor computes nothing: choose an "
                "environment in JAX, or leave monitor out and read callback's metrics."
            )
        return HostTrainer(agent, env, every_update=every_update, chunk_size=chunk_size)
    if population is not None and sharding is not None and sharding.shard == "seeds":
        check_members_divide(population, sharding.num_devices)
    vector = VectorEnvironment(env, agent.num_envs)
    return Trainer(
        agent,
        vector,
        chunk_size=chunk_size,
        monitor=monitor,
        every_update=every_update,
        sharding=sharding,
        population=population,
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
