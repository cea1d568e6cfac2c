"""Which parameter of one network stands for which of another, where shapes and order tell."""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from ..core.errors import TriglotError
from .pairing import Arrays, listed


def guess(source: Arrays, target: Arrays, whose: str) -> dict[str, str]:
    """Pair parameters by shape, and by the order of their numbers, where there is only one way.

    Whole layers are paired first: those whose parameters have the same words (`kernel`, `bias`) and
    shapes, then those of the same shapes; then single parameters. Several that look alike are
    paired if they are called alike on both sides, or if those of a side differ in nothing but
    numbers (`linear`, `linear_1`, ..., `linear_10`).

    Returns:
      Names of `target` by those of `source`.

    Raises:
      TriglotError: if the shapes do not agree, or there are several ways.
    """
    pairs: dict[str, str] = {}
    for by_word in (True, False):
        there, here = (_layers(side, by_word) for side in _left(pairs, source, target))
        for layer, other in _match(there, here).items():
            pairs.update(_inside(layer, other, source, target))
    for by_word in (True, False):
        there, here = (
            {name: (_word(name) if by_word else "", _shape(array)) for name, array in side.items()}
            for side in _left(pairs, source, target)
        )
        pairs.update(_match(there, here))
    if any(_left(pairs, source, target)) or _torn(pairs):
        raise _refusal(pairs, source, target, whose)
    return pairs


def as_mapping(pairs: Mapping[str, str], open_names: Iterable[str] = ()) -> str:
    """Write pairs as a `mapping=`, whole places where they move whole; `...` for open names.

    >>> as_mapping({"a/kernel": "b/kernel", "a/bias": "b/bias", "c/w": "d/kernel"}, ["e/w"])
    "mapping={'a': 'b', 'c/w': 'd/kernel', 'e/w': ...}"
    """
    entries: dict[str, str] = {}
    for name, other in pairs.items():
        place, to = _place(name), _place(other)
        together = {_place(pairs[n]) for n in pairs if _place(n) == place} == {to}
        same_words = all(_word(n) == _word(pairs[n]) for n in pairs if _place(n) == place)
        if place and to and together and same_words:
            entries[place] = repr(to)
        else:
            entries[name] = repr(other)
    entries |= dict.fromkeys(open_names, "...")
    written = ", ".join(f"{name!r}: {to}" for name, to in sorted(entries.items()))
    return f"mapping={{{written}}}"


def _match(left: Mapping[str, Hashable], right: Mapping[str, Hashable]) -> dict[str, str]:
    """Pair names of one signature, as far as there is only one way."""
    pairs: dict[str, str] = {}
    for signature in set(left.values()) & set(right.values()):
        first, second = ([n for n in side if side[n] == signature] for side in (left, right))
        for labelled in (_without_common_place, _ranked):
            one, other = labelled(first), labelled(second)
            if one and one.keys() == other.keys():
                pairs.update({one[label]: other[label] for label in one})
                break
    return pairs


def _without_common_place(names: Sequence[str]) -> dict[Hashable, str]:
    """Label names by what differs: all of them but the parts with which all begin."""
    parts = [name.split("/") for name in names]
    common = 0
    for level in zip(*parts, strict=False):
        if len(set(level)) > 1:
            break
        common += 1
    return {tuple(own[common:]): name for own, name in zip(parts, names, strict=True)}


def _ranked(names: Sequence[str]) -> dict[Hashable, str]:
    """Label names by their rank in natural order; not if they differ in more than numbers."""
    if len({re.sub(r"/?\d+", "", name) for name in names}) > 1:
        return {}
    return dict(enumerate(sorted(names, key=_numbers)))


def _numbers(name: str) -> list[tuple[int, ...]]:
    """Read the numbers of each word of a name; one that has none comes first."""
    words = re.split(r"/(?=\D)", name)
    return [tuple(int(number) for number in re.findall(r"\d+", word)) for word in words]


def _layers(arrays: Arrays, by_word: bool) -> dict[str, Hashable]:
    """Describe the place of each parameter by all parameters there."""
    found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
    for name, array in arrays.items():
        described = (_word(name) if by_word else "", _shape(array))
        found.setdefault(_place(name), []).append(described)
    return {place: tuple(sorted(shapes)) for place, shapes in found.items()}


def _inside(layer: str, other: str, source: Arrays, target: Arrays) -> dict[str, str]:
    """Pair the parameters of two layers, by word if those agree, else by shape."""
    there, here = ([n for n in a if _place(n) == p] for a, p in ((source, layer), (target, other)))
    by_word = {_word(n): n for n in here}
    if {_word(n) for n in there} == by_word.keys():
        return {n: by_word[_word(n)] for n in there}
    return _match({n: _shape(source[n]) for n in there}, {n: _shape(target[n]) for n in here})


def _left(pairs: Mapping[str, str], source: Arrays, target: Arrays) -> tuple[Arrays, Arrays]:
    reached = set(pairs.values())
    return (
        {name: array for name, array in source.items() if name not in pairs},
        {name: array for name, array in target.items() if name not in reached},
    )


def _torn(pairs: Mapping[str, str]) -> bool:
    """Tell whether the kernel of a layer would go to one layer, and its bias to another."""
    words = {"kernel", "bias"}
    known = [(n, o) for n, o in pairs.items() if {_word(n), _word(o)} <= words]
    together = {(_place(n), _place(o)) for n, o in known}
    return len({place for place, _ in together}) < len(together)


def _refusal(pairs: Mapping[str, str], source: Arrays, target: Arrays, whose: str) -> TriglotError:
    there, here = _left({} if _torn(pairs) else pairs, source, target)
    shapes = [Counter(_shape(array) for array in side.values()) for side in (there, here)]
    if shapes[0] == shapes[1]:
        problem = "parameters of equal shapes could be paired in several ways"
    else:
        problem = "the architectures differ"
    found = {name: other for name, other in pairs.items() if name not in there}
    return TriglotError(
        f"{whose}: {problem}. Without a counterpart are {listed(there) or 'none'} of the first and "
        f"{listed(here) or 'none'} of the second. If they are one function, say which stands for "
        f"which: complete {as_mapping(found, there)}."
    )


def _place(name: str) -> str:
    return name.rpartition("/")[0]


def _word(name: str) -> str:
    return name.rpartition("/")[2]


def _shape(array: object) -> tuple[int, ...]:
    return tuple(getattr(array, "shape", ()))
