"""Assemble `comparison.json` from the results of the jobs."""

import itertools
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np

from ..core.records import JSONDict
from ..runs.identity import Trace, compare_traces
from ..runs.jobs.ledger import Ledger
from ..runs.registry.bounds import Bounds
from ..shared.machine import version
from ..shared.pages.thinning import thin_curves
from ..shared.statistics import estimate
from ..shared.statistics.curves import area_under_curve
from .jobs import Job, environments
from .operations import Operations
from .options import CompareOptions
from .results import Record
from .rungs import RUNGS, Rung, rung_of_arithmetic
from .verdict.overall import ladder, margin_of, verdict
from .verdict.pairs import Pair, judge_together

Records: TypeAlias = Mapping[str, Record]  # by library

SCHEMA = 2  # of `comparison.json`
# Options that `comparison.json` shows in another form or under another name.
SHOWN_OTHERWISE = ("backends", "total_steps", "out", "ladder", "against", "open", "no_preset")


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The jobs of a comparison that are done.

    Attributes:
      options: of the comparison.
      ledger: its folder.
      jobs: those that are done.
      bounds: of the return, by environment.
      operations: finds causes in the agents' updates; None does not search.
    """

    options: CompareOptions
    ledger: Ledger
    jobs: Sequence[Job]
    bounds: Mapping[str, Bounds]
    operations: Operations | None = None

    @cached_property
    def main_records(self) -> Records:
        """The results in the first environment on the rung that is judged, loaded once."""
        return self.records(self.options.env, self.main)

    @property
    def main(self) -> Rung:
        """The rung that is judged."""
        return rung_of_arithmetic(self.options.arithmetic)

    @property
    def compared(self) -> list[str]:
        """The environments in which two libraries were trained on the rung that is judged."""
        envs = environments(self.options)
        return [env for env in envs if len(self.jobs_of(env, self.main)) > 1]

    def jobs_of(self, env: str, rung: Rung) -> list[Job]:
        """List the jobs in one environment on one rung."""
        return [job for job in self.jobs if (job.env, job.rung) == (env, rung.name)]

    def records(self, env: str, rung: Rung) -> Records:
        """Load the results in one environment on one rung."""
        folders = {job.backend: self.ledger.results(job.name) for job in self.jobs_of(env, rung)}
        return {backend: Record.load(folder) for backend, folder in folders.items()}


def assemble(finished: Finished, command: str) -> JSONDict:
    """Judge everything that was trained.

    Returns:
      The contents of `comparison.json`, without costs, programs and code.
    """
    options = finished.options
    records = {env: finished.records(env, finished.main) for env in finished.compared}
    judged_pairs = _judge(finished, records, finished.main)
    by_env = {
        env: _environment(finished, env, of_env, judged_pairs[env])
        for env, of_env in records.items()
    }
    if len(by_env) > 1:
        for env, facts in by_env.items():
            for pair in facts["pairs"]:
                pair["sentence"] = f"On {env}: {pair['sentence']}"
    first = by_env.get(options.env) or next(iter(by_env.values()))
    pairs = [pair for facts in by_env.values() for pair in facts["pairs"]]
    chosen = {name: value for name, value in asdict(options).items() if name not in SHOWN_OTHERWISE}
    judged = verdict(pairs, list(first["backends"]), first["num_updates"], options.arithmetic)
    return {
        "schema": SCHEMA,
        "command": command,
        **chosen,
        "verdict": judged,
        **first,
        "environments": by_env if len(by_env) > 1 else None,
        "aggregate": _aggregate(by_env) if len(by_env) > 1 else None,
        "ladder": _ladder(finished, options.env) if options.ladder else None,
        "versions": version.versions(),
        "cpu_cores": os.cpu_count(),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def _environment(
    finished: Finished, env: str, records: Records, pairs: Sequence[JSONDict]
) -> JSONDict:
    """Collect what was found in one environment, with its judged pairs."""
    options, facts = finished.options, next(iter(records.values())).facts
    traces = {name: Trace(metrics=r.metrics, params=r.params) for name, r in records.items()}
    steps = facts["steps_per_update"]
    return {
        "num_updates": facts["num_updates"],
        "steps_per_update": steps,
        "env_steps_per_seed": facts["num_updates"] * steps,
        "identity": compare_traces(traces, steps),
        "pairs": [{k: v for k, v in pair.items() if k != "divergence"} for pair in pairs],
        "divergence": _divergence(pairs, steps),
        "curves": _curves(records, steps),
        "statistics": _statistics(records, finished.bounds[env], _random_return(records)),
        "backends": {name: r.summary(options.num_seeds) for name, r in records.items()},
        "device": facts["device"],
    }


def _judge(
    finished: Finished, records: Mapping[str, Records], rung: Rung
) -> dict[str, list[JSONDict]]:
    """Judge all pairs of one rung together, by environment."""
    pairs = {env: _pairs(finished, env, rung, of_env) for env, of_env in records.items()}
    entries = iter(judge_together([pair for of_env in pairs.values() for pair in of_env]))
    return {env: list(itertools.islice(entries, len(of_env))) for env, of_env in pairs.items()}


def _pairs(finished: Finished, env: str, rung: Rung, records: Records) -> list[Pair]:
    means = [np.mean(record.facts["final_returns"]) for record in records.values()]
    usual = float(next((mean for mean in means if math.isfinite(mean)), 0.0))
    search = finished.operations
    margin = margin_of(usual, _random_return(records) or 0.0, finished.options.margin)
    return [
        Pair(
            names=names,
            records=(records[names[0]], records[names[1]]),
            rung=rung,
            margin=margin,
            bounds=finished.bounds[env],
            update_cause=search and partial(search.update_cause, env, rung, names),
        )
        for names in itertools.combinations(records, 2)
    ]


def _random_return(records: Records) -> float | None:
    return next(
        (r.facts["random_return"] for r in records.values() if "random_return" in r.facts), None
    )


def _divergence(pairs: Sequence[JSONDict], steps_per_update: int) -> JSONDict:
    updates = pairs[0]["divergence"]["updates"]
    return {
        "updates": updates,
        "env_steps": [update * steps_per_update for update in updates],
        "pairs": [
            {
                "backends": pair["backends"],
                **{k: v for k, v in pair["divergence"].items() if k != "updates"},
            }
            for pair in pairs
        ],
    }


def _curves(records: Records, steps_per_update: int) -> JSONDict:
    """Average the learning curves over runs of updates, at most 200 points."""
    num_updates = next(iter(records.values())).facts["num_updates"]
    env_steps = [update * steps_per_update for update in range(1, num_updates + 1)]
    returns = {name: record.metrics["episode_return"] for name, record in records.items()}
    return thin_curves({"env_steps": env_steps, "backends": returns})


def _statistics(records: Records, bounds: Bounds, random_return: float | None) -> JSONDict:
    scores = {
        name: np.asarray(record.facts["final_returns"], np.float64)
        for name, record in records.items()
    }
    whole = {name: returns for name, returns in scores.items() if np.isfinite(returns).all()}
    areas = {name: area_under_curve(r.metrics["episode_return"]) for name, r in records.items()}
    entries = {
        name: {
            **_mean_and_iqm(returns, bounds),
            "area": _estimated(estimate.mean, areas[name], bounds),
            "final_returns": returns.tolist(),
        }
        for name, returns in scores.items()
    }
    low, high = (bound if math.isfinite(bound) else None for bound in bounds)
    return {
        "backends": entries,
        "profiles": _profiles(whole),
        "return_bounds": [low, high],
        "random_return": random_return,
    }


def _mean_and_iqm(scores: np.ndarray | list[np.ndarray], bounds: Bounds | None = None) -> JSONDict:
    statistics = {"mean": estimate.mean, "iqm": estimate.interquartile_mean}
    return {name: _estimated(function, scores, bounds) for name, function in statistics.items()}


def _estimated(
    function: Callable[..., estimate.Estimate],
    scores: np.ndarray | list[np.ndarray],
    bounds: Bounds | None,
) -> JSONDict | None:
    """Estimate a statistic with its interval; None if a score is NaN or infinite."""
    finite = all(np.isfinite(returns).all() for returns in scores)
    return function(scores, bounds).as_json() if finite else None


def _profiles(scores: Mapping[str, np.ndarray]) -> JSONDict | None:
    if not scores:
        return None
    everything = np.concatenate(list(scores.values()))
    thresholds = np.linspace(everything.min(), everything.max(), 41)
    return {
        "thresholds": thresholds.tolist(),
        "backends": {
            name: estimate.performance_profile(returns, thresholds)
            for name, returns in scores.items()
        },
    }


def _aggregate(by_env: Mapping[str, JSONDict]) -> JSONDict:
    """Aggregate normalised scores: 0 is a random policy, 1 the first library's mean return."""
    scores: dict[str, list[np.ndarray]] = {}
    scales = {}
    for env, facts in by_env.items():
        entries = facts["statistics"]["backends"]
        low = facts["statistics"]["random_return"] or 0.0
        high = float(np.mean(next(iter(entries.values()))["final_returns"]))
        if not high > low:
            continue  # nothing was learned, so there is no scale
        scales[env] = [low, high]
        for name, entry in entries.items():
            normalized = (np.asarray(entry["final_returns"], np.float64) - low) / (high - low)
            if np.isfinite(normalized).all():
                scores.setdefault(name, []).append(normalized)
    complete = {name: returns for name, returns in scores.items() if len(returns) == len(scales)}
    return {
        "scales": scales,
        "left_out": [env for env in by_env if env not in scales],
        "backends": {name: _mean_and_iqm(returns) for name, returns in complete.items()},
    }


def _ladder(finished: Finished, env: str) -> list[JSONDict]:
    rungs: dict[str, JSONDict] = {}
    for rung in RUNGS:
        records = finished.records(env, rung)
        if len(records) > 1:
            pairs = _judge(finished, {env: records}, rung)[env]
            facts = _rung_facts(records, finished.options)
            rungs[rung.name] = {"pairs": pairs, "backends": facts}
    return ladder(rungs)


def _rung_facts(records: Records, options: CompareOptions) -> JSONDict:
    facts = {}
    for name, record in records.items():
        summary = record.summary(options.num_seeds)
        area = area_under_curve(record.metrics["episode_return"])
        facts[name] = {
            "final_return": summary["final_return_mean"],
            "area": float(np.nanmean(area)) if np.isfinite(area).any() else None,
            "steps_per_second": summary["steps_per_second"],
        }
    return facts
