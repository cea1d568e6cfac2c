"""`triglot completion`: the script by which a shell completes commands and options."""

import contextlib
import io
from dataclasses import MISSING, field, fields, make_dataclass
from typing import Annotated, Any, Union

import tyro

from ..compare.options import (
    CompareOptions,
)
from ..core.errors import unknown
from ..export.options import (
    ExportOptions,
)
from ..registry.algorithms import ALGORITHMS, find_algorithm
from ..sweep.options import (
    SweepOptions,
)
from ..training.options import (
    CurvesOptions,
    EvaluateOptions,
    RenderOptions,
    ResumeOptions,
    RunsOptions,
    TrainOptions,
    WatchOptions,
)
from .options import (
    CheckOptions,
    CompletionOptions,
    DiffOptions,
    ListOptions,
    NewOptions,
    NoOptions,
)
from .parsing import as_tyro_class, registry

SHELLS = ("bash", "zsh")  # tcsh would need another package
OPTIONS: dict[str, type] = {
    "train": TrainOptions,
    "resume": ResumeOptions,
    "evaluate": EvaluateOptions,
    "render": RenderOptions,
    "export": ExportOptions,
    "runs": RunsOptions,
    "watch": WatchOptions,
    "curves": CurvesOptions,
    "compare": CompareOptions,
    "sweep": SweepOptions,
    "diff": DiffOptions,
    "check": CheckOptions,
    "new": NewOptions,
    "list": ListOptions,
    "completion": CompletionOptions,
    "version": NoOptions,
    "help": NoOptions,
}
WITH_ALGORITHM = ("train", "compare", "sweep", "check")


def completion_script(shell: str) -> str:
    """Write the completion script of a shell.

    The options of all built-in algorithms are offered together, since a script cannot know which
    algorithm is trained.

    Args:
      shell: one of `SHELLS`.

    Raises:
      TriglotError: if the shell is unknown.
    """
    if shell not in SHELLS:
        raise unknown("shell", shell, SHELLS)
    parts = {"config": "Config", "hyper": "Hyperparams"}
    all_numbers = {name: _of_all_algorithms(part) for name, part in parts.items()}
    none = dict.fromkeys(all_numbers, NoOptions)
    parsers = [
        Annotated[
            as_tyro_class(options, all_numbers if name in WITH_ALGORITHM else none),
            tyro.conf.subcommand(name),
        ]
        for name, options in OPTIONS.items()
    ]
    one_of_them: Any = Union[tuple(parsers)]  # noqa: UP007 (its members are computed)
    written = io.StringIO()
    with contextlib.redirect_stdout(written), contextlib.suppress(SystemExit):
        tyro.cli(
            one_of_them,
            prog="triglot",
            args=["--tyro-write-completion", shell, "-"],
            registry=registry(),
        )
    return written.getvalue()


def _of_all_algorithms(part: str) -> type:
    """Collect the fields of all algorithms' `Config` or `Hyperparams`."""
    found: dict[str, Any] = {}
    for algorithm in ALGORITHMS:
        for one in fields(getattr(find_algorithm(algorithm), part)):
            default = field() if one.default is MISSING else field(default=one.default)
            found.setdefault(one.name, (one.name, one.type, default))
    return make_dataclass(part, list(found.values()), frozen=True, kw_only=True)
