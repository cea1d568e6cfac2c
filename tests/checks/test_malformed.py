"""Networks and agents of every wrong shape: a sentence for each, and never a traceback."""

import pytest

from tests.checks.malformed_agents import AGENTS
from tests.checks.malformed_networks import HEADS, NETWORKS, Malformed
from triglot.checks import Report
from triglot.core.errors import TriglotError

MALFORMED = [
    *((f"network: {part.name}", part) for part in NETWORKS),
    *((f"heads: {part.name}", part) for part in HEADS),
    *((f"agent: {part.name}", part) for part in AGENTS),
]


@pytest.mark.parametrize(
    "part", [part for _, part in MALFORMED], ids=[name for name, _ in MALFORMED]
)
def test_a_sentence_says_what_is_wrong(part: Malformed) -> None:
    try:
        report = part.attempt()
    except TriglotError as error:
        told = str(error)
    else:
        assert isinstance(report, Report)
        failed = [result for result in report.results if result.outcome == "failed"]
        assert failed, str(report)
        told = failed[0].found
        assert failed[0].mend
    assert part.words in told
    assert len(told.split()) >= 4 and "\n" not in told
    assert "Traceback" not in told and "site-packages" not in told


def test_there_are_many() -> None:
    assert len(MALFORMED) >= 65
    assert len({name for name, _ in MALFORMED}) == len(MALFORMED)
