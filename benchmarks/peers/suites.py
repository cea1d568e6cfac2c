"""The training scripts of suites of environments, and of their authors' baselines.

- brax's PPO (https://github.com/google/brax), with which MuJoCo Playground trains; a package.
- Craftax_Baselines (https://github.com/MichaelTMatthews/Craftax_Baselines): `ppo.py`.
- XLand-MiniGrid (https://github.com/dunnolab/xland-minigrid): `training/train_single_task.py`.

The last two are imported from folders that the user names.
"""

import functools
import importlib.metadata
import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from .contender import (
    Contender,
    NotInstalled,
    Train,
    clone,
    compile_one_program,
    import_files,
    overridden,
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
        act=_not_played,
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
        act=_not_played,
        version=revision_of(folder),
        patches=(
            "wandb and pyrallis replaced by empty modules: for its command line and logs alone",
            "defaults of its RolloutStats are Python's numbers: from Python 3.11, no field of a "
            "dataclass may be an array by default",
            "its evaluation after each update left out: triglot has none during training",
        ),
    )


def brax(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build brax's PPO on an environment of MuJoCo Playground.

    `brax.training` has no compiled program to hand out: it trains in a thread, and one epoch of
    it, `total_steps` long, is a round. The first two epochs compile and are not counted.

    Args:
      row: of PPO on Playground.
      total_steps: environment steps of an epoch.
      folder: unused.

    Raises:
      NotInstalled: if Playground is not installed.
    """
    try:
        from brax.training.agents.ppo import networks, train
        from mujoco_playground import registry  # pyright: ignore[reportMissingImports]
        from mujoco_playground._src import wrapper  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise NotInstalled(f"{error}; pip install 'triglot[playground]'") from error
    give_replication(train)
    env: Any = registry.load(row.env_id, config_overrides={"impl": "jax"})
    defaults: Any = registry.get_default_config(row.env_id)
    setting, sizes = row.setting, row.setting["hidden_sizes"]

    def compile(keys: jax.Array) -> tuple[Train, float]:
        rounds = len(keys)
        learn = functools.partial(
            train.train,
            environment=env,
            wrap_env_fn=wrapper.wrap_for_brax_training,
            max_devices_per_host=1,
            num_timesteps=total_steps * (rounds + 2),
            num_evals=rounds + 3,
            run_evals=False,
            episode_length=defaults.episode_length,
            num_envs=setting["num_envs"],
            unroll_length=setting["rollout_length"],
            batch_size=setting["num_envs"] // setting["num_minibatches"],
            num_minibatches=setting["num_minibatches"],
            num_updates_per_batch=setting["num_epochs"],
            normalize_observations=setting["normalize_obs"],
            learning_rate=setting["learning_rate"],
            discounting=setting["discount"],
            gae_lambda=setting["gae_lambda"],
            clipping_epsilon=setting["clip_epsilon"],
            entropy_cost=setting["entropy_coef"],
            max_grad_norm=setting["max_grad_norm"],
            network_factory=functools.partial(
                networks.make_ppo_networks,
                policy_hidden_layer_sizes=sizes,
                value_hidden_layer_sizes=sizes,
            ),
        )
        epochs = Epochs(learn)
        return lambda index: epochs.next(), epochs.next() + epochs.next()

    return Contender(
        compile=compile,
        act=_not_played,
        version=importlib.metadata.version("brax"),
        patches=(
            "rounds continue one training: its compiled program is inside of `train`",
            "jax.device_put_replicated given: removed from JAX",
        ),
    )


class Epochs:
    """Run a training of brax epoch by epoch, each when it is asked for."""

    def __init__(self, learn: Callable[..., Any]) -> None:
        self._ask: queue.Queue[None] = queue.Queue()
        self._done: queue.Queue[BaseException | None] = queue.Queue()
        self._learn = learn
        threading.Thread(target=self._run, daemon=True).start()

    def next(self) -> float:
        """Train one epoch; return its seconds."""
        start = time.perf_counter()
        self._ask.put(None)
        if failed := self._done.get():
            raise failed
        return time.perf_counter() - start

    def _run(self) -> None:
        def progress(steps: int, metrics: object) -> None:
            if steps:  # brax also calls it before the first epoch
                self._done.put(None)
                self._ask.get()

        self._ask.get()
        try:
            self._learn(progress_fn=progress)
        except BaseException as error:
            self._done.put(error)


def give_replication(train: Any) -> None:
    """Give a training module of brax `jax.device_put_replicated`, which JAX has no more."""
    train.jax = overridden(jax, device_put_replicated=_replicated)


def _replicated(tree: Any, devices: Sequence[Any]) -> Any:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), tree)


def _not_played(policy: Any, obs: jax.Array) -> jax.Array:
    raise NotImplementedError("greedy episodes are played in gymnax alone")
