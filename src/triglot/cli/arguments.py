"""Reject words of a command line that no option takes."""

import os
from collections.abc import Sequence
from pathlib import Path

from ..core.errors import TriglotError, shown

MAX_LENGTH = 4095  # bytes of a path, with most systems
MAX_NAME = 255  # bytes of a file's name


def check_words(words: Sequence[str]) -> None:
    """Reject empty words, null bytes, and words that are not text.

    Raises:
      TriglotError: naming the word, or the option before it.
    """
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        where = f"the value of {before}" if before.startswith("--") else f"argument {index + 1}"
        name, equals, value = word.partition("=")
        if not word or (name.startswith("--") and equals and not value):
            raise TriglotError(
                f"{where if not word else f'the value of {name}'} is empty: give one, or leave "
                "the option out."
            )
        if "\0" in word:
            raise TriglotError(f"{where} has a null byte, {shown(word)}: remove it.")
        try:
            size = len(word.encode())
        except UnicodeEncodeError:
            raise TriglotError(
                f"{where} is not UTF-8 text, {shown(word)}: rename the file or folder."
            ) from None
        if size > MAX_LENGTH:
            raise TriglotError(
                f"{where} is {size:,} bytes long, {shown(word)}: at most {MAX_LENGTH:,} are "
                "possible."
            )


def check_path(option: str, path: str) -> None:
    """Reject a path with a name that is longer than file systems allow.

    Raises:
      TriglotError: naming the option and the length.
    """
    longest = max(path.split("/"), key=lambda name: len(name.encode()))
    if (size := len(longest.encode())) > MAX_NAME:
        raise TriglotError(
            f"{option} has a name of {size} bytes, {shown(longest)}: at most {MAX_NAME} are "
            "possible."
        )


def check_writable(option: str, folder: Path) -> None:
    """Reject a folder that does not exist and cannot be created, or cannot be written.

    Raises:
      TriglotError: naming the option and the folder.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise TriglotError(f"{option} {folder} cannot be a folder: {existing} is a file.")
    if not os.access(existing, os.W_OK):
        raise TriglotError(f"{option} {folder} cannot be written: {existing} is read-only.")
