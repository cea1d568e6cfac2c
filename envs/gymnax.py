"""gymnax's environments, without their automatic reset.

Source: Lange (2022), "gymnax: A JAX-based Reinforcement Learning Environment Library",
https://github.com/RobertTLange/gymnax, version 1.x.
"""

from collections.abc import Hashable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..core.errors import TriglotError, require, user_error_context
from ..core.specs import Box, Spec
from ..core.types import EnvState, PyTree, abstract_key
from . import adapting
from .adapting import Adapted, Adapter
from .adapting.options import arguments, building, checked_options
from .adapting.spaces import as_returned, spec_from_space
from .gif import figure_frames, without_window, write_gif

# Unsupported environments, with the reason.
_EXCLUDED = {"MNISTBandit-bsuite": "it downloads its images in its constructor"}
# Their observations exceed the declared bounds (a negative reward, a context of -1, a time that is
# negative or rounded to just below 0), so their specs are unbounded.
_OUT_OF_BOUNDS = {
    "GaussianBandit-misc",
    "MemoryChain-bsuite",
    "MetaMaze-misc",
    "UmbrellaChain-bsuite",
}
# gymnax has no picture of them.
_UNDRAWN = {
    "BernoulliBandit-misc",
    "DeepSea-bsuite",
    "DiscountingChain-bsuite",
    "FrozenLake-misc",
    "GaussianBandit-misc",
    "MemoryChain-bsuite",
    "Reacher-misc",
    "SimpleBandit-bsuite",
    "Swimmer-misc",
    "UmbrellaChain-bsuite",
}


def names() -> list[str]:
    """List the ids that `make` takes, including those registered by the user."""
    return [i for i in require("gymnax", "gymnax").registered_envs if i not in _EXCLUDED]


def make(env_id: str, **params: Hashable) -> Adapted:
    """Make one of gymnax's environments.

    An episode is terminated where the task ended and truncated where gymnax's limit
    `max_steps_in_episode` was reached. If gymnax sets both flags, as in DeepSea, it is terminated.

    Args:
      env_id: gymnax's id, such as `"CartPole-v1"`.
      params: fields of the environment's `EnvParams`, such as `max_steps_in_episode`, and arguments
        of its constructor, such as `size` of DeepSea.

    Raises:
      MissingExtra: if gymnax is not installed.
      TriglotError: if the id or a parameter is unknown, or a parameter cannot be hashed.
    """
    adapting.check_name("gymnax", env_id, names(), _EXCLUDED)
    return adapting.adapted("gymnax", env_id, params, _build)


def _build(env_id: str, options: dict[str, Any]) -> Adapter:
    name, gymnax = f"gymnax:{env_id}", require("gymnax", "gymnax")
    env, defaults = gymnax.make(env_id)
    of_class, of_params = arguments(type(env)), vars(defaults)
    checked_options(name, options, of_class | of_params)
    of_constructor = {n: options[n] for n in options.keys() & of_class.keys()}
    with building(name, of_constructor):
        env, defaults = gymnax.make(env_id, **of_constructor)
    changed = {
        n: _like(getattr(defaults, n), options[n]) for n in options.keys() & of_params.keys()
    }
    params = defaults.replace(**changed)
    with user_error_context(f"{name} failed when it was reset"):
        returned, _ = jax.eval_shape(env.reset_env, abstract_key(), params)

    reset, step = adapting.gymnax_functions(
        env, params, lambda state: env.is_truncated(state, params)
    )

    def draw(states: list[EnvState], path: str) -> None:
        write_gif(path, _frames(env, params, states), num_frames=len(states))

    to_gymnasium = gymnax.environments.spaces.gymnax_space_to_gym_space
    obs_spec = spec_from_space(to_gymnasium(env.observation_space(params)))
    action_spec = spec_from_space(to_gymnasium(env.action_space(params)))
    corrected = _corrected(env_id, obs_spec, returned)
    return Adapter(reset, step, corrected, action_spec, None if env_id in _UNDRAWN else draw)


def _corrected(env_id: str, spec: Spec, returned: PyTree) -> Spec:
    spec = as_returned(spec, returned)  # Catch and FourRooms declare another dtype
    if env_id in _OUT_OF_BOUNDS and isinstance(spec, Box):
        return Box(spec.shape, spec.dtype)
    if env_id.endswith("-MinAtar"):  # one plane per kind of object, of 0 and 1
        return replace(spec, whole=True)
    return spec


def _like(default: object, value: object) -> object:
    return jnp.asarray(value, default.dtype) if isinstance(default, jax.Array) else value


def _frames(env: Any, params: PyTree, states: list[EnvState]) -> Iterator[np.ndarray]:
    """Render each state with gymnax, uint8 `[height, width, 3]`."""
    visualize = require("gymnax.visualize.visualizer", "gymnax")
    if env.name in visualize.vis_gym.SUPPORTED_GYM_ENVS:
        return _classic_frames(visualize.vis_gym, env.name, params, states)
    picture = visualize.Visualizer(env, params, states)

    def init() -> None:
        picture.init()
        if not hasattr(picture, "im"):  # of a version that draws fewer environments
            raise TriglotError(f"gymnax cannot render {env.name}.")

    return figure_frames(picture.fig, init, picture.update, len(states))


def _classic_frames(
    vis_gym: ModuleType, name: str, params: PyTree, states: list[EnvState]
) -> Iterator[np.ndarray]:
    """Render with Gymnasium; gymnax's own function builds an environment for every frame."""
    without_window()
    require("pygame", "render")
    renderer = vis_gym.gym.make(name, render_mode="rgb_array")
    try:
        renderer.reset()
        vis_gym.set_gym_params(renderer.unwrapped, name, params)
        for state in states:
            renderer.unwrapped.state = vis_gym.get_gym_state(state, name)
            renderer.unwrapped.last_u = getattr(state, "last_u", None)  # Pendulum's arrow
            yield renderer.render()
    finally:
        renderer.close()
