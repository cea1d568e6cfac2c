"""Take trained agents out of a run: policies, weights, and models of each library."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .python import export as export
else:

    def __getattr__(name: str) -> Any:
        """Import `export` on first use (PEP 562): the options alone load nothing."""
        if name != "export":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .python import export

        return export
