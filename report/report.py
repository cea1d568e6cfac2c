"""Write a comparison's folder: the page, the figures, the tables and `comparison.json`."""

import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..core.errors import TriglotError, writing
from ..machine.files import creating, replacing
from .charts import figures
from .contents import series, summary_table, tables
from .page import page, title
from .tables import as_csv, as_markdown
from .tables import as_text as table_as_text
from .thinning import as_json, thinned

PAGE = "report.html"


def write(out: Path, result: Mapping[str, Any]) -> None:
    """Write the report of a comparison into its folder.

    The files: `report.html`, `curves.png` and `curves.svg`, the other charts in `figures`,
    `tables.md`, `tables/*.csv` and `comparison.json`, whose curves have at most 200 points.

    Args:
      out: the folder; files of these names are replaced.
      result: the result of `compare`. A part that was not run may be None or absent; the report
        leaves its section out.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    small = thinned(result)
    text = as_json(small)
    found = tables(small)
    for folder in (out / "tables", out / figures.FOLDER):
        with creating(folder):
            folder.mkdir(parents=True, exist_ok=True)
    _write(out / "comparison.json", text)
    for table in (*found, *series(small)):
        _write(out / "tables" / f"{table.name}.csv", as_csv(table))
    _write(out / "tables.md", markdown(small))
    drawn = figures.page_charts(small)
    for path, content in figures.draw(drawn, small, title(small)).items():
        _write(out / path, content)
    _write(out / PAGE, page(small, drawn, comparison_json=text))


def as_text(result: Mapping[str, Any]) -> str:
    """Format the table of a comparison for a terminal of 80 columns."""
    return table_as_text(summary_table(result))


def markdown(result: Mapping[str, Any]) -> str:
    """Format the verdict and all tables as Markdown, for papers and pull requests."""
    parts = [
        f"# {title(result)}",
        f"**{result['verdict']['level'].capitalize()}.** {result['verdict']['sentence']}",
        f"```\n{result['command']}\n```",
    ]
    for table in tables(result):
        parts += [f"## {table.title}", as_markdown(table), *([table.note] if table.note else [])]
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items() if v)
    parts.append(f"{versions}; {result['device']}, {result['cpu_cores']} processor cores.")
    return "\n\n".join(parts) + "\n"


def open_report(path: Path) -> None:
    """Open the page of a comparison in the web browser.

    Args:
      path: the page, or the folder of the comparison.

    Raises:
      TriglotError: if there is no such page, or no browser that could open it.
    """
    file = path / PAGE if path.is_dir() else path
    if not file.is_file():
        raise TriglotError(f"{file} does not exist: run `triglot compare` with --out {path} first.")
    if not webbrowser.open(file.resolve().as_uri()):
        raise TriglotError(f"no web browser was found; open {file.resolve()} in one.")


def _write(path: Path, content: str | bytes) -> None:
    with replacing(path) as unfinished, writing(path):
        if isinstance(content, str):
            content = content.encode()
        unfinished.write_bytes(content)
