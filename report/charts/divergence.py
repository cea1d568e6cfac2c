"""How far libraries diverge over the updates, on a logarithmic axis."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..numbers import EPSILON, pairs_title
from .chart import (
    HIDDEN,
    SHOWN,
    Chart,
    named,
    number,
    pointer,
    reference,
    steps_axis,
    strokes,
    table,
)
from .series import Series, grouped
from .theme import colours

MEASURES = {
    "params_abs": "parameters",
    "params_rel": "parameters, relative",
    "outputs_abs": "outputs",
    "return_abs": "return",
}

POWER = "abs(log(datum.value) / LN10 - round(log(datum.value) / LN10)) < 1e-6"  # of ten


def divergence_chart(result: Mapping[str, Any]) -> Chart | None:
    """Build the plot of all differences; None if none was recorded or all are 0."""
    found = _different(result)
    if not found:
        return None
    # Pairs whose differences are equal throughout are one line.
    values = {tuple(p["backends"]): {name: p.get(name) or [] for name in MEASURES} for p in found}
    groups = grouped(values)
    colour = colours(list(result["backends"]))
    series = tuple(
        Series(f"g{index}", pairs_title(pairs), tuple(colour[name] for name in pairs[0]))
        for index, pairs in enumerate(groups)
    )
    different = [values[pairs[0]] for pairs in groups]
    steps = result["divergence"]["env_steps"]
    rows = []
    for one, differences in zip(series, different, strict=True):
        for index, step in enumerate(steps):
            point = [each[index] if each else None for each in differences.values()]
            if any(point):
                rows.append((one.key, step, *(None if v is None else float(v) for v in point)))
    datasets, data = named("differences", table(("g", "x", *MEASURES), rows, words=("g",)))
    chosen = [{"filter": "datum[measure] > 0"}, {"calculate": "datum[measure]", "as": "y"}]
    powers = f"{POWER} ? replace(format(datum.value, '.0e'), '+', '') : ''"
    grid = {"condition": {"test": POWER, "value": 1}, "value": 0}
    axis = {"labelExpr": powers, "gridOpacity": grid, "tickCount": 6}
    y = number("y", "largest difference", scale={"type": "log"}, axis=axis)
    measure = next(iter(measures(result)))
    rounding = reference(EPSILON, "one float32 rounding step at 1")
    for layer in rounding:
        layer["transform"] = [{"filter": "measure != 'return_abs'"}]
    return Chart(
        name="divergence",
        heading=f"Largest difference of {MEASURES[measure]}",
        description="Largest difference between libraries against environment steps, on a "
        f"logarithmic axis: {'; '.join(one.label for one in series)}.",
        content={
            "params": [HIDDEN, {"name": "measure", "value": measure}],
            "datasets": datasets,
            "layer": [*rounding, strokes(data, series, [*chosen, SHOWN], x=steps_axis(), y=y)],
        },
        pointer=pointer(data, series, ".2~e", chosen),
        heights=(320, 260),
        series=series,
    )


def equal_pairs(result: Mapping[str, Any]) -> list[Sequence[str]]:
    """List the pairs without any difference."""
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair["backends"] for pair in pairs if not _differs(pair)]


def measures(result: Mapping[str, Any]) -> dict[str, str]:
    """List the measures in which something differs, with their names."""
    found = _different(result)
    return {n: t for n, t in MEASURES.items() if any(any(pair.get(n) or ()) for pair in found)}


def _different(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pairs = (result.get("divergence") or {}).get("pairs", ())
    return [pair for pair in pairs if _differs(pair)]


def _differs(pair: Mapping[str, Any]) -> bool:
    return any(any(pair.get(measure) or ()) for measure in MEASURES)
