"""Gymnasium's environments, stepped in Python, and its spaces.

Source: Towers et al. 2024, https://arxiv.org/abs/2407.17032, version 1.3.
"""

import importlib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ...core.errors import TriglotError, describe, require, unknown, user_error_context
from ...core.specs import Bound, Box, Dict, Discrete, MultiDiscrete, Spec, bound_of
from ..adapting import Options, check_values, hashable_options
from ..gif import without_window
from .vector import RESTARTS, FilmedGymnasium, GymnasiumVector

if TYPE_CHECKING:
    from gymnasium import Space

OWN_OPTIONS = ("vectorization_mode", "action_scale")  # not passed to Gymnasium
MODES = ("sync", "async", "vector_entry_point")
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
    gym = require("gymnasium", "gymnasium")
    full_name = f"gymnasium:{name}"
    pairs = hashable_options(full_name, options)
    mode, scale = (options.pop(name, None) for name in OWN_OPTIONS)
    check_values(full_name, {} if scale is None else {"action_scale": scale}, {"action_scale": 1.0})
    if mode not in (None, *MODES):
        raise unknown("vectorization_mode", str(mode), MODES)
    _check_own(gym, name, options)
    try:
        env = gym.make(name, **options)
    except gym.error.UnregisteredEnv:
        raise unknown("environment of gymnasium", name, names()) from None
    except gym.error.DependencyNotInstalled as error:
        raise TriglotError(f"{full_name} needs a further package: {error}.") from None
    except (Exception, SystemExit) as error:
        given = f" with {options}" if options else ""
        raise TriglotError(f"{full_name} cannot be built{given}: {describe(error)}.") from None
    try:
        obs_spec = spec_from_space(observed(env.observation_space))
        action_spec = _scaled(spec_from_space(env.action_space), scale)
        # Gymnasium completes a name without a version; a module is imported by `gymnasium.make`.
        module, colon, _ = name.rpartition(":")
        env_id = f"{module}{colon}{env.spec.id}" if env.spec else name
    except TriglotError as error:
        raise TriglotError(f"{full_name}: {error}") from None
    finally:
        env.close()
    return Gymnasium(env_id, pairs, obs_spec, action_spec)


def _check_own(gym: Any, name: str, options: dict[str, Any]) -> None:
    """Reject invalid values of the options that every environment of Gymnasium has."""
    full_name = f"gymnasium:{name}"
    # -1 is Gymnasium's way to disable the limit.
    numbers = {n: value for n, value in options.items() if (n, value) != ("max_episode_steps", -1)}
    check_values(full_name, numbers, {"max_episode_steps": 1, "disable_env_checker": True})
    if "render_mode" in options and name in gym.registry:
        modes = _metadata(gym.spec(name).entry_point).get("render_modes", [])
        if options["render_mode"] not in modes:
            raise unknown(f"render_mode of {full_name}", str(options["render_mode"]), modes)


