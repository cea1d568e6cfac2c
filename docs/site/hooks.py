"""Hooks of MkDocs: equations as MathML, which needs no script, and intervals in one line."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

# By how much the search prefers a page, by the beginning of its path; others have 1.
BOOST = {"guide/": 1.3, "start": 1.3, "cluster": 1.3, "devices": 1.3, "limits": 1.3}
BOOST |= {"measurements/": 0.5, "notebooks/": 0.5, "reports/": 0.5}
CELL = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
# A tag, or what stays on one line: an interval, an option, a small number.
UNBROKEN = re.compile(
    r"<[^>]*>|(\[-?\d[\d.,]*, -?\d[\d.,]*\]|--[a-z][\w-]*|\d[\d.]*e-\d+)",
)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let the search list recipes before measurements."""
    for start, boost in BOOST.items():
        if page.file.src_uri.startswith(start):
            page.meta.setdefault("search", {"boost": boost})
    return markdown


def on_page_content(content: str, **_: Any) -> str:
    """Keep intervals, options and small numbers in the cells of tables on one line."""
    return CELL.sub(lambda cell: UNBROKEN.sub(_in_one_line, cell[0]), content)


def _in_one_line(found: re.Match[str]) -> str:
    return f'<span class="unbroken">{found[1]}</span>' if found[1] else found[0]


def on_config(config: Any) -> Any:
    """Register ```` ```math ```` as a fence, which GitHub and GitLab render too."""
    superfences = config["mdx_configs"].setdefault("pymdownx.superfences", {})
    fence = {"name": "math", "class": "math", "format": equation}
    superfences["custom_fences"] = [*superfences.get("custom_fences", ()), fence]
    return config


def equation(source: str, *_: Any, **__: Any) -> str:
    """Convert LaTeX to a MathML block; the source is its description for screen readers."""
    mathml = convert(source, display="block")
    return f'<div class="equation" role="math" aria-label="{html.escape(source)}">{mathml}</div>'
