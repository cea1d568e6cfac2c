"""Networks that are plain functions, and two samples, for losses that can be worked out by hand."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp

from triglot.core.families.actor_critic import ActorCriticBatch, ActorCriticState
from triglot.core.network import Network, Variables
from triglot.core.rl.replay import Sample
from triglot.core.specs import Box, Discrete

OBS, ACTIONS, TWO_ACTIONS = Box((1,)), Box((1,), "float32", -3.0, 5.0), Discrete(2)

SAMPLE = Sample(
    obs=jnp.array([[1.0], [-2.0]]),
    action=jnp.array([[0.5], [-0.25]]),
    reward=jnp.array([1.0, 3.0]),
    discount=jnp.array([0.9, 0.0]),  # the first may be truncated, the second terminated
    next_obs=jnp.array([[0.5], [4.0]]),
    next_action_mask=None,
    slot=jnp.array([0, 1]),
    probability=jnp.array([0.5, 0.5]),
)
DISCRETE = replace(SAMPLE, action=jnp.array([1, 0], jnp.int32))


def _network(name: str, start: Any, apply: Any) -> Network:
    return Network(
        name=name,
        backend="core",
        init=lambda key: Variables(params=jax.tree.map(jnp.float32, start), state=()),
        apply=apply,
    )


def deterministic_actor(weight: float) -> Network:
    """An actor of actions `tanh(weight * obs)`."""

    def apply(variables: Variables, obs: Any, **_: Any) -> tuple[Any, Any]:
        return {"action": variables.params * obs}, ()

    return _network("actor", weight, apply)


def gaussian_actor(weight: float, log_std: float) -> Network:
    """A policy of mean `weight * obs` and a constant log-std."""

    def apply(variables: Variables, obs: Any, **_: Any) -> tuple[Any, Any]:
        mean = variables.params["w"] * obs
        return {"mean": mean, "log_std": jnp.broadcast_to(variables.params["b"], mean.shape)}, ()

    return _network("actor", {"w": weight, "b": log_std}, apply)


def discrete_actor(weight: float) -> Network:
    """A policy over two actions with the logits 0 and `weight * obs`."""

    def apply(variables: Variables, obs: Any, **_: Any) -> tuple[Any, Any]:
        second = variables.params * obs
        return {"logits": jnp.concatenate([jnp.zeros_like(second), second], axis=-1)}, ()

    return _network("actor", weight, apply)


def critic() -> Network:
    """A value `w * (obs + 2 * action)`, with a weight drawn for itself."""

    def apply(variables: Variables, inputs: Any, **_: Any) -> tuple[Any, Any]:
        obs, action = inputs
        return {"q": variables.params * (obs + 2.0 * action)[:, 0]}, ()

    return _drawn("critic", apply)


def discrete_critic() -> Network:
    """The values `w * obs` and `2 * w * obs` of two actions, with a weight drawn for itself."""

    def apply(variables: Variables, obs: Any, **_: Any) -> tuple[Any, Any]:
        first = variables.params * obs
        return {"q": jnp.concatenate([first, 2.0 * first], axis=-1)}, ()

    return _drawn("critic", apply)


def _drawn(name: str, apply: Any) -> Network:
    return Network(
        name=name,
        backend="core",
        init=lambda key: Variables(params=jax.random.normal(key), state=()),
        apply=apply,
    )


def batch(
    agent: Any, critics: Any, target_critics: Any, sample: Sample = SAMPLE
) -> ActorCriticBatch:
    """Make a batch whose critics have these weights; actors are as they start."""
    state: ActorCriticState = jax.jit(agent.init, static_argnums=1)(
        jax.random.key(0), agent.num_envs
    )
    learner = state.learners["critic"]
    online = replace(learner.variables, params=jnp.asarray(critics, jnp.float32))
    learner = replace(learner, variables=online)
    target = replace(online, params=jnp.asarray(target_critics, jnp.float32))
    if isinstance(state.target, dict):
        target = {**state.target, "critic": target}
    state = replace(state, learners={**state.learners, "critic": learner}, target=target)
    return ActorCriticBatch(sample=sample, state=state)


def variables(batch: ActorCriticBatch, part: str) -> Variables:
    return batch.state.learners[part].variables
