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

from ...backends import libraries
from ...core import plugins
from ...core.errors import TriglotError, describe, unknown, user_error_context

if TYPE_CHECKING:
    from ...core.environment import Environment
    from ...core.network import Network


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
    plugin = plugins.find(kind, text)
    if plugin is not None:
        return plugin.load()
    if not is_path(text):
        there = ", ".join(plugins.names(kind))
        raise TriglotError(
            f"{kind} {text!r} is not of the form package.module:object, such as my_file:MyObject"
            + (f", nor a name that an installed package adds: {there}." if there else ".")
        )
    module_name, _, name = text.partition(":")
    search_here()
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise TriglotError(f"{kind} {text!r}: {_why_not(module_name, error)}") from None
    if not hasattr(module, name):
        public = [name for name in vars(module) if not name.startswith("_")]
        raise unknown(f"name in {module_name}", name, public)
    return getattr(module, name)


def load_env(text: str, options: Mapping[str, Any]) -> "Environment":
    """Load an `Environment`, or what gives one when it is called with `options`.

    Raises:
      TriglotError: if it is neither, cannot be hashed, or has no specs of ours.
    """
    from ...core.environment import Environment
    from ...core.host_environment import HostEnvironment
    from ...core.specs import Box, Dict, Discrete

    made = call_env(text, load("environment", text), options)
    with user_error_context(f"environment {text!r} failed when it was looked at"):
        if not isinstance(made, Environment | HostEnvironment):
            raise TriglotError(
                f"environment {text!r} must be an Environment (name, obs_spec, action_spec, reset, "
                f"step) or a function that returns one; got a {type(made).__name__}."
            )
        for name in ("obs_spec", "action_spec"):
            if not isinstance(spec := getattr(made, name), Box | Discrete | Dict):
                raise TriglotError(
                    f"the {name} of environment {text!r} must be a Box, Discrete or Dict of "
                    f"triglot.core.specs; got a {type(spec).__name__}."
                )
        try:
            hash(made)
        except TypeError:
            raise TriglotError(
                f"environment {text!r} cannot be hashed: make {type(made).__name__} a frozen "
                "dataclass with hashable fields."
            ) from None
    return made  # pyright: ignore[reportReturnType] (of either kind)


def call_env(text: str, made: Any, options: Mapping[str, Any]) -> Any:
    """Call what gives an environment; one already made is returned as it is."""
    # A class has the attributes of an environment too.
    is_made = not isinstance(made, type) and hasattr(made, "reset") and hasattr(made, "step")
    return made if is_made or not callable(made) else _call("environment", text, made, **options)


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
        return make_network(texts[0], load("network", texts[0]), env)
    parted = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in parted):
        raise TriglotError(
            f"several networks are given as NAME=package.module:object each, got {' '.join(texts)}."
        )
    return {name: make_network(text, load("network", text), env) for name, _, text in parted}


def make_network(text: str, made: Any, env: "Environment") -> "Network":
    """Make a `Network` of what was loaded as `text`.

    Raises:
      TriglotError: if it is neither a network nor a function that gives one, or fails.
    """
    from ...core.network import Network

    if isinstance(made, Network):
        return made
    if adapter := adapter_of(made):
        raise TriglotError(
            f"network {text!r} is a bare module of its library: name a function of obs_spec and "
            f"action_spec that returns {adapter}(...) of it."
        )
    if callable(made):
        made = _call("network", text, made, env.obs_spec, env.action_spec)
    if not isinstance(made, Network):
        raise TriglotError(
            f"network {text!r} must be a Network or a function of obs_spec and action_spec that "
            f"returns one (see triglot.from_haiku and its like); got a {type(made).__name__}."
        )
    return made


def adapter_of(made: Any) -> str | None:
    """Name what lifts a bare module of a network library, or its class, to a `Network`."""
    library = libraries.find_by_class(made if isinstance(made, type) else type(made))
    return library and library.lift_path


def is_path(text: str) -> bool:
    """Tell whether a text has the form `package.module:object`."""
    module_name, _, name = text.partition(":")
    return all(part.isidentifier() for part in (*module_name.split("."), name))


def is_module(name: str) -> bool:
    """Tell whether a module can be imported; it is not, but the packages around it are."""
    search_here()
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
    except Exception:  # a package around it fails when it is imported, which `load` then tells
        return True


def _call(kind: str, text: str, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call a person's function, having checked that it takes what it is given."""
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        given = ", ".join(["obs_spec", "action_spec"][: len(args)] + list(options)) or "nothing"
        raise TriglotError(f"{kind} {text!r} is called with {given}: {error}.") from None
    with user_error_context(f"{kind} {text!r} failed when it was made"):
        return function(*args, **options)


def _why_not(module_name: str, error: BaseException) -> str:
    # A module that is there and imports one that is not must say so itself.
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if absent and f"{module_name}.".startswith(f"{absent}."):
        return f"no module {absent!r} is installed or lies in {os.getcwd()}."
    return f"importing {module_name} failed: {describe(error)}"


def search_here() -> None:
    """Let modules in the current folder be found too."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
