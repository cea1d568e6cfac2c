"""The report of a comparison: a one-sentence verdict, and a self-contained HTML page."""

import base64
import html
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any, TypeAlias

import numpy as np

from ...backends import libraries
from ..plots import learning_curves as plots
from . import tables

Result: TypeAlias = Mapping[str, Any]


def write(out: Path, result: Result, metrics: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Write `comparison.json`, `curves.png` and `report.html` into a folder.

    Args:
      out: the folder.
      result: the result of `compare`.
      metrics: by backend and name, `[S, U]`.
    """
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
        verdict=html.escape(result["verdict"]["sentence"]),
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