@dataclass(frozen=True)
class Gymnasium:
    """An environment of Gymnasium; make it with `make`.

    An `action_mask` in `info`, such as Taxi-v3's, is ignored: every action is allowed.

    Attributes:
      env_id: Gymnasium's id.
      options: passed to `gymnasium.make_vec`, as sorted pairs.
      obs_spec: spec of one environment's observation, with JAX's dtypes.
      action_spec: spec of one environment's action, with JAX's dtypes.
    """

    env_id: str
    options: Options
    obs_spec: Spec
    action_spec: Spec

    @property
    def name(self) -> str:
        return f"gymnasium:{self.env_id}"

    def open(self, num_envs: int) -> GymnasiumVector:
        """Start `num_envs` environments with automatic reset in the same step.

        A vector entry point that resets one step later is usable only with a function in
        `RESTARTS`, as for CartPole: a rollout cannot hold the extra step between two episodes.

        Args:
          num_envs: number of environments.

        Raises:
          TriglotError: if the requested vector entry point is not usable.
        """
        gym = require("gymnasium", "gymnasium")
        options = self._passed_on
        mode = dict(self.options).get("vectorization_mode")
        own = self._registered().vector_entry_point
        same_step = gym.vector.AutoresetMode.SAME_STEP
        usable = own in RESTARTS or _metadata(own).get("autoreset_mode") == same_step
        if mode == "vector_entry_point" and not usable:
            raise TriglotError(
                f"{self.name} has no vector entry point that resets in the same step "
                "(AutoresetMode.SAME_STEP): choose vectorization_mode='sync' or 'async'."
            )
        unlimited = options.get("max_episode_steps") == -1  # supported by `gymnasium.make` only
        few = own in RESTARTS and num_envs <= FEW
        mode = mode or ("sync" if unlimited or few or not usable else "vector_entry_point")
        is_own = mode == "vector_entry_point"
        kwargs = {} if is_own else {"autoreset_mode": same_step, "copy": False}
        vector = gym.make_vec(
            self.env_id, num_envs, vectorization_mode=mode, vector_kwargs=kwargs, **options
        )
        restart = RESTARTS.get(own) if is_own else None
        return GymnasiumVector(vector, self.obs_spec, self.action_spec, restart)

    @property
    def _passed_on(self) -> dict[str, Any]:
        return {name: value for name, value in self.options if name not in OWN_OPTIONS}

    def _registered(self) -> Any:
        module, _, name = self.env_id.rpartition(":")
        if module:
            importlib.import_module(module)  # registers the environment
        return require("gymnasium", "gymnasium").spec(name)

    @property
    def milliseconds(self) -> int:
        """Duration of a frame: the environment's frame rate, at most a GIF's 50 per second."""
        creator = self._registered().entry_point
        rate = _metadata(creator).get("render_fps") or 30
        return max(20, round(1000 / rate))

    def open_filmed(self) -> FilmedGymnasium:
        """Start one environment that renders its states; some need a further package, as pygame.

        Raises:
          TriglotError: if it cannot render.
        """
        gym = require("gymnasium", "gymnasium")
        without_window()
        with (
            user_error_context(f"{self.name} cannot be built with render_mode 'rgb_array'"),
            warnings.catch_warnings(action="ignore"),  # about a missing render mode: raised below
        ):
            env = gym.make(self.env_id, **{**self._passed_on, "render_mode": "rgb_array"})
        if env.render_mode != "rgb_array":
            raise TriglotError(f"{self.name} cannot render: it has no render_mode 'rgb_array'.")
        vector = gym.vector.SyncVectorEnv(
            [lambda: env], autoreset_mode=gym.vector.AutoresetMode.DISABLED, copy=False
        )
        return FilmedGymnasium(self.name, vector, self.obs_spec, self.action_spec)


def _metadata(creator: Any) -> dict[str, Any]:
    """Read the `metadata` of an environment's class or import path; empty if there is none."""
    if isinstance(creator, str):
        creator = require("gymnasium.envs.registration", "gymnasium").load_env_creator(creator)
    return getattr(creator, "metadata", {})


def _scaled(action_spec: Spec, scale: float | None) -> Spec:
    """Bound actions without bounds by the option `action_scale`."""
    if scale is None:
        return action_spec
    if not isinstance(action_spec, Box):
        raise TriglotError(
            f"action_scale is for a Box of actions, got {action_spec}: leave it out."
        )
    return action_spec.within(scale)


