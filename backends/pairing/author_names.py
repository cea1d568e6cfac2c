"""Names of parameters as their authors know them: in texts, and as a mapping gives them."""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from ...core.errors import TriglotError
from ...core.network import Leaf
from ..naming import normalize_separators

Leaves: TypeAlias = Mapping[str, Leaf]  # arrays of a network, by canonical name
Arrays: TypeAlias = Mapping[str, Any]  # canonical arrays, or their shapes, by name
INDEX = re.compile(r"(?:/\d+)+$")
LAST = re.compile(r"(?:^|[./])[^./\[\]]+$|\[[^\[\]]*\]$")  # word of a spelling
PART = re.compile(r"\[[^\[\]]*\]$")  # of an array
CLOSING = re.compile(r"['\"]?\]")


def normalize(name: str) -> str:
    """Separate the parts of a name in any library's spelling by slashes.

    >>> normalize(".layers[0].weight"), normalize("mlp/~/linear_0/w")
    ('layers/0/weight', 'mlp/linear/0/w')
    """
    return normalize_separators(re.sub(r"[\[\]'\",\s]+", "/", name))


def display_place(leaf: Leaf, name: str, place: str) -> str:
    """Return the place of a module as the author knows it.

    >>> leaf = Leaf(("layers/0/kernel",), spelling=".layers[0].weight")
    >>> display_place(leaf, "layers/0/kernel", "layers/0")
    '.layers[0]'

    Args:
      leaf: the array of a parameter in the module.
      name: canonical name of the parameter.
      place: canonical name of the module, with which `name` begins.
    """
    spelling = leaf.spelling
    if not spelling or not place:
        return place
    for end in range(1, len(spelling) + 1):
        if normalize(spelling[:end]) == place:
            closing = CLOSING.match(spelling[end:])
            return spelling[:end] + (closing[0] if closing else "")
    if index := INDEX.search(place):  # of layers that one array stacks
        stack = display_place(leaf, name, place[: index.start()])
        return f"{stack}[{', '.join(index[0].split('/')[1:])}]"
    return LAST.sub("", spelling)


def resolve(given: str, arrays: Arrays, names: Mapping[str, str], what: str) -> tuple[str, ...]:
    """Find what a name in a mapping means.

    Args:
      given: a name of a parameter or a module, canonical or in the library's spelling; or the end
        of one, if only one thing is called so.
      arrays: canonical arrays of a network.
      names: their names in the library's spelling, as `Codec.display_names` gives them.
      what: the networks and the side, for messages.

    Returns:
      A canonical name of a parameter or a module; of an array that holds several parameters, such
      as the gates of a cell, their canonical names.

    Raises:
      TriglotError: if nothing is called so, or several things are.
    """
    canonical = normalize_separators(given)
    if any(covers(canonical, name) for name in arrays):
        return (canonical,)
    wanted, places = normalize(given), _places(arrays, names)
    fits = (
        lambda place: place == wanted,
        lambda place: place.endswith(f"/{wanted}"),
        lambda place: wanted.endswith(f"/{place}"),  # as `params/Dense_0/kernel`
    )
    for fit in fits:
        meant = {each for place in places if fit(place) for each in places[place]}
        outermost = [m for m in meant if not any(covers(n, m[0]) for n, *_ in meant - {m})]
        if len(outermost) == 1:
            return outermost[0]
        if outermost:
            shown = ", ".join(sorted(names.get(each[0], each[0]) for each in outermost))
            raise TriglotError(f"{what}: {given!r} may be any of {shown}: give more of the name.")
    known = listed(arrays, names)
    raise TriglotError(f"{what}: no parameter is named {given!r}; there are {known or 'none'}.")


def listed(arrays: Arrays, names: Mapping[str, str]) -> str:
    """List arrays by the names that their author knows, with their shapes."""
    shown = {names.get(name, name): tuple(array.shape) for name, array in arrays.items()}
    return ", ".join(f"{name} {shape}" for name, shape in sorted(shown.items()))


def display_pairs(pairs: Mapping[str, str], leaves: tuple[Leaves, Leaves]) -> dict[str, str]:
    """Write pairs of parameters or modules by names that the authors know and a mapping may have.

    Args:
      pairs: canonical names of the first network to those of the second.
      leaves: the arrays of both networks by canonical name.
    """
    return {_display(name, leaves[0]): _display(to, leaves[1]) for name, to in pairs.items()}


def _display(name: str, leaves: Leaves) -> str:
    if name in leaves:
        return leaves[name].display_name(name)
    inside = next((each for each in leaves if covers(name, each)), None)
    shown = name if inside is None else display_place(leaves[inside], inside, name)
    return shown if normalize(shown) == name else name


def covers(prefix: str, name: str) -> bool:
    """Check whether a name equals a prefix or lies below it; all names lie below the empty one."""
    return prefix in ("", name) or name.startswith(f"{prefix}/")


def _places(arrays: Arrays, names: Mapping[str, str]) -> dict[str, set[tuple[str, ...]]]:
    """List what each name means: canonical names by the names of parameters and of modules."""
    meanings: dict[str, set[tuple[str, ...]]] = {}
    wholes: dict[str, list[str]] = {}
    for name in arrays:
        words, author = name.split("/"), names.get(name, name)
        for length in range(1, len(words) + 1):
            place = "/".join(words[:length])
            meanings.setdefault(place, set()).add((place,))
        meanings.setdefault(normalize(author), set()).add((name,))
        if (whole := PART.sub("", author)) != author:
            wholes.setdefault(normalize(whole), []).append(name)
    for whole, parts in wholes.items():
        meanings.setdefault(whole, set()).add(tuple(parts))
    return meanings
