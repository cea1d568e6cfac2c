"""Objects that are not networks, and the words that the finding must contain."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import flax.linen as nn
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np

from tests.checks.sound_agent import ENV
from tests.checks.sound_network import (
    HIDDEN,
    OBS,
    answering,
    apply,
    heads,
    init,
    network,
    recurrent,
    starting,
    with_params,
)
from triglot import check_network, from_haiku, from_linen, make_agent
from triglot.core.network import Variables
from triglot.core.specs import Box, Dict


@dataclass(frozen=True)
class Malformed:
    """A component; `attempt` checks it, and the finding must contain `words`."""

    name: str
    attempt: Callable[[], Any]
    words: str


def checked(name: str, given: Any, words: str, obs_spec: Any = OBS) -> Malformed:
    return Malformed(name, partial(check_network, given, obs_spec), words)


def raising(*args: Any, **how: Any) -> Any:
    raise KeyError("torso")


def with_state(state: Any) -> Any:
    return starting(lambda made, key: Variables(params=made.params, state=state))


def returning(answer: Callable[[Variables, Any], Any]) -> Any:
    return network(apply=lambda variables, inputs, **how: answer(variables, inputs))


def numpy_in_place(params: Any, obs: Any) -> Any:
    array = np.asarray(obs)
    array[0] = 0.0
    return heads(params, jnp.asarray(array))


NETWORKS = [
    checked("nothing", None, "None"),
    checked("a number", 3, "the Python int 3"),
    checked("a dictionary", {"init": init, "apply": apply}, "a dict"),
    checked("a pair of functions", (init, apply), "a tuple"),
    checked("a module that was not lifted", nn.Dense(3), "expected a Network"),
    checked("the class of a module", nn.Dense, "the class Dense"),
    checked("a transformed function", hk.transform(lambda x: x), "expected a Network"),
    checked("init is no function", network(init=None), "its init is None"),
    checked("apply is no function", network(apply={}), "its apply is {}"),
    checked("recurrent is a word", network(recurrent="yes"), "its recurrent is 'yes'"),
    checked(
        "observations without a spec",
        network(),
        "expected a Box, Discrete, MultiDiscrete or Dict",
        (4,),
    ),
    checked("no observations", network(), "the obs_spec is None", ()),
    checked("init raises", network(init=raising), "`init(key)` raised KeyError: 'torso'"),
    checked(
        "init takes no key", network(init=lambda: init(jax.random.key(0))), "called as init(key)"
    ),
    checked(
        "init gives a dictionary",
        network(init=lambda key: {}),
        "an empty dictionary; expected Variables",
    ),
    checked("init gives nothing", network(init=lambda key: None), "None; expected Variables"),
    checked("a word among the parameters", with_params(name="mine"), "the Python str 'mine'"),
    checked(
        "NumPy parameters", with_params(w=np.zeros(3)), "NumPy float64[3]; expected a JAX array"
    ),
    checked("integer parameters", with_params(n=jnp.arange(3)), "params.n is int32[3]"),
    checked("a function in the state", with_state({"f": jnp.tanh}), "expected a JAX array"),
    checked("a key in the state", with_state({"key": jax.random.key(0)}), "random key"),
    checked("apply raises", network(apply=raising), "raised KeyError: 'torso'"),
    checked(
        "observations of another shape",
        answering(lambda p, x: heads(p, x[:, :3])),
        "TypeError",
    ),
    checked("a shape that is not 4", network(), "raised", Box((6,))),
    checked(
        "one observation where a dictionary comes",
        network(),
        "raised",
        Dict({"position": Box((4,)), "speed": Box((2,))}),
    ),
    checked("apply gives nothing", returning(lambda v, i: None), "returned None"),
    checked("apply gives three", returning(lambda v, i: (i, v.state, ())), "a tuple of 3"),
    checked("outputs of words", returning(lambda v, i: ({"a": "b"}, v.state)), "str 'b'"),
    checked("no outputs", returning(lambda v, i: ({}, v.state)), "no outputs: {}"),
    checked(
        "NumPy outputs",
        returning(lambda v, i: ({"value": np.zeros(5)}, v.state)),
        "NumPy float64[5]",
    ),
    checked(
        "outputs of one example",
        answering(lambda p, x: jax.tree.map(lambda leaf: leaf[0], heads(p, x))),
        "expected shape [5, ...]",
    ),
    checked(
        "time before the batch",
        answering(lambda p, x: {"logits": heads(p, x)["logits"].T}),
        "logits is float32[2, 5]",
    ),
    checked(
        "NaN",
        answering(lambda p, x: {"value": x[:, 0] * jnp.nan}),
        "outputs.value [5] contains nan",
    ),
    checked(
        "infinity",
        answering(lambda p, x: {"value": x[:, 0] / 0.0}),
        "inf",
    ),
    checked(
        "a mixture of dtypes",
        answering(lambda p, x: {"value": x.astype(jnp.float16)[:, 0]}),
        "the output value is float16[5]",
    ),
    checked("an assignment into NumPy", answering(numpy_in_place), "read-only"),
    checked(
        "a float of an array",
        answering(lambda p, x: {"value": x[:, 0] * float(p["value"].sum())}),
        "float(), int(), .item()",
    ),
    checked(
        "one carry for all",
        recurrent(lambda variables, num_envs: jnp.zeros((HIDDEN, num_envs))),
        "is float32[3, 5]; expected shape [5, ...]",
    ),
    checked("a recurrent network without a carry", network(recurrent=True), "contains no arrays"),
    checked("initial_carry raises", recurrent(raising), "initial_carry(variables, 5)` raised"),
    checked(
        "a recurrent network that keeps its carry",
        network(
            recurrent=True,
            initial_carry=lambda v, n: jnp.zeros((n, HIDDEN)),
            apply=lambda v, i, **how: (heads(v.params, i[0]), v.state),
        ),
        "the pair (outputs, carry)",
    ),
]


def for_ppo(module: Callable[[jax.Array], Any]) -> Any:
    """Give PPO a Haiku function as its network."""
    return make_agent("ppo", ENV, networks=from_haiku(module, ENV.obs_spec, name="mine"))


def dense(size: int, name: str) -> Any:
    return hk.Linear(size, name=name)


def policy(obs: jax.Array) -> jax.Array:
    return dense(2, "logits")(obs)


def value(obs: jax.Array) -> jax.Array:
    return dense(1, "value")(obs)[:, 0]


def heads_for_ppo(name: str, module: Callable[[jax.Array], Any], words: str) -> Malformed:
    return Malformed(name, partial(for_ppo, module), words)


HEADS = [
    heads_for_ppo(
        "a value [B, 1]",
        lambda x: {"logits": policy(x), "value": dense(1, "value")(x)},
        "returned value [B, 1]",
    ),
    heads_for_ppo(
        "three logits for two actions",
        lambda x: {"logits": dense(3, "logits")(x), "value": value(x)},
        "returned logits [B, 3]",
    ),
    heads_for_ppo("no value", lambda x: {"logits": policy(x)}, "no value (it has logits)"),
    heads_for_ppo(
        "another name",
        lambda x: {"policy": policy(x), "value": value(x)},
        "no logits (it has policy, value)",
    ),
    heads_for_ppo("a pair", lambda x: (policy(x), value(x)), "returned a tuple"),
    heads_for_ppo("an array", policy, "return a dictionary of heads"),
    heads_for_ppo(
        "integer logits",
        lambda x: {"logits": policy(x).astype(jnp.int32), "value": value(x)},
        "logits of dtype int32",
    ),
    heads_for_ppo("a module that raises", raising, "KeyError: 'torso'"),
    Malformed(
        "no network at all",
        lambda: make_agent("ppo", ENV, networks=nn.Dense(2)),  # pyright: ignore[reportArgumentType]
        "Dense",
    ),
    Malformed("a class for from_linen", lambda: from_linen(nn.Dense, OBS), "the class Dense"),
]
