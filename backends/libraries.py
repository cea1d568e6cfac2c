"""One record per neural-network library, read wherever a fact about a library is needed.

A library is a folder, a package of Python. The record names it, and each module in it holds one
part of what triglot knows of the library:

| module | defines | which |
|---|---|---|
| `zoo` | `zoo(spec, name)` | builds the networks that an algorithm asks for |
| `lifting` | the function named by `Library.lift` | turns a user's module into a `Network` |
| `layers` | `STORAGE`, a `layers.storage.Storage` | what its layers store and compute |
| `source` | `STYLE`, a `source.Style` | writes a plain module for `triglot export` |

Each is optional and imported when it is first used; what needs one that is missing says so.
`lifting`, `layers` and `source` should not import the library itself.

- `zoo(spec, name) -> Network` builds a `core.networks.architecture.NetworkSpec` from the library's
  own layers. Its inputs are arrays, since dictionaries are flattened before; a CNN may have images
  and one vector (`spec.paths`). The network is called with a batch `[B, ...]` (several inputs come
  as a tuple) and returns `{head: array}`, float32 `[B, size]`, or `[B]` for a head of size None.
  With a recurrent cell it is called with `(inputs, carry)`, returns `(outputs, carry)` and takes
  its initial carry from `spec.cell.initial_carry`. It raises `TriglotError` for a torso or a head
  that it lacks. Its `codec` is required by every arithmetic but `native`, by `translate` and by
  `triglot compare`. Canonical names are `torso/INDEX/kernel` and `torso/INDEX/bias`,
  `head/NAME/kernel` and `head/NAME/bias`; layouts are those of `layers.kinds`. `translate` pairs
  arrays of equal names; it guesses pairs of other names only between leaves of one `layer`.
- `lift`, such as `from_toy(module, obs_spec, *, name=None, initial_carry=None) -> Network`, wraps a
  user's own module.

Both return a `Network` whose `backend` is the library's name. `triglot.check_network` checks it.

An installed package adds a library by an entry point of the group `triglot.backends`. The entry
point's name is the backend's name, its object is a `Library` or a function that returns one:

```toml
[project.entry-points."triglot.backends"]
toy = "triglot_toy:LIBRARY"
```

`triglot list` reads the entry point's name only.
"""

import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import plugins
from ..core.errors import MissingExtra, TriglotError, unknown, user_error_context

if TYPE_CHECKING:
    from ..core.network import Network
    from ..core.networks.architecture import NetworkSpec
    from .layers.storage import Storage
    from .source import Style

# The modules of a library's folder, and what each does.
PARTS = {
    "zoo": "builds networks from the library's layers",
    "lifting": "turns a user's module into a Network",
    "layers": "says what the library's layers store and compute",
    "source": "writes a plain module for triglot export",
}


@dataclass(frozen=True, kw_only=True)
class Library:
    """Facts about one neural-network library.

    Attributes:
      name: the backend's name in options and in `Network.backend`, such as `linen`.
      title: the name in tables and figures, such as `Flax Linen`.
      folder: the package with the modules `zoo`, `lifting`, `layers` and `source`, described
        above.
      lift: the function of `lifting` that wraps a user's module, such as `from_linen`; None if
        there is none.
      module: the library's import name; its base classes are defined there or below.
      distribution: the name under which pip installs it; None if it needs nothing but JAX, or if
        pip does not install it.
      extra: the extra of triglot that installs it; None if `pip install DISTRIBUTION` does.
      suffixes: of files that this library alone writes, such as `.pt`.
      format: the name in `triglot export --format`; None if it has no module `source`.
      call: the method with which its modules compute.
    """

    name: str
    title: str
    folder: str
    module: str
    lift: str | None = None
    distribution: str | None = None
    extra: str | None = None
    suffixes: tuple[str, ...] = ()
    format: str | None = None
    call: str = "__call__"

    @property
    def installed(self) -> bool:
        """Whether the library can be found; it is not imported."""
        return importlib.util.find_spec(self.module.partition(".")[0]) is not None

    @property
    def install_command(self) -> str | None:
        """The command that installs the library; None if the record names no distribution."""
        if self.extra:
            return f"pip install 'triglot[{self.extra}]'"
        return f"pip install {self.distribution}" if self.distribution else None

    @property
    def lift_path(self) -> str | None:
        """The function that wraps a user's module, as a user imports it."""
        if self.lift is None:
            return None
        package = sys.modules[__name__.partition(".")[0]]
        is_public = self.name in LIBRARIES and self.lift in package.__all__
        return f"triglot.{self.lift}" if is_public else f"{self.folder}.lifting.{self.lift}"

    def defines(self, kind: type) -> bool:
        """Check whether a class or one of its bases is defined in the library."""
        return any(map(self.defines_itself, kind.__mro__))

    def defines_itself(self, kind: type) -> bool:
        """Check whether a class, regardless of its bases, is defined in the library."""
        return f"{kind.__module__}.".startswith(f"{self.module}.")

    def require(self) -> None:
        """Check that the library is installed.

        Raises:
          MissingExtra: if it is not, with the command that installs it where the record has one.
        """
        if not self.installed:
            command = self.install_command
            needed = self.distribution or f"the module {self.module}"
            raise MissingExtra(
                f"the backend {self.name} needs {needed}, which is not installed"
                + (f": run `{command}`." if command else ".")
            )

    def load_zoo(self) -> "Callable[[NetworkSpec, str], Network]":
        """Import the function that builds networks from the library's layers.

        Raises:
          TriglotError: if the library is not installed, or its folder has no such function.
        """
        self.require()
        return self._load("zoo", "zoo")

    def load_lift(self) -> "Callable[..., Network]":
        """Import the function that wraps a user's module.

        Raises:
          TriglotError: if the library is not installed, or its folder has no such function.
        """
        self.require()
        if self.lift is None:
            raise self._lacks("lifting", "and its record no `lift`")
        return self._load("lifting", self.lift)

    def load_style(self) -> "Style":
        """Import how the library writes a plain module.

        Raises:
          TriglotError: if its folder does not say it.
        """
        return self._load("source", "STYLE")

    @functools.cached_property
    def storage(self) -> "Storage":
        """How its layers store their arrays; without a module `layers`, no layout is known."""
        from .layers.storage import Storage

        return self._load("layers", "STORAGE") if self._has("layers") else Storage()

    def _has(self, part: str) -> bool:
        """Check whether the folder has a module."""
        with self._reported():
            return importlib.util.find_spec(f"{self.folder}.{part}") is not None

    def _load(self, part: str, name: str) -> Any:
        if not self._has(part):
            raise self._lacks(part)
        with self._reported():
            module = importlib.import_module(f"{self.folder}.{part}")
        if not hasattr(module, name):
            raise TriglotError(
                f"{self.folder}.{part} of backend {self.name!r} has no {name}, which "
                f"{PARTS[part]}: see triglot.backends.libraries."
            )
        return getattr(module, name)

    def _lacks(self, part: str, more: str = "") -> TriglotError:
        return TriglotError(
            f"the backend {self.name!r} has no module {self.folder}.{part}{more and f', {more}'}, "
            f"which {PARTS[part]}: see triglot.backends.libraries."
        )

    def _reported(self) -> AbstractContextManager[object]:
        """Report errors of a package's modules in one sentence; ours are raised as they are."""
        if self.name in LIBRARIES:
            return nullcontext()
        return user_error_context(f"the folder {self.folder} of backend {self.name!r} failed")


