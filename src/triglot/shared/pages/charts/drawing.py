"""Turn a chart into a picture, or into what the page's script draws.

Everything is computed on this machine by vl-convert, which holds Vega, Vega-Lite and Vega-Embed;
nothing is read from the network.
"""

import base64
import functools
import gzip
import io
import re
from collections.abc import Sequence

from PIL import Image

from ....core.errors import require
from .chart import Chart, keys
from .theme import CONFIG, GROUND, SCHEMA, Spec

vl_convert = require("vl_convert", "report")

VERSION = "6.4"  # of Vega-Lite; vl-convert holds several
WHOLE = ("params", "datasets")  # of a specification, and not of one of its layers
COLOURS = 128  # of a PNG, with their shades at edges
PIXELS = 2.0  # of a PNG for each of the plot's


def live_spec(chart: Chart) -> Spec:
    """Build the specification that fills the width of the page.

    The height on a phone stands in `usermeta`.
    """
    desk, phone = chart.heights
    spec = _finished(chart, chart.content, "container", desk) | {"usermeta": {"phone": phone}}
    if chart.pointer is not None:
        spec["layer"] = [*spec["layer"], chart.pointer]
    return spec


def svg(chart: Chart, width: int, *, narrow: bool = False) -> str:
    """Draw a chart as it stands in the page, where chips are its legend."""
    return _tidy(_draw(_finished(chart, chart.content, width, chart.heights[narrow])))


def files(chart: Chart, title: Sequence[str]) -> tuple[str, bytes]:
    """Draw a chart with a title and a legend, for papers: SVG and PNG."""
    whole = {name: chart.content[name] for name in WHOLE if name in chart.content}
    view = {name: part for name, part in chart.content.items() if name not in whole}
    content = {**whole, "layer": [view, *keys(chart.series)]}
    drawn = _draw(_finished(chart, content, 640, chart.heights[0], title))
    return drawn, _small(vl_convert.svg_to_png(drawn, scale=PIXELS))


def _small(png: bytes) -> bytes:
    """Reduce a picture of few colours to a palette, a third of the bytes."""
    small = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return small.getvalue()


def _finished(
    chart: Chart, content: Spec, width: int | str, height: int, title: Sequence[str] = ()
) -> Spec:
    """Add size, look and description to the content of a chart.

    Args:
      chart: what is drawn.
      content: its marks and data, in the page or with a legend.
      width: pixels, or `"container"` to fill the page.
      height: pixels.
      title: a title, and the lines below it; empty in the page, which has headings.
    """
    head = {"title": {"text": title[0], "subtitle": list(title[1:])}} if title else {}
    return {
        "$schema": SCHEMA,
        "description": chart.description,
        **head,
        "width": width,
        "height": height,
        "autosize": {"type": "pad" if title else "fit-x", "contains": "padding"},
        "padding": 12 if title else {"left": 8, "right": 8, "top": 8, "bottom": 0},
        "background": GROUND if title else None,
        "config": CONFIG,
        **content,
    }


def _draw(spec: Spec) -> str:
    return vl_convert.vegalite_to_svg(spec, vl_version=VERSION, allowed_base_urls=[])


def _tidy(drawn: str) -> str:
    """Let an SVG shrink with the page, and shorten its numbers to a hundredth of a pixel."""
    width, height = re.search(r'width="([\d.]+)" height="([\d.]+)"', drawn).groups()  # type: ignore
    drawn = drawn.replace(f'width="{width}" height="{height}"', 'width="100%"', 1)
    return re.sub(r"(\d+\.\d{2})\d+", r"\1", drawn)


@functools.cache
def script() -> str:
    """Return the library that draws in the page, compressed with gzip, as base64."""
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=VERSION)
    return base64.b64encode(gzip.compress(bundle.encode(), 9, mtime=0)).decode()
