"""EnvPool's environments, stepped by threads in C++: Atari, MuJoCo, Box2D and others.

Source: Weng et al. 2022, https://arxiv.org/abs/2206.10558, version 1.2.
"""

import difflib
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import TriglotError, require, shown, user_error_context
from ..core.host_environment import Arrays, HostStep
from ..core.specs import Box, Dict, Spec
from .adapting import Options, check_options, check_values, hashable_options
from .gymnasium import spec_from_space

# Supported families of tasks. The others are for several players, have spaces without a spec, or
# end episodes at a time limit that EnvPool does not report.
_FAMILIES = (
    "atari", "box2d", "classic_control", "minigrid", "mujoco.dmc", "mujoco.gym",
    "mujoco.metaworld", "mujoco.myosuite", "mujoco.playground", "mujoco.robotics", "procgen",
    "toy_text", "vizdoom",
)  # fmt: skip
# Options that triglot sets itself, or the task's name does.
_RESERVED = {
    "base_path",
    "batch_size",
    "env_seed",
    "gym_reset_return_info",
    "max_num_players",
    "num_envs",
    "seed",
    "task",
}
_UNLIMITED = 2**31 - 1
_TINY = {float(np.finfo(dtype).tiny) for dtype in ("float32", "float64")}


def names() -> list[str]:
    """List the supported tasks."""
    return sorted(name for name in _registry().specs if _family(name) in _FAMILIES)


def make(name: str, **options: Any) -> "EnvPool":
    """Make an environment by its task id.

    Args:
      name: such as `HalfCheetah-v4` or `Pong-v5`.
      options: of `envpool.make`, such as `max_episode_steps`, `frame_skip` or `num_threads` (one
        per core by default).

    Raises:
      MissingExtra: if EnvPool is not installed.
      TriglotError: if the task or an option is unknown, or a file or library is missing.
    """
    full_name, registry = f"envpool:{name}", _registry()
    if name not in registry.specs:
        raise _unknown(name)
    if (family := _family(name)) not in _FAMILIES:
        raise TriglotError(
            f"{full_name} is not supported: EnvPool's {family} environments are for several "
            f"players, have spaces without a spec, or limit time by themselves. Supported are "
            f"{', '.join(_FAMILIES)}."
        )
    pairs = hashable_options(full_name, options)
    given = f" with {options}" if options else ""
    with _quiet(), user_error_context(f"{full_name} cannot be built{given}"):
        default = registry.make_spec(name).config
        known = {key: getattr(default, key) for key in default._fields if key not in _RESERVED}
        check_options(full_name, options, known)
        check_values(full_name, options, known)
        spec = registry.make_spec(name, **options)
        obs_spec, action_spec = (
            _corrected(spec_from_space(space))
            for space in (spec.gymnasium_observation_space, spec.gymnasium_action_space)
        )
    limit = spec.config.max_episode_steps
    time_limit = limit if 0 < limit < _UNLIMITED else None
    return EnvPool(name, pairs, time_limit, obs_spec, action_spec)


@dataclass(frozen=True)
class EnvPool:
    """An environment of EnvPool; make it with `make`.

    Images have their channels last, and stay bytes. Stacked frames are channels.

    Attributes:
      task: EnvPool's task id.
      options: passed to `envpool.make`, as sorted pairs.
      time_limit: steps after which an episode is truncated; None if there is no limit.
      obs_spec: spec of one environment's observation, with JAX's dtypes.
      action_spec: spec of one environment's action, with JAX's dtypes.
    """

    task: str
    options: Options
    time_limit: int | None
    obs_spec: Spec
    action_spec: Spec
    milliseconds = 60  # of a frame: about an Atari game's, whose frames are skipped by 4

    @property
    def name(self) -> str:
        return f"envpool:{self.task}"

    def open(self, num_envs: int) -> "EnvPoolVector":
        """Prepare `num_envs` environments, which `reset` starts."""
        return EnvPoolVector(self, num_envs)

    def open_filmed(self) -> "FilmedEnvPool":
        """Prepare one environment that renders its states.

        Raises:
          TriglotError: if it is one of MuJoCo's, which need a window system.
        """
        if _family(self.task).startswith("mujoco"):
            raise TriglotError(
                f"{self.name} cannot render: without a window system, EnvPool's MuJoCo ends the "
                "process. Render the environment of the same name in gymnasium."
            )
        return FilmedEnvPool(self, 1, render_mode="rgb_array")


