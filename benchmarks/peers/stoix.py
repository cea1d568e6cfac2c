"""Stoix (https://github.com/EdanToledo/Stoix): PPO, from its system `anakin/ff_ppo`.

Its packages fix JAX below 0.6, so it is imported from a folder that the user names, beside the
installed versions. Networks and optimizers are initialized before the clock starts.
"""

import contextlib
import io
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from .contender import Contender, Train, clone, import_files, revision_of
from .row import Row

UNUSED: Mapping[str, tuple[str, ...]] = {
    "wandb": (),
    "neptune": (),
    "neptune.utils": ("stringify_unsupported",),
    "tensorboard_logger": ("configure", "log_value"),
    "pandas.io.json._normalize": ("_simple_json_normalize",),
    "stoix.utils.env_factory": ("EnvFactory",),
    "stoix.wrappers.jax_to_factory": ("JaxEnvFactory",),
}
MODULES = (
    "stoix.systems.ppo.anakin.ff_ppo",
    "stoix.utils.make_env",
    "stoix.utils.total_timestep_checker",
    "stoa.env_adapters.gymnax",
)
PATCHES = (
    "environments wrapped in gymnax's LegacyStepAPIWrapper: Stoix's adapter unpacks five values "
    "from step, and gymnax 1.x returns six",
    "loggers and factories of host environments replaced by empty modules: imported, and not used "
    "here",
)


def contender(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build Stoix's program.

    Args:
      row: of PPO on gymnax's CartPole.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder or a package that it imports is missing.
    """
    assert (row.algorithm, row.env_id) == ("ppo", "CartPole-v1")  # its default configuration
    folder = clone(folder, "stoix", "stoix/configs")
    system, make_env, steps, adapters = import_files(folder, UNUSED, *MODULES)
    adapter = adapters.GymnaxToStoa
    adapters.GymnaxToStoa = lambda env, params: adapter(LegacyStepAPIWrapper(env), params)
    with contextlib.redirect_stdout(io.StringIO()):  # coloured headers
        config = steps.check_total_timesteps(_config(folder, total_steps, row))
        env, _ = make_env.make(config=config)
    actors = []

    def compile(keys: jax.Array) -> tuple[Train, float]:
        first = jax.random.key_data(keys[:, 0])
        parts = [tuple(jax.random.split(key, 3)) for key in first]
        made = [system.learner_setup(env, part, config) for part in parts]
        learn, actors[:], states = made[0][0], [made[0][1]], [state for *_, state in made]
        start = time.perf_counter()
        program = learn.lower(states[0]).compile()  # a pmap has no `trace`
        seconds = time.perf_counter() - start

        def train(index: int) -> Any:
            trained = program(states[index]).learner_state.params.actor_params
            return jax.tree.map(lambda leaf: leaf[0], trained)

        return train, seconds

    def greedy(params: Any, obs: jax.Array) -> jax.Array:
        return jnp.argmax(actors[0].apply(params, obs).logits, axis=-1)

    return Contender(compile=compile, act=greedy, version=revision_of(folder), patches=PATCHES)


def _config(folder: Path, total_steps: int, row: Row) -> Any:
    import hydra  # pyright: ignore[reportMissingImports]
    from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]

    configs = folder.resolve() / "stoix" / "configs"
    given = {"arch.total_timesteps": total_steps, "arch.num_evaluation": 1, **row.given("Stoix")}
    given["system.critic_lr"] = given["system.actor_lr"]
    for network in ("actor_network", "critic_network"):
        given[f"network.{network}.pre_torso.layer_sizes"] = [64, 64]
        given[f"network.{network}.pre_torso.activation"] = "tanh"
    overrides = [f"hydra.searchpath=[file://{configs}]"]
    overrides += [f"{name}={value}" for name, value in given.items()]
    with hydra.initialize_config_dir(str(configs / "default" / "anakin"), version_base="1.2"):
        config = hydra.compose("default_ff_ppo", overrides)
    OmegaConf.set_struct(config, False)
    config.num_devices = len(jax.devices())
    return config