def observed(space: Any) -> Any:
    """Convert a space to one of what networks read: without texts, and integers from 0 on.

    Args:
      space: of observations, a `gymnasium.Space`. `GymnasiumVector` converts its values.

    Raises:
      TriglotError: if nothing but texts is in it.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    found = _observed(spaces, space)
    if found is None:
        raise TriglotError(
            f"an observation of {space} has no numbers, and a text is left out, since networks "
            "read numbers only: encode it in a wrapper (gymnasium.wrappers.TransformObservation)."
        )
    return found


def _observed(spaces: Any, space: Any) -> Any:
    if isinstance(space, spaces.Text):
        return None
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(space.n, dtype=space.dtype)
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec, space.dtype)
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return space
    parts = {name: _observed(spaces, child) for name, child in _named(spaces, space).items()}
    parts = {name: part for name, part in parts.items() if part is not None}
    return spaces.Dict(parts) if parts else None


def _named(spaces: Any, space: Any) -> dict[str, Any]:
    """Name the parts of a `Dict`, and those of a `Tuple` by their numbers."""
    if isinstance(space, spaces.Dict):
        return dict(space.spaces)
    return {str(index): child for index, child in enumerate(space.spaces)}


def spec_from_space(space: Any) -> Spec:
    """Convert a Gymnasium space to a spec with JAX's dtype.

    Without `jax_enable_x64`, 64-bit dtypes become 32-bit ones. A bound equal to the dtype's largest
    float, which several libraries use for "unbounded", becomes infinite.

    Args:
      space: a `gymnasium.Space`: a `Discrete` or `MultiDiscrete` that starts at 0, a `MultiBinary`,
        which becomes a `MultiDiscrete` of two values each, a `Box`, a `Dict` of these, or a
        `Tuple`, which becomes a `Dict` with the names "0", "1" and so on.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if no spec describes the space.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    if isinstance(space, spaces.Discrete):
        if space.start != 0:
            raise TriglotError(
                f"a Discrete space must start at 0, got {space}: subtract {space.start} from its "
                "values in a wrapper (gymnasium.wrappers.TransformAction or TransformObservation)."
            )
        return Discrete(int(space.n), _jax_dtype(space.dtype))
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary) and len(space.shape) == 1:
        start = getattr(space, "start", np.zeros(()))
        if start.any():
            raise TriglotError(
                f"a MultiDiscrete space must start at 0, got {space}, which starts at {start}: "
                "subtract them in a wrapper (gymnasium.wrappers.TransformAction or "
                "TransformObservation)."
            )
        counts = getattr(space, "nvec", np.full(space.shape, 2))
        return MultiDiscrete(tuple(counts.tolist()), _jax_dtype(space.dtype))
    if isinstance(space, spaces.Box):
        return Box(space.shape, _jax_dtype(space.dtype), _bound(space.low), _bound(space.high))
    if isinstance(space, spaces.Dict | spaces.Tuple):
        found = {}
        for name, child in _named(spaces, space).items():
            try:
                found[name] = spec_from_space(child)
            except TriglotError as error:
                raise TriglotError(f"in {name!r}, {error}") from None
        return Dict(found)
    raise TriglotError(
        f"the Gymnasium space {space} has no counterpart: expected a Discrete, a MultiDiscrete or "
        "MultiBinary with one axis, a Box, or a Dict or Tuple of these; convert it in a wrapper "
        "(gymnasium.wrappers.TransformAction, TransformObservation or FlattenObservation)."
    )


def space_from_spec(spec: Spec) -> "Space[Any]":
    """Convert a spec to the Gymnasium space of the same values.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if `spec` is not one of triglot's.
    """
    spaces = require("gymnasium", "gymnasium").spaces
    match spec:
        case Discrete():
            return spaces.Discrete(spec.num_values, dtype=spec.dtype)
        case MultiDiscrete():
            return spaces.MultiDiscrete(spec.num_values, np.dtype(spec.dtype).type)
        case Box():
            low, high = spec.bounds()
            return spaces.Box(low, high, spec.shape, np.dtype(spec.dtype).type)
        case Dict():
            return spaces.Dict({name: space_from_spec(child) for name, child in spec.items})
    raise TriglotError(
        f"expected a Discrete, a MultiDiscrete, a Box or a Dict of triglot, got {spec!r}."
    )


def _jax_dtype(dtype: np.dtype) -> str:
    return str(jax.dtypes.canonicalize_dtype(dtype))


def _bound(array: np.ndarray) -> Bound:
    values = array.astype(np.float64)
    if np.issubdtype(array.dtype, np.floating):
        unbounded = np.abs(values) >= np.finfo(array.dtype).max
        values = np.where(unbounded, np.copysign(np.inf, values), values)
    return bound_of(values)
