"""The look of all plots over environment steps; matplotlib is imported on first use."""

from pathlib import Path
from typing import Any

from ...core.errors import printable
from ..machine.files import replacing
from .charts.theme import GRID, QUIET


def literal(text: str) -> str:
    """Escape a name for a plot, where text between two dollars would be a formula."""
    return printable(text).replace("$", r"\$")


def save(figure: Any, path: Path) -> None:
    """Write a figure atomically.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    with replacing(path) as unfinished:
        figure.savefig(unfinished)


def quiet(axes: Any) -> None:
    """Leave horizontal grid lines behind the curves, without ticks and spines."""
    axes.tick_params(length=0, which="both", colors=QUIET)
    axes.grid(axis="y", color=GRID)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)


def over_steps(axes: Any, label: str) -> None:
    """Label the horizontal axis, and write its numbers as 100k or 1M."""
    from matplotlib.ticker import EngFormatter

    axes.set_xlabel(label, color=QUIET)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
