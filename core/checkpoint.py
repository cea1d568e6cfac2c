"""Training states on disk: every array of a `RunnerState`, typed keys among them, by orbax."""

from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from .errors import TriglotError

State = TypeVar("State")


def save(path: Path, state: object) -> None:
    """Write a pytree of arrays to a new folder, whole or not at all.

    Raises:
      TriglotError: if there is something at `path` already.
    """
    import orbax.checkpoint as ocp

    if path.exists():
        raise TriglotError(f"{path} exists already, and no checkpoint is overwritten.")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(path.absolute(), state)
        checkpointer.wait_until_finished()


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
    abstract = jax.eval_shape(lambda: like)
    with ocp.StandardCheckpointer() as checkpointer:
        try:
            metadata = checkpointer.metadata(path.absolute()).item_metadata
            if metadata is None:
                raise TriglotError(f"{path} is no whole checkpoint: it does not say what it holds.")
            # Orbax itself would cast another dtype without a word.
            _check_same(path, _describe(metadata.tree), _describe(_plain(abstract)))
            return checkpointer.restore(path.absolute(), abstract)
        except TriglotError:
            raise
        # Orbax raises errors of many kinds, and says in each what it found.
        except Exception as error:
            found = " ".join(str(error).split())[:200]
            raise TriglotError(f"{path} is no whole checkpoint: {found}") from error


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
