"""jumanji's own training script (https://github.com/instadeepai/jumanji): A2C with Haiku.

It needs hydra-core, omegaconf and antlr4-python3-runtime, all installed with `--no-deps`.
"""

import importlib.metadata
import inspect
from pathlib import Path
from typing import Any
from unittest import mock

import jax

from .brax import REPLICATION, give_replication
from .contender import Contender, NotInstalled, Train, not_played, replaced_modules
from .row import Row


class NoEvaluation:
    """Stands for an evaluator of the script."""

    def run_evaluation(self, *of: object) -> dict[str, Any]:
        """Play nothing."""
        return {}


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build a training by jumanji's script, a whole process in each round.

    Args:
      row: of A2C, on an environment for which the script has a configuration.
      total_steps: environment steps, rounded down to whole rollouts.
      folder: unused.

    Raises:
      NotInstalled: if jumanji or what its script imports is not installed.
    """
    unused = {"neptune": ("new",), "neptune.new": (), "tensorboardX": ()}
    try:
        with replaced_modules(unused):
            from jumanji.training import (  # pyright: ignore[reportMissingImports]
                setup_train,
                train,
            )
            from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise NotInstalled(
            f"{error}; pip install --no-deps hydra-core omegaconf antlr4-python3-runtime==4.9.3"
        ) from error
    give_replication(setup_train)
    name, setting = row.env_id.partition("-")[0].lower(), row.setting
    env = OmegaConf.load(Path(train.__file__).parent / "configs/env" / f"{name}.yaml")
    num_steps, num_envs = setting["rollout_length"], setting["num_envs"]
    changed = {
        "training": {
            "num_epochs": 1,
            "num_learner_steps_per_epoch": total_steps // (num_steps * num_envs),
            "n_steps": num_steps,
            "total_batch_size": num_envs,
        },
        "a2c": {
            "discount_factor": setting["discount"],
            "bootstrapping_factor": setting["gae_lambda"],
            "l_pg": 1.0,
            "l_td": setting["value_coef"],
            "l_en": setting["entropy_coef"],
            "learning_rate": setting["learning_rate"],
        },
    }
    logger = {"type": "terminal", "save_checkpoint": False, "name": name}
    config = OmegaConf.create(
        {"agent": row.algorithm, "seed": 0, "env": OmegaConf.merge(env, changed), "logger": logger}
    )

    def learn(index: int) -> None:
        evaluators = (NoEvaluation(), NoEvaluation())
        with mock.patch.object(train, "setup_evaluators", lambda config, agent: evaluators):
            inspect.unwrap(train.train)(config)  # without hydra's command line

    def compile(keys: jax.Array) -> tuple[Train, float]:
        return learn, 0.0

    return Contender(
        compile=compile,
        act=not_played,
        version=importlib.metadata.version("jumanji"),
        patches=(
            REPLICATION,
            "its evaluations left out: triglot has none during this training",
            "neptune and tensorboardX replaced by empty modules: not used here",
        ),
    )
