"""Continue a training from its last state, with schedules over the whole of both."""

import math
from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import TriglotError, kind_of
from ..hyper import learning_ends, replacement_of
from ..rl.schedules import Schedule
from ..types import PyTree, on_data, type_differences
from .state import RunnerState


def check_continued(agent: Any, expected: RunnerState, state: Any, num_seeds: int) -> int:
    """Refuse a state that this training cannot continue; return the updates that it has done.

    Args:
      agent: the algorithm.
      expected: the types of the training's own first state, `[S, ...]`.
      state: what was given.
      num_seeds: `S` as it was chosen; 1 is also the default.

    Raises:
      TriglotError: saying what was given and what is expected.
    """
    wanted = "continue_from must be what triglot.train returned, or its runner_state"
    if not isinstance(state, RunnerState) or np.ndim(state.num_updates) != 1:
        one_seed = " of one seed, without the leading axis of seeds"
        raise TriglotError(
            f"{wanted}; got {kind_of(state)}"
            + (f"{one_seed}." if isinstance(state, RunnerState) else ".")
        )
    count = state.num_updates.shape[0]
    if num_seeds not in (1, count):
        raise TriglotError(f"continue_from has {count} seeds, got num_seeds={num_seeds}.")
    done = np.unique(np.asarray(state.num_updates))
    if len(done) > 1:
        raise TriglotError(f"continue_from has seeds after {done.tolist()} updates: they differ.")
    parts = {"agent": "agent", "env": "environment", "carry": "agent", "member": "population"}
    for name, what in parts.items():
        pair = getattr(expected, name), getattr(state, name)
        if name == "agent":  # a training fills in hyperparameters that are None
            pair = tuple(_without_hyper(each) for each in pair)
        for path, (made, given) in type_differences(*pair).items():
            raise TriglotError(
                f"{wanted}, with the same {what}: {name}.{path} is {given}, expected {made}."
            )
    return int(done[0])


def continued(
    owner: str, state: RunnerState, given: dict[str, Any], num_updates: int, steps_per_update: int
) -> RunnerState:
    """Copy the state and fit its schedules to the longer training.

    A schedule that ended with the earlier training, as those without a span do, is stretched over
    the whole of both: its values go on from where it would be by then.

    Args:
      owner: the algorithm's name, for the message.
      state: `[S, ...]`; the copy is donated to the training in its place.
      given: hyperparameters that change, by name, with the spans of schedules filled in.
      num_updates: updates of the whole training, those done included.
      steps_per_update: environment steps of one update.

    Raises:
      TriglotError: if the learning rate falls to 0 before the end.
    """
    num_seeds, done = state.num_updates.shape[0], float(np.asarray(state.num_updates)[0])
    hyper = getattr(state.agent, "hyper", None)
    schedules = {name: _stretched(one, done, num_updates) for name, one in state.schedules.items()}
    numbers: dict[str, Any] = {}
    if "decay_updates" not in given and _horizon(hyper) == done:
        given = {**given, "decay_updates": float(num_updates)}
    for name, value in given.items():
        schedules.pop(name, None)
        if isinstance(value, Schedule):
            schedules[name] = jax.tree.map(lambda n: jnp.full(num_seeds, n, jnp.float32), value)
            value = value.at(jnp.int32(0), jnp.zeros(()))
        if value is not None:
            numbers[name] = jnp.broadcast_to(jnp.asarray(value, jnp.float32), (num_seeds,))
    # Of schedules, the first seed's numbers: they differ in no training of this package.
    firsts = {name: _of_seed(one) for name, one in schedules.items()}
    rates = {"learning_rate": firsts.get("learning_rate"), "decay_updates": None}
    if "learning_rate" not in firsts:
        horizon = numbers.get("decay_updates", getattr(hyper, "decay_updates", None))
        rates["decay_updates"] = None if horizon is None else float(np.max(np.asarray(horizon)))
    ends = learning_ends(rates["learning_rate"], rates["decay_updates"], steps_per_update)
    if max(ends, done) < num_updates:
        raise TriglotError(
            f"{owner}'s learning rate falls to 0 after {ends:,.0f} updates, and continuing ends "
            f"after {num_updates:,}, the last of which would learn nothing: change it, such as "
            "hyper={'decay_updates': None} (it falls to 0 at the new end) or "
            "hyper={'learning_rate': 1e-4, 'decay_updates': inf} (it is constant)."
            if rates["learning_rate"] is None
            else f"{owner}'s learning rate, {rates['learning_rate']}, is 0 after {ends:,.0f} "
            f"updates, and continuing ends after {num_updates:,}, the last of which would learn "
            "nothing: give another, such as hyper={'learning_rate': 'linear(1e-4, 0)'}."
        )
    copied = jax.tree.map(lambda leaf: on_data(jnp.copy, leaf), state)
    if numbers:
        agent = replace(copied.agent, hyper=replace(copied.agent.hyper, **numbers))
        copied = replace(copied, agent=agent)
    return replace(copied, schedules=schedules)


def only_changes(hyper: Any, names: Collection[str]) -> dict[str, Any]:
    """Select hyperparameters by name, and those that a schedule among them replaces.

    Args:
      hyper: as `fill_schedule_horizon` returns them.
      names: of the hyperparameters that change.
    """
    if not names:
        return {}
    scheduled = {name for name in names if isinstance(getattr(hyper, name), Schedule)}
    replaced = {one.name for one in fields(hyper) if replacement_of(one)[0] in scheduled}
    return {name: getattr(hyper, name) for name in {*names, *replaced}}


def _without_hyper(agent_state: Any) -> PyTree:
    return replace(agent_state, hyper=()) if hasattr(agent_state, "hyper") else agent_state


def _horizon(hyper: Any) -> float:
    """Return the updates over which the learning rate falls; NaN without, or if seeds differ."""
    updates = getattr(hyper, "decay_updates", None)
    different = np.unique(np.asarray(math.nan if updates is None else updates))
    return float(different[0]) if len(different) == 1 else math.nan


def _stretched(one: Schedule, done: float, num_updates: int) -> Schedule:
    """Stretch a schedule `[S]` that ended with the training."""
    first = _of_seed(one)
    if first.unit != "updates" or first.counts != (done,):
        return one
    counts = jax.tree.map(lambda count: jnp.full_like(count, num_updates), one.counts)
    return Schedule(one.kind, one.values, counts, one.unit, one.function)


def _of_seed(one: Schedule) -> Schedule:
    """Return the first seed's schedule, with Python's numbers."""
    return jax.tree.map(lambda number: float(np.asarray(number).reshape(-1)[0]), one)
