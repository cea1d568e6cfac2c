"""Save and restore training states, including typed keys, by orbax.

A checkpoint is a folder with orbax's files and `manifest.json`, a digest of each file. It is
written under a temporary name and renamed when it is complete, so that an interruption leaves no
partial checkpoint.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CannotWrite, TriglotError, counted, describe, writing
from ..folders import require_plain
from ..manifest import DamagedError, check_manifest, sync, write_manifest
from ..records import JSON, JSONDict
from ..types import PyTree, by_path, is_key, on_data, path_of, type_differences

State = TypeVar("State")

UNFINISHED = ".unfinished-"
DAMAGED = "damaged-"
_NUMBER = re.compile(r"[0-9]{8,}", re.ASCII)  # `isdigit` accepts other scripts and signs too
OVERHEAD = 2**18  # upper bound of the bytes in addition to the arrays


def save(
    path: Path,
    state: object,
    of: JSON | None = None,
    write_files: Callable[[Path], None] | None = None,
) -> None:
    """Write a pytree of arrays to a new folder, atomically.

    Args:
      path: the folder.
      state: the arrays.
      of: what they belong to, such as the options of a run, as JSON has it; see `check_manifest`.
      write_files: called with the unfinished folder, to write further files of the checkpoint.

    Raises:
      TriglotError: if `path` exists.
      CannotWrite: if it cannot be written (a full disk, a read-only folder).
    """
    import orbax.checkpoint as ocp

    if path.exists():
        raise TriglotError(f"{path} already exists: delete it, or choose another path.")
    unfinished = path.absolute().with_name(UNFINISHED + path.name)
    _sweep(unfinished.parent)
    with writing(path):
        _find_room(path.parent, sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(state)))
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(unfinished, _without_empty(state))
            checkpointer.wait_until_finished()
        if write_files is not None:
            write_files(unfinished)
        # Orbax alone does not notice a changed byte.
        write_manifest(unfinished, of)
        os.rename(unfinished, path)
        sync(path.absolute().parent)
    # Orbax wraps the system's errors in many types.
    except Exception as error:
        _sweep(unfinished.parent)
        raise CannotWrite(f"the checkpoint {path} cannot be written: {_cause(error)}.") from error


def restore(path: Path, like: State) -> State:
    """Read a pytree written by `save`; arguments and errors are those of `restore_bound`."""
    return restore_bound(path, like)[0]


def restore_bound(
    path: Path,
    like: State,
    added: Mapping[str, PyTree] | None = None,
    dropped: tuple[str, ...] = (),
) -> tuple[State, JSONDict]:
    """Read a pytree written by `save`, and what it belongs to.

    Args:
      path: the folder.
      like: a pytree with arrays of the same paths, shapes and dtypes; `jax.ShapeDtypeStruct`
        leaves suffice. Containers without arrays may differ.
      added: arrays of `like` by path, used where the checkpoint lacks them.
      dropped: how paths begin of arrays that the checkpoint may have, and `like` lacks.

    Returns:
      The arrays, in the structure of `like`; and what they belong to.

    Raises:
      TriglotError: if there is no checkpoint, or its structure, shapes or dtypes differ from `like`
        (another algorithm, library, size or number of seeds).
      DamagedError: if it is incomplete or was modified.
    """
    import orbax.checkpoint as ocp

    if not path.is_dir():
        raise TriglotError(f"there is no checkpoint at {path}.")
    require_plain(path)
    of = check_manifest(path)
    abstract = jax.eval_shape(lambda: like)
    with ocp.StandardCheckpointer() as checkpointer:
        try:
            metadata = checkpointer.metadata(path.absolute()).item_metadata
            if metadata is None:
                raise DamagedError(f"{path} is not a complete checkpoint: its metadata is missing.")
            stored = by_path(metadata.tree)
            # Orbax would silently cast a different dtype.
            differences = type_differences(stored, by_path(_plain(abstract)))
            wanted = by_path(abstract)
            lacking = {**_empty(abstract), **(added or {})}
            filled = {n: lacking[n] for n in lacking.keys() - stored.keys()}
            left_out = {n for n in stored.keys() - wanted.keys() if n.startswith(dropped)}
            for name in differences.keys() - filled.keys() - left_out:
                held, needed = differences[name]
                raise TriglotError(
                    f"the checkpoint {path} belongs to another training: {name} is {held} in it, "
                    f"but expected {needed}."
                )
            # Orbax also compares containers without arrays, of which each library has its own.
            described = [
                jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) if n in left_out else wanted[n]
                for n, leaf in stored.items()
            ]
            item = jax.tree.unflatten(jax.tree.structure(metadata.tree), described)
            arrays = by_path(checkpointer.restore(path.absolute(), item)).values()
            leaf_arrays = {**filled, **dict(zip(stored, arrays, strict=True))}
            # Not committed to a device: a program for committed arrays is compiled separately, and
            # would miss the compilation cache.
            leaves = [
                on_data(lambda array: jnp.array(np.asarray(array)), leaf_arrays[n]) for n in wanted
            ]
            return jax.tree.unflatten(jax.tree.structure(abstract), leaves), of
        except TriglotError:
            raise
        # Orbax raises many types of errors.
        except Exception as error:
            message = " ".join(str(error).split())[:200]
            raise DamagedError(f"{path} is not a complete checkpoint: {message}") from error


def _without_empty(state: PyTree) -> PyTree:
    """Replace arrays without elements, which orbax does not save, by None."""
    empty = _empty(state)
    return jax.tree.map_with_path(
        lambda path, leaf: None if path_of(path) in empty else leaf, state
    )


def _empty(tree: PyTree) -> dict[str, jax.Array]:
    """Make the arrays of a tree that have no elements, by path."""
    shapes = by_path(jax.eval_shape(lambda: tree))
    return {
        path: jnp.zeros(leaf.shape, leaf.dtype)
        for path, leaf in shapes.items()
        if not leaf.size and not is_key(leaf)
    }


def _plain(abstract: PyTree) -> PyTree:
    """Replace typed keys by the integers that are stored."""

    def stored(leaf: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        return jax.eval_shape(jax.random.key_data, leaf) if is_key(leaf) else leaf

    return jax.tree.map(stored, abstract)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, numbered by updates done; only the last few are kept.

    Attributes:
      folder: their parent folder.
      keep: how many to keep; the default 2 leaves a fallback if the last one is damaged.
    """

    folder: Path
    keep: int = 2

    def numbers(self) -> list[int]:
        """List the existing checkpoints by updates done, in ascending order.

        Raises:
          TriglotError: if the folder exists and cannot be read.
        """
        try:
            names = os.listdir(self.folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TriglotError(f"{self.folder} cannot be read: {error.strerror}.") from None
        return sorted(int(name) for name in names if _NUMBER.fullmatch(name))

    def path(self, number: int) -> Path:
        """Path of one checkpoint."""
        return self.folder / f"{number:08d}"

    def save(
        self,
        number: int,
        state: object,
        of: JSON | None = None,
        write_files: Callable[[Path], None] | None = None,
    ) -> None:
        """Write a checkpoint unless it exists, then delete the oldest ones.

        Args:
          number: updates done.
          state: the arrays.
          of, write_files: see `save`.

        Raises:
          CannotWrite: if it cannot be written; the existing ones are kept.
        """
        if number in self.numbers():
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        save(self.path(number), state, of, write_files)
        for old in self.numbers()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)

    def set_aside(self, number: int) -> None:
        """Rename the checkpoints after `number`, which are damaged, so that training replaces them.

        They become `damaged-` and their number; those set aside before are deleted. They must be
        renamed, because `save` keeps an existing checkpoint of the same number.

        Raises:
          CannotWrite: if the folder is read-only.
        """
        with writing(self.folder):
            for old in self.folder.glob(f"{DAMAGED}*"):
                shutil.rmtree(old)
            for later in self.numbers():
                if later > number:
                    os.rename(self.path(later), self.folder / f"{DAMAGED}{later:08d}")

    def restore(
        self, like: State | Callable[[int], State], *, previous: bool = False
    ) -> tuple[int, State]:
        """Read the last checkpoint: the updates done, and the state; see `restore_bound`."""
        return self.restore_bound(like, previous=previous)[:2]

    def restore_bound(
        self,
        like: State | Callable[[int], State],
        *,
        previous: bool = False,
        added: Mapping[str, PyTree] | None = None,
        dropped: tuple[str, ...] = (),
    ) -> tuple[int, State, JSONDict]:
        """Read the last checkpoint, and what it belongs to.

        Args:
          like: see `checkpoint.restore_bound`; or a function of the checkpoint's number that
            returns it.
          previous: if the last one is damaged, read the one before it.
          added, dropped: see `checkpoint.restore_bound`.

        Returns:
          The updates done, the state, and what it belongs to.

        Raises:
          TriglotError: if there is none, it is damaged, or it does not fit `like`.
        """
        numbers = self.numbers()
        if not numbers:
            raise TriglotError(f"there is no checkpoint in {self.folder}.")

        def read(number: int) -> tuple[int, State, JSONDict]:
            wanted: PyTree = like(number) if callable(like) else like
            return number, *restore_bound(self.path(number), wanted, added, dropped)

        try:
            return read(numbers[-1])
        except DamagedError as error:
            if previous and len(numbers) > 1:
                return read(numbers[-2])
            if len(numbers) > 1:
                raise DamagedError(
                    f"{error} `triglot resume {self.folder.parent} --previous` continues from the "
                    f"one before it, after {counted(numbers[-2], 'update')}."
                ) from None
            raise


def _find_room(folder: Path, num_bytes: int) -> None:
    """Fail early on a full disk: orbax's threads would fail late, each with a traceback."""
    with tempfile.TemporaryFile(dir=folder) as file:  # without a name: no kill leaves it behind
        if hasattr(os, "posix_fallocate"):  # not on macOS
            os.posix_fallocate(file.fileno(), 0, num_bytes + OVERHEAD)


def _sweep(folder: Path) -> None:
    """Remove unfinished checkpoints of killed programs."""
    for unfinished in folder.glob(f"{UNFINISHED}*"):
        if unfinished.is_dir() and not unfinished.is_symlink():
            shutil.rmtree(unfinished, ignore_errors=True)
        else:
            unfinished.unlink(missing_ok=True)


def _cause(error: Exception) -> str:
    """Extract the system's error from orbax's long message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else describe(error)
