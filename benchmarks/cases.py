"""Small settings of every algorithm: what the matrix trains, and what the tests try.

An algorithm's entry says where it trains and learns, and what it refuses; `benchmarks.matrix` and
the tests in `tests/conformance` and `tests/learning` run over all entries.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from triglot.core.records import Values

LIBRARIES = ("haiku", "linen", "nnx", "equinox")
CART, GRID, REACH = "gymnax:CartPole-v1", "gridworld:4x4", "probe:reach"
PENDULUM, BRAX, MAZE = "gymnax:Pendulum-v1", "brax:inverted_pendulum", "jumanji:Maze-v0"
HOST_CART, HOST_PENDULUM = "gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"
HOST_GRID = "gymnasium:FrozenLake-v1"
DISCRETE = (CART, MAZE, HOST_CART, GRID, "probe:two-step")
CONTINUOUS = (PENDULUM, BRAX, HOST_PENDULUM, REACH)
POLICY_GRADIENT = (CART, MAZE, BRAX, HOST_CART, GRID, "probe:two-step")
TABULAR = (GRID, HOST_GRID)
NOT_DISCRETE = (PENDULUM, BRAX, HOST_PENDULUM)
NOT_CONTINUOUS = (CART, MAZE, HOST_CART, GRID)
NOT_TABULAR = (CART, MAZE, BRAX, HOST_CART, "probe:two-step")


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A training that solves a probe environment.

    Attributes:
      env: the probe's name; a greedy policy then acts as it expects.
      config, hyper: options besides those of the case.
      num_updates: of the training.
      value_error: largest error of the values of the probe's observations, at discount 0.5; None
        where the agent has none.
    """

    env: str
    config: Values = field(default_factory=dict)
    hyper: Values = field(default_factory=dict)
    num_updates: int = 200
    value_error: float | None = 0.1


@dataclass(frozen=True, kw_only=True)
class Case:
    """The small settings of one algorithm.

    Attributes:
      envs: an environment of each suite that fits; the first is the one that most tests use.
      config, hyper: small networks and rollouts.
      num_updates: of a training that takes gradient steps.
      probes: trainings that learn.
      refused: words of the error by environment.
      family: algorithms of one family share most of their code; the quick tests train one of them
        on each library and suite.
      table: whether its networks may be tables, where observations are Discrete.
    """

    envs: tuple[str, ...]
    config: Values
    hyper: Values = field(default_factory=dict)
    num_updates: int = 20
    probes: tuple[Probe, ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict)
    family: str
    table: bool = True

    def backends(self, env: str | None = None) -> tuple[str, ...]:
        """List the libraries that serve an environment, by default the first."""
        tabular = self.table and (env or self.envs[0]) in TABULAR
        return (*LIBRARIES, "table") if tabular else LIBRARIES


# Rollouts of 8 steps fill the replay in 4 updates, and gradient steps begin with the second.
REPLAY: dict[str, Any] = {
    "num_envs": 2,
    "rollout_length": 4,
    "num_gradient_steps": 2,
    "batch_size": 8,
    "learning_starts": 16,
    "buffer_size": 32,
    "hidden_sizes": (8,),
}
SEQUENCES = {"burn_in_length": 1, "unroll_length": 3, "n_step": 2, "cell_size": 8}
ROLLOUTS: dict[str, Any] = {"num_envs": 2, "rollout_length": 8, "hidden_sizes": (8,)}
MINIBATCHES: dict[str, Any] = {**ROLLOUTS, "num_epochs": 1, "num_minibatches": 2}

