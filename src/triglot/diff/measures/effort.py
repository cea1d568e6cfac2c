"""How much is measured: everything of small networks, of large ones what the verdict needs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from jax.extend import core as jex

from ...core.tracing.jaxprs import aval_of, walk

QUICK, STANDARD, THOROUGH = "quick", "standard", "thorough"
LEVELS = (QUICK, STANDARD, THOROUGH)
BATCHES = (32, 16, 8, 4, 2)
STEPS = 100  # of gradients
BACKWARD = 3  # forward passes that a gradient costs

# Limits of the standard level; about 10 GFLOP take a second on one core.
MAX_BATCH = 2e10  # floating-point operations of a gradient
MAX_STEPS = 1e10  # of all gradient steps of a small network
MAX_EQUATIONS = 150  # of a small network
MAX_DRAWN = {QUICK: 0, STANDARD: 2**25, THOROUGH: 2**28}  # parameters, over all keys
MIN_KEYS, MAX_KEYS = 8, 1000


@dataclass(frozen=True)
class Effort:
    """What is measured of two networks.

    Attributes:
      level: `quick`, `standard` or `thorough`.
      batch: the larger number of examples; the other is 1.
      gradients: whether gradients are measured.
      everything: whether gradient steps, canonical arithmetic where native bits differ, and
        roundings in compiled programs are measured, too.
      num_keys: the number of keys over which initializers are compared; 0 for not at all.
    """

    level: str
    batch: int
    gradients: bool
    everything: bool
    num_keys: int

    def of_different(self) -> "Effort":
        """Leave out measurements that add nothing once the functions differ."""
        if self.level == THOROUGH:
            return self
        return replace(self, everything=False)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the level leaves out, in one note; none if nothing."""
        parts = [
            "" if self.gradients else "gradients",
            "" if self.everything else f"{STEPS} gradient steps, canonical arithmetic",
            "" if self.num_keys else "initializers",
        ]
        left_out = ", ".join(filter(None, parts))
        return (f"left out at level {self.level!r}: {left_out}",) if left_out else ()


def choose(level: str, programs: Iterable[jex.Jaxpr], num_params: int) -> Effort:
    """Choose what is measured by the size of two networks, not by elapsed time.

    Args:
      level: one of `LEVELS`.
      programs: the jaxprs of both networks' calls with one example.
      num_params: the number of parameters of the larger network.
    """
    costs = [(operations(program), equations(program)) for program in programs]
    work, size = (max(each) for each in zip(*costs, strict=True))
    step = BACKWARD * max(work, 1)
    fitting = [batch for batch in BATCHES if batch * step <= MAX_BATCH]
    batch = fitting[0] if fitting else BATCHES[-1]
    is_small = size <= MAX_EQUATIONS and batch * step * STEPS <= MAX_STEPS
    keys = MAX_DRAWN[level] // max(num_params, 1)
    return Effort(
        level=level,
        batch=batch,
        gradients=level != QUICK,
        everything=level == THOROUGH or (level == STANDARD and is_small),
        num_keys=min(keys, MAX_KEYS) if keys >= MIN_KEYS else 0,
    )


def equations(jaxpr: jex.Jaxpr) -> int:
    """Count the equations of a traced program, as XLA compiles them: a loop's once."""
    return sum(1 for _ in walk(jaxpr))


def operations(jaxpr: jex.Jaxpr) -> float:
    """Count the floating-point operations of a traced program, about."""
    total = 0.0
    for equation, callers in walk(jaxpr):
        repeated = math.prod(
            each.params["length"] for each in callers if each.primitive.name == "scan"
        )
        total += repeated * _cost(equation)
    return total


def _cost(equation: jex.JaxprEqn) -> float:
    name, shapes = equation.primitive.name, [aval_of(atom).shape for atom in equation.invars]
    size = sum(math.prod(aval_of(var).shape) for var in equation.outvars)
    if name == "dot_general":
        summed = equation.params["dimension_numbers"][0][0]
        return 2.0 * size * math.prod(shapes[0][axis] for axis in summed)
    if name == "conv_general_dilated":
        channels = equation.params["dimension_numbers"].rhs_spec[0]
        return 2.0 * size * math.prod(shapes[1]) / shapes[1][channels]
    return float(size)
