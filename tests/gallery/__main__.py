"""Public architectures in two libraries each, with planted bugs: does `triglot diff` find them?

    python -m tests.gallery
    python -m tests.gallery --pairs resnet@resnet18 gpt2@small --level quick --bugs 1
    python -m tests.gallery --resume      # goes on where it was stopped

Each pair is compared clean and with each bug, in a process of its own. `docs/gallery.md` has the
results, and `docs/measurements/diff.md` those of published sizes.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import tyro

from benchmarks import harness
from triglot.core.errors import TriglotError
from triglot.diff.measures.effort import LEVELS, STANDARD

from .page import page, sizes, totals
from .pair import NEAR, choose, find_pairs
from .run import load, run


def main(
    pairs: tuple[str, ...] = (),
    seconds_limit: float = 600.0,
    level: str = STANDARD,
    json: Path = Path("benchmarks/results/gallery.json"),
    page_path: Path = Path("docs/gallery.md"),
    sizes_path: Path = Path("docs/measurements/diff.md"),
    resume: bool = False,
    bugs: int | None = None,
) -> None:
    """Run the gallery, and write its results as JSON and as a page.

    Args:
      pairs: `PAIR`, or `PAIR@SIZE` at a published size; all pairs, small, by default. Rows of
        others that the JSON file has are kept.
      seconds_limit: of one comparison.
      level: quick, standard or thorough, as of `triglot diff`; quick sees no gradients.
      json: the JSON file; written after each comparison.
      page_path: the page of small networks, in Markdown.
      sizes_path: the page of published sizes, which is written if the JSON file has any.
      resume: keep finished comparisons, unless their networks or `diff` have changed since.
      bugs: how many of each pair are planted, one after the other; all by default.
    """
    if level not in LEVELS:
        raise TriglotError(f"level {level!r} is unknown; choose from {', '.join(LEVELS)}.")
    found = find_pairs()
    chosen = {name: pair for name, (pair, _) in choose(found, pairs or found).items()}
    rows = load(json, chosen, resume=resume, level=level)
    try:
        for _ in run(chosen, rows, json, seconds_limit, level, bugs):
            pass
    except KeyboardInterrupt:
        raise SystemExit(f"\nstopped; {json} has what is done, and --resume goes on.") from None
    names = [*found, *(name for name in rows if name not in found)]
    ordered = {name: rows[name] for name in names if name in rows}
    page_path.write_text(page(ordered, harness.cpu_model(), NEAR))
    if text := sizes(ordered):
        sizes_path.write_text(text)
    for what, number, total in totals(ordered):
        print(f"{what}: {number} of {total}")
    print(page_path)


def command(arguments: Sequence[str] | None = None) -> None:
    """Run `main` with the arguments of the command line."""
    try:
        tyro.cli(main, args=arguments, description=__doc__)
    except TriglotError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(2) from None


if __name__ == "__main__":
    command()
