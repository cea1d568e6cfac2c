"""What is compared: one setting per row, in the words of each framework."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """One algorithm on one environment at one setting.

    Attributes:
      algorithm: the name that all frameworks give it.
      env_id: of gymnax, and of Gymnasium.
      suites: of the environment that triglot trains in, one program each.
      total_steps: environment steps of each seed in one run.
      num_seeds: seeds in one program.
      rounds: default number of rounds, chosen so that a row takes less than 3 minutes.
      triglot: `config` and `hyper` of `make_agent`.
      peers: the options of each framework that takes part.
      differences: what is not equal, whatever the options.
    """

    algorithm: str
    env_id: str
    total_steps: int
    num_seeds: int = 1
    suites: tuple[str, ...] = ("gymnax",)
    rounds: int
    triglot: Mapping[str, Mapping[str, Any]]
    peers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    differences: tuple[str, ...] = ()


PPO = {
    "config": {"num_envs": 4, "rollout_length": 128, "num_epochs": 4, "num_minibatches": 4},
    "hyper": {"learning_rate": 2.5e-4},
}
PPO_PEERS: Mapping[str, Mapping[str, Any]] = {
    "PureJaxRL": {
        "LR": 2.5e-4,
        "NUM_ENVS": 4,
        "NUM_STEPS": 128,
        "UPDATE_EPOCHS": 4,
        "NUM_MINIBATCHES": 4,
        "GAMMA": 0.99,
        "GAE_LAMBDA": 0.95,
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.01,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ANNEAL_LR": True,
    },
    "rejax": {
        "agent_kwargs": {"activation": "tanh"},
        "num_envs": 4,
        "num_steps": 128,
        "num_epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 2.5e-4,
        "max_grad_norm": 0.5,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "clip_eps": 0.2,
        "vf_coef": 0.5,
        "ent_coef": 0.01,
    },
}
STOIX_PPO: Mapping[str, Any] = {
    "arch.total_num_envs": 4,
    "system.rollout_length": 128,
    "system.epochs": 4,
    "system.num_minibatches": 4,
    "system.actor_lr": 2.5e-4,
    "system.critic_lr": 2.5e-4,
    "network.actor_network.pre_torso.layer_sizes": [64, 64],
    "network.actor_network.pre_torso.activation": "tanh",
    "network.critic_network.pre_torso.layer_sizes": [64, 64],
    "network.critic_network.pre_torso.activation": "tanh",
}
PPO_DIFFERENCES = (
    "time limits: triglot bootstraps from the true last observation; the others treat them as "
    "terminations",
    "triglot and PureJaxRL clip the norm of all gradients together, Stoix that of each network, "
    "rejax each gradient; rejax initializes as Flax does, the others orthogonally; rejax keeps the "
    "learning rate, which falls to 0 in the others",
    "Stoix initializes before the clock starts",
    "metrics: triglot averages 13 per update; PureJaxRL stacks the episode statistics of every "
    "step, Stoix also its losses and advantages; rejax has none",
)
DQN_PEERS_DIFFERENCES = (
    "time limits: triglot bootstraps from the true last observation; the others store the first "
    "observation of the next episode, or end as after a termination",
    "rejax samples its minibatches without replacement, by random keys for the whole buffer",
)

CLEANRL_CLOCK = (
    "CleanRL's process starts before the clock, its environments, networks and logs after it"
)

PPO_ROW = Row(
    algorithm="ppo",
    env_id="CartPole-v1",
    total_steps=500_000,
    rounds=10,
    triglot=PPO,
    peers={**PPO_PEERS, "Stoix": STOIX_PPO},
    differences=PPO_DIFFERENCES,
)
ROWS: Mapping[str, Row] = {
    "ppo": PPO_ROW,
    "ppo-seeds": replace(PPO_ROW, total_steps=50_000, num_seeds=16, rounds=8, peers=PPO_PEERS),
    # The rows of CleanRL have the defaults of its scripts, from which PureJaxRL's and ours come.
    "ppo-cleanrl": Row(
        algorithm="ppo",
        env_id="CartPole-v1",
        suites=("gymnasium", "gymnax"),
        total_steps=51_200,
        rounds=8,
        triglot=PPO,
        peers={"CleanRL": {"num-envs": 4, "num-steps": 128, "learning-rate": 2.5e-4}},
        differences=(
            "time limits: triglot bootstraps from the true last observation, CleanRL treats them "
            "as terminations",
            CLEANRL_CLOCK,
        ),
    ),
    "dqn-cleanrl": Row(
        algorithm="dqn",
        env_id="CartPole-v1",
        suites=("gymnasium", "gymnax"),
        total_steps=20_000,
        rounds=5,
        triglot={
            "config": {
                "num_envs": 1,
                "rollout_length": 10,
                "num_gradient_steps": 1,
                "batch_size": 128,
                "buffer_size": 10_000,
                "learning_starts": 10_000,
                "target_update_period": 50,
            },
            "hyper": {"learning_rate": 2.5e-4, "epsilon_decay_steps": 10_000.0},
        },
        peers={"CleanRL": {"train-frequency": 10, "target-network-frequency": 500}},
        differences=(
            "triglot clips the norm of the gradients at 10, CleanRL does not",
            "CleanRL compiles after the clock starts, triglot before",
            CLEANRL_CLOCK,
        ),
    ),
    "dqn": Row(
        algorithm="dqn",
        env_id="CartPole-v1",
        total_steps=200_000,
        rounds=6,
        triglot={
            "config": {"num_envs": 10, "batch_size": 128, "buffer_size": 10_000},
            "hyper": {"learning_rate": 2.5e-4, "epsilon_decay_steps": 100_000.0},
        },
        peers={
            "PureJaxRL": {
                "NUM_ENVS": 10,
                "BUFFER_SIZE": 10_000,
                "BUFFER_BATCH_SIZE": 128,
                "EPSILON_START": 1.0,
                "EPSILON_FINISH": 0.05,
                "EPSILON_ANNEAL_TIME": 100_000,
                "TARGET_UPDATE_INTERVAL": 500,
                "LR": 2.5e-4,
                "LEARNING_STARTS": 10_000,
                "TRAINING_INTERVAL": 10,
                "GAMMA": 0.99,
                "TAU": 1.0,
            },
            "rejax": {
                "agent_kwargs": {"activation": "relu"},
                "q_network": {"hidden_layer_sizes": (120, 84)},
                "num_envs": 10,
                "num_epochs": 1,
                "batch_size": 128,
                "buffer_size": 10_000,
                "fill_buffer": 10_000,
                "learning_rate": 2.5e-4,
                "max_grad_norm": 10.0,
                "target_update_freq": 500,
                "polyak": 0.0,
                "eps_start": 1.0,
                "eps_end": 0.05,
                "exploration_fraction": 0.5,
                "gamma": 0.99,
                "ddqn": False,
            },
        },
        differences=DQN_PEERS_DIFFERENCES,
    ),
    "dqn-rejax": Row(
        algorithm="dqn",
        env_id="CartPole-v1",
        total_steps=20_000,
        rounds=6,
        triglot={
            "config": {
                "num_envs": 10,
                "num_gradient_steps": 5,
                "batch_size": 100,
                "buffer_size": 50_000,
                "learning_starts": 5_000,
                "target_update_period": 1,
                "double": True,
                "dueling": True,
                "hidden_sizes": (64, 64),
            },
            "hyper": {"learning_rate": 1e-3, "epsilon_decay_steps": 10_000.0, "tau": 0.02},
        },
        peers={
            "rejax": {
                "agent": "DuelingQNetwork",
                "agent_kwargs": {"activation": "relu"},
                "num_envs": 10,
                "num_epochs": 5,
                "batch_size": 100,
                "buffer_size": 50_000,
                "fill_buffer": 5_000,
                "learning_rate": 1e-3,
                "max_grad_norm": 10.0,
                "polyak": 0.98,
                "eps_start": 1.0,
                "eps_end": 0.05,
                "exploration_fraction": 0.5,
                "gamma": 0.99,
                "ddqn": True,
            },
        },
        differences=(
            *DQN_PEERS_DIFFERENCES,
            "triglot moves the target after each gradient step, rejax once per 5 of them",
        ),
    ),
    "sac": Row(
        algorithm="sac",
        env_id="Pendulum-v1",
        total_steps=10_000,
        rounds=8,
        triglot={
            "config": {
                "num_envs": 1,
                "num_gradient_steps": 1,
                "batch_size": 256,
                "buffer_size": 10_000,
                "learning_starts": 256,
                "normalize_obs": True,
                "hidden_sizes": (64, 64),
            },
            "hyper": {
                "learning_rate": 1e-2,
                "critic_learning_rate": 1e-2,
                "temperature_learning_rate": 1e-2,
                "tau": 0.02,
            },
        },
        peers={
            "rejax": {
                "agent_kwargs": {"activation": "relu"},
                "num_envs": 1,
                "num_epochs": 1,
                "batch_size": 256,
                "buffer_size": 10_000,
                "fill_buffer": 256,
                "learning_rate": 1e-2,
                "gamma": 0.99,
                "polyak": 0.98,
                "normalize_observations": True,
            },
        },
        differences=(
            "rejax samples its minibatches without replacement, by random keys for the whole "
            "buffer",
            "rejax stores the first observation of the next episode where a time limit ends one; "
            "its first 256 actions are the policy's, triglot's are uniform",
            "rejax has the log probabilities of its action for the temperature's loss, triglot "
            "applies the actor again",
        ),
    ),
}
