"""Errors with one-sentence messages: what was given, what was expected and how to fix it."""

import difflib
import importlib
import logging
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import ModuleType

from packaging.requirements import Requirement

from .deferred import deferred
from .garbage import collected_rarely

# Control characters, separators of lines, and marks that change the direction of what follows.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_PASSWORD = re.compile(r"(\w:/{1,2}[^\s/:@]*:)[^\s/]*@")  # pathlib leaves one slash
# What libraries import for pictures, meshes and one pipeline of brax, half of the time in which an
# agent and CartPole are made: gymnax the first two, jumanji the first, brax the others.
DEFERRED = (
    *("matplotlib", "matplotlib.colors", "matplotlib.pyplot", "seaborn"),
    *("jaxopt", "scipy.spatial", "trimesh"),
    *("rich.console", "rich.table", "rich.text", "yaml"),
)
MAX_SHOWN = 80  # characters of a given value in a message


def counted(number: int, noun: str) -> str:
    """Write a number before what it counts, whose plural ends in s.

    >>> counted(1, "update"), counted(2048, "update")
    ('1 update', '2,048 updates')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class TriglotError(ValueError):
    """Invalid input from the user; the command line prints it without a traceback."""

    def __str__(self) -> str:
        return masked(super().__str__())  # values of options stand in messages


class UnknownOption(TriglotError):
    """An option that an environment does not have.

    Args:
      environment: its name, for the message.
      option: the option's name.
      known: the names of its options.
    """

    def __init__(self, environment: str, option: str, known: Iterable[str]) -> None:
        self.environment, self.option, self.known = environment, option, tuple(known)
        text = f"{environment} takes no options, got {option!r}."
        if self.known:
            text = str(unknown(f"option of {environment}", option, self.known))
        super().__init__(text)


class Guessed(UserWarning):
    """Warns that a missing value was guessed; the message gives it and how to set it."""


class MissingExtra(TriglotError, ImportError):
    """An optional library is not installed."""


class CannotWrite(TriglotError):
    """A file or a directory cannot be written; its previous contents are unchanged."""


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report a failed write in one sentence with its cause, such as a full disk.

    Raises:
      CannotWrite: in place of an `OSError`.
    """
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{path} cannot be written: {error.strerror or error}.") from None


def require(module: str, extra: str) -> ModuleType:
    """Import an optional library.

    Args:
      module: import name, e.g. `"haiku"`.
      extra: the extra of triglot that installs it, e.g. `"haiku"`.

    Returns:
      The imported module.

    Raises:
      MissingExtra: if the library is not installed, with the command that installs it.
    """
    try:
        with deferred(*DEFERRED), collected_rarely():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise missing_extra(module, extra) from None


def check_version(distribution: str, extra: str) -> None:
    """Reject an installed library that is older or newer than the versions triglot works with.

    Args:
      distribution: the library's name as it is installed.
      extra: the extra of triglot that bounds its version.

    Raises:
      TriglotError: with the installed version, the bounds and the command that installs one within.
    """
    try:
        installed = metadata.version(distribution)
        wanted = [Requirement(text) for text in metadata.requires("triglot") or []]
    except metadata.PackageNotFoundError:  # `require` reports a library that is missing
        return
    for requirement in wanted:
        marker, same = requirement.marker, requirement.name.lower() == distribution.lower()
        if not same or marker is None or not marker.evaluate({"extra": extra}):
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            raise TriglotError(
                f"{distribution} {installed} is installed, and triglot works with "
                f"{distribution}{requirement.specifier}: run `pip install 'triglot[{extra}]'`."
            )


def missing_extra(module: str, extra: str, needed_by: str = "") -> MissingExtra:
    """Build the error for an optional library that is not installed.

    >>> missing_extra("haiku", "haiku")
    MissingExtra("haiku is not installed: run `pip install 'triglot[haiku]'`.")
    """
    what = f"{needed_by} needs {module}, which" if needed_by else module
    return MissingExtra(f"{what} is not installed: run `pip install 'triglot[{extra}]'`.")


# Hyperparameters of triglot 0.2: what is a schedule in their place, and an example.
REPLACED = {
    "decay_updates": ("learning_rate", "linear(3e-4, 0, 500 updates)"),
    **dict.fromkeys(
        ("epsilon_start", "epsilon_end", "epsilon_decay_steps"),
        ("epsilon", "linear(1, 0.05, 100_000)"),
    ),
}


def unknown(kind: str, text: str, choices: Iterable[str], meant: str | None = None) -> TriglotError:
    """Build the error for an unknown name, with the choice that is meant, or else the nearest.

    >>> unknown("backend", "hiku", ["haiku", "linen"])
    TriglotError("unknown backend 'hiku'; did you mean 'haiku'? Choices: haiku, linen.")
    >>> unknown("field of Config", "num_env", ["num_envs"])
    TriglotError("unknown field 'num_env' of Config; did you mean 'num_envs'? Choices: num_envs.")
    """
    names = sorted(choices)
    instead, example = REPLACED.get(text.lstrip("-").replace("-", "_"), (None, ""))
    if instead in {name.lstrip("-").replace("-", "_") for name in names}:
        return TriglotError(
            f"there is no {kind} {shown(text)} since triglot 0.3: {instead} is a number or a "
            f"schedule, such as {example!r}."
        )
    by_letters = {name.lower(): name for name in names}
    near = difflib.get_close_matches(text.lower(), by_letters, n=1, cutoff=0.6)
    suggestion = meant if meant in names else by_letters[near[0]] if near else None
    hint = f"; did you mean {suggestion!r}?" if suggestion else "."
    choices = f" Choices: {', '.join(names)}." if names else ""
    noun, *owner = re.split(r"(?= (?:of|in) )", kind, maxsplit=1)
    return TriglotError(f"unknown {noun} {shown(text)}{''.join(owner)}{hint}{choices}")


