"""Fill in a page that holds everything it shows: its style, its script and its plots."""

import functools
import json
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup

from . import embedded, numbers
from .charts import drawing
from .charts.chart import DESK, PHONE, Chart


def render(name: str, *, drawn: Sequence[Chart], **content: Any) -> str:
    """Fill in a template of `assets`.

    Args:
      name: of its file.
      drawn: the charts that it shows by name.
      content: what else it shows.

    Returns:
      HTML without references to anything outside of it.
    """
    return (
        _environment()
        .get_template(name)
        .render(
            charts={chart.name: chart for chart in drawn},
            plots={chart.name: _static(chart) for chart in drawn},
            specs={chart.name: drawing.live_spec(chart) for chart in drawn},
            style=Markup(embedded.style()),
            script=Markup((embedded.ASSETS / "page.js").read_text()),
            library=drawing.script(),
            n=numbers,
            **content,
        )
    )


def _static(chart: Chart) -> dict[str, Markup]:
    return {
        "desk": Markup(drawing.svg(chart, DESK)),
        "phone": Markup(drawing.svg(chart, PHONE, narrow=True)),
    }


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(embedded.ASSETS),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["variable"] = lambda colour: f"var({embedded.variable(colour)})"
    environment.filters["spec"] = _as_script
    return environment


def _as_script(spec: Mapping[str, Any]) -> Markup:
    """Format JSON for a script element, which `</` would end."""
    text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False)
    return Markup(text.replace("<", "\\u003c"))
