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

from .comparing import Comparison, compare
from .effects import effect_of_all, effects, torch_difference
from .page import write
from .parts import Project
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


def projects() -> list[Project]:
    """List the implementations."""
    return [importlib.import_module(f".{name}", __package__).PROJECT for name in MODULES]


def compare_project(project: Project, folder: Path) -> dict[str, Any]:
    """Compare all parts of an implementation, at equal hyperparameters and at the defaults."""
    checkout = Checkout((folder / project.folder).resolve(), project.url)
    rows: list[dict[str, Any]] = []
    for part, theirs in project.parts(checkout).items():
        modes = [False] if theirs.of_defaults is None else [False, True]
        for defaults in modes:
            comparison = compare(project, checkout, part, theirs, defaults=defaults)
            rows.append(row_of(comparison, project, theirs))
            print(f"{project.name}, {part}: {' -> '.join(comparison.verdicts)}; "
                  f"{', '.join(f.switch for f in comparison.findings) or 'no difference'}",
                  flush=True)  # fmt: skip
    return {"commit": checkout.commit, "url": project.url, "rows": rows}


def row_of(comparison: Comparison, project: Project, theirs: Any) -> dict[str, Any]:
    """Return a comparison with its effects on the recorded batch."""
    part, defaults = comparison.part, comparison.defaults
    single = effects(part, [finding.switch for finding in comparison.findings])
    return {
        **asdict(comparison),
        "effects": single,
        "effect": effect_of_all(part, theirs.build(defaults), in_torch=project.in_torch),
        "torch_difference": torch_difference(part, theirs.build(defaults))
        if project.in_torch
        else None,
    }


def main(options: Options) -> None:
    """Compare, and write the page."""
    known = json.loads(JSON.read_text()) if JSON.exists() else {}
    folder = options.checkouts or Path(os.environ.get(VARIABLE, "checkouts"))
    chosen = [each for each in projects() if not options.only or each.name in options.only]
    if not options.page:
        known.setdefault("projects", {})
        for each in chosen:
            known["projects"][each.name] = compare_project(each, folder)
            JSON.write_text(json.dumps(known, indent=1) + "\n")
    if options.returns:
        from .returns import measure

        known["returns"] = []
        for each in measure(options.details):
            known["returns"].append(asdict(each))
            JSON.write_text(json.dumps(known, indent=1) + "\n")
            print(f"{each.detail or 'as it is'}: {np.mean(each.training):.1f}", flush=True)
    if not options.only:
        JSON.write_text(json.dumps(known, indent=1) + "\n")
        write(known)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
