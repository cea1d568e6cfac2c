"""Imports between rooms, import cycles, and the layout of the tests."""

from pathlib import Path

import pytest

from docs.images import make_rooms
from tests.project.source import (
    FILES,
    PACKAGE,
    ROOMS,
    ROOT,
    find_cycles,
    import_graph,
    imports,
    module_name,
    room_of,
    rooms_imported,
)

# The rooms that each room may import, besides itself. A room stands below those it imports.
MAY_IMPORT: dict[str, set[str]] = {
    "core": set(),
    "algorithms": {"core"},
    "backends": {"core"},
    "envs": {"core"},
    "checks": {"core"},
    "shared": {"core", "backends"},
    "runs": {"core", "algorithms", "backends", "envs", "checks", "shared"},
}
MAY_IMPORT["diff"] = MAY_IMPORT["export"] = MAY_IMPORT["sweep"] = MAY_IMPORT["runs"] | {"runs"}
MAY_IMPORT["compare"] = MAY_IMPORT["sweep"] | {"diff"}
MAY_IMPORT["cli"] = set(MAY_IMPORT)


def forbidden_rooms(file: Path, root: Path = PACKAGE) -> set[str]:
    """Collect the rooms that a file imports although its own room may not."""
    room = room_of(file, root)
    return rooms_imported(file, root) - MAY_IMPORT[room] - {room}


def subfolders(folder: Path) -> set[str]:
    """List the folders under a folder, as relative paths."""
    found = (path for path in folder.rglob("*") if path.is_dir())
    return {str(path.relative_to(folder)) for path in found if path.name != "__pycache__"}


def written(root: Path, **sources: str) -> list[Path]:
    """Write modules given as `room__module="source"`."""
    files = [root / (name.replace("__", "/") + ".py") for name in sources]
    for file, source in zip(files, sources.values(), strict=True):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    return files


def test_every_room_has_its_rule() -> None:
    assert set(ROOMS) == set(MAY_IMPORT)


def test_a_room_imports_only_the_rooms_below_it() -> None:
    forbidden = {module_name(file): forbidden_rooms(file) for file in FILES}
    assert {module: rooms for module, rooms in forbidden.items() if rooms} == {}


def test_files_import_each_other_without_cycles() -> None:
    cycles = find_cycles(import_graph(FILES))
    shown = "\n".join(" -> ".join(name.removeprefix("triglot.") for name in c) for c in cycles)
    assert not cycles, f"{len(cycles)} import cycles:\n{shown}"


def test_the_rules_are_without_circles() -> None:
    assert not find_cycles(MAY_IMPORT)


@pytest.mark.parametrize("room", ROOMS)
def test_tests_mirror_the_rooms(room: str) -> None:
    assert subfolders(ROOT / "tests" / room) <= subfolders(PACKAGE / room)


def test_a_cycle_is_found_wherever_the_import_stands(tmp_path: Path) -> None:
    files = written(
        tmp_path,
        core__a="from .b import x",
        core__b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import c",
        core__c="def late():\n    import triglot.core.a",
        core__alone="from .a import x",
    )
    (cycle,) = find_cycles(import_graph(files, tmp_path))
    assert cycle == [f"triglot.core.{name}" for name in ("a", "b", "c", "a")]


def test_an_import_through_a_public_name_counts(tmp_path: Path) -> None:
    (file,) = written(tmp_path, core__a="from triglot import PPO")
    assert "triglot.PPO" in imports(file, tmp_path)
    assert forbidden_rooms(file, tmp_path) == {"algorithms"}


def test_a_dynamic_import_counts(tmp_path: Path) -> None:
    (file,) = written(tmp_path, core__a='import_module("..envs.gymnax", __package__)')
    assert forbidden_rooms(file, tmp_path) == {"envs"}


def test_the_picture_of_the_rooms_is_that_of_the_code() -> None:
    assert make_rooms.PICTURE.read_text() == make_rooms.picture(), (
        "the arrows between rooms changed: python -m docs.images.make_rooms"
    )
