"""A correct network of few operations; the broken networks replace parts of it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from triglot.core.network import Network, Variables
from triglot.core.specs import Box

OBS = Box((4,))
HIDDEN = 3


def init(key: jax.Array) -> Variables:
    kernel_key, value_key = jax.random.split(key)
    params = {
        "kernel": jax.random.normal(kernel_key, (4, 2)),
        "bias": jnp.zeros((2,)),
        "value": jax.random.normal(value_key, (4,)),
    }
    return Variables(params=params, state={"count": jnp.zeros((), jnp.int32)})


def heads(params: Any, obs: jax.Array) -> dict[str, jax.Array]:
    return {
        "logits": obs @ params["kernel"] + params["bias"][None],
        "value": jnp.tanh(obs) @ params["value"],
    }


def counted(state: Any, train: bool) -> Any:
    return {"count": state["count"] + 1} if train else state


def apply(
    variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
) -> tuple[Any, Any]:
    return heads(variables.params, inputs), counted(variables.state, train)


def network(**parts: Any) -> Network:
    """Build the network, some of its parts replaced."""
    return Network(**{"name": "mine", "backend": "own", "init": init, "apply": apply, **parts})


def answering(change: Callable[[Any, Any], Any]) -> Network:
    """Build the network with other heads: `change(params, obs) -> outputs`."""

    def changed(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        return change(variables.params, inputs), counted(variables.state, train)

    return network(apply=changed)


def starting(change: Callable[[Any, jax.Array], Any]) -> Network:
    """Build the network with other variables: `change(variables, key) -> variables`."""
    return network(init=lambda key: change(init(key), key))


def with_params(**params: Any) -> Network:
    """Build the network with more parameters, which nothing uses."""
    return starting(lambda made, key: Variables(params={**made.params, **params}, state=made.state))


def recurrent(
    initial_carry: Callable[[Any, int], Any] | None = None,
    next_carry: Callable[[jax.Array], Any] = jnp.tanh,
) -> Network:
    """Build a network that remembers a sum of what it saw."""

    def step(
        variables: Variables, inputs: Any, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[Any, Any]:
        obs, carry = inputs
        total = carry.astype(jnp.float32) + obs[:, :HIDDEN]
        outputs = heads(variables.params, obs)
        value = outputs["value"] + total.sum(axis=-1)
        return (
            ({**outputs, "value": value}, next_carry(total)),
            counted(variables.state, train),
        )

    zeros = lambda variables, num_envs: jnp.zeros((num_envs, HIDDEN))  # noqa: E731
    return network(apply=step, recurrent=True, initial_carry=initial_carry or zeros)
