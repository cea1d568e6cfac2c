"""Changes of a run when it is resumed: another library, more steps; `config.json` lists them."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ...core.agent import Agent
from ...core.errors import MissingExtra, TriglotError
from ...core.hyper import Scheduled, first_numbers, learning_ends
from ...core.loop.self_play import copied
from ...core.loop.state import RunnerState
from ...core.rl.schedules import Schedule
from ...shared.machine.files import write_json
from ...shared.statistics import format_return
from ..options import ResumeOptions, TrainOptions
from ..plan import Plan, agent_of
from ..storage.config import CHANGES, read_config
from ..storage.records import REACHED, SUMMARY, recorded
from ..storage.trust import CONFIG, remember
from .moving import check_translatable, translate_agent_state

# The options of `triglot resume` that are changes.
FIELDS = ("backend", "total_steps", "decay_updates", "devices", "shard", "stop_at")
# Read from the options of the changed run, since other changes may change them too.
FOLLOWING = ("devices", "shard", "stop_at")


def changed(options: TrainOptions, change: ResumeOptions) -> TrainOptions:
    """Change the options of a run.

    Raises:
      TriglotError: if the run cannot be changed so.
    """
    folder = change.run
    if change.backend not in (None, options.backend) and options.network:
        raise TriglotError(
            f"{folder} has custom networks, {' '.join(options.network)}, which are written in "
            f"one library: --backend {change.backend} cannot continue them. Train the other "
            "network with --init-from."
        )
    if change.decay_updates is not None:
        if change.total_steps is None:
            raise TriglotError(
                "--decay-updates changes the schedule of an extended run: give --total-steps too."
            )
        if isinstance(getattr(options.hyper, "learning_rate", None), Schedule):
            raise TriglotError(
                f"the learning rate of {folder} is a schedule, {options.hyper.learning_rate}, "
                "which a resumed run keeps: leave --decay-updates out."
            )
        if not isinstance(options.hyper, Scheduled):
            raise TriglotError(
                f"{options.algorithm} has no schedule over updates: leave --decay-updates out."
            )
        hyper: Any = options.hyper
        options = replace(options, hyper=replace(hyper, decay_updates=change.decay_updates))
    if change.devices not in (None, options.devices):
        options = replace(options, shard=None)  # chosen anew
    reached = _reached(folder, options)
    if reached is not None and change.total_steps is not None:
        options = replace(options, stop_at=None)
    elif reached is not None and (change.stop_at is None or change.stop_at <= reached):
        shown = format_return(reached)
        raise TriglotError(
            f"{folder} stopped because its return, {shown}, reached --stop-at "
            f"{options.stop_at:g}: continue with --stop-at above {shown}, or with "
            "--total-steps, which trains to that number of steps."
        )
    given = {name: getattr(change, name) for name in FIELDS if name != "decay_updates"}
    return replace(options, **{name: value for name, value in given.items() if value is not None})


def check_change(plan: Plan, change: ResumeOptions, done: int) -> None:
    """Check the change against the updates done.

    Raises:
      TriglotError: if fewer steps are wanted than are done, or nothing would be learned from
        the rest of them; or if another library is wanted before the first checkpoint.
    """
    folder, per_update = plan.out, plan.experiment.steps_per_update
    num_updates, hyper = plan.experiment.num_updates, plan.experiment.hyperparams
    if change.backend is not None and not done:
        raise TriglotError(
            f"{folder} has no checkpoint whose weights --backend {change.backend} could "
            "continue: train again with that backend."
        )
    if change.total_steps is None:
        return
    if num_updates < done:
        raise TriglotError(
            f"{folder} has done {done * per_update:,} steps already: give --total-steps above "
            f"that, got {change.total_steps:,}."
        )
    rate = getattr(hyper, "learning_rate", None)
    ends = learning_ends(rate, getattr(hyper, "decay_updates", None), per_update)
    if max(ends, done) >= num_updates:
        return
    if isinstance(rate, Schedule):
        raise TriglotError(
            f"the learning rate of {folder} follows {rate}, and {change.total_steps:,} steps "
            f"are {num_updates:,} updates, the last of which would learn nothing. A "
            "resumed run keeps its schedules: start another from its weights, triglot train "
            f"... --init-from {folder}."
        )
    raise TriglotError(
        f"the learning rate of {folder} falls to 0 over {ends:,.0f} updates, and "
        f"{change.total_steps:,} steps are {num_updates:,} updates, the last of which "
        f"would learn nothing: add --decay-updates {num_updates} (it falls to 0 at "
        "the new end, counted from the run's start) or --decay-updates inf (it is "
        "constant)."
    )


def record_change(
    plan: Plan, change: ResumeOptions, before: Mapping[str, Any], done: int
) -> dict[str, Any]:
    """Write the change to `config.json` and return its contents.

    Args:
      plan: of the changed run.
      change: what was chosen.
      before: the contents of the file.
      done: updates done when it changes.
    """
    content = {**before}
    earlier = [{**one, "num_updates": min(one["num_updates"], done)} for one in changes(before)]
    new = _differences(plan, change, before)
    if not new and earlier == changes(before):
        return content
    for one in new:
        table = content if one["option"] != "decay_updates" else content["hyper"]
        table[one["option"]] = one["to"]
    content["num_updates"] = plan.experiment.num_updates
    content["num_steps"] = plan.experiment.num_steps
    content[CHANGES] = [*earlier, *({"num_updates": done, **one} for one in new)]
    write_json(plan.out / CONFIG, content)
    remember(plan.out, plan.options)  # what is remembered depends on the file's bytes
    return content


def describe_change(plan: Plan, change: ResumeOptions, before: Mapping[str, Any]) -> list[str]:
    """Describe what changes, with what schedules do."""
    lines = []
    for one in _differences(plan, change, before):
        was, now = one["from"], one["to"]
        match one["option"]:
            case "backend":
                text = f"continues on {now}, with the weights and moments of {was}"
            case "devices":
                text = (
                    f"continues on {now:,} device{'s' if now > 1 else ''}, before on {was:,}: sums "
                    "have another order, so numbers agree up to rounding"
                )
            case "shard":
                text = f"divides {now or 'nothing'} among devices, before {was or 'nothing'}"
            case "stop_at":
                was, now = (
                    "its last update" if value is None else f"a return of {value:g}"
                    for value in (was, now)
                )
                text = f"stops at {now}, before at {was}"
            case "decay_updates":
                falls = f"falls to 0 over {now:,.0f} updates, counted from the run's start"
                text = (
                    f"the learning rate now {'is constant' if math.isinf(now) else falls}; "
                    f"before, it fell to 0 over {float(was):,.0f} updates"
                )
            case _:
                changed = change.decay_updates is not None or _horizon(plan.experiment.hyperparams)
                rest = "" if changed else "; schedules go on as they were set"
                text = f"extended from {was:,} to {now:,} steps{rest}"
        lines.append(text)
    return lines


def _differences(
    plan: Plan, change: ResumeOptions, before: Mapping[str, Any]
) -> list[dict[str, Any]]:
    found = []
    for name in FIELDS:
        now = getattr(plan.options if name in FOLLOWING else change, name)
        if now is None and name not in FOLLOWING:
            continue
        was = (before["hyper"] if name == "decay_updates" else before)[name]
        if (float(was) if name == "decay_updates" else was) != now:
            found.append({"option": name, "from": was, "to": now})
    return found


def _reached(folder: Path, options: TrainOptions) -> float | None:
    """Read the return at which a run stopped early; None if it did not, or goes on since."""
    if options.stop_at is None:
        return None
    reached = (recorded(folder, SUMMARY) or {}).get(REACHED)
    if not reached or reached["return"] < options.stop_at:
        return None
    return reached["return"]


def _horizon(hyper: Any) -> float | None:
    """Return the finite number of updates after which a schedule has ended; None without."""
    updates: Any = hyper.decay_updates if isinstance(hyper, Scheduled) else None
    return None if updates is None or math.isinf(updates) else float(updates)


def changes(config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the changes of a run in their order: `num_updates`, `option`, `from`, `to`."""
    return list(config.get(CHANGES, ()))


