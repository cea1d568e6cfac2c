"""How the help shows an option: marks of the fields of all `options` modules."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints


@dataclass(frozen=True)
class Arg:
    """How the help shows an option.

    Attributes:
      metavar: stands for the value.
      default: describes the default where the value None does not.
      positional: whether the value comes without the option's name.
      repeated: whether the option may be given several times, each time with further values.
      derived: whether it is not an option, but follows from others.
    """

    metavar: str
    default: str | None = None
    positional: bool = False
    repeated: bool = False
    derived: bool = False


def option_words(name: str, value: Any) -> list[str]:
    """Write an option as words of a command line.

    >>> option_words("num_seeds", 3), option_words("clip_value", False)
    (['--num-seeds', '3'], ['--no-clip-value'])
    """
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, list | tuple) else [value])]


def marked(options: type, mark: str) -> list[str]:
    """Name the fields of options whose `Arg` is marked: `positional`, `repeated` or `derived`."""
    hints = get_type_hints(options, include_extras=True)
    return [
        one.name
        for one in fields(options)
        if any(isinstance(arg, Arg) and getattr(arg, mark) for arg in get_args(hints[one.name])[1:])
    ]


Count = Annotated[int, Arg("N")]
Devices = Annotated[int | None, Arg("N", "one per CPU core, at most one per seed; else 1")]
Name = Annotated[str, Arg("NAME")]
RunFolder = Annotated[Path, Arg("FOLDER", positional=True)]

# Options by their names in CleanRL, Stable-Baselines3 and rejax.
OTHER_NAMES = {
    "--lr": "--learning-rate",
    "--gamma": "--discount",
    "--total-timesteps": "--total-steps",
    "--num-steps": "--rollout-length",
    "--n-steps": "--rollout-length",
    "--n-envs": "--num-envs",
    "--update-epochs": "--num-epochs",
    "--n-epochs": "--num-epochs",
    "--clip-coef": "--clip-epsilon",
    "--clip-range": "--clip-epsilon",
    "--ent-coef": "--entropy-coef",
    "--vf-coef": "--value-coef",
    "--track": "--log",
}
