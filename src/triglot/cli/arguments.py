"""Read and reject words of a command line, before any option is parsed."""

import itertools
import os
import re
from collections.abc import Collection, Iterator, Sequence
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


def check_contradictions(words: Sequence[str]) -> None:
    """Reject an option that is given twice with different values, and `--x` with `--no-x`.

    Raises:
      TriglotError: naming the option and its values.
    """
    seen: dict[str, list[str]] = {}
    for name, values in _options(words):
        if seen.setdefault(name, values) != values:
            both = " and ".join(" ".join(each) or "nothing" for each in (seen[name], values))
            raise TriglotError(f"{name} is given twice, as {both}: give it once.")
    for name in seen:
        if name.startswith("--no-") and (other := f"--{name[5:]}") in seen:
            raise TriglotError(f"{other} and {name} contradict each other: give one of them.")


def check_values(words: Sequence[str], names: Collection[str]) -> None:
    """Reject an option for one or more words that is given without any.

    Raises:
      TriglotError: naming the option.
    """
    for name, values in _options(words):
        if name in names and not values:
            raise TriglotError(f"{name} has no value: give one, or leave the option out.")


def join_repeated(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Move the values of repeated options to the first place where each is given.

    Args:
      words: after the command.
      names: options that may be repeated, such as `--over`.

    >>> join_repeated(["--over", "a=1", "--seed", "0", "--over=b=2"], ["--over"])
    ['--over', 'a=1', 'b=2', '--seed', '0']
    """
    current: list[str] = []
    groups = [current]
    repeated: dict[str, list[str]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if name in repeated:
            current = repeated[name]
            current += [value] if equals else []
        elif name in names:
            current = repeated[name] = [name, value] if equals else [name]
            groups.append(current)
        elif word.startswith("--"):
            current = [word]
            groups.append(current)
        else:
            current.append(word)
    return [word for group in groups for word in group]


def spell_out(words: Sequence[str], names: Collection[str]) -> list[str]:
    """Give options that may be True, False or None a value where they stand alone.

    Args:
      words: after the command.
      names: of such options.

    >>> spell_out(["--normalize-obs", "--no-scale-rewards"], ["--normalize-obs", "--scale-rewards"])
    ['--normalize-obs', 'True', '--scale-rewards', 'False']
    """
    spelled: list[str] = []
    for word, following in itertools.pairwise([*words, "--"]):
        name = word.replace("_", "-")
        positive = name.replace("--no-", "--", 1)
        if name in names and following.startswith("--"):
            spelled += [word, "True"]
        elif positive in names and positive != name:
            spelled += [positive, "False"]
        else:
            spelled.append(word)
    return spelled


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


def _options(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield each option with its values: the words up to the next option."""
    name, values = "", []
    for word in [*words, "--"]:
        if not word.startswith("-") or re.match(r"-(\d|\.|inf|nan)", word):
            values.append(word)
            continue
        if name:
            yield name, values
        name, equals, value = word.partition("=")
        name, values = name.replace("_", "-"), [value] if equals else []


def value_of(words: Sequence[str], name: str) -> str | None:
    """Read the value of an option before all options are parsed; None if it is not given."""
    spaced = (second for first, second in itertools.pairwise(words) if first == name)
    joined = (word.partition("=")[2] for word in words if word.startswith(f"{name}="))
    return next(itertools.chain(spaced, joined), None)
