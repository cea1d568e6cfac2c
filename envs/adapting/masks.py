"""Masks of allowed actions, in the forms in which environments stepped in Python give them.

Three forms are read:

- `info["action_mask"]`, as in Gymnasium's Taxi-v4 and PettingZoo;
- an observation that is a dictionary with an `action_mask`, or with `mask` beside `obs`, as in
  PettingZoo (https://pettingzoo.farama.org/tutorials/custom_environment/3-action-masking) and
  tianshou (https://tianshou.org/en/stable/02_deep_dives/L3_Environment.html);
- a method `action_masks()`, as in Maskable PPO
  (https://sb3-contrib.readthedocs.io/en/master/modules/ppo_mask.html).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ...core.errors import TriglotError, require
from ...core.host_environment import to_dtype
from ...core.specs import Spec, mask_size
from ...core.types import Obs
from .spaces import AnySpace

if TYPE_CHECKING:
    from gymnasium import Env

    AnyEnv: TypeAlias = Env[Any, Any]

IN_INFO, METHOD = "info", "method"
KEY, METHOD_NAME = "action_mask", "action_masks"
OBS_KEYS = ("obs", "observation", "observations")
Info: TypeAlias = dict[str, Any]
"""What Gymnasium returns beside an observation: values of any kind by name."""

HOW_TO_IGNORE = "or ignore it with the option use_action_mask=False"


def key_of(form: str) -> str:
    """Return the key of a mask that is a part of the observation; "" for the other forms."""
    return form.removeprefix("obs:") if form.startswith("obs:") else ""


def find_form(env: Any, action_spec: Spec) -> str:
    """Find out how an environment of Gymnasium, or a vector of one, gives its masks; it is reset.

    Returns:
      `info`, `method`, `obs:KEY` for a part of the observation, or "" for none.

    Raises:
      TriglotError: if a mask does not fit the actions.
    """
    size = mask_size(action_spec)
    single = getattr(env, "single_observation_space", None)
    if key := _key_in(env.observation_space if single is None else single, size):
        return f"obs:{key}"
    try:
        _, info = env.reset(seed=0)
    except Exception:
        return ""  # it fails again where it is opened, with a message for that
    if not isinstance(info, dict):
        return ""
    if KEY in info:
        as_mask(info[KEY] if single is None else info[KEY][0], size)
        return IN_INFO
    if single is not None:
        return ""  # a vector has no method for one environment
    has_method = env.has_wrapper_attr(METHOD_NAME) and callable(env.get_wrapper_attr(METHOD_NAME))
    return METHOD if size is not None and has_method else ""


def _key_in(space: AnySpace, size: int | None) -> str:
    """Find the part of an observation space that is a mask; "" if there is none."""
    spaces = require("gymnasium", "gymnasium").spaces
    if not isinstance(space, spaces.Dict):
        return ""
    if KEY in space.spaces:
        child = space[KEY]
        if child.shape != (size,):
            raise _misfit(child.shape, size)
        return KEY
    beside_obs = any(name in space.spaces for name in OBS_KEYS)
    if beside_obs and "mask" in space.spaces and space["mask"].shape == (size,):
        return "mask"
    return ""


def _misfit(shape: tuple[int, ...], size: int | None) -> TriglotError:
    wanted = (
        "only Discrete and MultiDiscrete actions have masks: remove it"
        if size is None
        else f"expected ({size},), one entry for each action, or for a MultiDiscrete one for each "
        "value of the first integer, then of the second: return such a mask"
    )
    return TriglotError(f"its action mask has the shape {shape}; {wanted}, {HOW_TO_IGNORE}.")


def as_mask(mask: npt.ArrayLike, size: int | None) -> np.ndarray:
    """Convert the mask of one environment, or one mask for each integer, to bool `[size]`.

    Raises:
      TriglotError: if it has another shape, or values other than 0 and 1.
    """
    if isinstance(mask, list | tuple) and any(np.ndim(part) for part in mask):
        mask = np.concatenate([np.ravel(part) for part in mask])
    array = np.asarray(mask)
    if array.shape != (size,):
        raise _misfit(array.shape, size)
    return to_dtype(array, bool, "an entry of the action mask")


def without_mask(form: str, space: AnySpace) -> tuple[AnySpace, str]:
    """Remove the mask from an observation space.

    Returns:
      The remaining space, and the key of the only part that is left of a dictionary such as
      `{"observation": ..., "action_mask": ...}`; "" if several are left or nothing was removed.
    """
    if not (key := key_of(form)):
        return space, ""
    spaces = require("gymnasium", "gymnasium").spaces
    rest = {name: child for name, child in space.spaces.items() if name != key}
    numeric = [name for name, child in rest.items() if not isinstance(child, spaces.Text)]
    if len(numeric) == 1 and numeric[0] in OBS_KEYS:
        return rest[numeric[0]], numeric[0]
    return spaces.Dict(rest), ""


def in_info(form: str, size: int | None) -> "Callable[[AnyEnv], AnyEnv]":
    """Make a wrapper that puts the mask of every reset and step into `info`, bool `[size]`."""
    return partial(_wrap, form=form, size=size)


def _wrap(env: "AnyEnv", form: str, size: int | None) -> "AnyEnv":
    gym = require("gymnasium", "gymnasium")

    class ActionMaskInInfo(gym.Wrapper):
        """Put the action mask into `info`, so that vector environments keep it across resets."""

        def reset(self, **options: object) -> tuple[Obs, Info]:
            obs, info = self.env.reset(**options)
            return obs, {**info, KEY: self._mask(info, "reset")}

        def step(self, action: np.ndarray) -> tuple[Obs, float, bool, bool, Info]:
            obs, reward, terminated, truncated, info = self.env.step(action)
            info = {**info, KEY: self._mask(info, "step")}
            return obs, reward, terminated, truncated, info

        def _mask(self, info: Info, method: str) -> np.ndarray:
            if form == METHOD:
                return as_mask(self.get_wrapper_attr(METHOD_NAME)(), size)
            if KEY not in info:
                raise missing(method)
            return as_mask(info[KEY], size)

    return ActionMaskInInfo(env)


def missing(method: str) -> TriglotError:
    """Describe an `info` without a mask."""
    return TriglotError(
        f"the info of {method} has no action_mask, as that of the first reset has: return one from "
        f"every reset and step, {HOW_TO_IGNORE}"
    )


def unexpected() -> TriglotError:
    """Describe an `info` with a mask, of an environment whose reset gives none."""
    return TriglotError(
        "the info of step has an action_mask, and that of reset has none: return one from reset "
        f"too, {HOW_TO_IGNORE}"
    )


def of_vector(info: Info, num_envs: int, size: int | None, method: str) -> np.ndarray:
    """Read the masks of a vector environment's info, bool `[num_envs, size]`."""
    if KEY not in info or not np.all(info.get(f"_{KEY}", True)):
        raise missing(method)
    array = np.asarray(info[KEY])
    if array.shape != (num_envs, size):
        raise _misfit(array.shape[1:], size)
    return to_dtype(array, bool, "an entry of the action mask")


def of_last(info: Info, index: int, size: int | None) -> np.ndarray:
    """Read the mask of an ended environment, from before its reset, bool `[size]`."""
    last = info.get("final_info", {})
    last = last if isinstance(last, dict) else last[index]
    if KEY not in last:
        raise missing("the last step of an episode (final_info)")
    array = last[KEY]
    return as_mask(array[index] if np.ndim(array) > 1 else array, size)
