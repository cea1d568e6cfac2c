"""Find the files of custom code, so that other machines can run it."""

import importlib
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

INSTALLED = ("site-packages", "dist-packages")
OURS = "triglot"


def custom_files(parts: Iterable[str]) -> dict[str, Path]:
    """List the files of custom components, and of the modules beside them that they import.

    Installed packages are left out: every machine needs them.

    Args:
      parts: each `package.module:object`, or `NAME=` and that; options may follow after a comma.

    Returns:
      Files by their path relative to the folder in which the module was found.
    """
    files: dict[str, Path] = {}
    for part in parts:
        name = part.rpartition("=")[2] if "=" in part.partition(",")[0] else part
        for module in name.partition(",")[0].split(":")[:-1]:  # gymnasium:my_file:MyEnv-v0 has two
            files |= _module_files(module)
    return files


def _module_files(module: str) -> dict[str, Path]:
    importlib.import_module(module)
    found = _file(module.partition(".")[0])
    if found is None or _is_installed(found):
        return {}
    is_package = found.name == "__init__.py"
    root = found.parent.parent if is_package else found.parent
    files = _below(found.parent, root) if is_package else {}
    for loaded in list(sys.modules):
        file = _file(loaded)
        if file is not None and file.is_relative_to(root) and not _is_installed(file):
            files[str(file.relative_to(root))] = file
    return files


def _file(module: str) -> Path | None:
    if module.partition(".")[0] == OURS:
        return None
    found = getattr(sys.modules.get(module), "__file__", None)
    return Path(found).absolute() if found else None


def _below(package: Path, root: Path) -> dict[str, Path]:
    """List a package's files; it may read data."""
    paths = (path for path in package.rglob("*") if path.is_file())
    named = {path.relative_to(root): path for path in paths}
    return {
        str(name): path
        for name, path in named.items()
        if not any(part.startswith((".", "__pycache__")) for part in name.parts)
    }


def _is_installed(file: Path) -> bool:
    return not set(INSTALLED).isdisjoint(file.parts) or file.is_relative_to(
        sysconfig.get_path("stdlib")
    )
