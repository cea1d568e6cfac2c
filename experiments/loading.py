"""A person's own algorithm, environment or network: `package.module:object`, or installed.

Whatever a person's own code raises becomes one sentence with the line of theirs.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.errors import TriglotError, blaming, unknown
from . import plugins

if TYPE_CHECKING:
    from ..core.environment import Environment
    from ..core.network import Network


# How a bare module of a network library becomes a `Network`, by where its base class is from.
ADAPTERS = {
    "haiku": "from_haiku",
    "flax.linen": "from_linen",
    "flax.nnx": "from_nnx",
    "equinox": "from_equinox",
}


def load(kind: str, text: str) -> Any:
    """Import `package.module:object`, or what an installed package calls by this name.

    Modules in the current folder are found too.

    Args:
      kind: what the object should be, e.g. `"algorithm"`.
      text: the module and the object, or a name.

    Raises:
      TriglotError: if the text has another form, there is no such module or object, or importing
        it fails.
    """
    plugin = plugins.find(kind, text) if kind in plugins.GROUPS else None
    if plugin is not None:
        return plugin.load()
    if not is_path(text):
        there = ", ".join(plugins.names(kind)) if kind in plugins.GROUPS else ""
        raise TriglotError(
            f"{kind} {text!r} is not of the form package.module:object, such as my_file:MyObject"
            + (f", nor one of those that installed packages add: {there}." if there else ".")
        )
    module_name, _, name = text.partition(":")
    _search_here()
    try:
        with blaming(f"{kind} {text!r}: importing {module_name} failed"):
            module = _import(module_name)
    except _NoModule as error:
        raise TriglotError(
            f"{kind} {text!r}: no module {error.name!r} is installed or lies in {os.getcwd()}."
        ) from None
    if not hasattr(module, name):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise unknown(f"name in {module_name}", name, public)
    return getattr(module, name)


def load_env(text: str, options: Mapping[str, Any]) -> "Environment":
    """Load an `Environment`, or what gives one when it is called with `options`.

    Raises:
      TriglotError: if it is neither, or cannot be hashed.
    """
    from ..core.environment import Environment

    made = load("environment", text)
    # A class has the attributes of an environment too.
    if callable(made) and (isinstance(made, type) or not isinstance(made, Environment)):
        made = _call("environment", text, made, **options)
    if not isinstance(made, Environment):
        raise TriglotError(
            f"environment {text!r} must be an Environment (name, obs_spec, action_spec, reset, "
            f"step) or a function that returns one; got a {type(made).__name__}."
        )
    try:
        hash(made)
    except TypeError:
        raise TriglotError(
            f"environment {text!r} cannot be hashed: make {type(made).__name__} a frozen dataclass "
            "with hashable fields."
        ) from None
    return made


def load_networks(
    texts: Sequence[str], env: "Environment"
) -> "Network | dict[str, Network] | None":
    """Load one network for everything, or several as `NAME=package.module:object`.

    Each object is a `Network`, or is called with `env`'s obs_spec and action_spec to give one.

    Returns:
      What `make_agent` takes; None where `texts` is empty.

    Raises:
      TriglotError: if an object is no network, or the forms are mixed.
    """
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _load_network(texts[0], env)
    parted = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in parted):
        raise TriglotError(
            f"several networks are given as NAME=package.module:object each, got {' '.join(texts)}."
        )
    return {name: _load_network(text, env) for name, _, text in parted}


def is_path(text: str) -> bool:
    """Tell whether a text has the form `package.module:object`."""
    module_name, _, name = text.partition(":")
    return all(part.isidentifier() for part in (*module_name.split("."), name))


def is_module(name: str) -> bool:
    """Tell whether a module can be imported; it is not, but the packages around it are."""
    _search_here()
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def _load_network(text: str, env: "Environment") -> "Network":
    from ..core.network import Network

    made = load("network", text)
    if not isinstance(made, Network) and callable(made):
        made = _call("network", text, made, env.obs_spec, env.action_spec)
    if not isinstance(made, Network):
        raise TriglotError(
            f"network {text!r} must be a Network or a function of obs_spec and action_spec that "
            f"returns one (see triglot.from_haiku and its like); got a {type(made).__name__}."
        )
    return made


def _call(kind: str, text: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a person's function, having checked that it takes what it is given."""
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        given = ", ".join(["obs_spec", "action_spec"][: len(args)] + list(options)) or "nothing"
        raise TriglotError(f"{kind} {text!r} is called with {given}: {error}.") from None
    return function(*args, **options)


def _search_here() -> None:
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
