"""The greedy policy as one file for JAX alone, through `jax.export` (StableHLO)."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import export as jax_export

from ...backends.calling import describe_inputs
from ...core.agent import PolicyInput
from ...core.errors import TriglotError, describe
from .acting import Acting

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


def exported(acting: Acting) -> jax_export.Exported:
    """Export a policy for any batch size.

    Its arguments are the observations `[b, ...]`, the action mask bool `[b, num_actions]` if the
    environment gives one, and for a recurrent policy `first`, bool `[b]`, and the carry, a tuple of
    arrays `[b, ...]`. It returns the actions `[b, ...]`, and the next carry of a recurrent policy.

    Raises:
      TriglotError: if the network cannot be traced for an unknown batch size.
    """
    (batch,) = jax_export.symbolic_shape("b")
    inputs = acting.example(batch)
    leaves, structure = jax.tree.flatten(acting.carry(batch))
    given = [inputs.obs] + ([] if inputs.action_mask is None else [inputs.action_mask])
    given += [inputs.first, tuple(leaves)] if leaves else []

    def policy(obs: Any, *rest: Any) -> Any:
        mask, rest = (rest[0], rest[1:]) if acting.num_actions is not None else (None, rest)
        first, carry = rest if leaves else (jnp.ones((batch,), bool), ())
        seen = PolicyInput(obs=obs, first=first, action_mask=mask)
        carry = jax.tree.unflatten(structure, carry)
        action, carry = acting.act(acting.arrays, carry, seen, jax.random.key(0))
        return (action, tuple(jax.tree.leaves(carry))) if leaves else action

    network = acting.agent.network
    try:
        return jax_export.export(jax.jit(policy), platforms=PLATFORMS)(*given)
    except Exception as error:  # JAX raises many types
        raise TriglotError(
            f"the {network.backend} network {network.name!r} cannot be exported for any batch "
            f"size: {describe(error)}. Write it without Python decisions on the size of the batch."
        ) from error


def stablehlo_files(acting: Acting, title: str) -> dict[str, bytes]:
    """Encode `policy.stablehlo`, and `load.py`, which loads it.

    Args:
      acting: a greedy policy.
      title: of the policy, one sentence.

    Returns:
      The files' contents by their names.

    Raises:
      TriglotError: as `exported`, and if flatbuffers is not installed.
    """
    try:
        artefact = exported(acting).serialize()
    except ImportError:  # an installation from before it was required
        raise TriglotError(
            "jax.export writes files with flatbuffers, which is not installed: run `pip install "
            "flatbuffers`."
        ) from None
    agent, masked = acting.agent, acting.num_actions is not None
    mask = ", action_mask" if masked else ""
    actions = f"actions, {describe_inputs(agent.action_spec)}"
    usage = [f"policy(obs{mask}) -> {actions}"]
    if acting.recurrent:
        usage = [f"step(obs{mask}, first, carry) -> ({actions}; the next carry)"]
    usage.append(f"obs: {describe_inputs(agent.obs_spec)}")
    if masked:
        usage.append(f"action_mask: bool [B, {acting.num_actions}], True where allowed")
    if acting.recurrent:
        usage.append("first: bool [B], True where an episode starts; carry: initial_carry(B) then")
    head = HEAD.format(title=title, version=jax.__version__, usage="\n".join(usage), file=FILE)
    before = len(jax.tree.leaves(acting.example(1)))
    body = RECURRENT.format(before=before) if acting.recurrent else PLAIN
    return {FILE: bytes(artefact), LOADER: (head + body).encode()}
