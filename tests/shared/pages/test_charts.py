"""The plots: what is drawn, and in which colours."""

import re
from typing import Any

import numpy as np
import pytest

from tests.shared.pages.sample import BACKENDS, sample
from triglot.compare.pages.charts import cost, returns
from triglot.compare.pages.comparison import page, page_charts
from triglot.shared.pages.charts import curves, drawing, theme
from triglot.shared.pages.charts.chart import Chart, limits_of_equal, rows_step

DIFFERENT, EQUAL = sample(num_updates=20), sample(num_updates=20, identical=True)
SEVERAL = sample(num_updates=20, num_seeds=3, envs=("A:a", "B:b"))


def charts(result: dict[str, Any]) -> dict[str, Chart]:
    """Build all charts of a result, by name."""
    built = list(page_charts(result))
    built += [chart for _, chart in cost.rate_charts(result["cost"])]
    return {chart.name: chart for chart in built}


def drawn(chart: Chart | None) -> Any:
    """Draw a chart, and return its axes."""
    assert chart is not None
    axes = drawing.new_figure(600, 400).add_subplot()
    chart.draw(axes)
    return axes


def means_in(chart: Chart | None) -> list[Any]:
    """Return the lines of a chart that belong to a series and to no switch."""
    return [line for line in drawn(chart).lines if re.fullmatch(r"g\d+|s", line.get_gid() or "")]


def colours_of(lines: list[Any]) -> list[str]:
    return [line.get_color() for line in lines]


