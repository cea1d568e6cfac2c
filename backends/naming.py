"""Canonical names of parameters: the same spelling in every library."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


def canonical_name(path: Sequence[Any], leaf_names: Mapping[str, str]) -> str:
    """Convert a pytree path to a canonical name.

    >>> from jax.tree_util import DictKey
    >>> canonical_name([DictKey("torso_0"), DictKey("w")], {"w": "kernel"})
    'torso/0/kernel'

    Args:
      path: a path of `jax.tree_util.tree_leaves_with_path`.
      leaf_names: canonical last parts (`kernel`, `bias`, `embedding`) by the library's names.
    """
    parts = normalize_separators("/".join(_text(key) for key in path)).split("/")
    return "/".join([*parts[:-1], leaf_names.get(parts[-1], parts[-1])])


def normalize_separators(name: str) -> str:
    """Separate the parts of a name by slashes.

    >>> normalize_separators("mlp/~/linear_0.w")
    'mlp/linear/0/w'
    """
    return "/".join(part for part in re.split(r"[/_.~]+", name) if part)


def prefix_of(path: Sequence[Any], inner: int) -> str:
    """Convert a path without its last `inner` keys to a canonical name.

    >>> from jax.tree_util import DictKey
    >>> prefix_of([DictKey("cell"), DictKey("dense_i"), DictKey("kernel")], 2)
    'cell'
    """
    outer = path[:-inner]
    return canonical_name(outer, {}) if outer else ""


def _text(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
