"""Build the wheel from the source archive and use it outside the checkout."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest

import triglot

pytestmark = pytest.mark.packaging
ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "triglot"
LINKED = sorted(link.name for link in PACKAGE.iterdir() if link.is_symlink())
ROOMS = sorted(init.parent.name for init in PACKAGE.glob("*/__init__.py"))


def run(*command: str | Path, cwd: Path, path: Iterable[Path | str] = ()) -> str:
    """Run this interpreter with `path` before its own search path; return what it prints."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, path))}
    done = subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def shipped(package: Path) -> set[str]:
    """List the modules and data files under a folder, without `__pycache__`."""
    files = (file for file in package.rglob("*") if file.is_file())
    return {str(f.relative_to(package)) for f in files if "__pycache__" not in f.parts}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy what is packaged, so that the checkout's build folders are neither read nor written."""
    copy = tmp_path_factory.mktemp("parent") / "triglot"  # as `git clone` names it
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for folder in ("src", *LINKED):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignored)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    """Build the source archive, and the wheel from it."""
    run("-m", "build", "--no-isolation", checkout, cwd=checkout)
    (built,) = (checkout / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into an empty folder."""
    site = tmp_path_factory.mktemp("site")
    run("-m", "pip", "install", "--no-deps", "--no-index", "--target", site, wheel, cwd=site)
    return site


def test_nothing_but_triglot_is_importable(wheel: Path) -> None:
    names = {name.split("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert names == {"triglot", f"triglot-{triglot.__version__}.dist-info"}


def test_every_file_is_shipped(installed: Path) -> None:
    files = shipped(installed / "triglot")
    assert "py.typed" in files
    for room in ROOMS:
        ours = {f"{room}/{file}" for file in shipped(PACKAGE / room)}
        assert ours == {file for file in files if file.startswith(f"{room}/")}


def test_the_licence_and_the_command_are_shipped(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    info = f"triglot-{triglot.__version__}.dist-info"
    assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"triglot = triglot.__main__:main" in archive.read(f"{info}/entry_points.txt")


def test_every_part_is_type_checked() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pyright"]
    assert {"src/triglot", *(f"src/triglot/{room}" for room in LINKED)} <= set(settings["include"])


def test_it_starts_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    # -S disables the editable install, which would provide modules that the wheel lacks.
    path = (installed, sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    where = run("-S", "-c", "import triglot; print(triglot.__file__)", cwd=tmp_path, path=path)
    assert Path(where) == installed / "triglot" / "__init__.py"
    assert triglot.__version__ in run("-S", "-m", "triglot", "version", cwd=tmp_path, path=path)


@pytest.fixture(scope="module")
def editable(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the checkout into an empty folder, editable."""
    site = tmp_path_factory.mktemp("editable")
    options = ("--no-deps", "--no-index", "--no-build-isolation")
    run("-m", "pip", "install", *options, "--target", site, "-e", checkout, cwd=site)
    return site


def imported_from(editable: Path, cwd: Path) -> str:
    """Import triglot from an editable install; return where it lies, and which rooms it adds."""
    program = f"""
import importlib.util, site
site.addsitedir({str(editable)!r})
import triglot.core
print(triglot.core.__file__, triglot.make_env.__name__)
print([name for name in {ROOMS} if importlib.util.find_spec(name)])
"""
    path = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return run("-S", "-c", program, cwd=cwd, path=path)


def test_an_editable_install_adds_nothing_else(
    editable: Path, checkout: Path, tmp_path: Path
) -> None:
    core = checkout / "src" / "triglot" / "core" / "__init__.py"
    assert imported_from(editable, tmp_path) == f"{core} make_env\n[]"


def test_an_editable_install_wins_beside_the_clone(editable: Path, checkout: Path) -> None:
    # There, the clone's own folder could be imported as an empty namespace `triglot`.
    core = checkout / "src" / "triglot" / "core" / "__init__.py"
    assert imported_from(editable, checkout.parent) == f"{core} make_env\n[]"
