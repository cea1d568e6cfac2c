"""Draw charts with matplotlib: as SVG in a page, and as files with a title and a legend."""

import io
import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ....core.errors import printable
from ...machine.files import replacing
from .chart import Chart
from .theme import QUIET, STYLE, variable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DESK, PHONE, RATE, FILE = 920, 350, 330, 720  # widths of plots, in pixels
AXIS = 52  # height of the labels of the horizontal axis
SCALE = 2  # pixels of a PNG for each of the plot's
COLOURS = 128  # of a PNG, with their shades at edges
EDGE = 12  # around a file, in pixels
TITLE, SUBTITLE, KEY = 24, 18, 18  # heights in its head
TITLE_WORDS, SUBTITLE_WORDS = 72, 96  # characters of their lines
KEY_WORDS = 40  # characters of a label of the legend, above which it has one column
KEY_LINE, COLUMN, MAX_ROWS = 26, 350, 4  # of the legend: widths, and entries of one column
# What matplotlib writes and a page has already, or does not need.
NEEDLESS = re.compile(
    r"<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>|(?<=>)\s+(?=<)", re.DOTALL
)


@contextmanager
def themed() -> Iterator[None]:
    """Give figures the look of all plots, whatever matplotlib's settings are."""
    from matplotlib import style

    with style.context(["default", STYLE]):
        yield


def new_figure(width: float, height: float, edge: float = 0, head: float = 0) -> Any:
    """Make a figure of a size in pixels, whose plots leave its edges and its head free."""
    from matplotlib.figure import Figure

    dpi = STYLE["figure.dpi"]
    figure: Any = Figure(figsize=(width / dpi, height / dpi), layout="constrained")
    across, down = edge / width, edge / height
    rest = (across, down, 1 - 2 * across, 1 - 2 * down - head / height)
    figure.get_layout_engine().set(rect=rest)
    return figure


@themed()
def svg(chart: Chart, width: int, *, narrow: bool = False) -> str:
    """Draw a chart as it stands in the page, which has the legend and the switches.

    Keys of series and switches are classes of the elements, and colours the page's variables.
    """
    figure = new_figure(width, chart.heights[narrow] + AXIS)
    chart.draw(figure.add_subplot())
    figure.patch.set_visible(False)
    _finish(figure)
    drawn = _svg(figure, salt=f"{chart.name} {width}")
    drawn = NEEDLESS.sub("", drawn[drawn.index("<svg") :])
    return re.sub(r"<[^>]*>", lambda tag: _for_page(tag[0]), drawn)


def _for_page(tag: str) -> str:
    """Shorten a tag of an SVG, and let the page's style sheet decide on size, font and colours."""
    if tag.startswith("<svg"):
        box = re.search(r'viewBox="[^"]*"', tag)[0]  # pyright: ignore[reportOptionalSubscript]
        return f'<svg width="100%" {box}>'
    tag = re.sub(r' id="[^"]*_\d+"| transform="rotate\(-0 [^"]*"| font-family:[^;]*;', "", tag)
    if tag == "<g/>":
        return ""
    if tag.startswith("<g "):
        tag = tag.replace(' id="', ' class="')
    tag = re.sub(r"\d+\.\d{3,}", lambda number: f"{round(float(number[0]), 1):g}", tag)
    tag = re.sub(r"(: )(#[0-9a-f]{6})", lambda match: f"{match[1]}var({variable(match[2])})", tag)
    return re.sub(r"\s*\b([MLCz])\s*|\s+(?=\")", r"\1", tag) if " d=" in tag else tag


@themed()
def files(chart: Chart, title: Sequence[str]) -> tuple[str, bytes]:
    """Draw a chart with a title and a legend, for papers: SVG and PNG."""
    figure = figure_of(chart, title)
    return _svg(figure, salt=chart.name), _png(figure)


@themed()
def write(path: Path, chart: Chart, title: Sequence[str]) -> None:
    """Write a PNG of a chart.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    save(path, figure_of(chart, title))


def save(path: Path, figure: "Figure") -> None:
    """Write a PNG of a figure atomically.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    with replacing(path) as unfinished:
        unfinished.write_bytes(_png(figure))


@themed()
def figure_of(chart: Chart, title: Sequence[str]) -> "Figure":
    """Draw a chart below its title and its legend, without what is switched off."""
    from matplotlib.lines import Line2D

    large, quiet = {"fontsize": 15, "fontweight": "bold"}, {"color": QUIET}
    lines = [(line, TITLE, large) for line in textwrap.wrap(title[0], TITLE_WORDS)]
    for text in title[1:]:
        lines += [(line, SUBTITLE, quiet) for line in textwrap.wrap(text, SUBTITLE_WORDS)]
    short = all(len(series.label) <= KEY_WORDS for series in chart.series)
    columns = 2 if short and len(chart.series) > MAX_ROWS else 1
    rows = math.ceil(len(chart.series) / columns)
    head = sum(size for _, size, _ in lines) + KEY * rows
    height = head + chart.heights[0] + AXIS + 2 * EDGE
    figure = new_figure(FILE, height, EDGE, head)
    chart.draw(figure.add_subplot())
    off = {switch.key for switch in chart.switches if not switch.on}
    for artist in figure.findobj(lambda artist: artist.get_gid()):
        if off & set(artist.get_gid().split()):
            artist.remove()
        artist.set_gid(None)  # several may have the same, and an id of a file is unique

    def write(text: str, x: float, y: float, **look: Any) -> None:
        figure.text(x / FILE, 1 - y / height, text, va="center", **look)

    y = EDGE
    for line, size, look in lines:
        write(line, EDGE, y + size / 2, **look)
        y += size
    for index, series in enumerate(chart.series):
        left, middle = EDGE + COLUMN * (index % columns), y + KEY * (index // columns + 0.5)
        ends = [left / FILE, (left + KEY_LINE) / FILE], [1 - middle / height] * 2
        for look in series.lines():
            look["linewidth"] = max(series.width, 4)
            figure.add_artist(Line2D(*ends, **look))
        write(series.label, left + KEY_LINE + 8, middle)
    _finish(figure)
    return figure


def _arrange(figure: "Figure") -> None:
    """Make room for labels, once: matplotlib would do it, and draw one time more, for each file."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine(None)


def _svg(figure: "Figure", salt: str) -> str:
    from matplotlib import rc_context

    _arrange(figure)
    text = io.StringIO()
    with rc_context({"svg.hashsalt": salt}):  # the same elements have the same names each time
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    return text.getvalue()


def _png(figure: "Figure") -> bytes:
    """Draw a PNG of a palette, which has a third of the bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    _arrange(figure)
    figure.set_dpi(SCALE * STYLE["figure.dpi"])
    canvas, small = FigureCanvasAgg(figure), io.BytesIO()
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG")
    return small.getvalue()


def _finish(figure: "Figure") -> None:
    """Let lines at an edge have their whole width, and escape control characters of names."""
    from matplotlib.text import Text

    for artist in figure.findobj():
        artist.set_clip_on(False)  # all values lie within the axes
        if isinstance(artist, Text):
            artist.set_text(printable(artist.get_text()))
