"""Copy the small files of comparisons here, and list them with their commands in README.md.

python docs/reports/collect.py runs/cartpole-ppo runs/pendulum-sac
"""

import html
import json
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FILES = ("comparison.json", "curves.png", "tables.md")
HEAD = """# Reports of comparisons

Each folder holds the curves, the tables and the numbers of one `triglot compare`; its command has
every option spelled out, so that later defaults do not change it. [Findings](../findings.md) sums
them up. `python docs/reports/collect.py RUN ...` copies the files of runs and writes this page.
"""

PAGES = """## Whole pages

Two pages as the commands wrote them; each holds everything that it shows. GitHub displays the
source of a page: download it, or open it on the site of the documents. The machine was busy, so
speeds and compile times in them say little.
"""

LADDERS = """## Ladders

What the libraries share, one thing more from column to column: the pairs that are equal bit for
bit, and the largest difference of the area under the learning curve, in the unit of the return,
with its interval at 95 % over seeds.
"""


def main(folders: list[Path]) -> None:
    """Copy the files of each run folder, and write the page over all that are here."""
    for folder in folders:
        target = HERE / folder.name
        target.mkdir(exist_ok=True)
        for name in FILES:
            shutil.copyfile(folder / name, target / name)
    found = sorted(path for path in HERE.iterdir() if (path / FILES[0]).exists())
    results = {path.name: json.loads((path / FILES[0]).read_text()) for path in found}
    sections = [section(name, result) for name, result in results.items()]
    (HERE / "README.md").write_text("\n".join([HEAD, pages(), ladders(results), *sections]))


def pages() -> str:
    """List the pages with the commands that wrote them."""
    parts = [PAGES]
    for path in sorted((HERE / "pages").glob("*.html")):
        found = re.search(r'<code id="command">(.*?)</code>', path.read_text())
        command = html.unescape(found.group(1)) if found else ""
        parts.append(f"[{path.stem}](pages/{path.name})\n\n```\n{wrapped(command)}\n```\n")
    return "\n".join(parts)


def wrapped(command: str) -> str:
    """Break a command into lines."""
    words = shlex.join(shlex.split(command))
    return " \\\n    ".join(
        textwrap.wrap(words, 96, break_long_words=False, break_on_hyphens=False)
    )


def ladders(results: dict[str, Any]) -> str:
    """Format what is left on each rung of every ladder, one row for each report."""
    climbed = {name: result["ladder"] for name, result in results.items() if result["ladder"]}
    titles = [rung["title"] for rung in next(iter(climbed.values()))]
    rows = [
        f"| [{name}]({name}/tables.md) | {' | '.join(map(rung_cell, ladder))} |"
        for name, ladder in climbed.items()
    ]
    lines = [
        LADDERS,
        f"| training | {' | '.join(titles)} |",
        f"| :-- |{' --: |' * len(titles)}",
        *rows,
        "",
    ]
    return "\n".join(lines)


def rung_cell(rung: dict[str, Any]) -> str:
    """Format one rung: equal pairs, and the largest difference of the area."""
    if not rung["run"]:
        return "-"
    equal = sum(pair["identical"] for pair in rung["pairs"])
    text = f"{equal} of {len(rung['pairs'])}"
    area = (rung["largest"] or {}).get("area")
    if equal == len(rung["pairs"]) or area is None:
        return text
    between = f" [{area['low']:.3g}, {area['high']:.3g}]" if area["low"] is not None else ""
    return f"{text}; {area['mean']:.3g}{between}"


def section(name: str, result: dict[str, Any]) -> str:
    """Format one report."""
    verdict = result["verdict"]
    text = textwrap.fill(f"**{verdict['level'].capitalize()}.** {verdict['sentence']}", 100)
    command = wrapped(result["full_command"])
    title = f"{name}: {result['algorithm']} on {result['env']}"
    return (
        f"## {title}\n\n[Tables]({name}/tables.md), "
        f"[numbers]({name}/comparison.json)\n\n"
        f"```\n{command}\n```\n\n{text}\n\n![Learning curves]({name}/curves.png)\n"
    )


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
