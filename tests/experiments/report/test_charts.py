"""The plots: what is drawn, in which colours, and that every specification compiles."""

import re
from typing import Any

import pytest

from tests.experiments.report.sample import BACKENDS, sample
from triglot.experiments.report import environments
from triglot.experiments.report.charts import cost, curves, divergence, drawing, returns, theme
from triglot.experiments.report.charts.chart import Chart

DIFFERENT, EQUAL = sample(num_updates=20), sample(num_updates=20, identical=True)
SEVERAL = sample(num_updates=20, num_seeds=3, envs=("A:a", "B:b"))


def charts(result: dict[str, Any]) -> dict[str, Chart]:
    """Build all charts of a result, by name."""
    built = [
        curves.curves_chart(result),
        *environments.curves_by_environment(result).values(),
        environments.aggregate_chart(result),
        divergence.divergence_chart(result),
        returns.returns_chart(result),
        returns.profiles_chart(result),
        returns.ladder_chart(result["ladder"], list(result["backends"])),
        cost.start_chart(result["cost"]),
        *(chart for _, chart in cost.rate_charts(result["cost"])),
    ]
    return {chart.name: chart for chart in built if chart is not None}


def colours_in(svg: str) -> set[str]:
    return set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', svg))


def lines_in(svg: str) -> list[str]:
    """Return the colours of the curves: paths with many points that are not filled."""
    paths = re.findall(r"<path[^>]*>", svg)
    found = [re.search(r'stroke="(#[0-9a-f]{6})"', path) for path in paths if path.count("L") > 5]
    return [match.group(1) for match in found if match]


@pytest.mark.parametrize("result", [DIFFERENT, EQUAL, SEVERAL], ids=["different", "equal", "envs"])
def test_every_plot_is_drawn(result: dict[str, Any]) -> None:
    for name, chart in charts(result).items():
        svg = drawing.svg(chart, 600)
        assert svg.startswith("<svg") and svg.count("<path") > 2, name
        assert "NaN" not in svg and "undefined" not in svg, name
        assert colours_in(svg) <= {*theme.DARK, *theme.OTHERS, "#888888"}, name


def test_equal_curves_are_drawn_once() -> None:
    chart = charts(EQUAL)["curves"]
    assert [one.label for one in chart.series] == ["All four"]
    assert lines_in(drawing.svg(chart, 600)) == [theme.ALL]


def test_each_library_keeps_its_colour() -> None:
    chart = charts(DIFFERENT)["curves"]
    assert [one.label for one in chart.series] == ["Haiku and Flax Linen", "Flax NNX", "Equinox"]
    expected = [theme.LIBRARIES[name] for name in ("haiku", "nnx", "equinox")]
    assert lines_in(drawing.svg(chart, 600)) == expected
    assert theme.colours(["toy", "nnx"])["nnx"] == theme.LIBRARIES["nnx"]
    assert len(set(theme.colours([*BACKENDS, "toy", "other"]).values())) == 6


def test_curves_that_lie_over_each_other_have_unequal_widths() -> None:
    svg = drawing.svg(charts(DIFFERENT)["curves"], 600)
    widths = re.findall(r'stroke-width="([\d.]+)" stroke-linecap="round" stroke-linejoin', svg)
    haiku, nnx, equinox = map(float, widths)
    assert haiku > nnx == equinox


@pytest.mark.parametrize(("num_seeds", "drawn"), [(3, 9), (10, 3)])
def test_few_seeds_are_drawn_one_by_one(num_seeds: int, drawn: int) -> None:
    chart = curves.curves_chart(sample(num_updates=20, num_seeds=num_seeds))
    assert chart is not None
    lines = lines_in(drawing.svg(chart, 600))
    assert len(lines) == (3 + drawn if num_seeds == 3 else drawn)


def test_the_interval_stays_within_the_bounds_of_the_return() -> None:
    result = sample(num_updates=20)
    result["statistics"]["return_bounds"] = [30.0, 400.0]
    chart = curves.curves_chart(result)
    assert chart is not None
    rows = [row.split(",") for row in chart.content["datasets"]["means"].splitlines()[1:]]
    lows, highs = ([float(row[column]) for row in rows if row[column]] for column in (3, 4))
    assert min(lows) >= 30 and max(highs) <= 400


def test_a_curve_without_episodes_is_left_out() -> None:
    result = sample(num_updates=20, backends=("haiku", "equinox"))
    result["curves"]["backends"]["equinox"] = [[None] * 20 for _ in range(10)]
    chart = curves.curves_chart(result)
    assert chart is not None
    assert lines_in(drawing.svg(chart, 600)) == [theme.LIBRARIES["haiku"]]


def test_divergence_has_the_colours_of_both_libraries_and_no_equal_pair() -> None:
    chart = charts(DIFFERENT)["divergence"]
    assert [one.label for one in chart.series] == [
        "Haiku, Flax Linen – Flax NNX",
        "Haiku, Flax Linen – Equinox",
        "Flax NNX – Equinox",
    ]
    assert chart.series[0].colours == (theme.LIBRARIES["haiku"], theme.LIBRARIES["nnx"])
    assert divergence.equal_pairs(DIFFERENT) == [["haiku", "linen"]]
    assert "divergence" not in charts(EQUAL)


def test_only_measures_that_differ_can_be_chosen() -> None:
    result = sample(num_updates=20, backends=("haiku", "nnx"))
    for name in ("params_rel", "return_abs"):
        result["divergence"]["pairs"][0][name] = [0.0] * 20
    assert list(divergence.measures(result)) == ["params_abs", "outputs_abs"]


def test_stages_in_milliseconds_are_stacked_in_seconds() -> None:
    chart = cost.start_chart(DIFFERENT["cost"])
    assert chart is not None
    bars = chart.content["layer"][0]["data"]["values"].splitlines()
    *_, start, end = bars[7].split(",")  # Haiku's first step, 300 ms
    assert bars[7].startswith("Haiku,first_step")
    assert float(end) - float(start) == pytest.approx(0.3)
    assert [one.key for one in chart.series] == list(cost.START)


def test_costs_are_drawn_from_zero() -> None:
    for name, chart in ((c.name, c) for _, c in cost.rate_charts(DIFFERENT["cost"])):
        assert ">0</text>" in drawing.svg(chart, 330), name


def test_any_name_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    title = 'it\'s, "so" \\ <b>'
    monkeypatch.setattr("triglot.backends.libraries.title", lambda name: f"{title} {name}")
    for name in ("curves", "cost", "returns"):
        vector, _ = drawing.files(charts(DIFFERENT)[name], ("title",))
        parts = ("it's,", '"so"', "\\", "&lt;b&gt;")  # a long name is broken into lines
        assert all(part in vector for part in parts) and "undefined" not in vector, name


def test_the_files_have_a_title_and_a_legend() -> None:
    vector, pixels = drawing.files(charts(DIFFERENT)["curves"], ("A title", "and a subtitle"))
    for text in ("A title", "and a subtitle", "Haiku and Flax Linen", "random policy"):
        assert f">{text}<" in vector
    assert pixels.startswith(b"\x89PNG") and len(pixels) < 100_000
