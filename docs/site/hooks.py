"""Hooks of MkDocs: equations as MathML, which needs no script, and intervals on one line."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

INTERVAL = re.compile(r"\[-?\d[\d.,]*, -?\d[\d.,]*\](?=[^<]*(?:<br ?/?>[^<]*)*</td>)")


def on_page_content(content: str, **_: Any) -> str:
    """Keep an interval in a cell of a table, such as `[488.2, 503.2]`, on one line."""
    return INTERVAL.sub(r'<span class="interval">\g<0></span>', content)


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
