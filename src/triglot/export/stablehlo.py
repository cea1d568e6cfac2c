"""The greedy policy as one file for JAX alone, through `jax.export` (StableHLO)."""

import jax
from jax import export as jax_export

from ..runs.acting import Acting

FILE, LOADER = "policy.stablehlo", "load.py"
PLATFORMS = ("cpu", "cuda", "tpu")

HEAD = '''"""{title}

Needs JAX, and flatbuffers, with which jax.export reads files. Normalization of observations and
scaling of actions are inside.
Written by triglot with JAX {version}; JAX reads such a file for at least six months after that
version. On another machine the last bits may differ.

{usage}
"""

from pathlib import Path

import jax
import jax.export

EXPORTED = jax.export.deserialize(
    bytearray(Path(__file__).with_name("{file}").read_bytes())
)
'''
PLAIN = """policy = jax.jit(EXPORTED.call)
"""
RECURRENT = '''step = jax.jit(EXPORTED.call)


def initial_carry(num):
    """Return the carry of `num` episodes that begin; `first` replaces it by the policy's own."""
    shapes = [(aval.shape[1:], aval.dtype) for aval in EXPORTED.in_avals[{before}:]]
    return tuple(jax.numpy.zeros((num, *shape), dtype) for shape, dtype in shapes)
'''


def stablehlo_files(acting: Acting, title: str) -> dict[str, bytes]:
    """Encode `policy.stablehlo`, for any batch size, and `load.py`, which loads it.

    Args:
      acting: a greedy policy.
      title: of the policy, one sentence.

    Returns:
      The files' contents by their names.

    Raises:
      TriglotError: if the network cannot be traced for an unknown batch size.
    """
    exported, _ = acting.for_any_batch(
        lambda policy: jax_export.export(jax.jit(policy), platforms=PLATFORMS)
    )
    head = HEAD.format(title=title, version=jax.__version__, usage=acting.usage, file=FILE)
    before = len(jax.tree.leaves(acting.example(1)))
    body = RECURRENT.format(before=before) if acting.recurrent else PLAIN
    return {FILE: bytes(exported.serialize()), LOADER: (head + body).encode()}
