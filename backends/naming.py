"""Canonical names of parameters: the same spelling in every library."""

import re
from collections.abc import Mapping, Sequence


def words_of(path: Sequence[object]) -> tuple[str, ...]:
    """List the library's own names on a path of `jax.tree_util.tree_leaves_with_path`."""
    return tuple(_text(key) for key in path)


def canonical_name(words: Sequence[str], leaf_names: Mapping[str, str]) -> str:
    """Convert a library's own names on a path to a canonical name.

    >>> canonical_name(["torso_0", "w"], {"w": "kernel"})
    'torso/0/kernel'

    Args:
      words: as `words_of` lists them.
      leaf_names: canonical last parts (`kernel`, `bias`, `embedding`) by the library's names.
    """
    parts = normalize_separators("/".join(words)).split("/")
    return "/".join([*parts[:-1], leaf_names.get(parts[-1], parts[-1])])


def normalize_separators(name: str) -> str:
    """Separate the parts of a name by slashes.

    >>> normalize_separators("mlp/~/linear_0.w")
    'mlp/linear/0/w'
    """
    return "/".join(part for part in re.split(r"[/_.~]+", name) if part)


def _text(key: object) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
