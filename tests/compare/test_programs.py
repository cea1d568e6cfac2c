"""Compiled programs that are equal but for names have one hash; a planted difference is named."""

import functools
import inspect
import os
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.compare.programs import Program, describe, difference, program_text
from triglot.core.errors import TriglotError

# The flags of the quick tests, which newer versions do not know, keep small operations apart.
FUSED = "fusion_emitters=false" not in os.environ.get("XLA_FLAGS", "")
X = jnp.arange(12.0).reshape(3, 4)
SQUARE = jnp.ones((4, 4))
TABLE = np.random.default_rng(0).normal(size=64).astype(np.float32)
NUDGED = TABLE.copy()
NUDGED[50] += 1e-3


def compiled(function: Callable, *args: Any, **options: Any) -> Any:
    """Compile a function without the cache, which would return the first program's names."""
    return jax.jit(function, **options).lower(*args).compile()


def program(function: Callable, *args: Any, **options: Any) -> Program:
    """Compile a function and read its program."""
    return Program(program_text(compiled(function, *args, **options)))


def scaled(x: jax.Array, factor: float = 0.9) -> jax.Array:
    """Run a loop whose body is one fusion."""

    def step(carry: jax.Array, _: None) -> tuple[jax.Array, None]:
        return jnp.tanh(carry * factor) + 1.0, None

    return jax.lax.scan(step, x, length=7)[0]


def line_of(function: Callable, code: str) -> int:
    """Find the line number of a piece of code."""
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if code in line)


def test_equal_programs_of_other_names_and_lines_are_the_same() -> None:
    def renamed(observation: jax.Array) -> jax.Array:
        def body(state: jax.Array, nothing: None) -> tuple[jax.Array, None]:
            del nothing
            return jnp.tanh(state * 0.9) + 1.0, None

        return jax.lax.scan(body, observation, length=7)[0]

    one, other = program(scaled, X), program(renamed, X)
    assert one.text != other.text and one.sha256 == other.sha256
    compared = difference(one, other)
    assert compared["identical"] and compared["sentence"] == "The compiled programs are the same."
    assert compared["one"] is compared["other"] is None and not compared["opcodes"]


@pytest.mark.skipif(FUSED, reason="XLA fuses the whole program where its flags are not known")
def test_one_changed_constant_is_named_with_its_line() -> None:
    one, other = program(scaled, X), program(functools.partial(scaled, factor=0.8), X)
    compared = difference(one, other)
    assert not compared["identical"] and one.sha256 != other.sha256
    assert "constant(0.9)" in compared["one"]["text"]
    assert "constant(0.8)" in compared["other"]["text"]
    assert f"%{compared['one']['scope']} = " in one.text
    assert "1 of" in compared["sentence"] and not compared["opcodes"]
    file, line = compared["one"]["source"].rsplit(":", 1)
    assert file.endswith("tests/compare/test_programs.py")
    assert line_of(scaled, "def step") <= int(line) <= line_of(scaled, "return jax")
    assert compared["one"]["source"] in compared["sentence"]


