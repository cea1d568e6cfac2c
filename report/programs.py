"""The lines that differ between two compiled programs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import numbers

KINDS = {"- ": "one", "+ ": "other", "..": "fold"}  # by a line's beginning
SOURCE = "   # "  # before file and line


@dataclass(frozen=True)
class ProgramPair:
    """Two programs: a sentence, and lines of kind, text and source."""

    backends: tuple[str, ...]
    title: str
    level: str
    sentence: str
    lines: list[tuple[str, str, str]]


def program_pairs(result: Mapping[str, Any]) -> list[ProgramPair]:
    """Describe the pairs of compiled programs."""
    return [
        ProgramPair(
            backends=tuple(pair["backends"]),
            title=numbers.pair_title(pair["backends"]),
            level="identical" if pair["identical"] else "different",
            sentence=pair["sentence"],
            lines=list(_lines(pair.get("lines") or ())),
        )
        for pair in (result.get("programs") or {}).get("pairs") or ()
    ]


def _lines(lines: Any) -> Iterator[tuple[str, str, str]]:
    for line in lines:
        kind = KINDS.get(line.strip()[:2], "place")
        text, _, source = line.partition(SOURCE)
        yield kind, text, source
