"""Options of a comparison of two networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.errors import TriglotError
from ..core.specs import Spec
from .measures.effort import LEVELS, STANDARD

MAX_ROUNDING = 1e-3


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """How two networks are compared; `diff_networks` describes each option for its users.

    Attributes:
      mapping: names of parameters or modules of the first network to those of the second, in the
        spelling of their libraries, canonical, or the ends of either; None to pair
        parameters by name, or to guess by shape and by order of use.
      seed: random seed of weights, inputs and targets.
      action_spec: spec of the actions, for a function that takes `action_spec`.
      names: names of both networks in the report; None for the network's own name.
      level: one of `triglot.diff.measures.effort.LEVELS`.
      modules: whether modules are compared side by side, which is always done for small networks.
      compare_weights: whether both networks have trained weights, which are compared too.
      max_rounding: largest rounding difference of equivalent networks, relative to the largest
        output or gradient, in the dtype in which they compute.

    Raises:
      TriglotError: if the level is unknown, or `max_rounding` is not positive.
    """

    mapping: Mapping[str, str] | None = None
    seed: int = 0
    action_spec: Spec | None = None
    names: tuple[str | None, str | None] = (None, None)
    level: str = STANDARD
    modules: bool = False
    compare_weights: bool = False
    max_rounding: float = MAX_ROUNDING

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise TriglotError(
                f"level {self.level!r} is unknown; expected one of {', '.join(LEVELS)}."
            )
        if not self.max_rounding > 0:
            raise TriglotError(f"max_rounding must be above 0, got {self.max_rounding}.")
