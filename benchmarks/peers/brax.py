"""brax's PPO (https://github.com/google/brax), on its environments and those of MuJoCo Playground.

`brax.training` has no compiled program to hand out. A row of whole processes trains as a user's
script does. Otherwise it trains in a thread, and one epoch of it is a round.
"""

import functools
import importlib.metadata
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from triglot.core.types import PyTree

from .contender import Contender, NotInstalled, Train, not_played, overridden
from .row import Row

REPLICATION = "jax.device_put_replicated given: removed from JAX"
EPISODE_LENGTH = 1000  # of brax's environments


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build brax's PPO.

    Args:
      row: of PPO, on brax or on Playground.
      total_steps: environment steps of a round.
      folder: unused.

    Raises:
      NotInstalled: if brax or Playground is not installed.
    """
    learn = _learner(row)

    def compile(keys: jax.Array) -> tuple[Train, float]:
        if row.whole_process:
            return lambda index: learn(num_timesteps=total_steps), 0.0
        rounds = len(keys)
        # The first two epochs compile and are not counted.
        epochs = Epochs(
            functools.partial(learn, num_timesteps=total_steps * (rounds + 2), num_evals=rounds + 3)
        )
        return lambda index: epochs.next(), epochs.next() + epochs.next()

    continued = "rounds continue one training: its compiled program is inside of `train`"
    return Contender(
        compile=compile,
        act=not_played,
        version=importlib.metadata.version("brax"),
        patches=(REPLICATION,) if row.whole_process else (continued, REPLICATION),
    )


def _learner(row: Row) -> Callable[..., object]:
    """Bind brax's `train` to a row's environment and setting."""
    try:
        from brax.training.agents.ppo import networks, train

        env, options = _environment(row)
    except ImportError as error:
        raise NotInstalled(f"{error}; pip install 'triglot[{row.suites[0]}]'") from error
    give_replication(train)
    setting, sizes = row.setting, row.setting["hidden_sizes"]
    return functools.partial(
        train.train,
        environment=env,
        **options,
        max_devices_per_host=1,
        run_evals=False,
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


def _environment(row: Row) -> tuple[Any, dict[str, Any]]:
    """Make the environment, and the options of `train` that belong to it."""
    if row.suites[0] == "brax":
        from brax import envs

        return envs.get_environment(row.env_id), {"episode_length": EPISODE_LENGTH}
    from mujoco_playground import registry  # pyright: ignore[reportMissingImports]
    from mujoco_playground._src import wrapper  # pyright: ignore[reportMissingImports]

    defaults: Any = registry.get_default_config(row.env_id)
    env = registry.load(row.env_id, config_overrides={"impl": "jax"})
    return env, {
        "episode_length": defaults.episode_length,
        "wrap_env_fn": wrapper.wrap_for_brax_training,
    }


class Epochs:
    """Run a training of brax epoch by epoch, each when it is asked for."""

    def __init__(self, learn: Callable[..., object]) -> None:
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


def give_replication(module: Any) -> None:
    """Give a module of brax or jumanji `jax.device_put_replicated`, which JAX has no more."""
    module.jax = overridden(jax, device_put_replicated=_replicated)


def _replicated(tree: PyTree, devices: Sequence[object]) -> PyTree:
    return jax.tree.map(lambda leaf: jnp.stack([leaf] * len(devices)), tree)
