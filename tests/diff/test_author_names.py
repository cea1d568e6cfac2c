"""A parameter is called in reports, and may be called in a mapping, what its author calls it."""

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import pytest

import triglot
from tests.diff.networks_by_name import LIBRARIES, NAMES, Setting
from tests.extras import skip_missing
from triglot.core.network import Leaf, Network
from triglot.core.specs import Box
from triglot.diff.loading import load_network
from triglot.diff.pairing.pair import pair_parameters
from triglot.diff.pairing.parameters import Pairing
from triglot.diff.pairing.use_order import Uses
from triglot.diff.report import Report

SPEC = Box((4,))
PLANTED = {
    "bias": (Setting(bias=False), "missing_bias", ("bias",), ("kernel",)),
    "matrix": (Setting(turned=True), "kernel_layout", ("mix",), ("mix",)),
    "epsilon": (Setting(epsilon=1e-2), "norm_epsilon", (), ()),
}
pytestmark = pytest.mark.library_promotion("PyTorch's and Keras's layers promote")


def network(library: str, setting: Setting | None = None) -> Any:
    if library == "keras":
        pytest.importorskip("keras")
    skip_missing(library)
    return LIBRARIES[library](setting or Setting())


def mapping_of(one: str, other: str) -> dict[str, str]:
    """Pair all parameters by the names that their authors know."""
    return {name: NAMES[other][what] for what, name in NAMES[one].items() if what != "first"}


def texts(content: Any) -> Iterator[str]:
    """Yield all texts of a JSON object, the names of its keys too."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, Mapping):
        for name, value in content.items():
            yield name
            yield from texts(value)
    elif isinstance(content, list | tuple):
        for value in content:
            yield from texts(value)


def canonical_names(report: Report) -> set[str]:
    """Return the canonical names that a report shows and no author knows."""
    sides = [report.pairing.one, report.pairing.other]
    display_names = {each.display_name for side in sides for each in side.values()}
    unknown = {name for side in sides for name in side} - display_names
    printed = " ".join([str(report), *texts(report.to_json())])
    words = set(re.findall(r"[\w~./\[\]]+", printed))
    return unknown & {word.rstrip(".") for word in words}


@pytest.mark.covering(21)
@pytest.mark.parametrize("planted", PLANTED)
@pytest.mark.parametrize("one, other", [*itertools.pairwise([*LIBRARIES, "haiku"])])
def test_causes_have_the_authors_names(one: str, other: str, planted: str) -> None:
    setting, cause_name, ours, theirs = PLANTED[planted]
    report = triglot.diff_networks(
        network(one), network(other, setting), SPEC,
        mapping={n: to for n, to in mapping_of(one, other).items()
                 if setting.bias or n != NAMES[one]["bias"]},
        level="quick",
    )  # fmt: skip
    causes = {cause.name: cause for cause in report.causes}
    assert set(causes) == {cause_name}, report
    where, stored = causes[cause_name].where, json.loads(json.dumps(report.to_json()))
    for side, whats, names in ((0, ours, NAMES[one]), (1, theirs, NAMES[other])):
        names_printed = {names[what] for what in whats}
        assert all(name in where for name in names_printed)
        assert names_printed <= set(stored["causes"][0]["parameters"][side])
    pairs = {(pair["one"], pair["other"]) for pair in stored["parameters"]["pairs"]}
    assert (NAMES[one]["kernel"], NAMES[other]["kernel"]) in pairs
    assert canonical_names(report) == set()


def paired(one: Any, other: Any, mapping: Mapping[str, str]) -> Pairing:
    def uses() -> tuple[Uses, Uses]:
        raise AssertionError

    networks = load_network(one, SPEC), load_network(other, SPEC)
    return pair_parameters(networks, uses, mapping)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_mapping_takes_the_authors_names(library: str) -> None:
    for one, other in ((library, "linen"), ("equinox", library)):
        mapping = mapping_of(one, other)
        pairing = paired(network(one), network(other), mapping)
        assert pairing.is_complete and pairing.source == "stated"
        names = {pairing.display_names(pair) for pair in pairing.pairs}
        assert names == set(mapping.items())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_mapping_takes_modules_and_unambiguous_ends(library: str) -> None:
    names = NAMES[library]
    mapping = mapping_of(library, "linen")
    whole = {k: v for k, v in mapping.items() if k not in (names["kernel"], names["bias"])}
    pairing = paired(network(library), network("linen"), whole | {names["first"]: "first_one"})
    assert pairing.is_complete
    last = names["mix"].replace(".", "/").strip("/").rpartition("/")[2]
    ends = {k: v for k, v in mapping.items() if k != names["mix"]} | {last: "params/mix"}
    assert paired(network(library), network("linen"), ends).is_complete


def recurrent(x: jax.Array) -> jax.Array:
    cell = hk.LSTM(5, name="memory")
    return cell(x, cell.initial_state(x.shape[0]))[0]


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        carry = jnp.zeros((*x.shape[:-1], 5))
        return nn.OptimizedLSTMCell(5, name="carried")((carry, carry), x)[1]


def test_a_part_of_an_array_has_an_index() -> None:
    codec = triglot.from_haiku(recurrent, SPEC).require_codec("")
    assert codec.display_names["memory/input/f/kernel"] == "memory/linear/w[input, f]"
    pairing = paired(recurrent, Recurrent(), {"memory/linear/w[recurrent, f]": "hf/kernel"})
    assert ("memory/recurrent/f/kernel", "carried/recurrent/f/kernel") in {
        (pair.one, pair.other) for pair in pairing.pairs
    }


def test_an_array_of_several_parameters_is_mapped_as_a_whole() -> None:
    def other(x: jax.Array) -> jax.Array:
        cell = hk.LSTM(5, name="other")
        return cell(x, cell.initial_state(x.shape[0]))[0]

    whole = {"memory/linear/w": "other/linear/w", "memory/linear/b": "other/linear/b"}
    assert paired(recurrent, other, whole).is_complete
    with pytest.raises(triglot.TriglotError, match="one holds 8 parameters, the other 1"):
        paired(recurrent, Recurrent(), {"memory/linear/w": "hf/kernel"})


def test_messages_of_translate_have_the_authors_names() -> None:
    class Twice(nn.Module):
        names: tuple[str, str]

        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return nn.Dense(4, name=self.names[1])(jnp.tanh(nn.Dense(4, name=self.names[0])(x)))

    source, target = (
        triglot.from_linen(Twice(names), SPEC) for names in (("a_in", "a_out"), ("up", "down"))
    )
    variables = source.init(jax.random.key(0))
    with pytest.raises(triglot.TriglotError, match=r"a_in/kernel.*'a_in/kernel': \.\.\."):
        triglot.translate(variables, source, target)
    with pytest.raises(triglot.TriglotError, match=r"'kernel' may be any of a_in/kernel, a_out/k"):
        triglot.translate(variables, source, target, {"kernel": "up/kernel"})


def test_a_name_without_a_spelling_is_canonical() -> None:
    assert Leaf.one("layer/kernel").display_name("layer/kernel") == "layer/kernel"


def display_names(networks: Mapping[str, Network]) -> set[str]:
    return {*triglot.nn.combine(networks).require_codec("").display_names.values()}


def test_networks_that_are_combined_keep_their_names() -> None:
    assert "actor/first_one/kernel" in display_names(
        {
            "actor": load_network(network("linen"), SPEC),
            "critic": load_network(network("jax"), SPEC),
        }
    )
    equinox = load_network(network("equinox"), SPEC)
    assert "actor.blocks[0].weight" in display_names({"actor": equinox})
