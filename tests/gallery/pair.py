"""A pair of networks that compute the same function, and the bugs planted in the second one."""

import functools
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from triglot.backends import libraries
from triglot.backends.calling import Inputs
from triglot.core.errors import TriglotError

ROOT = Path(__file__).parents[2]
FAMILIES = (
    "agents",
    "residual",
    "stacks",
    "gated",
    "images",
    "patches",
    "attention",
    "text",
    "rotary",
    "sequences",
    "decoders",
    "recurrences",
    "fields",
    "pytorch",
    "pytorch_signals",
)
NEEDS = {
    "pytorch": "torch",
    "pytorch_signals": "torch",
}  # libraries that the rest of the gallery does without
NEAR = 2  # lines
MARK = re.compile(r"# (planted|counterpart): (.+)")


@dataclass(frozen=True)
class Bug:
    """One mistake of a port.

    Attributes:
      name: value of the second network's argument `bug`; unique in a module, whose lines with the
        mistake are marked `# planted: NAME`, and their counterparts `# counterpart: NAME`.
      causes: names of the catalogue that are right.
      planted: what the port does, in words.
      consequences: names that may stand beside a right one.
    """

    name: str
    causes: tuple[str, ...]
    planted: str
    consequences: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Pair:
    """One architecture, written in two libraries.

    Attributes:
      name: unique in the gallery.
      source: the paper, by its authors and year.
      libraries: of the two networks.
      one: makes the first network, of what `triglot.diff_networks` takes, from the arguments of a
        size.
      other: makes the second network likewise; `bug` plants a mistake, "" none.
      inputs: the spec of one input, or a function of the arguments of a size.
      bugs: of the second network.
      sizes: arguments of the published sizes, by name; without arguments the networks are small.
    """

    name: str
    source: str
    libraries: tuple[str, str]
    one: Callable[..., Any]
    other: Callable[..., Any]
    inputs: Inputs | Callable[..., Inputs]
    bugs: tuple[Bug, ...]
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        """The module that has both networks."""
        return Path(inspect.getfile(self.other))

    def spec(self, **size: Any) -> Inputs:
        """Return the spec of one input at a size."""
        return self.inputs(**size) if callable(self.inputs) else self.inputs


def find_pairs() -> dict[str, Pair]:
    """Import all architectures, without PyTorch's where it is not installed.

    Returns:
      The pairs by name, in the order of the families.
    """
    found: dict[str, Pair] = {}
    for family in FAMILIES:
        if is_installed(NEEDS.get(family)):
            module = importlib.import_module(f".families.{family}", __package__)
            found |= {pair.name: pair for pair in module.PAIRS}
    return found


def is_installed(library: str | None) -> bool:
    """Check whether a library can be used; PyTorch needs torchax."""
    if library is None:
        return True
    return libraries.find(library).installed and (library != "torch" or bool(find_spec("torchax")))


def choose(pairs: Mapping[str, Pair], names: Iterable[str]) -> dict[str, tuple[Pair, Mapping]]:
    """Choose pairs by name, or by `PAIR@SIZE` at a published size.

    Returns:
      Pairs and the arguments of their size, by what they were chosen by.

    Raises:
      TriglotError: if there is no such pair or size.
    """
    chosen: dict[str, tuple[Pair, Mapping]] = {}
    for name in names:
        short, _, size = name.partition("@")
        if short not in pairs:
            raise TriglotError(f"no pair {short!r}; choose from {', '.join(pairs)}.")
        sizes = pairs[short].sizes
        if size and size not in sizes:
            raise TriglotError(f"{short} has no size {size!r}; choose from {', '.join(sizes)}.")
        chosen[name] = pairs[short], sizes[size] if size else {}
    return chosen


@functools.cache
def marks(file: Path) -> dict[str, dict[str, tuple[int, ...]]]:
    """Read the marked lines of a module.

    Returns:
      For `planted` and `counterpart`, line numbers by the name of the bug.
    """
    found: dict[str, dict[str, tuple[int, ...]]] = {"planted": {}, "counterpart": {}}
    for number, line in enumerate(file.read_text().splitlines(), 1):
        for kind, names in MARK.findall(line):
            for name in re.split(r"[,\s]+", names.partition(" #")[0].strip()):
                found[kind][name] = (*found[kind].get(name, ()), number)
    return found


def is_marked(text: str, pair: Pair, bug: str) -> bool:
    """Check whether a text has a `file:line` near a marked line of a bug."""
    lines = [number for kind in marks(pair.file).values() for number in kind.get(bug, ())]
    found = [int(n) for n in re.findall(rf"{re.escape(pair.file.name)}:(\d+)", text)]
    return any(abs(one - line) <= NEAR for one in found for line in lines)
