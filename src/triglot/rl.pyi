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
from .core.environment import (
    BothPlayers,
    Curriculum,
    Environment,
    Game,
    TimeStep,
    TwoPlayerGame,
    first_step,
)
from .core.errors import TriglotError
from .core.families.action_values import (
    ReplayedBatch,
    ReplayedQ,
    ReplayedQConfig,
    ReplayedQHyperparams,
    ReplayedQState,
)
from .core.families.actor_critic import (
    ActorCritic,
    ActorCriticBatch,
    ActorCriticConfig,
    ActorCriticHyperparams,
    ActorCriticState,
    TargetFreeHyperparams,
    joined,
)
from .core.families.auxiliary import AuxiliaryLoss
from .core.families.extension import Extension, extend
from .core.families.policy_gradient import (
    AdvantageSamples,
    PolicyGradient,
    PolicyGradientConfig,
    PolicyGradientHyperparams,
    PolicyGradientState,
    PolicySamples,
    with_advantage,
)
from .core.families.tabular import Tabular, TabularConfig, TabularHyperparams
from .core.families.tree_search import (
    TreeSearch,
    TreeSearchConfig,
    TreeSearchHyperparams,
    TreeSearchState,
)
from .core.hyper import (
    CountByEnvironment,
    Number,
    NumberByEnvironment,
    anneals,
    as_float32,
    below,
    between,
    by_environment,
    check_divides,
    finite,
    non_negative,
    one_of,
    only_for,
    part_of,
    positive,
    unit_interval,
)
from .core.learner import Learner, LearnerState, Loss, steps_if_ready
from .core.loop.vectorize import VectorEnvironment
from .core.rl.cuts import truncated_or_cut, truncations
from .core.rl.distributional import (
    categorical_mean,
    categorical_target,
    ensemble_quantile_losses,
    huber_quantile_losses,
    lowest_quantiles,
    tau_midpoints,
)
from .core.rl.distributions import (
    Categorical,
    MultiCategorical,
    SquashedGaussian,
    WeightedActions,
    categorical,
    from_unit_box,
    multi_categorical,
    policy,
    squashed,
    squashed_gaussian,
    to_action,
    unit_actions,
    unit_box,
    weighted_actions,
)
from .core.rl.exploration import (
    at_action,
    epsilon_greedy,
    epsilon_greedy_probs,
    epsilon_greedy_value,
    greedy,
    linear_schedule,
    mask_q,
    noisy,
    sample_probs,
    soft_value,
)
from .core.rl.learning import replay_and_learn
from .core.rl.losses import (
    clipped_value_loss,
    ensemble_loss,
    explained_variance,
    gae,
    lambda_returns,
    successor_values,
    vtrace,
)
from .core.rl.minibatches import epochs_of_minibatches, flatten, swap_time
from .core.rl.normalize import (
    Normalizer,
    RunningStats,
    discounted_sums,
    normalized,
    require_normalizable,
)
from .core.rl.optimizers import OptimizerFn, adam, adamw, lion, radam, rmsprop, sgd
from .core.rl.planning import Planner, require_model, root_of, step_model, turn
from .core.rl.priorities import importance_weights
from .core.rl.replay import (
    PrioritizedReplayConfig,
    Replay,
    ReplayConfig,
    ReplayState,
    Sample,
)
from .core.rl.schedules import Schedule, schedule
from .core.rl.search import (
    Found,
    Node,
    SearchConfig,
    SearchHyperparams,
    mean_entropy,
    search,
    search_targets_like,
    with_search_targets,
)
from .core.rl.sequences import (
    SequenceReplay,
    SequenceReplayConfig,
    SequenceReplayState,
    Sequences,
    sequence_priority,
)
from .core.rl.targets import is_multiple, polyak, target_of
from .core.specs import (
    Box,
    Dict,
    Discrete,
    MultiDiscrete,
    Spec,
    one_hot,
    one_hot_spec,
    vector,
    vector_size,
    zeros,
)
from .core.types import Carry, Metrics, Obs, PyTree, pytree_dataclass
from .core.wrappers.actions import ActionRepeat, StickyActions
from .core.wrappers.base import Wrapper
from .core.wrappers.ends import AbsorbingStates, TimeLimit
from .core.wrappers.levels import Levels, held_out
from .core.wrappers.observations import FlattenObservation, FrameStack, SelectEntries
from .core.wrappers.rewards import ClipReward, ScaleReward

