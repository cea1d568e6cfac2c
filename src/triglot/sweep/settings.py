"""The settings of a sweep: every combination, or a random draw."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import TypeAlias

import numpy as np

from ..core.agent import Algorithm
from ..core.errors import TriglotError
from ..core.options import option_fields
from ..core.records import Values
from ..runs.options import TrainOptions
from ..runs.registry.algorithms import find_algorithm
from ..runs.registry.overrides import overrides_of
from .axes import COMPONENTS, Axis, Choices, Range, parse_axes, split_name, split_values
from .options import SweepCommandOptions
from .search.choices import check_search, round_sizes

# Options of a sweep that are those of each training too, besides the components.
KEPT = ("network", "num_seeds", "seed", "total_steps", "eval_episodes")
MAX_SETTINGS = 10_000
MAX_DRAWS = 100  # per setting, to find one that was not drawn before
Settings: TypeAlias = list[Values]


def settings_of(options: SweepCommandOptions, algorithms: Mapping[str, Algorithm]) -> Settings:
    """List the settings: the swept values by name, in the order of `--over`.

    Those of a search with rounds are the settings of the first round, drawn as by random search.

    Args:
      options: of the sweep.
      algorithms: the classes of the sweep by name; see `algorithms_of`.

    Raises:
      TriglotError: if `--over` or an option of the search is missing or invalid, or there are more
        than 10,000 settings.
    """
    axes = axes_of(options, algorithms)
    check_search(options, axes)
    if options.num_settings is not None:
        drawn = _drawn(axes, options.num_settings, options.seed)
        return drawn[: round_sizes(options)[0]] if round_sizes(options) else drawn
    for axis in axes:
        if isinstance(axis, Range):
            raise TriglotError(
                f"--over {axis.name} is a range: give --num-settings, the number of settings to "
                "draw at random."
            )
    chosen = [axis.values for axis in axes if isinstance(axis, Choices)]
    _check_number(math.prod(map(len, chosen)), "these lists have")
    names = [axis.name for axis in axes]
    return [dict(zip(names, values, strict=True)) for values in product(*chosen)]


def axes_of(options: SweepCommandOptions, algorithms: Mapping[str, Algorithm]) -> list[Axis]:
    """Parse what is swept.

    Raises:
      TriglotError: if `--over` is missing or invalid.
    """
    if not options.over:
        raise TriglotError(
            "give what to vary: --over learning_rate=1e-4,3e-4,1e-3 (a list) or "
            "--over learning_rate=log:1e-5..1e-2 --num-settings 30 (a range)."
        )
    axes = parse_axes(options.over, algorithms)
    _check_positional(options, axes)
    return axes


def algorithms_of(options: SweepCommandOptions) -> dict[str, Algorithm]:
    """Find the algorithms of a sweep; one, unless `--over algorithm=...` has several.

    Raises:
      TriglotError: if there is no such algorithm.
    """
    names = [options.algorithm]
    for text in options.over:
        name, values = split_name(text)
        if name == "algorithm":
            names = split_values(name, values)
    return {name: find_algorithm(name) for name in names}


def train_options(
    options: SweepCommandOptions, values: Values, algorithms: Mapping[str, Algorithm]
) -> TrainOptions:
    """Build the options with which `triglot train` trains one setting.

    Args:
      options: of the sweep.
      values: the setting.
      algorithms: the classes of the sweep by name.
    """
    chosen = {name: getattr(options, name) for name in (*COMPONENTS, *KEPT)}
    chosen |= {name: values[name] for name in COMPONENTS if name in values}
    config, hyper = overrides_of(options.config), overrides_of(options.hyper)
    fields = {field.name for field in option_fields(algorithms[chosen["algorithm"]].Config)}
    for name, value in values.items():
        if name not in COMPONENTS:
            (config if name in fields else hyper)[name] = value
    return TrainOptions(**chosen, config=config, hyper=hyper)


def _check_positional(options: SweepCommandOptions, axes: Sequence[Axis]) -> None:
    """Refuse an algorithm or environment that is given and not among those that are swept.

    Other swept names win over options, which may come from a file.
    """
    for axis in axes:
        if axis.name not in ("algorithm", "env") or not isinstance(axis, Choices):
            continue
        if (value := getattr(options, axis.name)) not in axis.values:
            raise TriglotError(
                f"{axis.name} {value} is not among the values of --over {axis.name}, "
                f"{', '.join(axis.values)}: add it, or name one of them."
            )


def _drawn(axes: Sequence[Axis], number: int, seed: int) -> Settings:
    """Draw different settings; the first ones stay the same if more are drawn."""
    if number < 1:
        raise TriglotError(f"num_settings must be at least 1, got {number}.")
    _check_number(number, "--num-settings asks for")
    possible = math.prod(map(_num_values, axes))
    if possible < number:
        raise TriglotError(
            f"--num-settings {number:,}: only {possible:,} different settings exist; leave it out "
            "to train them all."
        )
    drawn = draw_new(axes, np.random.default_rng(seed), number, ())
    if len(drawn) == number:
        return drawn
    raise TriglotError(
        f"--num-settings {number:,}: only {len(drawn):,} different settings were found in ranges "
        "this narrow, with numbers of 4 digits: widen them, or draw fewer."
    )


def draw_new(
    axes: Sequence[Axis], rng: np.random.Generator, number: int, known: Iterable[tuple[object, ...]]
) -> Settings:
    """Draw settings that differ from each other and from known ones; fewer if few are left.

    Args:
      axes: what is swept.
      rng: random numbers.
      number: of settings.
      known: the values of settings that are not wanted.
    """
    taken, drawn = set(known), list[Values]()
    for _ in range(MAX_DRAWS * number):
        values = {axis.name: axis.draw(rng) for axis in axes}
        if (key := tuple(values.values())) not in taken:
            taken.add(key)
            drawn.append(values)
            if len(drawn) == number:
                break
    return drawn


def _num_values(axis: Axis) -> float:
    if isinstance(axis, Choices):
        return len(axis.values)
    return axis.high - axis.low + 1 if axis.integer else math.inf


def _check_number(number: int, who: str) -> None:
    if number > MAX_SETTINGS:
        raise TriglotError(
            f"{who} {number:,} settings; at most {MAX_SETTINGS:,} are possible: use fewer values, "
            "or draw some of them by --num-settings."
        )
