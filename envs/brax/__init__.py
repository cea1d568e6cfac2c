"""brax's environments, without its wrappers and with a time limit that truncates.

Source: Freeman et al. (2021), "Brax: A Differentiable Physics Engine for Large Scale Rigid Body
Simulation", https://github.com/google/brax, version 0.14.
"""

import contextlib
import functools
import inspect
import io
import warnings
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...core.environment import TimeStep, first_step
from ...core.errors import require, unknown, user_error_context
from ...core.hyper import check_count
from ...core.specs import Box, Spec
from ...core.types import PyTree
from .. import adapting
from ..adapting import Options, check_options, check_values
from .viewer import write_page

BACKENDS = ("spring", "generalized", "positional", "mjx")
# Unsupported environments, with the reason.
_EXCLUDED = {
    "fast": "it has no physics and exists for tests of brax's trainers",
    "swimmer": "it calls `jax.numpy.clip(a_min=...)`, which JAX has removed",
}
# Key of the step count in brax's `State.info`.
_STEPS = "triglot_steps"


def names() -> list[str]:
    """List the names that `make` takes, including those registered by the user."""
    return sorted(_brax_envs()._envs.keys() - _EXCLUDED.keys())


def make(
    env_name: str, *, backend: str = "spring", episode_length: int = 1000, **options: Hashable
) -> "Brax":
    """Make one of brax's environments.

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
    if backend not in BACKENDS:
        raise unknown("brax backend", str(backend), BACKENDS)
    check_count(f"episode_length of brax:{env_name}", episode_length)
    env = Brax(
        env_name, backend, episode_length, adapting.hashable_options(f"brax:{env_name}", options)
    )
    _library(env.env_name, env.backend, env.options)  # fails here on a wrong option
    return env


@dataclass(frozen=True)
class Brax:
    """An environment of brax; build it with `make`.

    An episode is terminated where brax sets `done` (such as an unhealthy posture) and truncated
    after `episode_length` steps. Actions are within [-1, 1]; brax clips or scales them. The state
    is brax's: for walking environments `state.metrics` has `x_position` (m) and `x_velocity` (m/s).
    The physics is deterministic, so `step` ignores its key.
    """

    env_name: str
    backend: str = "spring"
    episode_length: int = 1000
    options: Options = ()
    draw_suffix = ".html"

    @property
    def name(self) -> str:
        return f"brax:{self.env_name}"

    @property
    def obs_spec(self) -> Spec:
        return self._library.obs_spec

    @property
    def action_spec(self) -> Spec:
        return self._library.action_spec

    @property
    def _library(self) -> "_Library":
        return _library(self.env_name, self.backend, self.options)

    def reset(self, key: jax.Array) -> TimeStep:
        with adapting.library_promotion():
            state = _strong(self._library.env.reset(key))
        state = state.replace(info={**state.info, _STEPS: jnp.zeros((), jnp.int32)})
        return first_step(state, state.obs)

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        steps = state.info[_STEPS] + 1
        with adapting.library_promotion():
            # brax mutates the dictionaries of its argument.
            after = _strong(self._library.env.step(jax.tree.map(lambda leaf: leaf, state), action))
        after = after.replace(info={**after.info, _STEPS: steps})
        terminated = after.done > 0.5
        return TimeStep(
            state=after,
            obs=after.obs,
            reward=after.reward,
            terminated=terminated,
            truncated=(steps >= self.episode_length) & ~terminated,
        )

    def draw(self, states: PyTree, path: str) -> None:
        """Write states `[T, ...]` as an HTML page with brax's viewer.

        The page loads nothing from the network.

        Raises:
          TriglotError: if brax's viewer is not found in the installed packages.
        """
        env = self._library.env
        frames = adapting.unstacked(adapting.as_numpy(states.pipeline_state.x))
        bodies = [(frame.pos, frame.rot) for frame in frames]
        write_page(path, self.name, env.sys, bodies, float(env.dt))


class _Library(NamedTuple):
    env: Any  # brax's own environment
    obs_spec: Box
    action_spec: Box


def _brax_envs() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # mujoco prints its missing dependencies
        return require("brax.envs", "brax")


@functools.cache
def _library(env_name: str, backend: str, options: Options) -> _Library:
    name = f"brax:{env_name}"
    envs = _brax_envs()
    with adapting.construction(), warnings.catch_warnings():
        # brax recommends another library at every construction.
        warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)
        known = inspect.signature(envs._envs[env_name]).parameters
        check_options(name, [n for n, _ in options], known.keys() - {"backend", "kwargs"})
        check_values(name, dict(options), {p.name: p.default for p in known.values()})
        given = f"on the backend {backend!r} with {dict(options)}"
        with user_error_context(f"{name} cannot be built {given}"):
            env = envs.get_environment(env_name, backend=backend, **dict(options))
            started = jax.eval_shape(env.reset, jax.random.key(0))
    return _Library(env, Box(started.obs.shape), Box((int(env.action_size),), "float32", -1.0, 1.0))


def _strong(state: PyTree) -> PyTree:
    # Some rewards and flags are Python numbers, with another dtype than those of `reset`.
    state = adapting.strong(state)
    reward, done = state.reward.astype(jnp.float32), state.done.astype(jnp.float32)
    return state.replace(reward=reward, done=done)
