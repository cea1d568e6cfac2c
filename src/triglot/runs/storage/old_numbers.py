"""Runs of triglot 0.2 and before: numbers that described a schedule are read as that schedule."""

from collections.abc import Mapping
from typing import Any

from ...core.records import JSON, JSONDict

# The hyperparameter that is the schedule now, by each number that described it.
SCHEDULED = {
    "decay_updates": "learning_rate",
    **dict.fromkeys(("epsilon_start", "epsilon_end", "epsilon_decay_steps"), "epsilon"),
}
OLD_NUMBERS = "old_numbers"  # the names that were translated, in what `read_config` returns


def with_schedules(config: JSON) -> JSONDict:
    """Translate the options of a run, and its changes.

    A custom algorithm may have hyperparameters of these names, and is left as it is.

    Args:
      config: the contents of `config.json`, or the options in a checkpoint's manifest.
    """
    hyper = config.get("hyper")
    if not isinstance(hyper, Mapping) or ":" in str(config.get("algorithm")):
        return {**config}
    old = sorted(SCHEDULED.keys() & hyper.keys())
    if not old:
        return {**config}
    new = {name: value for name, value in hyper.items() if name not in SCHEDULED}
    if "decay_updates" in hyper:
        new["learning_rate"] = _rate(hyper.get("learning_rate"), hyper["decay_updates"])
    if "epsilon_start" in hyper and hyper.get("epsilon") is None:
        new["epsilon"] = _epsilon(*(hyper[name] for name in list(SCHEDULED)[1:]))
    changes = [
        {
            **change,
            "option": "learning_rate",
            **{key: _rate(hyper.get("learning_rate"), change[key]) for key in ("from", "to")},
        }
        if change["option"] == "decay_updates"
        else change
        for change in config.get("changes", ())
    ]
    translated = {**config, "hyper": new, OLD_NUMBERS: old}
    return {**translated, "changes": changes} if changes else translated


def _rate(rate: Any, num_updates: Any) -> Any:
    """Return a learning rate that falls to 0 over a number of updates; "inf": it is constant."""
    if isinstance(rate, str) or num_updates in (None, "inf"):
        return rate
    return f"linear({_text(rate)}, 0, {_text(num_updates)} updates)"


def _epsilon(start: float, end: float, num_steps: float) -> float | str:
    if start == end:
        return start
    return f"linear({_text(start)}, {_text(end)}, {_text(num_steps)} steps)"


def _text(number: float) -> str:
    """Write a number as a `Schedule` does."""
    number = float(number)
    return str(int(number)) if number.is_integer() and abs(number) < 1e15 else repr(number)
