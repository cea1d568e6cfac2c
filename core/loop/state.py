"""The runner state, and the random keys of each update."""

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from ..agent import Agent, Algorithm
from ..errors import TriglotError
from ..hyper import first_numbers, schedules_of
from ..options import replace_options
from ..rl.optimizers import is_read
from ..rl.schedules import Schedule, values_at
from ..types import AnyAgentState, AnyHyperparams, Carry, PyTree, pytree_dataclass

LeafT = TypeVar("LeafT")


@pytree_dataclass
class RunnerState:
    """The complete state of a training run.

    Attributes:
      key: the run's key; the key of an update is folded from it, see `update_keys`.
      agent: the agent state.
      carry: the policy's carry, `[N, ...]`.
      env: the environments' `VectorState`; `()` for host environments.
      num_updates: int32 `[]`, updates done.
      opponent: in self-play, the copy of the policy that plays the others; None without.
      schedules: the hyperparameters that are schedules, by name. Their values are written into the
        agent state before it acts and learns.
      member: of a population, what its selection reads (`Member`); `()` without.
    """

    key: jax.Array
    agent: AnyAgentState
    carry: Carry
    env: PyTree
    num_updates: jax.Array
    opponent: PyTree = None
    schedules: dict[str, Schedule] = field(default_factory=dict)
    member: PyTree = ()


def run_key(key: jax.Array) -> jax.Array:
    """Derive the key that a seed's runner state holds from the key that it is initialized from."""
    return jax.random.split(key, 3)[2]


def first_state(
    agent: Agent,
    num_envs: int,
    reset: Callable[[jax.Array], PyTree],
    key: jax.Array,
    hyper: AnyHyperparams,
) -> RunnerState:
    """Initialize the agent and its environments, which `reset(key)` resets."""
    schedules = schedules_of(agent.hyper if hyper is None else hyper)
    if schedules:
        hyper = first_numbers(agent.hyper if hyper is None else hyper)
    agent_key, env_key, _ = jax.random.split(key, 3)
    state = agent.init(agent_key, num_envs, hyper)
    if schedules and not all(hasattr(getattr(state, "hyper", None), name) for name in schedules):
        raise TriglotError(
            f"{agent.name} cannot follow the schedule of {', '.join(schedules)}: its "
            "state keeps no hyperparameters. Put them into its field `hyper` in init, and read "
            "them from there."
        )
    carry, env = agent.initial_carry(state, num_envs), reset(env_key)
    zero = jnp.zeros((), jnp.int32)
    return RunnerState(
        key=run_key(key), agent=state, carry=carry, env=env, num_updates=zero, schedules=schedules
    )


def scheduled(
    state: RunnerState, steps_per_update: int, num_steps: jax.Array | None = None
) -> tuple[RunnerState, dict[str, jax.Array]]:
    """Write the current values of the schedules into the agent state; without any, change nothing.

    Args:
      state: of one seed.
      steps_per_update: environment steps of one update.
      num_steps: float32 `[]`, environment steps since the last update; None for 0.

    Returns:
      The state, and the values by name, float32 `[]`.
    """
    if not state.schedules:
        return state, {}
    # In float32: a long training has more steps than int32 holds.
    done = state.num_updates.astype(jnp.float32) * steps_per_update
    done = done if num_steps is None else done + num_steps
    values = values_at(state.schedules, state.num_updates, done)
    agent = replace(state.agent, hyper=replace_options(state.agent.hyper, values))
    return replace(state, agent=agent), values


def reads_learning_rate(agent: Agent | Algorithm) -> bool:
    """Return whether an agent's optimizer may read its learning rate."""
    optimizer, hyper = (getattr(agent, name, None) for name in ("optimizer", "hyper"))
    if optimizer is None or not hasattr(hyper, "learning_rate"):
        return True
    return is_read(optimizer, hyper, "learning_rate")


def without_unread(agent: Agent, metrics: dict[str, LeafT]) -> dict[str, LeafT]:
    """Leave out the learning rate where the optimizer is a custom one that does not read it."""
    if "learning_rate" not in metrics or reads_learning_rate(agent):
        return metrics
    return {name: value for name, value in metrics.items() if name != "learning_rate"}


Updated: TypeAlias = tuple[RunnerState, dict[str, Any]]
"""The next states, and the metrics by name, arrays of JAX or NumPy."""


class UpdateKeys(NamedTuple):
    """The keys of one update.

    Attributes:
      pool: refills the pool of initial states.
      rollout: acts and steps the environments.
      learn: learns from the trajectory.
      start: begins new episodes before the update, where it does so; seeds host environments.
    """

    pool: jax.Array
    rollout: jax.Array
    learn: jax.Array
    start: jax.Array


def update_keys(key: jax.Array, num_updates: jax.Array) -> UpdateKeys:
    """Make the keys of update number `num_updates`, int32 `[]`, counted from 0.

    They depend on the run's key and the number only, so the keys of many updates can be made at
    once.
    """
    return UpdateKeys(*jax.random.split(jax.random.fold_in(key, num_updates), 4))
