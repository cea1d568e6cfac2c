"""Read folders that another person may have written: no links, no devices, nothing endless.

A run folder is data. A link in it could make a command read, overwrite or delete what lies outside,
and a pipe or a device never ends. So commands call `require_plain` before they use a folder, and
read its records by `read_bytes`.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from .errors import TriglotError

MAX_RECORD = 64 * 2**20  # bytes of a JSON or TOML file; the largest that triglot writes has 10 MB
FOREIGN = ("wandb",)  # the local files of Weights & Biases
_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class NotPlain(TriglotError):
    """A folder holds a link or a special file."""


def require_plain(folder: Path) -> None:
    """Reject a folder that holds a symbolic link, a pipe, a socket or a device, at any depth.

    The folder itself may be a link, since the user named it. One that does not exist is accepted.
    What lies inside of a folder of `FOREIGN` is not looked at: a library keeps links there, and
    nothing else reads it.

    Raises:
      NotPlain: with the first path that is neither a file nor a folder.
      TriglotError: if a folder inside cannot be read.
    """
    try:
        for entry in _entries(folder):
            kind = _KINDS.get(stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode))
            if kind is not None:
                raise NotPlain(
                    f"{entry.path} is {kind}, which triglot does not write and does not follow: "
                    "replace it by what it points to, or delete it."
                )
    except OSError as error:
        where = error.filename or folder
        raise TriglotError(f"{where} cannot be read: {error.strerror}.") from None


def _entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = os.scandir(waiting.pop())
        except (FileNotFoundError, NotADirectoryError):  # deleted meanwhile by the run's program
            continue
        with entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name not in FOREIGN:
                            waiting.append(entry.path)
                    else:
                        yield entry
                except FileNotFoundError:
                    continue


def read_bytes(path: Path, limit: int = MAX_RECORD, *, follow: bool = False) -> bytes:
    """Read a whole file of at most `limit` bytes.

    Args:
      path: the file.
      limit: in bytes.
      follow: whether a symbolic link is followed, for a path that the user gave.

    Raises:
      OSError: if it cannot be opened.
      TriglotError: if it is no regular file, or larger than `limit`.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    flags |= 0 if follow else getattr(os, "O_NOFOLLOW", 0)
    with open(os.open(path, flags), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "Is a directory", os.fspath(path))
        if not stat.S_ISREG(status.st_mode):
            raise TriglotError(f"{path} is not a regular file: give a file with contents.")
        if status.st_size > limit:
            raise TriglotError(
                f"{path} has {status.st_size:,} bytes, and at most {limit:,} are read: it is not "
                "what triglot wrote."
            )
        return file.read(limit + 1)
