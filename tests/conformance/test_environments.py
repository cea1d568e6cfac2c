"""One suite of checks over all environments."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from triglot.checks.environment.check import check_environment
from triglot.core.environment import Environment, TimeStep
from triglot.core.wrappers.ends import TimeLimit
from triglot.envs import gridworld, gymnax, probes

# MNISTBandit is not among gymnax.names(): it downloads its images.
# A representative handful is checked always: both kinds of action, both flags, wrongly declared
# dtypes and bounds, an integer reward, an integer observation.
FAST_GYMNAX = {
    "CartPole-v1",
    "Pendulum-v1",
    "Catch-bsuite",
    "DeepSea-bsuite",
    "UmbrellaChain-bsuite",
    "FourRooms-misc",
    "FrozenLake-misc",
}
# The sizes differ in numbers only; both observations are checked always.
FAST_GRIDWORLDS = {("4x4", "index"), ("8x8", "onehot")}


def cases() -> list[Any]:
    """List (suite, name, options) for all environments, the costly ones marked slow."""
    return [
        *(pytest.param(probes, name, {}, id=f"probe:{name}") for name in probes.names()),
        *(
            pytest.param(
                gridworld,
                name,
                {"observation": observation},
                id=f"gridworld:{name}-{observation}",
                marks=() if (name, observation) in FAST_GRIDWORLDS else pytest.mark.slow,
            )
            for name in gridworld.names()
            for observation in ("index", "onehot")
        ),
        *(
            pytest.param(
                gymnax,
                name,
                {},
                id=f"gymnax:{name}",
                marks=() if name in FAST_GYMNAX else pytest.mark.slow,
            )
            for name in gymnax.names()
        ),
    ]


all_environments = pytest.mark.parametrize(("suite", "name", "options"), cases())


@all_environments
def test_it_is_an_environment_that_hashes_by_value(
    suite: ModuleType, name: str, options: dict[str, Any]
) -> None:
    env = suite.make(name, **options)
    again = suite.make(name, **options)
    assert isinstance(env, Environment)
    assert env.name.endswith(f":{name}")
    assert env == again
    assert hash(env) == hash(again)
    assert hash(env.obs_spec) == hash(again.obs_spec)
    assert hash(env.action_spec) == hash(again.action_spec)


@pytest.mark.slow
@all_environments
def test_it_passes_the_check_of_environments(
    suite: ModuleType, name: str, options: dict[str, Any]
) -> None:
    report = check_environment(suite.make(name, **options))
    assert report.passed, str(report)


@pytest.mark.parametrize(
    "make",
    [
        lambda: probes.make("two-step"),
        lambda: gridworld.make("4x4"),
        lambda: gymnax.make("CartPole-v1"),
        lambda: TimeLimit(gridworld.make("4x4"), 7),
    ],
    ids=["probe", "gridworld", "gymnax", "time limit"],
)
def test_equal_environments_share_one_compilation(make: Callable[[], Environment]) -> None:
    traces = 0

    def reset(env: Environment, key: jax.Array) -> TimeStep:
        nonlocal traces
        traces += 1
        return env.reset(key)

    jitted = jax.jit(reset, static_argnums=0)
    jitted(make(), jax.random.key(0))
    step = jitted(make(), jax.random.key(1))
    assert traces == 1
    assert jnp.shape(step.reward) == ()
