"""A lookup table for each head, built from a `NetworkSpec`."""

import jax
import jax.numpy as jnp

from ...core.errors import TriglotError
from ...core.network import Codec, Leaf, Network, Variables
from ...core.networks.architecture import NetworkSpec, Table
from ...core.types import Params, PyTree


def zoo(spec: NetworkSpec, name: str) -> Network:
    """Build a lookup table: `{head: array [num_values, size]}`.

    Raises:
      TriglotError: if the spec's torso is not a table.
    """
    torso = spec.torso
    if not isinstance(torso, Table):
        raise TriglotError(
            f"the backend 'table' builds lookup tables only, and {name!r} asks for a network with "
            f"a torso {type(torso).__name__}: choose an environment with Discrete observations, or "
            "another backend."
        )
    rows = spec.num_rows
    heads = dict(sorted(spec.heads))

    def init(key: jax.Array) -> Variables:
        del key
        tables = {
            head: jnp.full((rows, shape.size or 1), torso.init, jnp.float32)
            for head, shape in heads.items()
        }
        return Variables(params=tables, state=())

    def apply(
        variables: Variables, inputs: PyTree, *, key: jax.Array | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        del key, train
        rows = {head: variables.params[head][inputs] for head in heads}
        return {
            head: row[:, 0] if heads[head].size is None else row for head, row in rows.items()
        }, variables.state

    def scatter_add(params: Params, inputs: PyTree, changes: PyTree) -> Params:
        return {
            head: params[head]
            .at[inputs]
            .add(changes[head][:, None] if shape.size is None else changes[head])
            for head, shape in heads.items()
        }

    leaves = [Leaf.one(f"head/{head}/embedding") for head in heads]
    return Network(
        name=name,
        backend="table",
        init=init,
        apply=apply,
        scatter_add=scatter_add,
        codec=Codec.named(dict.fromkeys(heads, 0.0), leaves),
    )
