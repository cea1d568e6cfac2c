"""Agents that plan with the environment as its own model: what they get, and where they can act.

An agent that declares `plans = True` has a field `model`, into which `make_agent` puts the
environment, and finds the environments' states in `PolicyInput.env_state`. It never changes them:
what it tries is `step_model` on copies. All other agents get None there.
"""

from dataclasses import replace
from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from ..agent import Agent, PolicyInput
from ..environment import Environment, TimeStep
from ..errors import TriglotError
from ..host_environment import AnyEnvironment, HostEnvironment
from ..numerics import where_rows
from ..types import PyTree, abstract_key, type_differences
from ..wrappers.games import alternates, for_both, game_in, moving


@runtime_checkable
class Planner(Agent, Protocol):
    """An agent that `plans` with the environment as its own model; this is optional."""

    @property
    def model(self) -> Environment:
        """The environment, whose `step` is tried on copies of its states."""
        ...


def root_of(inputs: PolicyInput) -> TimeStep:
    """Make the `TimeStep` `[N, ...]` at which a plan starts, of a planner's inputs."""
    no = jnp.zeros_like(inputs.first)
    return TimeStep(
        state=inputs.env_state,
        obs=inputs.obs,
        reward=jnp.zeros(no.shape, jnp.float32),
        terminated=no,
        truncated=no,
        action_mask=inputs.action_mask,
    )


def step_model(model: Environment, node: TimeStep, action: jax.Array, key: jax.Array) -> TimeStep:
    """Try one action in each of `N` states.

    The key is the planner's own, not the one with which the environment will step: where `step`
    draws, a plan sees a successor as likely as the true one, not the true one itself.

    Args:
      model: the environment.
      node: `[N, ...]`, such as `root_of` makes it or this function returned it.
      action: `[N]`.
      key: a typed key, split into one per state.

    Returns:
      The successors `[N, ...]`. One whose episode ended before this step is as it was, with reward
      0, since what an environment returns after its end is undefined.
    """
    num_nodes = node.reward.shape[0]
    after = jax.vmap(model.step)(node.state, action, jax.random.split(key, num_nodes))
    ended = node.terminated | node.truncated
    return where_rows(ended, replace(node, reward=jnp.zeros_like(node.reward)), after)


def model_in(env: Environment) -> Environment:
    """Return the model of a planner that acts in `env`: in self-play it moves for both players."""
    game = game_in(env)
    return env if game is None or game.copy_period is None else for_both(env)


def moves_for_both(agent: Agent, env: Environment) -> bool:
    """Return whether an agent moves for both players of the game in `env` while it is trained.

    One that plans does where the game is played by itself. One that learns its model does if its
    `two_players` is True, which `make_agent` sets where `takes_turns`.
    """
    game = game_in(env)
    searches = agent.plans or agent.two_players
    return searches and game is not None and game.copy_period is not None


def takes_turns(env: AnyEnvironment) -> bool:
    """Return whether a game is played by itself, by two players who always move in turn."""
    return not isinstance(env, HostEnvironment) and alternates(model_in(env))


def turn(model: Environment, before: PyTree, after: PyTree) -> jax.Array | float:
    """Return the sign of a later state's value for the player who moves before, float32 `[N]`.

    It is 1 where the same player moves in both states `[N, ...]`, and -1 where the other does: what
    one wins, the other loses. Where a planner moves for one player only, it is 1.0.
    """
    first, second = moving(model, before), moving(model, after)
    return 1.0 if first is None else jnp.where(first == second, 1.0, -1.0)


def require_model(owner: str, model: object) -> None:
    """Refuse a planner without a model.

    Raises:
      TriglotError: saying how to give it.
    """
    if not isinstance(model, Environment):
        raise TriglotError(
            f"{owner} needs a model, the environment in JAX in which it plans: use make_agent, "
            "which gives it, or model=ENVIRONMENT."
        )


def plannable(planner: str, env: AnyEnvironment) -> Environment:
    """Return an environment that may be the model of a planner, which messages call by a name.

    Raises:
      TriglotError: if it is stepped in Python.
    """
    if isinstance(env, HostEnvironment):
        raise TriglotError(
            f"{planner} plans with the environment as its own model, and this one is stepped in "
            "Python, where no state can be copied: choose one in JAX, or MuZero, which learns its "
            "model."
        )
    return env


def check_model(agent: Agent, env: AnyEnvironment) -> None:
    """Refuse environments in which a planner cannot plan; other agents may act in any.

    Raises:
      TriglotError: if it plans, and `env` is stepped in Python, or has other states than its model.
    """
    if not agent.plans:
        return
    env = plannable(agent.name, env)
    if not isinstance(agent, Planner) or agent.model is env:
        return
    model_start, env_start = (
        jax.eval_shape(environment.reset, abstract_key()) for environment in (agent.model, env)
    )
    for path, (has, needs) in type_differences(model_start.state, env_start.state).items():
        raise TriglotError(
            f"{agent.name} plans with the model {agent.model.name}, whose states do not fit "
            f"{env.name}: {path} is {has}, expected {needs}. Make the agent for this environment."
        )
