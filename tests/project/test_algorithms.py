"""An algorithm's file is short, and mostly its own: options, how it acts, how it learns."""

import pytest

from benchmarks.lines import SETUP, algorithm_lines, code_lines
from tests.project.source import ROOT
from triglot.registry.algorithms import ALGORITHMS
from triglot.registry.presets.find import presets
from triglot.report.statistics import format_return

MIN_SHARE = 0.5  # more than half is the algorithm's own
MAX_LINES = 150  # of code


def read(algorithm: str) -> str:
    return (ROOT / "algorithms" / f"{algorithm}.py").read_text()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_most_of_the_code_is_the_algorithm(algorithm: str) -> None:
    source = read(algorithm)
    inside, whole = len(algorithm_lines(source)), len(code_lines(source))
    assert inside > MIN_SHARE * whole, (
        f"algorithms/{algorithm}.py: {inside} of {whole} code lines ({inside / whole:.1%}) are the "
        f"agent's options and methods, besides {', '.join(sorted(SETUP))}; more than "
        f"{MIN_SHARE:.0%} should be."
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_file_is_short(algorithm: str) -> None:
    lines = len(code_lines(read(algorithm)))
    assert lines <= MAX_LINES, f"algorithms/{algorithm}.py: {lines} code lines, at most {MAX_LINES}"


def returns(algorithm: str) -> set[str]:
    """List what the presets of an algorithm reached, as text."""
    return {
        f"{format_return(sample.mean)} [{', '.join(map(format_return, sample.interval))}]"
        for preset in presets()
        if preset.algorithm == algorithm
        for sample in preset.measured
    }


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_page_of_all_algorithms_has_its_lines_and_its_return(algorithm: str) -> None:
    source = read(algorithm)
    inside, whole = len(algorithm_lines(source)), len(code_lines(source))
    page = (ROOT / "docs" / "algorithms" / "index.md").read_text()
    (row,) = [line for line in page.splitlines() if f"]({algorithm}.md)" in line]
    assert f"| {whole}, {round(inside / whole, 3):.0%} own |" in row
    assert any(f"| {text} |" in row for text in returns(algorithm))


TOY = '''"""A module's
docstring."""

import math  # code

@dataclass
class State:
    """Not constructed below."""
    number: int

class Batch:
    size: int

class Agent:
    """The agent."""

    Config = State

    def init(self):
        return State(helper(1))

    # a comment
    def act(self):
        """Act."""
        return self._scale * outer(
            2
        )

    @property
    def _scale(self):
        return 3

    def update(self, state: State):
        text = """not
        a docstring"""
        return use(self._learn, Batch(text))

    def _learn(self):
        return mapped(helper)

def outer(x):
    return x

def helper(x):

    return x

def unused():
    return None
'''


def lines_with(*texts: str) -> set[int]:
    rows = enumerate(TOY.splitlines(), start=1)
    return {number for number, row in rows if any(text in row for text in texts)}


def test_code_lines_of_a_toy() -> None:
    rows = TOY.splitlines()
    blank = {number for number, row in enumerate(rows, start=1) if not row.strip()}
    prose = {1, 2} | lines_with('"""Not constructed', '"""The agent', '"""Act', "# a comment")
    assert code_lines(TOY) == set(range(1, len(rows) + 1)) - blank - prose


def test_algorithm_lines_of_a_toy() -> None:
    outside = {line for line in code_lines(TOY) if line < lines_with("class Batch").pop()}
    outside |= lines_with(
        "class Agent", "Config =", "def init", "State(helper", "def unused", "return None"
    )
    assert algorithm_lines(TOY) == code_lines(TOY) - outside
