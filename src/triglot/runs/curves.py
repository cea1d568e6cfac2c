"""`triglot curves`: plot the learning curves of several runs together."""

from collections.abc import Sequence
from pathlib import Path

from ..core.errors import TriglotError, check_known
from ..core.records import JSON
from ..shared.statistics.curves import finite_mean
from .options import CurvesOptions
from .plots import learning_curves as plots
from .plots.learning_curves import Curve
from .storage.config import read_config, without_spans
from .storage.journal import RECENTLY, last_metrics, read_metrics, recent_mean

PARTS = ("algorithm", "env", "backend")
MAX_LABEL_LENGTH = 60  # in characters


def draw_curves(options: CurvesOptions) -> int:
    """Run `triglot curves`.

    Args:
      options: what was chosen.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if a folder is not a run directory, the environments differ, a name is unknown,
        or the plot cannot be written.
    """
    if not options.runs:
        raise TriglotError("give the folders of the runs: triglot curves runs/first")
    if options.smooth is not None and options.smooth < 1:
        raise TriglotError(f"smooth must be at least 1 update, got {options.smooth}.")
    if options.out.suffix != ".png":
        raise TriglotError(f"--out must end in .png, got {options.out}.")
    configs = [read_config(run) for run in options.runs]
    envs = sorted({config["env"] for config in configs})
    if len(envs) > 1:
        raise TriglotError(
            f"the runs are in different environments ({', '.join(envs)}), and their returns are "
            "not of one scale: plot the runs of each environment alone."
        )
    labels = _labels(options, configs)
    curves = {n: _curve(r, options.metric) for n, r in zip(labels, options.runs, strict=True)}
    same = {name: {config[name] for config in configs} for name in ("algorithm", "env")}
    title = " on ".join(", ".join(sorted(names)) for names in same.values())
    plots.learning_curves(
        options.out,
        curves,
        title=title,
        metric=options.metric,
        updates_per_point=options.smooth,
    )
    for label, curve in curves.items():
        mean = recent_mean(finite_mean(curve.values.T))
        print(f"{label}: {mean:.4g}, {RECENTLY}, {curve.env_steps[-1]:,} steps")
    print(f"written: {options.out}")
    return 0


def _curve(run: Path, metric: str) -> Curve:
    env_steps, metrics = read_metrics(run, [metric])
    check_known(f"metric of {run}", metric, {**last_metrics(run), **metrics})
    return Curve(env_steps, metrics[metric])


def _labels(options: CurvesOptions, configs: Sequence[JSON]) -> list[str]:
    """Label each run by the options that differ, or by its folder if that is not unique."""
    labels = list(options.labels)
    if labels and len(labels) != len(configs):
        raise TriglotError(f"give {len(configs)} labels, one per run, or none; got {len(labels)}.")
    if len(set(labels)) < len(labels):
        raise TriglotError(f"labels must be unique, got {', '.join(labels)}.")
    if labels:
        return labels
    for run in options.runs:
        if options.runs.count(run) > 1:
            raise TriglotError(f"{run} is given twice: give each run once, or --labels.")
    facts = [_facts(config) for config in configs]
    if len({fact["algorithm"] for fact in facts}) > 1:  # their options cannot be compared
        facts = [{name: fact[name] for name in PARTS} for fact in facts]
    differing = [name for name in facts[0] if len({fact[name] for fact in facts}) > 1]
    labels = [", ".join(fact[name] for name in differing) for fact in facts]
    if len(configs) == 1:
        return [facts[0]["backend"]]
    if len(set(labels)) == len(configs) and max(map(len, labels)) <= MAX_LABEL_LENGTH:
        return labels
    folders = [run.resolve().name for run in options.runs]
    distinct = len(set(folders)) == len(folders)
    return folders if distinct else [str(run) for run in options.runs]


def _facts(config: JSON) -> dict[str, str]:
    """List the components of a run, and its options as `name value`."""
    parts = (config["algorithm"], config["env"], " ".join(config["network"]) or config["backend"])
    numbers = {
        "arithmetic": config["arithmetic"] or "default",
        "optimizer": config["optimizer"] or "default",
        **config["config"],
        **without_spans(config["hyper"], config["num_updates"]),
    }
    named = {name: f"{name} {_format(value)}" for name, value in numbers.items()}
    return dict(zip(PARTS, parts, strict=True)) | named


def _format(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
