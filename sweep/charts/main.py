"""The main chart of a sweep, by the number of swept names, and the curves of the best settings."""

from collections.abc import Mapping, Sequence
from typing import Any

from ...report.charts.chart import Chart, Series
from ...report.charts.curves import seeds_chart
from ...report.charts.theme import PALETTE
from ..axes import format_value
from .one_name import one_name_chart
from .several_names import heat_map, is_grid, parallel_chart

BEST = 5  # settings whose learning curves are drawn


def main_chart(records: Sequence[Mapping[str, Any]], names: Sequence[str], name: str) -> Chart:
    """Build the chart that shows how the return depends on what was swept.

    Args:
      records: the settings of one environment that have a return; see `results.as_records`.
      names: what was swept in it, at least one name.
      name: of the chart.
    """
    if len(names) == 1:
        return one_name_chart(records, names[0], name)
    if len(names) == 2 and is_grid(records, names):
        return heat_map(records, names, name)
    return parallel_chart(records, names, name)


def curves_chart(
    records: Sequence[Mapping[str, Any]], curves: Mapping[str, Any], name: str
) -> Chart:
    """Build the plot of the learning curves of the best settings.

    Args:
      records: the best settings of one environment.
      curves: `env_steps`, and the seeds' returns by the number of the setting.
      name: of the chart.
    """
    series = tuple(Series(f"g{i}", _label(one), (PALETTE[i],)) for i, one in enumerate(records))
    seeds = [curves["settings"][str(one["setting"])] for one in records]
    return seeds_chart(name, series, seeds, curves["env_steps"])


def _label(record: Mapping[str, Any]) -> str:
    values = ", ".join(f"{name} {format_value(v)}" for name, v in record["values"].items())
    return f"{record['rank']}. {values}"
