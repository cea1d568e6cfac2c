"""Random mazes, by recursive division.

Source: jumanji's `maze_generation` (Bonnet et al. 2024), which divides chambers recursively.
Differences, by which it takes about a fifth of the time: walls are written with masks instead of
cell by cell, the stack of chambers is small, and all random numbers are drawn at once. Mazes have
the same distribution, but another key gives each of them.
"""

import jax
import jax.numpy as jnp

from ...core.hyper import check_count


def divide(key: jax.Array, num_rows: int, num_cols: int) -> jax.Array:
    """Draw the walls of a maze, bool `[num_rows, num_cols]`.

    Chambers are divided until each is one cell wide or high. A wall crosses the longer side at an
    odd distance from the chamber's corner and has one passage at an even distance.

    Raises:
      TriglotError: if a side is shorter than 2.
    """
    for name, size in (("num_rows", num_rows), ("num_cols", num_cols)):
        check_count(f"{name} of a maze", size, 2)
    rows, cols = jnp.arange(num_rows)[:, None], jnp.arange(num_cols)[None, :]
    # A division replaces one chamber by two with a shorter side, which bounds the stack.
    slots = jnp.arange(num_rows + num_cols)[:, None]
    # Each wall and its passage occupy at least two cells, which bounds the number of walls.
    draws = jax.random.bits(key, (num_rows * num_cols // 2, 2), jnp.uint16).astype(jnp.int32)

    def push(stack: jax.Array, size: jax.Array, chamber: tuple) -> tuple[jax.Array, jax.Array]:
        _, _, height, width = chamber
        fits = (height > 1) & (width > 1)
        stack = jnp.where((slots == size) & fits, jnp.stack(chamber), stack)
        return stack, size + fits.astype(jnp.int32)

    def split(carry: tuple) -> tuple:
        walls, stack, size, count = carry
        top, left, height, width = jnp.where(slots == size - 1, stack, 0).sum(0)
        wide = width >= height
        long, short = jnp.where(wide, width, height), jnp.where(wide, height, width)
        at = 2 * (draws[count, 0] * (long // 2) >> 16) + 1
        passage = 2 * (draws[count, 1] * ((short + 1) // 2) >> 16)
        in_column = (cols == left + at) & (rows >= top) & (rows < top + height)
        in_row = (rows == top + at) & (cols >= left) & (cols < left + width)
        walls |= jnp.where(
            wide, in_column & (rows != top + passage), in_row & (cols != left + passage)
        )
        rest = long - at - 1
        near = (top, left, jnp.where(wide, height, at), jnp.where(wide, at, width))
        right, below = (top, left + at + 1, height, rest), (top + at + 1, left, rest, width)
        far = tuple(jnp.where(wide, *pair) for pair in zip(right, below, strict=True))
        stack, size = push(*push(stack, size - 1, near), far)
        return walls, stack, size, count + 1

    whole = tuple(jnp.int32(number) for number in (0, 0, num_rows, num_cols))
    empty = jnp.zeros((num_rows, num_cols), bool)
    stack, size = push(jnp.zeros((slots.size, 4), jnp.int32), jnp.int32(0), whole)
    carry = (empty, stack, size, jnp.int32(0))
    return jax.lax.while_loop(lambda carry: carry[2] > 0, split, carry)[0]
