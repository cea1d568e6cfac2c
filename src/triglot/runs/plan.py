"""Prepare a training: check every option and build the experiment, without compiling."""

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax

from ..core.agent import Agent
from ..core.errors import TriglotError, check_known, counted, user_error_context
from ..core.experiment import Experiment
from ..core.host_environment import AnyEnvironment
from ..core.hyper import check_count
from ..core.loop.population import Population
from ..core.options import has_options, option_fields, replace_options
from ..core.records import JSON, AnyOptions
from ..core.types import AnyHyperparams
from ..shared.machine import memory, version
from ..shared.machine.files import check_free, creating, make_new_folder
from .devices import most_devices
from .effects import check_effects
from .monitoring.schedule import check_schedule, describe_schedule
from .options import TrainOptions
from .registry.agents import build_agent, describe_images
from .registry.algorithms import ALGORITHMS
from .registry.environments import SUITES, make_env, with_resolved_runs
from .storage import logs
from .storage.config import PYTHON, read_config, write_config
from .storage.python import arrays_of, hyper_of, key_of

DEBUG = ("nans", "no-jit", "acting")
NUM_SEED_VALUES = 2**32  # a key is made from 32 bits
MAX_WORD = 60  # characters of each word in the name of a default folder


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A training that is ready to start.

    Attributes:
      options: what was chosen.
      experiment: the agent in its environments, with seeds, hyperparameters and devices.
      out: the run directory.
      python: what a training from Python has beyond its options, see `storage.python`.
    """

    options: TrainOptions
    experiment: Experiment
    out: Path
    python: JSON = field(default_factory=dict)

    @property
    def agent(self) -> Agent:
        """The agent."""
        return self.experiment.agent

    @property
    def env(self) -> AnyEnvironment:
        """The single environment, of either kind."""
        return self.experiment.env

    @property
    def population(self) -> Population | None:
        """How the seeds learn from each other; None for independent ones."""
        return self.experiment.checked_population

    @property
    def title(self) -> str:
        """Title of the training, for plots and messages."""
        options = self.options
        networks = " ".join(options.network) or options.backend
        return f"{options.algorithm} on {options.env}, {networks}"

    def announcement(self) -> str:
        """Describe the training, with a line for each surprise, such as a rounded total."""
        options, experiment = self.options, self.experiment
        per_update, num_steps = experiment.steps_per_update, experiment.num_steps
        lines = [
            f"{self.title}: {options.num_seeds} x {num_steps:,} steps, "
            f"{counted(experiment.num_updates, 'update')} of {per_update:,} steps"
        ]
        if num_steps != options.total_steps:
            lines.append(rounded_up(options.total_steps, per_update, num_steps))
        if not options.network:
            lines += describe_images(self.agent, self.env, self.agent.config)
        lines += describe_schedule(options, per_update)
        if self.population is not None:
            lines.append(self.population.describe())
        starts = self.agent.learning_starts
        if starts > num_steps:
            lines.append(
                f"warning: nothing will be learned, because learning starts after {starts:,} steps "
                f"(--learning-starts) and the run has {num_steps:,}"
            )
        if experiment.sharding is not None:
            lines.append(experiment.sharding.describe(options.num_seeds, self.agent))
        if "no-jit" in options.debug:
            lines.append("compilation is disabled (--debug no-jit): an update may take minutes")
        return "\n".join(lines)

    def write_config(self, arguments: Sequence[str]) -> JSON:
        """Write `config.json` and return its contents."""
        facts = {
            "num_updates": self.experiment.num_updates,
            "steps_per_update": self.experiment.steps_per_update,
            "num_steps": self.experiment.num_steps,
            "versions": version.versions(),
            "device": version.device(),
            "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            **({PYTHON: self.python} if self.python else {}),
        }
        return write_config(self.out, self.complete_options, arguments, facts)

    @property
    def complete_options(self) -> TrainOptions:
        """The options with the whole configuration and all hyperparameters of the agent.

        `python` has the hyperparameters that differ between the seeds.
        """
        hyper = self.experiment.hyperparams
        if different := arrays_of(hyper):
            complete = self.experiment.complete(None)
            hyper = replace_options(hyper, {name: getattr(complete, name) for name in different})
        return replace(self.options, config=self.agent.config, hyper=hyper)


def prepare(
    options: TrainOptions,
    *,
    folder: Path | None = None,
    training: bool = True,
    divide: bool | None = None,
    check: Callable[[Agent], None] | None = None,
    agent: Agent | None = None,
    env: AnyEnvironment | None = None,
) -> Plan:
    """Check all options, build the experiment, and make the folder.

    Args:
      options: what was chosen.
      folder: the run directory of a resumed training; None for a new one.
      training: whether the plan will be trained, and not only its state be read.
      divide: whether to divide the seeds or environments among devices; None if it is trained.
      check: a further check of the agent, before the folder is made.
      agent, env: in place of those that the options name.

    Raises:
      TriglotError: if an option is invalid, the components do not fit each other, or more memory
        is needed than is free.
    """
    for mode in options.debug:
        check_known("debug mode", mode, DEBUG)
    if options.profile and {"no-jit", "nans"} & {*options.debug}:
        raise TriglotError(
            "--profile measures the compiled training, which --debug no-jit and nans slow down: "
            "leave one out."
        )
    logs.check(options.log, options.wandb)
    options = with_members(options)
    if folder is None:  # the run may be continued from another folder
        options = replace(options, env=with_resolved_runs(options.env))
    check_minimums(options, num_seeds=1, eval_episodes=0, metrics_every=1)
    if not 0 <= options.checkpoint_seconds < math.inf:
        raise TriglotError(
            "checkpoint_seconds must be finite and at least 0, got "
            f"{options.checkpoint_seconds}; 0 writes a checkpoint at the end only."
        )
    divide = training if divide is None else divide
    networks = "custom" if options.network else options.backend
    out = folder or options.out
    if folder is None and out is not None:
        check_free(out)
    python = {} if folder is None else read_config(folder).get(PYTHON, {})
    experiment = build(
        options, effects=folder is None, divide=divide, python=python, agent=agent, env=env
    )
    check_schedule(options, experiment.steps_per_update, experiment.num_updates)
    sharding = experiment.sharding
    if divide:
        devices, shard = (1, None) if sharding is None else (sharding.num_devices, sharding.shard)
        options = replace(options, devices=devices, shard=shard)
    if check is not None:
        check(experiment.agent)
    plan = Plan(options=options, experiment=experiment, out=out or Path(), python=python)
    check_memory(plan, training=training)
    if out is None:
        out = make_new_folder(default_folder(options.algorithm, options.env, networks))
    elif folder is None:
        with creating(out):  # what another program wrote meanwhile is noticed under the run's lock
            out.mkdir(parents=True, exist_ok=True)
    return replace(plan, out=out)


def check_memory(plan: Plan, *, training: bool = True) -> None:
    """Check that what a training needs is free.

    Args:
      plan: the training.
      training: whether it will be trained, and not only its state be read.

    Raises:
      TriglotError: if more memory is needed than is free, or tracing fails.
    """
    options, experiment = plan.options, plan.experiment
    with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
        if not training:
            needed = memory.of_state(experiment)
        else:
            needed = memory.of_training(
                experiment,
                num_lines=experiment.num_updates // options.metrics_every,
                eval_episodes=options.eval_episodes,
            )
    needed = memory.among_devices(needed, experiment.sharding, options.num_seeds)
    memory.check(needed, num_seeds=options.num_seeds)


def build(
    options: TrainOptions,
    *,
    effects: bool = True,
    divide: bool = True,
    python: JSON | None = None,
    agent: Agent | None = None,
    env: AnyEnvironment | None = None,
) -> Experiment:
    """Build the agent and the experiment.

    Args:
      options: what was chosen.
      effects: whether to refuse options that have no effect.
      divide: whether to divide the training among the devices of the options; without their
        number, among those of a CPU, as far as there are seeds.
      python: of a training from Python, see `storage.python`.
      agent, env: in place of those that the options name.

    Raises:
      TriglotError: if the components do not exist or do not fit each other, or the devices do not
        exist or do not divide the training.
    """
    facts = {} if python is None else python
    named = agent is None
    env = make_env(options.env) if env is None else env
    agent = agent_of(options, env) if agent is None else agent
    if effects:
        check_effects(options, agent, env, agent.config)
    devices = options.devices if divide and options.devices not in (None, 1) else None
    if devices is not None and "no-jit" in options.debug:
        raise TriglotError(
            "--debug no-jit runs one operation at a time, on one device: leave --devices "
            f"{devices} out."
        )
    spreads = divide and options.devices is None and not options.debug
    experiment = Experiment(
        agent,
        env,
        key=key_of(facts, options.seed),
        hyper=_hyper(options, facts, named=named),
        total_steps=options.total_steps,
        num_seeds=options.num_seeds,
        devices=devices,
        shard=None if devices is None else options.shard,
        most_devices=most_devices() if spreads else 1,
        population=population_of(options),
    )
    if experiment.trainer.steps_on_host:
        # Otherwise each small program runs on another thread, which takes longer than the program.
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    if _has_custom_components(options):
        with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
            experiment.trainer.check()
    return experiment


def _hyper(options: TrainOptions, facts: JSON, *, named: bool) -> AnyHyperparams:
    """Return the hyperparameters that replace the agent's own; None if its own are the options'."""
    different = hyper_of(facts)
    if named or not has_options(options.hyper):
        return different or None
    return replace_options(options.hyper, different) if different else options.hyper


def with_members(options: TrainOptions) -> TrainOptions:
    """Make the members of a population the seeds.

    Raises:
      TriglotError: if there are other seeds, or options of a population without one.
    """
    if options.population is None:
        if options.perturb:
            raise TriglotError("--perturb needs a population: give --population, such as 32.")
        return options
    if options.num_seeds not in (1, options.population):
        raise TriglotError(
            f"the seeds of a population are its members: leave --num-seeds out, or give "
            f"{options.population}; got {options.num_seeds}."
        )
    if options.exploit_every % options.metrics_every:
        raise TriglotError(
            f"--metrics-every must divide --exploit-every, {options.exploit_every}, so that each "
            f"generation is written; got {options.metrics_every}."
        )
    return replace(options, num_seeds=options.population)


def population_of(options: TrainOptions) -> Population | None:
    """Build the population of a training; None without."""
    if options.population is None:
        return None
    return Population(
        size=options.population,
        exploit_every=options.exploit_every,
        perturb=[name for text in options.perturb for name in text.split(",")],
        fraction=options.exploit_fraction,
        selection=options.selection,
    )


def agent_of(options: TrainOptions, env: AnyEnvironment) -> Agent:
    """Build the agent of a training.

    Raises:
      TriglotError: as `make_agent`.
    """
    networks: Any = options.network  # by their names, which a run folder needs
    return build_agent(
        options.algorithm,
        env,
        config=options.config,
        hyper=options.hyper,
        networks=networks,
        backend=options.backend,
        arithmetic=options.arithmetic,
        optimizer=options.optimizer,
    )


def with_defaults(options: TrainOptions) -> TrainOptions:
    """Fill in the numbers that depend on the environment, which is built for that.

    Args:
      options: with a complete `Config` and `Hyperparams`.
    """
    complete = [part for part in (options.config, options.hyper) if has_options(part)]
    declared = [field for part in complete for field in option_fields(part)]
    if not any("by_environment" in field.metadata for field in declared):
        return options
    agent = agent_of(options, make_env(options.env))
    return replace(options, config=agent.config, hyper=agent.hyper)


def _has_custom_components(options: TrainOptions) -> bool:
    suite = options.env.partition(":")[0]
    built_in = options.algorithm in ALGORITHMS and suite in SUITES
    return not built_in or bool(options.network)


def check_minimums(options: AnyOptions, **minimums: int) -> None:
    """Reject an invalid `seed`, and counts below the minimum of each option or above 2^31 - 1.

    Raises:
      TriglotError: with the option and what it allows.
    """
    check_count("seed", options.seed, 0, NUM_SEED_VALUES - 1)
    for name, minimum in minimums.items():
        check_count(name, getattr(options, name), minimum)


def rounded_up(total_steps: int, steps_per_update: int, num_steps: int) -> str:
    """Describe how a number of steps was rounded up."""
    return (
        f"{total_steps:,} steps are not a multiple of the rollout size ({steps_per_update:,}): "
        f"rounded up to {num_steps:,}"
    )


def default_folder(*names: str) -> Path:
    """Name a folder under `runs` by its contents and the time."""
    words = [re.sub(r"[^\w.]+", "_", name)[:MAX_WORD] for name in names]
    return Path("runs") / "-".join([*words, time.strftime("%Y%m%d-%H%M%S")])
