"""Networks with one defect each, by the check that must find it."""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from tests.checks.sound_network import (
    HIDDEN,
    answering,
    apply,
    counted,
    heads,
    init,
    network,
    recurrent,
    starting,
    with_params,
)
from triglot.core.network import Network, Variables


@dataclass(frozen=True)
class Broken:
    """A network, and the one check that should fail."""

    check: str
    defect: str
    network: Any


def without_mode(variables: Variables, inputs: Any) -> Any:
    return apply(variables, inputs)


def noisy(params: Any, obs: jax.Array) -> Any:
    noise = jnp.asarray(np.random.default_rng().normal(), jnp.float32)
    return {**heads(params, obs), "value": obs @ params["value"] + noise}


def branching(params: Any, obs: jax.Array) -> Any:
    if params["bias"].sum() > 1.0:
        return heads(params, -obs)
    return heads(params, obs)


def otherwise_compiled(params: Any, obs: jax.Array) -> Any:
    return heads(params, obs * 2.0 if isinstance(obs, Tracer) else obs)


def counting_in_place(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False):
    if train:
        variables.state["count"] = variables.state["count"] + 1
    return heads(variables.params, inputs), dict(variables.state)


def always_counting(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False):
    return heads(variables.params, inputs), counted(variables.state, True)


def widening(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False) -> Any:
    state = {"count": variables.state["count"].astype(jnp.float32)} if train else variables.state
    return heads(variables.params, inputs), state


def one_key_twice(variables: Variables, inputs: Any, *, key: Any = None, train: bool = False):
    outputs, state = apply(variables, inputs, train=train)
    if train and key is not None:
        for name in outputs:
            outputs[name] = outputs[name] + jax.random.normal(key, outputs[name].shape)
    return outputs, state


def twins(made: Variables, key: jax.Array) -> Variables:
    drawn = 2.0 * made.params["kernel"]
    params = {**made.params, "keys": drawn, "values": drawn}
    return Variables(params=params, state=made.state)


def called_back(made: Variables, key: jax.Array) -> Variables:
    bias = jax.ShapeDtypeStruct((2,), jnp.float32)
    called = jax.pure_callback(lambda x: x, bias, made.params["kernel"][0])
    return Variables(params={**made.params, "bias": called}, state=made.state)


@jax.tree_util.register_pytree_with_keys_class
class Fresh:
    """A container whose static part is a new object each time."""

    def __init__(self, params: Any, mark: Any = None) -> None:
        self.params, self.mark = params, mark or object()

    def tree_flatten_with_keys(self) -> Any:
        return [(jax.tree_util.GetAttrKey("params"), self.params)], self.mark

    @classmethod
    def tree_unflatten(cls, mark: Any, children: Any) -> "Fresh":
        return cls(children[0], mark)


def fresh_containers() -> Network:
    def fresh_init(key: jax.Array) -> Variables:
        made = init(key)
        return Variables(params=Fresh(made.params), state=made.state)

    def fresh_apply(variables: Variables, inputs: Any, **how: Any) -> Any:
        own = Variables(params=variables.params.params, state=variables.state)
        return apply(own, inputs, **how)

    return network(init=fresh_init, apply=fresh_apply)


def not_differentiable(params: Any, obs: jax.Array) -> Any:
    at_zero = jnp.sqrt(jnp.square(params["bias"] * 0.0))
    return {**heads(params, obs), "norm": obs[:, :2] + at_zero[None]}


BROKEN = [
    Broken("protocol", "it is a function", lambda obs: obs),
    Broken("init", "a Python number among the parameters", with_params(scale=2.0)),
    Broken(
        "carry",
        "one carry for all environments",
        recurrent(lambda variables, num_envs: jnp.zeros((HIDDEN,))),
    ),
    Broken(
        "apply", "outputs without the state", network(apply=lambda v, i, **how: heads(v.params, i))
    ),
    Broken("training", "no way to say train", network(apply=without_mode)),
    Broken(
        "batched",
        "a value averaged over the batch",
        answering(lambda p, x: {**heads(p, x), "value": (x @ p["value"]).mean()}),
    ),
    Broken(
        "dtype",
        "a head of half precision",
        answering(lambda p, x: {**heads(p, x), "value": (x @ p["value"]).astype(jnp.float16)}),
    ),
    Broken("compiles once", "a parameter of weak type", with_params(scale=jnp.full((2,), 0.5))),
    Broken(
        "finite",
        "the logarithm of a negative number",
        answering(lambda p, x: {**heads(p, x), "value": jnp.log(-1.0 - (x @ p["value"]) ** 2)}),
    ),
    Broken("deterministic", "NumPy's random numbers", answering(noisy)),
    Broken("arguments unchanged", "a count in place", network(apply=counting_in_place)),
    Broken("state", "a count in evaluation", network(apply=always_counting)),
    Broken(
        "independent rows",
        "the batch's mean taken away in evaluation",
        answering(lambda p, x: heads(p, x - x.mean(axis=0, keepdims=True))),
    ),
    Broken("seeds", "a key rebound", network(init=lambda key: init(jax.random.key(0)))),
    Broken("seeds", "a random start that says it is none", network(random_start=False)),
    Broken("seeds", "two layers from one key", starting(twins)),
    Broken("keys used once", "one key for two layers of noise", network(apply=one_key_twice)),
    Broken("jit", "a Python branch on values", answering(branching)),
    Broken("jit", "another function when compiled", answering(otherwise_compiled)),
    Broken("vmap", "a callback that cannot be batched", starting(called_back)),
    Broken("scan", "a state that changes its dtype", network(apply=widening)),
    Broken(
        "gradient",
        "no gradient at all",
        answering(lambda p, x: jax.lax.stop_gradient(heads(p, x))),
    ),
    Broken("gradient", "a square root at 0", answering(not_differentiable)),
    Broken("compiles once", "a container made anew", fresh_containers()),
    Broken(
        "checkpoint",
        "two arrays of one path",
        with_params(**{"a.b": jnp.zeros(()), "a": {"b": jnp.zeros(())}}),
    ),
    Broken(
        "scan",
        "a carry that changes its dtype",
        recurrent(next_carry=lambda total: jnp.tanh(total).astype(jnp.float16)),
    ),
]