def _built_in(name: str, title: str, module: str, **facts: Any) -> Library:
    facts = {"lift": f"from_{name}", "format": name, **facts}
    folder = f"triglot.backends.{name}"
    return Library(name=name, title=title, folder=folder, module=module, **facts)


LIBRARIES = {
    library.name: library
    for library in (
        _built_in("haiku", "Haiku", "haiku", distribution="dm-haiku", extra="haiku"),
        _built_in(
            "linen",
            "Flax Linen",
            "flax.linen",
            distribution="flax",
            extra="flax",
            suffixes=(".msgpack",),
            format="flax",
        ),
        _built_in("nnx", "Flax NNX", "flax.nnx", distribution="flax", extra="flax"),
        _built_in(
            "equinox",
            "Equinox",
            "equinox",
            distribution="equinox",
            extra="equinox",
            suffixes=(".eqx",),
        ),
        _built_in(
            "keras",
            "Keras",
            "keras",
            distribution="keras",
            extra="keras",
            suffixes=(".h5",),
            call="call",
        ),
        # Its modules are functions, whose class is JAX's own.
        _built_in(
            "jax", "Plain JAX", "triglot.backends.jax.zoo", lift="from_functions", format=None
        ),
        _built_in(
            "torch",
            "PyTorch",
            "torch.nn",
            distribution="torchax",
            extra="torch",
            suffixes=(".pt", ".pth", ".bin"),
            call="forward",
        ),
        _built_in("table", "Table", "jax", lift=None, format=None),
    )
}


def names() -> list[str]:
    """List the backends, the built-in ones first; nothing is imported."""
    return [*LIBRARIES, *(name for name in plugins.names("backend") if name not in LIBRARIES)]


def find(name: str) -> Library:
    """Find a library's record by the backend's name; a built-in one takes precedence.

    Raises:
      TriglotError: if there is no such backend, or an installed package's record is invalid.
    """
    if name in LIBRARIES:
        return LIBRARIES[name]
    plugin = plugins.find("backend", name)
    if plugin is None:
        raise unknown("backend", name, names())
    record = plugin.load()
    if not isinstance(record, Library) and callable(record):
        with user_error_context(f"the {plugin} failed when it was called"):
            record = record()
    if not isinstance(record, Library) or record.name != name:
        raise TriglotError(
            f"the {plugin} must be a triglot.backends.libraries.Library with name={name!r}, or a "
            f"function that returns one; got {record!r}."
        )
    return record


def known() -> Iterator[Library]:
    """Yield the records of all backends but those that cannot be loaded; `find` reports these."""
    for name in names():
        with suppress(TriglotError):
            yield find(name)


def find_by_class(kind: type) -> Library | None:
    """Find the library whose module class `kind` is; None for a class of no known library."""
    lifting = (library for library in known() if library.lift and library.defines(kind))
    return next(lifting, None)


def find_by_suffix(suffix: str) -> Library | None:
    """Find the library that alone writes files with this suffix; None for others."""
    return next((library for library in known() if suffix in library.suffixes), None)


def formats() -> dict[str, Library]:
    """Map the formats of `triglot export` that are plain modules to their libraries.

    Of two libraries with one format, the built-in one counts.
    """
    return {library.format: library for library in reversed([*known()]) if library.format}


def storage_of(backend: str) -> "Storage":
    """Look up how a network's library stores arrays; nothing is known of a backend without one."""
    from .layers.storage import Storage

    return find(backend).storage if backend in names() else Storage()


def title(name: str) -> str:
    """Look up a backend's name for tables; its plain name if the library is not known here."""
    try:
        return find(name).title
    except TriglotError:
        return name
