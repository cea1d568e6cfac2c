"""Keys of named streams of random numbers, such as Flax's `params` and `dropout`."""

import zlib
from collections.abc import Collection

import jax


def named_keys(
    asked: Collection[str], key: jax.Array, more: Collection[str] = ()
) -> dict[str, jax.Array]:
    """Derive the keys of named streams from one key.

    An only stream has that key itself, and so draws what its author's own call draws from it; of
    several, `params` has it. The others have it with their name folded in.

    Args:
      asked: the names of the streams that a module asks for.
      key: from which they are derived.
      more: names of further streams.
    """
    main = next(iter(asked)) if len(asked) == 1 else "params"
    return {
        name: key if name == main else jax.random.fold_in(key, zlib.crc32(name.encode()))
        for name in sorted({*asked, *more})
    }
