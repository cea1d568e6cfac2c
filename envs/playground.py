"""MuJoCo Playground's environments on MJX, MuJoCo in JAX.

Source: Zakka et al. (2025), "MuJoCo Playground", https://arxiv.org/abs/2502.08844,
https://github.com/google-deepmind/mujoco_playground, version 0.2.
"""

import subprocess
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax

from ..core.errors import TriglotError, check_known, require
from ..core.specs import Box
from ..core.types import EnvState, abstract_key
from . import adapting
from .adapting import Adapted, Adapter, check_options, check_values
from .adapting.importing import without_warning
from .adapting.options import building
from .adapting.viewer import write_page

# What an agent may read where there are several observations; the others are for critics.
_OBSERVATION = "state"


def names() -> list[str]:
    """List the names that `make` takes; robots, unlike the control suite, are downloaded once."""
    return list(_registry().ALL_ENVS)


def make(env_name: str, **options: Hashable) -> Adapted:
    """Make one of Playground's environments.

    An episode is terminated where Playground sets `done` (a fall, or physics that diverged) and
    truncated after `episode_length` steps. Actions are within [-1, 1].

    Args:
      env_name: such as `"CartpoleBalance"` or `"Go1JoystickFlatTerrain"`.
      options: numbers and names of the environment's configuration, such as `episode_length`,
        `ctrl_dt`, and `impl`, where it has it, MJX's implementation: `jax` (the default) or `warp`;
        `observation`: which one, where there are several: `state` or `privileged_state`.

    Raises:
      MissingExtra: if Playground is not installed.
      TriglotError: if the name or an option is unknown, or the robots cannot be downloaded.
    """
    adapting.check_name("playground", env_name, names(), {})
    return adapting.adapted("playground", env_name, options, _build)


def _registry() -> ModuleType:
    return require("mujoco_playground", "playground").registry


def _build(env_name: str, options: dict[str, Any]) -> Adapter:
    name, registry = f"playground:{env_name}", _registry()
    config = registry.get_default_config(env_name)
    numbers = {n: v for n, v in config.items() if isinstance(v, bool | int | float | str)}
    observation = options.pop("observation", _OBSERVATION)
    check_options(name, options, ["observation", *numbers])
    check_values(name, options, numbers)
    if "impl" in numbers:
        options.setdefault("impl", "jax")
        check_known(f"impl of {name}", str(options["impl"]), ("jax", "warp"))
    with building(name, options):
        try:
            env = registry.load(env_name, config_overrides=options)
        except subprocess.CalledProcessError:
            raise TriglotError(
                f"{name} needs the robots of mujoco_menagerie, and git could not download them "
                "from github.com/google-deepmind/mujoco_menagerie."
            ) from None
        started = jax.eval_shape(env.reset, abstract_key())
    several = isinstance(started.obs, dict)
    if several:
        check_known(f"observation of {name}", str(observation), started.obs)
    limit = int(options.get("episode_length", config.episode_length))

    def observe(state: EnvState) -> jax.Array:
        return state.obs[observation] if several else state.obs

    def draw(states: list[EnvState], path: str) -> None:
        load_model = require("brax.io.mjcf", "playground").load_model
        with without_warning():  # brax recommends Playground
            system = load_model(env.mj_model)
        bodies = [(state.data.xpos[1:], state.data.xquat[1:]) for state in states]
        write_page(path, name, system, bodies, float(env.dt))

    reset, step = adapting.brax_functions(env, limit, observe)
    obs_spec = Box(jax.eval_shape(observe, started).shape)
    action_spec = Box((int(env.action_size),), "float32", -1.0, 1.0)
    return Adapter(reset, step, obs_spec, action_spec, draw, draw_suffix=".html", costly_reset=True)
