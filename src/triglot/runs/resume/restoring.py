"""The state of a run: initialized, or read from its last checkpoint."""

from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError, check_known
from ...core.families.extension import Extended, older_paths
from ...core.hyper import MAX_COUNT, first_numbers
from ...core.loop import checkpoint
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.state import RunnerState, run_key
from ...core.manifest import DamagedError
from ...core.records import JSON
from ...core.types import PyTree, by_path
from ..monitoring.evaluating import best_checkpoints
from ..plan import Plan
from ..storage.config import moved_to_hyper, read_config
from ..storage.old_numbers import OLD_NUMBERS
from ..storage.records import recorded_progress
from .binding import check_state, edited
from .changing import Translation, rescheduled, with_current_schedules

CHECKPOINTS, KEPT = "checkpoints", "kept"
KINDS = ("last", "best")


class Progress(NamedTuple):
    """The runner states (None before the first update) and the number of updates done.

    Attributes:
      state: `[S, ...]`.
      num_updates: updates done.
      edited: the options in `config.json` that are not those of the checkpoint, in words.
    """

    state: RunnerState | None
    num_updates: int
    edited: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """A sentence on edited options; empty if there are none."""
        what = "; ".join(self.edited)
        return f"warning: the checkpoint was trained with other options: {what}" if what else ""


def restore(plan: Plan, *, previous: bool = False, kind: str = "last") -> Progress:
    """Read a checkpoint of a run.

    Args:
      plan: the training.
      previous: if the last checkpoint is damaged, read the one before it.
      kind: last; or best, the one with the highest evaluated return.

    Raises:
      TriglotError: if there is no checkpoint, it is damaged, or it does not fit the run.
    """
    check_known("checkpoint", kind, KINDS)
    if kind == "best" and previous:
        raise TriglotError("--previous is about the last checkpoint, and --checkpoint is best.")
    recorded = recorded_progress(plan.out)
    is_best = kind == "best"
    checkpoints = best_checkpoints(plan.out) if is_best else Checkpoints(plan.out / CHECKPOINTS)
    if is_best and not checkpoints.numbers():
        raise TriglotError(
            f"{plan.out} has no best checkpoint: `triglot train --eval-every N` keeps one. Leave "
            "--checkpoint out for the last."
        )
    if recorded and not checkpoints.numbers():
        raise TriglotError(
            f"the checkpoints of {plan.out} are gone; the last one was written after {recorded:,} "
            f"updates. Put {checkpoints.folder} back, or train again in another folder."
        )
    translation = Translation(plan, plan.experiment.shapes)
    try:
        done, state, trained = checkpoints.restore_bound(
            translation.like, previous=previous, **_written_otherwise(plan, translation)
        )
    except DamagedError:
        raise
    except TriglotError as error:
        schema = read_config(plan.out).get("migrated_from")
        if schema is None:
            raise
        raise TriglotError(
            f"{plan.out} was written by an earlier version of triglot (schema {schema}), whose "
            f"checkpoint cannot be read: {error} Use that version, or train again."
        ) from None
    return _checked(plan, checkpoints.path(done), done, translation, state, trained)


def _checked(
    plan: Plan,
    path: Path,
    done: int,
    translation: Translation,
    state: RunnerState,
    trained: JSON,
) -> Progress:
    check_state(path, done, state, jax.vmap(run_key)(plan.experiment.keys))
    state = with_current_schedules(plan, translation.of(done, state), trained)
    return Progress(state, done, tuple(edited(plan, trained)))


def kept_checkpoints(folder: Path) -> Checkpoints:
    """Give the place of the checkpoints that `--keep-every` keeps.

    Args:
      folder: the run directory.
    """
    return Checkpoints(folder / KEPT, keep=MAX_COUNT)


def restore_kept(plan: Plan, number: int) -> Progress:
    """Read the checkpoint that was kept after `number` updates.

    Raises:
      TriglotError: if there is none, it is damaged, or it does not fit the run.
    """
    translation = Translation(plan, plan.experiment.shapes)
    path = kept_checkpoints(plan.out).path(number)
    otherwise = _written_otherwise(plan, translation)
    state, trained = checkpoint.restore_bound(path, translation.like(number), **otherwise)
    return _checked(plan, path, number, translation, state, trained)


def _renamed(plan: Plan) -> dict[str, str]:
    """Map the paths that an older version gave to an extended agent's arrays to today's."""
    return older_paths(plan.experiment.shapes) if isinstance(plan.agent, Extended) else {}


def _written_otherwise(plan: Plan, translation: Translation) -> dict[str, PyTree]:
    """Describe in what a checkpoint differs, for `checkpoint.restore_bound`.

    An older version wrote other hyperparameters, and a learning rate that was changed may have been
    a number and be a schedule now. `with_current_schedules` then sets the values.
    """
    config, new = read_config(plan.out), rescheduled(plan)
    lacking = {*moved_to_hyper(config, plan.agent), *new}
    numbers, shape = first_numbers(plan.experiment.hyperparams), (plan.options.num_seeds,)
    added = {
        f"agent.hyper.{name}": jnp.full(shape, getattr(numbers, name), jnp.float32)
        for name in lacking
    }
    prefixes = tuple(f"schedules.{name}." for name in new)
    for path, leaf in by_path(translation.whole.schedules).items():
        if f"schedules.{path}".startswith(prefixes):
            added[f"schedules.{path}"] = jnp.zeros(leaf.shape, leaf.dtype)
    old = (f"agent.hyper.{name}" for name in config.get(OLD_NUMBERS, ()))
    renamed = _renamed(plan)
    return {"added": added, "dropped": (*prefixes, *old), "renamed": renamed}
