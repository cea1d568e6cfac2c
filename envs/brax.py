"""brax's environments, without its wrappers and with a time limit that truncates.

Source: Freeman et al. (2021), "Brax: A Differentiable Physics Engine for Large Scale Rigid Body
Simulation", https://github.com/google/brax, version 0.14.
"""

import contextlib
import io
from collections.abc import Hashable
from types import ModuleType
from typing import Any

import jax

from ..core.errors import check_known, require, user_error_context
from ..core.hyper import check_count
from ..core.specs import Box
from ..core.types import EnvState, abstract_key
from . import adapting
from .adapting import Adapted, Adapter
from .adapting.importing import without_warning
from .adapting.options import arguments, checked_options
from .adapting.viewer import write_page

BACKENDS = ("spring", "generalized", "positional", "mjx")
# Unsupported environments, with the reason.
_EXCLUDED = {
    "fast": "it has no physics and exists for tests of brax's trainers",
    "swimmer": "it calls `jax.numpy.clip(a_min=...)`, which JAX has removed",
}


def names() -> list[str]:
    """List the names that `make` takes, including those registered by the user."""
    return sorted(_brax_envs()._envs.keys() - _EXCLUDED.keys())


def make(
    env_name: str, *, backend: str = "spring", episode_length: int = 1000, **options: Hashable
) -> Adapted:
    """Make one of brax's environments.

    An episode is terminated where brax sets `done` (such as an unhealthy posture) and truncated
    after `episode_length` steps. Actions are within [-1, 1]; brax clips or scales them. The state
    is brax's: for walking environments `state.metrics` has `x_position` (m) and `x_velocity` (m/s).
    The physics is deterministic, so `step` ignores its key.

    Args:
      env_name: brax's name, such as `"ant"`.
      backend: the physics engine, one of `BACKENDS`; `spring` is the fastest.
      episode_length: number of steps after which an episode is truncated.
      options: arguments of the environment's constructor, such as `ctrl_cost_weight` of ant.

    Raises:
      MissingExtra: if brax is not installed.
      TriglotError: if the name, the backend or an option is unknown, an option cannot be hashed,
        or the environment does not run on this backend.
    """
    adapting.check_name("brax", env_name, names(), _EXCLUDED)
    check_known("brax backend", str(backend), BACKENDS)
    check_count(f"episode_length of brax:{env_name}", episode_length)
    values = {"backend": backend, "episode_length": episode_length, **options}
    return adapting.adapted("brax", env_name, values, _build)


def _build(env_name: str, options: dict[str, Any]) -> Adapter:
    backend, episode_length = options.pop("backend"), options.pop("episode_length")
    name, envs = f"brax:{env_name}", _brax_envs()
    known = arguments(envs._envs[env_name])
    known.pop("backend", None)
    checked_options(name, options, known)
    with without_warning("Brax System"):  # it recommends another library at every construction
        settings = f"on the backend {backend!r} with {options}"
        with user_error_context(f"{name} cannot be built {settings}"):
            env = envs.get_environment(env_name, backend=backend, **options)
            started = jax.eval_shape(env.reset, abstract_key())

    reset, step = adapting.brax_functions(env, episode_length)

    def draw(states: list[EnvState], path: str) -> None:
        bodies = [(state.pipeline_state.x.pos, state.pipeline_state.x.rot) for state in states]
        write_page(path, name, env.sys, bodies, float(env.dt))

    actions = Box((int(env.action_size),), "float32", -1.0, 1.0)
    return Adapter(reset, step, Box(started.obs.shape), actions, draw, ".html")


def _brax_envs() -> ModuleType:
    with contextlib.redirect_stdout(io.StringIO()):  # mujoco prints its missing dependencies
        return require("brax.envs", "brax")
