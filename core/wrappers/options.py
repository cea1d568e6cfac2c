"""The options that wrap any environment in JAX, such as `gymnax:Breakout-MinAtar,frame_stack=4`.

Their table imports no wrapper, so that it can be listed without JAX.
"""

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import TriglotError
from ..records import Values

if TYPE_CHECKING:
    from ..environment import Environment


@dataclass(frozen=True)
class WrapperOption:
    """A wrapper as an option.

    Attributes:
      path: `module:function` in this package; called with the environment and the option's value,
        and with further options by name.
      value: how messages and help call the value.
      about: what it does.
      further: options that only go with it, and the names of their arguments.
    """

    path: str
    value: str
    about: str
    further: Mapping[str, str] = field(default_factory=dict)

    def wrap(self, env: "Environment", value: object, **further: object) -> "Environment":
        """Wrap an environment."""
        module, _, name = self.path.partition(":")
        return getattr(importlib.import_module(module, __package__), name)(env, value, **further)


# From inside: the first is nearest to the environment. Sticky actions are decided at each frame, as
# in the Arcade Learning Environment; a time limit counts the agent's steps.
WRAPPERS = {
    "levels": WrapperOption(
        ".levels:Levels",
        "N",
        "start each episode in one of N fixed levels; evaluations play new levels too",
        {"first_level": "first_level", "level_sampling": "sampling"},
    ),
    "sticky_actions": WrapperOption(
        ".actions:StickyActions", "PROBABILITY", "repeat the previous action with this probability"
    ),
    "action_repeat": WrapperOption(
        ".actions:ActionRepeat", "N", "take each action N times and sum the rewards"
    ),
    "time_limit": WrapperOption(
        ".ends:TimeLimit", "STEPS", "truncate episodes after so many steps"
    ),
    "reward_scale": WrapperOption(".rewards:ScaleReward", "FACTOR", "multiply rewards"),
    "reward_clip": WrapperOption(
        ".rewards:clip_within", "LIMIT", "clip rewards to within -LIMIT and LIMIT"
    ),
    "flatten_observation": WrapperOption(
        ".observations:flatten_if", "True", "flatten the observation to one float32 vector"
    ),
    "observed_entries": WrapperOption(
        ".observations:only_entries", "I+J", "observe only these entries of a vector, from 0"
    ),
    "absorbing_states": WrapperOption(
        ".ends:absorbing_until",
        "STEPS",
        "stay in an absorbing state after the task's end, and truncate after so many steps",
    ),
    "frame_stack": WrapperOption(
        ".observations:FrameStack", "N", "observe the last N observations at once"
    ),
}


def wrapper_options() -> list[str]:
    """List all option names."""
    return [
        option_name for name, option in WRAPPERS.items() for option_name in (name, *option.further)
    ]


def wrap(env: "Environment", options: Values) -> "Environment":
    """Wrap an environment in the fixed order of `WRAPPERS`, whatever the order of the options.

    Args:
      env: an environment.
      options: values by names of `wrapper_options`.

    Raises:
      TriglotError: if a value is invalid, an option goes with another one that is missing, or the
        environment is stepped in Python.
    """
    from ..host_environment import HostEnvironment

    if options and isinstance(env, HostEnvironment):
        raise TriglotError(
            f"{env.name} is stepped in Python, where {_listed(options)} cannot wrap it: use the "
            "options of its own library, or make an environment with gymnasium.wrappers and "
            "register it in Gymnasium."
        )
    for name, option in WRAPPERS.items():
        further = {
            option_name: options[option_name]
            for option_name in option.further
            if option_name in options
        }
        if name not in options:
            if further:
                raise TriglotError(
                    f"{_listed(further)} of {env.name} goes with {name}={option.value}."
                )
            continue
        further_values = {
            option.further[option_name]: value for option_name, value in further.items()
        }
        try:
            env = option.wrap(env, options[name], **further_values)
        except TriglotError as error:
            text = ",".join(
                f"{option_name}={options[option_name]}" for option_name in (name, *further)
            )
            raise TriglotError(f"{text} of {env.name}: {error}") from None
    return env


def _listed(options: Iterable[str]) -> str:
    return " and ".join(options)
