"""Stoix (https://github.com/EdanToledo/Stoix): its systems on gymnax, `SYSTEMS` says which.

Its packages fix JAX below 0.6, so it is imported from a folder that the user names, beside the
installed versions. Networks and optimizers are initialized, and the first steps are added to a
replay, before the clock starts.
"""

import contextlib
import io
import operator
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
from gymnax.wrappers.compat import LegacyStepAPIWrapper

from triglot.core.types import PyTree

from .contender import Contender, Replacements, Train, clone, import_files, revision_of
from .row import NAMES, PEERS, Row
from .stoix_systems import SYSTEMS, System

UNUSED: Replacements = {
    "wandb": (),
    "neptune": (),
    "neptune.utils": ("stringify_unsupported",),
    "tensorboard_logger": ("configure", "log_value"),
    "pandas.io.json._normalize": ("_simple_json_normalize",),
    "stoix.utils.env_factory": ("EnvFactory",),
    "stoix.wrappers.jax_to_factory": ("JaxEnvFactory",),
}
MODULES = (
    "stoix.utils.make_env",
    "stoix.utils.total_timestep_checker",
    "stoa.env_adapters.gymnax",
)
COLUMN = PEERS.index("Stoix")
ENVS = {"CartPole-v1": "gymnax/cartpole", "Pendulum-v1": "gymnax/pendulum"}
PATCHES = (
    "environments wrapped in gymnax's LegacyStepAPIWrapper: Stoix's adapter unpacks five values "
    "from step, and gymnax 1.x returns six",
    "loggers and factories of host environments replaced by empty modules: imported, and not used "
    "here",
)


def contender(row: Row, total_steps: int, folder: Path | None) -> Contender:
    """Build Stoix's program.

    Args:
      row: of an algorithm in `SYSTEMS`, in an environment in `ENVS`.
      total_steps: environment steps of each seed.
      folder: of its repository.

    Raises:
      NotInstalled: if the folder or a package that it imports is missing.
    """
    folder, system = clone(folder, "stoix", "stoix/configs"), SYSTEMS[row.algorithm]
    module, make_env, steps, adapters = import_files(
        folder, UNUSED, f"stoix.systems.{system.module}", *MODULES
    )
    adapter = adapters.GymnaxToStoa
    adapters.GymnaxToStoa = lambda env, params: adapter(LegacyStepAPIWrapper(env), params)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # coloured headers
            config = _composed(folder, system, options(row, total_steps))
            config = steps.check_total_timesteps(config)
            env, model = make_env.make(config=config)
    finally:
        adapters.GymnaxToStoa = adapter
    made = []

    def compile(keys: jax.Array) -> tuple[Train, float]:
        states = []
        for key in jax.random.key_data(keys[:, 0]):
            given = [env, tuple(jax.random.split(key, system.num_keys)), config]
            made[:] = module.learner_setup(*given, *([model] if system.plans else []))
            states.append(made[system.state])
        start = time.perf_counter()
        program = made[0].lower(states[0]).compile()  # a pmap has no `trace`
        seconds = time.perf_counter() - start

        def train(index: int) -> PyTree:
            params = program(states[index]).learner_state.params
            params = operator.attrgetter(system.params)(params) if system.params else params
            return jax.tree.map(lambda leaf: leaf[0], params)

        return train, seconds

    def start(params: PyTree, num_envs: int) -> PyTree:
        assert system.memory is not None
        return made[system.memory].initialize_carry(num_envs)

    return Contender(
        compile=compile,
        act=lambda *given: system.act(made, *given),
        start=None if system.memory is None else start,
        version=revision_of(folder),
        patches=PATCHES,
    )


def options(row: Row, total_steps: int) -> dict[str, Any]:
    """Translate a row's setting into Stoix's options.

    Stoix fills its replay in a warm-up, before it trains for the whole budget; so the steps of the
    warm-up are subtracted. The first gradient steps follow the same number of steps in both.
    """
    system, given = SYSTEMS[row.algorithm], row.setting
    common = {name: (word,) if (word := words[COLUMN]) else () for name, words in NAMES.items()}
    words = {**common, **system.names}
    made = {"env": ENVS[row.env_id], "arch.num_evaluation": 1}
    for name, value in given.items():
        made |= dict.fromkeys(words.get(name, ()), value)
    for torso in system.torsos:
        made[f"network.{torso}.layer_sizes"] = list(given.get("hidden_sizes", (64, 64)))
        made[f"network.{torso}.activation"] = system.activation
    if "learning_starts" in given:
        warmup = given["learning_starts"] // given["num_envs"] - given.get("rollout_length", 1)
        made["system.warmup_steps"] = warmup
        total_steps -= warmup * given["num_envs"]
    made["arch.total_timesteps"] = total_steps
    own = {
        name: value(given) if callable(value) else value for name, value in system.options.items()
    }
    return {**made, **own}


def _composed(folder: Path, system: System, given: Mapping[str, Any]) -> Any:
    import hydra  # pyright: ignore[reportMissingImports]
    from omegaconf import OmegaConf  # pyright: ignore[reportMissingImports]

    configs = folder.resolve() / "stoix" / "configs"
    overrides = [f"hydra.searchpath=[file://{configs}]"]
    overrides += [f"{name}={value}" for name, value in given.items()]
    with hydra.initialize_config_dir(str(configs / "default" / "anakin"), version_base="1.2"):
        config = hydra.compose(f"default_{system.module.rpartition('.')[2]}", overrides)
    OmegaConf.set_struct(config, False)
    config.num_devices = len(jax.devices())
    return config
