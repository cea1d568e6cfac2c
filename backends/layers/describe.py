"""From the layers that own an array to its canonical names and layout."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from ...core.network import Leaf
from ..libraries import Library
from ..naming import canonical_name, normalize_separators, words_of
from .rules import Layer, Module, Normalized, TooManyAxes, UnknownLayout, Words, several_axes
from .weight_norm import SPECTRAL, kernel_rule, scale_rule, spectral_rule, with_norm

Owners: TypeAlias = Sequence[tuple[Words, Module]]  # modules with their paths, the outermost first

# Built-in networks' cells override `__call__` for the order of arguments and a bias of their own.
OURS = __name__.partition(".backends.")[0]


class CallLog:
    """The modules of a traced network that were called, and in whose calls.

    A wrapper, such as one that normalizes weights, may change a layer that is stored beside it:
    only the calls show this.
    """

    def __init__(self) -> None:
        self._running: list[tuple[Words, Module]] = []
        self._owners: dict[Words, Owners] = {}
        self._scope: Words = ()

    @contextmanager
    def calling(
        self, place: Words, module: Module, *, names_inside: bool = False
    ) -> Iterator[None]:
        """Log the call of a module while it runs.

        Args:
          place: path of the module.
          module: the module.
          names_inside: whether the places of modules that it calls are relative to its own.
        """
        place = (*self._scope, *place)
        outer, self._scope = self._scope, place if names_inside else self._scope
        self._running.append((place, module))
        # The longest chain of callers: a layer called both alone and in a wrapper is wrapped.
        if len(self._running) > len(self._owners.get(place, ())):
            self._owners[place] = tuple(self._running)
        try:
            yield
        finally:
            self._running.pop()
            self._scope = outer

    def owners(self, words: Words) -> Owners:
        """List the modules in whose calls a parameter is used; empty outside of modules."""
        places = (words[:length] for length in range(len(words) - 1, -1, -1))
        return next((self._owners[place] for place in places if place in self._owners), ())


def walk(root: Module, path: Sequence[object], is_layer: Callable[[object], bool]) -> Owners:
    """List the modules on a pytree path, from the root to the last that can be reached."""
    nodes: list[tuple[Words, Module]] = [((), root)]
    node = root
    for length, key in enumerate(path[:-1], start=1):
        word = next((getattr(key, a) for a in ("name", "idx", "key") if hasattr(key, a)), None)
        try:
            if isinstance(word, str) and hasattr(node, word):
                node = getattr(node, word)
            else:
                node = node[word]
        except (TypeError, KeyError, IndexError):
            break
        if is_layer(node):
            nodes.append((words_of(path[:length]), node))
    return nodes


def describe(
    library: Library,
    words: Words,
    owners: Owners,
    shape: tuple[int, ...],
) -> Leaf:
    """Describe one parameter by the list of layers.

    Args:
      library: the one that the parameter's layer belongs to.
      words: the library's names on the path to the parameter.
      owners: the modules that own it, or in whose call its own module is called, the outermost
        first; the last one is the parameter's own.
      shape: of the parameter.

    Returns:
      The leaf. If no listed layer owns the parameter, it is stored as it is, and `unknown` says why
      its layout is unknown, unless it is a vector of a layer that the user wrote.
    """
    unknown = ""
    try:
        if (leaf := _listed(library, words, owners, shape)) is not None:
            return leaf
    except UnknownLayout as problem:
        unknown = str(problem)
    owner = type(owners[-1][1]) if owners else None
    names = (canonical_name(words, library.storage.leaf_names),)
    if not unknown and owner is not None and library.defines_itself(owner):
        unknown = f"triglot's list of layers does not have {library.name}'s {owner.__qualname__}"
    if not unknown and several_axes(shape):
        unknown = f"it belongs to {_title(owner)}, and only its author knows its layout"
    if not unknown:
        return Leaf(names)
    return Leaf(names, layer=f"{library.name} {_title(owner)}", unknown=unknown)


def num_extra_axes(library: Library, words: Words, owners: Owners, shape: tuple[int, ...]) -> int:
    """Count the leading axes that a listed layer's array has more than the list says.

    Args:
      library, words, owners, shape: as those of `describe`.
    """
    for count in range(len(shape)):
        try:
            leaf = _listed(library, words, owners, shape[count:])
        except TooManyAxes:
            continue
        except UnknownLayout:
            return 0
        return 0 if leaf is None else count
    return 0


def _listed(library: Library, words: Words, owners: Owners, shape: tuple[int, ...]) -> Leaf | None:
    """Describe a parameter of a listed layer; None if no listed layer owns it.

    Raises:
      UnknownLayout: if the layer is listed, but not with this shape or configuration.
    """
    wrapped: Normalized | None = None
    for place, module in owners:
        entry = _find(library, type(module))
        if entry is None:
            continue
        name, layer = entry
        if layer.refused:
            raise UnknownLayout(f"it belongs to {library.name}'s {name}: {layer.refused}")
        try:
            if layer.wraps is not None:
                wrapped = layer.wraps(place, module)
                place, leaf = wrapped.place, _scale_leaf(library, wrapped, words, shape)
            else:
                leaf = _leaf(layer, place, module, words, shape, wrapped)
                if wrapped is not None and type(module) is type(wrapped.layer):
                    place = wrapped.place
        except UnknownLayout as problem:
            message = f"it belongs to {library.name}'s {name}, but {problem}"
            raise type(problem)(message) from None
        if leaf is not None:
            prefix = normalize_separators("/".join(place))
            return replace(
                leaf, names=tuple(f"{prefix}/{leaf_name}".strip("/") for leaf_name in leaf.names)
            )
    return None


def _leaf(
    layer: Layer,
    place: Words,
    module: Module,
    words: Words,
    shape: tuple[int, ...],
    wrapped: Normalized | None,
) -> Leaf | None:
    """Describe a parameter of a listed layer; None if it has no such parameter.

    Raises:
      UnknownLayout: see `Layer.parameters`.
    """
    inside = "/".join(words[len(place) :])
    rule = layer.parameters.get(inside)
    if rule is None or words[: len(place)] != place:
        return None
    if wrapped is None or type(module) is not type(wrapped.layer) or inside != wrapped.kernel:
        leaf = rule(module, shape)
        return replace(leaf, layer=leaf.layer or layer.kind)
    if wrapped.spectral:
        leaf = spectral_rule(rule)(module, shape)
        return replace(leaf, layer=with_norm(leaf.layer or layer.kind, SPECTRAL))
    leaf = kernel_rule(rule, lambda _: wrapped.axis)(module, shape)
    return replace(leaf, layer=with_norm(leaf.layer or layer.kind))


def _scale_leaf(
    library: Library, wrapped: Normalized, words: Words, shape: tuple[int, ...]
) -> Leaf | None:
    """Describe the scale of a kernel's norms; None if the parameter is another.

    Raises:
      UnknownLayout: if the layer with the kernel is not listed.
    """
    entry = _find(library, type(wrapped.layer))
    rule = None if entry is None else entry[1].parameters.get(wrapped.kernel)
    if entry is None or rule is None:
        raise UnknownLayout("the layer that it wraps is not listed, or has no such kernel")
    if words != wrapped.scale:
        return None
    leaf = scale_rule(rule, lambda _: wrapped.axis)(wrapped.layer, shape)
    return replace(leaf, layer=with_norm(entry[1].kind))


def _find(library: Library, kind: type) -> tuple[str, Layer] | None:
    """Look a class up, or the listed base whose computation it inherits."""
    listed = library.storage.layers
    is_changed = False
    for base in kind.__mro__:
        if library.defines_itself(base):
            if base.__name__ not in listed:
                continue
            layer = listed[base.__name__]
            return None if is_changed and not layer.refused else (base.__name__, layer)
        ours = base.__module__.startswith(f"{OURS}.")
        is_changed = is_changed or (library.call in vars(base) and not ours)
    return None


def _title(owner: type | None) -> str:
    return "a function" if owner is None else f"{owner.__module__}.{owner.__qualname__}"