class EnvPoolVector:
    """Several running EnvPool environments, as a `HostVector`.

    EnvPool resets an ended environment in the step after the end, whose data would belong to no
    episode. So ended environments are reset by their ids before the next step.
    """

    resets = True  # ended environments

    def __init__(self, env: EnvPool, num_envs: int, **options: Any) -> None:
        """Prepare environments; `reset` starts them, since EnvPool takes seeds only then.

        Args:
          env: the environment.
          num_envs: number of environments.
          options: of `envpool.make`, besides those of `env`.
        """
        self._env, self._pool = env, None
        self._options = {**dict(env.options), **options, "num_envs": num_envs}
        if env.time_limit is not None:
            # EnvPool calls a termination at the limit a truncation. One step more, and its flag
            # is that of the task alone; `step` counts the steps.
            self._options["max_episode_steps"] = env.time_limit + 1
        self._steps = np.zeros(num_envs, np.int64)
        spec = env.action_spec
        self._bounds = spec.bounds() if isinstance(spec, Box) else None

    def reset(self, seed: int) -> Arrays:
        words = np.random.SeedSequence(seed).generate_state(len(self._steps))
        seeds = (words >> 1).tolist()  # EnvPool's are int32
        self._steps[:] = 0
        with _quiet():
            make = _registry().make
            self._pool = make(self._env.task, env_type="gymnasium", seed=seeds, **self._options)
            obs, _ = self._pool.reset()
        return _read(self._env.obs_spec, obs)

    def step(self, action: np.ndarray) -> HostStep:
        pool: Any = self._pool
        env = self._env
        if self._bounds is not None:  # float32 rounding may exceed the bounds
            action = np.clip(action, *self._bounds)
        found, reward, terminated, truncated, _ = pool.step(action)
        self._steps += 1
        if env.time_limit is not None:
            truncated = truncated | (self._steps >= env.time_limit)
        next_obs = obs = _read(env.obs_spec, found)
        done = terminated | truncated
        if done.any() and self.resets:
            self._steps[done] = 0
            starts, info = pool.reset(np.flatnonzero(done).astype(np.int32))
            obs = _with_starts(next_obs, _read(env.obs_spec, starts), info["env_id"])
        return HostStep.of(reward, terminated, truncated, next_obs, obs)

    def close(self) -> None:
        self._pool = None  # its threads end with it


class FilmedEnvPool(EnvPoolVector):
    """One EnvPool environment with rendering, as a `RenderableVector`."""

    resets = False

    def frame(self) -> np.ndarray:
        pool: Any = self._pool
        return pool.render()[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Gymnasium's warnings about the precision of bounds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield


def _read(spec: Spec, obs: Any) -> Arrays:
    """Convert observations to the spec's dtypes, and images to channels last."""
    if isinstance(spec, Dict):
        return {name: _read(child, obs[name]) for name, child in spec.items}
    if obs.shape[1:] != spec.shape and len(spec.shape) == 3:
        obs = np.moveaxis(obs, 1, -1)
    return np.array(obs, spec.dtype, order="C")


def _with_starts(obs: Arrays, starts: Arrays, ids: np.ndarray) -> Arrays:
    """Replace the observations of the environments `ids` by the first ones of new episodes."""
    if isinstance(obs, dict):
        return {name: _with_starts(obs[name], starts[name], ids) for name in obs}
    obs = obs.copy()
    obs[ids] = starts
    return obs


def _corrected(spec: Spec) -> Spec:
    """Move the channels of images to the end, and correct bounds.

    Channels are the first axis of an image if it is shorter than the others. EnvPool declares the
    smallest positive float where it means that there is no lower bound.
    """
    if isinstance(spec, Dict):
        return Dict({name: _corrected(child) for name, child in spec.items})
    if not isinstance(spec, Box):
        return spec
    if spec.dtype == "uint8" and len(spec.shape) == 3:
        channels, height, width = spec.shape
        if channels < min(height, width):
            return Box((height, width, channels), spec.dtype, spec.low, spec.high)
    lows = spec.low if isinstance(spec.low, tuple) else (spec.low,)
    low = tuple(-math.inf if bound in _TINY else bound for bound in lows)
    return Box(spec.shape, spec.dtype, low if isinstance(spec.low, tuple) else low[0], spec.high)


def _registry() -> Any:
    return require("envpool", "envpool").registration.registry


def _family(name: str) -> str:
    return _registry().specs[name][0].removeprefix("envpool.")


def _unknown(name: str) -> TriglotError:
    known = {task.lower(): task for task in names()}
    near = difflib.get_close_matches(name.lower(), known, n=5, cutoff=0.5)
    hint = f"; did you mean {' or '.join(repr(known[one]) for one in near)}?" if near else "."
    return TriglotError(
        f"unknown environment of envpool {shown(name)}{hint} `triglot list envpool` lists all "
        f"{len(known):,}."
    )
