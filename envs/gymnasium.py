"""Gymnasium: its environments, stepped in Python, and its spaces.

Source: Towers et al. 2024, https://arxiv.org/abs/2407.17032, version 1.3.
"""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..core.errors import TriglotError, describe, require, unknown, user_error_context
from ..core.specs import Bound, Box, Dict, Discrete, Spec
from .foreign import Options, hashable
from .gif import without_window
from .gymnasium_vector import RESTARTS, FilmedGymnasium, GymnasiumVector

if TYPE_CHECKING:
    from gymnasium import Space

MODES = ("sync", "async", "vector_entry_point")
# Gymnasium's adapters of older versions' environments, which are no environments themselves.
_EXCLUDED = {"GymV21Environment-v0", "GymV26Environment-v0"}


def names() -> list[str]:
    """List the environments that are registered; some need further packages."""
    return [name for name in require("gymnasium", "gymnasium").registry if name not in _EXCLUDED]


def make(name: str, **options: Any) -> "Gymnasium":
    """Make an environment by its id.

    Args:
      name: such as `CartPole-v1`; or `module:id`, where importing the module registers the id.
      options: of `gymnasium.make`, such as `max_episode_steps`, or of the environment itself; and
        `vectorization_mode` of `gymnasium.make_vec`: `sync`, `async` or `vector_entry_point`. By
        default that is the environment's own vector entry point where it has one that can be used
        (see `Gymnasium.open`), and else `sync`.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if there is no such environment, it needs a package that is not installed, an
        option is none of its, or its spaces have no counterpart.
    """
    gym = require("gymnasium", "gymnasium")
    called = f"gymnasium:{name}"
    pairs = hashable(called, options)
    mode = options.pop("vectorization_mode", None)
    if mode not in (None, *MODES):
        raise unknown("vectorization_mode", str(mode), MODES)
    try:
        env = gym.make(name, **options)
    except gym.error.UnregisteredEnv:
        raise unknown("environment of gymnasium", name, names()) from None
    except gym.error.DependencyNotInstalled as error:
        raise TriglotError(f"{called} needs a further package: {error}.") from None
    except Exception as error:
        given = f" with {options}" if options else ""
        raise TriglotError(f"{called} cannot be made{given}: {describe(error)}.") from None
    try:
        specs = [spec_from_space(space) for space in (env.observation_space, env.action_space)]
    except TriglotError as error:
        raise TriglotError(f"{called}: {error}") from None
    finally:
        env.close()
    return Gymnasium(name, pairs, *specs)


@dataclass(frozen=True)
class Gymnasium:
    """An environment of Gymnasium; make it with `make`.

    Every action is allowed: an `action_mask` in `info`, as of Taxi-v3, is not read.

    Attributes:
      env_id: its id.
      options: passed to `gymnasium.make_vec`, as sorted pairs.
      obs_spec, action_spec: of one environment, in the dtypes of JAX.
    """

    env_id: str
    options: Options
    obs_spec: Spec
    action_spec: Spec

    @property
    def name(self) -> str:
        return f"gymnasium:{self.env_id}"

    def open(self, num_envs: int) -> GymnasiumVector:
        """Start `num_envs` of them, which begin a new episode in the step that ended one.

        A vector entry point that begins it one step later can be used only where we know how to
        begin it at once, as for CartPole: the step between belongs to no episode, and a rollout has
        no place for it.

        Raises:
          TriglotError: if the vector entry point was asked for and cannot be used.
        """
        gym = require("gymnasium", "gymnasium")
        options = dict(self.options)
        mode = options.pop("vectorization_mode", None)
        own = gym.spec(self.env_id).vector_entry_point
        same_step = gym.vector.AutoresetMode.SAME_STEP
        usable = own in RESTARTS or _metadata(own).get("autoreset_mode") == same_step
        if mode == "vector_entry_point" and not usable:
            raise TriglotError(
                f"{self.name} has no vector entry point that begins episodes in the step that "
                "ended one (AutoresetMode.SAME_STEP): choose vectorization_mode='sync' or 'async'."
            )
        unlimited = options.get("max_episode_steps") == -1  # which only `gymnasium.make` knows
        mode = mode or ("vector_entry_point" if usable and not unlimited else "sync")
        is_own = mode == "vector_entry_point"
        kwargs = {} if is_own else {"autoreset_mode": same_step, "copy": False}
        vector = gym.make_vec(
            self.env_id, num_envs, vectorization_mode=mode, vector_kwargs=kwargs, **options
        )
        restart = RESTARTS.get(own) if is_own else None
        return GymnasiumVector(vector, self.obs_spec, self.action_spec, restart)

    @property
    def milliseconds(self) -> int:
        """Say how long a frame of a film is shown: as fast as it is, or as a GIF can be shown."""
        creator = require("gymnasium", "gymnasium").spec(self.env_id).entry_point
        rate = _metadata(creator).get("render_fps") or 30
        return max(20, round(1000 / rate))

    def open_filmed(self) -> FilmedGymnasium:
        """Start one that draws its states; some need a further package for it, such as pygame.

        Raises:
          TriglotError: if it gives no pictures.
        """
        gym = require("gymnasium", "gymnasium")
        options = dict(self.options)
        options.pop("vectorization_mode", None)
        without_window()
        with (
            user_error_context(f"{self.name} cannot be made so that it draws itself"),
            warnings.catch_warnings(action="ignore"),  # that it may not draw: said below
        ):
            env = gym.make(self.env_id, **{**options, "render_mode": "rgb_array"})
        if env.render_mode != "rgb_array":
            raise TriglotError(f"{self.name} gives no pictures: it has no render_mode 'rgb_array'.")
        vector = gym.vector.SyncVectorEnv(
            [lambda: env], autoreset_mode=gym.vector.AutoresetMode.DISABLED, copy=False
        )
        return FilmedGymnasium(self.name, vector, self.obs_spec, self.action_spec)


