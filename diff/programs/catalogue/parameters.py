"""Parameters that only one program has."""

from ..divergence import Divergence
from ..tape import PARAMS
from .features import Finding


def unpaired_parameter(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a part that reads a parameter without a counterpart, such as a bias."""
    for part, label in zip(found.parts, labels, strict=True):
        for value in part.values:
            if value in part.region.leaves and part.tape.depends[value] == PARAMS:
                name = "missing_bias" if part.names == {"add"} else "unpaired_parameter"
                shown = part.tape.leaves[value]
                evidence = f"{shown} of {label} has no equal parameter in the other network"
                return Finding(name, evidence, found)
    return None
