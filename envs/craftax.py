"""Craftax's environments, without their automatic reset.

Source: Matthews et al. (2024), "Craftax: A Lightning-Fast Benchmark for Open-Ended Reinforcement
Learning", https://github.com/MichaelTMatthews/Craftax, version 1.6.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.custom_batching import sequential_vmap

from ..core.errors import require
from ..core.specs import Box, Discrete
from ..core.types import EnvState, abstract_key
from . import adapting
from .adapting import NEVER, Adapted, Adapter
from .adapting.options import building

_NAMES = (
    "Craftax-Symbolic-v1",
    "Craftax-Pixels-v1",
    "Craftax-Classic-Symbolic-v1",
    "Craftax-Classic-Pixels-v1",
)


def names() -> list[str]:
    """List the names that `make` takes."""
    require("craftax", "craftax")
    return list(_NAMES)


def make(name: str, **options: Hashable) -> Adapted:
    """Make one of Craftax's environments.

    An episode is terminated where the player dies, or beats the last boss, and truncated after
    `max_timesteps`; Craftax itself ends both alike. A reset generates a world, which costs as much
    as hundreds of steps.

    Args:
      name: such as `"Craftax-Classic-Symbolic-v1"`.
      options: fields of Craftax's `EnvParams`, such as `max_timesteps`, and of its
        `StaticEnvParams`, such as `map_size`.

    Raises:
      MissingExtra: if Craftax is not installed.
      TriglotError: if the name or an option is unknown.
    """
    adapting.check_name("craftax", name, names(), {})
    return adapting.adapted("craftax", name, options, _build)


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name = f"craftax:{env_id}"
    library = require("craftax.craftax_env", "craftax").make_craftax_env_from_name
    env = library(env_id, auto_reset=False)
    params, static = adapting.changed(
        name, options, env.default_params, env.default_static_params()
    )
    limit = params.max_timesteps
    params = replace(params, max_timesteps=NEVER)  # so that Craftax's end is the task's end
    with building(name, options):
        env = type(env)(static)
        obs, _ = jax.eval_shape(env.reset_env, abstract_key(), params)

    reset, step = adapting.gymnax_functions(env, params, lambda state: state.timestep >= limit)
    if jax.default_backend() == "cpu":
        # In a batch on a CPU, XLA (jaxlib 0.10.2) computes another noise, and so another world, for
        # all but the first 8; and hundreds of worlds fit no cache: 640 take 27 s, one by one 1 s.
        reset = sequential_vmap(reset)
    game = "craftax_classic" if "Classic" in env_id else "craftax"

    def draw(states: list[EnvState], path: str) -> None:
        renderer = require(f"craftax.{game}.renderer", "craftax")
        render = jax.jit(renderer.make_craftax_pixel_renderer(16))  # pixels of a block
        adapting.gif(lambda state: np.clip(render(state), 0, 255))(states, path)

    return Adapter(
        reset,
        step,
        Box(obs.shape, str(obs.dtype)),
        Discrete(int(env.num_actions)),
        draw,
        costly_reset=True,
    )
