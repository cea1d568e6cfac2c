"""The result of comparing two networks, as text and as JSON."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..core.errors import counted
from .measures.distributions import InitializerRow
from .measures.numbers import LONG, Distance, Measurement
from .modules import Section
from .pairing.parameters import Pair, Pairing
from .types import Cause, Difference, Operation

FORMAT = 2  # of the JSON; docs/reference/diff-json.md describes it
WIDTH = 80
MAX_ROWS = 12

IDENTICAL, EQUIVALENT, DIFFERENT = "identical", "equivalent", "different"
UNFINISHED = "unfinished"
MEANING = {
    IDENTICAL: "with the same weights, results are bitwise identical in native arithmetic",
    EQUIVALENT: "with the same weights, they compute the same function up to rounding",
    DIFFERENT: "with the same weights, outputs or updates differ",
    UNFINISHED: "the comparison was stopped before a verdict",
}


@dataclass(frozen=True)
class Module:
    """A recorded value, and whether the port computes it.

    Attributes:
      name: the name of the module, or of the modules between which it was computed.
      kind: the class of the module.
      source: `file:line` in the recorded model.
      state: `equal`, `different`, or why it was not compared.
      max_rel: the largest difference relative to the largest number, from equal inputs.
    """

    name: str
    kind: str
    source: str
    state: str
    max_rel: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """What two networks have in common and where they differ; `str` formats it in 80 columns.

    Attributes:
      labels: the labels of the two networks.
      verdict: `identical`: all bits are equal in native arithmetic; `equivalent`: equal up to
        rounding; `different`; `unfinished` if the comparison was stopped.
      first_difference: the first operation that differs by more than rounding; None if none does.
      first_rounding: the first operation whose results differ in bits, if the networks are
        equivalent and their outputs are not identical.
      causes: likely causes. `initializer` is reported, but changes no verdict; so is `precision`
        where it has no effect on this machine.
      pairing: the parameters and their pairs.
      num_params: the number of scalars in the parameters of each network.
      measurements: outputs, gradients and steps, with the same weights.
      initializers: comparisons of both initializers; empty if a network has its weights already.
      num_keys: the number of keys over which initializers were compared.
      modules: the values of a recording, in the order of the calls; empty for two networks.
      parts: the modules of both networks; empty unless they were asked for.
      notes: what was not measured, and why.
    """

    labels: tuple[str, str]
    verdict: str = UNFINISHED
    first_difference: Difference | None = None
    first_rounding: Difference | None = None
    causes: tuple[Cause, ...] = ()
    pairing: Pairing = Pairing({}, {}, (), "not yet")
    num_params: tuple[int, int] = (0, 0)
    measurements: tuple[Measurement, ...] = ()
    initializers: tuple[InitializerRow, ...] = ()
    num_keys: int = 0
    modules: tuple[Module, ...] = ()
    parts: tuple[tuple[Section, ...], tuple[Section, ...]] = ((), ())
    notes: tuple[str, ...] = ()

    @property
    def max_abs_difference(self) -> float:
        """The largest difference of outputs, gradients and parameters after one step, native."""
        short = [each for each in self.measurements if each.quantity.name not in LONG]
        return max((each.native.max_abs for each in short), default=0.0)

    @property
    def headline(self) -> str:
        """The verdict with the names of the causes and the first lines that differ, in one line."""
        names = ", ".join(dict.fromkeys(cause.name for cause in self.causes))
        first = self.first_difference
        operations = () if first is None else filter(None, (first.one, first.other))
        sources = ", ".join(dict.fromkeys(each.source for each in operations if each.source))
        place = f" at {sources}" if sources else ""
        return f"{self.verdict}: {names or 'no cause is known yet'}{place}"

    def to_json(self) -> dict[str, Any]:
        """Return an object for JSON; infinite differences become null."""
        pairing = self.pairing
        content = {
            "format": FORMAT,
            "networks": self.labels,
            "verdict": self.verdict,
            "meaning": MEANING[self.verdict],
            "max_abs_difference": self.max_abs_difference,
            "first_difference": self.first_difference and asdict(self.first_difference),
            "first_rounding": self.first_rounding and asdict(self.first_rounding),
            "causes": [self._cause(cause) for cause in self.causes],
            "parameters": {
                "counts": self.num_params,
                "mapping": pairing.source,
                "pairs": [self._pair(pair) for pair in pairing.pairs],
                "only_one": {each.display_name: each.shape for each in pairing.only_one},
                "only_other": {each.display_name: each.shape for each in pairing.only_other},
            },
            "measurements": [_measurement(each) for each in self.measurements],
            "initializers": [asdict(row) for row in self.initializers],
            "initializer_keys": self.num_keys,
            "modules": [asdict(module) for module in self.modules],
            "parts": {
                name: [asdict(part) for part in sections]
                for name, sections in zip(("one", "other"), self.parts, strict=True)
            },
            "notes": self.notes,
        }
        return _finite(content)

    def _cause(self, cause: Cause) -> dict[str, Any]:
        sides = self.pairing.one, self.pairing.other
        names = [
            [side[name].display_name if name in side else name for name in names_of_side]
            for side, names_of_side in zip(sides, cause.parameters, strict=True)
        ]
        return {**asdict(cause), "parameters": names}

    def _pair(self, pair: Pair) -> dict[str, Any]:
        names = dict(zip(("one", "other"), self.pairing.display_names(pair), strict=True))
        return {**asdict(pair), **names, "shape": self.pairing.one[pair.one].shape}

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from .page import fragment  # jinja2, pygments and charts take 0.13 s

        return fragment(self.to_json())

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _wrap(f"{self.verdict}: {MEANING[self.verdict]}", "")
        for name, label, number in zip(
            ("one:  ", "other:"), self.labels, self.num_params, strict=True
        ):
            yield from _wrap(f"{name} {label}, {counted(number, 'parameter')}", " " * 7)
        located = {"first difference": self.first_difference, "first rounding": self.first_rounding}
        for title, difference in located.items():
            if difference is not None:
                yield from ("", *self._difference_lines(title, difference))
        if self.causes:
            yield from ("", "likely causes")
        for cause in self.causes:
            yield from _wrap(f"  {cause.name}: {cause.evidence}", " " * 4)
            yield from _wrap(f"    at {cause.where}", " " * 7)
        if any(self.num_params):
            yield from ("", *self._parameters())
        yield ""
        yield from self._modules() if self.modules else self._measurements()
        if self.initializers:
            yield from ("", *self._initializers())
        for note in self.notes:
            yield from _wrap(f"note: {note}", "  ")

    def _difference_lines(self, title: str, difference: Difference) -> Iterator[str]:
        compiled = ", only when compiled" if difference.compiled_only else ""
        yield from _wrap(
            f"{title}: {difference.max_abs:.2g} (relative {difference.max_rel:.2g}){compiled}", "  "
        )
        for label, operation in zip(
            ("one", "other"), (difference.one, difference.other), strict=True
        ):
            yield from _wrap(f"  {label}: {_operation(operation)}", " " * 9)

    def _parameters(self) -> Iterator[str]:
        yield f"parameters: {counted(len(self.pairing.pairs), 'pair')}, {self.pairing.source}"
        names = {pair: self.pairing.display_names(pair) for pair in self.pairing.pairs}
        renamed = [
            pair for pair, (first_name, second_name) in names.items() if first_name != second_name
        ]
        for pair in renamed[:MAX_ROWS]:
            transposed = ", transposed" if pair.transposed else ""
            shape = list(self.pairing.one[pair.one].shape)
            yield from _wrap(f"  {' = '.join(names[pair])} {shape}{transposed}", " " * 4)
        if len(renamed) > MAX_ROWS:
            yield f"  and {len(renamed) - MAX_ROWS} more with different names"
        for name, unpaired in (("one", self.pairing.only_one), ("other", self.pairing.only_other)):
            if unpaired:
                yield from _wrap(f"  only {name}: {', '.join(map(str, unpaired))}", " " * 4)

    def _measurements(self) -> Iterator[str]:
        yield "largest relative difference with the same weights"
        yield f"  {'':<30}{'mode':<11}{'batch':>5}  {'native':>9}{'canonical':>11}{'float64':>10}"
        for each in self.measurements:
            name, mode, batch = each.quantity
            cells = [_cell(side) for side in (each.native, each.canonical, each.double)]
            mark = " " if each.agrees else "*"
            yield (
                f"{mark} {name:<30}{mode:<11}{batch:>5}  {cells[0]:>9}{cells[1]:>11}{cells[2]:>10}"
            )
        if not all(each.agrees for each in self.measurements):
            yield "* more than rounding"

    def _modules(self) -> Iterator[str]:
        counts = Counter(module.state for module in self.modules)
        summary = ", ".join(f"{count} {state}" for state, count in counts.items())
        yield from _wrap(f"{counted(len(self.modules), 'recorded value')}: {summary}", "  ")
        differing = [module for module in self.modules if module.state != "equal"]
        for module in differing[:MAX_ROWS]:
            place = f" ({module.source})" if module.source else ""
            line = f"  {module.name}: {module.kind}{place}, {module.state}"
            yield from _wrap(line, " " * 4)
        if len(differing) > MAX_ROWS:
            yield f"  and {len(differing) - MAX_ROWS} more"

    def _initializers(self) -> Iterator[str]:
        yield f"initializers, over {self.num_keys:,} keys"
        differing = [row for row in self.initializers if row.differs]
        if len(differing) < len(self.initializers):
            yield f"  {len(self.initializers) - len(differing)} of {len(self.initializers)} agree"
        for row in differing[:MAX_ROWS]:
            name = row.name if row.name == row.counterpart else f"{row.name} = {row.counterpart}"
            yield from _wrap(f"  {name}: {row.one}; other: {row.other}", " " * 4)
        if len(differing) > MAX_ROWS:
            yield f"  and {len(differing) - MAX_ROWS} more that differ"


def _wrap(text: str, indent: str) -> Sequence[str]:
    lines = textwrap.wrap(text, WIDTH, subsequent_indent=indent, break_on_hyphens=False)
    leading = text[: len(text) - len(text.lstrip())]
    return [leading + line.lstrip() if not number else line for number, line in enumerate(lines)]


def _cell(side: Distance | None) -> str:
    if side is None:
        return "-"
    return "identical" if side.identical else f"{side.max_rel:.1e}"


def _operation(operation: Operation | None) -> str:
    if operation is None:
        return "no counterpart"
    scope = f" in {operation.scope}" if operation.scope else ""
    source = f" ({operation.source})" if operation.source else ""
    return f"{operation.name}{scope}{source}"


def _finite(value: Any) -> Any:
    """Replace infinite numbers by None and tuples by lists, in all of an object."""
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _measurement(measurement: Measurement) -> dict[str, Any]:
    sides = {
        "native": measurement.native,
        "canonical": measurement.canonical,
        "float64": measurement.double,
    }
    return {
        **measurement.quantity._asdict(),
        **{name: side and side._asdict() for name, side in sides.items()},
        "single_tolerance": measurement.single_tolerance,
        "agrees": measurement.agrees,
    }
