"""What every environment owes: one suite of checks over all of them."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core import specs
from triglot.core.environment import Environment, TimeLimit, TimeStep
from triglot.core.vectorize import VectorEnvironment
from triglot.envs import gridworld, gymnax, probes

NUM_ENVS, NUM_STEPS = 2, 48

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


def cases() -> list[Any]:
    """List (suite, name, options) for all environments, the costly ones marked slow."""
    return [
        *(pytest.param(probes, name, {}, id=f"probe:{name}") for name in probes.names()),
        *(
            pytest.param(
                gridworld, name, {"observation": observation}, id=f"gridworld:{name}-{observation}"
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


@all_environments
def test_its_types_are_declared_and_never_change(
    suite: ModuleType, name: str, options: dict[str, Any]
) -> None:
    env = suite.make(name, **options)
    key = jax.random.key(0)
    action = specs.zeros(env.action_spec)
    start = jax.eval_shape(env.reset, key)
    after = jax.eval_shape(env.step, start.state, action, key)
    assert types(start) == types(after)
    assert not any(weak for _, _, weak in jax.tree.leaves(types(start), is_leaf=is_type))
    assert types(start.obs) == types(specs.zeros(env.obs_spec))
    assert types(start.reward) == ((), "float32", False)
    assert types(start.terminated) == types(start.truncated) == ((), "bool", False)


@all_environments
def test_it_runs_under_jit_vmap_and_scan(
    suite: ModuleType, name: str, options: dict[str, Any]
) -> None:
    env = suite.make(name, **options)
    obs, transition = play(env)
    assert_fits(env.obs_spec, obs)
    assert_fits(env.obs_spec, transition.next_obs)
    assert np.isfinite(transition.reward).all()
    assert not (transition.terminated & transition.truncated).any()


def play(env: Environment) -> tuple[Any, Any]:
    """Take random actions; return what was observed, `[T, N, ...]`, and the transitions."""
    vector = VectorEnvironment(env, NUM_ENVS)

    @jax.jit
    def run(key: jax.Array) -> Any:
        reset_key, steps_key = jax.random.split(key)

        def step(state: Any, step_key: jax.Array) -> Any:
            action_key, env_key = jax.random.split(step_key)
            action_keys = jax.random.split(action_key, NUM_ENVS)
            action = jax.vmap(lambda k: specs.sample(env.action_spec, k))(action_keys)
            next_state, transition = vector.step(state, action, env_key)
            return next_state, (state.obs, transition)

        return jax.lax.scan(step, vector.reset(reset_key), jax.random.split(steps_key, NUM_STEPS))[
            1
        ]

    return run(jax.random.key(1))


def assert_fits(spec: specs.Spec, batch: jax.Array) -> None:
    """Check that every observation of `[T, N, ...]` lies within the spec's bounds, NaN excluded."""
    assert isinstance(spec, specs.Discrete | specs.Box)
    low, high = (0, spec.num_values - 1) if isinstance(spec, specs.Discrete) else spec.bounds()
    values = np.asarray(batch)
    assert ((values >= low) & (values <= high)).all()


def types(tree: Any) -> Any:
    """Replace each array by its (shape, dtype, whether weakly typed)."""
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype), leaf.weak_type), tree)


def is_type(leaf: Any) -> bool:
    """Tell what `types` made of an array."""
    return isinstance(leaf, tuple)


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
