"""Changes of a run when it is resumed: another library, more steps; `config.json` lists them."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from ...core.agent import Agent
from ...core.errors import MissingExtra, TriglotError, counted
from ...core.hyper import first_numbers, learning_ends
from ...core.loop.continuing import with_hyper
from ...core.loop.self_play import copied
from ...core.loop.state import RunnerState
from ...core.options import replace_options
from ...core.records import JSON
from ...core.types import AnyAgentState
from ...shared.machine.files import write_json
from ...shared.statistics import format_return
from ..options import ResumeOptions, TrainOptions
from ..plan import Plan, agent_of
from ..registry.overrides import fields_as_text
from ..storage.config import CHANGES, PYTHON, read_config
from ..storage.records import REACHED, SUMMARY, recorded
from ..storage.trust import CONFIG, remember
from .moving import check_translatable, translate_agent_state

RATE = "learning_rate"
# The options of `triglot resume` that are changes.
FIELDS = ("backend", "total_steps", RATE, "devices", "shard", "stop_at")
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
    if change.learning_rate is not None:
        if change.total_steps is None:
            raise TriglotError(
                "--learning-rate changes the schedule of an extended run: give --total-steps too."
            )
        if not hasattr(options.hyper, RATE):
            raise TriglotError(
                f"{options.algorithm} has no learning rate: leave --learning-rate out."
            )
        perturbed = ",".join(options.perturb).split(",")  # each is NAME or NAME=RANGE
        if any(text.partition("=")[0] == RATE for text in perturbed):
            raise TriglotError(
                f"the members of {folder} have learning rates of their own, which the population "
                "perturbs: leave --learning-rate out."
            )
        if RATE in read_config(folder).get(PYTHON, {}).get("hyper", {}):
            raise TriglotError(
                f"the seeds of {folder} have learning rates of their own: leave --learning-rate "
                "out, or continue it in Python: triglot.train(..., continue_from=run, hyper=...)."
            )
        hyper = replace_options(options.hyper, {RATE: change.learning_rate})
        options = replace(options, hyper=hyper)
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
    values = {name: getattr(change, name) for name in FIELDS if name != RATE}
    return replace(options, **{name: value for name, value in values.items() if value is not None})


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
    rate: Any = getattr(hyper, RATE, None)
    if max(learning_ends(rate, per_update), done) < num_updates:
        raise TriglotError(
            f"the learning rate of {folder} follows {rate}, and {change.total_steps:,} steps are "
            f"{counted(num_updates, 'update')}, the last of which would learn nothing: add "
            f'--learning-rate, such as "linear({rate.values[0]:g}, 0)" (it falls to 0 at the new '
            f"end, counted from the run's start) or {rate.values[0]:g} (it is constant)."
        )


def record_change(plan: Plan, change: ResumeOptions, before: JSON, done: int) -> JSON:
    """Write the change to `config.json` and return its contents.

    Args:
      plan: of the changed run.
      change: what was chosen.
      before: the contents of the file.
      done: updates done when it changes.
    """
    content = {**before}
    earlier = [
        {**entry, "num_updates": min(entry["num_updates"], done)} for entry in changes(before)
    ]
    new = _differences(plan, change, before)
    if not new and earlier == changes(before):
        return content
    for entry in new:
        if entry["option"] == RATE:
            content["hyper"] = {**content["hyper"], RATE: entry["to"]}
        else:
            content[entry["option"]] = entry["to"]
    content["num_updates"] = plan.experiment.num_updates
    content["num_steps"] = plan.experiment.num_steps
    content[CHANGES] = [*earlier, *({"num_updates": done, **entry} for entry in new)]
    write_json(plan.out / CONFIG, content)
    remember(plan.out, plan.options)  # what is remembered depends on the file's bytes
    return content


def describe_change(plan: Plan, change: ResumeOptions, before: JSON) -> list[str]:
    """Describe what changes, with what schedules do."""
    lines = []
    for difference in _differences(plan, change, before):
        was, now = difference["from"], difference["to"]
        match difference["option"]:
            case "backend":
                text = f"continues on {now}, with the weights and moments of {was}"
            case "devices":
                text = (
                    f"continues on {counted(now, 'device')} (before: {was:,}): sums have another "
                    "order, so numbers agree up to rounding"
                )
            case "shard":
                text = f"divides {now or 'nothing'} among devices (before: {was or 'nothing'})"
            case "stop_at":
                was, now = (
                    "at its last update" if value is None else f"at a return of {value:g}"
                    for value in (was, now)
                )
                text = f"stops {now} (before: {was})"
            case "learning_rate":
                text = f"the learning rate is now {now} (before: {was})"
            case _:
                rest = "" if change.learning_rate else "; schedules continue unchanged"
                verb = "extended" if now > was else "shortened"
                text = f"{verb} from {was:,} to {now:,} steps{rest}"
        lines.append(text)
    return lines


def _differences(plan: Plan, change: ResumeOptions, before: JSON) -> list[JSON]:
    differences = []
    for name in FIELDS:
        now = getattr(plan.options if name in FOLLOWING else change, name)
        if now is None and name not in FOLLOWING:
            continue
        was = before[name] if name != RATE else before["hyper"][name]
        if name == RATE:
            now = fields_as_text(plan.experiment.hyperparams)[name]
        if was != now:
            differences.append({"option": name, "from": was, "to": now})
    return differences


def _reached(folder: Path, options: TrainOptions) -> float | None:
    """Read the return at which a run stopped early; None if it did not, or goes on since."""
    if options.stop_at is None:
        return None
    reached = (recorded(folder, SUMMARY) or {}).get(REACHED)
    if not reached or reached["return"] < options.stop_at:
        return None
    return reached["return"]


def changes(config: JSON) -> list[JSON]:
    """List the changes of a run in their order: `num_updates`, `option`, `from`, `to`."""
    return list(config.get(CHANGES, ()))


def writer_of(config: JSON, number: int) -> str:
    """Find the library on which the checkpoint after `number` updates was written."""
    later = (change for change in changes(config) if change["num_updates"] >= number)
    return next(
        (change["from"] for change in later if change["option"] == "backend"), config["backend"]
    )


class Translation:
    """Reads checkpoints that another library wrote, as states of the plan's library."""

    def __init__(self, plan: Plan, like: RunnerState) -> None:
        """Translate to the states of `plan`, described by `like`."""
        self._plan, self.whole = plan, like
        self._config = read_config(plan.out)

    def like(self, number: int) -> RunnerState:
        """Describe the states in the checkpoint after `number` updates.

        Raises:
          TriglotError: if the networks of the two libraries compute different functions.
        """
        source = self._source(number)
        if source is None:
            return self.whole

        def init(key: jax.Array) -> AnyAgentState:
            hyper = first_numbers(self._plan.experiment.hyperparams)
            return source.init(key, source.num_envs, hyper)

        keys = jax.random.split(jax.random.key(0), self._plan.options.num_seeds)
        agent = jax.eval_shape(jax.vmap(init), keys)
        opponent = jax.eval_shape(lambda states: self._copied(source, states), agent)
        return replace(self.whole, agent=agent, opponent=opponent)

    def of(self, number: int, states: RunnerState) -> RunnerState:
        """Translate the states read from the checkpoint after `number` updates."""
        source = self._source(number)
        if source is None:
            return states
        target = self._plan.agent
        moved = jax.vmap(lambda state: translate_agent_state(state, source, target))(states.agent)
        return replace(states, agent=moved, opponent=self._copied(target, moved))

    def _copied(self, agent: Agent, agent_states: AnyAgentState) -> AnyAgentState:
        """Copy the policies `[S, ...]` that play the others in self-play; None without it."""
        env: Any = self._plan.env  # of those stepped in Python, nothing is copied
        arrays = jax.vmap(lambda state: copied(agent, env, state))(agent_states)
        return jax.tree.map(jnp.copy, arrays)  # the training donates both

    def _source(self, number: int) -> Agent | None:
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


def with_current_rate(plan: Plan, states: RunnerState, trained: JSON) -> RunnerState:
    """Set the learning rate of the run, where a checkpoint was trained with another one.

    Args:
      plan: of the run.
      states: as they were read from the checkpoint.
      trained: what its manifest says.
    """
    hyper = plan.experiment.hyperparams
    if not hasattr(hyper, RATE):
        return states
    now = fields_as_text(plan.complete_options.hyper)[RATE]
    written = trained.get("options") or read_config(plan.out)
    if written["hyper"].get(RATE) == now:
        return states
    schedule = {RATE: getattr(hyper, RATE)}
    return with_hyper(states, schedule, plan.experiment.steps_per_update)
