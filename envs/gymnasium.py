"""Gymnasium's environments, stepped in Python.

Source: Towers et al. 2024, https://arxiv.org/abs/2407.17032, version 1.3.
"""

import copy
import re
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.errors import TriglotError, check_known, describe, prefixed, require, unknown
from ..core.host_environment import Choose, Transition
from ..core.records import JSONDict
from ..core.specs import mask_size
from .adapting import masks
from .adapting.host import GymnasiumVector, HostAdapted, Restart
from .adapting.importing import without_warning
from .adapting.options import building, check_values, hashable_options
from .adapting.spaces import action_spec_from_space, observed, spec_from_space
from .adapting.transitions import MODES, of_several, of_single
from .gif import without_window

if TYPE_CHECKING:
    from .adapting.masks import AnyEnv

OWN_VECTOR = "vector_entry_point"
# Its vector entry point resets one step late, but `_restart_cartpole` resets it in time.
CARTPOLE = "gymnasium.envs.classic_control.cartpole:CartPoleVectorEnv"
# CartPole's vector entry point takes 45 us for 1 as for 16 environments, `sync` 20 us for the first
# and 8 for each further one.
FEW = 3


def names() -> list[str]:
    """List the registered environments; some need further packages."""
    # Gymnasium's adapters for older versions, GymV21 and GymV26, are not environments themselves.
    return [i for i in require("gymnasium", "gymnasium").registry if not i.startswith("GymV2")]


def make(name: str, **options: object) -> "Gymnasium":
    """Make an environment by its id.

    Args:
      name: such as `CartPole-v1`; or `module:id`, where importing the module registers the id.
      options: of `gymnasium.make`, such as `max_episode_steps`, or of the environment itself; and
        `vectorization_mode` of `gymnasium.make_vec`: `sync`, `async` or `vector_entry_point`. The
        default is the environment's vector entry point if it is usable (see `Gymnasium.open`),
        otherwise `sync`; and `sync` for up to 3 environments of CartPole. `action_scale` bounds
        actions without bounds, as `core.specs.Box.within` does. `use_action_mask`: whether action
        masks are read, in the forms of `adapting.masks`; True by default.

    Raises:
      MissingExtra: if Gymnasium is not installed.
      TriglotError: if the environment or an option is unknown, a package is missing, or a space is
        not supported.
    """
    return _make(name, f"gymnasium:{name}", None, options)


def adapt(name: str, factory: Callable[..., Any], **options: object) -> "Gymnasium":
    """Adapt an environment that is not registered.

    Args:
      name: how it is called, such as `my_file:MyEnv`.
      factory: its class, or another function that makes one.
      options: as those of `make`; the environment's own are passed to `factory`.

    Raises:
      TriglotError: as `make`.
    """
    return _make(name, name, factory, options)


@dataclass(frozen=True, eq=False)
class Copies:
    """Makes environments by copying one.

    Attributes:
      env: an environment of Gymnasium.
    """

    env: "AnyEnv"

    def __call__(self) -> "AnyEnv":
        try:
            return copy.deepcopy(self.env)
        except Exception as error:  # what it holds decides which
            raise TriglotError(
                f"{type(self.env).__name__} cannot be copied for each environment of a training "
                f"({describe(error)}): give its class, or a function that makes one."
            ) from None

    @property
    def metadata(self) -> JSONDict:
        """That of the environment."""
        return self.env.metadata

    def __deepcopy__(self, memo: dict[int, object]) -> "Copies":
        return self  # Gymnasium copies the specification that holds it


