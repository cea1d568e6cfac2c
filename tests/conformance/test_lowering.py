"""Every training program can be lowered for GPUs and TPUs, which shows what exists on a CPU only.

`jax.export` lowers without such a device. Programs of Python environments are left out: they hold
nothing but `act` and `update`, which are lowered here with JAX environments.
"""

from typing import Any, NamedTuple

import jax
import pytest
from jax import export

import triglot
from benchmarks.cases import LIBRARIES
from tests.conformance.test_matrix import FITTING, Training, make
from tests.covering import pairwise
from triglot.core.loop.trainer import init_seeds
from triglot.core.trainers import make_trainer

PLATFORMS = ("cuda", "tpu")
JITTED = pairwise(case for case in FITTING if not case.env.startswith("gymnasium"))
MEMORY = "gymnax:MemoryChain-bsuite"


class Variant(NamedTuple):
    """A program that an option changes; `backend` is where the quick tests lower it."""

    algorithm: str
    env: str
    backend: str
    config: dict[str, Any]


VARIANTS = [
    Variant("ppo", MEMORY, "haiku", {"cell": "lstm"}),
    Variant("ppo", MEMORY, "equinox", {"cell": "gru"}),
    Variant("ppo", "gymnax:Breakout-MinAtar", "nnx", {"shared_torso": True}),
    Variant("ppo", "gymnax:Pendulum-v1", "linen", {"normalize_obs": True, "scale_rewards": True}),
    Variant("dqn", "gymnax:CartPole-v1", "nnx", {"prioritized": True, "n_step": 3}),
    Variant("dqn", "gymnax:Breakout-MinAtar", "equinox", {"dueling": True, "double": True}),
    Variant("q_learning", "gridworld:4x4", "table", {"method": "expected_sarsa"}),
]


def exported(agent: Any, env: Any, *, num_seeds: int = 2) -> list[export.Exported]:
    """Lower initialization and a chunk of updates of several seeds for `PLATFORMS`."""
    trainer: Any = make_trainer(agent, env)

    def init(keys: jax.Array) -> Any:
        return init_seeds.function(trainer, keys)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), num_seeds))
    states = jax.eval_shape(init, keys)
    programs = ((init, keys), (jax.vmap(trainer.train_chunk), states))
    return [export.export(jax.jit(f), platforms=PLATFORMS)(given) for f, given in programs]


@pytest.mark.covering(124)
@pytest.mark.parametrize("case", JITTED, ids="-".join)
@pytest.mark.library_promotion("brax, jumanji and gymnax mix integers and floats")
def test_a_training_is_lowered(case: Training) -> None:
    env = triglot.make_env(case.env)
    for program in exported(make(case, env), env):
        assert program.platforms == PLATFORMS


LOWERED = [
    pytest.param(v, backend, marks=() if backend == v.backend else pytest.mark.slow)
    for v in VARIANTS
    for backend in (*LIBRARIES, "table")
    if (backend == "table") == (v.backend == "table")  # a table reads what is discrete
]


@pytest.mark.slow
@pytest.mark.parametrize(("variant", "backend"), LOWERED)
@pytest.mark.library_promotion("gymnax mixes integers and floats")
def test_a_variant_is_lowered(variant: Variant, backend: str) -> None:
    env = triglot.make_env(variant.env)
    agent = make(Training(variant.algorithm, backend, variant.env), env, **variant.config)
    assert [program.platforms for program in exported(agent, env)] == [PLATFORMS] * 2


def test_a_program_for_one_platform_is_found() -> None:
    def for_cpus(x: jax.Array) -> jax.Array:
        return jax.lax.platform_dependent(x, cpu=lambda x: x + 1)

    with pytest.raises(Exception, match="platform"):
        export.export(jax.jit(for_cpus), platforms=PLATFORMS)(jax.numpy.zeros(3))
