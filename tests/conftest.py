"""Settings for every test: no silent promotion, checked shapes, shared compiled programs.

Our own code states every change of dtype and rank. A test of a library that promotes is marked
`@pytest.mark.library_promotion("the library and what it promotes")`.

Compilation and tracing take most of the tests' time. Most of XLA's optimization is left out, except
in tests marked `optimized`, of bit-for-bit equality or long runs; equal programs are compiled once,
in one cache folder for all test processes, new in every test run and every `.ci/run`; and Python
searches for cyclic garbage as rarely as the commands do, since traces make many objects that stay.
"""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

# The numbers of a command are then those of this process. Tests of devices ask for more.
os.environ["JAX_NUM_CPU_DEVICES"] = "1"
os.environ["KERAS_BACKEND"] = "jax"  # test files import Keras themselves

import jax
import psutil
import pytest
from jax.experimental.compilation_cache import compilation_cache

from tests import runtime_types
from tests.covering import axis_values, choose_covering

runtime_types.install()

from triglot.core.garbage import collect_rarely  # noqa: E402

collect_rarely()

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

ASYNC_DISPATCH = jax.config.values["jax_cpu_enable_async_dispatch"]
MAX_MEMORY = 1e9  # bytes of a test process between two files
PROGRAMS = "TRIGLOT_TEST_PROGRAMS"  # the folder, for pytest-xdist's workers and from `.ci/run`


def pytest_configure(config: pytest.Config) -> None:
    """Keep the compiled programs of this test run in a temporary folder, or in the caller's."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="triglot-programs-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ.setdefault(PROGRAMS, folder.name)
        # What commands keep for the user: compiled programs, and which runs this user began.
        os.environ["XDG_CACHE_HOME"] = os.environ["XDG_STATE_HOME"] = folder.name
    # A shell starts its background jobs with SIGINT ignored, and `nohup` with SIGHUP.
    for name in ("SIGINT", "SIGHUP"):
        if signal.getsignal(getattr(signal, name)) is signal.SIG_IGN:
            default = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
            signal.signal(getattr(signal, name), default)
    keep_programs()


def keep_programs() -> None:
    """Set the folder of compiled programs, and what else a command may have set."""
    compilation_cache.reset_cache()  # JAX keeps using the first folder otherwise
    jax.config.update("jax_compilation_cache_dir", os.environ[PROGRAMS])
    jax.config.update("jax_enable_compilation_cache", True)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    jax.config.update("jax_cpu_enable_async_dispatch", ASYNC_DISPATCH)


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `covering`, mark the cases that do not cover its table `slow`."""
    tables: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("covering") and not item.get_closest_marker("slow"):
            test = item.path, item.nodeid.partition("[")[0]
            tables.setdefault(test, []).append(item)
    for table in tables.values():
        marker = table[0].get_closest_marker("covering")
        assert marker is not None
        quick = choose_covering([axis_values(item) for item in table], *marker.args)
        for index in set(range(len(table))) - quick:
            table[index].add_marker(pytest.mark.slow)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which a pass of the Makefile runs nothing: reading one takes time."""
    passes = {"not slow and optimized": "optimized", "not slow and packaging": "packaging"}
    marker = passes.get(config.option.markexpr)
    if marker is None or not collection_path.name.startswith("test_"):
        return None
    if collection_path.is_file() and f"mark.{marker}" not in collection_path.read_text():
        return True
    return None


@pytest.fixture(autouse=True)
def promotion(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forbid promotion, except in a test whose marker gives the reason."""
    marker = request.node.get_closest_marker("library_promotion")
    if marker is None:
        yield
        return
    if not (marker.args and isinstance(marker.args[0], str)):
        pytest.fail("library_promotion needs a reason: which library promotes what.")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.fixture(autouse=True, scope="module")
def optimization(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out most of XLA's optimization, also in processes that a test starts."""
    least = request.node.get_closest_marker("optimized") is None
    if not least and "fusion_emitters=false" in os.environ.get("XLA_FLAGS", ""):
        pytest.fail("A test marked `optimized` needs XLA's default flags: unset XLA_FLAGS.")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(least)))
        jax.config.update("jax_disable_most_optimizations", least)
        yield


@pytest.fixture(autouse=True, scope="module")
def fresh_caches() -> Iterator[None]:
    """Drop traces and compiled programs from memory before they grow to gigabytes."""
    yield
    drop_caches_above(MAX_MEMORY)
    keep_programs()


@pytest.fixture(autouse=True)
def fresh_caches_in_large_files() -> Iterator[None]:
    """Drop them within a file too, since one with all environments of a suite needs 10 GB."""
    yield
    drop_caches_above(4 * MAX_MEMORY)


def drop_caches_above(num_bytes: float) -> None:
    """Drop JAX's caches if this process holds more memory."""
    if psutil.Process().memory_info().rss > num_bytes:
        jax.clear_caches()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder for commands."""
    compilation_cache.reset_cache()  # JAX keeps using the first folder otherwise
    return tmp_path_factory.mktemp("cache")
