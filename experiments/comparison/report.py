"""The report of a comparison: a one-sentence verdict, and a self-contained HTML page."""

import base64
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

import numpy as np

from ...backends import libraries
from ..plots import learning_curves as plots
from ..storage.files import plain
from . import tables

Result: TypeAlias = Mapping[str, Any]


def verdict(result: Result) -> str:
    """Summarize a comparison in one sentence."""
    identity, names = result["identity"], list(result["backends"])
    if identity["identical"]:
        count = {2: "Both", 3: "All three", 4: "All four"}.get(len(names), f"All {len(names)}")
        return (
            f"{count} learning curves and final parameters are equal, bit for bit, over "
            f"{result['num_updates']:,} updates."
        )
    params = identity["first_difference"]
    place = params or identity["first_metric_difference"]
    where = tables.where(place, *(("leaf", "arrays") if params else ("metric", "metrics")))
    diverged = [libraries.title(name) for name in place["backends"]]
    rest = [libraries.title(name) for name in names if name not in place["backends"]]
    sentence = (
        f"{_listed(diverged)} diverge{'s' if len(diverged) == 1 else ''} from "
        f"{rest[0] if len(rest) == 1 else 'the others'} at update {place['update']:,} "
        f"({place['step']:,} environment steps), {where}"
    )
    if result["arithmetic"] == "canonical":
        return f"{sentence}, although the arithmetic is canonical."
    return f"{sentence}; rerun with --arithmetic canonical for one order of summation."


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def write(out: Path, result: Result, metrics: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write `comparison.json`, `curves.png` and `report.html` into a folder.

    Args:
      out: the folder.
      result: the result of `compare`.
      metrics: by backend and name, `[S, U]`.
    """
    text = json.dumps(plain(result), indent=2, allow_nan=False)
    (out / "comparison.json").write_text(text + "\n")
    env_steps = result["steps_per_update"] * np.arange(1, result["num_updates"] + 1)
    curves = {
        libraries.title(name): plots.Curve(env_steps, metrics[name]["episode_return"])
        for name in result["backends"]
    }
    title = f"{result['algorithm']} on {result['env']}, {result['arithmetic']} arithmetic"
    plots.learning_curves(out / "curves.png", curves, title=title)
    (out / "report.html").write_text(page(result, (out / "curves.png").read_bytes()))


def page(result: Result, curves_png: bytes) -> str:
    """Build the report, an HTML page without external resources."""
    facts = {
        "Command": result["command"],
        "Training": f"{result['num_updates']:,} updates of {result['steps_per_update']:,} "
        f"environment steps for each of {result['num_seeds']} seeds",
        "Arithmetic": result["arithmetic"],
        "Device": f"{result['device']}, {result['cpu_cores']} processor cores",
        "Versions": ", ".join(f"{name} {v}" for name, v in result["versions"].items() if v),
    }
    groups = result["identity"]["groups"]
    template = Template(Path(__file__).with_name("report_template.html").read_text())
    return template.substitute(
        title=html.escape(f"{result['algorithm']} on {result['env']}"),
        kind="equal" if result["identity"]["identical"] else "apart",
        verdict=html.escape(result["verdict"]),
        groups=html.escape("; ".join(" = ".join(map(libraries.title, group)) for group in groups)),
        reference=libraries.title(next(iter(result["backends"]))),
        curves=base64.b64encode(curves_png).decode(),
        returns=tables.as_html(tables.RETURNS, result),
        identity=tables.as_html(tables.IDENTITY, result),
        costs=tables.as_html(tables.COSTS, result),
        program=tables.as_html(tables.PROGRAM, result),
        eval_episodes=result["eval_episodes"],
        facts="".join(f"<dt>{k}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items()),
    )
