"""Options of a comparison of two networks."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..core.errors import TriglotError
from ..core.specs import Spec
from .measures.effort import LEVELS, STANDARD


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """How two networks are compared; `diff_networks` describes each option for its users.

    Attributes:
      mapping: canonical names or prefixes of the first network to those of the second; None to pair
        parameters by name, or to guess by shape and by order of use.
      seed: random seed of weights, inputs and targets.
      action_spec: spec of the actions, for a function that takes `action_spec`.
      names: names of both networks in the report; None for the network's own name.
      level: one of `triglot.diff.measures.effort.LEVELS`.
      modules: whether modules are compared side by side, which is always done for small networks.
      compare_weights: whether both networks have trained weights, which are compared too.

    Raises:
      TriglotError: if the level is unknown.
    """

    mapping: Mapping[str, str] | None = None
    seed: int = 0
    action_spec: Spec | None = None
    names: tuple[str | None, str | None] = (None, None)
    level: str = STANDARD
    modules: bool = False
    compare_weights: bool = False

    def __post_init__(self) -> None:
        if self.level not in LEVELS:
            raise TriglotError(
                f"level {self.level!r} is unknown; expected one of {', '.join(LEVELS)}."
            )
