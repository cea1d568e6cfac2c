"""Choose the trainer for an environment: compiled, or stepped in Python."""

from .agent import Agent
from .environment import Environment
from .host.trainer import HostTrainer
from .host_environment import HostEnvironment
from .loop.callbacks import Callback
from .loop.interface import TrainerLike
from .loop.trainer import Trainer
from .loop.vectorize import VectorEnvironment


def make_trainer(
    agent: Agent, env: Environment | HostEnvironment, *, every_update: Callback | None = None
) -> TrainerLike:
    """Build the trainer for either kind of environment.

    Args:
      agent: the algorithm; it steps `agent.num_envs` environments.
      env: a single environment.
      every_update: called after each update, see `train`.
    """
    if isinstance(env, HostEnvironment):
        return HostTrainer(agent, env, every_update=every_update)
    return Trainer(agent, VectorEnvironment(env, agent.num_envs), every_update=every_update)
