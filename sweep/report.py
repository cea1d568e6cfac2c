"""Write the folder of a sweep: tables, the page, the main chart and the best settings."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import writing
from ..machine.files import plain, replacing
from ..machine.version import device, versions
from ..report import embedded, numbers, template
from ..report.charts import drawing
from ..report.charts.chart import Chart
from ..report.tables import Table, as_csv
from ..report.thinning import as_json
from ..training.storage.config_files import toml_of
from .charts import main as charts
from .options import SweepOptions
from .plan import SweepPlan, describe_setting
from .results import Outcome, as_records, ranked
from .settings import algorithms_of, train_options
from .tables import ranking_table, trainings_table

PAGE = "report.html"
RESULT = "sweep.json"
MAX_EMBEDDED = 1_000_000  # bytes of a file that the page offers; the others are in the folder
MAX_ROWS = 200  # settings in the page's table and charts
# What decides no number; the settings of a preset are among the others.
MACHINE = (
    "out", "open", "compilation_cache", "no_compilation_cache", "checkpoint_seconds", "executor",
    "jobs", "address", "devices", "no_preset", "preset",
)  # fmt: skip


def result_of(
    plan: SweepPlan, found: Sequence[Outcome], *, batches: str, halving: str | None
) -> dict[str, Any]:
    """Build the contents of `sweep.json`.

    Args:
      plan: the sweep.
      found: what became of each setting.
      batches: how the trainings were divided, for people.
      halving: the rungs of successive halving, for people; None without it.
    """
    options = plan.options
    return {
        "algorithm": options.algorithm,
        "env": options.env,
        "names": plan.names,
        "num_seeds": options.num_seeds,
        "seed": options.seed,
        "total_steps": options.total_steps,
        "eval_episodes": options.eval_episodes,
        "halving": halving,
        "batches": batches,
        "preset": options.preset,
        "command": command(options),
        "settings": as_records(plan, found),
        "best": {
            env: f"best{'' if i == 0 else f'-{i + 1}'}.toml" for i, env in enumerate(plan.envs)
        },
        "curves": {env: _curves([one for one in found if one.env == env]) for env in plan.envs},
        "versions": versions(),
        "device": device(),
        "cpu_cores": os.cpu_count(),
    }


def write(out: Path, plan: SweepPlan, result: Mapping[str, Any], found: Sequence[Outcome]) -> None:
    """Write `results.csv`, `ranking.csv`, `best.toml`, `sweep.json`, `sweep.png` and the page.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    result = plain(result)
    tables = [ranking_table(result), trainings_table(found)]
    for table in tables:
        _write(out / f"{table.name}.csv", as_csv(table))
    text = as_json(result)
    _write(out / RESULT, text)
    algorithms = algorithms_of(plan.options)
    for env, name in result["best"].items():
        best = next((one for one in result["settings"] if one["env"] == env), None)
        if best is not None:
            values = plan.settings[best["setting"] - 1]
            chosen = train_options(plan.options, values, algorithms)
            _write(out / name, toml_of(chosen, algorithms[chosen.algorithm]))
    mains = main_charts(result)
    if mains:
        env, chart = next(iter(mains.items()))
        title = [f"{result['algorithm']} on {env}", _subtitle(result)]
        vector, pixels = drawing.files(chart, title)
        _write(out / "sweep.svg", vector)
        _write(out / "sweep.png", pixels)
    _write(out / PAGE, page(result, tables, text, mains))


def page(
    result: Mapping[str, Any], tables: Sequence[Table], text: str, mains: Mapping[str, Chart]
) -> str:
    """Build the page: one HTML file that holds everything it shows."""
    curves = {}
    for index, (env, found) in enumerate(result["curves"].items()):
        best = [one for one in _of(result, env) if str(one["setting"]) in found["settings"]]
        if best:
            curves[env] = charts.curves_chart(best, found, f"curves{index}")
    ranking = replace(tables[0], records=tables[0].records[:MAX_ROWS])
    sections = {"chart": "Returns", "curves": "Curves", "ranking": "Ranking", "run": "Run"}
    return template.render(
        "sweep.html",
        drawn=[*mains.values(), *curves.values()],
        result=result,
        title=_title(result),
        sections=[(k, v) for k, v in sections.items() if k != "curves" or curves],
        bests=[_card(result, env) for env in result["best"]],
        mains=[(chart.name, env) for env, chart in mains.items()],
        curve_names=[(chart.name, env) for env, chart in curves.items()],
        tables={"ranking": ranking},
        shown=MAX_ROWS,
        downloads=[
            one
            for one in embedded.downloads(tables, text, RESULT)
            if one[2] <= MAX_EMBEDDED or one[0] == "ranking.csv"
        ],
    )


