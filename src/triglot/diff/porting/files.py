"""Read and write files of weights as named arrays, for all libraries."""

import io
import math
import pickle
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import jax
import numpy as np
import psutil

from ...core.errors import TriglotError, describe, require
from ...core.types import PyTree

ORDERED = ".eqx"  # arrays without names
OF_KERAS = ".h5"  # arrays by layer, numbered inside
WRITTEN_BY_KERAS = ".weights.h5"


def read_weights(path: Path, *, trust: bool = False) -> dict[str, np.ndarray]:
    """Read the arrays of a file.

    Args:
      path: `.safetensors`; `.npz`; PyTorch's `.pt`, `.pth`, `.bin`; Keras' `.weights.h5`; Flax's
        `.msgpack`; Equinox's `.eqx`; an Orbax checkpoint's folder; or a `.pkl` of nested
        dictionaries.
      trust: read a pickle, which may run code.

    Returns:
      Arrays by name, in the order of the file; nested names are joined by `/`. Equinox's have their
      position as a name.

    Raises:
      MissingExtra: if the package that reads such files is not installed.
      TriglotError: if the file is missing, damaged, or of another kind.
    """
    if not path.exists():
        raise TriglotError(f"{path} does not exist: give a file of weights.")
    suffix = "folder" if path.is_dir() else path.suffix
    if suffix not in READERS:
        kinds = ", ".join(sorted({*READERS} - {"folder"}))
        raise TriglotError(
            f"{path} has the suffix {path.suffix!r}; expected one of {kinds}, or an Orbax folder."
        )
    if suffix in PICKLES and not trust:
        raise TriglotError(
            f"{path} is a pickle, which may run code when it is read: add --trust if you trust "
            "its author."
        )
    try:
        contents = READERS[suffix](path)
    except TriglotError:
        raise
    except Exception as error:  # each reader has its own
        raise TriglotError(f"{path} cannot be read as {suffix}: {describe(error)}") from None
    arrays = {name: array for name, array in contents.items() if array.dtype.kind in "fiub"}
    if not arrays:
        raise TriglotError(f"{path} holds no arrays.")
    return arrays


def check_kind(path: Path) -> None:
    """Reject a file of a kind that cannot be written.

    Raises:
      TriglotError: if its suffix is not supported.
    """
    if path.suffix not in WRITERS and not path.name.endswith(WRITTEN_BY_KERAS):
        raise TriglotError(
            f"--out {path} has the suffix {path.suffix!r}; expected one of "
            f"{', '.join(sorted({*WRITERS, WRITTEN_BY_KERAS}))}."
        )


