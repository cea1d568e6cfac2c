"""Malformed networks and agents: the report has one sentence and no traceback."""

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


@pytest.mark.covering(7)
@pytest.mark.parametrize(
    "part", [part for _, part in MALFORMED], ids=[name for name, _ in MALFORMED]
)
def test_a_sentence_says_what_is_wrong(part: Malformed) -> None:
    try:
        report = part.attempt()
    except TriglotError as error:
        text = str(error)
    else:
        assert isinstance(report, Report)
        failed = [result for result in report.results if result.outcome == "failed"]
        assert failed, str(report)
        text = failed[0].found
        assert failed[0].fix
    assert part.words in text
    assert len(text.split()) >= 4 and "\n" not in text
    assert "Traceback" not in text and "site-packages" not in text
