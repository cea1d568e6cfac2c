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
BEFORE = (
    "Stoix initializes before the clock starts, and takes the steps before learning then, which "
    "are counted for both"
)
REPLAYED = {
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
    total_steps=100_000,
    rounds=5,
    config={**REPLAYED, "double": True, "num_atoms": 51},
    hyper={**Q_HYPER, **ATOMS},
    peers=("Stoix",),
    differences=(TIME_LIMITS, METRICS, BEFORE),
)
STOIX_ROWS: Mapping[str, Row] = {
    "c51": C51,
    "qr-dqn": replace(
        C51,
        algorithm="qr_dqn",
        config={**REPLAYED, "double": False, "num_quantiles": 51},
        hyper={**Q_HYPER, "huber_threshold": 1.0},
    ),
}
