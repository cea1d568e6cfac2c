"""Which search finds better settings with the same environment steps: TPE against random search.

Each repetition has another seed, and both searches begin with the same settings. The best setting
is trained again with fresh seeds; its return on them counts. A finished search is read, an
interrupted one is continued; `docs/search.md` is written anew:

    python -m benchmarks.search
    python -m benchmarks.search --repetitions 10 --out runs/search
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from triglot.shared.pages import numbers
from triglot.shared.statistics.estimate import mean
from triglot.shared.statistics.paired import paired_difference
from triglot.sweep import sweep

from . import harness

ROOT = Path(__file__).resolve().parents[1]
NUM_SETTINGS, SEARCH_BATCH, NUM_SEEDS, FRESH = 32, 4, 5, 10
HEADER = ("task", "search", "steps", "return, fresh seeds", "on the seeds that chose", "- random")
PAGE = """\
# Searches

`python -m benchmarks.search`: {num_settings} settings with {num_seeds} seeds each, and so the same
environment steps for each search, in {repetitions} repetitions with other seeds. TPE trains rounds
of {batch}, the first of which random search trains too. The best setting is trained again with
{fresh} fresh seeds: their greedy return is what was found. *On the seeds that chose* is the return
by which the setting won, too high on average. *- random* is the difference to random search, paired
by repetition. Intervals are at 95 %, over the repetitions.

{table}

{tasks}

On {machine}.
"""


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is searched for.

    Attributes:
      algorithm: its name.
      env: its name.
      over: the ranges.
      total_steps: of each seed.
      config: what differs from the defaults.
    """

    algorithm: str
    env: str
    over: Mapping[str, str]
    total_steps: int
    config: Mapping[str, Any] = field(default_factory=dict)


PPO = {
    "learning_rate": "log:1e-5..1e-1",
    "clip_epsilon": "0.02..0.5",
    "entropy_coef": "log:1e-5..1",
    "discount": "0.8..0.999",
    "gae_lambda": "0.5..1",
}
SMALL = {
    "num_envs": 8,
    "rollout_length": 64,
    "num_epochs": 4,
    "num_minibatches": 4,
    "hidden_sizes": (32,),
}
TASKS = {
    "CartPole": Task(
        algorithm="ppo", env="gymnax:CartPole-v1", over=PPO, total_steps=16_384, config=SMALL
    ),
    "Acrobot": Task(
        algorithm="ppo", env="gymnax:Acrobot-v1", over=PPO, total_steps=32_768, config=SMALL
    ),
}


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
      fresh: mean return of the best setting with fresh seeds.
      chosen: its mean return on the seeds that chose it.
      env_steps: of all trainings of the search, without those with fresh seeds.
    """

    fresh: float
    chosen: float
    env_steps: int


def of_sweep(task: Task, seed: int, out: Path, **search: Any) -> Found:
    """Search by `triglot sweep`."""
    result = sweep(
        task.algorithm,
        task.env,
        over=task.over,
        config=task.config,
        num_settings=NUM_SETTINGS,
        num_seeds=NUM_SEEDS,
        confirm=FRESH,
        seed=seed,
        total_steps=task.total_steps,
        eval_episodes=32,
        executor="sequential",
        out=out,
        verbose=False,
        **search,
    )
    (confirmed,) = result.confirmed.values()
    return Found(
        fresh=confirmed["return"]["value"],
        chosen=result.ranking[0]["return"]["value"],
        env_steps=sum(one["steps"] for one in result.ranking) * NUM_SEEDS,
    )


# Each takes a task, a seed and a folder, and trains as many environment steps as the others.
SEARCHES: dict[str, Callable[[Task, int, Path], Found]] = {
    "random": lambda *given: of_sweep(*given, search="random"),
    "TPE": lambda *given: of_sweep(*given, search="tpe", search_batch=SEARCH_BATCH),
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to run.

    Attributes:
      tasks: names of `TASKS`.
      repetitions: of each search, with the seeds 1000, 2000 and so on.
      out: a folder for the sweeps and the results.
      page: the page that is written.
    """

    tasks: tuple[str, ...] = tuple(TASKS)
    repetitions: int = 5
    out: Path = ROOT / "runs" / "search"
    page: Path = ROOT / "docs" / "search.md"


def rows_of(task: str, found: Mapping[str, list[Found]]) -> list[list[Any]]:
    """Build a task's rows of the table."""

    def column(name: str, what: str) -> np.ndarray:
        return np.array([getattr(one, what) for one in found[name]])

    def shown(values: np.ndarray) -> str:
        return numbers.with_interval(mean(values).as_json(), numbers.returns)

    rows = []
    for name in found:
        difference = ""
        if name != "random":
            paired = paired_difference(column(name, "fresh"), column("random", "fresh"))
            difference = numbers.with_interval(paired.as_json(), numbers.difference)
        steps = f"{column(name, 'env_steps').mean():,.0f}"
        fresh, chosen = (shown(column(name, what)) for what in ("fresh", "chosen"))
        rows.append([task, name, steps, fresh, chosen, difference])
    return rows


def described(name: str, task: Task) -> str:
    """Describe a task."""
    ranges = ", ".join(f"`{each}={values}`" for each, values in task.over.items())
    config = ", ".join(f"`{each}={numbers.format_value(v)}`" for each, v in task.config.items())
    return (
        f"- **{name}**: `{task.algorithm}` on `{task.env}`, {task.total_steps:,} environment steps "
        f"per seed, over {ranges}; with {config}."
    )


def main(options: Options) -> None:
    """Search, and write the page."""
    rows: list[list[Any]] = []
    for name in options.tasks:
        found: dict[str, list[Found]] = {search: [] for search in SEARCHES}
        for repetition in range(1, options.repetitions + 1):
            for search, run in SEARCHES.items():
                out = options.out / f"{name}-{search}-{repetition}"
                found[search].append(run(TASKS[name], 1000 * repetition, out))
                print(f"{name} {repetition} {search}: {found[search][-1]}", flush=True)
        rows += rows_of(name, found)
        kept = {search: [vars(one) for one in each] for search, each in found.items()}
        harness.write_json(options.out / f"{name}.json", kept)
    machine = harness.environment()
    options.page.write_text(
        PAGE.format(
            num_settings=NUM_SETTINGS,
            num_seeds=NUM_SEEDS,
            repetitions=options.repetitions,
            batch=SEARCH_BATCH,
            fresh=FRESH,
            table=harness.table(HEADER, rows),
            tasks="\n".join(described(name, TASKS[name]) for name in options.tasks),
            machine=f"{machine['cpu']}, Python {machine['python']}",
        )
    )
    print(options.page)


if __name__ == "__main__":
    main(tyro.cli(Options))
