"""Plain words in the package and its documents: phrases of a short list must not appear."""

import re
from pathlib import Path

import pytest

from tests.project.source import ROOMS, ROOT

# What must not appear, as a regular expression, and what to write instead.
PHRASES = {
    r"\bpart(s|ed|ing)? from\b": "diverges from, differs from",
    r"\bnobody\b": "say what happens by default",
    r"\bwhoever\b": "name the caller or the user",
    r"\bsomebody\b": "name the caller or the user",
    r"\bthat (is|are|was|were) none\b": "invalid",
    r"\bis no (number|training|module|table|seed|folder|run|option)\b": "is not a, invalid",
    r"\blets? go of\b": "close, release, drop",
    r"\b(of|for) (one's|your|a person's) own\b": "custom",
    r"\bmend(s|ed|ing|able)?\b": "fix",
    r"\b(is|are|was|were|be) told\b": "is reported, is passed",
    r"\btold apart\b": "distinguished",
    r"\bdoes by itself\b": "does natively",
    r"\b(trainings|seeds) side by side\b": "independent seeds, vmapped",
    r"\bas if nothing had happened\b": "bit-for-bit",
    r"\bnothing is worth anything\b": "no bootstrap after a termination",
    r"\bwhere it is time\b": "if ready",
    r"\b(is|are) the \w+'s business\b": "say which component does it",
    r"\bwhat (nobody|people) brings?\b": "custom",
    r"\bgreatest\b": "maximum",
    r"\bmade up\b": "synthetic",
    r"\bdoes again\b": "repeats, reproduces",
}
PROSE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PLACES = {
    "README and docs": PROSE,
    **{room: sorted((ROOT / room).rglob("*.py")) for room in ROOMS},
}


def odd_phrases(text: str) -> list[tuple[int, str, str]]:
    """Find the phrases of the list: line number, what was found, what to write instead."""
    flat = re.sub(r"[\s#]", " ", text)  # of the same length; a phrase may run over a line's end
    return sorted(
        (text.count("\n", 0, match.start()) + 1, " ".join(match.group().split()), instead)
        for phrase, instead in PHRASES.items()
        for match in re.finditer(phrase.replace(" ", " +"), flat, re.IGNORECASE)
    )


@pytest.mark.parametrize("place", PLACES)
def test_no_odd_phrase(place: str) -> None:
    found = [
        f"{file.relative_to(ROOT)}:{line}: {words!r} -> {instead}"
        for file in PLACES[place]
        for line, words, instead in odd_phrases(Path(file).read_text())
    ]
    assert not found, f"{len(found)} odd phrases:\n" + "\n".join(found)


def test_a_phrase_is_found_across_lines() -> None:
    text = "first\nEquinox Parts\nfrom Haiku, and mends it; a commendable amendment."
    assert [(line, words) for line, words, _ in odd_phrases(text)] == [
        (2, "Parts from"),
        (3, "mends"),
    ]
