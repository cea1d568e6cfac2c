"""PureJaxRL (https://github.com/luchris429/purejaxrl): PPO and DQN, one file each.

It is not a package: its files are imported from a folder that the user names.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from triglot.core.types import PyTree

from .contender import (
    Contender,
    Replacements,
    clone,
    compile_one_program,
    import_files,
    overridden,
    revision_of,
)
from .row import Row

FIVE_VALUES = (
    "wrapped in gymnax's LegacyStepAPIWrapper: PureJaxRL unpacks five values from step, and gymnax "
    "1.x returns six"
)

UNUSED: Replacements = {
    "wandb": (),
    "navix": (),
    "brax": ("envs",),
    "brax.envs": (),
    "brax.envs.wrappers": (),
    "brax.envs.wrappers.training": ("EpisodeWrapper", "AutoResetWrapper"),
}


def contender(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build PureJaxRL's program.

    Args:
      row: of PPO or DQN, on gymnax.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder does not hold its files.
    """
    algorithm, given = row.algorithm, row.setting
    folder = clone(folder, "purejaxrl", f"purejaxrl/{algorithm}.py")
    module, patches = _patched(algorithm, folder / "purejaxrl")
    config = {"ENV_NAME": row.env_id, "TOTAL_TIMESTEPS": total_steps, **row.given("PureJaxRL")}
    num_actions = gymnax.make(row.env_id)[0].num_actions
    if algorithm == "ppo":
        config |= {"ACTIVATION": "tanh", "ANNEAL_LR": True}
        network = module.ActorCritic(num_actions, activation="tanh")
    else:
        config |= {
            "EPSILON_START": 1.0,
            "EPSILON_FINISH": 0.05,
            "TARGET_UPDATE_INTERVAL": given["target_update_period"] * given["num_envs"],
            "TRAINING_INTERVAL": given["num_envs"],
        }
        network = module.QNetwork(action_dim=num_actions)
    train = module.make_train(config)

    def greedy(params: PyTree, obs: jax.Array) -> jax.Array:
        outputs = network.apply(params, obs)
        return jnp.argmax(outputs[0].logits if algorithm == "ppo" else outputs, axis=-1)

    return Contender(
        compile=compile_one_program(train, lambda out: out["runner_state"][0].params),
        act=greedy,
        version=revision_of(folder),
        patches=tuple(patches),
    )


def _patched(algorithm: str, sources: Path) -> tuple[Any, list[str]]:
    """Import the algorithm's file, adapted to the installed libraries."""
    patches = ["wandb, navix and brax replaced by empty modules: imported, and not used here"]
    (module,) = import_files(sources, UNUSED, algorithm)
    if algorithm == "ppo":
        make = gymnax.make
        module.gymnax = overridden(
            gymnax, make=lambda env_id: (LegacyStepAPIWrapper(make(env_id)[0]), make(env_id)[1])
        )
        patches.append(f"environments {FIVE_VALUES}")
    else:
        log = module.LogWrapper
        module.LogWrapper = lambda env: LegacyStepAPIWrapper(log(env))
        patches.append(f"its LogWrapper {FIVE_VALUES}")
        patches.append("jax.tree_map given as jax.tree.map: removed from JAX")
        _keep_keys(module)
        patches.append(
            "its PRNGKey(0) inside train derived from the run's key: otherwise networks, "
            "exploration and samples are alike in all seeds"
        )
    return module, patches


def _keep_keys(module: Any) -> None:
    """Derive the keys that a module makes from numbers inside `train(key)` from that key."""
    make_train, keys = module.make_train, []

    def make(config: dict[str, Any]) -> Callable[[jax.Array], PyTree]:
        train = make_train(config)

        def seeded(key: jax.Array) -> PyTree:
            keys.append(key)
            return train(key)

        return seeded

    random = overridden(jax.random, PRNGKey=lambda seed: jax.random.fold_in(keys[-1], seed))
    module.jax = overridden(jax, tree_map=jax.tree.map, random=random)
    module.make_train = make
