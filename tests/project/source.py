"""The package's files and what each imports, read from the syntax trees.

Syntax trees, because at run time `import haiku`, `gymnax` and `brax` each load flax.
"""

import ast
import functools
from collections.abc import Iterator
from importlib.util import resolve_name
from pathlib import Path

from triglot._public import origins

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "triglot"  # it holds links to the rooms that lie at the top
# Of each public module, by its name: the module that defines each name, without `triglot.`.
PUBLIC = {
    module: origins(PACKAGE / f"{stub}.pyi")
    for module, stub in (("triglot", "__init__"), ("triglot.rl", "rl"), ("triglot.nn", "nn"))
}
ROOMS = sorted(init.parent.name for init in PACKAGE.glob("*/__init__.py"))
FILES = sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py"))

DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
IMPORTING_CALLS = {"import_module", "__import__", "require"}


def room_of(file: Path, root: Path = PACKAGE) -> str:
    """Return the folder of the package that holds a file."""
    return file.relative_to(root).parts[0]


def module_name(file: Path, root: Path = PACKAGE) -> str:
    """Return the dotted name under which a file of a room is imported."""
    names = file.relative_to(root).with_suffix("").parts
    return ".".join(("triglot", *(names[:-1] if names[-1] == "__init__" else names)))


@functools.cache
def imports(file: Path, root: Path = PACKAGE) -> frozenset[str]:
    """Collect the absolute dotted names that a file imports, at any depth of its code."""
    return frozenset(_imports(file, root))


def _imports(file: Path, root: Path) -> Iterator[str]:
    name = module_name(file, root)
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                source = resolve_name("." * node.level + (node.module or ""), package)
                yield from (f"{source}.{alias.name}" for alias in node.names)
            case ast.Call(
                func=ast.Name(id=called) | ast.Attribute(attr=called),
                args=[ast.Constant(value=str(target)), *_],
            ) if called in IMPORTING_CALLS:
                yield resolve_name(target, package)


def without_facade(name: str) -> set[str]:
    """Replace a public name, such as `triglot.PPO`, by the module that defines it.

    A namespace, `triglot.rl`, stands for all modules that define its names.
    """
    module, _, own = name.rpartition(".")
    if own in PUBLIC.get(module, {}) and name not in PUBLIC:
        return {f"triglot.{PUBLIC[module][own]}"}
    if name in PUBLIC and name != "triglot":
        return {f"triglot.{home}" for home in PUBLIC[name].values()}
    return {name}


def rooms_imported(file: Path, root: Path = PACKAGE) -> set[str]:
    """Collect the rooms that a file imports from, also through a public name."""
    given = (name for name in imports(file, root) if name.startswith("triglot."))
    names = set[str]().union(*map(without_facade, given))
    return {name.split(".")[1] for name in names} - {"__version__"}


def import_graph(files: list[Path], root: Path = PACKAGE) -> dict[str, set[str]]:
    """Map each module to the modules among `files` that it imports.

    Importing a module also runs the `__init__` of its packages; only the module named is an edge.
    """
    modules = {module_name(file, root) for file in files}
    graph: dict[str, set[str]] = {}
    for file in files:
        named = set[str]().union(*map(without_facade, imports(file, root)))
        found = {name if name in modules else name.rpartition(".")[0] for name in named}
        graph[module_name(file, root)] = found & modules
    return graph


def find_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Search breadth-first from each module; return the cycles, each set of modules once."""
    cycles: dict[frozenset[str], list[str]] = {}
    for start in sorted(graph):
        paths = [[start]]
        seen: set[str] = set()
        while paths:
            path = paths.pop(0)
            for target in sorted(graph[path[-1]]):
                if target == start:
                    cycles.setdefault(frozenset(path), [*path, start])
                elif target not in seen:
                    seen.add(target)
                    paths.append([*path, target])
    return sorted(cycles.values())