def _make(
    name: str, full_name: str, factory: Callable[..., Any] | None, options: dict[str, Any]
) -> "Gymnasium":
    gym = require("gymnasium", "gymnasium")
    target = _target(name, factory)
    mode, scale = options.pop("vectorization_mode", None), options.pop("action_scale", None)
    use_mask = options.pop("use_action_mask", True)
    check_values(full_name, {"use_action_mask": use_mask}, {"use_action_mask": True})
    check_known("vectorization_mode", str(mode or "sync"), ("sync", "async", OWN_VECTOR))
    pairs = hashable_options(full_name, options)
    alone = factory is None and _has_vectors_alone(gym, name)
    if alone and mode not in (None, OWN_VECTOR):
        raise TriglotError(
            f"{full_name} registers a vector_entry_point alone, so vectorization_mode cannot be "
            f"{mode!r}: leave it out, or register an entry_point too."
        )
    with building(full_name, options):
        try:
            registered = gym.registry.get(name) if factory is None else target
            _check_own(full_name, {**options, "action_scale": scale}, registered)
            env = (
                gym.make_vec(name, 1, OWN_VECTOR, **options)
                if alone
                else gym.make(target, **options)
            )
        except gym.error.UnregisteredEnv:
            raise unknown("environment of gymnasium", name, names()) from None
        except gym.error.DependencyNotInstalled as error:
            raise TriglotError(f"{full_name} needs a further package: {error}.") from None
    with closing(env), prefixed(f"{full_name}: "):
        action_spec = action_spec_from_space(
            env.single_action_space if alone else env.action_space, scale
        )
        form = masks.find_form(env, action_spec) if use_mask else ""
        space = env.single_observation_space if alone else env.observation_space
        obs_spec = spec_from_space(observed(masks.without_mask(form, space)[0]))
    spec, (module, colon, _) = env.unwrapped.spec, name.rpartition(":")
    vector_entry, same_step = spec.vector_entry_point, gym.vector.AutoresetMode.SAME_STEP
    in_time = vector_entry == CARTPOLE or _metadata(vector_entry).get("autoreset_mode") == same_step
    # It would take a limit of -1, which is none, for one that is reached at once.
    vector_entry = vector_entry if in_time and options.get("max_episode_steps") != -1 else None
    vector_entry = None if form == masks.METHOD else vector_entry  # a vector has no such method
    if vector_entry is None and (alone or mode == OWN_VECTOR):
        raise TriglotError(
            f"{full_name} has no vector entry point that resets in the same step "
            "(AutoresetMode.SAME_STEP): "
            + (
                "register an entry_point too."
                if alone
                else "choose vectorization_mode='sync' or 'async'."
            )
        )
    milliseconds = max(
        20, round(1000 / (_metadata(spec.entry_point or vector_entry).get("render_fps") or 30))
    )
    env_id = f"{module}{colon}{spec.id}"  # Gymnasium completes a name without a version
    return Gymnasium(
        "gymnasium",
        env_id,
        pairs,
        obs_spec,
        action_spec,
        vector_entry_point=vector_entry,
        vectorization_mode=mode,
        milliseconds=milliseconds,
        mask_form=form,
        use_action_mask=use_mask,
        has_single=not alone,
        factory=factory,
    )


def _target(name: str, factory: Callable[..., Any] | None) -> Any:
    """Return what Gymnasium makes environments of: the name of a registered one, or a record."""
    if factory is None:
        return name
    registration = require("gymnasium.envs.registration", "gymnasium")
    short = re.sub(r"[^\w.-]", "_", name.rpartition(":")[2])
    return registration.EnvSpec(id=short, entry_point=factory)


def _check_own(full_name: str, options: dict[str, Any], registered: Any) -> None:
    """Reject invalid values of the options that every environment of Gymnasium has."""
    disabled = ("max_episode_steps", -1), ("action_scale", None)
    checked = {n: value for n, value in options.items() if (n, value) not in disabled}
    examples = {"max_episode_steps": 1, "disable_env_checker": True, "action_scale": 1.0}
    check_values(full_name, checked, examples)
    if "render_mode" in options and registered is not None and registered.entry_point:
        modes = _metadata(registered.entry_point).get("render_modes", [])
        check_known(f"render_mode of {full_name}", str(options["render_mode"]), modes)


def _has_vectors_alone(gym: ModuleType, name: str) -> bool:
    """Whether an id is registered with a vector entry point and without one of single ones."""
    try:
        spec = gym.spec(name)
    except gym.error.Error:  # which making it explains
        return False
    return spec.entry_point is None and spec.vector_entry_point is not None


def _metadata(creator: object) -> JSONDict:
    """Read the `metadata` of an environment's class or import path; empty if there is none."""
    load = require("gymnasium.envs.registration", "gymnasium").load_env_creator
    return getattr(load(creator) if isinstance(creator, str) else creator, "metadata", {})


