"""How the help shows an option: marks of the fields of all `options` modules."""

from dataclasses import MISSING, Field, dataclass, fields
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


def option_words(name: str, value: object) -> list[str]:
    """Write an option as words of a command line.

    >>> option_words("num_seeds", 3), option_words("clip_value", False)
    (['--num-seeds', '3'], ['--no-clip-value'])
    """
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    return [flag(name), *map(str, value if isinstance(value, list | tuple) else [value])]


def split_hint(hint: Any) -> tuple[Any, Arg]:
    """Split the hint of an option into its type and its `Arg`."""
    kind, *marks = get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
    return kind, next((mark for mark in marks if isinstance(mark, Arg)), Arg(""))


def marked(options: type, mark: str) -> list[str]:
    """Name the fields of options whose `Arg` is marked: `positional`, `repeated` or `derived`."""
    hints = get_type_hints(options, include_extras=True)
    return [
        field.name for field in fields(options) if getattr(split_hint(hints[field.name])[1], mark)
    ]


def is_required(field: "Field[Any]") -> bool:
    """Whether a field has no default."""
    return field.default is MISSING and field.default_factory is MISSING


def flag(name: str) -> str:
    """Write the name of a field as an option.

    A name that is a keyword of Python ends with an underscore.

    >>> flag("num_seeds"), flag("from_")
    ('--num-seeds', '--from')
    """
    return "--" + name.rstrip("_").replace("_", "-")


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


def other_name(field: str) -> str:
    """Translate a field's name in another framework to triglot's; empty if it is unknown.

    >>> other_name("lr")
    'learning_rate'
    """
    return OTHER_NAMES.get(flag(field), "").removeprefix("--").replace("-", "_")
