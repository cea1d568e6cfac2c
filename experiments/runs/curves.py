"""`triglot curves`: the learning curves of several runs in one picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...core.errors import TriglotError, unknown
from ..plots import learning_curves as plots
from ..plots.learning_curves import BANDS, Curve
from .journal import read_config, read_metrics

if TYPE_CHECKING:
    from ..options import CurvesCommand

PARTS = ("algorithm", "env", "backend")
LONGEST = 60  # of labels in a picture, in characters


def draw_curves(options: "CurvesCommand") -> int:
    """Run `triglot curves`.

    Args:
      options: what the person chose.

    Returns:
      The exit code, 0.

    Raises:
      TriglotError: if a folder is no run's, a name is unknown, or the picture cannot be written.
    """
    if not options.runs:
        raise TriglotError("first name the folders of the runs: triglot curves runs/first")
    if options.band not in (None, *BANDS):
        raise unknown("band", options.band, BANDS)
    if options.smooth is not None and options.smooth < 1:
        raise TriglotError(f"smooth must be at least 1 update, got {options.smooth}.")
    if options.out.suffix != ".png":
        raise TriglotError(f"--out must end in .png, got {options.out}.")
    configs = [read_config(run) for run in options.runs]
    curves = dict(
        zip(
            _labels(options, configs),
            [_curve(run, options.metric) for run in options.runs],
            strict=True,
        )
    )
    same = {name: {config[name] for config in configs} for name in ("algorithm", "env")}
    title = " on ".join(", ".join(sorted(names)) for names in same.values())
    plots.learning_curves(
        options.out,
        curves,
        title=title,
        metric=options.metric,
        band=BANDS[options.band or _fitting_band(curves.values())],
        updates_per_point=options.smooth,
    )
    for label, curve in curves.items():
        last = plots.finite_mean(curve.values[:, -max(1, len(curve.env_steps) // 20) :])
        print(
            f"{label}: {plots.finite_mean(last):.4g}, the mean of the last twentieth of "
            f"{curve.env_steps[-1]:,} steps"
        )
    print(f"drawn: {options.out}")
    return 0


def _fitting_band(curves: Iterable[Curve]) -> str:
    """Choose an interval only where there are enough seeds for a narrow one."""
    return "interval" if min(len(curve.values) for curve in curves) >= 5 else "range"


def _curve(run: Path, metric: str) -> Curve:
    env_steps, metrics = read_metrics(run)
    if metric not in metrics:
        raise unknown(f"metric of {run}", metric, metrics)
    return Curve(env_steps, metrics[metric])


def _labels(options: "CurvesCommand", configs: Sequence[dict[str, Any]]) -> list[str]:
    """Name each run by what not all have in common; by its folder where that names two alike."""
    labels = list(options.labels)
    if labels and len(labels) != len(configs):
        raise TriglotError(
            f"give a label for each of the {len(configs)} runs, or none; got {len(labels)}."
        )
    if len(set(labels)) < len(labels):
        raise TriglotError(f"each label must be another, got {', '.join(labels)}.")
    if labels:
        return labels
    facts = [_facts(config) for config in configs]
    if len({fact["algorithm"] for fact in facts}) > 1:  # the numbers of each are its own
        facts = [{name: fact[name] for name in PARTS} for fact in facts]
    differing = [name for name in facts[0] if len({fact[name] for fact in facts}) > 1]
    labels = [", ".join(fact[name] for name in differing) for fact in facts]
    if len(configs) == 1:
        return [facts[0]["backend"]]
    if len(set(labels)) == len(configs) and max(map(len, labels)) <= LONGEST:
        return labels
    folders = [run.resolve().name for run in options.runs]
    distinct = len(set(folders)) == len(folders)
    return folders if distinct else [str(run) for run in options.runs]


def _facts(config: dict[str, Any]) -> dict[str, str]:
    """Say what was trained: its parts, and each number with its name."""
    parts = (config["algorithm"], config["env"], " ".join(config["network"]) or config["backend"])
    numbers = {
        "arithmetic": config["arithmetic"] or "default",
        **config["config"],
        **config["hyper"],
    }
    if numbers.get("decay_updates") == config["num_updates"]:  # as it is by default
        numbers["decay_updates"] = "all"
    told = {name: f"{name} {_in_words(value)}" for name, value in numbers.items()}
    return dict(zip(PARTS, parts, strict=True)) | told


def _in_words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
