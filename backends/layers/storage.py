"""How a library stores its arrays: what the module `layers` of its folder holds as `STORAGE`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from ...core.network import Statistic
from .rules import Layer

FileName: TypeAlias = Callable[[Literal["params", "state"], Sequence[str], Statistic | None], str]


def joined(
    part: Literal["params", "state"], words: Sequence[str], statistic: Statistic | None
) -> str:
    """Name an array in a file by its path."""
    del part, statistic
    return "/".join(words)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """How a library stores parameters and running statistics.

    Attributes:
      layers: its layers by the name of the class; one that is not listed has no known layout.
      leaf_names: canonical last parts (`kernel`, `bias`) of parameters of layers that are not
        listed, by the library's names.
      statistics: canonical names of running statistics by the ends of their names in files; None
        for an array that is left out.
      parameters_in: what is before the names of all parameters in files of both.
      statistics_in: what is before the names of all running statistics in files.
      corrects_start: whether its averages are corrected for their start by a momentum that files
        do not hold.
      channels_first: whether its layers read images as `[channels, *spatial]`.
      file_name: names an array in a file, from the part of `Variables` that holds it, its path
        there, and the running statistic that it is.
    """

    layers: Mapping[str, Layer] = field(default_factory=dict)
    leaf_names: Mapping[str, str] = field(default_factory=dict)
    statistics: Mapping[str, str | None] = field(default_factory=dict)
    parameters_in: str = ""
    statistics_in: str = ""
    channels_first: bool = False
    corrects_start: bool = False
    file_name: FileName = joined
