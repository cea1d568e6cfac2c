"""The first operation in which two libraries' trainings differ, found in their programs.

It runs in the parent, after the trainings, since it needs both libraries in one process.
"""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import jax
import numpy as np

from ...backends import libraries
from ...core.errors import describe
from ...core.networks.combinators import part_of
from ...diff.compare import diff_networks
from ...diff.programs import (
    explain,
    first_bit_difference,
    first_large_difference,
    record_both,
)
from ...diff.programs.tape import Tape
from ...diff.types import Difference, Side
from ..options import CompareOptions
from ..registry.environments import make_env
from .jobs import Ledger
from .traced import Traced, shared_weights
from .training.networks import read_mapping
from .training.probes import NUM_INPUTS, PROBE_KEY, Outputs

Json: TypeAlias = dict[str, Any]

# Causes that an operation of the first update explains, by whether they are rounding.
ROUNDING = {"summation_order", "leaf_order"}
FUNCTION = {"network", "gradient", "dtype", "optimizer"}
COMPILED = "compilation"


def add_operations(
    options: CompareOptions, ledger: Ledger, pairs: Sequence[Json], programs: Sequence[Json]
) -> None:
    """Locate the differences of pairs of libraries, and name the causes of other functions.

    Args:
      options: of the comparison.
      ledger: its folder, which holds the shared weights.
      pairs: entries of `comparison.json`, of the first environment; `first_difference` gets
        `operation`, None if none was found, or with the reason as `not_located` if the search
        failed; causes of another function are named by what `triglot diff` finds.
      programs: the compared training programs of these pairs.
    """
    found = _Operations(options, ledger)
    compared = {tuple(one["backends"]): one for one in programs}
    for pair in pairs:
        place = pair["first_difference"]
        if place is None:
            continue
        place["operation"] = None
        if any(cause["name"] == COMPILED for cause in pair["causes"]):
            _add_fusion(pair, compared.get(tuple(pair["backends"])))
            continue
        try:
            place["operation"], causes = found.locate(pair)
        except Exception as error:  # the trainings are done, and their report has the rest
            place["not_located"] = describe(error)
            continue
        pair["causes"] += causes


def add_places(verdict: Json, pairs: Sequence[Json]) -> Json:
    """Add to the sentences of a verdict and of its pairs where the libraries differ first."""
    for pair in pairs:
        operation = (pair["first_difference"] or {}).get("operation")
        if operation is None:
            continue
        place = f" {operation['sentence']}."
        if pair["sentence"] in verdict["sentence"]:
            whole = verdict["sentence"].replace(pair["sentence"], pair["sentence"] + place)
            verdict = {**verdict, "sentence": whole}
        pair["sentence"] += place
    return verdict


