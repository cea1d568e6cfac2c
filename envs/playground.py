"""MuJoCo Playground's environments on MJX, MuJoCo in JAX.

Source: Zakka et al. (2025), "MuJoCo Playground", https://arxiv.org/abs/2502.08844,
https://github.com/google-deepmind/mujoco_playground, version 0.2.
"""

import subprocess
import warnings
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, require, unknown, user_error_context
from ..core.specs import Box
from . import adapting
from .adapting import Adapted, Adapter, check_options, check_values
from .brax.viewer import write_page

_STEPS = "triglot_steps"  # key of the step count in Playground's `State.info`
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
        `ctrl_dt`, and `impl`, MJX's implementation: `jax` (the default) or `warp`; `observation`:
        which one, where there are several: `state` or `privileged_state`.

    Raises:
      MissingExtra: if Playground is not installed.
      TriglotError: if the name or an option is unknown, or the robots cannot be downloaded.
    """
    adapting.check_name("playground", env_name, names(), {})
    return adapting.adapted("playground", env_name, {"impl": "jax", **options}, _build)


def _registry() -> ModuleType:
    return require("mujoco_playground", "playground").registry


def _build(env_name: str, options: dict[str, Any]) -> Adapter:
    name, registry = f"playground:{env_name}", _registry()
    config = registry.get_default_config(env_name)
    numbers = {n: v for n, v in config.items() if isinstance(v, bool | int | float | str)}
    observation = options.pop("observation", _OBSERVATION)
    check_options(name, options, ["observation", *numbers])
    check_values(name, options, numbers)
    if options["impl"] not in ("jax", "warp"):
        raise unknown(f"impl of {name}", str(options["impl"]), ("jax", "warp"))
    try:
        with user_error_context(f"{name} cannot be built with {options}"):
            env = registry.load(env_name, config_overrides=options)
            started = jax.eval_shape(env.reset, jax.random.key(0))
    except subprocess.CalledProcessError:
        raise TriglotError(
            f"{name} needs the robots of mujoco_menagerie, and git could not download them from "
            "github.com/google-deepmind/mujoco_menagerie."
        ) from None
    several = isinstance(started.obs, dict)
    if several and observation not in started.obs:
        raise unknown(f"observation of {name}", str(observation), started.obs)
    limit = int(options.get("episode_length", config.episode_length))

    def observe(state: Any) -> jax.Array:
        return state.obs[observation] if several else state.obs

    def started_with_count(key: jax.Array) -> Any:
        state = _numbers(env.reset(key))
        return state.replace(info={**state.info, _STEPS: jnp.zeros((), jnp.int32)})

    def reset(key: jax.Array) -> TimeStep:
        state = started_with_count(key)
        return first_step(adapting.without_empty(state), observe(state))

    def step(state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        state = adapting.with_empty(shapes, state)
        steps = state.info[_STEPS] + 1
        # It draws from this key, and mutates the dictionaries of its argument.
        info = {**state.info, **({"rng": key} if "rng" in state.info else {})}
        after = _numbers(env.step(state.replace(info=info, metrics={**state.metrics}), action))
        after = after.replace(info={**after.info, _STEPS: steps})
        return TimeStep(
            state=adapting.without_empty(after),
            obs=observe(after),
            reward=after.reward,
            terminated=after.done > 0.5,
            truncated=steps >= limit,
        )

    def draw(states: list[Any], path: str) -> None:
        load_model = require("brax.io.mjcf", "playground").load_model
        with warnings.catch_warnings(action="ignore"):  # brax recommends Playground
            system = load_model(env.mj_model)
        bodies = [(state.data.xpos[1:], state.data.xquat[1:]) for state in states]
        write_page(path, name, system, bodies, float(env.dt))

    shapes = jax.eval_shape(lambda: started_with_count(jax.random.key(0)))
    obs_spec = Box(jax.eval_shape(observe, started).shape)
    action_spec = Box((int(env.action_size),), "float32", -1.0, 1.0)
    return Adapter(reset, step, obs_spec, action_spec, draw, draw_suffix=".html", costly_reset=True)


def _numbers(state: Any) -> Any:
    # Some are Python numbers or float64, with another dtype after `step` than after `reset`.
    state = adapting.strong(state)
    reward, done = state.reward.astype(jnp.float32), state.done.astype(jnp.float32)
    return state.replace(reward=reward, done=done)
