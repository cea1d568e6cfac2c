"""Parameters that only one program has."""

from ..divergence import Divergence
from ..tape import PARAMS
from . import features
from .features import Finding


def unpaired_parameter(found: Divergence, labels: tuple[str, str]) -> Finding | None:
    """Find a part that reads a parameter without a counterpart, such as a bias."""
    for (region, part, _), label in zip(features.sides(found), labels, strict=True):
        for value in part:
            if value in region.leaves and region.tape.depends[value] == PARAMS:
                names = features.names_of(region, part)
                name = "missing_bias" if names == {"add"} else "unpaired_parameter"
                shown = region.tape.leaves[value]
                evidence = f"{shown} of {label} has no equal parameter in the other network"
                return Finding(name, evidence, found)
    return None
