"""The batches with which a training begins, up to the first that changes a parameter."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..core.agent import Agent, Trajectory
from ..core.errors import TriglotError
from ..core.loop.rollout import rollout
from ..core.loop.state import RunnerState, UpdateKeys, update_keys
from ..core.loop.trainer import Trainer
from ..core.types import AnyAgentState, Carry, EnvState
from ..diff.measures.compiling import quick_jit
from ..runs.identity import learned
from ..shared.machine.memory import nbytes

MAX_BYTES = 2**28  # of all batches, which are kept
MAX_UPDATES = 20_000


class Batch(NamedTuple):
    """The arguments of one update after the agent's state."""

    trajectory: Trajectory
    key: jax.Array


def first_batches(trainer: Trainer, start: RunnerState) -> list[Batch]:
    """Collect batches up to the first from which the agent learns.

    An agent with a replay buffer learns nothing from the batches before it holds enough, and one
    with a lookup table nothing before the first reward.

    Args:
      trainer: of one library.
      start: the state of one seed.

    Returns:
      The batches of that seed's training. An agent that learns after every step gets those of a
      rollout with the initial parameters.

    Raises:
      TriglotError: if no batch changes a parameter, or they take too much memory.
    """
    agent = trainer.agent
    compiled = quick_jit(lambda now: collect(trainer, now))
    update = quick_jit(agent.update, donate_argnums=0)
    if not agent.online and not agent.learning_starts:
        return list(_batches(agent, *compiled(start)[2:]))
    before, batches, size = _on_host(start.agent), [], 0
    now = replace(start, agent=jax.tree.map(jnp.copy, start.agent))
    while len(batches) < MAX_UPDATES:
        carry, env_state, trajectory, keys = compiled(now)
        for batch in _batches(agent, trajectory, keys):
            batches.append(batch)
            size += nbytes(batch)
            if size > MAX_BYTES:
                raise TriglotError(
                    f"the batches before the first gradient step take more than "
                    f"{MAX_BYTES / 1e6:,.0f} MB: start learning earlier, or with smaller batches."
                )
            state, _ = update(now.agent, *batch)
            now = replace(now, agent=state)
            if not _equal(before, _on_host(state)):
                return batches
        now = replace(now, carry=carry, env=env_state, num_updates=now.num_updates + 1)
    raise TriglotError(
        f"no parameter changes in the first {MAX_UPDATES:,} updates: start learning earlier."
    )


def collect(trainer: Trainer, now: RunnerState) -> tuple[Carry, EnvState, Trajectory, UpdateKeys]:
    """Collect the rollout of one update, as the training does.

    Returns:
      The carry and the environments after it, the trajectory, and the keys of the update.
    """
    keys = update_keys(now.key, now.num_updates)
    start = replace(now, env=trainer.env.refresh(now.env, keys.pool))
    after, trajectory, _ = rollout(trainer.agent, trainer.env, start, keys.rollout)
    return after.carry, after.env, trajectory, keys


def state_before_last(
    agent: Agent, state: AnyAgentState, batches: Sequence[Batch]
) -> AnyAgentState:
    """Compute an agent's state before the last batch, from which it learns first."""
    if len(batches) == 1:
        return state
    update = quick_jit(agent.update, donate_argnums=0)
    state = jax.tree.map(jnp.copy, state)
    for batch in batches[:-1]:
        state, _ = update(state, *batch)
    return state


def _batches(agent: Agent, trajectory: Trajectory, keys: UpdateKeys) -> Iterator[Batch]:
    if not agent.online:
        yield Batch(trajectory, keys.learn)
        return
    if jax.tree.leaves(trajectory.carry):
        raise TriglotError("operations are not located for an online agent with a carry.")
    for step in range(trajectory.reward.shape[0]):
        step_batch = jax.tree.map(lambda leaf, step=step: leaf[step : step + 1], trajectory)
        yield Batch(step_batch, jax.random.fold_in(keys.learn, step))


def _on_host(agent_state: AnyAgentState) -> list[np.ndarray]:
    return [np.array(leaf) for leaf in jax.tree.leaves(learned(agent_state).params)]


def _equal(one: Sequence[np.ndarray], other: Sequence[np.ndarray]) -> bool:
    return all(np.array_equal(*pair, equal_nan=True) for pair in zip(one, other, strict=True))
