"""The training scripts of suites of environments, from clones of their repositories.

- Craftax_Baselines (https://github.com/MichaelTMatthews/Craftax_Baselines): `ppo.py`.
- XLand-MiniGrid (https://github.com/dunnolab/xland-minigrid): `training/train_single_task.py`.

They are imported from folders that the user names.
"""

import importlib
import time
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp

from .contender import (
    Contender,
    Train,
    clone,
    compile_one_program,
    import_files,
    not_played,
    revision_of,
)
from .row import Row


def craftax_baselines(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build the program of Craftax_Baselines' PPO.

    Args:
      row: of PPO on Craftax, with dense layers of one width.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold its file.
    """
    folder = clone(folder, "craftax-baselines", "models/actor_critic.py")
    unused = {"wandb": (), "logz.batch_logging": ("batch_log", "create_log_dict")}
    (module,) = import_files(folder, unused, "ppo")
    config = {
        **row.given("PureJaxRL"),
        "ENV_NAME": row.env_id,
        "TOTAL_TIMESTEPS": total_steps,
        "LAYER_SIZE": row.setting["hidden_sizes"][0],
        "ANNEAL_LR": True,
        "USE_OPTIMISTIC_RESETS": True,
        "OPTIMISTIC_RESET_RATIO": 16,
        "TRAIN_ICM": False,
        "USE_E3B": False,
        "DEBUG": False,
        "USE_WANDB": False,
    }
    return Contender(
        compile=compile_one_program(
            module.make_train(config), lambda out: out["runner_state"][0].params
        ),
        act=not_played,
        version=revision_of(folder),
        patches=("wandb and its logs replaced by empty modules: not used here",),
    )


def xminigrid(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build the program of XLand-MiniGrid's recurrent PPO.

    Args:
      row: of PPO with a GRU on XLand-MiniGrid.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold its file.
    """
    folder = clone(folder, "xminigrid", "training/train_single_task.py")
    unused = {"wandb": (), "pyrallis": {"wrap": lambda: lambda function: function}}
    importlib.import_module("xminigrid.wrappers")
    with mock.patch.object(jnp, "asarray", lambda number: number):
        (module,) = import_files(folder / "training", unused, "train_single_task")
    stats = module.rollout.__globals__["RolloutStats"]
    module.rollout = lambda *given: stats()
    setting = row.setting
    config = module.TrainConfig(
        env_id=row.env_id,
        rnn_hidden_dim=setting["cell_size"],
        head_hidden_dim=setting["hidden_sizes"][0],
        num_envs=setting["num_envs"],
        num_steps=setting["rollout_length"],
        update_epochs=setting["num_epochs"],
        num_minibatches=setting["num_minibatches"],
        total_timesteps=total_steps,
        lr=setting["learning_rate"],
        gamma=setting["discount"],
        gae_lambda=setting["gae_lambda"],
        ent_coef=setting["entropy_coef"],
        vf_coef=setting["value_coef"],
        max_grad_norm=setting["max_grad_norm"],
        eval_episodes=1,
    )

    def compile(keys: jax.Array) -> tuple[Train, float]:
        start = time.perf_counter()
        _, env, params, carry, state = module.make_states(config)
        carry, state = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], (carry, state))
        program = module.make_train(env, params, config).lower(keys[0], state, carry).compile()
        seconds = time.perf_counter() - start
        return lambda index: program(keys[index], state, carry)["runner_state"][1].params, seconds

    return Contender(
        compile=compile,
        act=not_played,
        version=revision_of(folder),
        patches=(
            "wandb and pyrallis replaced by empty modules: for its command line and logs alone",
            "defaults of its RolloutStats are Python's numbers: from Python 3.11, no field of a "
            "dataclass may be an array by default",
            "its evaluation after each update left out: triglot has none during training",
        ),
    )
