"""Checkpoints are whole or not there, and a damaged one is told from a good one."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from triglot.core.errors import TriglotError
from triglot.core.loop import checkpoint
from triglot.core.loop.checkpoint import Checkpoints
from triglot.core.manifest import MANIFEST, DamagedError


def state(number: int) -> dict:
    return {
        "params": jnp.arange(6.0).reshape(2, 3) + number,
        "key": jax.random.split(jax.random.key(number), 2),
        "num_updates": jnp.asarray(number),
        "nothing": (),
    }


def assert_same(first: dict, second: dict) -> None:
    np.testing.assert_array_equal(first["params"], second["params"])
    keys = [jax.random.key_data(s["key"]) for s in (first, second)]
    np.testing.assert_array_equal(keys[0], keys[1])
    assert int(first["num_updates"]) == int(second["num_updates"])


def damage(folder: Path) -> None:
    """Change one byte of the largest file that the manifest names."""
    named = (f for f in folder.rglob("*") if f.is_file() and f.name != MANIFEST)
    file = max(named, key=lambda f: f.stat().st_size)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_the_last_two_are_kept_and_the_last_is_restored(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "checkpoints")
    for number in (3, 7, 12, 12):
        kept.save(number, state(number))
    assert kept.numbers() == [7, 12]
    number, restored = kept.restore(state(0))
    assert number == 12
    assert_same(restored, state(12))


def test_a_changed_byte_is_found_and_the_one_before_serves(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, state(1))
    kept.save(2, state(2))
    damage(kept.path(2))
    with pytest.raises(DamagedError, match=r"was modified.*--previous.*after 1 update"):
        kept.restore(state(0))
    number, restored = kept.restore(state(0), previous=True)
    assert number == 1
    assert_same(restored, state(1))


@pytest.mark.parametrize("where", range(0, 400, 57))
def test_a_changed_manifest_is_found_and_the_one_before_serves(where: int, tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, state(1))
    kept.save(2, state(2))
    manifest = kept.path(2) / MANIFEST
    content = bytearray(manifest.read_bytes())
    content[where % len(content)] ^= 1
    manifest.write_bytes(content)
    with pytest.raises(DamagedError, match=r"(damaged|not a complete checkpoint).*--previous"):
        kept.restore(state(0))
    assert kept.restore(state(0), previous=True)[0] == 1


def test_what_was_left_unfinished_is_no_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, state(1))
    (tmp_path / f"{checkpoint.UNFINISHED}00000002").mkdir()
    assert kept.restore(state(0))[0] == 1
    kept.save(2, state(2))
    assert kept.restore(state(0))[0] == 2
    assert not list(tmp_path.glob(f"{checkpoint.UNFINISHED}*"))


def test_a_missing_file_and_no_checkpoint(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    with pytest.raises(TriglotError, match="there is no checkpoint in"):
        kept.restore(state(0))
    kept.save(1, state(1))
    files = (f for f in kept.path(1).rglob("*") if f.is_file() and f.name != MANIFEST)
    next(files).unlink()
    with pytest.raises(DamagedError, match="is missing"):
        kept.restore(state(0))


def test_what_cannot_be_written_is_told_and_the_rest_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, state(1))

    def full(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("triglot.core.manifest.sync", full)
    with pytest.raises(TriglotError, match=r"cannot be written: No space left"):
        kept.save(2, state(2))
    assert kept.numbers() == [1]
    assert kept.restore(state(0))[0] == 1
    blocked = Checkpoints(tmp_path / "file" / "checkpoints")
    (tmp_path / "file").touch()
    with pytest.raises(TriglotError, match="checkpoints cannot be read: Not a directory"):
        blocked.save(1, state(1))


def test_what_is_restored_is_committed_to_no_device(tmp_path: Path) -> None:
    checkpoint.save(tmp_path / "one", state(1))
    restored = checkpoint.restore(tmp_path / "one", state(0))
    assert_same(restored, state(1))
    assert not any(leaf.committed for leaf in jax.tree.leaves(restored))


def test_containers_without_arrays_may_differ(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    kept.save(1, {**state(1), "nothing": {"actor": {}}, "pair": (jnp.ones(2), [])})
    like = {**state(0), "nothing": [None, ()], "pair": (jnp.zeros(2), {})}
    _, restored = kept.restore(like)
    assert_same(restored, state(1))
    assert jax.tree.structure(restored) == jax.tree.structure(like)
    with pytest.raises(TriglotError, match=r"pair\.1 is absent in it"):
        kept.restore({**like, "pair": (jnp.zeros(2), jnp.zeros(1))})


def test_arrays_without_elements_are_kept(tmp_path: Path) -> None:
    state = {"full": jnp.ones(2), "empty": jnp.zeros((0, 4), jnp.int32), "none": None}
    checkpoint.save(tmp_path / "c", state)
    found = checkpoint.restore(tmp_path / "c", state)
    assert (found["empty"].shape, found["empty"].dtype) == ((0, 4), jnp.int32)
    np.testing.assert_array_equal(found["full"], state["full"])
    with pytest.raises(TriglotError, match=r"empty is absent in it, but expected int32\[1, 4\]"):
        checkpoint.restore(tmp_path / "c", {**state, "empty": jnp.zeros((1, 4), jnp.int32)})
