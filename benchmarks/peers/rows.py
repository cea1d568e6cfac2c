"""What is compared: one setting per row, in triglot's words.

The file of each peer translates a setting into its own options.
"""

from collections.abc import Mapping
from dataclasses import replace

from .cold import FLOOR
from .row import Row
from .stoix_rows import STOIX_ROWS

PPO_HYPER = {
    "learning_rate": "linear(2.5e-4, 0)",
    "discount": 0.99,
    "gae_lambda": 0.95,
    "clip_epsilon": 0.2,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "max_grad_norm": 0.5,
}
PPO = Row(
    algorithm="ppo",
    env_id="CartPole-v1",
    total_steps=500_000,
    rounds=10,
    config={"num_envs": 4, "rollout_length": 128, "num_epochs": 4, "num_minibatches": 4},
    hyper=PPO_HYPER,
    peers=("PureJaxRL", "rejax", "Stoix"),
    differences=(
        "time limits: triglot bootstraps from the true last observation; the others treat them as "
        "terminations",
        "triglot and PureJaxRL clip the norm of all gradients together, Stoix that of each "
        "network, rejax each gradient; rejax initializes as Flax does, the others orthogonally; "
        "rejax keeps the learning rate, which falls to 0 in the others",
        "Stoix initializes before the clock starts",
        "metrics: triglot averages 13 per update; PureJaxRL stacks the episode statistics of every "
        "step, Stoix also its losses and advantages; rejax has none",
    ),
)
DQN = Row(
    algorithm="dqn",
    env_id="CartPole-v1",
    total_steps=200_000,
    rounds=6,
    config={
        "num_envs": 10,
        "num_gradient_steps": 1,
        "batch_size": 128,
        "buffer_size": 10_000,
        "learning_starts": 10_000,
        "double": False,
        "dueling": False,
        "hidden_sizes": (120, 84),
    },
    hyper={
        "learning_rate": 2.5e-4,
        "discount": 0.99,
        "target_update_period": 50,
        "epsilon": "linear(1, 0.05, 100_000)",
        "tau": 1.0,
        "max_grad_norm": 10.0,
    },
    peers=("PureJaxRL", "rejax"),
    differences=(
        "time limits: triglot bootstraps from the true last observation; the others store the "
        "first observation of the next episode, or end as after a termination",
        "rejax samples its minibatches without replacement, by random keys for the whole buffer",
    ),
)
CLEANRL_CLOCK = (
    "CleanRL's process starts before the clock, its environments, networks and logs after it"
)
# The defaults of either in the row with Stable-Baselines3.
SB3 = replace(
    PPO,
    total_steps=49_152,
    rounds=6,
    suites=("gymnasium",),
    config={**PPO.config, "num_envs": 8, "clip_value": True},
    hyper={**PPO_HYPER, "learning_rate": 2.5e-4},
    peers=("Stable-Baselines3",),
    differences=("Stable-Baselines3 builds its environments and networks after the clock starts",),
)
SB3_DEFAULTS = replace(
    SB3,
    total_steps=32_768,
    rounds=3,
    config={
        "num_envs": 8,
        "rollout_length": 2048,
        "num_epochs": 10,
        "num_minibatches": 256,
        "clip_value": False,
    },
    hyper={**SB3.hyper, "learning_rate": 3e-4, "entropy_coef": 0.0},
)
MUJOCO = replace(
    SB3_DEFAULTS,
    env_id="HalfCheetah-v5",
    suites=("envpool", "gymnasium"),
    config={
        **SB3_DEFAULTS.config,
        "num_envs": 16,
        "normalize_obs": False,
        "scale_rewards": False,
    },
    differences=(
        *SB3.differences,
        "triglot squashes actions by tanh into their bounds, Stable-Baselines3 clips them",
    ),
)
PQN = Row(
    algorithm="pqn",
    env_id="CartPole-v1",
    total_steps=200_704,
    rounds=6,
    config={
        "num_envs": 32,
        "rollout_length": 64,
        "num_epochs": 4,
        "num_minibatches": 16,
        "hidden_sizes": (128, 128),
    },
    hyper={
        "learning_rate": "linear(5e-4, 0)",
        "discount": 0.99,
        "q_lambda": 0.95,
        "epsilon": "linear(1, 0.2, 40_000)",
        "max_grad_norm": 10.0,
    },
    peers=("purejaxql", "rejax"),
    differences=(
        "time limits: triglot bootstraps from the true last observation; the others treat them "
        "as terminations",
        "rejax has Adam and a constant learning rate, the others RAdam and one that falls to "
        "0; rejax clips each gradient, the others the norm of all",
        "triglot's layers start orthogonal, the others as Flax's do",
        "purejaxql also keeps running statistics of its batches, which it does not use",
    ),
)
SAC = Row(
    algorithm="sac",
    env_id="Pendulum-v1",
    total_steps=10_000,
    rounds=8,
    config={
        "num_envs": 1,
        "num_gradient_steps": 1,
        "batch_size": 256,
        "buffer_size": 10_000,
        "learning_starts": 256,
        "normalize_obs": True,
        "hidden_sizes": (64, 64),
    },
    hyper={
        "learning_rate": 1e-2,
        "critic_learning_rate": 1e-2,
        "temperature_learning_rate": 1e-2,
        "discount": 0.99,
        "tau": 0.02,
    },
    peers=("rejax",),
    differences=(
        "rejax samples its minibatches without replacement, by random keys for the whole buffer",
        "rejax stores the first observation of the next episode where a time limit ends one; "
        "its first 256 actions are the policy's, triglot's are uniform",
        "rejax has the log probabilities of its action for the temperature's loss, triglot "
        "applies the actor again",
    ),
)
ROWS: Mapping[str, Row] = {
    "ppo": PPO,
    "ppo-seeds": replace(
        PPO, total_steps=50_000, num_seeds=16, rounds=8, peers=("PureJaxRL", "rejax")
    ),
    "cold-start": replace(
        PPO,
        total_steps=51_200,
        rounds=5,
        whole_process=True,
        peers=("PureJaxRL", "rejax", FLOOR),
    ),
    "cold-start-sac": replace(SAC, rounds=5, whole_process=True),
    "cold-start-brax": Row(
        algorithm="ppo",
        env_id="inverted_pendulum",
        suites=("brax",),
        total_steps=102_400,
        rounds=5,
        whole_process=True,
        config={
            "num_envs": 256,
            "rollout_length": 20,
            "num_epochs": 4,
            "num_minibatches": 8,
            "hidden_sizes": (64, 64),
            "normalize_obs": True,
        },
        hyper={**PPO_HYPER, "learning_rate": 3e-4},
        peers=("brax",),
        differences=(
            "minibatches: brax's are of whole rollouts, triglot's of single steps",
            "activations: brax's are swish, triglot's tanh",
            "brax computes advantages again in each gradient step",
        ),
    ),
    "cold-start-maze": Row(
        algorithm="a2c",
        env_id="Maze-v0",
        suites=("jumanji",),
        total_steps=6_400,
        rounds=5,
        whole_process=True,
        config={
            "num_envs": 128,
            "rollout_length": 10,
            "channels": (32, 32, 8),
            "kernel_size": (3, 3, 3),
            "stride": (1, 1, 1),
            "hidden_sizes": (64, 64),
        },
        hyper={
            "learning_rate": 3e-4,
            "discount": 0.99,
            "gae_lambda": 0.95,
            "value_coef": 1.0,
            "entropy_coef": 0.01,
        },
        peers=("jumanji",),
        differences=(
            "networks: jumanji's read one plane, in which the agent is 2 and the target 3, and its "
            "critic has layers of 128; triglot's read one plane for each",
            "gradients: triglot limits their norm, jumanji does not",
        ),
    ),
    # The rows of CleanRL have the defaults of its scripts, from which PureJaxRL's and ours come.
    "ppo-cleanrl": replace(
        PPO,
        suites=("gymnasium", "gymnax"),
        total_steps=51_200,
        rounds=8,
        peers=("CleanRL",),
        differences=(
            "time limits: triglot bootstraps from the true last observation, CleanRL treats them "
            "as terminations",
            CLEANRL_CLOCK,
        ),
    ),
    "ppo-gymnasium": SB3,
    "ppo-gymnasium-sb3": SB3_DEFAULTS,
    "halfcheetah": MUJOCO,
    "ant": replace(MUJOCO, env_id="Ant-v5", suites=("envpool",)),
    "dqn": DQN,
    "dqn-rejax": replace(
        DQN,
        total_steps=20_000,
        config={
            "num_envs": 10,
            "num_gradient_steps": 5,
            "batch_size": 100,
            "buffer_size": 50_000,
            "learning_starts": 5_000,
            "double": True,
            "dueling": True,
            "hidden_sizes": (64, 64),
        },
        hyper={
            **DQN.hyper,
            "learning_rate": 1e-3,
            "target_update_period": 1,
            "epsilon": "linear(1, 0.05, 10_000)",
            "tau": 0.02,
        },
        peers=("rejax",),
        differences=(
            *DQN.differences,
            "triglot moves the target after each gradient step, rejax once per 5 of them",
        ),
    ),
    "dqn-cleanrl": replace(
        DQN,
        suites=("gymnasium", "gymnax"),
        total_steps=20_000,
        rounds=5,
        config={**DQN.config, "num_envs": 1, "rollout_length": 10},
        hyper={**DQN.hyper, "epsilon": "linear(1, 0.05, 10_000)"},
        peers=("CleanRL",),
        differences=(
            "triglot clips the norm of the gradients at 10, CleanRL does not",
            "CleanRL compiles after the clock starts, triglot before",
            CLEANRL_CLOCK,
        ),
    ),
    "sac": SAC,
    "td3": Row(
        algorithm="td3",
        env_id="Pendulum-v1",
        total_steps=10_000,
        rounds=8,
        config={
            "num_envs": 1,
            "rollout_length": 2,
            "num_gradient_steps": 2,
            "policy_delay": 2,
            "batch_size": 256,
            "buffer_size": 10_000,
            "learning_starts": 256,
            "hidden_sizes": (64, 64),
        },
        hyper={
            "learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "discount": 0.99,
            "tau": 0.01,
            "exploration_noise": 0.1,
            "target_noise": 0.2,
            "target_noise_clip": 0.5,
        },
        peers=("rejax",),
        differences=(
            "rejax samples its minibatches without replacement, by random keys for the whole "
            "buffer",
            "rejax stores the first observation of the next episode where a time limit ends one, "
            "as a termination",
            "rejax averages both critics in the actor's loss, triglot takes the first",
        ),
    ),
    "crossq": Row(
        algorithm="crossq",
        env_id="Pendulum-v1",
        suites=("gymnasium",),
        total_steps=3_000,
        rounds=5,
        config={
            "num_envs": 1,
            "rollout_length": 3,
            "num_gradient_steps": 3,
            "policy_delay": 3,
            "batch_size": 256,
            "buffer_size": 10_000,
            "learning_starts": 300,
            "hidden_sizes": (256, 256),
            "critic_hidden_sizes": (256, 256),
        },
        hyper={
            "learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "temperature_learning_rate": 1e-3,
            "discount": 0.99,
            "adam_b1": 0.5,
        },
        peers=("SBX",),
        differences=(
            "the temperature's Adam averages with 0.5 in triglot, with 0.9 in SBX; its loss draws "
            "actions again in triglot, SBX takes those of the actor's loss",
            "SBX takes its first 306 steps before the clock starts, which are counted for both",
        ),
    ),
    "iqn": Row(
        algorithm="iqn",
        env_id="CartPole-v1",
        total_steps=20_000,
        rounds=6,
        config={
            "num_envs": 10,
            "num_gradient_steps": 5,
            "batch_size": 64,
            "buffer_size": 10_000,
            "learning_starts": 1_000,
            "double": True,
            "hidden_sizes": (64, 64),
            "num_tau": 8,
            "num_target_tau": 8,
        },
        hyper={
            "huber_threshold": 1.0,
            "target_update_period": 1,
            "learning_rate": 5e-4,
            "discount": 0.99,
            "epsilon": "linear(1, 0.05, 10_000)",
            "tau": 0.02,
            "max_grad_norm": 10.0,
        },
        peers=("rejax",),
        differences=(
            *DQN.differences,
            "rejax's network has one layer of 64 units more, after the features of tau",
            "rejax's targets are those of the learned network; it moves its target once per 5 "
            "gradient steps, and does not read it",
        ),
    ),
    **STOIX_ROWS,
    "pqn": PQN,
    "pqn-minatar": replace(
        PQN,
        env_id="Breakout-MinAtar",
        total_steps=1_003_520,
        rounds=5,
        config={
            "num_envs": 128,
            "rollout_length": 32,
            "num_epochs": 2,
            "num_minibatches": 32,
            "channels": (16,),
            "kernel_size": 3,
            "hidden_sizes": (128,),
        },
        hyper={
            **PQN.hyper,
            "q_lambda": 0.65,
            "epsilon": "linear(1, 0.05, 100_352)",
        },
        peers=("purejaxql",),
        differences=(
            PQN.differences[0],
            "triglot's layers start orthogonal, purejaxql's as He et al.'s; it divides the pixels, "
            "which are 0 or 1, by 255",
            PQN.differences[-1],
        ),
    ),
    "navix": Row(
        algorithm="ppo",
        env_id="Navix-DoorKey-8x8-v0,observation=symbolic,flatten_observation=True",
        suites=("navix",),
        total_steps=262_144,
        rounds=5,
        config={"num_envs": 16, "rollout_length": 128, "num_epochs": 2, "num_minibatches": 1},
        hyper={
            **PPO_HYPER,
            "learning_rate": "linear(3e-4, 0)",
            "discount": 0.95,
            "gae_lambda": 0.9,
            "max_grad_norm": 1.0,
        },
        peers=("rejax",),
        differences=(
            PPO.differences[1],
            "Navix's own setting, for rejax; its wrapper keeps each environment's images of the "
            "sprites in the state, triglot's adapter drops them",
        ),
    ),
    "craftax": Row(
        algorithm="ppo",
        env_id="Craftax-Classic-Symbolic-v1",
        suites=("craftax",),
        total_steps=32_768,
        rounds=5,
        config={
            "num_envs": 64,
            "rollout_length": 64,
            "num_epochs": 4,
            "num_minibatches": 8,
            "hidden_sizes": (256, 256, 256),
        },
        hyper={
            **PPO_HYPER,
            "learning_rate": "linear(2e-4, 0)",
            "gae_lambda": 0.8,
            "max_grad_norm": 1.0,
        },
        peers=("Craftax_Baselines",),
        differences=(
            "Craftax_Baselines starts all episodes that end in one step from at most 4 new worlds "
            "(optimistic resets), triglot makes one for each",
            PPO.differences[0],
        ),
    ),
    "xminigrid": Row(
        algorithm="ppo",
        env_id="MiniGrid-DoorKey-8x8",
        suites=("xminigrid",),
        total_steps=32_768,
        rounds=5,
        config={
            "num_envs": 64,
            "rollout_length": 32,
            "num_epochs": 1,
            "num_minibatches": 8,
            "cell": "gru",
            "cell_size": 64,
            "channels": (16, 32, 64),
            "kernel_size": 2,
            "hidden_sizes": (64,),
        },
        hyper={**PPO_HYPER, "learning_rate": "linear(1e-3, 0)"},
        peers=("XLand-MiniGrid",),
        differences=(
            "networks: XLand-MiniGrid embeds tiles, colours, the direction, the last action and "
            "reward, and both heads share one cell; triglot reads one plane for each tile and "
            "colour, has a layer of 64 before the cell, and actor and critic share nothing",
            PPO.differences[0],
        ),
    ),
    "playground": Row(
        algorithm="ppo",
        env_id="CartpoleBalance",
        suites=("playground",),
        total_steps=491_520,
        rounds=5,
        config={
            "num_envs": 256,
            "rollout_length": 30,
            "num_epochs": 4,
            "num_minibatches": 8,
            "hidden_sizes": (64, 64),
            "normalize_obs": True,
        },
        hyper={**PPO_HYPER, "learning_rate": "linear(1e-3, 0)", "discount": 0.995},
        peers=("brax",),
        differences=(
            "minibatches: brax's are of whole rollouts, triglot's of single steps",
            "activations: brax's are swish, triglot's tanh",
            "brax restarts an episode from the same state in each environment, triglot from a new "
            "one; brax computes advantages again in each gradient step",
        ),
    ),
}
