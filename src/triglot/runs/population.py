"""The results of a population: its best member, with the lineage and hyperparameters behind it."""

from pathlib import Path

import numpy as np

from ..core.errors import TriglotError
from ..core.hyper import check_count
from ..core.loop.population import PARENT
from ..core.loop.state import RunnerState
from ..core.records import JSON
from ..shared.pages.numbers import format_value
from ..shared.statistics import format_return
from .plan import Plan
from .plots.population import RETURN, draw_population, lineage
from .storage.journal import read_metrics
from .storage.records import SUMMARY, recorded

POPULATION = "population"  # a field of the summary
FILE = "population.png"


def ranked(plan: Plan, state: RunnerState, evaluated: JSON | None) -> JSON | None:
    """Rank the members by their evaluation, or without one by their fitness in training.

    Returns:
      `ranking`, the members with the best first; and of the best, `best_member`, `fitness` and
      `hyper`, the current values of what is perturbed. None without a population.
    """
    population = plan.population
    if population is None:
        return None
    fitness = state.member.fitness if evaluated is None else evaluated["return_per_seed"]
    fitness = np.nan_to_num(np.asarray(fitness, float), nan=-np.inf)
    order = np.argsort(-fitness, kind="stable")
    best = int(order[0])
    values = {name: float(array[best]) for name, array in population.values(state).items()}
    return {
        "best_member": best,
        "fitness": float(fitness[best]),
        "hyper": values,
        "ranking": order.tolist(),
    }


def describe(population: JSON) -> str:
    """Describe the best member in a line."""
    hyper = ", ".join(
        f"{name} {format_value(value)}" for name, value in population["hyper"].items()
    )
    fitness = format_return(population["fitness"])
    return f"best member: {population['best_member']}, return {fitness}, {hyper}"


def draw(plan: Plan, best: int) -> None:
    """Plot returns and hyperparameters of all members, with the lineage of the best."""
    assert plan.population is not None  # narrows the type
    names = [axis.name for axis in plan.population.perturbed]
    env_steps, metrics = read_metrics(plan.out, (RETURN, PARENT, *names))
    held = lineage(metrics[PARENT].astype(int), best)
    shown = {name: metrics[name] for name in (RETURN, *names)}
    draw_population(plan.out / FILE, env_steps, shown, held, plan.title)


def chosen_seed_index(folder: Path, index: int | None, num_seeds: int) -> int:
    """Return which seed of a run acts: the one of this `index`, a population's best member, or 0.

    Raises:
      TriglotError: if the run has no such seed, with their number.
    """
    if index is None:
        population = (recorded(folder, SUMMARY) or {}).get(POPULATION)
        return int(population["best_member"]) if isinstance(population, dict) else 0
    check_count("seed_index", index, 0)
    if index >= num_seeds:
        raise TriglotError(
            f"seed_index must be less than the run's number of seeds, {num_seeds}; got {index}."
        )
    return index
