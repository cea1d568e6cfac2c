"""Write a comparison's folder: the page, the figures, the tables and `comparison.json`."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import Markup
from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer

from ...backends import libraries
from ...core.errors import counted
from ...core.records import JSON, JSONDict
from ...shared.machine.files import write_files
from ...shared.pages import numbers
from ...shared.pages.charts import curves, drawing, schedules, theme
from ...shared.pages.charts.chart import Chart
from ...shared.pages.page import PAGE, as_files
from ...shared.pages.page import page as build
from ...shared.pages.tables import TERMINAL, Result, as_markdown
from ...shared.pages.tables import as_text as table_as_text
from ...shared.pages.thinning import as_json, thinned
from ...shared.terminal.wrapping import wrapped
from .cards import cards
from .charts import cost, returns
from .contents import (
    environment_names,
    ladder_table,
    series,
    speeds_table,
    summary_table,
    tables,
)
from .pairs import details, matrix

CURVES = "curves"
FOLDER = "figures"  # of all files but the learning curves
SLOWER = "slower"  # the cause of costs above another library's


def write(out: Path, result: Result) -> None:
    """Write the report of a comparison into its folder.

    The files: `report.html`, `curves.png` and `curves.svg`, the other charts in `figures`,
    `tables.md`, `tables/*.csv` and `comparison.json`, whose curves have at most 200 points.

    Args:
      out: the folder; files of these names are replaced.
      result: the result of `compare`. A part that was not run may be None or absent; the report
        leaves its section out.

    Raises:
      TriglotError: if a folder cannot be created, or the disk is full.
    """
    small = thinned(result)
    drawn = page_charts(small)
    csv = as_files([*tables(small), *series(small)])
    files = {
        "comparison.json": as_json(small),
        **{f"tables/{name}": content for name, content in csv.items()},
        "tables.md": markdown(small),
        **figures(drawn, small),
        PAGE: page(small, drawn),
    }
    write_files(out, files)


def page_charts(result: Result) -> list[Chart]:
    """Build the charts that the page shows in its width, without those that have no data."""
    others = list((result.get("environments") or {}).items())[1:]
    built = [
        curves.curves_chart(result),
        *(
            curves.curves_chart(facts, curves_name(env), f"{curves.TITLE} on {env}")
            for env, facts in others
        ),
        returns.aggregate_chart(result),
        curves.divergence_chart(result),
        *schedules.schedule_charts(result),
        returns.returns_chart(result),
        returns.profiles_chart(result),
        returns.ladder_chart(result),
        cost.start_chart(result),
    ]
    return [chart for chart in built if chart is not None]


def curves_name(env: str) -> str:
    """Name the learning curves in an environment that is not the first."""
    return "curves-" + re.sub(r"[^\w.-]+", "_", env)


def figure_path(chart: Chart) -> str:
    """Return the path of a chart's files, without the suffix."""
    return chart.name if chart.name == CURVES else f"{FOLDER}/{chart.name}"


def figures(charts: Sequence[Chart], result: Result) -> dict[str, str | bytes]:
    """Draw the contents of an SVG and a PNG of each chart, by path."""
    name = title(result)
    facts = (
        f"{counted(result['num_seeds'], 'seed')}, {result['arithmetic']} arithmetic; "
        f"verdict: {result['verdict']['level']}"
    )
    files: dict[str, str | bytes] = {}
    for chart in charts:
        file = figure_path(chart)
        lines = [name, facts] if file == CURVES else [chart.heading, f"{name}; {facts}"]
        files[f"{file}.svg"], files[f"{file}.png"] = drawing.files(chart, lines)
    return files


def as_text(result: Result) -> str:
    """Format the table of a comparison, and its ladder, for a terminal of 80 columns."""
    text = table_as_text(summary_table(result))
    if not result.get("ladder"):
        return text
    table = ladder_table(result)
    return f"{text}\n\n{table.title}\n{table_as_text(table)}\n{wrapped(table.note, TERMINAL)}"


def markdown(result: Result) -> str:
    """Format the verdict and all tables as Markdown, for papers and pull requests."""
    parts = [
        f"# {title(result)}",
        f"**{result['verdict']['level'].capitalize()}.** {result['verdict']['sentence']}",
        f"```\n{result['command']}\n```",
    ]
    for table in tables(result):
        parts += [f"## {table.title}", as_markdown(table), *([table.note] if table.note else [])]
    versions = ", ".join(f"{name} {v}" for name, v in result["versions"].items() if v)
    parts.append(f"{versions}; {result['device']}, {result['cpu_cores']} processor cores.")
    return "\n\n".join(parts) + "\n"


def page(result: Result, drawn: Sequence[Chart]) -> str:
    """Build the page of a thinned result and its charts."""
    all_tables, envs = tables(result), environment_names(result)
    rates = cost.rate_charts(result["cost"]) if result.get("cost") else []
    return build(
        "compare",
        result,
        title=title(result),
        drawn=drawn,
        tables=all_tables,
        files={"comparison.json": as_json(result), **as_files([*all_tables, *series(result)])},
        figures=list(map(figure_path, drawn)),
        cards=cards(result),
        findings=_findings(result),
        groups=theme.equal_libraries(result)[0],
        envs=envs,
        curves_in={env: curves_name(env) for env in envs[1:]},
        measures=curves.measures(result),
        schedules=[schedule for schedule in drawn if schedule.name.startswith(schedules.PREFIX)],
        equal_pairs=[numbers.pair_title(pair) for pair in curves.equal_pairs(result)],
        matrix=matrix(result),
        details=details(result),
        rates=[(stage, Markup(drawing.svg(chart, drawing.RATE)), chart) for stage, chart in rates],
        speeds=speeds_table(result),
        code=_code(result.get("code") or {}),
        colours=theme.colours(list(result["backends"])),
        titled=libraries.title,
    )


def title(result: Result) -> str:
    """Name a comparison."""
    return f"{result['algorithm']} on {numbers.environments(environment_names(result))}"


def _findings(result: Result) -> list[tuple[str, Mapping[str, str]]]:
    """List what was found in one library, such as memory that grows; all its costs in one line."""
    findings = []
    slower = (result.get("cost") or {}).get("slower") or ()
    for name, facts in result["backends"].items():
        causes = facts.get("causes") or ()
        findings += [(name, cause) for cause in causes if cause["name"] != SLOWER]
        costs = [row for row in slower if row["backend"] == name]
        if costs:
            evidence = "; ".join(row["sentence"].removesuffix(".") for row in costs)
            findings.append((name, {"name": SLOWER, "where": "its costs", "evidence": evidence}))
    return findings


def _code(networks: Mapping[str, JSON]) -> list[JSONDict]:
    """Highlight the code of each library's network, with its length relative to the longest."""
    known = {name: network for name, network in networks.items() if network.get("source")}
    longest = max((network["lines"] for network in known.values()), default=1)
    return [
        {
            **network,
            "library": name,
            "share": network["lines"] / max(longest, 1),
            "source": Markup(
                highlight(network["source"], PythonLexer(), HtmlFormatter(nowrap=True))
            ),
        }
        for name, network in known.items()
    ]