def command(options: SweepOptions) -> str:
    """Format the command line of a sweep."""
    words = ["triglot", "sweep", options.algorithm, options.env]
    for text in options.over:
        words += ["--over", text]
    left_out = {"algorithm", "env", "over", "config", "hyper", *MACHINE}
    given = {one.name: (getattr(options, one.name), one.default) for one in fields(options)}
    chosen = {n: value for n, (value, default) in given.items() if value != default}
    for name, value in ({**chosen} | dict(options.config) | dict(options.hyper)).items():
        if name not in left_out:
            words += _words(name, value)
    return shlex.join([*words, "--no-preset"])


def _words(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", *map(str, value if isinstance(value, list | tuple) else [value])]


def _of(result: Mapping[str, Any], env: str) -> list[Mapping[str, Any]]:
    """List the settings of an environment that have a return, the best first."""
    return [one for one in result["settings"] if one["env"] == env and one["return"]]


def main_charts(result: Mapping[str, Any]) -> dict[str, Chart]:
    """Build the main chart of each environment in which something has a return."""
    built = {}
    for index, env in enumerate(result["best"]):
        found = _of(result, env)[:MAX_ROWS]
        names = [name for name in result["names"] if name != "env"] or ["env"]
        if found:
            built[env] = charts.main_chart(found, names, f"main{index}")
    return built


def _card(result: Mapping[str, Any], env: str) -> dict[str, Any]:
    """Describe the best setting, and how many others may be as good."""
    best, *rest = [one for one in result["settings"] if one["env"] == env]
    estimate = best["return"] or {}
    low = estimate.get("low")
    close = [
        one
        for one in rest
        if low is not None
        and (one["return"] or {}).get("high") is not None
        and one["return"]["high"] >= low
    ]
    others = ""
    if len(close) == 1:
        others = "whose interval overlaps with that of one other setting"
    elif close:
        others = f"whose interval overlaps with those of {len(close)} other settings"
    return {
        "env": env,
        "value": estimate.get("value"),
        "interval": numbers.interval(estimate),
        "setting": describe_setting(best["values"]),
        "others": others,
        "file": result["best"][env],
    }


def _curves(found: Sequence[Outcome]) -> dict[str, Any]:
    """Collect the learning curves of the best settings, over the steps of the longest."""
    best = [one for one in ranked(found) if np.isfinite(one.curves).any()][: charts.BEST]
    if not best:
        return {"env_steps": [], "settings": {}}
    steps = max((one.env_steps for one in best), key=len)
    settings = {}
    for one in best:
        places = np.searchsorted(one.env_steps, steps, side="right") - 1
        values = np.where(places >= 0, one.curves[:, np.maximum(places, 0)], np.nan)
        values[:, steps > one.env_steps[-1]] = np.nan
        settings[str(one.number + 1)] = values
    return {"env_steps": steps, "settings": settings}


def _title(result: Mapping[str, Any]) -> str:
    envs = list(result["best"])
    where = envs[0] if len(envs) == 1 else f"{len(envs)} environments"
    return f"{result['algorithm']} on {where}"


def _subtitle(result: Mapping[str, Any]) -> str:
    seeds = f"{result['num_seeds']} seed{'' if result['num_seeds'] == 1 else 's'} each"
    return f"{len(result['settings']):,} settings of {numbers.listed(result['names'])}, {seeds}"


def _write(path: Path, content: str | bytes) -> None:
    with replacing(path) as unfinished, writing(path):
        unfinished.write_bytes(content.encode() if isinstance(content, str) else content)
