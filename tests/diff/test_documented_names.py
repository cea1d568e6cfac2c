"""Every cause that a test plants is documented, and every documented one is planted or found."""

import re
from pathlib import Path

from tests.diff.gradients.test_causes import PLANTED as GRADIENTS
from tests.diff.programs.cases import GPU, PLANTED, SEVERAL
from tests.diff.test_compare import PLANTED as NETWORKS

ROOT = Path(__file__).parents[2]


def documented() -> set[str]:
    """Read the names in the first column of the table."""
    text = (ROOT / "docs" / "reference" / "causes.md").read_text()
    table = text.split("The causes in the report")[1].split("\n\n")[1]
    rows = table.splitlines()[2:]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_the_names_are_those_of_the_catalogue() -> None:
    planted = {
        name for case in {**PLANTED, **SEVERAL, **GPU, **GRADIENTS}.values() for name in case.causes
    }
    planted |= {name for *_, names in NETWORKS.values() for name in names}
    assert planted <= documented()
    files = (ROOT / "src" / "triglot" / "diff").rglob("*.py")
    source = "".join(path.read_text() for path in files)
    assert {name for name in documented() if f'"{name}"' not in source} == set()
