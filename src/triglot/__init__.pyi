from . import nn, rl
from .algorithms.dqn import DQN
from .algorithms.ppo import PPO
from .algorithms.q_learning import QLearning
from .algorithms.sac import SAC
from .backends.equinox.lifting import from_equinox
from .backends.haiku.lifting import from_haiku
from .backends.jax.lifting import from_functions
from .backends.keras.lifting import from_keras
from .backends.linen.lifting import from_linen
from .backends.nnx.lifting import from_nnx
from .backends.torch.lifting import from_torch
from .backends.translate import translate
from .checks import check_agent, check_environment, check_network
from .core.agent import Agent, AgentBase
from .core.environment import Environment, TimeStep
from .core.errors import Guessed, TriglotError
from .core.evaluate import evaluate
from .core.experiment import Experiment
from .core.learner import Learner
from .core.loop.population import Population
from .core.loop.trainer import Trainer
from .core.network import Network, Variables
from .core.networks.combinators import combine, ensemble, freeze, scalar, start_from
from .core.networks.unroll import unroll
from .core.specs import Box, Dict, Discrete, MultiDiscrete
from .diff.compare import diff_networks
from .diff.porting.names import load_weights
from .diff.porting.recordings.compare import diff_recording
from .diff.testing import assert_same_function
from .runs.figure import curves
from .runs.policy import load_policy
from .runs.registry.agents import make_agent
from .runs.registry.environments import make_env
from .runs.registry.presets.find import preset
from .runs.result import Diverged, TrainResult, load_run
from .runs.training import train

__version__: str

__all__ = [
    "make_env", "make_agent", "preset", "train", "TrainResult", "evaluate", "Experiment",
    "Population", "Trainer", "load_run", "load_policy", "curves",
    "from_haiku", "from_linen", "from_nnx", "from_equinox", "from_keras", "from_torch",
    "from_functions", "translate", "load_weights", "Guessed",
    "PPO", "DQN", "SAC", "QLearning",
    "rl", "nn",
    "check_agent", "check_environment", "check_network", "diff_networks", "diff_recording",
    "assert_same_function",
    "TriglotError", "Diverged",
    # Also in `rl` and `nn`.
    "Agent", "AgentBase", "Learner", "Environment", "TimeStep", "Box", "Dict", "Discrete",
    "MultiDiscrete", "Network", "Variables", "combine", "ensemble", "freeze", "scalar",
    "start_from", "unroll",
]  # fmt: skip
