"""Create folders, write files atomically, and read the small records that commands keep in JSON.

`write_json` writes a record whole or not at all, so a damaged one was changed by hand or by a disk.
It is reported in one sentence, and never taken for a missing one.
"""

import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...core.errors import TriglotError, printable, shown, writing
from ...core.folders import MAX_RECORD, read_bytes
from ...core.records import JSON, JSONDict

LOCK = ".lock"
HOLDER = ".holder.json"
UNFINISHED = ".unfinished-"  # begins the names of files that a killed program may leave
# What a program leaves that was killed before it wrote anything of its own.
LEFTOVERS = (LOCK, HOLDER, UNFINISHED)


@dataclass(frozen=True)
class Kind:
    """A kind of JSON value, for a field of a record.

    Attributes:
      name: for the message, such as `a count`.
      accepts: whether a value is of the kind.
      optional: whether a record may lack the field, such as one of an earlier version.
    """

    name: str
    accepts: Callable[[object], bool]
    optional: bool = False

    def __or__(self, other: "Kind") -> "Kind":
        def accepts(value: object) -> bool:
            return self.accepts(value) or other.accepts(value)

        return Kind(f"{self.name} or {other.name}", accepts)


def is_number(value: object) -> bool:
    """Whether a JSON value is a finite number of float's range; a bool is not a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= MAX_FLOAT


FREE_TEXT = ("command", "diverged")  # for people, and printed with control characters escaped
MAX_FLOAT = sys.float_info.max  # `float` raises for larger integers, which JSON may hold
MAX_INT = 2**63 - 1
NOTHING = Kind("null", lambda value: value is None)
NUMBER = Kind("a number", is_number)
COUNT = Kind("a count", lambda value: type(value) is int and 0 <= value <= MAX_INT)
POSITIVE = Kind("a count of at least 1", lambda value: type(value) is int and 0 < value <= MAX_INT)
TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TABLE = Kind("an object", lambda value: isinstance(value, dict))
ANY = Kind("a value", lambda value: True)
Fields: TypeAlias = Mapping[str, Kind]  # the kinds of the fields that are read


def optional(kind: Kind) -> Kind:
    """Let a record lack a field."""
    return replace(kind, optional=True)


def list_of(kind: Kind) -> Kind:
    """Describe a list of values of one kind."""
    return Kind(
        f"a list ({kind.name} each)",
        lambda value: isinstance(value, list) and all(map(kind.accepts, value)),
    )


def table_of(name: str, fields: Fields) -> Kind:
    """Describe an object that has these fields; it may have others."""

    def accepts(value: object) -> bool:
        return isinstance(value, dict) and all(
            field in value and kind.accepts(value[field]) for field, kind in fields.items()
        )

    return Kind(f"{name} ({', '.join(fields)})", accepts)


def check_free(folder: Path) -> None:
    """Reject a folder that is not empty.

    Raises:
      TriglotError: if it is not empty, or not a folder.
    """
    try:
        taken = folder.exists() and (not folder.is_dir() or any(visible_files(folder)))
    except OSError as error:
        raise TriglotError(f"{folder} cannot be used: {error.strerror}.") from None
    if taken and not folder.is_dir():
        raise TriglotError(f"{folder} is a file, and a folder is expected: choose another name.")
    if taken:
        is_run = (folder / "config.json").is_file()
        other = f", or continue its run: triglot resume {folder}" if is_run else "."
        raise TriglotError(
            f"{folder} exists and is not empty, and would be overwritten: choose another folder"
            f"{other}"
        )


def visible_files(folder: Path) -> list[str]:
    """List the names in a folder, sorted, without locks and unfinished files."""
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith(LEFTOVERS))


def make_folder(folder: Path) -> None:
    """Create a folder; an empty one may exist.

    Raises:
      TriglotError: if it is not empty, or cannot be created.
    """
    check_free(folder)
    with creating(folder):
        folder.mkdir(parents=True, exist_ok=True)


def make_new_folder(folder: Path) -> Path:
    """Create a folder that did not exist; `-2`, `-3` ... is added to its name if it did.

    Programs that start in the same second get different folders.

    Raises:
      TriglotError: if it cannot be created.
    """
    with creating(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        for number in itertools.count(1):
            chosen = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
            try:
                chosen.mkdir()
            except FileExistsError:
                continue
            return chosen
    raise AssertionError("the loop ends only by returning")


@contextmanager
def creating(folder: Path) -> Iterator[None]:
    """Report a folder that cannot be created in one sentence."""
    try:
        yield
    except OSError as error:
        raise TriglotError(f"cannot create the folder {folder}: {error.strerror}.") from None


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Write a file atomically: yield a temporary path beside it, and rename it at the end.

    The temporary path does not exist yet. A symbolic link at `path` is replaced, not followed.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    unfinished = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    with writing(path):
        unfinished.unlink(missing_ok=True)
        try:
            yield unfinished
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def sweep(folder: Path) -> None:
    """Remove the unfinished files of killed programs; call it with the folder's lock only."""
    for path in folder.glob(f"{UNFINISHED}*"):
        if not path.is_dir():
            path.unlink(missing_ok=True)


