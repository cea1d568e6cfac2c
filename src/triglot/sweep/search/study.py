"""Optuna's part of a sweep: proposals for a round.

Source: Akiba et al. 2019, https://arxiv.org/abs/1907.10902, and https://optuna.readthedocs.io. TPE:
Bergstra et al. 2011, https://papers.nips.cc/paper/4443.
"""

import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import FrozenTrial, TrialState

from ...core.errors import silenced
from ...core.records import Values
from ..axes import Axis, Choices
from ..results import Outcome
from ..settings import Settings, draw_new
from .choices import CMA_ES, GP

NUM_TRIES = 20  # proposals of a sampler, to find a setting that was not trained before
Space: TypeAlias = Mapping[str, BaseDistribution]


@contextmanager
def quiet() -> Iterator[None]:
    """Silence what Optuna logs about each study, and its warnings about experimental features."""
    with silenced(logging.WARNING), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def space_of(axes: Sequence[Axis]) -> dict[str, BaseDistribution]:
    """Translate what is swept to Optuna's distributions; the values of a list are texts."""
    return {axis.name: _distribution(axis) for axis in axes}


def _distribution(axis: Axis) -> BaseDistribution:
    if isinstance(axis, Choices):
        return CategoricalDistribution([_label(value) for value in axis.values])
    if axis.integer:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.log)
    return FloatDistribution(axis.low, axis.high, log=axis.log)


def params_of(axes: Sequence[Axis], values: Values) -> dict[str, object]:
    """Translate the values of a setting to the parameters of a trial."""
    return {
        axis.name: _label(values[axis.name]) if isinstance(axis, Choices) else values[axis.name]
        for axis in axes
    }


def _values_of(axes: Sequence[Axis], params: Values) -> Values:
    """Translate the parameters of a trial to a setting; numbers are rounded as drawn ones are."""
    return {
        axis.name: axis.values[list(map(_label, axis.values)).index(params[axis.name])]
        if isinstance(axis, Choices)
        else axis.rounded(params[axis.name])
        for axis in axes
    }


def _label(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, tuple) else str(value)


def as_trial(
    axes: Sequence[Axis], outcome: Outcome, system_attrs: Values | None = None
) -> FrozenTrial:
    """Translate the outcome of a setting to a trial.

    One that was stopped early is pruned, with its return in training after its steps. One that
    diverged, or in which no episode ended, is pruned without a return, which ranks last.
    """
    steps = {outcome.num_steps: outcome.training_score} if outcome.stopped else {}
    is_complete = not outcome.stopped and math.isfinite(outcome.score)
    return optuna.trial.create_trial(
        state=TrialState.COMPLETE if is_complete else TrialState.PRUNED,
        value=outcome.score if is_complete else None,
        params=params_of(axes, outcome.values),
        distributions=space_of(axes),
        intermediate_values={step: s for step, s in steps.items() if math.isfinite(s)},
        system_attrs=dict(system_attrs or {}),
    )


def propose(
    search: str, axes: Sequence[Axis], seed: int, sizes: Sequence[int], outcomes: Sequence[Outcome]
) -> Settings:
    """Propose the settings of the next round from the outcomes of all earlier ones.

    A pure function: the same outcomes give the same proposals.

    Args:
      search: `tpe`, `cma-es` or `gp`.
      axes: what is swept.
      seed: of the sweep; each round has its own random numbers.
      sizes: of all rounds.
      outcomes: the outcomes of whole rounds, at least of the first, in the order of the settings.
    """
    with quiet():
        trials: list[FrozenTrial] = []
        ends = list(accumulate(sizes))
        for number, (size, end) in enumerate(zip(sizes, ends, strict=True)):
            of_round = outcomes[end - size : end]
            attrs: list[Values] = [{}] * size
            if not of_round or (number and search == CMA_ES):
                # CMA-ES keeps its state, a pickle, in the trials that it asked for. It is computed
                # again by asking for the earlier rounds, so that a folder holds no code.
                asked = _ask(search, axes, (seed, number), size, trials)
                if not of_round:
                    return [values for values, _ in asked]
                attrs = [attrs for _, attrs in asked]
            trials += [as_trial(axes, *pair) for pair in zip(of_round, attrs, strict=True)]
    raise AssertionError("every round has its outcomes")


def _ask(
    search: str, axes: Sequence[Axis], seed: tuple[int, int], size: int, trials: list[FrozenTrial]
) -> list[tuple[Values, Values]]:
    """Ask a sampler for a batch of new settings; return each with its trial's attributes."""
    first, second = (int(n) for n in np.random.SeedSequence(seed).generate_state(2))
    study = optuna.create_study(direction="maximize", sampler=_sampler(search, first, size))
    study.add_trials(trials)
    known = {tuple(_values_of(axes, trial.params).values()) for trial in trials}
    space, asked, tries = space_of(axes), [], 0
    while len(asked) < size and tries < NUM_TRIES * size:
        # A setting that was proposed before stays a running trial, so that others are proposed.
        trial, tries = study.ask(space), tries + 1
        values = _values_of(axes, trial.params)
        if (key := tuple(values.values())) not in known:
            known.add(key)
            asked.append((values, study.trials[trial.number].system_attrs))
    rest = draw_new(axes, np.random.default_rng(second), size - len(asked), known)
    return [*asked, *((values, {}) for values in rest)]


def _sampler(search: str, seed: int, size: int) -> optuna.samplers.BaseSampler:
    if search == CMA_ES:
        return optuna.samplers.CmaEsSampler(seed=seed, popsize=max(size, 2))
    if search == GP:
        return optuna.samplers.GPSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)
