"""The plots: what is drawn, in which colours, and that every specification compiles."""

import re
from typing import Any

import numpy as np
import pytest

from tests.shared.pages.sample import BACKENDS, sample
from triglot.compare.pages.charts import cost, returns
from triglot.compare.pages.comparison import page, page_charts
from triglot.shared.pages.charts import curves, drawing, theme
from triglot.shared.pages.charts.chart import Chart, returns_scale, rows_step

DIFFERENT, EQUAL = sample(num_updates=20), sample(num_updates=20, identical=True)
SEVERAL = sample(num_updates=20, num_seeds=3, envs=("A:a", "B:b"))


def charts(result: dict[str, Any]) -> dict[str, Chart]:
    """Build all charts of a result, by name."""
    built = list(page_charts(result))
    built += [chart for _, chart in cost.rate_charts(result["cost"])]
    return {chart.name: chart for chart in built}


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
    assert lines_in(drawing.svg(chart, 600)) == [theme.LIBRARIES[name] for name in BACKENDS]


def test_each_library_keeps_its_colour() -> None:
    chart = charts(DIFFERENT)["curves"]
    assert [one.label for one in chart.series] == ["Haiku and Flax Linen", "Flax NNX", "Equinox"]
    assert lines_in(drawing.svg(chart, 600)) == [theme.LIBRARIES[name] for name in BACKENDS]
    assert theme.colours(["toy", "nnx"])["nnx"] == theme.LIBRARIES["nnx"]
    assert len(set(theme.colours([*BACKENDS, "toy", "other"]).values())) == 6


def test_curves_that_lie_over_each_other_have_unequal_widths() -> None:
    svg = drawing.svg(charts(DIFFERENT)["curves"], 600)
    widths = re.findall(r'<path[^>]*stroke-linejoin="round"[^>]*>', svg)
    haiku, linen, nnx, equinox = (
        float(re.findall(r'stroke-width="([\d.]+)"', path)[0]) for path in widths
    )
    assert haiku == linen > nnx == equinox


@pytest.mark.parametrize(("num_seeds", "drawn"), [(3, 13), (10, 4)])
def test_few_seeds_are_drawn_one_by_one(num_seeds: int, drawn: int) -> None:
    chart = curves.curves_chart(sample(num_updates=20, num_seeds=num_seeds))
    assert chart is not None
    assert len(lines_in(drawing.svg(chart, 600))) == drawn


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
    assert curves.equal_pairs(DIFFERENT) == [["haiku", "linen"]]
    assert "divergence" not in charts(EQUAL)


def test_schedules_are_drawn_over_the_training() -> None:
    result = sample(num_updates=20)
    steps = result["steps_per_update"]
    result["hyper"] = {
        "learning_rate": "linear(0.5, 0)",
        "entropy_coef": f"piecewise(0: 0.5, {5 * steps}: 0.25)",
        "value_coef": "warmup(updates)",  # of Python
        "discount": 0.9,
    }
    found = {name: chart for name, chart in charts(result).items() if name.startswith("schedule")}
    assert list(found) == ["schedule-learning_rate", "schedule-entropy_coef"]
    for name, expected in (
        ("learning_rate", [0.5 - 0.025 * number for number in range(21)]),
        ("entropy_coef", [0.5] * 5 + [0.25] * 16),
    ):
        chart = found[f"schedule-{name}"]
        (text,) = chart.content["datasets"].values()
        rows = [line.split(",") for line in text.splitlines()[1:]]
        assert [int(row[1]) for row in rows] == [steps * number for number in range(21)]
        np.testing.assert_allclose([float(row[2]) for row in rows], expected, atol=1e-6)
        assert len(lines_in(drawing.svg(chart, 600))) == 1
    assert "entropy_coef = piecewise(0: 0.5" in page(result, page_charts(result))


def test_only_measures_that_differ_can_be_chosen() -> None:
    result = sample(num_updates=20, backends=("haiku", "nnx"))
    for name in ("params_rel", "return_abs"):
        result["divergence"]["pairs"][0][name] = [0.0] * 20
    assert list(curves.measures(result)) == ["params_abs", "outputs_abs"]


def test_stages_in_milliseconds_are_stacked_in_seconds() -> None:
    chart = cost.start_chart(DIFFERENT)
    assert chart is not None
    bars = chart.content["layer"][0]["data"]["values"].splitlines()
    *_, seconds, start, end = bars[7].split(",")  # Haiku's first step, 300 ms
    assert bars[7].startswith("Haiku,first_step,First step")
    assert float(end) - float(start) == pytest.approx(float(seconds)) == pytest.approx(0.3)
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


def texts_in(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.mark.parametrize("value", [1.0, 0.0, -200.0])
def test_a_constant_curve_has_an_axis(value: float) -> None:
    result = sample(num_updates=20, backends=("haiku", "nnx"), identical=True)
    mean = {"value": value, "low": value, "high": value}
    result["statistics"]["random_return"] = value
    for name in ("haiku", "nnx"):
        result["curves"]["backends"][name] = [[value] * 20] * 10
        result["statistics"]["backends"][name] |= {"mean": mean, "final_returns": [value] * 10}
    built = [curves.curves_chart(result), returns.returns_chart(result)]
    for chart in built:
        assert chart is not None
        ticks = {text for text in texts_in(drawing.svg(chart, 600)) if re.search(r"^[\d−]", text)}
        assert len(ticks) >= 4, chart.name


def test_equal_returns_have_no_profile() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"))
    result["statistics"]["profiles"]["thresholds"] = [500.0] * 21
    assert returns.profiles_chart(result) is None


def test_the_scale_of_returns_is_around_a_single_value() -> None:
    assert returns_scale([None, 2.0, 2.0, float("nan")])["domain"] == [1.8, 2.2]
    assert returns_scale([0.0])["domain"] == [-1.0, 1.0]
    assert returns_scale([1.0, 2.0], padding=12) == {"zero": False, "padding": 12}
    assert returns_scale([]) == {"zero": False}


def test_a_row_is_as_high_as_its_label() -> None:
    assert rows_step(["Haiku", "Equinox"], 42) == 42
    assert rows_step(["Haiku, Flax Linen and Flax NNX"], 42) == 3 * 16 + 6


@pytest.mark.parametrize("name", ["curves", "divergence", "profiles", "ladder", "cost"])
def test_the_legend_of_a_file_has_each_series_once_in_all_its_colours(name: str) -> None:
    chart = charts(DIFFERENT)[name]
    vector, _ = drawing.files(chart, ("title",))
    in_page = texts_in(drawing.svg(chart, 600))
    keys = vector[vector.rindex(f">{chart.series[0].label}</text>") :] + vector
    for one in chart.series:
        assert texts_in(vector).count(one.label) == 1 + in_page.count(one.label)
        assert all(f'stroke="{colour}"' in keys for colour in one.colours)
    assert int(re.findall(r'width="(\d+)"', vector)[0]) < 860, "a legend does not widen it"


@pytest.mark.parametrize("name", ["curves", "divergence", "profiles"])
def test_equal_libraries_share_a_line_in_all_their_colours(name: str) -> None:
    chart = charts(DIFFERENT)[name]
    assert chart.series[0].shared and len(set(chart.series[0].colours)) > 1
    drawn = lines_in(drawing.svg(chart, 600))
    assert drawn == [colour for one in chart.series for colour in one.colours]
