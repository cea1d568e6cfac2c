"""What changed since a stored comparison, for another version of JAX or of a library."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ..backends import libraries
from ..core.errors import TriglotError, counted
from ..core.records import JSON, JSONDict
from ..shared.statistics import format_return
from ..shared.statistics.paired import difference_p_value, equivalence, holm
from .assemble import SCHEMA
from .options import CompareOptions
from .verdict.pairs import DIFFERENT

# What must be equal for two comparisons to be comparable.
SAME = ("algorithm", "env", "num_seeds", "seed", "arithmetic", "config", "hyper", "optimizer")


def read(path: Path, options: CompareOptions) -> JSONDict:
    """Read a stored comparison, and check that it is of the same training.

    Raises:
      TriglotError: if it cannot be read, is incomplete, or was made with other options.
    """
    try:
        stored = json.loads(path.read_text())
    except OSError as error:
        raise TriglotError(f"--against {path}: {error.strerror}.") from None
    except ValueError:
        stored = None
    if not isinstance(stored, dict) or stored.get("schema") != SCHEMA or "backends" not in stored:
        raise TriglotError(
            f"--against {path} is not a complete comparison.json of this version of triglot "
            f"(schema {SCHEMA}): give that of a finished comparison."
        )
    wanted = json.loads(json.dumps({name: getattr(options, name) for name in SAME}))
    stored.setdefault("devices", 1)  # as before there were several
    wanted["devices"] = options.devices or stored["devices"]
    for name, value in wanted.items():
        if stored.get(name) != value:
            raise TriglotError(
                f"--against {path} has {name} {json.dumps(stored.get(name))}, and this command has "
                f"{json.dumps(value)}: only equal trainings can be compared over time."
            )
    return stored


def changes(path: Path, before: JSON, now: JSON) -> JSONDict:
    """List what changed: versions, the verdict, bits, returns, and costs beyond their intervals.

    Returns:
      The field `against` of `comparison.json`. `level` is `different` if a library's returns differ
      by more than the margin, at a level of 5 % over all libraries whose bits changed.
    """
    listed = list(_versions(before, now))
    old, new = before["verdict"]["level"], now["verdict"]["level"]
    if old != new:
        listed.append(_change("verdict", old, new, f"the verdict was {old} and is {new}"))
    common = [name for name in now["backends"] if name in before["backends"]]
    returns = _returns(common, before, now)
    for name in common:
        old, new = (comparison["backends"][name]["params_sha256"] for comparison in (before, now))
        if old != new:
            sentence = f"{libraries.title(name)}'s final parameters are no longer bitwise identical"
            listed.append(_change("bits", old, new, sentence))
            listed += [returns[name]] if name in returns else []
        if before.get("cost") and now.get("cost"):
            listed += _costs(name, before["cost"], now["cost"])
    gone = [name for name in before["backends"] if name not in now["backends"]]
    listed += [_change("backend", libraries.title(name), None, "is missing now") for name in gone]
    worse = [change for change in listed if change["what"] == "return"]
    level = DIFFERENT if worse else "changed" if listed else "unchanged"
    count = len(listed)
    sentence = (
        f"Nothing changed since {path.name}."
        if not listed
        else f"{counted(count, 'thing')} changed since {path.name}: "
        + "; ".join(change["sentence"] for change in listed)
        + "."
    )
    return {"path": str(path), "level": level, "sentence": sentence, "changes": listed}


def _change(what: str, before: object, now: object, sentence: str) -> JSONDict:
    return {"what": what, "before": before, "now": now, "sentence": sentence}


def _versions(before: JSON, now: JSON) -> Iterator[JSONDict]:
    old, new = before["versions"], now["versions"]
    for name in sorted(old.keys() & new.keys()):  # others were not recorded then
        old_version, new_version = old[name], new[name]
        if old_version != new_version:
            yield _change(
                "version", old_version, new_version, f"{name} {old_version} is {new_version}"
            )


def _returns(names: Sequence[str], before: JSON, now: JSON) -> dict[str, JSONDict]:
    """Test the returns of all libraries whose bits changed, and list those that differ.

    The p-values are corrected for the number of libraries, by Holm's method.
    """
    scores, p_values = {}, {}
    for name in names:
        new, old = (
            np.asarray(comparison["statistics"]["backends"][name]["final_returns"], np.float64)
            for comparison in (now, before)
        )
        comparable = len(old) == len(new) and np.isfinite(np.concatenate([old, new])).all()
        p_value = difference_p_value(new, old) if comparable else None
        digests = {comparison["backends"][name]["params_sha256"] for comparison in (before, now)}
        if p_value is not None and len(digests) > 1:
            scores[name], p_values[name] = (new, old), p_value
    margin, differing = now["pairs"][0]["margin"], {}
    for name, corrected in zip(p_values, holm(list(p_values.values())).tolist(), strict=True):
        new, old = scores[name]
        if equivalence(new, old, margin, corrected=corrected).level == DIFFERENT:
            differing[name] = _change(
                "return",
                float(old.mean()),
                float(new.mean()),
                f"{libraries.title(name)}'s return was {format_return(old.mean())} and is "
                f"{format_return(new.mean())}, more than the margin apart",
            )
    return differing


def _costs(name: str, before: JSON, now: JSON) -> Iterator[JSONDict]:
    """Yield the stages whose intervals do not overlap and whose medians differ by a tenth."""
    titles = {stage["name"]: stage["title"] for stage in now["stages"]}
    for stage, new in now["backends"].get(name, {}).items():
        old = before["backends"].get(name, {}).get(stage)
        if old is None or None in (old["low"], new["low"]):
            continue
        is_separate = new["low"] > old["high"] or new["high"] < old["low"]
        ratio = new["median"] / old["median"] if old["median"] else 1.0
        if is_separate and not 0.9 <= ratio <= 1.1:
            title = f"{libraries.title(name)}: {titles.get(stage, stage)}"
            sentence = f"{title} is {ratio:.2f} times what it was"
            yield _change("cost", old["median"], new["median"], sentence)
