"""Search for the first operation that differs, on one rung in one environment.

It runs in the parent, after the trainings, since it needs both libraries in one process.
"""

import functools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import jax
import numpy as np

from ..core.errors import TriglotError
from ..core.networks.combinators import part_of
from ..core.records import JSON, JSONDict
from ..core.types import PyTree
from ..diff.compare import diff_networks
from ..diff.programs import explain, first_bit_difference, first_large_difference, record_both
from ..diff.programs.tape import Tape
from ..diff.types import Difference, Side, places
from ..runs.registry.environments import make_env
from .batches import Batch, first_batches
from .options import CompareOptions
from .rungs import Rung
from .traced import Named, Traced, side_of
from .training.library import LibraryExperiment
from .training.networks import read_mapping
from .training.probes import NUM_INPUTS, PROBE_KEY, Outputs
from .verdict.causes import ROUNDING_CAUSES

# Causes that an operation of the first update explains.
FUNCTION = {"network", "gradient", "dtype", "optimizer"}
# Between the rounding of float64 and the change of a parameter in one step.
FINE = 1e-10


@dataclass(frozen=True)
class Update:
    """Where the agent's own update differs, from the same weights and batches.

    Attributes:
      operation: the field `operation`.
      cause: an entry of `causes`.
    """

    operation: JSONDict
    cause: JSONDict


