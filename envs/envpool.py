"""EnvPool's environments, stepped by threads in C++: Atari, MuJoCo, Box2D and others.

Source: Weng et al. 2022, https://arxiv.org/abs/2206.10558, version 1.2.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import TriglotError, require
from ..core.host_environment import Arrays
from ..core.types import Obs
from .adapting import NEVER
from .adapting.host import GymnasiumVector, HostAdapted, replaced
from .adapting.importing import without_warning
from .adapting.masks import Info
from .adapting.options import building, check_name, checked_options
from .adapting.spaces import AnySpace, as_declared, channels_last, spec_from_space

# Supported families of tasks. The others are for several players, have spaces without a spec, or
# end episodes at a time limit that EnvPool does not report.
_FAMILIES = (
    "atari", "box2d", "classic_control", "minigrid", "mujoco.dmc", "mujoco.gym",
    "mujoco.metaworld", "mujoco.myosuite", "mujoco.playground", "mujoco.robotics", "procgen",
    "toy_text", "vizdoom",
)  # fmt: skip
# Options that triglot sets itself, or the task's name does.
_RESERVED = {
    "base_path", "batch_size", "env_seed", "gym_reset_return_info", "max_num_players", "num_envs",
    "seed", "task",
}  # fmt: skip
_REASON = (
    "EnvPool's {} environments are for several players, have spaces without a spec, or limit time "
    f"by themselves; supported are {', '.join(_FAMILIES)}"
)
_PRECISION = ".*precision lowered"  # Gymnasium's warning about bounds


def names() -> list[str]:
    """List the supported tasks."""
    return sorted(name for name in _registry().specs if _family(name) in _FAMILIES)


def make(name: str, **options: object) -> "EnvPool":
    """Make an environment by its task id.

    Args:
      name: such as `HalfCheetah-v4` or `Pong-v5`.
      options: of `envpool.make`, such as `max_episode_steps`, `frame_skip` or `num_threads` (one
        per core by default).

    Raises:
      MissingExtra: if EnvPool is not installed.
      TriglotError: if the task or an option is unknown, or a file or library is missing.
    """
    full_name, registry, tasks = f"envpool:{name}", _registry(), names()
    others = registry.specs.keys() - set(tasks)
    reasons = {task: _REASON.format(_family(task)) for task in others}
    check_name("envpool", name, tasks, reasons)
    with without_warning(_PRECISION), building(full_name, options):
        default = registry.make_spec(name).config
        known = {key: getattr(default, key) for key in default._fields if key not in _RESERVED}
        pairs = checked_options(full_name, options, known)
        spec = registry.make_spec(name, **options)
        obs_spec = channels_last(spec_from_space(spec.gymnasium_observation_space))
        action_spec = spec_from_space(spec.gymnasium_action_space)
    return EnvPool("envpool", name, pairs, obs_spec, action_spec, spec.config.max_episode_steps)


@dataclass(frozen=True)
class EnvPool(HostAdapted):
    """An environment of EnvPool; make it with `make`.

    Images have their channels last, and stay bytes. Stacked frames are channels.

    Attributes:
      time_limit: steps after which an episode is truncated; 0 if EnvPool has none or an own one.
    """

    time_limit: int
    # Of a frame: about an Atari game's, whose frames are skipped by 4.
    milliseconds = 60

    def open(self, num_envs: int) -> "EnvPoolVector":
        """Prepare `num_envs` environments, which `reset` starts."""
        return EnvPoolVector(self, num_envs)

    def open_filmed(self) -> "EnvPoolVector":
        """Prepare one environment that renders its states.

        Raises:
          TriglotError: if it is one of MuJoCo's, which need a window system.
        """
        if _family(self.env_id).startswith("mujoco"):
            raise TriglotError(
                f"{self.name} cannot render: without a window system, EnvPool's MuJoCo ends the "
                "process. Render the environment of the same name in gymnasium."
            )
        return EnvPoolVector(self, 1, resets=False, render_mode="rgb_array")


class EnvPoolVector(GymnasiumVector):
    """Several running EnvPool environments, as a `HostVector`.

    EnvPool resets an ended environment in the step after the end, whose data would belong to no
    episode. So ended environments are reset by their ids before the next step.
    """

    def __init__(
        self, env: EnvPool, num_envs: int, *, resets: bool = True, **options: object
    ) -> None:
        """Prepare environments; `reset` starts them, since EnvPool takes seeds only then.

        Args:
          env: the environment.
          num_envs: number of environments.
          resets: whether ended environments are reset.
          options: of `envpool.make`, besides those of `env`.
        """
        super().__init__(env, None, resets=resets)
        self._options = {**dict(env.options), **options, "num_envs": num_envs}
        self._limit = env.time_limit
        if self._limit > 0:
            # EnvPool calls a termination at the limit a truncation. One step more, and its flag
            # is that of the task alone; `advance` counts the steps.
            self._options["max_episode_steps"] = min(self._limit + 1, NEVER)
        self._steps = np.zeros(num_envs, np.int64)

    def reset(self, seed: int) -> Arrays:
        # Each environment has a seed of its own, since pools with neighbouring seeds share
        # environments. EnvPool's seeds are int32.
        seeds = np.random.SeedSequence(seed).generate_state(len(self._steps)) >> 1
        self._steps[:] = 0
        with without_warning(_PRECISION):
            self._vector = _registry().make_gymnasium(self._env.env_id, seed=seeds, **self._options)
            return self.read(self._vector.reset()[0])

    def advance(self, action: np.ndarray) -> tuple[Any, ...]:
        """Take a step of EnvPool, and truncate at the time limit."""
        obs, reward, terminated, truncated, info = self._vector.step(action)
        self._steps += 1
        return obs, reward, terminated, truncated | (self._steps == self._limit), info

    @property
    def _action_space(self) -> AnySpace:
        return self._vector.action_space

    def read(self, obs: Obs) -> Arrays:
        """Convert observations to the spec's dtypes, and images to channels last."""
        return as_declared(self._env.obs_spec, obs)

    def renew(self, obs: Arrays, done: np.ndarray, info: Info) -> tuple[Arrays, Arrays]:
        """Reset ended environments by their ids."""
        self._steps[done] = 0
        starts, info = self._vector.reset(np.flatnonzero(done).astype(np.int32))
        return obs, replaced(obs, info["env_id"], self.read(starts))


def _registry() -> Any:
    return require("envpool", "envpool").registration.registry


def _family(name: str) -> str:
    return _registry().specs[name][0].removeprefix("envpool.")
