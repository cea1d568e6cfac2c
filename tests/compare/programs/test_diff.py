"""Planted differences of compiled programs are found and shown; equal ones are called the same."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.compare.programs import diff
from triglot.compare.programs.diff import SAME, diff_programs
from triglot.compare.programs.text import describe, parse, plain_text, program_text
from triglot.core.errors import TriglotError

X = jnp.arange(12.0).reshape(3, 4)
SQUARE = jnp.ones((4, 4))
TABLE = np.random.default_rng(0).normal(size=64).astype(np.float32)
NUDGED = TABLE.copy()
NUDGED[50] += 1e-3


def compiled(function: Callable, *args: Any, **options: Any) -> Any:
    """Compile a function without the cache, which would return the first program's names."""
    return jax.jit(function, **options).lower(*args).compile()


def text(function: Callable, *args: Any, **options: Any) -> str:
    """Compile a function and print its program."""
    return program_text(compiled(function, *args, **options))


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

    one, other = text(scaled, X), text(renamed, X)
    assert one != other
    found = diff_programs(one, other)
    assert found.identical and found.sentence == SAME
    assert (found.lines, found.first_difference) == ((), None)


def test_one_changed_constant_is_shown_with_its_line() -> None:
    found = diff_programs(text(scaled, X), text(functools.partial(scaled, factor=0.8), X))
    assert not found.identical
    shown = [line for line in found.lines if line.startswith(("  -", "  +"))]
    assert len(shown) == 2 and "constant(0.9)" in shown[0] and "constant(0.8)" in shown[1]
    assert "> while" in found.lines[0] and "differ in 1 of" in found.sentence
    assert found.source is not None
    file, line = found.source.rsplit(":", 1)
    assert file.endswith("tests/compare/programs/test_diff.py")
    assert int(line) == line_of(scaled, "factor)")
    assert found.source in found.sentence and found.source in shown[0]


def test_the_first_differing_fusion_is_named() -> None:
    one, other = (text(functools.partial(scaled, factor=f), X) for f in (0.9, 0.8))
    found = diff_programs(one, other)
    assert found.first_difference is not None
    fusions = [each for each in parse(one).instructions if each.opcode == "fusion"]
    assert f"%{found.first_difference}" in {each.name for each in fusions}
    assert f"fusion {found.first_difference} (" in found.sentence


PLANTED = {
    "operand order": (lambda x: x - jnp.flip(x), lambda x: jnp.flip(x) - x),
    "commuted operands": (lambda x: x + jnp.flip(x), lambda x: jnp.flip(x) + x),
    "contraction": (lambda x: x @ SQUARE, lambda x: jnp.einsum("ij,kj->ik", x, SQUARE)),
    "a large constant": (lambda x: x.sum() * TABLE, lambda x: x.sum() * NUDGED),
    "dtype": (lambda x: x * 2, lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32)),
    "one more instruction": (lambda x: jnp.exp(x), lambda x: jnp.exp(jnp.sin(x))),
    "another opcode": (lambda x: jnp.exp(x), lambda x: jnp.sin(x)),
    "the order of arguments": (lambda x, y: x - y, lambda x, y: y - x),
    "the order of results": (lambda x: (x + 1, x * 2), lambda x: (x * 2, x + 1)),
    "trip count": (lambda x: scaled(x), lambda x: jax.lax.scan(
        lambda c, _: (jnp.tanh(c * 0.9) + 1.0, None), x, length=8)[0]),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_difference_is_found(planted: str) -> None:
    functions = PLANTED[planted]
    args = (X, X + 1) if planted == "the order of arguments" else (X,)
    one, other = (text(function, *args) for function in functions)
    found = diff_programs(one, other)
    assert not found.identical and found.sentence.startswith("The compiled programs")
    assert any(line.startswith(("  -", "  +")) for line in found.lines)
    assert ("passed on" in found.sentence) == (planted == "the order of results")
    assert found.first_difference is not None
    assert diff_programs(one, one).identical and diff_programs(other, other).identical
    assert not diff_programs(other, one).identical


def test_donated_arguments_are_a_difference() -> None:
    one, other = text(jnp.sin, X), text(jnp.sin, X, donate_argnums=0)
    found = diff_programs(one, other)
    assert not found.identical and "aliases" in found.sentence