# A probe's replay and rollouts, which learn in seconds.
PROBE_REPLAY: dict[str, Any] = {
    "num_envs": 8,
    "rollout_length": 2,
    "num_gradient_steps": 2,
    "batch_size": 32,
    "buffer_size": 1024,
    "learning_starts": 128,
    "hidden_sizes": (16,),
}
PROBE_ROLLOUTS: dict[str, Any] = {"num_envs": 8, "rollout_length": 16, "hidden_sizes": (16,)}
EXPLORING = {"learning_rate": 1e-2, "discount": 0.5, "epsilon": "linear(1, 0.5, 1_000)"}
RATES = ("learning_rate", "critic_learning_rate", "temperature_learning_rate")
REACHING = Probe(
    env="reach",
    config={**PROBE_REPLAY, "batch_size": 64, "learning_starts": 256},
    hyper={"learning_rate": 1e-3, "critic_learning_rate": 1e-2},
    num_updates=800,
    value_error=None,
)
NOISY_REACHING = replace(REACHING, hyper={**REACHING.hyper, "exploration_noise": 0.5})
SOFT_REACHING = replace(REACHING, hyper=dict.fromkeys(RATES, 1e-2), num_updates=400)
ACTION_VALUES = Probe(
    env="truncating",
    config=PROBE_REPLAY,
    hyper={**EXPLORING, "target_update_period": 10.0},
    num_updates=400,
)


def action_values(hyper: Values | None = None, **config: Any) -> Probe:
    """Add options to the probe of action values."""
    probe = ACTION_VALUES
    return replace(probe, config={**probe.config, **config}, hyper={**probe.hyper, **(hyper or {})})


DISTRIBUTED = action_values({"v_min": -2.0, "v_max": 2.0}, num_atoms=21)

