"""Numbers, intervals and names as a reader sees them."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...backends import libraries
from ...core.records import JSON
from ..statistics import format_return

MISSING = "–"
THOUSANDS = ("", "k", "M", "G", "T")
EPSILON = 2.0**-23  # the distance of float32 numbers at 1

# The verdicts from the best to the worst: a sign and a title.
LEVELS = {
    "identical": ("=", "Identical"),
    "equivalent": ("≈", "Equivalent"),
    "inconclusive": ("?", "Inconclusive"),
    "different": ("≠", "Different"),
}
COUNTS = {2: "both", 3: "all three", 4: "all four", 5: "all five"}


def size(value: float | None) -> str:
    """Format the size of a difference with two digits.

    >>> size(0.0), size(1.234e-7), size(0.0123), size(15.3), size(None), size(math.inf)
    ('0', '1.2e-7', '0.012', '15', '–', '∞')
    """
    if value is None:
        return MISSING
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.2g}"
    digits, _, exponent = f"{value:.1e}".partition("e")
    return f"{digits}e{int(exponent)}"


def short(value: float) -> str:
    """Format the number at a tick of an axis.

    >>> short(200_000), short(1500), short(-0.8), short(2.5e-4), short(0)
    ('200k', '1.5k', '\N{MINUS SIGN}0.8', '2.5e-4', '0')
    """
    size, sign = abs(value), "\N{MINUS SIGN}" if value < 0 else ""
    thousands = int(math.log10(size) / 3 + 1e-9) if size >= 1 else 0
    if 0 < thousands < len(THOUSANDS):
        return f"{sign}{size / 1000**thousands:.4g}{THOUSANDS[thousands]}"
    if thousands or 0 < size < 1e-3:
        digits, _, exponent = f"{size:.3e}".partition("e")
        return f"{sign}{float(digits):g}e{int(exponent)}"
    return f"{sign}{size:.6g}"


def count(value: float | None) -> str:
    """Format a whole number.

    >>> count(41000.4), count(None)
    ('41,000', '–')
    """
    return MISSING if value is None else f"{value:,.0f}"


def returns(value: float | None) -> str:
    """Format a return; a rounded zero has no sign.

    >>> returns(499.96), returns(-1e-9), returns(None)
    ('500.0', '0', '–')
    """
    if value is None:
        return MISSING
    text = format_return(value)
    return "0" if float(text) == 0 else text


def difference(value: float | None) -> str:
    """Format a difference of returns, with its sign.

    >>> difference(1.5), difference(-12.0), difference(0.0), difference(2e-9)
    ('+1.50', '-12.0', '0', '+2.0e-9')
    """
    if value is None:
        return MISSING
    text = returns(value)
    if text == "0":
        text = size(value)
    return f"+{text}" if value > 0 else text


def interval(bounds: JSON | None, form: Callable[[float | None], str] = returns) -> str:
    """Format the bounds `low` and `high`, or nothing if one is missing.

    >>> interval({"low": -1.0, "high": 23.0}), interval({"low": None, "high": None})
    ('[-1.00, 23.0]', '')
    """
    if bounds is None or bounds.get("low") is None or bounds.get("high") is None:
        return ""
    return f"[{form(bounds['low'])}, {form(bounds['high'])}]"


def with_interval(
    estimate: JSON | None,
    form: Callable[[float | None], str] = returns,
    value: str = "value",
) -> str:
    """Format an estimate and its interval."""
    if estimate is None:
        return MISSING
    return f"{form(estimate.get(value))} {interval(estimate, form)}".strip()


def span(summary: JSON) -> str:
    """Format the ends `lowest` and `highest`, or nothing if one is missing.

    >>> span({"lowest": -1.0, "highest": 23.0}), span({"lowest": None, "highest": None})
    ('-1.00 to 23.0', '')
    """
    ends = (summary["lowest"], summary["highest"])
    return "" if None in ends else " to ".join(map(returns, ends))


def measured(estimate: Mapping[str, float | None], unit: str) -> str:
    """Format a measured median with its interval and unit, with three digits.

    >>> measured({"median": 0.95123, "low": 0.9, "high": 1.1}, "s")
    '0.951 [0.9, 1.10] s'
    >>> measured({"median": 41_234.5}, "steps/s"), measured({}, "s")
    ('41,234 steps/s', '–')
    """
    if estimate.get("median") is None:
        return MISSING
    return f"{_three(estimate['median'])} {interval(estimate, _three)}".strip() + f" {unit}"


def _three(value: float | None) -> str:
    if value is None:
        return MISSING
    if abs(value) < 1:
        return f"{value:.3g}"
    return f"{value:,.{0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2}f}"


def percent(share: float | None) -> str:
    """Format a share.

    >>> percent(0.914), percent(None)
    ('91 %', '–')
    """
    return MISSING if share is None else f"{100 * share:.0f} %"


def names(backends: Sequence[str], total: int | None = None) -> str:
    """List libraries by their titles; all of at least two are counted instead.

    >>> names(["haiku", "nnx"]), names(["haiku", "linen", "nnx"], total=3)
    ('Haiku and Flax NNX', 'all three')
    """
    if total is not None and len(backends) == total > 1:
        return COUNTS.get(total, f"all {total}")
    return listed([libraries.title(name) for name in backends])


def listed(words: Sequence[str]) -> str:
    """Join words with commas and an `and`.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def pair_title(backends: Sequence[str]) -> str:
    """Name a pair of libraries."""
    return " – ".join(map(libraries.title, backends))


def pairs_title(pairs: Sequence[Sequence[str]]) -> str:
    """Name pairs together.

    >>> pairs_title([("haiku", "nnx"), ("linen", "nnx")]), pairs_title([("haiku", "nnx")])
    ('Haiku, Flax Linen – Flax NNX', 'Haiku – Flax NNX')
    """
    firsts, seconds = (list(dict.fromkeys(side)) for side in zip(*pairs, strict=True))
    if len(firsts) * len(seconds) != len(pairs) or set(firsts) & set(seconds):
        return "; ".join(map(pair_title, pairs))
    return " – ".join(", ".join(map(libraries.title, side)) for side in (firsts, seconds))


def first_difference(pair: JSON) -> JSON | None:
    """Find where two libraries differ first: in a parameter, or in a metric alone."""
    return pair.get("first_difference") or pair.get("first_metric_difference")


def place(first: JSON) -> str:
    """Name what differs first.

    >>> place({"leaf": "actor/bias", "num_differing": 3})
    'actor/bias and 2 more'
    """
    more = first["num_differing"] - 1
    also = f" and {more:,} more" if more else ""
    return f"{first.get('leaf') or first.get('metric')}{also}"


def environments(envs: Sequence[str]) -> str:
    """Name one environment, or count several."""
    return envs[0] if len(envs) == 1 else f"{len(envs)} environments"


def format_value(value: Any) -> str:
    """Format a value as `--over` takes it.

    >>> format_value((64, 64)), format_value(1e-4), format_value(None), format_value(True)
    ('64/64', '0.0001', 'none', 'true')
    """
    if isinstance(value, tuple | list):
        return "/".join(map(format_value, value))
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def capitalized(text: str) -> str:
    """Begin a text with a capital letter; the rest stays."""
    return text[:1].upper() + text[1:]