def writer_of(config: Mapping[str, Any], number: int) -> str:
    """Find the library on which the checkpoint after `number` updates was written."""
    later = (one for one in changes(config) if one["num_updates"] >= number)
    return next((one["from"] for one in later if one["option"] == "backend"), config["backend"])


class Translation:
    """Reads checkpoints that another library wrote, as states of the plan's library."""

    def __init__(self, plan: Plan, like: RunnerState) -> None:
        """Translate to the states of `plan`, described by `like`."""
        self._plan, self._like = plan, like
        self._config = read_config(plan.out)

    def like(self, number: int) -> RunnerState:
        """Describe the states in the checkpoint after `number` updates.

        Raises:
          TriglotError: if the networks of the two libraries compute different functions.
        """
        source = self._source(number)
        if source is None:
            return self._like

        def init(key: jax.Array) -> Any:
            hyper = first_numbers(self._plan.experiment.hyperparams)
            return source.init(key, source.num_envs, hyper)

        keys = jax.random.split(jax.random.key(0), self._plan.options.num_seeds)
        agent = jax.eval_shape(jax.vmap(init), keys)
        opponent = jax.eval_shape(lambda states: self._copied(source, states), agent)
        return replace(self._like, agent=agent, opponent=opponent)

    def of(self, number: int, states: RunnerState) -> RunnerState:
        """Translate the states read from the checkpoint after `number` updates."""
        source = self._source(number)
        if source is None:
            return states
        target = self._plan.agent
        moved = jax.vmap(lambda state: translate_agent_state(state, source, target))(states.agent)
        return replace(states, agent=moved, opponent=self._copied(target, moved))

    def _copied(self, agent: Agent, agent_states: Any) -> Any:
        """Copy the policies `[S, ...]` that play the others in self-play; None without it."""
        arrays = jax.vmap(lambda state: copied(agent, self._plan.env, state))(agent_states)
        return jax.tree.map(jnp.copy, arrays)  # the training donates both

    def _source(self, number: int) -> Any:
        """Build the agent of the library that wrote a checkpoint; None if it is the plan's.

        In canonical arithmetic all libraries have one form, so the other need not be installed.
        """
        backend, network = writer_of(self._config, number), self._plan.agent.network
        if backend == self._plan.options.backend:
            return None
        options = replace(self._plan.options, backend=backend)
        if network.arithmetic != "canonical":
            return agent_of(options, self._plan.env)
        with suppress(MissingExtra):
            check_translatable(agent_of(options, self._plan.env).network, network)
        return None


def with_schedule(states: RunnerState, hyper: Any) -> RunnerState:
    """Set the horizon of the schedule, which an earlier checkpoint may have otherwise."""
    now = getattr(states.agent, "hyper", None)
    if not isinstance(hyper, Scheduled) or not isinstance(now, Scheduled):
        return states
    if now.decay_updates is None or hyper.decay_updates is None:
        return states
    filled: Any = jnp.full_like(now.decay_updates, hyper.decay_updates)
    own: Any = now
    agent = replace(states.agent, hyper=replace(own, decay_updates=filled))
    return replace(states, agent=agent)