def write_json(path: Path, content: JSON) -> None:
    """Write a JSON file atomically.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    with replacing(path) as unfinished, unfinished.open("x") as file:
        file.write(json.dumps(plain(content), allow_nan=False, indent=2) + "\n")


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files into a folder, each whole or not at all; missing folders are created.

    Raises:
      TriglotError: if a folder cannot be created.
      CannotWrite: if the disk is full, or a folder is read-only.
    """
    for name, content in files.items():
        path = folder / name
        with creating(path.parent):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_bytes(content.encode() if isinstance(content, str) else content)


def plain(value: Any) -> Any:
    """Convert a value to strict JSON: NaN becomes null, infinities and enums become strings.

    >>> plain({"loss": np.float32([0.1, np.nan, np.inf])})
    {'loss': [0.1, None, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(name): plain(child) for name, child in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(child) for child in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.floating):
        # The shortest text that parses to the same number at this precision.
        value = float(str(value))
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value.item() if isinstance(value, np.generic) else value


class DamagedRecord(TriglotError):
    """A record is not what triglot wrote."""


def read_record(
    path: Path, fields: Fields, advice: str = "", limit: int = MAX_RECORD
) -> JSONDict | None:
    """Read a record; None if there is none.

    It is data of whoever wrote the folder: links are not followed, its size is limited, and names
    in it hold no control characters, which would change what a terminal shows.

    Args:
      path: the file.
      fields: the fields that it must have, with their types; it may have others.
      advice: what to do if it is damaged, for the message.
      limit: its size in bytes, at most.

    Raises:
      DamagedRecord: if it is not JSON, is not an object, or a field is missing or of another type.
      TriglotError: if it cannot be read, such as a folder or another user's file.
    """
    try:
        content = json.loads(read_bytes(path, limit))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TriglotError(f"{path} cannot be read: {error.strerror}.") from None
    except TriglotError as error:
        raise DamagedRecord(str(error)) from None
    except (ValueError, RecursionError) as error:  # also of another encoding
        raise _damaged(path, f"it is not JSON ({error})", advice) from None
    if not isinstance(content, dict):
        raise _damaged(path, f"it holds {shown(content)} and not an object", advice)
    named = {name: value for name, value in content.items() if name not in FREE_TEXT}
    forged = next((text for text in _texts(named) if printable(text) != text), None)
    if forged is not None:
        raise _damaged(path, f"it holds control characters in {shown(forged)}", advice)
    check_fields(path, content, fields, advice)
    return content


def _texts(value: object) -> Iterator[str]:
    """List the names and texts in a JSON value."""
    waiting = [value]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            yield node
        elif isinstance(node, dict):
            waiting += [*node, *node.values()]
        elif isinstance(node, list):
            waiting += node


def check_fields(path: Path, content: JSON, fields: Fields, advice: str = "") -> None:
    """Check the fields of a record.

    Raises:
      DamagedRecord: if a field is missing or of another type.
    """
    missing = [name for name in fields if name not in content and not fields[name].optional]
    if missing:
        raise _damaged(path, f"it has no {', '.join(missing)}", advice)
    for name, kind in fields.items():
        if name in content and not kind.accepts(content[name]):
            raise _damaged(
                path, f"its {name} must be {kind.name}, got {shown(content[name])}", advice
            )


def _damaged(path: Path, problem: str, advice: str) -> DamagedRecord:
    return DamagedRecord(f"{path} is damaged: {problem}.{advice and f' {advice}'}")
