"""Whole programs get compiler options, unless the user states the level."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot.core import compiling
from triglot.core.compiling import WholeProgram, compiler_options, known_options

EMITTERS = "xla_cpu_use_fusion_emitters"
LEVEL = "xla_backend_optimization_level"
SIMPLE_FUSIONS = known_options(**{EMITTERS: False})


@pytest.fixture
def optimizations() -> Iterator[None]:
    """Optimize as for users; the other tests leave out most optimizations."""
    assert compiler_options() == {}
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)


@pytest.mark.usefixtures("optimizations")
@pytest.mark.parametrize(
    ("flags", "options", "once"),
    [
        ("", {LEVEL: 1}, {LEVEL: 1} | SIMPLE_FUSIONS),
        (f"--{EMITTERS}=true", {LEVEL: 1}, {LEVEL: 1}),
        (f"--{LEVEL}=2", {}, SIMPLE_FUSIONS),
    ],
)
def test_an_option_in_xla_flags_is_kept(
    monkeypatch: pytest.MonkeyPatch, flags: str, options: dict[str, Any], once: dict[str, Any]
) -> None:
    monkeypatch.setenv("XLA_FLAGS", flags)
    assert compiler_options() == options
    assert compiler_options(runs_once=True) == once


def test_options_that_xla_does_not_know_are_left_out() -> None:
    assert known_options(**{LEVEL: 2, "xla_no_such_option": 1}) == {LEVEL: 2}


@pytest.mark.usefixtures("optimizations")
def test_a_program_that_runs_once_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    program = WholeProgram(jnp.sin, runs_once=True)
    assert program.lower(jnp.zeros(1)).compile()(jnp.zeros(1)).tolist() == [0]


def no_such_option(**_: Any) -> dict[str, Any]:
    return {"xla_no_such_option": 1}


def test_the_options_reach_xla(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compiler_options", no_such_option)
    program = WholeProgram(lambda x: x)
    with pytest.raises(Exception, match="xla_no_such_option"):
        program(jnp.zeros(1))
    # JAX refuses options inside of another program.
    assert jax.jit(program.function)(jnp.zeros(1)).shape == (1,)


def test_a_program_may_need_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "compiler_options", no_such_option)
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
    named: Any = program
    assert named.__name__ == "double"  # by which the profile and the cache call it
