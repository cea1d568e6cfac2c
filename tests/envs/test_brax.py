"""brax's adapter: pure steps, ends told apart, the viewer's page."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from brax import envs as library_envs

from triglot.core import specs
from triglot.core.environment import Environment
from triglot.core.errors import TriglotError
from triglot.core.loop.vectorize import VectorEnvironment
from triglot.envs import adapting, brax
from triglot.envs.adapting import Adapted

PROMOTES = pytest.mark.library_promotion("brax's own `step` mixes dtypes")


@pytest.fixture(scope="module")
def pendulum() -> Adapted:
    return brax.make("inverted_pendulum", episode_length=3)


@pytest.fixture(scope="module")
def start(pendulum: Adapted) -> Any:
    return jax.jit(pendulum.reset)(jax.random.key(0))


@pytest.fixture(scope="module")
def step(pendulum: Adapted) -> Any:
    return jax.jit(pendulum.step)


@pytest.fixture(scope="module")
def fall(start: Any) -> tuple[Any, Any]:
    """Push until the pole falls; give the steps before and after."""
    longer, after = jax.jit(brax.make("inverted_pendulum").step), start
    before = after
    while not after.terminated:
        before, after = after, longer(after.state, jnp.ones(1), jax.random.key(1))
    return before, after


def types(tree: Any) -> Any:
    """Replace each array by its (shape, dtype, whether weakly typed)."""
    return jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype), leaf.weak_type), tree)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=() if n == "inverted_pendulum" else pytest.mark.slow)
        for n in brax.names()
    ],
)
def test_it_keeps_to_its_specs(name: str) -> None:
    env = brax.make(name)
    assert isinstance(env, Environment)
    assert env.name == f"brax:{name}"
    assert env == brax.make(name, backend="spring")
    assert hash(env) == hash(brax.make(name))
    assert env != brax.make(name, episode_length=7)
    start = jax.eval_shape(env.reset, jax.random.key(0))
    after = jax.eval_shape(env.step, start.state, specs.zeros(env.action_spec), jax.random.key(0))
    assert types(start) == types(after)
    assert not any(leaf.weak_type for leaf in jax.tree.leaves(start))
    assert types(start.obs) == types(specs.zeros(env.obs_spec))
    assert isinstance(env.action_spec, specs.Box)
    low, high = env.action_spec.bounds()
    assert (low == -1.0).all()
    assert (high == 1.0).all()


@pytest.mark.slow
def test_it_runs_batched_in_a_scan(pendulum: Adapted) -> None:
    vector = VectorEnvironment(pendulum, 3)

    @jax.jit
    def run(key: jax.Array) -> Any:
        def step(state: Any, key: jax.Array) -> Any:
            action_key, env_key = jax.random.split(key)
            action = jax.random.uniform(action_key, (3, 1), minval=-1.0, maxval=1.0)
            return vector.step(state, action, env_key)

        return jax.lax.scan(step, vector.reset(key), jax.random.split(key, 7))[1]

    transition = run(jax.random.key(0))
    assert np.isfinite(transition.next_obs).all()
    np.testing.assert_array_equal(transition.reward, np.ones((7, 3), np.float32))
    # Nobody falls within three steps: every episode is cut.
    assert not transition.terminated.any()
    ends = np.repeat(np.arange(1, 8)[:, None] % 3 == 0, 3, axis=1)
    np.testing.assert_array_equal(transition.truncated, ends)
    assert len(np.unique(transition.next_obs[3], axis=0)) == 3  # starts are fresh


@pytest.mark.slow
def test_the_limit_truncates(start: Any, step: Any) -> None:
    flags, now = [], start
    for _ in range(3):
        now = step(now.state, jnp.zeros(1), jax.random.key(1))
        flags.append((bool(now.terminated), bool(now.truncated)))
    assert flags == [(False, False), (False, False), (False, True)]


@pytest.mark.slow
def test_a_fall_terminates(fall: tuple[Any, Any]) -> None:
    _, fallen = fall
    assert not fallen.truncated
    assert abs(fallen.obs[1]) > 0.2


@pytest.mark.slow
def test_a_fall_at_the_limit_is_terminated(fall: tuple[Any, Any], step: Any) -> None:
    before = fall[0].state
    at_the_limit = before.replace(info={**before.info, adapting.STEPS: jnp.int32(2)})
    fallen = step(at_the_limit, jnp.ones(1), jax.random.key(1))
    assert (bool(fallen.terminated), bool(fallen.truncated)) == (True, False)


@pytest.mark.slow
@PROMOTES
def test_it_agrees_with_brax_from_the_same_state(start: Any, step: Any) -> None:
    library = library_envs.get_environment("inverted_pendulum", backend="spring")
    ours, theirs, theirs_step = (
        start,
        jax.jit(library.reset)(jax.random.key(0)),
        jax.jit(library.step),
    )
    for number in range(12):
        action = jnp.full(1, np.sin(number), jnp.float32)
        ours = step(ours.state, action, jax.random.key(0))
        theirs = theirs_step(theirs, action)
        np.testing.assert_array_equal(ours.obs, theirs.obs)
        assert ours.reward == theirs.reward
        assert bool(ours.terminated) == bool(theirs.done)


def test_a_step_leaves_the_state_it_was_given_alone(pendulum: Adapted, start: Any) -> None:
    before = {**start.state.info}

    @jax.jit
    def kept(state: Any) -> Any:
        pendulum.step(state, jnp.ones(1), jax.random.key(1))
        return state.info

    assert kept(start.state) == before


@pytest.mark.slow
def test_it_may_be_first_used_while_a_program_is_traced() -> None:
    env = brax.make("inverted_pendulum")
    adapting._adapter.cache_clear()
    jax.jit(env.reset)(jax.random.key(0))
    assert jax.jit(env.reset)(jax.random.key(1)).obs.shape == (4,)


def test_the_viewers_page_loads_nothing_from_a_network(
    pendulum: Adapted, fall: tuple[Any, Any], tmp_path: Path
) -> None:
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), fall[0].state, fall[1].state)
    pendulum.draw(states, str(tmp_path / "episode.html"))
    page = (tmp_path / "episode.html").read_text()
    assert not re.findall(r"(?:src|href)\s*=\s*[\"']\s*(?:https?:)?//", page)
    imports = json.loads(page.split('"importmap">')[1].split("</script>")[0])["imports"]
    assert all(url.startswith("data:") for url in imports.values())
    for url in imports.values():
        code = base64.b64decode(url.partition(",")[2]).decode()
        assert set(re.findall(r"from '([^']+)'", code)) <= imports.keys()
    system = json.loads(page.split('type="application/json">')[1].split("</script>")[0])
    assert len(system["states"]["x"]) == 2


@pytest.mark.slow
def test_an_ant_that_stands_still_earns_its_healthy_reward() -> None:
    env = brax.make("ant")

    @jax.jit
    @jax.vmap
    def episode(key: jax.Array) -> Any:
        def step(now: Any, key: jax.Array) -> Any:
            after = env.step(now.state, jnp.zeros(8), key)
            return after, (after.reward, after.terminated, after.truncated)

        return jax.lax.scan(step, env.reset(key), jax.random.split(key, 1000))

    last, (reward, terminated, truncated) = episode(jax.random.split(jax.random.key(0), 3))
    assert reward.sum(axis=1).tolist() == pytest.approx([1000.0] * 3, abs=25.0)
    assert not terminated.any()
    np.testing.assert_array_equal(np.argwhere(truncated)[:, 1], [999] * 3)
    position = last.state.pipeline_state.x.pos[..., 0, 0]
    np.testing.assert_allclose(position, last.state.metrics["x_position"])


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("antt", {}, "unknown brax environment 'antt'; did you mean 'ant'"),
        ("swimmer", {}, "brax:swimmer is not supported: it calls"),
        ("ant", {"backend": "sprng"}, "unknown brax backend 'sprng'; did you mean 'spring'"),
        ("ant", {"episode_length": 0}, "episode_length of brax:ant must be at least 1, got 0"),
        ("ant", {"ctrl_cost": 1.0}, "unknown option 'ctrl_cost' of brax:ant; did you mean 'ctrl_c"),
        ("ant", {"healthy_z_range": [0, 1]}, "'healthy_z_range'.*a tuple.*got a list"),
        ("ant", {"use_contact_forces": True}, "brax:ant cannot be built on the backend 'spring'"),
    ],
)
def test_bad_input_is_explained(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        brax.make(name, **options)


def test_all_are_named_but_the_broken_and_the_empty_one() -> None:
    assert "ant" in brax.names()
    assert len(brax.names()) == 10
    assert not {"swimmer", "fast"} & set(brax.names())
