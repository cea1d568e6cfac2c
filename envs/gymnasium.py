"""Gymnasium's environments, stepped in Python.

Source: Towers et al. 2024, https://arxiv.org/abs/2407.17032, version 1.3.
"""

import warnings
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..core.errors import TriglotError, check_known, prefixed, require, unknown, user_error_context
from .adapting.host import GymnasiumVector, HostAdapted, Restart
from .adapting.options import Options, check_values, hashable_options
from .adapting.spaces import action_spec_from_space, observed, spec_from_space
from .gif import without_window

OWN_OPTIONS = ("vectorization_mode", "action_scale")  # not passed to Gymnasium
OWN_VECTOR = "vector_entry_point"
# CartPole's vector entry point takes 45 us for 1 as for 16 environments, `sync` 20 us for the first
# and 8 for each further one.
FEW = 3
# Gymnasium's adapters for older versions, which are not environments themselves.
_EXCLUDED = {"GymV21Environment-v0", "GymV26Environment-v0"}


def names() -> list[str]:
    """List the registered environments; some need further packages."""
    return [name for name in require("gymnasium", "gymnasium").registry if name not in _EXCLUDED]


def make(name: str, **options: Any) -> "Gymnasium":
    """Make an environment by its id.

    Args:
      name: such as `CartPole-v1`; or `module:id`, where importing the module registers the id.
      options: of `gymnasium.make`, such as `max_episode_steps`, or of the environment itself; and
        `vectorization_mode` of `gymnasium.make_vec`: `sync`, `async` or `vector_entry_point`. The
        default is the environment's vector entry point if it is usable (see `Gymnasium.open`),
        otherwise `sync`; and `sync` for up to 3 environments of CartPole. `action_scale` bounds
        actions without bounds, as `core.specs.Box.within` does.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if the environment or an option is unknown, a package is missing, or a space is
        not supported.
    """
    gym, full_name = require("gymnasium", "gymnasium"), f"gymnasium:{name}"
    pairs = hashable_options(full_name, options)
    _check_own(full_name, options, gym.registry.get(name))
    passed_on = _passed_on(pairs)
    given = f" with {passed_on}" if passed_on else ""
    with user_error_context(f"{full_name} cannot be built{given}"):
        try:
            env = gym.make(name, **passed_on)
        except gym.error.UnregisteredEnv:
            raise unknown("environment of gymnasium", name, names()) from None
        except gym.error.DependencyNotInstalled as error:
            raise TriglotError(f"{full_name} needs a further package: {error}.") from None
    with closing(env), prefixed(f"{full_name}: "):
        obs_spec = spec_from_space(observed(env.observation_space))
        action_spec = action_spec_from_space(env.action_space, options.get("action_scale"))
    spec, (module, colon, _) = env.unwrapped.spec, name.rpartition(":")
    own, same_step = spec.vector_entry_point, gym.vector.AutoresetMode.SAME_STEP
    if own not in RESTARTS and _metadata(own).get("autoreset_mode") != same_step:
        own = None
    if own is None and options.get("vectorization_mode") == OWN_VECTOR:
        raise TriglotError(
            f"{full_name} has no vector entry point that resets in the same step "
            "(AutoresetMode.SAME_STEP): choose vectorization_mode='sync' or 'async'."
        )
    rate = _metadata(spec.entry_point).get("render_fps") or 30
    env_id = f"{module}{colon}{spec.id}"  # Gymnasium completes a name without a version
    return Gymnasium(env_id, pairs, obs_spec, action_spec, own, max(20, round(1000 / rate)))


def _check_own(full_name: str, options: dict[str, Any], registered: Any) -> None:
    """Reject invalid values of the options that every environment of Gymnasium has."""
    disabled = ("max_episode_steps", -1), ("action_scale", None)
    given = {n: value for n, value in options.items() if (n, value) not in disabled}
    examples = {"max_episode_steps": 1, "disable_env_checker": True, "action_scale": 1.0}
    check_values(full_name, given, examples)
    if (mode := options.get("vectorization_mode")) is not None:
        check_known("vectorization_mode", str(mode), ("sync", "async", OWN_VECTOR))
    if "render_mode" in options and registered is not None:
        modes = _metadata(registered.entry_point).get("render_modes", [])
        check_known(f"render_mode of {full_name}", str(options["render_mode"]), modes)


def _passed_on(options: Options) -> dict[str, Any]:
    return {name: value for name, value in options if name not in OWN_OPTIONS}


def _metadata(creator: Any) -> dict[str, Any]:
    """Read the `metadata` of an environment's class or import path; empty if there is none."""
    if isinstance(creator, str):
        creator = require("gymnasium.envs.registration", "gymnasium").load_env_creator(creator)
    return getattr(creator, "metadata", {})


@dataclass(frozen=True)
class Gymnasium(HostAdapted):
    """An environment of Gymnasium; make it with `make`.

    An `action_mask` in `info`, such as Taxi-v3's, is ignored: every action is allowed.

    Attributes:
      vector_entry_point: of the environment, if it is usable.
      milliseconds: duration of a frame: the environment's frame rate, at most a GIF's 50 per
        second.
    """

    suite = "gymnasium"
    vector_entry_point: Any
    milliseconds: int

    def open(self, num_envs: int) -> GymnasiumVector:
        """Start `num_envs` environments with automatic reset in the same step.

        A vector entry point that resets one step later is usable only with a function in
        `RESTARTS`, as for CartPole: a rollout cannot hold the extra step between two episodes.
        """
        own, options = self.vector_entry_point, dict[str, Any](self.options)
        unlimited = options.get("max_episode_steps") == -1  # supported by `gymnasium.make` only
        few = own in RESTARTS and num_envs <= FEW
        default = "sync" if unlimited or few or own is None else OWN_VECTOR
        mode = options.get("vectorization_mode") or default
        restart = RESTARTS.get(own) if mode == OWN_VECTOR else None
        return GymnasiumVector(self, self._vector(num_envs, mode, "SAME_STEP"), restart)

    def open_filmed(self) -> GymnasiumVector:
        """Start one environment that renders its states; some need a further package, as pygame.

        Raises:
          TriglotError: if it cannot render.
        """
        without_window()
        with (
            user_error_context(f"{self.name} cannot be built with render_mode 'rgb_array'"),
            warnings.catch_warnings(action="ignore"),  # about a missing render mode: raised below
        ):
            vector = self._vector(1, "sync", "DISABLED", render_mode="rgb_array")
        if vector.render_mode != "rgb_array":
            raise TriglotError(f"{self.name} cannot render: it has no render_mode 'rgb_array'.")
        return GymnasiumVector(self, vector, resets=False)

    def _vector(self, num_envs: int, mode: str, autoreset: str, **options: Any) -> Any:
        gym = require("gymnasium", "gymnasium")
        kwargs = {"autoreset_mode": gym.vector.AutoresetMode[autoreset], "copy": False}
        kwargs = {} if mode == OWN_VECTOR else kwargs
        options = _passed_on(self.options) | options
        return gym.make_vec(self.env_id, num_envs, mode, kwargs, **options)


def _restart_cartpole(vector: Any, done: np.ndarray) -> np.ndarray:
    starts = vector.np_random.uniform(vector.low, vector.high, (4, int(done.sum())))
    vector.state[:, done] = starts
    vector.steps[done] = 0
    vector.prev_done = np.zeros_like(done)
    return vector.state.T


# Functions that reset vector entry points whose own reset comes one step late.
RESTARTS: dict[Any, Restart] = {
    "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv": _restart_cartpole
}
