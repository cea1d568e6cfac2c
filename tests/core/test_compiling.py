"""Whole programs get compiler options, unless the user states the level."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot.core import compiling
from triglot.core.compiling import WholeProgram, compiler_options


@pytest.mark.parametrize(
    ("flags", "options"),
    [
        ("--xla_cpu_use_fusion_emitters=false", {compiling.LEVEL: 1}),
        ("--xla_backend_optimization_level=2", {}),
    ],
)
def test_a_level_in_xla_flags_is_kept(
    monkeypatch: pytest.MonkeyPatch, flags: str, options: dict[str, int]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert compiler_options() == {}  # the tests leave out most optimizations
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        assert compiler_options() == options
    finally:
        jax.config.update("jax_disable_most_optimizations", True)


def test_the_options_reach_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compiler_options", lambda: {"xla_no_such_option": 1})
    with pytest.raises(Exception, match="xla_no_such_option"):
        WholeProgram(lambda x: x)(jnp.zeros(1))


def test_a_program_may_need_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compiler_options", lambda: {"xla_no_such_option": 1})
    program = WholeProgram(lambda x: x, needs_default=lambda x: x.size == 2)
    assert program(jnp.zeros(2)).shape == (2,)
    with pytest.raises(Exception, match="xla_no_such_option"):
        program(jnp.zeros(1))


def test_a_program_is_compiled_once_ahead_of_time_and_by_calls() -> None:
    traced = []

    def double(x: jax.Array) -> jax.Array:
        traced.append(x)
        return 2 * x

    program = WholeProgram(double)
    program.lower(jax.ShapeDtypeStruct((3,), jnp.int32)).compile()
    assert program(jnp.arange(3, dtype=jnp.int32)).tolist() == [0, 2, 4]
    assert len(traced) == program.num_programs() == 1
    jax.jit(program)(jnp.zeros(3))  # inside of another program, which has its own options
    named: Any = program
    assert named.__name__ == "double"  # by which the profile and the cache call it
