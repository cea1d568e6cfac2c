"""Losses and updates of five published implementations beside triglot's, by `triglot diff`.

The checkouts are the reader's own; nothing of them is copied. It writes `docs/implementations.json`
and the page `docs/implementations.md`:

    git clone https://github.com/luchris429/purejaxrl CHECKOUTS/purejaxrl    # and the others
    python -m benchmarks.implementations --checkouts CHECKOUTS

Half an hour on two cores; `--only PureJaxRL` compares one, without writing the page.
"""

import importlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .comparing import compare
from .effects import effects, torch_difference
from .page import write
from .parts import Project
from .recording import read
from .sources import Checkout

MODULES = ("purejaxrl", "rejax", "stoix", "cleanrl", "sb3")
VARIABLE = "TRIGLOT_CHECKOUTS"
JSON = Path(__file__).parents[2] / "docs" / "implementations.json"


@dataclass(frozen=True)
class Options:
    """Options of the comparison.

    Attributes:
      checkouts: the folder that has the clones; by default that of the environment variable
        `TRIGLOT_CHECKOUTS`.
      only: names of implementations to compare, without writing the page.
      page: compare nothing, and write the page from the JSON.
    """

    checkouts: Path | None = None
    only: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    page: bool = False


def compare_project(project: Project, folder: Path) -> dict[str, Any]:
    """Compare all parts of an implementation, at equal hyperparameters and at the defaults."""
    checkout = Checkout((folder / project.folder).resolve(), project.url)
    rows: list[dict[str, Any]] = []
    recorded = read()
    for part, equal in project.parts(checkout).items():
        for defaults, theirs in ((False, equal), (True, equal.defaults)):
            if theirs is None:
                continue
            comparison = compare(project, checkout, part, theirs, defaults=defaults)
            switches = [finding.switch for finding in comparison.findings]
            row = {**asdict(comparison), "effects": {}, "torch_difference": None}
            if part in recorded:
                row["effects"] = effects(part, recorded[part], switches)
                if project.in_torch:
                    difference = torch_difference(part, recorded[part], theirs.function)
                    row["torch_difference"] = difference
            rows.append(row)
            found = ", ".join(switches) or "no difference"
            verdicts = " -> ".join(comparison.verdicts)
            print(f"{project.name}, {part}: {verdicts}; {found}", flush=True)
    return {"commit": checkout.commit, "url": project.url, "rows": rows}


def main(options: Options) -> None:
    """Compare, and write the page."""
    known = json.loads(JSON.read_text()) if JSON.exists() else {"projects": {}}
    folder = options.checkouts or Path(os.environ.get(VARIABLE, "checkouts"))
    for name in () if options.page else MODULES:
        project: Project = importlib.import_module(f".{name}", __package__).PROJECT
        if not options.only or project.name in options.only:
            known["projects"][project.name] = compare_project(project, folder)
            JSON.write_text(json.dumps(known, indent=1) + "\n")
    if not options.only:
        write(known["projects"])


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
