"""Navix's environments: MiniGrid's grid worlds, rewritten in JAX.

Source: Pignatelli et al. (2024), "NAVIX: Scaling MiniGrid Environments with JAX",
https://github.com/epignatelli/navix, version 0.7.
"""

from collections.abc import Hashable
from dataclasses import fields
from types import ModuleType
from typing import Any

import jax
import numpy as np

from ..core.environment import TimeStep, first_step
from ..core.errors import check_known, require
from ..core.specs import Box, Discrete
from ..core.types import EnvState, abstract_key
from . import adapting
from .adapting import Adapted, Adapter, check_options, check_values
from .adapting.options import building

SIZES = (11, 6, 4)  # kinds of objects, colours, states
PLANES = {"planes": "symbolic", "planes_first_person": "symbolic_first_person"}
OBSERVATIONS = (
    *PLANES,
    *PLANES.values(),
    "categorical",
    "categorical_first_person",
    "rgb",
    "rgb_first_person",
)


def names() -> list[str]:
    """List the ids that `make` takes, including those registered by the user."""
    return list(_navix().registry())


def make(env_id: str, **options: Hashable) -> Adapted:
    """Make one of Navix's environments.

    An episode is terminated where the task ends, also by failure (lava, a ball), and truncated
    after `max_steps`.

    Args:
      env_id: such as `"Navix-DoorKey-8x8-v0"`.
      options: `observation`: one of Navix's functions, such as `symbolic` or `rgb_first_person`, or
        `planes` (the default) and `planes_first_person`: float32 `[H, W, 21]`, 0 or 1 for each kind
        of object, colour and state of the symbolic ones; `max_steps`, 100 by default; and numbers
        of the environment, such as `random_start` of DoorKey.

    Raises:
      MissingExtra: if Navix is not installed.
      TriglotError: if the id, an option or its value is unknown.
    """
    adapting.check_name("navix", env_id, names(), {})
    return adapting.adapted("navix", env_id, options, _build)


def _navix() -> ModuleType:
    # Navix imports it for an experiment's log, which is not used here.
    with adapting.unused("wandb", "wandb.util"):
        return require("navix", "navix")


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name, navix = f"navix:{env_id}", _navix()
    observation = options.pop("observation", "planes")
    check_known(f"observation of {name}", str(observation), OBSERVATIONS)
    planes = PLANES.get(observation) or str(observation)
    env = navix.make(env_id, observation_fn=getattr(navix.observations, planes))
    numbers = {f.name: getattr(env, f.name) for f in fields(env)} | {"max_steps": env.max_steps}
    numbers = {n: v for n, v in numbers.items() if isinstance(v, bool | int | float)}
    examples = {n: v for n, v in numbers.items() if n not in ("height", "width", "gamma")}
    check_options(name, options, ["observation", *examples])
    check_values(name, options, examples)
    env = env.replace(**options)

    def observe(obs: jax.Array) -> jax.Array:
        return adapting.planes(obs, SIZES) if observation in PLANES else obs

    def kept(timestep: EnvState) -> EnvState:
        # The sprites of each cell, 192 bytes each, are needed for pictures only.
        cache = timestep.state.cache if observation.startswith("rgb") else None
        state = timestep.state.replace(cache=cache)
        return timestep.replace(state=state, observation=None, info={})

    def reset(key: jax.Array) -> TimeStep:
        started = env.reset(key)
        return first_step(kept(started), observe(started.observation))

    def step(state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        # `step` would reset an episode that has ended.
        after = env._step(state.replace(state=state.state.replace(key=key)), action)
        return TimeStep(
            state=kept(after),
            obs=observe(after.observation),
            reward=after.reward,
            terminated=after.is_termination(),
            truncated=after.is_truncation(),
        )

    def render(timestep: EnvState) -> np.ndarray:
        cache = navix.rendering.cache.RenderingCache.init(timestep.state.grid)
        image = np.asarray(navix.observations.rgb(timestep.state.replace(cache=cache)))
        return image.repeat(4, axis=0).repeat(4, axis=1)

    with building(name, options):
        returned = jax.eval_shape(env.reset, abstract_key()).observation
    plain = Box(returned.shape, str(returned.dtype), 0, 255)
    return Adapter(
        reset,
        step,
        adapting.planes_spec(returned.shape, SIZES) if observation in PLANES else plain,
        Discrete(int(env.action_space.n)),
        draw=adapting.gif(render),
        costly_reset=True,
    )
