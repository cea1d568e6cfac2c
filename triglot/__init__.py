"""One reinforcement-learning agent, fluent in every JAX network library.

The names below are imported when they are first used, so that `import triglot` costs nothing,
loads no network or environment library, and leaves JAX's settings alone.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

# Without symbolic links, as on Windows by default, git checks out a text file for each link.
if Path(__file__).with_name("core").is_file():
    raise ImportError(
        "this checkout of triglot has text files in place of symbolic links: run `git config "
        "core.symlinks true` and check it out again (`git checkout -- triglot`), or install a "
        "wheel with pip."
    )

_EXPORTS = {
    "core.network": ("Network", "Variables"),
    "core.networks.combinators": ("combine", "ensemble", "freeze", "scalar", "start_from"),
    "core.networks.unroll": ("unroll",),
    "checks": ("check_agent", "check_environment", "check_network"),
    "core.learner": ("Learner",),
    "core.agent": ("Agent", "AgentBase"),
    "core.environment": ("Environment", "TimeStep"),
    "core.specs": ("Box", "Dict", "Discrete"),
    "core.loop.trainer": ("Trainer",),
    "core.train": ("train",),
    "core.evaluate": ("evaluate",),
    "algorithms.dqn": ("DQN",),
    "algorithms.ppo": ("PPO",),
    "algorithms.q_learning": ("QLearning",),
    "algorithms.sac": ("SAC",),
    "backends.haiku": ("from_haiku",),
    "backends.linen": ("from_linen",),
    "backends.nnx": ("from_nnx",),
    "backends.equinox": ("from_equinox",),
    "core.errors": ("Guessed", "TriglotError"),
    "diff.compare": ("diff_networks",),
    "backends.translate": ("translate",),
    "registry.presets.find": ("preset",),
    "registry.agents": ("make_agent",),
    "registry.environments": ("make_env",),
    "training.load": ("load_run",),
    "export.policy": ("load_policy",),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}

# The same table for type checkers and editors, which then also find a misspelt name; a test
# holds the two equal.
if TYPE_CHECKING:
    from .algorithms.dqn import DQN as DQN
    from .algorithms.ppo import PPO as PPO
    from .algorithms.q_learning import QLearning as QLearning
    from .algorithms.sac import SAC as SAC
    from .backends.equinox import from_equinox as from_equinox
    from .backends.haiku import from_haiku as from_haiku
    from .backends.linen import from_linen as from_linen
    from .backends.nnx import from_nnx as from_nnx
    from .backends.translate import translate as translate
    from .checks import check_agent as check_agent
    from .checks import check_environment as check_environment
    from .checks import check_network as check_network
    from .core.agent import Agent as Agent
    from .core.agent import AgentBase as AgentBase
    from .core.environment import Environment as Environment
    from .core.environment import TimeStep as TimeStep
    from .core.errors import Guessed as Guessed
    from .core.errors import TriglotError as TriglotError
    from .core.evaluate import evaluate as evaluate
    from .core.learner import Learner as Learner
    from .core.loop.trainer import Trainer as Trainer
    from .core.network import Network as Network
    from .core.network import Variables as Variables
    from .core.networks.combinators import combine as combine
    from .core.networks.combinators import ensemble as ensemble
    from .core.networks.combinators import freeze as freeze
    from .core.networks.combinators import scalar as scalar
    from .core.networks.combinators import start_from as start_from
    from .core.networks.unroll import unroll as unroll
    from .core.specs import Box as Box
    from .core.specs import Dict as Dict
    from .core.specs import Discrete as Discrete
    from .core.train import train as train
    from .diff.compare import diff_networks as diff_networks
    from .export.policy import load_policy as load_policy
    from .registry.agents import make_agent as make_agent
    from .registry.environments import make_env as make_env
    from .registry.presets.find import preset as preset
    from .training.load import load_run as load_run
else:

    def __getattr__(name: str) -> Any:
        """Import a public name from its module on first use (PEP 562)."""
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, imported or not."""
    return sorted(globals().keys() | _HOME.keys())