@dataclass(frozen=True)
class Gymnasium(HostAdapted):
    """An environment of Gymnasium; make it with `make`.

    Attributes:
      options: those that are passed on to Gymnasium.
      vector_entry_point: of the environment, if it is usable.
      vectorization_mode: the one that was chosen, or None.
      milliseconds: duration of a frame: the environment's frame rate, at most a GIF's 50 per
        second.
      mask_form: how it gives action masks, as `adapting.masks.find_form` returns it.
      use_action_mask: whether they are read.
      has_single: whether single environments are registered, and not vectors alone.
      factory: makes an environment that is not registered; None of one that is.
    """

    vector_entry_point: str | Callable[..., Any] | None
    vectorization_mode: str | None
    milliseconds: int
    mask_form: str
    use_action_mask: bool
    has_single: bool = True
    factory: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """The environment's name, with that of the suite if it is registered."""
        return super().name if self.factory is None else self.env_id

    @property
    def has_action_mask(self) -> bool:
        """Whether masks of allowed actions are given."""
        return bool(self.mask_form)

    def open(self, num_envs: int) -> GymnasiumVector:
        """Start `num_envs` environments with automatic reset in the same step.

        A vector entry point that resets one step later is usable for CartPole only, which is
        restarted here: a rollout cannot hold the extra step between two episodes.
        """
        vector_entry = self.vector_entry_point
        few = vector_entry == CARTPOLE and num_envs <= FEW
        mode = self.vectorization_mode or ("sync" if vector_entry is None or few else OWN_VECTOR)
        restart = _restart_cartpole if (vector_entry, mode) == (CARTPOLE, OWN_VECTOR) else None
        return self._opened(self._vector(num_envs, mode, "SameStep"), restart)

    def open_filmed(self) -> GymnasiumVector:
        """Start one environment that renders its states; some need a further package, as pygame.

        Raises:
          TriglotError: if it cannot render.
        """
        without_window()
        if not self.has_single:
            raise TriglotError(f"{self.name} cannot render: it has a vector_entry_point alone.")
        # The warnings are about a missing render mode, for which an error is raised below.
        with building(self.name, {"render_mode": "rgb_array"}), without_warning():
            vector = self._vector(1, "sync", "Disabled", render_mode="rgb_array")
        if vector.render_mode != "rgb_array":
            raise TriglotError(f"{self.name} cannot render: it has no render_mode 'rgb_array'.")
        return self._opened(vector, resets=False)

    @property
    def autoreset_modes(self) -> tuple[str, ...]:
        """The modes in which `transitions` steps several environments."""
        return MODES

    def open_single(self) -> "AnyEnv":
        """Open one environment, without Gymnasium's own checker."""
        gym = require("gymnasium", "gymnasium")
        options = {**dict(self.options), "disable_env_checker": True}
        return gym.make(_target(self.env_id, self.factory), **options)

    def transitions(
        self, mode: str, num_envs: int, seed: int, choose: Choose, num: int
    ) -> list[list[Transition]]:
        """Step environments alone, or several under an autoreset mode; see `HostInspectable`."""
        if mode:
            vector = self._opened(self._vector(num_envs, "sync", mode), resets=mode == "SameStep")
            vector.ended = np.zeros(num_envs, bool)
            return of_several(vector, mode, num_envs, seed, choose, num)
        per_env = []
        for i in range(num_envs):
            with closing(self._opened(self._vector(1, "sync", "Disabled"))) as read:
                (single,) = read.unwrapped.envs
                per_env.append(of_single(single, read, seed + i, choose, num, i))
        return per_env

    def _opened(
        self, vector: Any, restart: Restart | None = None, *, resets: bool = True
    ) -> GymnasiumVector:
        return GymnasiumVector(
            self,
            vector,
            restart,
            resets=resets,
            mask_form=self.mask_form,
            ignores_mask=not self.use_action_mask,
        )

    def _vector(self, num_envs: int, mode: str, autoreset: str, **options: Any) -> Any:
        gym, options = require("gymnasium", "gymnasium"), dict(self.options) | options
        kwargs = {} if mode == OWN_VECTOR else {"autoreset_mode": autoreset, "copy": False}
        wrapped = mode != OWN_VECTOR and self.mask_form in (masks.IN_INFO, masks.METHOD)
        size = mask_size(self.action_spec)
        wrappers = [masks.in_info(self.mask_form, size)] if wrapped else None
        target = _target(self.env_id, self.factory)
        return gym.make_vec(target, num_envs, mode, kwargs, wrappers, **options)


def _restart_cartpole(vector: Any, done: np.ndarray) -> np.ndarray:
    """Reset a `CartPoleVectorEnv` where `done`, bool `[N]`, and return all observations."""
    vector.state[:, done] = vector.np_random.uniform(vector.low, vector.high, (4, done.sum()))
    vector.steps[done] = 0
    vector.prev_done[done] = False
    return vector.state.T
