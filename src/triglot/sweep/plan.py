"""Check a sweep, and group its settings into compiled programs; nothing is computed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from ..core.errors import TriglotError
from ..core.experiment import Experiment
from ..core.hyper import check_count, check_hyperparams, with_schedules
from ..core.records import Values
from ..core.types import AnyHyperparams
from ..runs.effects import check_effects, with_effect
from ..runs.options import TrainOptions
from ..runs.plan import build, check_minimums
from ..runs.registry.bounds import Bounds, return_bounds
from ..runs.registry.overrides import from_overrides, overrides_of
from ..shared.pages.numbers import format_value
from .axes import COMPONENTS
from .options import SweepCommandOptions
from .search.choices import round_sizes
from .settings import Settings, algorithms_of, settings_of, train_options


@dataclass(frozen=True, kw_only=True)
class Group:
    """Settings that one compiled program trains, since they differ in hyperparameters only.

    Attributes:
      options: of the first setting, as for `triglot train`.
      experiment: the first setting's.
      settings: their numbers in the sweep.
      hypers: the `Hyperparams` of each, in the same order.
      bounds: the lowest and highest possible return.
      program: identifies the compiled program.
    """

    options: TrainOptions
    experiment: Experiment
    settings: tuple[int, ...]
    hypers: tuple[AnyHyperparams, ...]
    bounds: Bounds
    program: tuple[object, ...]

    @property
    def num_updates(self) -> int:
        """Updates of each training."""
        return self.experiment.num_updates

    def trainings(
        self, settings: Sequence[int], seeds: Sequence[int], *, devices: int = 1
    ) -> Experiment:
        """Join some trainings in one experiment.

        Args:
          settings: `[S]`, the number of each training's setting.
          seeds: `[S]`, the number of its seed, whose key is the same in every setting.
          devices: the most devices among which they are divided.
        """
        hypers = dict(zip(self.settings, self.hypers, strict=True))
        return replace(
            self.experiment,
            key=self.experiment.keys[jnp.asarray(seeds)],
            num_seeds=len(seeds),
            hyper=[hypers[number] for number in settings],
            most_devices=devices,
        )


@dataclass(frozen=True, kw_only=True)
class SweepPlan:
    """A sweep that is ready to start.

    Attributes:
      options: what was chosen.
      settings: the swept values by name; of a search with rounds, those that were proposed.
      groups: the programs.
    """

    options: SweepCommandOptions
    settings: tuple[Values, ...]
    groups: tuple[Group, ...]

    @property
    def rounds(self) -> tuple[int, ...]:
        """The number of settings of each round; one round, unless the search proposes settings."""
        return round_sizes(self.options) or (len(self.settings),)

    def in_round(self, number: int) -> list[int]:
        """The numbers of the settings of a round."""
        begin = sum(self.rounds[:number])
        return list(range(begin, begin + self.rounds[number]))

    @property
    def names(self) -> list[str]:
        """The names that are swept."""
        return list(self.settings[0])

    def env_of(self, number: int) -> str:
        """The environment of a setting; returns are compared within an environment only."""
        return self.settings[number].get("env", self.options.env)

    @property
    def envs(self) -> list[str]:
        """The environments."""
        return list(dict.fromkeys(map(self.env_of, range(len(self.settings)))))


def make_plan(options: SweepCommandOptions) -> SweepPlan:
    """Check all options, list the settings, and build the agent of each group.

    Raises:
      TriglotError: if an option is invalid, a swept value is refused by the algorithm, or a swept
        name cannot have an effect.
    """
    check_minimums(options, num_seeds=1, eval_episodes=0)
    if options.batch is not None:
        check_count("batch", options.batch)
    check_count("eta", options.eta, 2)
    if not 0 <= options.checkpoint_seconds < math.inf:
        raise TriglotError(
            f"checkpoint_seconds must be finite and at least 0, got {options.checkpoint_seconds}."
        )
    settings = settings_of(options, algorithms_of(options))
    plan = extended(SweepPlan(options=options, settings=(), groups=()), settings)
    _check_effects(options, plan.groups, plan.names)
    return plan


def extended(plan: SweepPlan, settings: Settings) -> SweepPlan:
    """Add settings to a plan; a group that trains their program keeps its place and its agent.

    Raises:
      TriglotError: if a swept value is refused by the algorithm.
    """
    algorithms = algorithms_of(plan.options)
    members: dict[tuple[object, ...], list[tuple[int, TrainOptions, AnyHyperparams]]] = {
        group.program: [] for group in plan.groups
    }
    for number, values in enumerate(settings, len(plan.settings)):
        chosen = train_options(plan.options, values, algorithms)
        algorithm = algorithms[chosen.algorithm]
        hyper = with_schedules(from_overrides(algorithm.Hyperparams, chosen.hyper))
        config = from_overrides(algorithm.Config, chosen.config)
        check_hyperparams(algorithm.__name__, hyper, config)
        members.setdefault(_program(chosen, hyper), []).append((number, chosen, hyper))
    before = {group.program: group for group in plan.groups}
    groups = [
        _group(program, added, before.get(program)) if added else before[program]
        for program, added in members.items()
    ]
    return replace(plan, settings=(*plan.settings, *settings), groups=tuple(groups))


def _program(options: TrainOptions, hyper: AnyHyperparams) -> tuple[object, ...]:
    """Identify the compiled program of a setting."""
    # A hyperparameter without a value, or a schedule, changes the structure of the state.
    structure = jax.tree.structure(hyper)
    parts = [getattr(options, name) for name in COMPONENTS]
    config = sorted((name, str(value)) for name, value in options.config.items())
    return (*parts, tuple(config), structure)


def _group(
    program: tuple[object, ...],
    members: Sequence[tuple[int, TrainOptions, AnyHyperparams]],
    before: Group | None,
) -> Group:
    """Build the group of some settings, or add them to one."""
    numbers, chosen, chosen_hypers = zip(*members, strict=True)
    if before is None:
        first: TrainOptions = chosen[0]
        experiment = build(first, effects=False, divide=False)
        before = Group(
            options=first,
            experiment=experiment,
            settings=(),
            hypers=(),
            bounds=return_bounds(experiment.env, first.env),
            program=program,
        )
    hypers = map(before.experiment.complete, chosen_hypers)
    return replace(before, settings=(*before.settings, *numbers), hypers=(*before.hypers, *hypers))


def _check_effects(
    options: SweepCommandOptions, groups: Sequence[Group], swept: Sequence[str]
) -> None:
    """Refuse a field that is swept or given, and can have no effect in any group."""
    overridden = overrides_of(options.config) | overrides_of(options.hyper)
    ineffective = {*swept, *overridden} - set(COMPONENTS)
    facts = [
        (group.options, agent, group.experiment.env, agent.config)
        for group in groups
        for agent in [group.experiment.agent]
    ]
    for arguments in facts:
        ineffective -= with_effect(*arguments)
    if ineffective or options.network:
        for arguments in facts:
            check_effects(*arguments)
    if ineffective:
        name = min(ineffective)
        raise TriglotError(
            f"--over {name} has no effect in this training: leave it out. `triglot train "
            f"{options.algorithm} --help` says where it acts."
        )


def describe_setting(values: Values) -> str:
    """Format a setting in one line.

    >>> describe_setting({"learning_rate": 1e-3, "hidden_sizes": (64, 64)})
    'learning_rate=0.001 hidden_sizes=64/64'
    """
    return " ".join(f"{name}={format_value(value)}" for name, value in values.items())
