"""`triglot sweep`: train many settings of one algorithm, and rank them."""

from typing import TYPE_CHECKING

from .options import SweepOptions as SweepOptions

if TYPE_CHECKING:
    from .python import sweep as sweep
else:

    def __getattr__(name: str) -> object:
        """Import `sweep` on first use (PEP 562): the options alone load nothing."""
        if name != "sweep":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from .python import sweep

        return sweep