def texts_in(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.mark.covering(3)
@pytest.mark.parametrize("result", [DIFFERENT, EQUAL, SEVERAL], ids=["different", "equal", "envs"])
def test_every_plot_is_drawn_in_the_colours_of_the_page(result: dict[str, Any]) -> None:
    known = {theme.variable(colour) for colour in (*theme.DARK, *theme.PALETTE)}
    for name, chart in charts(result).items():
        svg = drawing.svg(chart, 600)
        assert svg.startswith("<svg") and svg.count("<path") > 2, name
        assert "nan" not in svg and "url(" not in svg, name
        assert set(re.findall(r"var\(([^)]*)\)", svg)) <= known, name
        assert not re.search(r": #[0-9a-f]{6}", svg), name


@pytest.mark.slow
def test_the_same_result_gives_the_same_bytes() -> None:
    for name in ("curves", "ladder", "cost"):
        first, second = (charts(sample(num_updates=20))[name] for _ in range(2))
        assert drawing.svg(first, 600) == drawing.svg(second, 600)
        assert drawing.files(first, ("title",)) == drawing.files(second, ("title",))


@pytest.mark.slow
def test_no_two_plots_of_a_page_share_an_id() -> None:
    ids = re.findall(r' id="([^"]+)"', page(SEVERAL, page_charts(SEVERAL)))
    assert len(ids) == len(set(ids))


def test_equal_curves_are_drawn_once() -> None:
    chart = charts(EQUAL)["curves"]
    assert [one.label for one in chart.series] == ["All four"]
    assert colours_of(means_in(chart)) == [theme.LIBRARIES[name] for name in BACKENDS]


def test_each_library_keeps_its_colour() -> None:
    chart = charts(DIFFERENT)["curves"]
    assert [one.label for one in chart.series] == ["Haiku and Flax Linen", "Flax NNX", "Equinox"]
    assert colours_of(means_in(chart)) == [theme.LIBRARIES[name] for name in BACKENDS]
    assert theme.colours(["toy", "nnx"])["nnx"] == theme.LIBRARIES["nnx"]
    assert len(set(theme.colours([*BACKENDS, "toy", "other"]).values())) == 6


def test_curves_that_lie_over_each_other_have_unequal_widths() -> None:
    lines = means_in(charts(DIFFERENT)["curves"])
    haiku, linen, nnx, equinox = (line.get_linewidth() for line in lines)
    assert haiku == linen > nnx == equinox


def test_a_curve_is_the_mean_over_seeds() -> None:
    line = means_in(charts(DIFFERENT)["curves"])[0]
    first = len(DIFFERENT["curves"]["env_steps"]) - len(line.get_xdata())
    np.testing.assert_array_equal(line.get_xdata(), DIFFERENT["curves"]["env_steps"][first:])
    seeds = np.array(DIFFERENT["curves"]["backends"]["haiku"], np.float64)
    assert np.isnan(seeds[:, :first]).all(), "no episode had ended"
    np.testing.assert_allclose(line.get_ydata()[-1], seeds[:, -1].mean())


@pytest.mark.parametrize(("num_seeds", "bands"), [(3, 0), (10, 3)])
def test_few_seeds_are_shown_one_by_one(num_seeds: int, bands: int) -> None:
    chart = charts(sample(num_updates=20, num_seeds=num_seeds))["curves"]
    axes = drawn(chart)
    seeds = [line for line in axes.lines if "seeds" in (line.get_gid() or "")]
    assert len(seeds) == 3 * num_seeds and len(axes.collections) == bands
    shown = {switch.key: switch.on for switch in chart.switches}
    assert shown == ({"seeds": True} if num_seeds == 3 else {"band": True, "seeds": False})


def test_the_interval_stays_within_the_bounds_of_the_return() -> None:
    result = sample(num_updates=20)
    result["statistics"]["return_bounds"] = [30.0, 400.0]
    for band in drawn(charts(result)["curves"]).collections:
        values = band.get_paths()[0].vertices[:, 1]
        assert values.min() >= 30 and values.max() <= 400


def test_a_curve_without_episodes_is_left_out() -> None:
    result = sample(num_updates=20, backends=("haiku", "equinox"))
    result["curves"]["backends"]["equinox"] = [[None] * 20 for _ in range(10)]
    assert colours_of(means_in(charts(result)["curves"])) == [theme.LIBRARIES["haiku"]]


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


def test_each_measure_of_divergence_has_its_axes() -> None:
    chart = charts(DIFFERENT)["divergence"]
    assert [(one.key, one.on) for one in chart.switches] == [
        (name, name == "params_abs") for name in curves.MEASURES
    ]
    parts = {part.get_gid(): part for part in drawn(chart).figure.axes}
    assert list(parts) == list(curves.MEASURES)
    limits = {part.get_ylim() for part in parts.values()}
    assert len(limits) > 1 and all(part.get_yscale() == "log" for part in parts.values())
    (one, *_) = parts["outputs_abs"].lines
    pair = DIFFERENT["divergence"]["pairs"][1]
    np.testing.assert_allclose(one.get_ydata(), [v for v in pair["outputs_abs"] if v])
    vector, _ = drawing.files(chart, ("title",))
    assert texts_in(vector).count("largest difference") == 1


def test_only_measures_that_differ_can_be_chosen() -> None:
    result = sample(num_updates=20, backends=("haiku", "nnx"))
    for name in ("params_rel", "return_abs"):
        result["divergence"]["pairs"][0][name] = [0.0] * 20
    assert list(curves.measures(result)) == ["params_abs", "outputs_abs"]


@pytest.mark.slow
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
        (line,) = means_in(found[f"schedule-{name}"])
        assert line.get_xdata().tolist() == [steps * number for number in range(21)]
        np.testing.assert_allclose(line.get_ydata(), expected, atol=1e-6)
    assert "entropy_coef = piecewise(0: 0.5" in page(result, page_charts(result))


def test_stages_in_milliseconds_are_stacked_in_seconds() -> None:
    chart = cost.start_chart(DIFFERENT)
    assert chart is not None
    bars = [bar for bar in drawn(chart).patches if bar.get_y() < 0.5]  # Haiku's
    assert [bar.get_gid() for bar in bars] == [one.key for one in chart.series] == list(cost.START)
    ends = [bar.get_x() + bar.get_width() for bar in bars]
    assert [bar.get_x() for bar in bars] == pytest.approx([0.0, *ends[:-1]])
    assert bars[-1].get_width() == pytest.approx(0.3)  # its first step, 300 ms


def test_returns_have_a_mark_for_each_seed_and_the_interval() -> None:
    lines = drawn(charts(DIFFERENT)["returns"]).lines
    seeds, interval, mean = (line.get_xdata() for line in lines[:3])
    haiku = DIFFERENT["statistics"]["backends"]["haiku"]
    assert list(seeds) == haiku["final_returns"]
    assert list(interval) == [haiku["mean"]["low"], haiku["mean"]["high"]]
    assert list(mean) == [haiku["mean"]["value"]]


def test_costs_are_drawn_from_zero() -> None:
    for name, chart in ((c.name, c) for _, c in cost.rate_charts(DIFFERENT["cost"])):
        assert "0" in texts_in(drawing.svg(chart, 330)), name


def test_any_name_can_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    title = 'it\'s, "so" \\ <b> $x$'
    monkeypatch.setattr("triglot.backends.libraries.title", lambda name: f"_{title} {name}\x1b")
    for name in ("curves", "cost", "returns"):
        vector, _ = drawing.files(charts(DIFFERENT)[name], ("title",))
        for part in ("_it's,", '"so"', "\\", "&lt;b&gt;", "$x$", "\\x1b"):
            assert part in vector, name  # a long name is broken into lines


@pytest.mark.slow
def test_a_long_name_leaves_room_for_its_plot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triglot.backends.libraries.title", lambda name: name + 60 * "x")
    for chart in charts(DIFFERENT).values():
        drawing.svg(chart, drawing.PHONE, narrow=True)  # matplotlib warns if none is left
        drawing.files(chart, ("word " * 40, "word " * 40))


def test_the_files_have_a_title_and_a_legend() -> None:
    vector, pixels = drawing.files(charts(DIFFERENT)["curves"], ("A title", "and a subtitle"))
    for text in ("A title", "and a subtitle", "Haiku and Flax Linen", "random policy"):
        assert f">{text}<" in vector
    assert pixels.startswith(b"\x89PNG") and len(pixels) < 100_000
    assert "stroke-opacity: 0.4" not in vector, "the seeds are switched off"
    assert "stroke-opacity: 0.4" in drawing.svg(charts(DIFFERENT)["curves"], 600)


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


def test_an_axis_has_limits_around_equal_values() -> None:
    assert limits_of_equal([None, 2.0, 2.0, float("nan")]) == (1.8, 2.2)
    assert limits_of_equal([0.0]) == (-1.0, 1.0)
    assert limits_of_equal([1.0, 2.0]) is None and limits_of_equal([]) is None


def test_a_row_is_as_high_as_its_label() -> None:
    assert rows_step(["Haiku", "Equinox"], 42) == 42
    assert rows_step(["Haiku, Flax Linen and Flax NNX"], 42) == 3 * 16 + 6


@pytest.mark.covering(2)
@pytest.mark.parametrize("name", ["curves", "divergence", "profiles", "ladder", "cost"])
def test_the_legend_of_a_file_has_each_series_once_in_all_its_colours(name: str) -> None:
    chart = charts(DIFFERENT)[name]
    vector, _ = drawing.files(chart, ("title",))
    in_page = texts_in(drawing.svg(chart, 600))
    keys = vector[vector.rindex(f">{chart.series[0].label}</text>") :] + vector
    for one in chart.series:
        assert texts_in(vector).count(one.label) == 1 + in_page.count(one.label)
        assert all(f"stroke: {colour}" in keys for colour in one.colours)
    assert int(re.findall(r'width="(\d+)pt"', vector)[0]) < 860, "a legend does not widen it"


@pytest.mark.parametrize("name", ["curves", "divergence", "profiles"])
def test_equal_libraries_share_a_line_in_all_their_colours(name: str) -> None:
    chart = charts(DIFFERENT)[name]
    assert chart.series[0].shared and len(set(chart.series[0].colours)) > 1
    assert colours_of(means_in(chart)) == [c for one in chart.series for c in one.colours]


def test_matplotlib_settings_of_the_user_change_nothing() -> None:
    import matplotlib

    chart = charts(DIFFERENT)["returns"]
    before = drawing.svg(chart, 600)
    with matplotlib.rc_context({"axes.grid": False, "font.size": 40, "svg.fonttype": "path"}):
        assert drawing.svg(chart, 600) == before
