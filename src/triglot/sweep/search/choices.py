"""Which search a sweep makes, and the sizes of its rounds; Optuna is not imported."""

from collections.abc import Sequence
from importlib.util import find_spec

from ...core.errors import TriglotError, check_known, check_version, missing_extra
from ...core.hyper import check_count
from ..axes import Axis, Choices
from ..options import SweepCommandOptions

GRID, RANDOM, CMA_ES, GP = "grid", "random", "cma-es", "gp"
SAMPLERS = ("tpe", CMA_ES, GP)  # of Optuna, which propose from earlier results
SEARCHES = (GRID, RANDOM, *SAMPLERS)
NUM_ROUNDS, MIN_BATCH = 8, 4  # by default
NEEDED = {"cmaes": ("tune", CMA_ES), "torch": ("torch", GP)}  # extra and search, by module


def has_rounds(options: SweepCommandOptions) -> bool:
    """Whether later settings are proposed from the results of earlier ones."""
    return options.search in SAMPLERS


def search_of(options: SweepCommandOptions) -> str:
    """Name the search, also where no option does."""
    return options.search or (GRID if options.num_settings is None else RANDOM)


def round_sizes(options: SweepCommandOptions) -> tuple[int, ...]:
    """Count the settings of each round; empty for a search without rounds.

    >>> round_sizes(SweepCommandOptions(algorithm="", env="", search="tpe", num_settings=10))
    (4, 4, 2)
    """
    if not has_rounds(options) or options.num_settings is None:
        return ()
    total = options.num_settings
    size = options.search_batch or max(MIN_BATCH, -(-total // NUM_ROUNDS))
    return tuple(min(size, total - begun) for begun in range(0, total, size))


def check_search(options: SweepCommandOptions, axes: Sequence[Axis]) -> None:
    """Reject options of the search that are unknown, missing or without effect.

    Raises:
      TriglotError: in one sentence.
    """
    name, number = options.search, options.num_settings
    if name is not None:
        check_known("search", name, SEARCHES)
    for what in ("search_batch", "confirm"):
        if (count := getattr(options, what)) is not None:
            check_count(what, count)
    if name == GRID and number is not None:
        raise TriglotError(
            f"--search grid trains every combination: leave out --num-settings {number}, or choose "
            "--search random or tpe."
        )
    if name not in (None, GRID) and number is None:
        raise TriglotError(
            f"--search {name} needs --num-settings, the number of settings to train in all: add "
            "--num-settings 32, for example."
        )
    if options.search_batch is not None and not has_rounds(options):
        raise TriglotError(
            f"--search-batch {options.search_batch} has no effect without --search "
            f"{', '.join(SAMPLERS)}, which train in rounds: add one, or leave it out."
        )
    if options.halving and name in (CMA_ES, GP):
        raise TriglotError(
            f"--halving stops settings after different numbers of steps, and --search {name} can "
            "use no return but the last: choose --search tpe, or leave out --halving."
        )
    if has_rounds(options):
        _check_axes(str(name), axes)


def _check_axes(search: str, axes: Sequence[Axis]) -> None:
    listed = [axis.name for axis in axes if isinstance(axis, Choices)]
    if "env" in listed:
        raise TriglotError(
            f"--search {search} cannot choose an environment, since returns are compared within "
            "one only: leave out --over env, and run one sweep for each."
        )
    if search == CMA_ES and listed:
        raise TriglotError(
            f"--search cma-es needs ranges, and --over {listed[0]} is a list: write "
            f"{listed[0]}=LOW..HIGH, or choose --search tpe."
        )
    if search == CMA_ES and len(axes) < 2:
        raise TriglotError(
            "--search cma-es needs at least two ranges: add one to --over, or choose --search tpe."
        )


def check_installed(options: SweepCommandOptions) -> None:
    """Reject a search whose libraries are not installed; nothing is imported.

    Raises:
      MissingExtra: with the command that installs them.
      TriglotError: if Optuna has a version that triglot does not work with.
    """
    if not has_rounds(options):
        return
    by = f"--search {options.search}"
    if find_spec("optuna") is None:
        raise missing_extra("optuna", "tune", by)
    check_version("optuna", "tune")
    for module, (extra, search) in NEEDED.items():
        if options.search == search and find_spec(module) is None:
            raise missing_extra(module, extra, by)
