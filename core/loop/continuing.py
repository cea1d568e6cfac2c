"""Continue a training from its last state, with schedules over the whole of both."""

from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ..agent import Agent
from ..errors import TriglotError, counted, kind_of
from ..hyper import learning_ends
from ..options import option_values, replace_options
from ..records import Values
from ..rl.schedules import Schedule
from ..types import AnyAgentState, AnyHyperparams, PyTree, on_data, type_differences
from .state import RunnerState, reads_learning_rate


def check_continued(agent: Agent, expected: RunnerState, state: object, num_seeds: int) -> int:
    """Refuse a state that this training cannot continue; return the updates that it has done.

    Args:
      agent: the algorithm.
      expected: the types of the training's own first state, `[S, ...]`.
      state: what was given.
      num_seeds: `S` as it was chosen; 1 is also the default.

    Raises:
      TriglotError: saying what was given and what is expected.
    """
    wanted = "continue_from must be what triglot.train or load_run returned, or its runner_state"
    if not isinstance(state, RunnerState) or np.ndim(state.num_updates) != 1:
        hint = "."
        if isinstance(state, RunnerState):
            hint = " of one seed, without the leading axis of seeds."
        elif isinstance(state, str | Path):
            hint = f": give triglot.load_run({str(state)!r})."
        raise TriglotError(f"{wanted}; got {kind_of(state)}{hint}")
    count = state.num_updates.shape[0]
    if num_seeds not in (1, count):
        raise TriglotError(
            f"continue_from has {counted(count, 'seed')}, got num_seeds={num_seeds}."
        )
    done = np.unique(np.asarray(state.num_updates))
    if len(done) > 1:
        raise TriglotError(f"continue_from has seeds after {done.tolist()} updates: they differ.")
    parts = {"agent": "agent", "env": "environment", "carry": "agent", "member": "population"}
    for name, what in parts.items():
        pair = getattr(expected, name), getattr(state, name)
        if name == "agent":  # a training fills in hyperparameters that are None
            pair = tuple(_without_hyper(state) for state in pair)
        for path, (needed, got) in type_differences(*pair).items():
            raise TriglotError(
                f"{wanted}, with the same {what}: {name}.{path} is {got}, expected {needed}."
            )
    return int(done[0])


def continued(
    agent: Agent, state: RunnerState, hyper: Values, num_updates: int, steps_per_update: int
) -> RunnerState:
    """Copy the state and fit its schedules to the longer training.

    A schedule that ended with the earlier training, as those without a span do, is stretched over
    the whole of both: its values go on from where it would be by then.

    Args:
      agent: the algorithm.
      state: `[S, ...]`; the copy is donated to the training in its place.
      hyper: hyperparameters that change, by name, with the spans of schedules filled in.
      num_updates: updates of the whole training, those done included.
      steps_per_update: environment steps of one update.

    Raises:
      TriglotError: if the learning rate falls to 0 before the end.
    """
    done = float(np.asarray(state.num_updates)[0])
    schedules = {
        name: _stretched(schedule, done, num_updates) for name, schedule in state.schedules.items()
    }
    changed = with_hyper(replace(state, schedules=schedules), hyper, steps_per_update)
    schedules = changed.schedules
    # The first seed's numbers: they differ in no training of this package.
    rate = _of_seed(schedules["learning_rate"]) if "learning_rate" in schedules else None
    ends = learning_ends(rate, steps_per_update)
    if max(ends, done) < num_updates and reads_learning_rate(agent):
        raise TriglotError(
            f"{agent.name}'s learning rate, {rate}, is 0 after {ends:,.0f} updates, and "
            f"continuing ends after {num_updates:,}, the last of which would learn nothing: give "
            "another, such as "
            "hyper={'learning_rate': 'linear(1e-4, 0)'}, which falls to 0 at the new end, or "
            "hyper={'learning_rate': 1e-4}."
        )
    return jax.tree.map(lambda leaf: on_data(jnp.copy, leaf), changed)


def stretched(hyper: AnyHyperparams, done: int, num_updates: int) -> AnyHyperparams:
    """Stretch the schedules of a training that ended with it, as `continued` stretches the state's.

    Args:
      hyper: hyperparameters of the earlier training.
      done: its updates.
      num_updates: updates of the whole training.
    """
    changes = {
        name: Schedule(
            schedule.kind, schedule.values, (float(num_updates),), schedule.unit, schedule.function
        )
        for name, schedule in option_values(hyper).items()
        if isinstance(schedule, Schedule)
        and schedule.unit == "updates"
        and schedule.counts == (done,)
    }
    return replace_options(hyper, changes) if changes else hyper


def with_hyper(states: RunnerState, hyper: Values, steps_per_update: int) -> RunnerState:
    """Replace hyperparameters of a training by numbers or schedules, for all seeds alike.

    Args:
      states: `[S, ...]`.
      hyper: by name; spans are filled in, and None changes nothing.
      steps_per_update: environment steps of one update.
    """
    num_seeds, schedules = states.num_updates.shape[0], dict(states.schedules)
    done = states.num_updates[0]
    numbers: dict[str, jax.Array] = {}
    for name, value in hyper.items():
        schedules.pop(name, None)
        if isinstance(value, Schedule):
            schedules[name] = jax.tree.map(lambda n: jnp.full(num_seeds, n, jnp.float32), value)
            value = value.at(done, done.astype(jnp.float32) * steps_per_update)
        if value is not None:
            numbers[name] = jnp.broadcast_to(jnp.asarray(value, jnp.float32), (num_seeds,))
    if not numbers:
        return replace(states, schedules=schedules)
    agent = replace(states.agent, hyper=replace_options(states.agent.hyper, numbers))
    return replace(states, agent=agent, schedules=schedules)


def _without_hyper(agent_state: AnyAgentState) -> PyTree:
    return replace(agent_state, hyper=()) if hasattr(agent_state, "hyper") else agent_state


def _stretched(schedule: Schedule, done: float, num_updates: int) -> Schedule:
    """Stretch a schedule `[S]` that ended with the training."""
    first = _of_seed(schedule)
    if first.unit != "updates" or first.counts != (done,):
        return schedule
    counts = jax.tree.map(lambda count: jnp.full_like(count, num_updates), schedule.counts)
    return Schedule(schedule.kind, schedule.values, counts, schedule.unit, schedule.function)


def _of_seed(schedule: Schedule) -> Schedule:
    """Return the first seed's schedule, with the shortest numbers: 3e-4, not 0.000300000014."""
    return jax.tree.map(lambda number: float(str(np.asarray(number).reshape(-1)[0])), schedule)