class Search:
    """The libraries' first updates, at the shared weights of the first seed.

    Each library is recorded once.
    """

    def __init__(self, options: CompareOptions, env: str, rung: Rung, weights: Named) -> None:
        # In this process, all seeds are on one device.
        self.options, self.env, self.rung = replace(options, devices=1), make_env(env), rung
        self.weights = weights
        self.sides: dict[str, Traced] = {}

    def update(self, backends: Sequence[str], *, functions_only: bool) -> Update | None:
        """Find the first operation in which the agents' own updates differ.

        Args:
          backends: the two libraries.
          functions_only: look for differences that are larger than rounding.

        Raises:
          TriglotError: if a network draws random numbers in training.
        """
        one, other = (self._traced(backend) for backend in backends)
        if one.draws(self.inputs) or other.draws(self.inputs):
            raise TriglotError(
                "the network draws random numbers in training, which differ between the "
                "libraries: operations of the update are located for networks without dropout."
            )
        tapes = [side.update(self.batches, wide=True) for side in (one, other)]
        if (difference := _first_large(tapes)) is not None:
            return _update(difference, is_rounding=False)
        if functions_only:
            return None
        tapes = [side.update(self.batches, wide=False) for side in (one, other)]
        difference = first_bit_difference(*tapes, hidden=True, compiled=False)
        return None if difference is None else _update(difference, is_rounding=True)

    @functools.cached_property
    def batches(self) -> list[Batch]:
        """The batches of the first library's first update."""
        first = self._traced(self.options.libraries[0])
        return first_batches(first.library.trainer, first.start)

    def locate(self, pair: JSON) -> tuple[JSONDict | None, list[JSONDict]]:
        """Find the operation behind the first cause that has one, and further causes."""
        one, other = (self._traced(backend) for backend in pair["backends"])
        located = (
            rounding
            for rounding in pair["causes"]
            if rounding["name"] in ROUNDING_CAUSES | FUNCTION
        )
        cause = next(located, None)
        if cause is None:
            return None, []
        part, is_rounding = cause.get("part", "outputs"), cause["name"] in ROUNDING_CAUSES
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
    ) -> tuple[JSONDict | None, list[JSONDict]]:
        if self.options.network:
            return self._custom(one, other)
        operation, causes = None, []
        key = jax.random.key(PROBE_KEY)
        for first, second, inputs in self._parts(one, other):
            if is_rounding:
                tapes = record_both(first, second, inputs, train=False, key=key, exact=True)
                difference = first_bit_difference(*tapes)
            else:
                explained = explain(first, second, inputs, train=False, key=key)
                difference = explained.first_difference
                causes += [asdict(cause) for cause in explained.causes]
            operation = operation or as_json(difference, "forward")
            if is_rounding and operation is not None:
                break
        return operation, causes

    def _custom(self, one: Traced, other: Traced) -> tuple[JSONDict | None, list[JSONDict]]:
        """Compare custom networks, whose parameters may have other names, at their own weights."""
        mapping = None
        if one.library.backend == self.options.libraries[0]:
            mapping = read_mapping(self.options.mapping).get(other.library.backend)
        back = {to: name for name, to in mapping.items()} if mapping else None
        comparison = diff_networks(
            one.agent.network, other.agent.network, self.env.obs_spec, mapping=back
        )
        first = comparison.first_difference or comparison.first_rounding
        # Both began from the same weights, so what the initializers draw is no cause.
        causes = [asdict(cause) for cause in comparison.causes if cause.name != "initializer"]
        return as_json(first, "forward"), causes

    def _gradients(self, one: Traced, other: Traced, *, is_rounding: bool) -> JSONDict | None:
        tapes = [side.gradients(self.inputs, wide=not is_rounding) for side in (one, other)]
        return as_json(_first(tapes, is_rounding), "gradients")

    def _optimizer(self, one: Traced, other: Traced, *, is_rounding: bool) -> JSONDict | None:
        # Two orders of summation often give the same bits, so gradients are taken that show it.
        number = int(np.argmax(one.norms != other.norms))
        tapes = [side.optimizer(number, wide=not is_rounding) for side in (one, other)]
        # Adam hides the last bit of a clipped gradient.
        return as_json(_first(tapes, is_rounding, hidden=True), "optimizer")

    @functools.cached_property
    def inputs(self) -> PyTree:
        """The probed inputs by part of the network."""
        return Outputs(self._traced(self.options.libraries[0]).agent, self.env).inputs

    def _parts(self, one: Traced, other: Traced) -> list[tuple[Side, Side, PyTree]]:
        """Give the networks of both sides, part by part, with a few inputs."""
        first, second = one.side, other.side
        few = jax.tree.map(lambda x: x[: NUM_INPUTS // 8], self.inputs)
        if not first.network.parts:
            return [(first, second, _with_carry(first, few[""]))]
        pairs = []
        for name in first.network.parts:
            if first.network.parts[name].backend == "core":  # a scalar, the same in every library
                continue
            sides = _part(first, name), _part(second, name)
            pairs.append((*sides, _with_carry(sides[0], few[name])))
        return pairs

    def _traced(self, backend: str) -> Traced:
        if backend not in self.sides:
            library = LibraryExperiment.build(self.options, backend, rung=self.rung, env=self.env)
            self.sides[backend] = Traced(library, self.weights)
        return self.sides[backend]


def _first(tapes: Sequence[Tape], is_rounding: bool, *, hidden: bool = False) -> Difference | None:
    one, other = tapes
    if is_rounding:
        return first_bit_difference(one, other, hidden=hidden)
    return first_large_difference(one, other)


def _part(side: Side, name: str) -> Side:
    return side_of(side.label, side.network.parts[name], part_of(side.variables, name))


def _with_carry(side: Side, inputs: PyTree) -> PyTree:
    if not side.network.recurrent:
        return inputs
    count = jax.tree.leaves(inputs)[0].shape[0]
    return inputs, side.network.initial_carry(side.variables, count)


def as_json(difference: Difference | None, part: str) -> JSONDict | None:
    """Give the field `operation`."""
    if difference is None:
        return None
    when = "when compiled, up to" if difference.compiled_only else "at"
    sentence = f"{PARTS[part]} {when} {places(difference.one, difference.other)}"
    return {**asdict(difference), "part": part, "sentence": sentence}


def _first_large(tapes: Sequence[Tape]) -> Difference | None:
    """Find the first difference of two updates that is larger than rounding."""
    # What makes the loss differ is a more telling place than what it changes in the gradient.
    for slot in range(len(tapes[0].outputs)):
        first, second = (replace(tape, outputs=[tape.outputs[slot]]) for tape in tapes)
        difference = first_large_difference(first, second)
        if difference is not None and not _has_source(difference):
            # A step is small beside the parameters, which hide what it changes by little.
            difference = first_large_difference(first, second, FINE)
        if difference is not None:
            return difference
    return None


def _has_source(difference: Difference) -> bool:
    return any(side and side.source for side in (difference.one, difference.other))


def _update(difference: Difference, *, is_rounding: bool) -> Update:
    """Describe a difference of two recorded updates."""
    sections = [side.scope for side in (difference.one, difference.other) if side and side.scope]
    part = next(iter(sections), "update")
    evidence = (
        f"from the same weights and batches, it differs by up to {difference.max_abs:.3g} "
        f"({difference.max_rel:.2g} of the largest entry)" + (": rounding" if is_rounding else "")
    )
    cause = {
        "name": "summation_order" if is_rounding else "update",
        "where": f"the {part}, {places(difference.one, difference.other)}",
        "evidence": evidence,
        "part": "update",
    }
    operation = as_json(difference, part)
    assert operation is not None
    return Update(operation, cause)


# How a sentence begins, by the part of the update.
PARTS = {
    "forward": "The networks differ first",
    "gradients": "The gradients differ first",
    "optimizer": "The updates differ first in the optimizer",
    "loss": "The updates differ first in the loss",
    "gradient of the loss": "The updates differ first in the gradient of the loss",
    "update": "The updates differ first",
}
