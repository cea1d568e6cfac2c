"""Count what a compiled program holds."""

import hashlib
from collections import Counter
from typing import Any

from .text import parse, plain_text, program_text

# Libraries that XLA calls on GPUs and CPUs for products and convolutions.
PRODUCT_CALLS = ("matmul", "gemm")
CONVOLUTION_CALLS = ("conv",)


def describe(compiled: Any) -> dict[str, Any]:
    """Describe an optimized program (`jax.stages.Compiled`), as JSON values.

    XLA counts a loop of dynamic length once, so `flops` and `bytes_accessed` of a training program
    are about those of one update of all seeds. They are None where XLA has no count.

    Returns:
      `flops`, `bytes_accessed`; the numbers of `fusions`, `dots`, `convolutions` and
      `instructions`, those inside of fusions and loops included; and `sha256` of the plain text.
    """
    cost = compiled.cost_analysis() or {}
    cost = cost[0] if isinstance(cost, list) else cost
    text = program_text(compiled)
    instructions = list(parse(text).instructions)
    opcodes = Counter(each.opcode for each in instructions)
    calls = [each.attributes.lower() for each in instructions if each.opcode == "custom-call"]

    def called(words: tuple[str, ...]) -> int:
        return sum(any(word in _target(call) for word in words) for call in calls)

    return {
        "flops": cost.get("flops"),
        "bytes_accessed": cost.get("bytes accessed"),
        "fusions": opcodes["fusion"],
        "dots": opcodes["dot"] + called(PRODUCT_CALLS),
        "convolutions": opcodes["convolution"] + called(CONVOLUTION_CALLS),
        "instructions": len(instructions),
        "sha256": hashlib.sha256(plain_text(text).encode()).hexdigest(),
    }


def _target(attributes: str) -> str:
    return attributes.partition('custom_call_target="')[2].partition('"')[0]
