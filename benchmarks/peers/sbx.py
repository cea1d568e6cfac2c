"""SBX (https://github.com/araffin/sbx): CrossQ in Flax, on Gymnasium's environments.

It steps the environments and its replay in Python, as Stable-Baselines3 does, and compiles for each
model anew; so models are made, and take the steps before learning and the first gradient steps,
before the clock starts.
"""

import importlib
import importlib.metadata
import time
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp

from triglot.core.types import PyTree

from .contender import Contender, NotInstalled, Train
from .row import Row

# CrossQ's options that differ by name only.
NAMES = {
    "rollout_length": "train_freq",
    "num_gradient_steps": "gradient_steps",
    "batch_size": "batch_size",
    "buffer_size": "buffer_size",
    "learning_starts": "learning_starts",
    "policy_delay": "policy_delay",
    "learning_rate": "learning_rate",
    "critic_learning_rate": "qf_learning_rate",
    "discount": "gamma",
}


def contender(row: Row, total_steps: int, folder: object = None) -> Contender:
    """Build SBX's training.

    Args:
      row: of CrossQ, in one environment of Gymnasium with actions within [-high, high].
      total_steps: environment steps of each seed.
      folder: unused.

    Raises:
      NotInstalled: if SBX is not installed.
    """
    try:
        library: Any = importlib.import_module("sbx")
    except ImportError as error:
        raise NotInstalled("pip install --no-deps sbx-rl stable-baselines3") from error
    given, models = row.setting, []
    options = {word: given[name] for name, word in NAMES.items()}
    networks = {"pi": list(given["hidden_sizes"]), "qf": list(given["critic_hidden_sizes"])}
    begun = given["learning_starts"] + 2 * given["rollout_length"]

    def begin(seed: int) -> Any:
        env = gymnasium.make(row.env_id)
        kwargs = {"net_arch": networks}
        model = library.CrossQ("MlpPolicy", env, seed=seed, policy_kwargs=kwargs, **options)
        return model.learn(begun)

    def compile(keys: jax.Array) -> tuple[Train, float]:
        seconds = 0.0  # of one model
        for key in keys[:, 0]:
            start = time.perf_counter()
            models.append(begin(int(jax.random.randint(key, (), 0, 2**31 - 1))))
            seconds = time.perf_counter() - start

        def train(index: int) -> PyTree:
            model = models[index]
            model.learn(total_steps - model.num_timesteps, reset_num_timesteps=False)
            state = model.policy.actor_state
            learned = {"params": state.params, "batch_stats": state.batch_stats}
            return jax.tree.map(lambda leaf: leaf[None], learned)

        return train, seconds

    def greedy(learned: PyTree, obs: jax.Array) -> jax.Array:
        model = models[0]
        high = jnp.asarray(model.action_space.high)
        return model.policy.actor.apply(learned, obs).mode() * high

    version = importlib.metadata.version("sbx-rl")
    return Contender(compile=compile, act=greedy, version=version)
