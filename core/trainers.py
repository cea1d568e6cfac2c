"""Choose the trainer for an environment: compiled, or stepped in Python."""

from dataclasses import replace

from .agent import Agent
from .environment import Environment
from .errors import TriglotError
from .host.trainer import HostTrainer
from .host_environment import HostEnvironment
from .loop.callbacks import Callback
from .loop.interface import TrainerLike
from .loop.sharding import Sharding, fewest_devices, make_sharding
from .loop.trainer import Trainer
from .loop.vectorize import VectorEnvironment


def make_trainer(
    agent: Agent,
    env: Environment | HostEnvironment,
    *,
    every_update: Callback | None = None,
    sharding: Sharding | None = None,
) -> TrainerLike:
    """Build the trainer for either kind of environment.

    Args:
      agent: the algorithm; it steps `agent.num_envs` environments.
      env: a single environment.
      every_update: called after each update, see `train`.
      sharding: how the training is divided among devices; None for one device.

    Raises:
      TriglotError: if a host environment is to be divided.
    """
    if isinstance(env, HostEnvironment):
        if sharding is not None:
            raise TriglotError(
                f"{env.name} is stepped in Python, by one process, so its training cannot be "
                f"divided among {sharding.num_devices} devices: choose an environment in JAX, or "
                "one device."
            )
        return HostTrainer(agent, env, every_update=every_update)
    vector = VectorEnvironment(env, agent.num_envs)
    return Trainer(agent, vector, every_update=every_update, sharding=sharding)


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
    if devices == 1 or not isinstance(trainer, Trainer):
        return trainer
    num_envs = trainer.agent.num_envs
    sharding = make_sharding(devices, "seeds", num_seeds=num_seeds, num_envs=num_envs)
    return replace(trainer, sharding=sharding)
