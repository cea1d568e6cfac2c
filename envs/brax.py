"""brax: its environments without its wrappers, with a time limit that truncates.

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
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..core.environment import TimeStep, first_step
from ..core.errors import TriglotError, require, unknown, user_error_context
from ..core.specs import Box, Spec
from . import check_options
from .brax_viewer import page
from .foreign import Options, hashable, library_promotion, strong

PyTree: TypeAlias = Any

BACKENDS = ("spring", "generalized", "positional", "mjx")
# Left out of `names`, with the reason.
_EXCLUDED = {
    "fast": "it simulates nothing: brax tests its own trainers with it",
    "swimmer": "it calls `jax.numpy.clip(a_min=...)`, which JAX no longer has",
}
# Where the count of steps is kept, in brax's own `State.info`.
_STEPS = "triglot_steps"


def names() -> list[str]:
    """List the names that `make` takes, those registered by the user included."""
    return sorted(_registered() - _EXCLUDED.keys())


def make(
    env_name: str,
    *,
    backend: str = "spring",
    episode_length: int = 1000,
    **options: Hashable,
) -> "Brax":
    """Make one of brax's environments.

    Args:
      env_name: the name that brax knows it by, e.g. `"ant"`.
      backend: the physics, one of `BACKENDS`; `spring` is the fastest.
      episode_length: steps after which an episode that has not ended is truncated.
      options: what departs from the environment's defaults: arguments of its constructor, such as
        `ctrl_cost_weight` of ant.

    Raises:
      MissingExtra: if brax is not installed.
      TriglotError: if the name, the backend or an option is unknown, an option cannot be hashed,
        or the environment does not run on this backend.
    """
    if env_name in _EXCLUDED:
        raise TriglotError(f"brax's {env_name} is not offered: {_EXCLUDED[env_name]}.")
    if env_name not in (known := _registered()):
        raise unknown("brax environment", env_name, known - _EXCLUDED.keys())
    if backend not in BACKENDS:
        raise unknown("brax backend", str(backend), BACKENDS)
    if not isinstance(episode_length, int) or episode_length < 1:
        raise TriglotError(
            f"episode_length of brax:{env_name} must be a number of steps of at least 1, got "
            f"{episode_length!r}."
        )
    env = Brax(env_name, backend, episode_length, hashable(f"brax:{env_name}", options))
    _library(env.env_name, env.backend, env.options)  # so that a wrong option fails here
    return env


@dataclass(frozen=True)
class Brax:
    """An environment of brax; build it with `make`.

    An episode is terminated where brax calls it done (an unhealthy posture, say) and truncated
    after `episode_length` steps. Actions are within [-1, 1]; brax does no more than clip or scale
    them. The state is brax's own: `state.metrics` has, for those that walk, `x_position` and
    `x_velocity` (m, m/s); `x_position` reads the first of any. A step uses no key: the physics is
    deterministic.
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
        with library_promotion():
            state = _strong(self._library.env.reset(key))
        state = state.replace(info={**state.info, _STEPS: jnp.zeros((), jnp.int32)})
        return first_step(state, state.obs)

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        steps = state.info[_STEPS] + 1
        with library_promotion():
            # brax writes into the dictionaries of the state that it is given.
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
        """Write states `[T, ...]` as a page; see `html`."""
        html(self, states, path)


def x_position(state: PyTree) -> jax.Array:
    """Read how far forward the first body stands, in metres.

    Args:
      state: `TimeStep.state`, with any leading axes.

    Returns:
      float32, one for each state.
    """
    return state.pipeline_state.x.pos[..., 0, 0]


def html(env: Brax, states: PyTree, path: str) -> None:
    """Write an episode as a page with brax's own viewer; it needs no network to be opened.

    Args:
      env: whose states they are.
      states: `TimeStep.state` at each time, `[T, ...]`.
      path: the file to write.

    Raises:
      TriglotError: if brax's viewer is not found in what is installed.
    """
    dumps = require("brax.io.json", "brax").dumps
    library = _library(env.env_name, env.backend, env.options).env
    # A step of the environment is several of the physics, whose time the viewer would show.
    system = library.sys.tree_replace({"opt.timestep": float(library.dt)})
    poses = jax.tree.map(np.asarray, states.pipeline_state.x)
    frames = [_Frame(jax.tree.map(lambda leaf, t=t: leaf[t], poses)) for t in range(len(poses.pos))]
    Path(path).write_text(page(env.name, dumps(system, frames)))


class _Frame(NamedTuple):
    x: Any  # positions and rotations of the bodies, all that the viewer reads of a state


class _Library(NamedTuple):
    env: Any  # brax's own environment
    obs_spec: Box
    action_spec: Box


def _registered() -> set[str]:
    return set(_brax_envs()._envs)


def _brax_envs() -> Any:
    with contextlib.redirect_stdout(io.StringIO()):  # where mujoco reports what it does without
        return require("brax.envs", "brax")


@functools.cache
def _library(env_name: str, backend: str, options: Options) -> _Library:
    name = f"brax:{env_name}"
    envs = _brax_envs()
    # The first call may come while a program is traced: constants must not become tracers then.
    with jax.ensure_compile_time_eval(), library_promotion(), warnings.catch_warnings():
        # At every environment brax recommends another library.
        warnings.filterwarnings("ignore", message="Brax System", category=UserWarning)
        known = inspect.signature(envs._envs[env_name]).parameters.keys()
        check_options(name, [n for n, _ in options], known - {"backend", "kwargs"})
        with user_error_context(
            f"{name} could not be made on the backend {backend!r} with {dict(options)}"
        ):
            env = envs.get_environment(env_name, backend=backend, **dict(options))
            started = jax.eval_shape(env.reset, jax.random.key(0))
    return _Library(env, Box(started.obs.shape), Box((int(env.action_size),), "float32", -1.0, 1.0))


def _strong(state: PyTree) -> PyTree:
    # Some rewards and flags are Python numbers, whose type differs from that of a reset's.
    state = strong(state)
    return state.replace(
        reward=state.reward.astype(jnp.float32), done=state.done.astype(jnp.float32)
    )
