"""Settings for every test: no silent promotion, checked shapes, shared compiled programs.

Our own code states every change of dtype and rank. A test of a library that promotes is marked
`@pytest.mark.library_promotion("the library and what it promotes")`.

Compilation and tracing take most of the tests' time. Most of XLA's optimization is left out, except
in tests marked `optimized`, of bit-for-bit equality or long runs; equal programs are compiled once,
in one cache folder for all test processes, new in every test run; and Python searches for cyclic
garbage as rarely as the commands do, since traces make many objects that stay.
"""

import os
import signal
import tempfile
from collections import Counter
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

runtime_types.install()

from triglot.__main__ import collect_rarely  # noqa: E402

collect_rarely()

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

ASYNC_DISPATCH = jax.config.values["jax_cpu_enable_async_dispatch"]
MAX_MEMORY = 1e9  # bytes of a test process between two files
PROGRAMS = "TRIGLOT_TEST_PROGRAMS"  # tells pytest-xdist's workers the folder


def pytest_configure(config: pytest.Config) -> None:
    """Keep the compiled programs of this test run in one temporary folder."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="triglot-programs-", ignore_cleanup_errors=True)
        config.add_cleanup(folder.cleanup)
        os.environ[PROGRAMS] = folder.name
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


# Test files whose tests get the marker `optimized`: they need the programs that users run.
OPTIMIZED = (
    "conformance/test_identity",
    "compare/test_compare",
    "checks/test_gymnax_quirks",  # rounding decides whether a bound is exceeded
    "learning/test_inverted_pendulum",
)

# Test files and folders whose tests get the marker `packaging`: they run what documents show or
# what is exported, or start, stop and continue programs.
PACKAGING = (
    "export", "faults", "sweep", "test_changing", "test_devices", "test_extending",
    "test_interrupt", "test_profiling", "test_readme", "test_resume",
    "test_short_commands", "test_tasks",
)  # fmt: skip


# Long tables of like cases: one of n is quick, the others are marked `slow`. n has no factor in
# common with the lengths of the table's axes, so that all values of each axis stay.
ONE_OF = {
    "test_translate_command::test_a_model_becomes_the_other_library_s": 5,
    "test_translate_command::test_without_the_network_that_was_saved": 5,
    "test_cell_biases::test_diff_says_that_a_sum_of_two_learns_faster": 5,
    "test_dqn_probes::test_dqn_solves_the_probe": 3,
    "test_probes::test_ppo_solves_the_probe": 3,
    "test_new_like::test_the_copy_is_the_same_program_under_another_name": 5,
    "test_gallery::test_clean_networks_compute_the_same_function": 2,
    "test_extensions::test_every_algorithm_is_extended": 5,
    "test_matrix::test_it_is_traced": 5,
    "test_identity_agents::test_libraries_are_equal_bit_for_bit": 2,
    "test_resume::test_a_resumed_run_is_the_undisturbed_run": 5,
    "test_matrix::test_it_trains": 5,
    "test_all_on_probes::test_it_solves_the_probe": 3,
    "test_readme::test_its_commands_can_start": 3,
    "test_gallery::test_a_bug_changes_parameters_outputs_or_training": 5,
    "test_named::test_a_bug_is_named_and_located_and_nothing_else_accused": 3,
    "test_libraries::test_a_canonical_run_continued_on_another_library_is_the_undisturbed_run": 3,
    "test_libraries::test_a_native_run_keeps_its_weights_on_another_library": 3,
    "test_lowering::test_a_training_is_lowered": 5,
    "test_lowering::test_a_variant_is_lowered": 3,
    "test_models::test_its_outputs_are_the_runs_without_triglot": 2,
    "test_networks::test_translation_loses_nothing": 5,
    "test_networks::test_init_is_one_function_eager_jitted_and_vmapped": 3,
    "test_networks::test_outputs_have_the_heads_shapes": 5,
    "test_networks::test_apply_leaves_its_arguments_alone": 5,
    "test_networks::test_a_batch_is_its_members": 3,
    "test_networks::test_arithmetics_compute_one_function": 3,
    "test_networks::test_dictionaries_are_read": 3,
    "test_recurrent::test_one_function_from_one_set_of_weights": 3,
    "test_recurrent::test_a_start_inside_a_rollout_is_a_fresh_start": 3,
    "test_recurrent::test_gradients_agree": 3,
    "test_wrappers::test_a_wrapped_environment_passes_the_check_of_environments": 3,
    "test_environments::test_it_passes_the_check_of_environments": 3,
    "test_planted::test_planted_bugs_are_found": 3,
    "test_compare::test_a_planted_cause_is_named": 2,
    "test_clean_pairs::test_no_cause_is_named": 2,
    "test_modules::test_equal_networks_have_equal_modules_only": 2,
    "test_jobs::test_the_number_of_jobs_changes_no_bit": 2,
    "test_torch::test_outputs_are_those_of_pytorch": 2,
    "test_translate_statistics::test_statistics_follow_the_parameters": 3,
    "test_moving::test_a_state_is_translated_without_rounding": 3,
    "test_presets::test_a_preset_can_be_trained": 3,
    "test_export::test_each_format_writes_its_files": 2,
    "test_policy::test_its_returns_are_those_of_evaluate": 3,
    "test_stablehlo::test_its_actions_are_the_agents_at_any_batch_size": 2,
    "test_zoo::test_norms_and_noisy_layers_compute_one_function_in_all_libraries": 2,
    "test_extending::test_each_network_passes_with_the_heads_of_ppo": 3,
    "test_modes::test_only_the_planted_cause_is_named": 3,
    "test_modes::test_two_causes_are_both_named": 3,
}


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the files above."""
    numbers: Counter[str] = Counter()
    for item in items:
        test = f"{item.path.stem}::{getattr(item, 'originalname', item.name)}"
        if test in ONE_OF:
            if numbers[test] % ONE_OF[test]:
                item.add_marker(pytest.mark.slow)
            numbers[test] += 1
        if is_packaging(item.path):
            item.add_marker(pytest.mark.packaging)
        if is_optimized(item.path):
            item.add_marker(pytest.mark.optimized)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of which a pass of the Makefile runs nothing: reading one takes time."""
    passes = {"not slow and optimized": is_optimized, "not slow and packaging": is_packaging}
    selects = passes.get(config.option.markexpr)
    if selects is None or not collection_path.name.startswith("test_"):
        return None
    return True if collection_path.is_file() and not selects(collection_path) else None


def is_packaging(path: Path) -> bool:
    """Whether a test file needs what is shipped, or starts and stops programs."""
    return not {path.stem, path.parent.name}.isdisjoint(PACKAGING)


def is_optimized(path: Path) -> bool:
    """Whether a test file needs the programs that users run."""
    return any(part in path.as_posix() for part in OPTIMIZED)


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
    least = not is_optimized(request.node.path)
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
    if psutil.Process().memory_info().rss > MAX_MEMORY:
        jax.clear_caches()
    keep_programs()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder for commands."""
    compilation_cache.reset_cache()  # JAX keeps using the first folder otherwise
    return tmp_path_factory.mktemp("cache")