def check_known(kind: str, name: str, choices: Iterable[str]) -> None:
    """Reject a name that is not one of the choices.

    Raises:
      TriglotError: as `unknown` says it.
    """
    if name not in choices:
        raise unknown(kind, name, choices)


def check_text(name: str, value: object) -> None:
    """Reject what is not text where a name is expected.

    Raises:
      TriglotError: saying what was given.
    """
    if not isinstance(value, str):
        raise TriglotError(f"{name} must be text, got {kind_of(value)}.")


def check_path(name: str, value: object) -> None:
    """Reject what is not a path where one is expected.

    Raises:
      TriglotError: saying what was given.
    """
    if not isinstance(value, str | os.PathLike):
        raise TriglotError(f"{name} must be a path, got {kind_of(value)}.")


def shown(value: object) -> str:
    """Format a value that was given, for a message; a long one is cut in the middle.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' (100 characters)"
    """
    text = repr(value)
    if len(text) <= MAX_SHOWN:
        return text
    length = len(value) if isinstance(value, str) else len(text)
    return f"{text[:31]}...{text[-31:]} ({length} characters)"


def printable(text: str, keep: str = "") -> str:
    r"""Escape what would move the cursor, change colors or reorder a line in a terminal.

    Names come from files that another person may have written, and from folders.

    Args:
      text: a name, a cell of a table or a message.
      keep: control characters that stay, such as a line feed.

    >>> printable("run\n\x1b[2J")
    'run\\n\\x1b[2J'
    """
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in keep else match[0].encode("unicode_escape").decode(),
        text,
    )


def masked(text: str) -> str:
    """Hide the passwords of URLs, before a message or a file shows them.

    >>> masked("--storage postgresql://ann:secret@host/db is in use")
    '--storage postgresql://ann:***@host/db is in use'
    """
    return _PASSWORD.sub(r"\1***@", text)


def kind_of(value: object) -> str:
    """Describe what was given in place of an object, for a message.

    >>> kind_of(dict), kind_of({}), kind_of(OSError()), kind_of(None), kind_of("x")
    ('the class dict', 'a dict', 'an OSError', 'None', "'x'")
    """
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if value is None or isinstance(value, str | int | float | complex):
        return shown(value)
    name = getattr(value, "__qualname__", None)
    if callable(value) and name:
        return f"the function {name}"
    kind = type(value).__name__
    return f"{'an' if kind[0] in 'AEIOUaeiou' else 'a'} {kind}"


@contextmanager
def user_error_context(what: str, *, chained: bool = False) -> Iterator[None]:
    """Report an exception of the user's code in one sentence, with the line in that code.

    `SystemExit` counts: `sys.exit()` in a function would otherwise end the program silently. The
    traceback, most of it in libraries, is not printed; debuggers find it in `error.__context__`.

    Args:
      what: the component and what failed, such as "the haiku network 'mine' failed on ...".
      chained: whether the exception is shown too, where Python prints a traceback. One of
        `jax_debug_nans` then stays as it is.

    Raises:
      TriglotError: in place of any other exception.
    """
    try:
        yield
    except TriglotError:
        raise
    except (Exception, SystemExit) as error:
        if chained and isinstance(error, FloatingPointError):
            raise
        raise TriglotError(f"{what}: {describe(error)}") from (error if chained else None)


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Begin the messages of errors with words, such as the name of what they are about.

    >>> with prefixed("in 'hand', "):
    ...     raise TriglotError("the space is unknown.")
    Traceback (most recent call last):
    triglot.core.errors.TriglotError: in 'hand', the space is unknown.
    """
    try:
        yield
    except TriglotError as error:
        raise TriglotError(f"{prefix}{error}") from None


@contextmanager
def silenced(level: int) -> Iterator[None]:
    """Log nothing up to a level, such as what a library reports that is handled here."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)


def describe(error: BaseException) -> str:
    """Describe an exception in one line: its type, the start of its message and the user's line."""
    try:
        message = " ".join(str(error).split()).removesuffix(".")
    except Exception as broken:  # a custom exception's own `__str__`
        message = f"its message raises {type(broken).__name__}"
    if len(message) > 300:
        message = message[:300].rsplit(" ", 1)[0] + " ..."
    colon = ": " if message else ""
    return f"{type(error).__name__}{colon}{message}{_user_line(error)}"


def _user_line(error: BaseException) -> str:
    """Find the last line of the traceback outside triglot and installed libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not in_library(frame.filename)]
    if not user_frames:
        return ""
    return f" ({Path(user_frames[-1].filename).name}, line {user_frames[-1].lineno})"


def in_library(filename: str) -> bool:
    """Return whether a file belongs to triglot, to Python or to an installed package."""
    path = Path(filename).resolve()
    return filename.startswith("<") or any(map(path.is_relative_to, _LIBRARY_FOLDERS))


_LIBRARY_FOLDERS = [
    *(room.resolve() for room in Path(__file__).parents[1].iterdir() if room.is_dir()),
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "purelib", "platlib")),
]
