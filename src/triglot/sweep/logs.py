"""Send the results of a sweep to loggers: one run of the logger for each setting."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..core.errors import TriglotError
from ..core.records import JSONDict
from ..runs.monitoring.evaluating import METRIC
from ..runs.registry.overrides import overrides_of
from ..runs.storage import logs
from ..shared.machine.files import plain
from .options import SweepCommandOptions
from .plan import SweepPlan
from .results import Outcome
from .settings import algorithms_of, train_options

FOLDER = "logs"  # in the sweep's folder, with one folder for each setting


def check(options: SweepCommandOptions) -> None:
    """Reject unknown loggers, loggers that are not installed, and wrong words of `--wandb`.

    Raises:
      TriglotError: with the name or the word.
    """
    logs.check(options.log, options.wandb)
    if "id" in logs.wandb_arguments(options.wandb):
        raise TriglotError(
            "--wandb id names one run of W&B, and a sweep starts one for each setting: leave it "
            "out. --wandb group=NAME puts them into one group."
        )


def send(out: Path, plan: SweepPlan, outcomes: Sequence[Outcome]) -> None:
    """Log the learning curves and the greedy returns of all settings.

    The runs of W&B are in the group that `--wandb`, `$WANDB_RUN_GROUP` or, without either, the
    sweep's folder names. A sweep that is continued continues them.

    Args:
      out: the sweep's folder.
      plan: the sweep.
      outcomes: the results of each setting.
    """
    options = plan.options
    for outcome in outcomes if options.log else ():
        folder = out / FOLDER / f"setting-{outcome.number + 1}"
        folder.mkdir(parents=True, exist_ok=True)
        words = logs.with_group(options.wandb, out.resolve().name)
        config = {**_config(plan, outcome), "wandb": words}
        for name in options.log:
            log = logs.LOGS[name](folder, config, 0)
            for point, env_steps in enumerate(outcome.env_steps):
                log.add(int(env_steps), {"episode_return": outcome.curves[:, point]})
            if outcome.final is not None:
                log.add(
                    outcome.num_steps, {METRIC: np.where(outcome.finite, outcome.final, np.nan)}
                )
            log.close()


def _config(plan: SweepPlan, outcome: Outcome) -> JSONDict:
    """Describe a setting by the options of `triglot train`, as in a run's `config.json`."""
    chosen = train_options(plan.options, outcome.values, algorithms_of(plan.options))
    options = {name: getattr(chosen, name) for name in logs.CHOSEN}
    return plain(
        {
            **options,
            "config": overrides_of(chosen.config),
            "hyper": overrides_of(chosen.hyper),
            "eval_every": chosen.total_steps if chosen.eval_episodes else None,
            "swept": dict(outcome.values),
        }
    )
