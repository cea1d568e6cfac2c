"""The rows whose only peer is Stoix: one for each of its algorithms that the others do not have.

The settings are between the defaults of both. Stoix has one epsilon for the whole training, moves
its targets after each gradient step and has 1e-5 as Adam's epsilon; here triglot has so too.
"""

from collections.abc import Mapping
from dataclasses import replace

from .row import Row

TIME_LIMITS = (
    "time limits: triglot bootstraps from the true last observation, Stoix's adapter for gymnax "
    "ends the episode as a termination does"
)
METRICS = (
    "metrics: triglot averages its losses per update, Stoix stacks them and the episode statistics "
    "of every step"
)
BEFORE = "Stoix initializes before the clock starts"
WARM_UP = "its steps before learning are taken before the clock starts too, and counted for both"
REPLAYED = {
    "rollout_length": 1,
    "num_envs": 10,
    "num_gradient_steps": 1,
    "batch_size": 128,
    "buffer_size": 10_000,
    "learning_starts": 1_000,
    "hidden_sizes": (64, 64),
}
Q_HYPER = {
    "learning_rate": 5e-4,
    "discount": 0.99,
    "epsilon": 0.1,
    "target_update_period": 1,
    "tau": 0.01,
    "max_grad_norm": 10.0,
    "adam_eps": 1e-5,
}
ATOMS = {"v_min": 0.0, "v_max": 100.0}
C51 = Row(
    algorithm="c51",
    env_id="CartPole-v1",
    total_steps=60_000,
    rounds=5,
    config={**REPLAYED, "double": True, "num_atoms": 51},
    hyper={**Q_HYPER, **ATOMS},
    peers=("Stoix",),
    differences=(TIME_LIMITS, METRICS, f"{BEFORE}; {WARM_UP}"),
)
ACTOR_CRITIC = {"num_envs": 16, "rollout_length": 32}
SEARCH = {
    "num_envs": 16,
    "rollout_length": 16,
    "num_gradient_steps": 16,
    "buffer_size": 4096,
    "learning_starts": 512,
    "num_simulations": 16,
    "gumbel": False,
}
CLIPPED = "triglot clips the norm of all gradients together, Stoix that of each network"
STOIX_ROWS: Mapping[str, Row] = {
    "c51": C51,
    "qr-dqn": replace(
        C51,
        algorithm="qr_dqn",
        config={**REPLAYED, "double": False, "num_quantiles": 51},
        hyper={**Q_HYPER, "huber_threshold": 1.0},
    ),
    "rainbow": replace(
        C51,
        algorithm="rainbow",
        total_steps=50_000,
        config={
            **REPLAYED,
            "double": True,
            "dueling": True,
            "prioritized": True,
            "n_step": 3,
            "num_atoms": 51,
            "initial_noise": 0.5,
        },
        hyper={
            **{name: value for name, value in Q_HYPER.items() if name != "epsilon"},
            **ATOMS,
            "priority_exponent": 0.5,
            "importance_sampling_exponent": 0.4,
            "importance_sampling_steps": 50_000.0,
        },
        differences=(
            *C51.differences,
            "triglot's greedy actions are without noise, Stoix's with one draw of it",
        ),
    ),
    "r2d2": replace(
        C51,
        algorithm="r2d2",
        total_steps=64_000,
        config={
            "num_envs": 16,
            "rollout_length": 20,
            "num_gradient_steps": 8,
            "batch_size": 32,
            "buffer_size": 25_600,
            "learning_starts": 1_600,
            "burn_in_length": 20,
            "unroll_length": 40,
            "n_step": 5,
            "prioritized": True,
            "double": True,
            "dueling": True,
            "rescale_values": True,
            "cell": "gru",
            "cell_size": 64,
            "hidden_sizes": (64,),
        },
        hyper={
            **Q_HYPER,
            "epsilon_alpha": 0.0,
            "priority_exponent": 0.9,
            "priority_eta": 0.9,
            "importance_sampling_exponent": 0.6,
        },
        differences=(
            *C51.differences,
            "where an episode or sequence is cut, triglot values the true successor, Stoix takes "
            "the next step's value; it sums the errors of a sequence, triglot averages them",
        ),
    ),
    "reinforce": replace(
        C51,
        algorithm="reinforce",
        total_steps=1_024_000,
        config=ACTOR_CRITIC,
        hyper={
            "learning_rate": 1e-3,
            "discount": 0.99,
            "value_coef": 0.5,
            "max_grad_norm": 0.5,
        },
        differences=(TIME_LIMITS, METRICS, BEFORE, CLIPPED),
    ),
    "vmpo": replace(
        C51,
        algorithm="vmpo",
        total_steps=512_000,
        config={
            **ACTOR_CRITIC,
            "num_epochs": 16,
            "num_minibatches": 1,
            "initial_temperature": 1.0,
            "initial_multiplier": 5.0,
        },
        hyper={
            "learning_rate": 1e-3,
            "discount": 0.99,
            "gae_lambda": 0.95,
            "value_coef": 1.0,
            "max_grad_norm": 0.5,
            "dual_learning_rate": 1e-2,
            "temperature_bound": 0.1,
            "policy_bound": 0.01,
            "target_update_period": 1,
        },
        differences=(
            TIME_LIMITS,
            METRICS,
            BEFORE,
            CLIPPED,
            "triglot estimates advantages once per update, Stoix before each gradient step",
        ),
    ),
    "ddpg": replace(
        C51,
        algorithm="ddpg",
        env_id="Pendulum-v1",
        total_steps=20_000,
        config={**REPLAYED, "num_envs": 4, "num_gradient_steps": 4},
        hyper={
            "learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "discount": 0.99,
            "tau": 0.01,
            "exploration_noise": 0.1,
        },
        differences=(
            *C51.differences,
            "triglot acts at random before it learns, Stoix by its policy; Stoix computes the norm "
            "of its gradients, and does not reach the bound",
        ),
    ),
    "mpo": replace(
        C51,
        algorithm="mpo",
        env_id="Pendulum-v1",
        total_steps=20_000,
        config={
            **REPLAYED,
            "num_envs": 4,
            "num_gradient_steps": 4,
            "num_actions": 20,
            "initial_temperature": 1.0,
            "initial_multiplier": 10.0,
        },
        hyper={
            "learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "discount": 0.99,
            "tau": 0.01,
            "target_update_period": 1,
            "dual_learning_rate": 1e-2,
            "temperature_bound": 0.1,
            "mean_bound": 0.01,
            "std_bound": 1e-4,
        },
        differences=(
            *C51.differences,
            "Stoix's 128 transitions are 8 sequences of 16, whose last states count too",
        ),
    ),
    "alphazero": replace(
        C51,
        algorithm="alphazero",
        total_steps=81_920,
        config={
            **SEARCH,
            "batch_size": 128,
            "hidden_sizes": (64, 64),
        },
        hyper={
            "learning_rate": 1e-3,
            "discount": 0.99,
            "td_lambda": 0.95,
            "value_coef": 1.0,
            "max_grad_norm": 1.0,
            "adam_eps": 1e-5,
        },
        differences=(
            TIME_LIMITS,
            METRICS,
            C51.differences[-1],
            CLIPPED,
            "triglot has one network with two heads, Stoix two; Stoix's 128 steps are 8 sequences "
            "of 16, whose targets it computes in each gradient step",
            "the greedy returns are the networks' own, without a search",
        ),
    ),
    "muzero": replace(
        C51,
        algorithm="muzero",
        total_steps=40_960,
        config={
            **SEARCH,
            "batch_size": 32,
            "hidden_sizes": (64,),
            "unroll_steps": 5,
            "latent_size": 64,
            "num_bins": 41,
            "support": 20.0,
        },
        hyper={
            "learning_rate": 1e-3,
            "discount": 0.99,
            "value_coef": 0.25,
            "max_grad_norm": 5.0,
            "adam_eps": 1e-5,
        },
        differences=(
            TIME_LIMITS,
            METRICS,
            C51.differences[-1],
            "models: Stoix's is a GRU with a residual and embedded actions, triglot's one layer; "
            "triglot has one network of logits and values, Stoix two",
            "values: triglot's targets are lambda-returns, computed once, Stoix's returns of up "
            "to 5 steps, in each gradient step",
        ),
    ),
}