__all__ = [
    # An algorithm
    "AgentBase", "AgentConfig", "AgentState", "PolicyInput", "PolicyOutput", "Trajectory",
    "Loss", "Metrics", "Obs", "Carry", "PyTree", "pytree_dataclass", "Agent", "ActionValues",
    # Families of algorithms
    "ReplayedQ", "ReplayedQConfig", "ReplayedQHyperparams", "ReplayedQState", "ReplayedBatch",
    "PolicyGradient", "PolicyGradientConfig", "PolicyGradientHyperparams", "PolicyGradientState",
    "PolicySamples", "AdvantageSamples", "with_advantage",
    "ActorCritic", "ActorCriticConfig", "ActorCriticHyperparams", "ActorCriticState",
    "ActorCriticBatch", "TargetFreeHyperparams", "joined",
    "Tabular", "TabularConfig", "TabularHyperparams",
    "TreeSearch", "TreeSearchConfig", "TreeSearchHyperparams", "TreeSearchState",
    # What is added to an algorithm
    "Extension", "AuxiliaryLoss", "extend",
    # Its options
    "Number", "unit_interval", "non_negative", "positive", "finite", "between", "below", "one_of",
    "only_for", "part_of", "by_environment", "CountByEnvironment", "NumberByEnvironment", "anneals",
    "check_divides", "as_float32", "Schedule", "schedule", "TriglotError",
    # Gradient steps
    "Learner", "LearnerState", "steps_if_ready", "replay_and_learn", "OptimizerFn", "adam", "adamw",
    "lion", "radam", "rmsprop", "sgd",
    # Policies and exploration
    "policy", "to_action", "categorical", "Categorical", "squashed_gaussian", "SquashedGaussian",
    "squashed", "weighted_actions", "WeightedActions", "unit_box", "unit_actions", "from_unit_box",
    "greedy", "epsilon_greedy", "epsilon_greedy_probs", "epsilon_greedy_value", "sample_probs",
    "at_action", "linear_schedule", "mask_q", "soft_value", "noisy",
    "multi_categorical", "MultiCategorical",
    # Rollouts to samples and minibatches
    "epochs_of_minibatches", "flatten", "swap_time",
    # Returns and losses
    "gae", "lambda_returns", "vtrace", "discounted_sums", "successor_values",
    "clipped_value_loss", "ensemble_loss", "explained_variance", "categorical_mean",
    "categorical_target", "tau_midpoints", "huber_quantile_losses",
    "ensemble_quantile_losses", "lowest_quantiles",
    # Replay and target networks
    "ReplayConfig", "PrioritizedReplayConfig", "Replay", "ReplayState", "Sample",
    "importance_weights", "target_of", "polyak", "is_multiple", "truncated_or_cut", "truncations",
    "SequenceReplayConfig", "SequenceReplay", "SequenceReplayState",
    "Sequences", "sequence_priority",
    # Normalization
    "Normalizer", "RunningStats", "normalized", "require_normalizable",
    # Planning
    "search", "Node", "Found", "SearchConfig", "SearchHyperparams",
    "search_targets_like", "with_search_targets", "mean_entropy", "Planner", "require_model",
    "root_of", "step_model", "turn",
    # Environments
    "Environment", "TimeStep", "first_step", "VectorEnvironment", "Curriculum",
    "Game", "TwoPlayerGame", "BothPlayers",
    "Wrapper", "TimeLimit", "StickyActions", "ActionRepeat", "ScaleReward", "ClipReward",
    "FlattenObservation", "SelectEntries", "AbsorbingStates", "FrameStack", "Levels", "held_out",
    "Box", "Dict", "Discrete", "MultiDiscrete", "Spec", "zeros", "one_hot", "one_hot_spec",
    "vector", "vector_size",
]  # fmt: skip
