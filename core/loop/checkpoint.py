"""Training states on disk: every array of a `RunnerState`, typed keys among them, by orbax.

A checkpoint is a folder that holds what orbax writes and `manifest.json`, a digest of each file. It
appears under its name when all of it is on disk: whatever kills a program, there is no half of one.
"""

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import CannotWrite, TriglotError, describe, writing

State = TypeVar("State")

MANIFEST = "manifest.json"
UNFINISHED = ".unfinished-"
OVERHEAD = 2**18  # bytes beside the arrays, generously


class DamagedError(TriglotError):
    """A checkpoint is not as it was written."""


def save(path: Path, state: object) -> None:
    """Write a pytree of arrays to a new folder, whole or not at all.

    Raises:
      TriglotError: if there is something at `path` already.
      CannotWrite: if it cannot be written (a full disk, a folder that is read-only).
    """
    import orbax.checkpoint as ocp

    if path.exists():
        raise TriglotError(f"{path} exists already, and no checkpoint is overwritten.")
    unfinished = path.absolute().with_name(UNFINISHED + path.name)
    _sweep(unfinished.parent)
    with writing(path):
        _find_room(unfinished, sum(getattr(leaf, "nbytes", 8) for leaf in jax.tree.leaves(state)))
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(unfinished, state)
            checkpointer.wait_until_finished()
        (unfinished / MANIFEST).write_text(json.dumps(_digests(unfinished), indent=1))
        _sync(unfinished / MANIFEST)
        os.rename(unfinished, path)
        _sync(path.absolute().parent)
    # Orbax wraps what the system says in errors of many kinds.
    except Exception as error:
        _sweep(unfinished.parent)
        raise CannotWrite(f"the checkpoint {path} cannot be written: {_cause(error)}.") from error


def restore(path: Path, like: State) -> State:
    """Read a pytree that `save` wrote.

    Args:
      path: the folder.
      like: a pytree of the same structure, shapes and dtypes; `jax.ShapeDtypeStruct`s suffice.

    Returns:
      The arrays, in the structure of `like`.

    Raises:
      TriglotError: if there is no checkpoint, it cannot be read, or it holds another training's
        state (of another algorithm, library, size or number of seeds).
    """
    import orbax.checkpoint as ocp

    if not path.is_dir():
        raise TriglotError(f"there is no checkpoint at {path}.")
    _check_whole(path)
    abstract = jax.eval_shape(lambda: like)
    with ocp.StandardCheckpointer() as checkpointer:
        try:
            metadata = checkpointer.metadata(path.absolute()).item_metadata
            if metadata is None:
                raise DamagedError(f"{path} is no whole checkpoint: it does not say what it holds.")
            # Orbax itself would cast another dtype without a word.
            _check_same(path, _describe(metadata.tree), _describe(_plain(abstract)))
            return jax.tree.map(_as_made, checkpointer.restore(path.absolute(), abstract))
        except TriglotError:
            raise
        # Orbax raises errors of many kinds, and says in each what it found.
        except Exception as error:
            found = " ".join(str(error).split())[:200]
            raise DamagedError(f"{path} is no whole checkpoint: {found}") from error


def _as_made(leaf: jax.Array) -> jax.Array:
    """Free an array from the device that orbax committed it to.

    A program for committed arrays is another one, which the cache of compiled programs lacks.
    """
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(
            _as_made(jax.random.key_data(leaf)), impl=jax.random.key_impl(leaf)
        )
    return jnp.array(np.asarray(leaf))


def _plain(abstract: Any) -> Any:
    """Show typed keys as the integers that are stored."""

    def shown(leaf: Any) -> Any:
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf

    return jax.tree.map(shown, abstract)


def _describe(tree: Any) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path, simple=True, separator="."): f"{leaf.dtype}{list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree)
    }


def _check_same(path: Path, stored: dict[str, str], expected: dict[str, str]) -> None:
    for name in sorted(stored.keys() | expected.keys()):
        there, here = stored.get(name, "absent"), expected.get(name, "absent")
        if there != here:
            raise TriglotError(
                f"the checkpoint {path} is of another training: {name} is {there} in it, and "
                f"{here} was expected."
            )


@dataclass(frozen=True)
class Checkpoints:
    """Checkpoints of one training, numbered by the updates done, of which the last few are kept.

    Attributes:
      folder: where they are.
      keep: how many; 2, so that there is one to go back to.
    """

    folder: Path
    keep: int = 2

    def numbers(self) -> list[int]:
        """List those there are, by updates done."""
        names = (path.name for path in self.folder.glob("[0-9]*"))
        return sorted(int(name) for name in names if name.isdigit())

    def path(self, number: int) -> Path:
        """Say where one is."""
        return self.folder / f"{number:08d}"

    def save(self, number: int, state: object) -> None:
        """Write one, and then let go of the oldest; one that is there already is kept.

        Raises:
          CannotWrite: if it cannot be written; those there were are left alone.
        """
        if number in self.numbers():
            return
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        save(self.path(number), state)
        for old in self.numbers()[: -self.keep]:
            shutil.rmtree(self.path(old), ignore_errors=True)

    def restore(self, like: State, *, previous: bool = False) -> tuple[int, State]:
        """Read the last one.

        Args:
          like: see `restore`.
          previous: where the last is damaged, take the one before.

        Returns:
          The updates done, and the state.

        Raises:
          TriglotError: if there is none, or it is damaged or of another training.
        """
        numbers = self.numbers()
        if not numbers:
            raise TriglotError(f"there is no checkpoint in {self.folder}.")
        try:
            return numbers[-1], restore(self.path(numbers[-1]), like)
        except DamagedError as error:
            if previous and len(numbers) > 1:
                return numbers[-2], restore(self.path(numbers[-2]), like)
            if len(numbers) > 1:
                raise DamagedError(
                    f"{error} The one before it, after {numbers[-2]:,} updates, is there: "
                    "`triglot resume --previous` goes on from it."
                ) from None
            raise


def _find_room(path: Path, num_bytes: int) -> None:
    """Fail while nothing is written yet: orbax's threads would fail late, each with a traceback."""
    try:
        with path.open("wb") as file:
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(file.fileno(), 0, num_bytes + OVERHEAD)
    finally:
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove what a program that was killed left half written, and orbax's own such folders."""
    for left in folder.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)


def _cause(error: Exception) -> str:
    """Find what the system said, which stands at the end of a long message of orbax's."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    code = re.search(r"os_error_code='(\d+)'", str(error))
    return os.strerror(int(code[1])) if code else describe(error)


def _digests(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != MANIFEST
    }


def _check_whole(path: Path) -> None:
    try:
        expected = json.loads((path / MANIFEST).read_text())
        found = _digests(path)
    except (OSError, ValueError) as error:
        raise DamagedError(f"{path} is no whole checkpoint: {describe(error)}.") from None
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            state = "is missing" if name not in found else "is not as it was written"
            raise DamagedError(f"the checkpoint {path} is damaged: its file {name} {state}.")


def _sync(path: Path) -> None:
    """Wait until a file or the names in a folder are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
