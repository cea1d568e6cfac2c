"""Settings for every test: nothing is promoted silently.

Code of ours spells out each change of dtype and of rank. A test that drives a library which does
not is marked `@pytest.mark.library_promotion("the library and what it promotes")`.

Most of the tests' time is compilation, and most of that XLA's optimisation, which is left out but
where equality bit for bit is claimed of the programs that people run, or they run for long.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests import runtime_types

runtime_types.install()

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Files of tests whose programs are those that people run.
OPTIMISED = (
    "test_identity",
    "test_compare",
    "test_canonical",
    "test_train",
    "test_gymnax_quirks",
    "test_inverted_pendulum",
)


@pytest.fixture(autouse=True)
def promotion(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep promotion forbidden, or allow it for a test whose marker gives the reason."""
    marker = request.node.get_closest_marker("library_promotion")
    if marker is None:
        yield
        return
    if not (marker.args and isinstance(marker.args[0], str)):
        pytest.fail("library_promotion needs a reason: which library promotes what.")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True, scope="module")
def optimisation(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave most of XLA's optimisation out, also in processes that a test begins."""
    least = not any(part in request.node.name for part in OPTIMISED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(least)))
        jax.config.update("jax_disable_most_optimizations", least)
        yield


@pytest.fixture(autouse=True, scope="module")
def fresh_caches() -> Iterator[None]:
    """Let go of a module's compiled programs, which else fill gigabytes by the end."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Give a folder for the compiled programs of commands, and leave JAX as it was."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_enable_compilation_cache",
        "jax_cpu_enable_async_dispatch",
    )
    before = {name: jax.config.values[name] for name in names}
    compilation_cache.reset_cache()  # JAX would stay with the first folder it was given
    yield tmp_path_factory.mktemp("cache")
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
