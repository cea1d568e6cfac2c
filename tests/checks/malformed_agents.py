"""Objects that are not agents, and the words that the finding must contain."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests.checks.malformed_networks import Malformed, raising
from tests.checks.sound_agent import ENV, ActorCritic
from triglot import check_agent
from triglot.algorithms.ppo import PPO
from triglot.core.agent import PolicyOutput


def checked(name: str, agent: Any, words: str, env: Any = ENV) -> Malformed:
    return Malformed(name, partial(check_agent, agent, env), words)


def but(**parts: Any) -> Any:
    """Build the correct agent with other methods or properties."""
    return type("Mine", (ActorCritic,), parts)()


def acting(change: Callable[[PolicyOutput], Any]) -> Any:
    """Build the correct agent with another result of act."""

    def act(self: Any, *args: Any, explore: bool) -> Any:
        return change(ActorCritic.act(self, *args, explore=explore))

    return but(act=act)


def action(change: Callable[[jax.Array], Any]) -> Any:
    """Build the correct agent with other actions."""
    return acting(lambda d: PolicyOutput(action=change(d.action), carry=d.carry, extras=d.extras))


def extras(given: Any) -> Any:
    return acting(lambda d: PolicyOutput(action=d.action, carry=d.carry, extras=given))


def updating(change: Callable[[Any, dict[str, jax.Array]], Any]) -> Any:
    """Build the correct agent with another result of update."""

    def update(self: Any, *args: Any) -> Any:
        return change(*ActorCritic.update(self, *args))

    return but(update=update)


def state(change: Callable[[Any], Any]) -> Any:
    """Build the correct agent with another state."""
    return but(init=lambda self, *args: change(ActorCritic.init(self, *args)))


def remembering(carry: Callable[[int], Any]) -> Any:
    return but(initial_carry=lambda self, state, num_envs: carry(num_envs))


def unreadable() -> Any:
    """Make an object whose first attribute raises."""

    def hyper(self: Any) -> Any:
        raise RuntimeError("no config was read")

    return type("Mine", (), {"hyper": property(hyper)})()


AGENTS = [
    checked("nothing", None, "None has no"),
    checked("a function", raising, "a function has no hyper"),
    checked("the class of an agent", PPO, "the class PPO; expected an instance"),
    checked("a count of 0", ActorCritic(num_envs=0), "num_envs is 0; expected an integer"),
    checked("a count of a half", ActorCritic(rollout_length=2.5), "rollout_length is 2.5"),  # pyright: ignore[reportArgumentType]
    checked("an array for a count", ActorCritic(num_envs=np.int64(2)), "expected an integer"),  # pyright: ignore[reportArgumentType]
    checked("a property that raises", unreadable(), "no config was read"),
    checked("act is no method", but(act=None), "its act is None"),
    checked("a dictionary for a field", ActorCritic(hyper={}), "unhashable type"),  # pyright: ignore[reportArgumentType]
    checked("the class of an environment", ActorCritic(), "the class TwoStep", type(ENV)),
    checked("no environment", ActorCritic(), "env is None; expected an Environment", None),
    checked("init raises", but(init=raising), "`init(key, num_envs)` raised KeyError: 'torso'"),
    checked(
        "init takes a key only", but(init=lambda self, key: {}), "called as init(key, num_envs)"
    ),
    checked(
        "a network in the state", state(lambda s: {**s, "f": jnp.tanh}), "expected a JAX array"
    ),
    checked(
        "a NumPy array in the state", state(lambda s: {**s, "n": np.zeros(2)}), "NumPy float64"
    ),
    checked("no state", state(lambda s: None), "raised"),
    checked("initial_carry raises", but(initial_carry=raising), "initial_carry"),
    checked("a carry for one", remembering(lambda n: jnp.zeros((3,))), "expected shape [2, ...]"),
    checked("act raises", but(act=raising), "raised KeyError: 'torso'"),
    checked("act without explore", but(act=lambda self, s, m, v, k: None), "explore"),
    checked("act gives an array", acting(lambda d: d.action), "it returned int32[2]"),
    checked("act gives a pair", acting(lambda d: (d.action, d.carry)), "it returned a tuple"),
    checked("one action for all", action(lambda a: a[0]), "int32[]; expected shape [2, ...]"),
    checked("actions one-hot", action(lambda a: jax.nn.one_hot(a, 2)), "expected shape ()"),
    checked("actions of float", action(lambda a: a.astype(jnp.float32)), "float32"),
    checked("actions below 0", action(lambda a: a - 5), "within [0, 1]"),
    checked("actions of NumPy", action(np.asarray), "NumPy int32[2]"),
    checked("extras of a list", extras([1.0]), "extras is a list"),
    checked("extras of numbers", extras({"value": 1.0}), "the Python float 1.0"),
    checked("extras of one", extras({"value": jnp.zeros(())}), "expected shape [2, ...]"),
    checked("update raises", but(update=raising), "raised KeyError: 'torso'"),
    checked("update takes no key", but(update=lambda self, s, t: (s, {})), "too many positional"),
    checked("update gives the state only", updating(lambda s, m: s), "expected the pair"),
    checked("update gives nothing", updating(lambda s, m: None), "returned None"),
    checked("update drops a part", updating(lambda s, m: ({"params": s["params"]}, m)), "absent"),
    checked(
        "update changes a shape",
        updating(lambda s, m: ({**s, "count": s["count"][None]}, m)),
        "count was int32[] and is int32[1]",
    ),
    checked("metrics of a list", updating(lambda s, m: (s, list(m))), "the metrics are a list"),
    checked("metrics of numbers", updating(lambda s, m: (s, {"loss": 1.0})), "metric 'loss' is"),
    checked("metrics by number", updating(lambda s, m: (s, {0: m["loss"]})), "metric 0"),
    checked("metrics of vectors", updating(lambda s, m: (s, {"a": jnp.zeros(3)})), "float32[3]"),
]
