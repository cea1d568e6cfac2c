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
    parts = [part for key in path for part in re.split(r"[/_.~]+", _text(key)) if part]
    return "/".join([*parts[:-1], leaf_names.get(parts[-1], parts[-1])])


def _text(key: Any) -> str:
    for attribute in ("key", "name", "idx"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)
