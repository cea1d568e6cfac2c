"""What the built-in networks of all libraries share, in native arithmetic."""

import warnings


def warn_moved(module: str, new: str) -> None:
    """Warn that a module is imported from its former place.

    Args:
      module: the former place.
      new: where it is now.
    """
    warnings.warn(
        f"{module} is deprecated and goes in version 0.4: import {new}.",
        DeprecationWarning,
        stacklevel=3,
    )