# Two functions, and the opcodes of the first operations that differ.
PLANTED = {
    "operand order": (lambda x: x - jnp.flip(x), lambda x: jnp.flip(x) - x, "subtract"),
    "commuted operands": (lambda x: x + jnp.flip(x), lambda x: jnp.flip(x) + x, "add"),
    "contraction": (lambda x: x @ SQUARE, lambda x: jnp.einsum("ij,kj->ik", x, SQUARE), "dot"),
    "a large constant": (lambda x: x.sum() * TABLE, lambda x: x.sum() * NUDGED, "constant"),
    "dtype": (
        lambda x: x * 2, lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32), "convert"),
    "one more instruction": (lambda x: jnp.exp(x), lambda x: jnp.exp(jnp.sin(x)), "sine"),
    "another opcode": (lambda x: jnp.exp(x), lambda x: jnp.cos(x), "exponential"),
    "the order of arguments": (lambda x, y: x - y, lambda x, y: y - x, "subtract"),
    "the order of results": (lambda x: (x + 1, x * 2), lambda x: (x * 2, x + 1), "constant"),
    "trip count": (lambda x: scaled(x), lambda x: jax.lax.scan(
        lambda c, _: (jnp.tanh(c * 0.9) + 1.0, None), x, length=8)[0], "constant"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_named(planted: str) -> None:
    *functions, opcode = PLANTED[planted]
    if FUSED and planted == "the order of arguments":
        pytest.skip("XLA fuses the whole program where its flags are not known")
    args = (X, X + 1) if planted == "the order of arguments" else (X,)
    one, other = (program(function, *args) for function in functions)
    compared = difference(one, other)
    assert not compared["identical"] and one.sha256 != other.sha256
    assert opcode in {side["name"] for side in (compared["one"], compared["other"]) if side}
    assert compared["place"] in compared["sentence"]
    assert difference(one, one)["identical"] and difference(other, other)["identical"]
    assert difference(other, one)["one"] == compared["other"]


@pytest.mark.library_promotion("norms broadcast and promote")
def test_an_operation_of_two_libraries_has_both_sources() -> None:
    """Flax computes a variance from the mean of squares, Haiku from deviations."""
    haiku = hk.transform(lambda x: hk.LayerNorm(-1, False, False)(x))
    linen = nn.LayerNorm(use_bias=False, use_scale=False)
    compared = difference(
        program(lambda x: haiku.apply({}, None, x), X), program(lambda x: linen.apply({}, x), X)
    )
    sources = {side["source"] for side in (compared["one"], compared["other"]) if side}
    assert sources and all(
        source.startswith(("haiku/_src/layer_norm.py:", "flax/linen/normalization.py:"))
        for source in sources
    )


def rotated(x: jax.Array) -> jax.Array:
    """Rearrange, then compute."""
    return jnp.sum(jnp.exp(jnp.roll(x, 1, axis=0).T), axis=0)


def rearranged(x: jax.Array) -> jax.Array:
    """Rearrange otherwise, and compute something else."""
    return jnp.sum(jnp.sin(jnp.roll(x, 2, axis=0).T), axis=0)


def test_what_may_round_comes_before_what_rearranges() -> None:
    compared = difference(program(rotated, X), program(rearranged, X))
    assert [compared[side]["name"] for side in ("one", "other")] == ["exponential", "sine"]


def test_donated_arguments_are_a_difference() -> None:
    compared = difference(program(jnp.sin, X), program(jnp.sin, X, donate_argnums=0))
    assert not compared["identical"] and compared["place"] is None
    assert "aliases" in compared["sentence"]


def test_a_text_without_its_constants_is_not_called_the_same() -> None:
    texts = [compiled(function, X).as_text() for function in PLANTED["a large constant"][:2]]
    if "{...}" not in texts[0]:
        pytest.skip("this version of JAX prints large constants")
    compared = difference(*map(Program, texts))
    assert not compared["identical"] and "constants" in compared["sentence"]


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):"])
def test_a_text_that_is_no_program_is_an_error(text: str) -> None:
    with pytest.raises(TriglotError, match="expected the text of optimized HLO"):
        Program(text)


ORDER = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %a = f32[2]{0} sine(%x)
  %b = f32[2]{0} cosine(%x)
  ROOT %c = f32[2]{0} add(%a, %b)
}
"""


def test_an_order_is_called_an_order() -> None:
    lines = ORDER.splitlines(keepends=True)
    lines[4], lines[5] = lines[5], lines[4]
    compared = difference(Program(ORDER), Program("".join(lines)))
    assert not compared["identical"] and "in another order" in compared["sentence"]
    assert [compared[side]["name"] for side in ("one", "other")] == ["sine", "cosine"]


TPU = """HloModule jit_f, entry_computation_layout={(f32[2]{0})->(f32[2]{0}, s32[])}

%region (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %r = f32[] maximum(%a, %b), metadata={op_name="max{}(%x" source_file="/o/f.py" source_line=7}
}

ENTRY %main (x: f32[8,128]) -> (f32[], f32[8,128]) {
  %x.1 = f32[8,128]{1,0:T(8,128)} parameter(0), metadata={op_name="params['%x.1']"}
  %zero = f32[] constant(-inf)
  %m = f32[] reduce(%x.1, %zero), dimensions={0,1}, to_apply=%region
  ROOT %t = (f32[], /*index=1*/f32[8,128]{1,0:T(8,128)}) tuple(%m, %x.1), backend_config={"s":"a(%"}
}
"""


def test_layouts_quotes_and_tuples_are_read() -> None:
    read = Program(TPU)
    assert [each.opcode for each in read.instructions] == [
        "parameter", "parameter", "maximum", "parameter", "constant", "reduce", "tuple",
    ]  # fmt: skip
    assert not any("metadata" in line for line in read.plain)
    assert read.instructions[-1].text.endswith('tuple(%, %), backend_config={"s":"a(%"}')
    assert Program(TPU.replace("%zero", "%none").replace("source_line=7", "")).sha256 == read.sha256


def test_a_description_counts() -> None:
    def network(image: jax.Array, kernel: jax.Array, weights: jax.Array) -> jax.Array:
        image = jax.lax.conv_general_dilated(image, kernel, (1, 1), "SAME")
        return jnp.tanh(image.reshape(2, -1) @ weights) @ weights.T

    args = jnp.ones((2, 3, 8, 8)), jnp.ones((4, 3, 3, 3)), jnp.ones((256, 32))
    facts = describe(compiled(network, *args))
    assert facts["dots"] == 2 and facts["convolutions"] == 1
    assert facts["instructions"] > facts["fusions"] >= 0
    products = 2 * 2 * (2 * 256 * 32)
    assert facts["flops"] > products and facts["bytes_accessed"] > 4 * 256 * 32
    again = describe(compiled(lambda a, b, c: network(a, b, c), *args))
    assert again == facts
    other = describe(compiled(lambda a, b, c: network(a, b, c) * 0.5, *args))
    assert other["sha256"] != facts["sha256"]
