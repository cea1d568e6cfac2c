"""Objects that are not environments, and a word that the finding must contain."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnax.registration import make as make_library_env

from triglot.core.environment import first_step
from triglot.core.specs import Box, Discrete

from .sound_environments import Walk


class Broken:
    """A walk, with some of its parts replaced by those given."""

    def __init__(self, **parts: Any) -> None:
        self.name, self.walk = "broken", Walk()
        self.obs_spec, self.action_spec = Walk.obs_spec, Walk.action_spec
        self.reset, self.step = self.walk.reset, self.walk.step
        for name, part in parts.items():
            setattr(self, name, part)


class Lacks(Broken):
    def __init__(self, part: str) -> None:
        super().__init__()
        delattr(self, part)


class FailsWhenAsked(Walk):
    @property
    def obs_spec(self) -> Any:  # type: ignore[override]
        raise RuntimeError("the level file is missing")


class WithMethodsForSpecs(Walk):
    def obs_spec(self) -> Any:  # type: ignore[override]
        return Walk.obs_spec


class AsyncStep(Walk):
    async def step(self, state: Any, action: Any, key: Any) -> Any:  # type: ignore[override]
        return super().step(state, action, key)


def stepping(change: Any) -> Broken:
    """Change the TimeStep of each step."""
    return Broken(step=lambda state, action, key: change(Walk().step(state, action, key)))


def always(**fields: Any) -> Broken:
    """Set fields of the TimeStep of each step."""
    return stepping(lambda step: replace(step, **fields))


def starting(**fields: Any) -> Broken:
    """Set fields of the TimeStep of each reset."""
    return Broken(reset=lambda key: replace(Walk().reset(key), **fields))


def raising(error: Exception) -> Any:
    def method(*args: Any) -> Any:
        raise error

    return method


def a_list(key: Any) -> Any:
    yield Walk().reset(key)


def looped(state: Any, action: Any, key: Any) -> Any:
    total = 0.0
    while state.position + total < 1:
        total = total + 1
    return Walk().step(state, action, key)


def indexed(state: Any, action: Any, key: Any) -> Any:
    pushes = [-1, 0, 1]
    return replace(Walk().step(state, action, key), reward=jnp.float32(pushes[action]))


def counted(state: Any, action: Any, key: Any) -> Any:
    return replace(Walk().step(state, action, key), obs=jnp.zeros((state.time.item() + 2,)))


def vanishing(state: Any, action: Any, key: Any) -> Any:
    step = Walk().step(state, action, key)
    return replace(step, state=None)


def old_keys(key: Any) -> Any:
    return Walk().reset(jax.random.PRNGKey(key))


FIVE = ("obs", "state", "reward", "done", "info")

MALFORMED: dict[str, tuple[Any, str]] = {
    "nothing": (None, "None"),
    "a number": (42, "42"),
    "a dictionary": ({"reset": len}, "dictionary"),
    "a function": (lambda: Walk(), "name"),
    "its class": (Walk, "Walk is a class"),
    "Gymnasium's": (gymnasium.make("CartPole-v1"), "Gymnasium"),
    "gymnax's": (make_library_env("CartPole-v1")[0], "gymnax"),
    "no name": (Lacks("name"), "has no name"),
    "no obs_spec": (Lacks("obs_spec"), "has no obs_spec"),
    "no action_spec": (Lacks("action_spec"), "has no action_spec"),
    "no reset": (Lacks("reset"), "has no reset"),
    "no step": (Lacks("step"), "has no step"),
    "a number for a name": (Broken(name=3), "3"),
    "a property that raises": (FailsWhenAsked(), "level file is missing"),
    "a method for a spec": (WithMethodsForSpecs(), "a method"),
    "a Gymnasium space": (Broken(action_spec=gymnasium.spaces.Discrete(3)), "gymnasium's Discrete"),
    "a shape for a spec": (Broken(obs_spec=(2,)), "tuple"),
    "a dtype unheard of": (Broken(obs_spec=SimpleNamespace(shape=(2,))), "SimpleNamespace"),
    "a reset without a key": (Broken(reset=lambda: None), "reset(key)"),
    "a reset that wants more": (Broken(reset=lambda key, params: None), "params"),
    "a step without a key": (Broken(step=lambda state, action: None), "step(state, action, key)"),
    "arguments in another order": (
        Broken(step=lambda key, state, action: Walk().step(state, action, key)),
        "another order",
    ),
    "arguments in another order, unnamed": (
        Broken(step=lambda a, b, c: Walk().step(b, c, a)),
        "step(state, action, key)",
    ),
    "no methods but values": (Broken(step=3), "expected a function"),
    "a generator": (Broken(reset=a_list), "generator"),
    "a coroutine": (AsyncStep(), "coroutine"),
    "a reset to nothing": (Broken(reset=lambda key: None), "None"),
    "a reset to an observation": (Broken(reset=lambda key: jnp.zeros((2,))), "float32[2]"),
    **{
        f"{n} values": (Broken(step=lambda s, a, k, n=n: (*FIVE, "x")[:n]), f"a tuple of {n}")
        for n in (4, 5, 6)
    },
    "a reset that raises": (Broken(reset=raising(KeyError("map"))), "KeyError: 'map'"),
    "a step that raises": (Broken(step=raising(ZeroDivisionError("oops"))), "oops"),
    "a step that asserts": (Broken(step=raising(AssertionError())), "AssertionError"),
    "a key of another kind": (Broken(reset=old_keys), "`reset(key)` raised"),
    "a list for an observation": (always(obs=[0.0, 1.0]), "obs.0"),
    "text in the state": (always(state={"phase": "start"}), "'start'"),
    "no observation": (always(obs=None), "obs"),
    "no reward": (always(reward=None), "`reward`"),
    "a reward in Python": (always(reward=1.0), "`reward`"),
    "a reward for each action": (always(reward=jnp.zeros((3,), jnp.float32)), "float32[3]"),
    "a reward of NaN": (always(reward=jnp.float32(np.nan)), "nan"),
    "a flag of NumPy": (always(terminated=np.int64(0)), "`terminated`"),
    "half precision": (always(reward=jnp.float16(0)), "float16"),
    "an observation too long": (always(obs=jnp.zeros((3,), jnp.float32)), "float32[3]"),
    "an observation in a tuple": (always(obs=(jnp.zeros((2,), jnp.float32),)), "a tuple of 1"),
    "an endless observation": (always(obs=jnp.full((2,), jnp.inf, jnp.float32)), "inf"),
    "a state that vanishes": (Broken(step=vanishing), "state"),
    "a state of objects": (starting(state=np.array([object()])), "object"),
    "a Python loop": (Broken(step=looped), "`while`"),
    "a Python index": (Broken(step=indexed), "index"),
    "a shape from a value": (Broken(step=counted), "shape"),
    "a mask for a Box": (
        Broken(
            action_spec=Box((), "float32", 0.0, 2.0),
            reset=lambda key: replace(Walk().reset(key), action_mask=jnp.ones((3,), bool)),
            step=lambda s, a, k: replace(Walk().step(s, a, k), action_mask=jnp.ones((3,), bool)),
        ),
        "action_mask",
    ),
    "an end at once and always": (
        always(truncated=jnp.ones((), bool), terminated=jnp.ones((), bool)),
        "both",
    ),
    "an observation of nothing": (
        Broken(reset=lambda key: first_step(None, None), obs_spec=Discrete(2)),
        "step",
    ),
}
