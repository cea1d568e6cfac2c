"""Canonical names of parameters: one spelling for the same place in every library."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


def canonical_name(path: Sequence[Any], leaf_names: Mapping[str, str]) -> str:
    """Spell a pytree path with one separator, and its last part as the canonical form does.

    >>> from jax.tree_util import DictKey
    >>> canonical_name([DictKey("torso_0"), DictKey("w")], {"w": "kernel"})
    'torso/0/kernel'

    Args:
      path: as `jax.tree_util.tree_leaves_with_path` gives it.
      leaf_names: canonical name (`kernel`, `bias`, `embedding`) by the library's own.
    """
    parts = spelled("/".join(_text(key) for key in path)).split("/")
    return "/".join([*parts[:-1], leaf_names.get(parts[-1], parts[-1])])


def spelled(name: str) -> str:
    """Spell a name with one separator, however a library or a person parts its words.

    >>> spelled("mlp/~/linear_0.w")
    'mlp/linear/0/w'
    """
    return "/".join(part for part in re.split(r"[/_.~]+", name) if part)


def place_of(path: Sequence[Any], inner: int) -> str:
    """Spell a path without its last `inner` keys.

    >>> from jax.tree_util import DictKey
    >>> place_of([DictKey("cell"), DictKey("dense_i"), DictKey("kernel")], 2)
    'cell'
    """
    outer = path[:-inner]
    return canonical_name(outer, {}) if outer else ""


def _text(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