def test_a_text_without_its_constants_is_not_called_the_same() -> None:
    texts = [compiled(function, X).as_text() for function in PLANTED["a large constant"]]
    if "{...}" not in texts[0]:
        pytest.skip("this version of JAX prints large constants")
    found = diff_programs(*texts)
    assert not found.identical and "1 large constants are not printed" in found.sentence


def test_a_text_that_is_no_program_is_an_error() -> None:
    with pytest.raises(TriglotError, match="expected the text of optimized HLO"):
        diff_programs(text(jnp.sin, X), "Traceback (most recent call last):")
    with pytest.raises(TriglotError, match="expected the text of optimized HLO"):
        diff_programs("", "")


def test_an_order_is_called_an_order() -> None:
    one = """HloModule m, is_scheduled=true

ENTRY %main (x: f32[2]) -> f32[2] {
  %x = f32[2]{0} parameter(0)
  %a = f32[2]{0} sine(%x)
  %b = f32[2]{0} cosine(%x)
  ROOT %c = f32[2]{0} add(%a, %b)
}
"""
    lines = one.splitlines(keepends=True)
    lines[4], lines[5] = lines[5], lines[4]
    found = diff_programs(one, "".join(lines))
    assert not found.identical
    assert found.sentence == (
        "The compiled programs hold the same instructions, 1 of them in another order."
    )


def chain(opcode: str, count: int, step: int) -> str:
    """Write a program that applies an operation again and again, to arrays of growing sizes."""
    lines = [
        "HloModule m",
        "",
        "ENTRY %main (x0: f32[9]) -> f32[9] {",
        "  %x0 = f32[9] parameter(0)",
    ]
    for i in range(1, count):
        lines.append(f"  %x{i} = f32[{9 + step * i}] {opcode}(%x{i - 1})")
    return "\n".join([*lines, f"  ROOT %x = f32[9] copy(%x{count - 1})", "}"])


def test_long_differences_are_folded() -> None:
    found = diff_programs(chain("sine", 200, step=1), chain("cosine", 200, step=1))
    assert len(found.lines) == 1 + diff.MAX_LINES_OF_ONE + 2
    assert "  ... 193 more differing instructions" in found.lines
    assert found.lines[-1] == "  ... 2 instructions: equal"
    assert "differ in 199 of 201 instructions; first in x1." in found.sentence


def test_the_same_difference_in_many_fusions_is_shown_once() -> None:
    def repeated(function: Callable, x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = function(x) @ SQUARE
        return x

    def plus(x: jax.Array, number: float) -> jax.Array:
        return jnp.sqrt(jnp.abs(x) + number)

    texts = [
        text(functools.partial(repeated, functools.partial(plus, number=n)), X) for n in (0.3, 0.4)
    ]
    found = diff_programs(*texts)
    shown = [line for line in found.lines if "constant(0.3)" in line]
    assert 1 <= len(shown) <= 3 and any("the same in" in line for line in found.lines)
    assert not any("more computations" in line for line in found.lines)


def test_long_lists_of_computations_are_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "MAX_LINES", 0)
    texts = [text(functools.partial(scaled, factor=factor), X) for factor in (0.9, 0.8)]
    assert diff_programs(*texts).lines == ("... 1 more computations with 1 differing instructions",)


OLD_METADATA = """HloModule jit_f, entry_computation_layout={(f32[2]{0})->(f32[2]{0}, s32[])}

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


def test_a_program_of_an_older_version_is_read() -> None:
    program = parse(OLD_METADATA)
    assert program.entry == "%main" and list(program.computations) == ["%region", "%main"]
    root = program.computations["%region"][2]
    assert (root.opcode, root.source, root.attributes) == ("maximum", "/o/f.py:7", "")
    x, zero, reduce, result = program.computations["%main"]
    assert x.shape == "f32[8,128]{1,0:T(8,128)}" and x.literal == "0"
    assert zero.literal == "-inf" and reduce.calls == ("%region",)
    assert reduce.attributes == "dimensions={0,1}, to_apply=%"
    assert result.operands == ("%m", "%x.1") and result.is_root
    assert result.attributes == 'backend_config={"s":"a(%"}'
    assert "metadata" not in plain_text(OLD_METADATA)


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
