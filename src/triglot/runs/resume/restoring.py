"""The state of a run: initialized, or read from its last checkpoint."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError, check_known
from ...core.hyper import MAX_COUNT
from ...core.loop import checkpoint
from ...core.loop.checkpoint import Checkpoints
from ...core.loop.state import RunnerState, run_key
from ...core.records import JSON
from ...core.types import by_path
from ..monitoring.evaluating import best_checkpoints
from ..plan import Plan
from ..storage.records import recorded_progress
from .binding import check_state, edited
from .changing import RATE, Translation, with_current_rate

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
    done, state, trained = checkpoints.restore_bound(
        translation.like, previous=previous, **_written_otherwise(plan, translation)
    )
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
    state = with_current_rate(plan, translation.of(done, state), trained)
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


def _written_otherwise(plan: Plan, translation: Translation) -> dict[str, Any]:
    """Describe in what a checkpoint may differ, for `checkpoint.restore_bound`.

    A learning rate that was changed may have been a number and be a schedule now, or the reverse;
    `with_current_rate` then sets it.
    """
    if not hasattr(plan.experiment.hyperparams, RATE):
        return {}
    prefix = f"schedules.{RATE}."
    leaves = {
        f"schedules.{path}": leaf for path, leaf in by_path(translation.whole.schedules).items()
    }
    added = {
        path: jnp.zeros(leaf.shape, leaf.dtype)
        for path, leaf in leaves.items()
        if path.startswith(prefix)
    }
    return {"added": added, "dropped": (prefix,)}