class _Operations:
    """The libraries' first updates, at the shared weights of the first seed."""

    def __init__(self, options: CompareOptions, ledger: Ledger) -> None:
        self.options, self.env = options, make_env(options.env)
        self.weights = shared_weights(ledger)
        self.sides: dict[str, Traced] = {}

    def locate(self, pair: Mapping[str, Any]) -> tuple[Json | None, list[Json]]:
        """Find the operation behind the first cause that has one, and further causes."""
        one, other = (self._traced(backend) for backend in pair["backends"])
        located = (each for each in pair["causes"] if each["name"] in ROUNDING | FUNCTION)
        cause = next(located, None)
        if cause is None:
            return None, []
        part, is_rounding = cause.get("part", "outputs"), cause["name"] in ROUNDING
        operation, causes = None, []
        if part == "optimizer":
            return self._optimizer(one, other, is_rounding=is_rounding), []
        if part == "outputs" or (self.options.network and not is_rounding):
            operation, causes = self._forward(one, other, is_rounding=is_rounding)
        if part == "gradients" or is_rounding:  # few inputs may not show a rounding of outputs
            operation = operation or self._gradients(one, other, is_rounding=is_rounding)
        return operation, causes

    def _forward(
        self, one: Traced, other: Traced, *, is_rounding: bool
    ) -> tuple[Json | None, list[Json]]:
        if self.options.network:
            return self._custom(one, other)
        operation, causes = None, []
        how: Any = {"train": False, "key": jax.random.key(PROBE_KEY)}
        for first, second, inputs in self._parts(one, other):
            if is_rounding:
                tapes = record_both(first, second, inputs, **how, exact=True)
                difference = first_bit_difference(*tapes)
            else:
                explained = explain(first, second, inputs, **how)
                difference = explained.first_difference
                causes += [asdict(cause) for cause in explained.causes]
            operation = operation or _as_json(difference, "forward")
            if is_rounding and operation is not None:
                break
        return operation, causes

    def _custom(self, one: Traced, other: Traced) -> tuple[Json | None, list[Json]]:
        """Compare custom networks, whose parameters may have other names, at their own weights."""
        is_mapped = one.backend == self.options.libraries[0]
        mapping = read_mapping(self.options.mapping).get(other.backend) if is_mapped else None
        back = {to: name for name, to in mapping.items()} if mapping else None
        found = diff_networks(
            one.agent.network, other.agent.network, self.env.obs_spec, mapping=back
        )
        first = found.first_difference or found.first_rounding
        return _as_json(first, "forward"), [asdict(cause) for cause in found.causes]

    def _gradients(self, one: Traced, other: Traced, *, is_rounding: bool) -> Json | None:
        tapes = [side.gradients(self.inputs, wide=not is_rounding) for side in (one, other)]
        return _as_json(_first(tapes, is_rounding), "gradients")

    def _optimizer(self, one: Traced, other: Traced, *, is_rounding: bool) -> Json | None:
        # Two orders of summation often give the same bits, so gradients are taken that show it.
        number = int(np.argmax(one.norms != other.norms))
        tapes = [side.optimizer(number, wide=not is_rounding) for side in (one, other)]
        # Adam hides the last bit of a clipped gradient.
        return _as_json(_first(tapes, is_rounding, hidden=True), "optimizer")

    @functools.cached_property
    def inputs(self) -> Any:
        """The probed inputs by part of the network."""
        return Outputs(self._traced(self.options.libraries[0]).agent, self.env).inputs

    def _parts(self, one: Traced, other: Traced) -> list[tuple[Side, Side, Any]]:
        """Give the networks of both sides, part by part, with a few inputs."""
        first, second = one.side, other.side
        few = jax.tree.map(lambda x: x[: NUM_INPUTS // 8], self.inputs)
        if not first.network.parts:
            return [(first, second, _with_carry(first, few[""]))]
        pairs = []
        for name in first.network.parts:
            if first.network.parts[name].backend == "core":  # a scalar, the same in every library
                continue
            own = _part(first, name), _part(second, name)
            pairs.append((*own, _with_carry(own[0], few[name])))
        return pairs

    def _traced(self, backend: str) -> Traced:
        if backend not in self.sides:
            self.sides[backend] = Traced(self.options, self.env, self.weights, backend)
        return self.sides[backend]


def _first(tapes: Sequence[Tape], is_rounding: bool, *, hidden: bool = False) -> Difference | None:
    one, other = tapes
    if is_rounding:
        return first_bit_difference(one, other, hidden=hidden)
    return first_large_difference(one, other)


def _part(side: Side, name: str) -> Side:
    part = side.network.parts[name]
    codec = part.codec
    names = {own: own for leaf in codec.leaves for own in leaf.names} if codec else {}
    return replace(side, network=part, variables=part_of(side.variables, name), names=names)


def _with_carry(side: Side, inputs: Any) -> Any:
    if not side.network.recurrent:
        return inputs
    count = jax.tree.leaves(inputs)[0].shape[0]
    return inputs, side.network.initial_carry(side.variables, count)


def _add_fusion(pair: Json, compared: Mapping[str, Any] | None) -> None:
    """Name the first fusion in which the training programs compute differently, if there is one."""
    found = compared and compared["fusion"]
    if not found:
        return
    sides = {
        libraries.title(backend): found[side]
        for backend, side in zip(pair["backends"], ("one", "other"), strict=True)
    }
    computes = " and ".join(
        f"{title} {one['computes']}" if one else f"{title} has no such fusion"
        for title, one in sides.items()
    )
    where = " and ".join(
        f"{one['name']} of {title}" + (f" ({one['source']})" if one["source"] else "")
        for title, one in sides.items()
        if one
    )
    for cause in pair["causes"]:
        if cause["name"] == COMPILED:
            cause["where"] += f", first in fusion {where}"
            cause["evidence"] += f"; in its first fusion that differs, {computes}"
    one, other = (
        side and {"name": side["opcode"], "source": side["source"], "scope": side["name"]}
        for side in sides.values()
    )
    pair["first_difference"]["operation"] = {
        "one": one,
        "other": other,
        "max_abs": None,
        "max_rel": None,
        "compiled_only": True,
        "part": "program",
        "fusion": next(side["name"] for side in sides.values() if side),
        "computes": [side and side["computes"] for side in sides.values()],
        "sentence": f"The compiled trainings differ first in fusion {where}: {computes}",
    }


def _as_json(found: Difference | None, part: str) -> Json | None:
    """Give the field `operation`."""
    if found is None:
        return None
    return {**asdict(found), "part": part, "sentence": _sentence(found, part)}


# How a sentence begins, by the part of the update.
PARTS = {
    "forward": "The networks differ first",
    "gradients": "The gradients differ first",
    "optimizer": "The updates differ first in the optimizer",
}


def _sentence(found: Difference, part: str) -> str:
    sides = [
        "nothing" if one is None else f"{one.name} in {one.source}" if one.source else one.name
        for one in (found.one, found.other)
    ]
    when = "when compiled, up to" if found.compiled_only else "at"
    place = f"{sides[0]} on both sides" if sides[0] == sides[1] else " and ".join(sides)
    return f"{PARTS[part]} {when} {place}"
