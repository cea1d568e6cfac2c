"""Write the folder of a sweep: tables, the page, the main chart and the best settings."""

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from pathlib import Path

import numpy as np

from ..core.errors import counted, masked
from ..core.records import JSON
from ..runs.registry.arg import option_words
from ..runs.registry.overrides import overrides_of
from ..runs.storage.config_files import toml_of
from ..shared.machine.files import plain, write_files
from ..shared.machine.version import device, versions
from ..shared.pages import numbers
from ..shared.pages.charts import drawing, schedules
from ..shared.pages.charts.chart import Chart
from ..shared.pages.page import PAGE, as_files
from ..shared.pages.page import page as build
from ..shared.pages.tables import Table, spread
from ..shared.pages.thinning import as_json
from ..shared.statistics.paired import paired_difference
from ..shared.statistics.returns import MIN_SEEDS
from . import results, swept
from .options import SweepCommandOptions
from .plan import SweepPlan, describe_setting
from .results import Outcome, as_records, ranked, ranking_table, trainings_table
from .search.choices import GRID, search_of
from .search.confirm import as_json as confirmations
from .search.confirm import sentence
from .settings import algorithms_of, train_options

RESULT = "sweep.json"
# Options in it, under their names.
SHOWN = ("algorithm", "env", "num_seeds", "seed", "total_steps", "eval_episodes", "preset")
MAX_EMBEDDED = 1_000_000  # bytes of a file that the page offers; the others are in the folder
MAX_ROWS = 200  # settings in the page's table and charts
BEST = 5  # settings whose learning curves are drawn
# What decides no number; the settings of a preset are among the others.
MACHINE = (
    "out", "open", "compilation_cache", "no_compilation_cache", "checkpoint_seconds", "executor",
    "jobs", "address", "devices", "no_preset", "preset", "log", "wandb",
)  # fmt: skip


def result_of(
    plan: SweepPlan,
    outcomes: Sequence[Outcome],
    *,
    batches: str,
    halving: str | None,
    confirmed: Sequence[Outcome] = (),
) -> JSON:
    """Build the contents of `sweep.json`.

    Args:
      plan: the sweep.
      outcomes: what became of each setting.
      batches: how the trainings were divided, for people.
      halving: the rungs of successive halving, for people; None without it.
      confirmed: the best settings' outcomes with fresh seeds.
    """
    options = plan.options
    orders = {
        env: ranked([outcome for outcome in outcomes if outcome.env == env]) for env in plan.envs
    }
    return {
        **{name: getattr(options, name) for name in SHOWN},
        "names": plan.names,
        "halving": halving,
        "search": search_of(options),
        "rounds": plan.rounds,
        "batches": batches,
        "command": command(options),
        "settings": as_records(plan, outcomes),
        "best": {
            env: f"best{'' if i == 0 else f'-{i + 1}'}.toml" for i, env in enumerate(plan.envs)
        },
        "separation": {env: separation(order) for env, order in orders.items()},
        "curves": {
            env: {**_curves(order), "return_bounds": _bounds(plan, env)}
            for env, order in orders.items()
        },
        "schedules": {env: _schedules(plan, order[0]) for env, order in orders.items()},
        "confirmed": confirmations(plan, confirmed),
        "versions": versions(),
        "device": device(),
        "cpu_cores": os.cpu_count(),
    }