def _metadata(creator: Any) -> dict[str, Any]:
    """Read what an environment's class declares; `creator` may be its path, or no class at all."""
    if isinstance(creator, str):
        creator = require("gymnasium.envs.registration", "gymnasium").load_env_creator(creator)
    return getattr(creator, "metadata", {})


def spec_from_space(space: Any) -> Spec:
    """Convert a Gymnasium space to a spec of the dtype that JAX gives its values.

    Without `jax_enable_x64`, 64-bit values become 32-bit ones. A bound that is the dtype's largest
    float, which several libraries write where they mean "unbounded", becomes infinite.

    Args:
      space: a `gymnasium.Space`: a `Discrete` that starts at 0, a `Box`, or a `Dict` of these.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if the space has no counterpart among the specs.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise TriglotError(
                f"a Discrete space must start at 0, got {space}: subtract {space.start} from its "
                "values in a wrapper (gymnasium.wrappers.TransformAction or TransformObservation)."
            )
        return Discrete(int(space.n), _jax_dtype(space.dtype))
    if isinstance(space, spaces.Box):
        return Box(space.shape, _jax_dtype(space.dtype), _bound(space.low), _bound(space.high))
    if isinstance(space, spaces.Dict):
        return Dict({name: spec_from_space(child) for name, child in space.spaces.items()})
    raise TriglotError(
        f"the Gymnasium space {space} has no counterpart: expected a Discrete, a Box or a Dict of "
        "these; convert it in a wrapper (gymnasium.wrappers.TransformAction, TransformObservation "
        "or FlattenObservation)."
    )


def space_from_spec(spec: Spec) -> "Space[Any]":
    """Convert a spec to the Gymnasium space of the same values.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if `spec` is none of the specs.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    match spec:
        case Discrete():
            return spaces.Discrete(spec.num_values, dtype=spec.dtype)
        case Box():
            low, high = spec.bounds()
            return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)
        case Dict():
            return spaces.Dict({name: space_from_spec(child) for name, child in spec.items})
    raise TriglotError(f"expected a Discrete, a Box or a Dict of triglot, got {spec!r}.")


def _jax_dtype(dtype: np.dtype) -> str:
    return str(jax.dtypes.canonicalize_dtype(dtype))


def _bound(array: np.ndarray) -> Bound:
    values = array.astype(np.float64)
    if np.issubdtype(array.dtype, np.floating):
        unbounded = np.abs(values) >= np.finfo(array.dtype).max
        values = np.where(unbounded, np.copysign(np.inf, values), values)
    flat = values.ravel().tolist()
    return flat[0] if len(set(flat)) == 1 else tuple(flat)
