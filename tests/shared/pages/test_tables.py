"""Tables as text, Markdown and CSV, and what stands in them."""

import csv
import io
from typing import Any

import pytest

from tests.shared.pages.sample import sample
from triglot.compare.pages import comparison, contents
from triglot.compare.rungs import RUNGS
from triglot.shared.pages.tables import Column, Table, as_csv, as_markdown, as_text
from triglot.shared.statistics.estimate import mean

RESULT = sample(num_updates=20, envs=("gymnax:CartPole-v1", "gymnax:Acrobot-v1"))


def table(*rows: tuple[str, str]) -> Table:
    """Build a table of a name and a value."""
    return Table(
        name="toy",
        title="Toy",
        columns=(
            Column("name", lambda row: row["name"], left=True),
            Column("value", lambda row: row["value"]),
        ),
        records=[{"name": name, "value": value} for name, value in rows],
    )


@pytest.mark.parametrize("backends", [("haiku", "nnx"), ("haiku", "linen", "nnx", "equinox")])
@pytest.mark.parametrize("num_seeds", [3, 10])
def test_the_terminal_table_has_80_columns(backends: tuple[str, ...], num_seeds: int) -> None:
    result = sample(num_updates=5, backends=backends, num_seeds=num_seeds)
    summary, ladder = comparison.as_text(result).split("\n\n")
    header, rule, *rows = summary.splitlines()
    assert max(map(len, (header, rule, *rows))) <= 80
    assert len(rows) == len(backends)
    assert header.split()[:3] == ["library", "differs", "return"]
    assert rows[0].split()[1] == "identical" and "from update 1" in rows[-1]
    title, header, rule, *rows = ladder.splitlines()
    assert max(map(len, (title, header, rule, *rows))) <= 80
    assert [row.split("  ")[0] for row in rows[: len(RUNGS)]] == [rung.title for rung in RUNGS]
    assert header.split()[-1] == "explained"
    assert comparison.as_text(result | {"ladder": None}) == summary


@pytest.mark.parametrize(
    ("finals", "header", "cell"),
    [
        ([400.0], None, ""),
        ([400.0, 500.0, float("nan")], "range of seeds", "400.0 to 500.0"),
        ([None, None], "range of seeds", ""),
        ([400.0, 410.0, 420.0, 430.0, 500.0], "95% interval", "[382.8, 481.2]"),
    ],
)
def test_beside_a_mean_stands_an_interval_or_the_range_of_few_seeds(
    finals: list[float | None], header: str | None, cell: str
) -> None:
    found = sample(num_updates=5, num_seeds=len(finals))
    found["backends"]["haiku"]["final_returns"] = finals
    if len(finals) >= 5:
        estimate = mean([value for value in finals if value is not None])
        found["statistics"]["backends"]["haiku"]["mean"] = estimate.as_json()
    summary = contents.summary_table(found)
    beside = [one for one in summary.header if one in ("range of seeds", "95% interval")]
    assert beside == ([] if header is None else [header])
    row = dict(zip(summary.header, summary.rows[0], strict=True))
    assert header is None or row[header] == cell


def test_long_names_and_large_numbers_stay_in_80_columns() -> None:
    result = sample(num_updates=5, backends=("haiku", "a_library_of_a_very_long_name"))
    facts = result["backends"]["haiku"]
    facts |= {"steps_per_second": 1e12, "peak_memory_bytes": 1e15, "compile_seconds": 1e6}
    summary, _ = comparison.as_text(result).split("\n\n")
    lines = summary.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" in lines[-1] and "return" in lines[0]


def test_the_last_columns_are_left_out_first() -> None:
    text = as_text(table(("short", "x" * 30)), width=20)
    assert text.splitlines()[0] == "name"


def test_markdown_has_a_row_for_each_record_and_escapes_bars() -> None:
    lines = as_markdown(table(("a|b", "1"), ("c", "2"))).splitlines()
    assert lines == ["| name | value |", "| :-- | --: |", "| a\\|b | 1 |", "| c | 2 |"]


def read(found: Table) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(as_csv(found))))


def test_csv_holds_the_exact_numbers() -> None:
    pairs = contents.pairs_table(RESULT)
    for row, pair in zip(read(pairs), RESULT["pairs"], strict=True):
        assert [row["one"], row["other"]] == pair["backends"]
        assert float(row["max_abs_param_difference"]) == pair["max_abs_param_difference"]
        assert float(row["return_difference_low"]) == pair["return_difference"]["low"]


def test_every_number_of_the_curves_is_in_a_csv() -> None:
    curves, divergence = contents.series(RESULT)
    for name, seeds in RESULT["curves"]["backends"].items():
        for seed, values in enumerate(seeds):
            column = [row[f"{name}_seed{seed}"] for row in read(curves)]
            assert [float(cell) if cell else None for cell in column] == values
    assert "haiku_equinox_params_abs" in read(divergence)[0]


@pytest.mark.parametrize("found", contents.tables(RESULT), ids=lambda found: found.name)
def test_cells_are_filled(found: Table) -> None:
    assert found.records and found.title
    assert all(cell for row in found.rows for cell in row)
    assert len(read(found)) == len(found.records)


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ("statistics", "returns"),
        ("pairs", "pairs"),
        ("ladder", "ladder"),
        ("cost", "cost"),
        ("programs", "programs"),
        ("environments", "environments"),
    ],
)
def test_a_part_that_was_not_run_has_no_table(part: str, name: str) -> None:
    assert name in {one.name for one in contents.tables(RESULT)}
    for changed in ({**RESULT, part: None}, {k: v for k, v in RESULT.items() if k != part}):
        assert name not in {one.name for one in contents.tables(changed)}


def test_a_library_without_intervals_has_points() -> None:
    few = contents.returns_table(sample(num_updates=5, num_seeds=3))
    assert not any("[" in cell for row in few.rows for cell in row)


def test_a_missing_estimate_is_a_dash() -> None:
    result: dict[str, Any] = sample(num_updates=5)
    result["statistics"]["backends"]["haiku"] |= {"mean": None, "iqm": None, "area": None}
    found = contents.returns_table(result)
    assert found.rows[0] == ["Haiku", "–", "–", "–"]


@pytest.mark.parametrize(("executor", "says"), [(None, False), ("2 local processes", True)])
def test_the_speeds_say_that_trainings_ran_at_the_same_time(
    executor: str | None, says: bool
) -> None:
    note = contents.speeds_table({**RESULT, "executor": executor}).note or ""
    assert (contents.AT_ONCE in note) is says
