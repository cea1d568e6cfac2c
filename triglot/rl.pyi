from .core.agent import (
    ActionValues,
    Agent,
    AgentBase,
    AgentConfig,
    AgentState,
    PolicyInput,
    PolicyOutput,
    Trajectory,
)
from .core.environment import Environment, TimeLimit, TimeStep, first_step
from .core.errors import TriglotError
from .core.hyper import (
    Number,
    as_float32,
    between,
    check_divides,
    finite,
    one_of,
    only_for,
    positive,
    unit_interval,
)
from .core.learner import Learner, LearnerState, steps_if_ready
from .core.loop.vectorize import VectorEnvironment
from .core.rl.distributions import (
    Categorical,
    MultiCategorical,
    SquashedGaussian,
    categorical,
    from_unit_box,
    multi_categorical,
    policy,
    squashed_gaussian,
    to_action,
    unit_box,
)
from .core.rl.exploration import epsilon_greedy, epsilon_greedy_probs, mask_q
from .core.rl.losses import clipped_value_loss, explained_variance, gae, successor_values
from .core.rl.normalize import Normalizer, RunningStats, normalized, require_normalizable
from .core.rl.optimizers import OptimizerFn, adam, adamw, lion, rmsprop, sgd
from .core.rl.replay import (
    PrioritizedReplayConfig,
    Replay,
    ReplayConfig,
    ReplayState,
    Sample,
    importance_weights,
)
from .core.rl.targets import polyak, target_of
from .core.specs import Box, Dict, Discrete, MultiDiscrete, Spec, zeros
from .core.types import Metrics, pytree_dataclass

__all__ = [
    # An algorithm
    "AgentBase", "AgentConfig", "AgentState", "PolicyInput", "PolicyOutput", "Trajectory",
    "Metrics", "pytree_dataclass", "Agent", "ActionValues",
    # Its options
    "Number", "unit_interval", "positive", "finite", "between", "one_of", "only_for",
    "check_divides", "as_float32", "TriglotError",
    # Gradient steps
    "Learner", "LearnerState", "steps_if_ready", "OptimizerFn", "adam", "adamw", "lion", "rmsprop",
    "sgd",
    # Policies and exploration
    "policy", "to_action", "categorical", "Categorical", "multi_categorical", "MultiCategorical",
    "squashed_gaussian", "SquashedGaussian", "unit_box", "from_unit_box", "epsilon_greedy",
    "epsilon_greedy_probs", "mask_q",
    # Returns and losses
    "gae", "successor_values", "clipped_value_loss", "explained_variance",
    # Replay and target networks
    "ReplayConfig", "PrioritizedReplayConfig", "Replay", "ReplayState", "Sample",
    "importance_weights", "target_of", "polyak",
    # Normalization
    "Normalizer", "RunningStats", "normalized", "require_normalizable",
    # Environments
    "Environment", "TimeStep", "first_step", "TimeLimit", "VectorEnvironment",
    "Box", "Dict", "Discrete", "MultiDiscrete", "Spec", "zeros",
]  # fmt: skip
