"""The first operation in which two libraries' networks differ, found in their traced programs.

It runs in the parent, after the trainings, since it needs both libraries in one process.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from safetensors.numpy import load_file

from ...backends import libraries
from ...core.errors import TriglotError
from ...core.network import Network, Variables
from ...core.networks.combinators import part_of
from ...diff.compare import diff_networks
from ...diff.programs import explain, first_bit_difference
from ...diff.types import Difference, Side
from ..options import CompareOptions
from ..registry.environments import make_env
from .jobs import Ledger
from .rungs import rung_of_arithmetic
from .training.networks import build_agent, read_mapping
from .training.probes import NUM_INPUTS, PROBE_KEY, Outputs
from .verdict.identity import codec_of

Json: TypeAlias = dict[str, Any]

# Causes behind which an operation of the networks stands, and whether it is rounding.
ROUNDING, FUNCTION = ("summation_order",), ("network", "gradient", "dtype")


def add_operations(options: CompareOptions, ledger: Ledger, pairs: Sequence[Json]) -> None:
    """Locate the differences of pairs whose networks differ, and name their causes.

    Args:
      options: of the comparison.
      ledger: its folder, which holds the shared weights.
      pairs: entries of `comparison.json`, of the first environment; `first_difference` gets
        `operation`, None if none was found, and causes of another function are named by what
        `triglot diff` finds.
    """
    found = _Operations(options, ledger)
    for pair in pairs:
        names = {cause["name"] for cause in pair["causes"]}
        place = pair["first_difference"]
        if place is None:
            continue
        place["operation"] = None
        if names.isdisjoint((*ROUNDING, *FUNCTION)):
            continue
        try:
            if options.network:
                place["operation"], causes = found.custom(*pair["backends"])
                pair["causes"] += causes
            elif names.isdisjoint(FUNCTION):
                place["operation"] = found.first_bit(*pair["backends"])
            else:
                place["operation"], causes = found.explained(*pair["backends"])
                pair["causes"] += causes
        except TriglotError:  # custom networks without a codec, or that cannot be aligned
            continue


def add_places(verdict: Json, pairs: Sequence[Json]) -> Json:
    """Add to a verdict's sentence where the networks of its pair differ first."""
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
    """Both networks of a pair, at the shared weights of the first seed."""

    def __init__(self, options: CompareOptions, ledger: Ledger) -> None:
        self.options, self.env = options, make_env(options.env)
        self.rung = rung_of_arithmetic(options.arithmetic)
        weights = load_file(ledger.weights(0))
        self.weights = {name: jnp.asarray(array[0]) for name, array in weights.items()}
        self.reference = options.libraries[0]
        self.sides: dict[str, tuple[Any, Side]] = {}

    def first_bit(self, one: str, other: str) -> Json | None:
        """Find the first operation whose bits differ."""
        for first, second, inputs in self._parts(one, other):
            key = jax.random.key(PROBE_KEY)
            found = first_bit_difference(first, second, inputs, train=False, key=key)
            if found is not None:
                return _as_json(found)
        return None

    def explained(self, one: str, other: str) -> tuple[Json | None, list[Json]]:
        """Find the first operation that differs by more than rounding, and all causes."""
        operation, causes = None, []
        for first, second, inputs in self._parts(one, other):
            key = jax.random.key(PROBE_KEY)
            found = explain(first, second, inputs, train=False, key=key)
            if found.first_difference is not None:
                operation = operation or _as_json(found.first_difference)
            causes += [asdict(cause) for cause in found.causes]
        return operation, causes

    def custom(self, one: str, other: str) -> tuple[Json | None, list[Json]]:
        """Compare custom networks, whose parameters may have other names, at their own weights."""
        networks = [self._network(name) for name in (one, other)]
        mapping = read_mapping(self.options.mapping).get(other) if one == self.reference else None
        back = {to: name for name, to in mapping.items()} if mapping else None
        found = diff_networks(networks[0], networks[1], self.env.obs_spec, mapping=back)
        first = found.first_difference or found.first_rounding
        causes = [asdict(cause) for cause in found.causes]
        return None if first is None else _as_json(first), causes

    def _network(self, backend: str) -> Network:
        return build_agent(self.options, self.env, backend, self.rung).network

    def _parts(self, one: str, other: str) -> list[tuple[Side, Side, Any]]:
        """Give the networks of both sides, part by part, with a few inputs."""
        (agent, first), (_, second) = self._side(one), self._side(other)
        inputs = Outputs(agent, self.env).inputs
        few = {
            name: jax.tree.map(lambda x: x[: NUM_INPUTS // 8], own) for name, own in inputs.items()
        }
        if not first.network.parts:
            return [(first, second, _with_carry(first, few[""]))]
        pairs = []
        for name in first.network.parts:
            if first.network.parts[name].backend == "core":  # a scalar, the same in every library
                continue
            own = _part(first, name), _part(second, name)
            pairs.append((*own, _with_carry(own[0], few[name])))
        return pairs

    def _side(self, backend: str) -> tuple[Any, Side]:
        if backend not in self.sides:
            agent = build_agent(self.options, self.env, backend, self.rung)
            network: Network = agent.network
            codec = codec_of(network)
            state = network.init(jax.random.key(0)).state
            variables = Variables(params=codec.decode(self.weights), state=state)
            own = {name: name for leaf in codec.leaves for name in leaf.names}
            label = libraries.title(backend)
            self.sides[backend] = (
                agent,
                Side(label=label, network=network, variables=variables, names=own),
            )
        return self.sides[backend]


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


def _as_json(found: Difference) -> Json:
    """Give the field `operation`."""
    return {**asdict(found), "sentence": _sentence(found)}


def _sentence(found: Difference) -> str:
    sides = [
        "nothing" if one is None else f"{one.name} in {one.source}"
        for one in (found.one, found.other)
    ]
    when = "when compiled, up to" if found.compiled_only else "at"
    return f"The networks differ first {when} {sides[0]} and {sides[1]}"