def separation(order: Sequence[Outcome]) -> str:
    """Say whether the best setting differs from the next ones by more than the seeds' noise.

    All settings have the same seeds, so that returns are subtracted seed by seed.

    Args:
      order: the settings of one environment, the best first.

    Returns:
      Sentences; empty if no other setting has a return after as many steps.
    """
    best = order[0]
    seeds = np.isfinite(best.returns)
    rest = {
        rank: outcome
        for rank, outcome in enumerate(order[1:], 2)
        if outcome.stopped == best.stopped and np.isfinite(outcome.returns[seeds]).any()
    }
    if not rest:
        return ""
    rank, next_best = next(iter(rest.items()))
    second = f"Rank {rank} ({describe_setting(next_best.values)})"
    if len(best.returns) < MIN_SEEDS:
        num_seeds = counted(len(best.returns), "seed")
        return (
            f"{second} is not tested against rank 1: {num_seeds} give no interval; use at least "
            f"{MIN_SEEDS}."
        )
    differences = []
    for outcome in rest.values():
        both = seeds & np.isfinite(outcome.returns)
        differences.append(paired_difference(best.returns[both], outcome.returns[both]))
    close = [difference.low is None or difference.low <= 0 for difference in differences]
    first = differences[0]
    relation = "tied with" if close[0] else "below"
    interval = numbers.with_interval(first.as_json(), numbers.difference)
    text = (
        f"{second} is statistically {relation} rank 1: the difference of their returns, paired by "
        f"seed, is {interval}."
    )
    if first.low == first.high == 0:
        text = f"{second} is tied with rank 1: each seed has the same return."
    more = sum(close[1:])
    if more:
        settings = "setting is" if more == 1 else "settings are"
        text += f" {more:,} more {settings} statistically tied with it too."
    return text


def write(out: Path, plan: SweepPlan, result: JSON, outcomes: Sequence[Outcome]) -> None:
    """Write `results.csv`, `ranking.csv`, `best.toml`, `sweep.json`, `sweep.png` and the page.

    Tables are CSV only: a sweep has at most some 10,000 rows, and Parquet would need pyarrow, which
    has tens of MB.

    Raises:
      CannotWrite: if the disk is full, or the folder is missing or read-only.
    """
    result = plain(result)
    tables = [ranking_table(result), trainings_table(outcomes)]
    shown = {RESULT: as_json(result), **as_files(tables)}
    files: dict[str, str | bytes] = {**shown}
    algorithms = algorithms_of(plan.options)
    for env, name in result["best"].items():
        best = next(record for record in result["settings"] if record["env"] == env)
        chosen = train_options(plan.options, plan.settings[best["setting"] - 1], algorithms)
        files[name] = toml_of(chosen, algorithms[chosen.algorithm])
    mains = main_charts(result)
    for env, chart in list(mains.items())[:1]:
        title = [f"{result['algorithm']} on {env}", _subtitle(result)]
        files["sweep.svg"], files["sweep.png"] = drawing.files(chart, title)
    write_files(out, {**files, PAGE: page(result, tables[0], shown, mains)})


def page(result: JSON, ranking: Table, files: Mapping[str, str], mains: Mapping[str, Chart]) -> str:
    """Build the page: one HTML file that holds everything it shows, and the smaller files."""
    curves = {}
    for index, (env, of_env) in enumerate(result["curves"].items()):
        best = [
            record for record in _of(result, env) if str(record["setting"]) in of_env["settings"]
        ]
        if best:
            curves[env] = swept.best_curves_chart(best, of_env, f"curves{index}")
    drawn = {
        env: schedules.schedule_charts(of_best, f"{schedules.PREFIX}{index}-")
        for index, (env, of_best) in enumerate(result["schedules"].items())
    }
    searches = {}
    if result["search"] != GRID:
        for index, env in enumerate(result["best"]):
            if records := _of(result, env):
                searches[env] = swept.search_chart(records, f"search{index}")
    return build(
        "sweep",
        result,
        title=f"{result['algorithm']} on {numbers.environments(list(result['best']))}",
        drawn=[*mains.values(), *curves.values(), *searches.values(), *chain(*drawn.values())],
        tables=[replace(ranking, records=ranking.records[:MAX_ROWS])],
        files={
            name: content
            for name, content in files.items()
            if len(content.encode()) <= MAX_EMBEDDED or name == "ranking.csv"
        },
        figures=["sweep"] if mains else [],
        winners=[_winner(result, env) for env in result["best"]],
        mains=mains,
        best=curves,
        searches=searches,
        schedules={env: charts for env, charts in drawn.items() if charts},
        shown=MAX_ROWS,
    )