CASES: dict[str, Case] = {
    "ppo": Case(
        family="policy gradient",
        envs=POLICY_GRADIENT,
        config=MINIBATCHES,
        probes=(
            Probe(
                env="obs-action-reward",
                config={**PROBE_ROLLOUTS, "num_epochs": 4, "clip_value": False},
                hyper={"learning_rate": "linear(1e-2, 0)", "discount": 0.5, "entropy_coef": 0.0},
                num_updates=120,
            ),
        ),
    ),
    "a2c": Case(
        family="policy gradient",
        envs=POLICY_GRADIENT,
        config=ROLLOUTS,
        probes=(
            Probe(
                env="truncating",
                config=PROBE_ROLLOUTS,
                hyper={"learning_rate": "linear(2e-2, 0)", "discount": 0.5, "entropy_coef": 0.0},
            ),
            Probe(
                env="reach",
                config={**PROBE_ROLLOUTS, "normalize_obs": False, "scale_rewards": False},
                hyper={"learning_rate": "linear(2e-2, 0)", "discount": 0.5, "entropy_coef": 0.0},
                num_updates=300,
                value_error=None,
            ),
        ),
    ),
    "reinforce": Case(
        family="policy gradient",
        envs=POLICY_GRADIENT,
        config=ROLLOUTS,
        probes=(
            Probe(
                env="obs-action-reward",
                config=PROBE_ROLLOUTS,
                hyper={"learning_rate": 2e-2, "discount": 0.5},
            ),
        ),
    ),
    "impala": Case(
        family="policy gradient",
        envs=POLICY_GRADIENT,
        config=MINIBATCHES,
        probes=(
            Probe(
                env="truncating",
                config={**PROBE_ROLLOUTS, "num_epochs": 2, "num_minibatches": 2},
                hyper={"learning_rate": "linear(1e-2, 0)", "discount": 0.5, "entropy_coef": 0.0},
                num_updates=120,
            ),
        ),
    ),
    "vmpo": Case(
        family="policy gradient",
        envs=POLICY_GRADIENT,
        config=MINIBATCHES,
        probes=(
            Probe(
                env="obs-action-reward",
                config={**PROBE_ROLLOUTS, "num_epochs": 2, "num_minibatches": 2},
                hyper={"learning_rate": "linear(1e-2, 0)", "discount": 0.5},
                num_updates=150,
            ),
            Probe(
                env="reach",
                config={**PROBE_ROLLOUTS, "normalize_obs": False, "scale_rewards": False},
                hyper={"learning_rate": "linear(1e-2, 0)", "discount": 0.5},
                value_error=None,
            ),
        ),
    ),
    "dqn": Case(
        family="action values",
        envs=DISCRETE,
        config=REPLAY,
        probes=(ACTION_VALUES,),
        refused=dict.fromkeys(NOT_DISCRETE, "DQN supports discrete actions"),
    ),
    "c51": Case(
        family="action values",
        envs=DISCRETE,
        config={**REPLAY, "num_atoms": 5},
        probes=(DISTRIBUTED,),
        refused=dict.fromkeys(NOT_DISCRETE, "C51 supports discrete actions"),
    ),
    "qr_dqn": Case(
        family="action values",
        envs=DISCRETE,
        config={**REPLAY, "num_quantiles": 5},
        probes=(action_values(num_quantiles=11),),
        refused=dict.fromkeys(NOT_DISCRETE, "QR-DQN supports discrete actions"),
    ),
    "iqn": Case(
        family="action values",
        envs=DISCRETE,
        config={**REPLAY, "num_tau": 3, "num_target_tau": 4, "num_policy_tau": 5},
        probes=(action_values(num_cosines=16),),
        refused=dict.fromkeys(NOT_DISCRETE, "IQN supports discrete actions"),
        table=False,
    ),
    "rainbow": Case(
        family="action values",
        envs=(CART, MAZE, HOST_CART, "probe:two-step"),
        config={**REPLAY, "num_atoms": 5},
        probes=(replace(DISTRIBUTED, config={**DISTRIBUTED.config, "n_step": 1}),),
        refused={
            **dict.fromkeys(NOT_DISCRETE, "Rainbow supports discrete actions"),
            GRID: "noisy layers are dense ones",
        },
    ),
    "pqn": Case(
        family="action values of rollouts",
        envs=DISCRETE,
        config=MINIBATCHES,
        probes=(
            Probe(
                env="truncating",
                config={**PROBE_ROLLOUTS, "num_epochs": 2, "num_minibatches": 4},
                hyper=EXPLORING,
                num_updates=250,
            ),
        ),
        refused=dict.fromkeys(NOT_DISCRETE, "PQN supports discrete actions"),
    ),
    "r2d2": Case(
        family="recurrent action values",
        envs=(CART, MAZE, HOST_CART),
        config={**REPLAY, **SEQUENCES},
        probes=(action_values({"epsilon_alpha": 0.0}, **SEQUENCES, rescale_values=False),),
        refused={
            **dict.fromkeys(NOT_DISCRETE, "R2D2 supports discrete actions"),
            GRID: "a table has no recurrent cell",
        },
        table=False,
    ),
    "ddpg": Case(
        family="actor and critic",
        envs=CONTINUOUS,
        config=REPLAY,
        probes=(NOISY_REACHING,),
        refused=dict.fromkeys(NOT_CONTINUOUS, "DDPG needs a bounded Box of float actions"),
    ),
    "td3": Case(
        family="actor and critic",
        envs=CONTINUOUS,
        config=REPLAY,
        probes=(NOISY_REACHING,),
        refused=dict.fromkeys(NOT_CONTINUOUS, "TD3 needs a bounded Box of float actions"),
    ),
    "sac": Case(
        family="actor and critic",
        envs=(*CONTINUOUS, CART, MAZE, GRID),
        config=REPLAY,
        probes=(SOFT_REACHING, replace(SOFT_REACHING, env="obs-action-reward")),
    ),
    "redq": Case(
        family="actor and critic",
        envs=(*CONTINUOUS, CART),
        config={**REPLAY, "policy_delay": 2, "num_critics": 3},
        probes=(SOFT_REACHING,),
    ),
    "crossq": Case(
        family="actor and critic",
        envs=CONTINUOUS,
        config={**REPLAY, "policy_delay": 2, "critic_hidden_sizes": (8,)},
        probes=(
            replace(
                SOFT_REACHING,
                config={**SOFT_REACHING.config, "policy_delay": 2, "critic_hidden_sizes": (16,)},
                num_updates=2_400,  # a critic whose batches' statistics differ takes longer
            ),
        ),
        refused=dict.fromkeys(NOT_CONTINUOUS, "CrossQ needs a bounded Box of float actions"),
    ),
    "tqc": Case(
        family="actor and critic",
        envs=CONTINUOUS,
        config={**REPLAY, "num_quantiles": 5},
        probes=(SOFT_REACHING,),
        refused=dict.fromkeys(NOT_CONTINUOUS, "TQC needs a bounded Box of float actions"),
    ),
    "mpo": Case(
        family="actor and critic",
        envs=(*CONTINUOUS, CART, MAZE, GRID),
        config={**REPLAY, "num_actions": 4},
        hyper={"target_update_period": 4.0},
        probes=(
            replace(REACHING, config={**REACHING.config, "num_actions": 20}),
            replace(REACHING, env="obs-action-reward"),
        ),
    ),
    "alphazero": Case(
        family="search",
        envs=(CART, MAZE, GRID, "probe:two-step"),
        config={**REPLAY, "num_simulations": 2},
        probes=(
            Probe(
                env="obs-action-reward",
                config={**PROBE_REPLAY, "num_simulations": 4},
                hyper={"learning_rate": 1e-2, "discount": 0.5, "temperature": 0.1},
                num_updates=200,
            ),
        ),
        refused={
            PENDULUM: "AlphaZero supports discrete actions",
            HOST_CART: "AlphaZero plans with the environment as its own model",
        },
    ),
    "muzero": Case(
        family="search",
        envs=DISCRETE,
        config={**REPLAY, "num_simulations": 2, "unroll_steps": 2, "latent_size": 8},
        probes=(
            Probe(
                env="obs-action-reward",
                config={**PROBE_REPLAY, "num_simulations": 8, "unroll_steps": 2, "latent_size": 8},
                # With noise of scale 1, 3 of 16 seeds are soon sure of one action and stay so.
                hyper={"learning_rate": 1e-2, "discount": 0.5, "gumbel_scale": 3.0},
                num_updates=300,
                value_error=None,
            ),
        ),
        refused=dict.fromkeys(NOT_DISCRETE, "MuZero supports discrete actions"),
        table=False,
    ),
    "q_learning": Case(
        family="tabular",
        envs=TABULAR,
        config={"rollout_length": 16},
        refused=dict.fromkeys(NOT_TABULAR, "Q-learning needs Discrete observations"),
    ),
    "monte_carlo": Case(
        family="tabular",
        envs=TABULAR,
        config={"rollout_length": 16},
        refused=dict.fromkeys(NOT_TABULAR, "Monte Carlo control needs Discrete observations"),
    ),
    "dyna_q": Case(
        family="tabular",
        envs=TABULAR,
        config={"rollout_length": 16, "planning_steps": 2},
        refused=dict.fromkeys(NOT_TABULAR, "Dyna-Q needs Discrete observations"),
    ),
    "openai_es": Case(
        family="evolution",
        envs=POLICY_GRADIENT,
        config={"num_envs": 4, "rollout_length": 8, "hidden_sizes": (8,)},
        probes=(
            Probe(
                env="obs-action-reward",
                config={"num_envs": 32, "rollout_length": 16, "hidden_sizes": (8,)},
                hyper={"learning_rate": 0.05, "noise_std": 0.2},
                num_updates=60,
                value_error=None,
            ),
            Probe(
                env="reach",
                config={"num_envs": 32, "rollout_length": 16, "hidden_sizes": (8,)},
                hyper={"learning_rate": 0.05, "noise_std": 0.2},
                num_updates=100,
                value_error=None,
            ),
        ),
    ),
}
"""By algorithm, in the order of `triglot list algorithms`."""