def write_weights(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write named arrays.

    Args:
      path: `.safetensors`; `.npz`; `.msgpack`, as nested dictionaries of Flax; or PyTorch's `.pt`.
      arrays: the arrays by name.
    """
    path.write_bytes(WRITERS[path.suffix](arrays))


def _safetensors(path: Path) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(path)


def _npz(path: Path) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        _check_memory(path, sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as stream:
                _check_array(path, stream, member.file_size)
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def _check_array(path: Path, stream: IO[bytes], size: int) -> None:
    """Read the header of an array in NumPy's format, and check that its numbers follow.

    Args:
      path: the path of the file, for the message.
      stream: begins with the array.
      size: bytes that the stream has from here on.

    Raises:
      TriglotError: if the header declares more than that, which NumPy would allocate first.
    """
    start = stream.tell()
    version = np.lib.format.read_magic(stream)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    if version not in readers:
        raise TriglotError(f"{path} holds an array in version {version} of NumPy's format.")
    shape, _, dtype = readers[version](stream)
    declared = math.prod(shape) * dtype.itemsize
    if declared > size - (stream.tell() - start):
        raise TriglotError(
            f"{path} is damaged: an array of shape {shape} needs {declared:,} bytes, and fewer "
            "follow."
        )


def _check_memory(path: Path, declared: int) -> None:
    """Reject a small file that would fill the memory.

    Raises:
      TriglotError: if its arrays have more bytes than are free.
    """
    free = psutil.virtual_memory().available
    if declared > free:
        raise TriglotError(
            f"the arrays of {path} have {declared:,} bytes uncompressed, and {free:,} are free: it "
            "is damaged, or needs a machine with more memory."
        )


def _torch(path: Path) -> dict[str, np.ndarray]:
    torch = require("torch", "torch")
    contents = torch.load(path, map_location="cpu", weights_only=True)
    leaves = dict(_flatten(contents))
    return {n: tensor.detach().numpy() for n, tensor in leaves.items() if hasattr(tensor, "detach")}


def _keras(path: Path) -> dict[str, np.ndarray]:
    h5py = require("h5py", "keras")
    datasets: dict[str, PyTree] = {}

    def collect(name: str, node: object) -> None:
        if isinstance(node, h5py.Dataset):
            datasets[name] = node

    with h5py.File(path, "r") as file:
        file.visititems(collect)
        for name, dataset in datasets.items():
            if dataset.external or dataset.is_virtual:
                raise TriglotError(
                    f"{path} keeps the array {name} in another file, which is not read: save "
                    "all arrays in one file."
                )
        _check_memory(path, sum(dataset.nbytes for dataset in datasets.values()))
        return {name: dataset[()] for name, dataset in datasets.items()}


def _msgpack(path: Path) -> dict[str, np.ndarray]:
    serialization = require("flax.serialization", "flax")
    return _arrays(serialization.msgpack_restore(path.read_bytes()))


def _equinox(path: Path) -> dict[str, np.ndarray]:
    arrays: list[np.ndarray] = []
    with path.open("rb") as file:
        end = path.stat().st_size
        while (start := file.tell()) < end:
            _check_array(path, file, end - start)
            file.seek(start)
            arrays.append(np.load(file, allow_pickle=False))
    return {str(index): array for index, array in enumerate(arrays)}


def _orbax(path: Path) -> dict[str, np.ndarray]:
    import orbax.checkpoint as ocp

    checkpointer: Any = ocp.PyTreeCheckpointer()
    tree = checkpointer.metadata(path.resolve()).item_metadata.tree
    # As NumPy arrays, whichever devices they were saved from.
    restore_args = jax.tree.map(lambda leaf: ocp.RestoreArgs(restore_type=np.ndarray), tree)
    return _arrays(checkpointer.restore(path.resolve(), restore_args=restore_args))


def _pickle(path: Path) -> dict[str, np.ndarray]:
    return _arrays(pickle.loads(path.read_bytes()))


def _arrays(tree: PyTree) -> dict[str, np.ndarray]:
    return {name: np.asarray(leaf) for name, leaf in _flatten(tree) if hasattr(leaf, "dtype")}


def _flatten(tree: PyTree, prefix: str = "") -> Iterator[tuple[str, PyTree]]:
    if isinstance(tree, Mapping):
        for name, child in tree.items():
            yield from _flatten(child, f"{prefix}{name}/")
    elif isinstance(tree, list | tuple):
        for index, child in enumerate(tree):
            yield from _flatten(child, f"{prefix}{index}/")
    else:
        yield prefix.removesuffix("/"), tree


def _nest(arrays: Mapping[str, np.ndarray]) -> dict[str, PyTree]:
    tree: dict[str, PyTree] = {}
    for name, array in arrays.items():
        *parents, last = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = array
    return tree


def _as_safetensors(arrays: Mapping[str, np.ndarray]) -> bytes:
    from safetensors.numpy import save

    return save({name: np.array(array, order="C") for name, array in arrays.items()})


def _as_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _as_msgpack(arrays: Mapping[str, np.ndarray]) -> bytes:
    return require("flax.serialization", "flax").to_bytes(_nest(arrays))


def _as_torch(arrays: Mapping[str, np.ndarray]) -> bytes:
    torch = require("torch", "torch")
    buffer = io.BytesIO()
    torch.save({n: torch.from_numpy(np.array(array)) for n, array in arrays.items()}, buffer)
    return buffer.getvalue()


PICKLES = (".pkl", ".pickle")
READERS: dict[str, Callable[[Path], dict[str, np.ndarray]]] = {
    ".safetensors": _safetensors,
    ".npz": _npz,
    ".pt": _torch,
    ".pth": _torch,
    ".bin": _torch,
    ".h5": _keras,
    ".msgpack": _msgpack,
    ".eqx": _equinox,
    "folder": _orbax,
    ".pkl": _pickle,
    ".pickle": _pickle,
}
WRITERS: dict[str, Callable[[Mapping[str, np.ndarray]], bytes]] = {
    ".safetensors": _as_safetensors,
    ".npz": _as_npz,
    ".msgpack": _as_msgpack,
    ".pt": _as_torch,
}