def command(options: SweepCommandOptions) -> str:
    """Format the command line of a sweep."""
    words = ["triglot", "sweep", options.algorithm, options.env]
    for text in options.over:
        words += ["--over", text]
    left_out = {"algorithm", "env", "over", "config", "hyper", *MACHINE}
    values = {
        field.name: (getattr(options, field.name), field.default) for field in fields(options)
    }
    chosen = {n: value for n, (value, default) in values.items() if value != default}
    for name, value in ({**chosen} | dict(options.config) | dict(options.hyper)).items():
        if name not in left_out:
            words += option_words(name, value)
    # A later version may have another preset of this name, so the command states all values.
    return masked(shlex.join([*words, "--no-preset"]))


def _of(result: JSON, env: str) -> list[JSON]:
    """List the settings of an environment that have a return, the best first."""
    return [record for record in result["settings"] if record["env"] == env and record["return"]]


def main_charts(result: JSON) -> dict[str, Chart]:
    """Build the main chart of each environment in which something has a return."""
    names = [name for name in result["names"] if name != "env"] or ["env"]
    by_env = {env: _of(result, env)[:MAX_ROWS] for env in result["best"]}
    return {
        env: swept.main_chart(records, names, f"main{index}")
        for index, (env, records) in enumerate(by_env.items())
        if records
    }


def _winner(result: JSON, env: str) -> JSON:
    """Describe the best setting: its return, and the interval or the range of the seeds."""
    of_env = [record for record in result["settings"] if record["env"] == env]
    best, estimate = of_env[0], of_env[0]["return"] or {}
    interval, span = numbers.interval(estimate), numbers.span(spread(best["returns"]))
    around = f"95 % interval {interval}" if interval else f"seeds from {span}" if span else ""
    return {
        "env": env,
        "count": len(of_env),
        "value": estimate.get("value"),
        "around": around if result["num_seeds"] > 1 else "1 seed",
        "setting": describe_setting(best["values"]),
        "separation": result["separation"][env],
        "confirmed": sentence(result, env),
        "file": result["best"][env],
    }


def _bounds(plan: SweepPlan, env: str) -> list[float | None]:
    bounds = results.bounds_by_env(plan).get(env, (-np.inf, np.inf))
    return [bound if np.isfinite(bound) else None for bound in bounds]


def _schedules(plan: SweepPlan, best: Outcome) -> JSON:
    """Describe the hyperparameters of the best setting, from which its schedules are drawn."""
    group = next(candidate for candidate in plan.groups if best.number in candidate.settings)
    chosen = train_options(plan.options, best.values, algorithms_of(plan.options))
    return {
        "hyper": overrides_of(chosen.hyper),
        "num_updates": group.num_updates,
        "steps_per_update": group.experiment.steps_per_update,
    }


def _curves(order: Sequence[Outcome]) -> JSON:
    """Collect the learning curves of the best settings, over the steps of the longest."""
    best = [outcome for outcome in order if np.isfinite(outcome.curves).any()][:BEST]
    if not best:
        return {"env_steps": [], "settings": {}}
    steps = max((outcome.env_steps for outcome in best), key=len)
    settings = {}
    for outcome in best:
        places = np.searchsorted(outcome.env_steps, steps, side="right") - 1
        values = np.where(places >= 0, outcome.curves[:, np.maximum(places, 0)], np.nan)
        values[:, steps > outcome.env_steps[-1]] = np.nan
        settings[str(outcome.number + 1)] = values
    return {"env_steps": steps, "settings": settings}


def _subtitle(result: JSON) -> str:
    seeds = counted(result["num_seeds"], "seed")
    names = numbers.listed(result["names"])
    return f"{counted(len(result['settings']), 'setting')} of {names}, {seeds} each"
