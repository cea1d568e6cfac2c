"""Decide whether the code that a run folder names may be imported and run.

A run folder names its algorithm, environment, networks and optimizer. Those of triglot and of
installed packages are looked up by name. Anything else is code, and a folder that another person
wrote may name any. So it runs only if this user began the run, which `triglot train` records
outside the folder, or says `--trust`. (direnv keeps its record in the same way: direnv.net.)
"""

import hashlib
import importlib.util
import os
import sys
from pathlib import Path

import platformdirs

from ...core.errors import TriglotError
from ..options import TrainOptions
from ..registry.own import own_parts

CONFIG = "config.json"


def remember(folder: Path, options: TrainOptions) -> None:
    """Record that this user began a run, if it names code; say so if that is impossible."""
    if not _named(options):
        return
    record = _record(folder)
    try:
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(f"{folder.resolve()}\n")
    except OSError as error:
        print(
            f"{record} cannot be written ({error.strerror}): `triglot resume`, evaluate and render "
            "will need --trust",
            file=sys.stderr,
        )


def require_trust(
    folder: Path, options: TrainOptions, *, trust: bool, advice: str = "add --trust"
) -> None:
    """Refuse to import what a run folder names, unless it is trusted; trust is recorded.

    Args:
      folder: the run directory.
      options: of the run.
      trust: whether this user says that the code may run.
      advice: what to do to run the code, for the message.

    Raises:
      TriglotError: if this user did not begin the run, its `config.json` was changed or its folder
        was moved since then, or the code lies in the run folder itself.
    """
    named = _named(options)
    if not named:
        return
    if not trust and not _record(folder).exists():
        raise TriglotError(
            f"{folder} names code, {', '.join(named)}, which would be imported and run. It was not "
            "begun by you at this place, or its config.json was changed. If you trust the code, "
            f"{advice}."
        )
    for text in own_parts(options, options.network):
        _reject_code_inside(folder, text)
    if trust:
        remember(folder, options)


def _named(options: TrainOptions) -> list[str]:
    """List what a run would import, and the logs that send data away in the user's name."""
    logs = [f"--log {name}" for name in options.log if name == "wandb"]
    return [*own_parts(options, options.network), *logs]


def _record(folder: Path) -> Path:
    """Name the record of a run: it depends on the folder's path and the bytes of `config.json`."""
    place = f"{folder.resolve()}\n".encode()
    digest = hashlib.sha256(place + (folder / CONFIG).read_bytes()).hexdigest()
    return platformdirs.user_state_path("triglot", appauthor=False) / "runs" / digest


def _reject_code_inside(folder: Path, text: str) -> None:
    """Refuse a module that would be found in the run folder.

    Raises:
      TriglotError: with the module and where the command can be given instead.
    """
    inside, here = folder.resolve(), Path.cwd()
    root = text.partition("=")[2] or text
    root = root.partition(":")[0].partition(".")[0]
    spec = importlib.util.find_spec(root) if root.isidentifier() else None
    locations = [spec.origin, *(spec.submodule_search_locations or ())] if spec else []
    if here.is_relative_to(inside) or any(
        Path(os.fspath(path)).resolve().is_relative_to(inside) for path in locations if path
    ):
        raise TriglotError(
            f"{text} is not imported out of the run folder {folder}: give the command in the "
            "folder where your own code lies."
        )
