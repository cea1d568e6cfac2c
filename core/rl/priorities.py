"""Where a replay's samples start: uniformly over its ring of slots, or by priority."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..hyper import Number
from ..types import pytree_dataclass


@pytree_dataclass
class Priorities:
    """Priorities of the slots at which a sample may start.

    Attributes:
      weight: float32 `[P]`, the cube next to the number of slots; 0 where no sample may start.
      max_priority: float32 `[]`, the largest weight so far, which new steps get.
    """

    weight: jax.Array
    max_priority: jax.Array


@dataclass(frozen=True)
class Starts:
    """The ring of slots at which a sample may start, and how one of them is drawn.

    Attributes:
      capacity: `C`, slots in the ring.
      waiting: how many of the newest slots lack steps that their sample needs.
      prioritized: draw in proportion to weights instead of uniformly.
    """

    capacity: int
    waiting: int
    prioritized: bool = False

    def init(self) -> Priorities | None:
        """Make the priorities of an empty ring; None where drawing is uniform."""
        if not self.prioritized:
            return None
        weight = jnp.zeros((_next_cube(self.capacity),), jnp.float32)
        return Priorities(weight=weight, max_priority=jnp.ones((), jnp.float32))

    def count(self, size: jax.Array) -> jax.Array:
        """Count the slots at which a sample may start, int32 `[]`, of the `size` filled ones."""
        return jnp.maximum(size - self.waiting, 0)

    def draw(
        self,
        priorities: Priorities | None,
        position: jax.Array,
        size: jax.Array,
        key: jax.Array,
        batch_size: int,
    ) -> tuple[Int[Array, " B"], Float[Array, " B"]]:
        """Draw slots, with replacement.

        Args:
          priorities: as `init` makes them.
          position: int32 `[]`, the slot that is written next.
          size: int32 `[]`, how many are filled.
          key: a typed key.
          batch_size: `B`.

        Returns:
          The slots, and the probability of each. By priority they are stratified: one from each of
          `B` equal parts of the total weight.

        Source: Schaul et al. 2016, section 3.3 and appendix B.2.1,
        https://arxiv.org/abs/1511.05952.
        """
        if priorities is None:
            starts = self.count(size)
            # `randint` draws twice, against a bias that is below C / 2^32 here.
            drawn = jax.random.bits(key, (batch_size,), jnp.uint32) % starts.astype(jnp.uint32)
            slot = (position - size + drawn.astype(jnp.int32)) % self.capacity
            return slot, jnp.full((batch_size,), 1.0) / starts.astype(jnp.float32)
        weight = priorities.weight
        strata = jnp.arange(batch_size, dtype=jnp.float32)
        share = (strata + jax.random.uniform(key, (batch_size,))) / batch_size
        slot, total = sample_proportional(weight, share)
        return slot, weight[slot] / total

    def make_room(
        self, priorities: Priorities | None, position: jax.Array, size: jax.Array, block: int
    ) -> Priorities | None:
        """Set the priorities of all slots after `block` more of them are written at `position`."""
        if priorities is None:
            return None
        weight, max_priority = priorities.weight, priorities.max_priority
        added = jnp.arange(block, dtype=jnp.int32)
        # Slots written `waiting` slots ago now have all the steps that their sample needs.
        complete = (position + added - self.waiting) % self.capacity
        there = size + added >= self.waiting
        weight = weight.at[complete].set(jnp.where(there, max_priority, 0.0))
        if self.waiting:
            newest = jnp.arange(self.waiting, dtype=jnp.int32)
            weight = weight.at[(position + block - 1 - newest) % self.capacity].set(0.0)
        return Priorities(weight=weight, max_priority=max_priority)


def set_priorities(
    priorities: Priorities | None, slot: jax.Array, weight: jax.Array
) -> Priorities | None:
    """Set float weights `[B]` of drawn slots `[B]`; without priorities, return None."""
    if priorities is None:
        return None
    weights = priorities.weight.at[slot].set(weight, mode="promise_in_bounds")
    max_priority = jnp.maximum(priorities.max_priority, weight.max())
    return Priorities(weight=weights, max_priority=max_priority)


def importance_weights(probability: jax.Array, exponent: Number) -> jax.Array:
    """Compute importance-sampling weights of samples; at most 1.

    w_i = P(i)^-exponent / max_j P(j)^-exponent, over the batch.

    Args:
      probability: float32 `[B]`, above 0.
      exponent: float `[]`; 1 corrects fully, 0 not at all.

    Returns:
      float32 `[B]`.

    Source: Schaul et al. 2016, section 3.4, https://arxiv.org/abs/1511.05952.
    """
    return (probability.min() / probability) ** exponent


def sample_proportional(
    weight: Float[Array, " P"], share: Float[Array, " B"]
) -> tuple[Int[Array, " B"], Float[Array, ""]]:
    """Choose indices in proportion to weights, at given shares of their total.

    The weights are summed each time, in two levels of blocks: one fast pass, no sum tree to update,
    and no rounding errors that accumulate over a run.

    Args:
      weight: float32 `[P]`, a cubic number of them, not negative, with a positive sum.
      share: float32 `[B]` within [0, 1].

    Returns:
      int32 indices `[B]`, each of a positive weight, and the total `[]`.
    """
    width = round(weight.shape[0] ** (1 / 3))
    small = weight.reshape(width * width, width)
    middle = small.sum(axis=1).reshape(width, width)
    large = middle.sum(axis=1)[None]
    total = large.sum()

    def descend(
        row: jax.Array, ends: jax.Array, rest: jax.Array, index: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        # The first positive weight that ends beyond, or the last one, where rounding leaves none.
        # As a maximum: `argmax` is not vectorized on a CPU.
        columns = jnp.arange(width, dtype=jnp.int32)[None]
        rank = jnp.where(ends > rest[:, None], 2 * width - columns, columns)
        best = jnp.where(row > 0.0, rank, -1).max(axis=1)
        child = jnp.where(best > width, 2 * width - best, best)
        starts = jnp.broadcast_to(ends - row, (rest.shape[0], width))
        before = jnp.take_along_axis(starts, child[:, None], axis=1)[:, 0]
        return rest - before, index * width + child

    rest, index = descend(large, _ends(large), share * total, jnp.zeros(share.shape, jnp.int32))
    rest, index = descend(middle[index], _ends(middle)[index], rest, index)
    row = small[index]
    _, index = descend(row, _ends(row), rest, index)
    return index, total


def _ends(rows: jax.Array) -> jax.Array:
    """Sum each row cumulatively, `[..., W]`."""
    # A product with a triangle of ones: `cumsum` is ten times slower on a CPU.
    width = rows.shape[-1]
    return jnp.matmul(rows, jnp.triu(jnp.ones((width, width))), precision="highest")


def _next_cube(count: int) -> int:
    width = round(count ** (1 / 3))
    return (width if width**3 >= count else width + 1) ** 3
