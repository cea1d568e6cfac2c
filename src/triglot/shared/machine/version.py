"""The versions of the packages that influence results."""

import platform
from importlib import metadata

from ... import __version__
from ...backends.libraries import LIBRARIES

PACKAGES = (
    "jax", "jaxlib",
    *dict.fromkeys(library.distribution for library in LIBRARIES.values() if library.distribution),
    "optax", "rlax", "distrax", "chex", "gymnax",
    "jumanji", "brax", "navix", "xminigrid", "craftax", "pgx", "playground",
    "gymnasium", "envpool", "orbax-checkpoint", "numpy",
)  # fmt: skip


def versions() -> dict[str, str | None]:
    """Look up the versions of triglot, Python and the libraries; None if not installed."""
    return {
        "triglot": __version__,
        "python": platform.python_version(),
        **{package: package_version(package) for package in PACKAGES},
    }


def package_version(package: str) -> str | None:
    """Look up the installed version of a distribution without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def device() -> str:
    """Describe JAX's device; this initializes JAX's backend."""
    import jax

    first, number = jax.devices()[0], jax.device_count()
    kind = "" if first.device_kind == first.platform else f" ({first.device_kind})"
    return f"{first.platform}{kind} x {number}"
