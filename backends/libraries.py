"""One record per neural-network library, read wherever a fact about a library is needed.

An installed package adds a library by an entry point of the group `triglot.backends`. The entry
point's name is the backend's name, its object is a `Library` or a function that returns one:

```toml
[project.entry-points."triglot.backends"]
toy = "triglot_toy:LIBRARY"
```

The module of the record is imported when the backend is used; it should not import the library.
`triglot list` reads the entry point's name only.

**The adapter module** (`Library.adapter`) is imported when the first network is built. It provides:

- `zoo(spec, name) -> Network`: builds a `core.networks.architecture.NetworkSpec` from the library's
  own layers. Its inputs are arrays, since dictionaries are flattened before; a CNN may have images
  and one vector (`spec.paths`). The network is called with a batch `[B, ...]` (several inputs come
  as a tuple) and returns `{head: array}`, float32 `[B, size]`, or `[B]` for a head of size None.
  With a recurrent cell it is called with `(inputs, carry)`, returns `(outputs, carry)` and takes
  its initial carry from `spec.cell.initial_carry`. It raises `TriglotError` for a torso or a head
  that it lacks. Its `codec` is required by every arithmetic but `native`, by `translate` and by
  `triglot compare`. Canonical names are `torso/INDEX/kernel` and `torso/INDEX/bias`,
  `head/NAME/kernel` and `head/NAME/bias`; layouts are those of `layers.listed`. `translate` pairs
  arrays of equal names; it guesses pairs of other names only between leaves of one `layer`.
- the function named by `Library.lift`, such as `from_toy(module, obs_spec, *, name=None,
  initial_carry=None) -> Network`, which lifts a user's own module.

Both return a `Network` whose `backend` is the library's name. `triglot.check_network` checks it.
"""

import importlib.util
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType

from ..core import plugins
from ..core.errors import MissingExtra, TriglotError, unknown, user_error_context


@dataclass(frozen=True, kw_only=True)
class Library:
    """Facts about one neural-network library.

    Attributes:
      name: the backend's name in options and in `Network.backend`, such as `linen`.
      title: the name in tables and figures, such as `Flax Linen`.
      adapter: the module with `zoo` and `lift`; see this module's docstring.
      lift: the adapter's function that lifts a user's module, such as `from_linen`; None if there
        is none.
      module: the library's import name; its base classes are defined there or below.
      distribution: the name under which pip installs it; None if it needs nothing but JAX.
      extra: the extra of triglot that installs it; None if `pip install DISTRIBUTION` does.
      call: the method with which its modules compute.
    """

    name: str
    title: str
    adapter: str
    module: str
    lift: str | None = None
    distribution: str | None = None
    extra: str | None = None
    call: str = "__call__"

    @property
    def installed(self) -> bool:
        """Whether the library can be found; it is not imported."""
        return importlib.util.find_spec(self.module.partition(".")[0]) is not None

    @property
    def install_command(self) -> str:
        """The command that installs the library."""
        wanted = f"'triglot[{self.extra}]'" if self.extra else self.distribution or self.module
        return f"pip install {wanted}"

    @property
    def lift_path(self) -> str | None:
        """The function that lifts a user's module, as a user imports it."""
        if self.lift is None:
            return None
        return f"triglot.{self.lift}" if self.name in LIBRARIES else f"{self.adapter}.{self.lift}"

    def defines(self, kind: type) -> bool:
        """Check whether a class or one of its bases is defined in the library."""
        return any(map(self.defines_itself, kind.__mro__))

    def defines_itself(self, kind: type) -> bool:
        """Check whether a class, regardless of its bases, is defined in the library."""
        return f"{kind.__module__}.".startswith(f"{self.module}.")

    def require(self) -> None:
        """Check that the library is installed.

        Raises:
          MissingExtra: if it is not, with the command that installs it.
        """
        if not self.installed:
            raise MissingExtra(
                f"the backend {self.name} needs {self.distribution or self.module}, which is not "
                f"installed: run `{self.install_command}`."
            )

    def load_adapter(self) -> ModuleType:
        """Import the adapter module.

        Raises:
          TriglotError: if a package's adapter cannot be imported or has no `zoo`.
        """
        if self.name in LIBRARIES:
            return importlib.import_module(self.adapter)
        with user_error_context(f"the adapter {self.adapter} of backend {self.name!r} failed"):
            adapter = importlib.import_module(self.adapter)
        if not callable(getattr(adapter, "zoo", None)):
            raise TriglotError(
                f"the adapter {self.adapter} of backend {self.name!r} has no function "
                "zoo(spec, name): see triglot.backends.libraries."
            )
        return adapter


def _built_in(name: str, title: str, module: str, **facts: str) -> Library:
    facts = {"adapter": f"triglot.backends.{name}", "lift": f"from_{name}", **facts}
    return Library(name=name, title=title, module=module, **facts)


LIBRARIES = {
    library.name: library
    for library in (
        _built_in("haiku", "Haiku", "haiku", distribution="dm-haiku", extra="haiku"),
        _built_in("linen", "Flax Linen", "flax.linen", distribution="flax", extra="flax"),
        _built_in("nnx", "Flax NNX", "flax.nnx", distribution="flax", extra="flax"),
        _built_in("equinox", "Equinox", "equinox", distribution="equinox", extra="equinox"),
        _built_in(
            "keras",
            "Keras",
            "keras",
            adapter="triglot.backends.keras.adapter",
            distribution="keras",
            extra="keras",
            call="call",
        ),
        # Its modules are functions, whose class is JAX's own.
        _built_in("jax", "Plain JAX", "triglot.backends.zoo.jax", lift="from_functions"),
        _built_in(
            "torch", "PyTorch", "torch.nn", distribution="torchax", extra="torch", call="forward"
        ),
        Library(name="table", title="Table", adapter="triglot.backends.table", module="jax"),
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


def find_by_class(kind: type) -> Library | None:
    """Find the library whose module class `kind` is; None for a class of no known library.

    Records that cannot be loaded are skipped; `find` reports their errors.
    """
    for name in names():
        with suppress(TriglotError):
            library = find(name)
            if library.lift and library.defines(kind):
                return library
    return None


def title(name: str) -> str:
    """Look up a backend's name for tables; its plain name if the library is not known here."""
    try:
        return find(name).title
    except TriglotError:
        return name
