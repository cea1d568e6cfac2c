"""Losses and updates of five published implementations beside triglot's, by `triglot diff`.

The checkouts are the reader's own; nothing of them is copied. It writes `docs/implementations.json`
and the page `docs/implementations.md`:

    git clone https://github.com/luchris429/purejaxrl CHECKOUTS/purejaxrl    # and the others
    python -m benchmarks.implementations --checkouts CHECKOUTS --returns

An hour on two cores; `--only PureJaxRL` compares one, without writing the page.
"""

import importlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from .comparing import compare
from .effects import effects, torch_difference
from .page import write
from .parts import Project
from .recording import read
from .sources import Checkout

MODULES = ("purejaxrl", "rejax", "stoix", "cleanrl", "sb3")
LARGEST = ("no_gradient_clip", "clip_each_network", "rollout_standardization")
VARIABLE = "TRIGLOT_CHECKOUTS"
JSON = Path(__file__).parents[2] / "docs" / "implementations.json"


@dataclass(frozen=True)
class Options:
    """Options of the comparison.

    Attributes:
      checkouts: the folder that has the clones; by default that of the environment variable
        `TRIGLOT_CHECKOUTS`.
      only: names of implementations to compare, without writing the page.
      returns: train with each detail, 10 seeds each; otherwise the returns of the page are kept.
      details: names of `SWITCHES` to train with.
      page: compare nothing, and write the page from the JSON.
    """

    checkouts: Path | None = None
    only: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    returns: bool = False
    details: tuple[str, ...] = LARGEST
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
    known: dict[str, Any] = json.loads(JSON.read_text()) if JSON.exists() else {"projects": {}}
    folder = options.checkouts or Path(os.environ.get(VARIABLE, "checkouts"))
    for name in () if options.page else MODULES:
        project: Project = importlib.import_module(f".{name}", __package__).PROJECT
        if not options.only or project.name in options.only:
            known["projects"][project.name] = compare_project(project, folder)
            JSON.write_text(json.dumps(known, indent=1) + "\n")
    if options.returns:
        from .returns import measure

        known["returns"] = []
        for each in measure(options.details):
            known["returns"].append(asdict(each))
            JSON.write_text(json.dumps(known, indent=1) + "\n")
            print(f"{each.detail or 'as it is'}: {np.mean(each.training):.1f}", flush=True)
    if not options.only:
        write(known)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
