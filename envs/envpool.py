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
from ..core.hyper import check_count
from ..core.specs import Box, Dict, Spec
from . import check_options, check_values
from .adapting import Options, hashable_options
from .envpool_vector import EnvPoolVector
from .gymnasium import spec_from_space

# Families by import path, with the number of groups in which their environments are stepped: two
# where a step takes longer than a policy's action. The others are for several players, have spaces
# without a spec, or end episodes at a limit of their own.
_GROUPS = {
    "atari": 2,
    "box2d": 2,
    "classic_control": 1,
    "minigrid": 1,
    "mujoco.dmc": 2,
    "mujoco.gym": 2,
    "mujoco.metaworld": 2,
    "mujoco.myosuite": 2,
    "mujoco.playground": 2,
    "mujoco.robotics": 2,
    "procgen": 2,
    "toy_text": 1,
    "vizdoom": 2,
}
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
    return sorted(name for name in _registry().specs if _family(name) in _GROUPS)


def make(name: str, *, num_groups: int | None = None, **options: Any) -> "EnvPool":
    """Make an environment by its task id.

    Args:
      name: such as `HalfCheetah-v4` or `Pong-v5`.
      num_groups: groups of environments that are stepped at the same time; the default is 2 where
        steps take long, as in MuJoCo and Atari, otherwise 1.
      options: of `envpool.make`, such as `max_episode_steps`, `frame_skip` or `num_threads` (of
        each group; 0, the default, takes one per core).

    Raises:
      MissingExtra: if EnvPool is not installed.
      TriglotError: if the task or an option is unknown, or a file or library is missing.
    """
    full_name, registry = f"envpool:{name}", _registry()
    if name not in registry.specs:
        raise _unknown(name)
    if (family := _family(name)) not in _GROUPS:
        raise TriglotError(
            f"{full_name} is not supported: EnvPool's {family} environments are for several "
            f"players, have spaces without a spec, or limit time by themselves. Supported are "
            f"{', '.join(_GROUPS)}."
        )
    groups = _GROUPS[family] if num_groups is None else num_groups
    check_count(f"num_groups of {full_name}", groups)
    pairs = hashable_options(full_name, options)
    with _quiet(), user_error_context(f"{full_name} cannot be built with {options}"):
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
    return EnvPool(name, pairs, time_limit, groups, obs_spec, action_spec)


@dataclass(frozen=True)
class EnvPool:
    """An environment of EnvPool; make it with `make`.

    Images have their channels last, and stay bytes. Stacked frames are channels.

    Attributes:
      task: EnvPool's task id.
      options: passed to `envpool.make`, as sorted pairs.
      time_limit: steps after which an episode is truncated; None if there is no limit.
      num_groups: groups of environments that are stepped at the same time.
      obs_spec: spec of one environment's observation, with JAX's dtypes.
      action_spec: spec of one environment's action, with JAX's dtypes.
    """

    task: str
    options: Options
    time_limit: int | None
    num_groups: int
    obs_spec: Spec
    action_spec: Spec

    @property
    def name(self) -> str:
        return f"envpool:{self.task}"

    def open(self, num_envs: int) -> EnvPoolVector:
        """Prepare `num_envs` environments, which `reset` starts."""
        options = dict(self.options)
        if self.time_limit is not None:
            # EnvPool calls a termination at the limit a truncation. One step more, and its flag
            # is that of the task alone; `EnvPoolVector` counts the steps.
            options["max_episode_steps"] = self.time_limit + 1

        def start(seeds: list[int]) -> Any:
            with _quiet():
                return _registry().make(
                    self.task, env_type="gymnasium", num_envs=num_envs, seed=seeds, **options
                )

        return EnvPoolVector(start, num_envs, self.time_limit, self.obs_spec, self.action_spec)


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


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide Gymnasium's warnings about the precision of bounds."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*precision lowered", category=UserWarning)
        yield
