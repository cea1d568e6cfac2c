"""The options of `triglot rate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..registry.arg import Arg, Count
from ..registry.options import MachineOptions


@dataclass(frozen=True, kw_only=True)
class RateOptions(MachineOptions):
    """Options of `triglot rate`.

    Attributes:
      runs: folders written by `triglot train` in one game, such as pgx:connect_four.
      games: games of each pair.
      greedy: take the argmax instead of sampling actions; two policies then repeat a few games.
      seed_index: which of the runs' seeds plays, counted from 0.
      seed: random seed of the games and of the intervals.
      out: the folder for ratings.json and ratings.png.
      trust: import the custom code that the runs name, although you did not start them here.
    """

    runs: Annotated[tuple[Path, ...], Arg("FOLDER ...", positional=True)] = ()
    games: Count = 256
    greedy: bool = False
    seed_index: Count = 0
    seed: Count = 0
    out: Annotated[Path | None, Arg("FOLDER", "the first run's")] = None
    trust: bool = False
