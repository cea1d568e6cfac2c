"""Say in a folder which files belong to it, by digests, and what they belong to.

Without JAX, so that commands that only list folders start quickly.
"""

import hashlib
import json
import os
from pathlib import Path

from .errors import TriglotError, describe
from .folders import read_bytes
from .records import JSON, JSONDict

MANIFEST = "manifest.json"


class DamagedError(TriglotError):
    """A checkpoint is incomplete or was modified."""


def _digests(folder: Path, nested: bool) -> dict[str, str]:
    """Make the digests of all files, also of those in `nested` folders with their own manifest."""
    separate = (
        set() if nested else {manifest.parent for manifest in folder.rglob(MANIFEST)} - {folder}
    )
    return {
        str(file.relative_to(folder)): _digest(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST and separate.isdisjoint(file.parents)
    }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, of: JSON | None = None, *, nested: bool = True) -> None:
    """Write the digests of all files in a folder, so that `check_manifest` notices any change.

    Args:
      folder: holds the files.
      of: what they belong to, as JSON has it.
      nested: whether files in folders that have a manifest of their own, which may be deleted
        before this one, are among them.

    Raises:
      OSError: if it cannot be written.
    """
    content = {"files": _digests(folder, nested), "of": dict(of or {})}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1))
    sync(folder / MANIFEST)


def check_manifest(path: Path, *, nested: bool = True) -> JSONDict:
    """Compare the files in a folder with the digests that `write_manifest` wrote.

    Args:
      path: the folder.
      nested: as it was written.

    Returns:
      What the files belong to; empty in a folder of an earlier version.

    Raises:
      DamagedError: if a file is missing, was modified or was added.
    """
    expected, of = _manifest(path)
    try:
        digests = _digests(path, nested)
    except OSError as error:
        raise DamagedError(f"{path} is not a complete checkpoint: {describe(error)}.") from None
    for name in sorted(expected.keys() | digests.keys()):
        if expected.get(name) != digests.get(name):
            state = "is missing" if name not in digests else "was modified"
            raise DamagedError(f"{path} is damaged: its file {name} {state}.")
    return of


def belongs_to(path: Path) -> JSONDict:
    """Read what the files of a folder belong to, without comparing their digests.

    Raises:
      DamagedError: if the manifest is missing or damaged.
    """
    return _manifest(path)[1]


def _manifest(path: Path) -> tuple[dict[str, str], JSONDict]:
    try:
        content = json.loads(read_bytes(path / MANIFEST))
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not a complete checkpoint: {describe(error)}.") from None
    # An earlier version wrote the digests alone.
    new = isinstance(content, dict) and set(content) == {"files", "of"}
    files, of = (content["files"], content["of"]) if new else (content, {})
    if not isinstance(files, dict) or not isinstance(of, dict):
        raise DamagedError(f"{path} is not a complete checkpoint: {MANIFEST} is damaged.")
    return files, of


def sync(path: Path) -> None:
    """Flush a file or a folder to disk, except on Windows, which cannot through a reader."""
    if os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
