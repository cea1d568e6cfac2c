"""Write the settings and returns of a sweep to a study of Optuna, which optuna-dashboard opens."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend

from ...core.errors import TriglotError, describe
from ...machine.files import plain
from ..axes import Axis
from ..results import Outcome
from .study import SETTING, as_trial, quiet

SWEEP = "triglot_sweep"  # user attribute of a study: the options of the sweep that it belongs to


@dataclass(frozen=True)
class StoredStudy:
    """The study of a sweep in a storage.

    Attributes:
      study: as Optuna opened it.
      axes: what is swept.
      storage: as it was given.
    """

    study: optuna.Study
    axes: Sequence[Axis]
    storage: str

    @classmethod
    def open(
        cls, storage: str, name: str, axes: Sequence[Axis], options: Mapping[str, Any]
    ) -> "StoredStudy":
        """Create the study, or continue that of the same sweep.

        Args:
          storage: a URL of SQLAlchemy, or the path of a journal file.
          name: of the study.
          axes: what is swept.
          options: what decides the results of the sweep.

        Raises:
          TriglotError: if the storage cannot be used, or another sweep has a study of this name.
        """
        mine = json.loads(json.dumps(plain(options)))
        try:
            with quiet():
                study = optuna.create_study(
                    storage=_backend(storage),
                    study_name=name,
                    direction="maximize",
                    load_if_exists=True,
                )
                found = study.user_attrs.get(SWEEP)
                if found is None and not study.trials:
                    study.set_user_attr(SWEEP, mine)
                    found = mine
        except Exception as error:  # of SQLAlchemy, of its driver or of the file system
            raise _unusable(storage, error) from None
        if found != mine:
            raise TriglotError(
                f"--storage {storage} has a study {name!r} of another sweep: choose another --out, "
                "whose name the study gets, or another --storage."
            )
        return cls(study, axes, storage)

    def add(self, found: Sequence[Outcome]) -> None:
        """Add the outcomes that the study does not have yet.

        Raises:
          TriglotError: if the storage cannot be written.
        """
        try:
            with quiet():
                known = {trial.user_attrs.get(SETTING) for trial in self.study.trials}
                new = [one for one in found if one.number + 1 not in known]
                self.study.add_trials([as_trial(self.axes, one) for one in new])
        except Exception as error:
            raise _unusable(self.storage, error) from None


def _backend(storage: str) -> str | BaseStorage:
    return storage if "://" in storage else JournalStorage(JournalFileBackend(storage))


def _unusable(storage: str, error: Exception) -> TriglotError:
    reasons = [error, error.__cause__]  # Optuna names SQLAlchemy's error as the cause of its own
    if any("locked" in str(reason) for reason in reasons):
        return TriglotError(
            f"--storage {storage} is in use: another program keeps it locked. Wait for it or close "
            "it, then run the same command again, or choose another --storage."
        )
    return TriglotError(
        f"--storage {storage} cannot be used ({describe(error)}): give sqlite:///FILE.db, or the "
        "path of a journal file in a folder that exists."
    )
