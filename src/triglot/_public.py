"""Public names, imported when they are first used (PEP 562).

Each public module has a stub of the same name, `.pyi`, which type checkers and editors read. The
module takes its names from there, so that each is written once: the stub's imports say where a name
comes from, its `__all__` in which order names are listed.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any


def origins(stub: Path) -> dict[str, str]:
    """Map the names of a stub, in the order of its `__all__`, to modules of the package.

    Args:
      stub: imports with one leading dot, and `__all__`. A name imported by `from . import name` is
        a module itself.
    """
    found: dict[str, str] = {}
    listed: list[str] = []
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.level:
            found.update({alias.name: node.module or alias.name for alias in node.names})
        elif isinstance(node, ast.Assign):
            listed = ast.literal_eval(node.value)
    return {name: found[name] for name in listed}


def export(namespace: dict[str, Any]) -> None:
    """Give a module the names of its stub; called with its `globals()`."""
    module, package = namespace["__name__"], namespace["__spec__"].parent
    public = origins(Path(namespace["__file__"]).with_suffix(".pyi"))

    def __getattr__(name: str) -> Any:
        if name not in public:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        from .core.garbage import collected_rarely  # here: a checkout without links lacks it

        with collected_rarely():
            origin = import_module(f".{public[name]}", package)
        namespace[name] = origin if public[name] == name else getattr(origin, name)
        return namespace[name]

    def __dir__() -> list[str]:
        return sorted(namespace.keys() | public.keys())

    namespace |= {"__all__": list(public), "__getattr__": __getattr__, "__dir__": __dir__}
