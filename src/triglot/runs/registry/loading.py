"""Load custom algorithms, environments and networks: `package.module:object`, or installed.

An exception in custom code becomes a one-line error with the file and line.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...backends import libraries
from ...core import plugins
from ...core.errors import (
    TriglotError,
    UnknownOption,
    describe,
    kind_of,
    shown,
    unknown,
    user_error_context,
)
from ...core.records import Values

if TYPE_CHECKING:
    from ...core.environment import Environment
    from ...core.host_environment import AnyEnvironment
    from ...core.network import Network


def load(kind: str, text: str) -> Any:
    """Import `package.module:object`, or a name registered by an installed package.

    The current folder is searched too.

    Args:
      kind: the kind of component, e.g. `"algorithm"`.
      text: `package.module:object`, or a name.

    Raises:
      TriglotError: if the text has another form, the module or object does not exist, or importing
        it fails.
    """
    plugin = plugins.find(kind, text)
    if plugin is not None:
        return plugin.load()
    if not is_path(text):
        advise_file(kind, text)
        there = ", ".join(plugins.names(kind))
        raise TriglotError(
            f"{kind} {shown(text)} must have the form package.module:object, such as "
            "my_file:MyObject"
            + (f", or be a name of an installed package: {there}." if there else ".")
        )
    module_name, _, name = text.partition(":")
    if _is_pythons_own(module_name):
        raise TriglotError(
            f"{kind} {text!r}: {module_name} is a module of Python itself and has no {kind}."
        )
    search_here()
    from ...backends.keras.importing import KERAS_BACKEND  # imports JAX

    os.environ.setdefault(KERAS_BACKEND, "jax")  # the file may import Keras itself
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise TriglotError(f"{kind} {shown(text)}: {_why_not(module_name, error)}") from None
    with user_error_context(f"{kind} {text!r} failed when it was looked up"):
        if not hasattr(module, name):
            public = [name for name in vars(module) if not name.startswith("_")]
            raise unknown(f"name in {module_name}", name, public)
        return probed(getattr(module, name))


# The method that the classes of a kind have, by which a file is searched for them.
METHODS = {"algorithm": "update", "environment": "step"}


def advise_file(kind: str, text: str) -> None:
    """Refuse the name of a file in the current folder, and say how an object in it is named.

    The file is read, not imported.

    Args:
      kind: the kind of component, e.g. `"algorithm"`.
      text: what was given in place of `module:object`.

    Raises:
      TriglotError: if there is such a file.
    """
    module = text.removesuffix(".py").strip(":")
    path = Path(f"{module}.py")
    if not module.isidentifier() or not os.path.isfile(path):  # False of names too long for a file
        return
    try:
        nodes = ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError, OSError):
        nodes = []
    objects = [n for n in nodes if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.Assign)]
    classes = [n for n in objects if isinstance(n, ast.ClassDef) and _defines(n, kind)]
    names = [
        definition.name
        for definition in classes or objects
        if not isinstance(definition, ast.Assign)
    ]
    names = [name for name in names if not name.startswith("_")]
    ways = " or ".join(f"{module}:{name}" for name in names[:3]) or f"{module}:NAME"
    raise TriglotError(f"{kind} {shown(text)} is the file {path}: name the object in it, {ways}.")


def _defines(node: ast.ClassDef, kind: str) -> bool:
    """Return whether a class has the method that marks its kind."""
    methods = [method.name for method in node.body if isinstance(method, ast.FunctionDef)]
    return METHODS.get(kind, "__call__") in methods


def probed(loaded: Any) -> Any:
    """Return an object after looking up an attribute that it does not have.

    Protocols and optional members are looked up in many places, so a `__getattr__` that raises
    anything but AttributeError fails here instead, in the caller's `user_error_context`.
    """
    hasattr(loaded, "attribute_that_does_not_exist")
    return loaded


def env_of(source: Any, options: Values, text: str = "") -> "Environment":
    """Make an environment of an object: one of either kind, one of Gymnasium, or what makes one.

    Args:
      source: the environment, or a class or function, which is called with `options`.
      options: of the class or function.
      text: its name, for messages; without one, that of its class.

    Raises:
      TriglotError: if it is neither, is not hashable, or its specs are not triglot's.
    """
    from ...core.arguments import check_env

    registered = getattr(getattr(source, "spec", None), "id", None)  # of one of Gymnasium
    called = text or registered or getattr(source, "__name__", type(source).__name__)
    with user_error_context(f"environment {called!r} failed when it was inspected"):
        if isinstance(source, type) and _is_gymnasium(source):
            return _adapted(called, source, options)
        env = probed(call_env(called, source, options))
        if not _is_gymnasium(type(env)):
            check_env(env, f"environment {called!r}")
            return env
    if env is not source:
        env.close()
    from ...envs.gymnasium import Copies

    return _adapted(called, Copies(env) if env is source else source, options)


def _is_gymnasium(kind: type) -> bool:
    """Return whether a class is one of Gymnasium's environments."""
    gymnasium = sys.modules.get("gymnasium")  # without it, there is none
    return gymnasium is not None and issubclass(kind, gymnasium.Env)


def _adapted(called: str, factory: Any, options: Values) -> Any:
    from ...envs.gymnasium import adapt

    return adapt(called, factory, **options)


def call_env(text: str, loaded: object, options: Values) -> Any:
    """Call a function or class that makes an environment; return an environment unchanged.

    Raises:
      UnknownOption: if there are options, and no function to take them.
    """
    # An environment class also has these attributes.
    is_instance = (
        not isinstance(loaded, type) and hasattr(loaded, "reset") and hasattr(loaded, "step")
    )
    if isinstance(loaded, type) and not (hasattr(loaded, "reset") and hasattr(loaded, "step")):
        raise TriglotError(
            f"environment {text!r} is a class without reset and step: give an Environment, or a "
            "function that returns one."
        )
    if not is_instance and callable(loaded):
        return _call("environment", text, loaded, **options)
    for option in options:
        raise UnknownOption(f"environment {text!r}", option, ())
    return loaded


def load_networks(texts: Sequence[str], env: "AnyEnvironment") -> Any:
    """Load one network, or several as `NAME=package.module:object`.

    Each object is a `Network`, functions that `make_agent` wraps (`from_functions`), or a function
    of `env`'s obs_spec and action_spec that returns one of these.

    Returns:
      The argument `networks` of `make_agent`; None if `texts` is empty.

    Raises:
      TriglotError: if an object is not a network, or the forms are mixed.
    """
    if not texts:
        return None
    if len(texts) == 1 and "=" not in texts[0]:
        return _make(texts[0], load("network", texts[0]), env)
    pairs = [text.partition("=") for text in texts]
    if any(not equals for _, equals, _ in pairs):
        raise TriglotError(
            f"give several networks as NAME=package.module:object each, got {' '.join(texts)}."
        )
    return {name: _make(text, load("network", text), env) for name, _, text in pairs}


def load_networks_by_library(texts: Sequence[str], env: "AnyEnvironment") -> dict[str, Any]:
    """Load the custom networks of a comparison.

    Args:
      texts: one object, a dictionary from library to network or a function of `env`'s obs_spec and
        action_spec that returns one; or several objects as `LIBRARY=package.module:object`. A
        network may be a dictionary of networks by the names that the algorithm gives them.
      env: the environment.

    Returns:
      The argument `networks` of `make_agent`, by library.

    Raises:
      TriglotError: if an object is not such a dictionary or a network, or a name is no library.
    """
    from ...backends.jax.signatures import is_functions
    from ...core.network import Network

    if all("=" in text for text in texts):
        loaded: Any = {}
        for text in texts:
            library, _, path = text.partition("=")
            loaded[library] = _make(text, load("network", path), env)
    elif len(texts) == 1:
        loaded = load("network", texts[0])
        if callable(loaded) and not isinstance(loaded, Network):
            loaded = _call("network", texts[0], loaded, env.obs_spec, env.action_spec)
    else:
        raise TriglotError(
            "give one dictionary of networks, or several as LIBRARY=package.module:object each; "
            f"got {' '.join(texts)}."
        )
    if not isinstance(loaded, Mapping) or not loaded:
        raise TriglotError(
            f"network {texts[0]!r} must be a dictionary from library to network, or a function of "
            f"obs_spec and action_spec that returns one; got a {type(loaded).__name__}."
        )
    for library, networks in loaded.items():
        libraries.find(library)
        parts = networks.values() if isinstance(networks, Mapping) else [networks]
        for part in parts:
            if not isinstance(part, Network) and not is_functions(part):
                raise TriglotError(
                    f"network {texts[0]!r}: {library} must be a Network or a dictionary of them "
                    f"(see triglot.from_{library}); got a {type(part).__name__}."
                )
    return dict(loaded)


def make_network(text: str, loaded: Any, env: "AnyEnvironment") -> "Network":
    """Return the object loaded as `text` if it is a `Network`, call it to make one, or wrap it.

    Raises:
      TriglotError: if it is neither a network nor a function that returns one, or it fails.
    """
    from ...backends.jax.lifting import lift_if_functions

    return lift_if_functions(_make(text, loaded, env), env.obs_spec, text, tried=False)


def _make(text: str, loaded: Any, env: "AnyEnvironment") -> Any:
    """Return a `Network`, or functions that `from_functions` wraps."""
    from ...backends.calling import parameters
    from ...backends.jax.signatures import is_functions
    from ...core.network import Network

    if isinstance(loaded, Network):
        return loaded
    if adapter := adapter_of(loaded):
        raise TriglotError(
            f"network {text!r} is a raw {_library_title(loaded)} module: give a function of "
            f"obs_spec and action_spec that wraps it in {adapter}."
        )
    if callable(loaded) and (not is_functions(loaded) or "obs_spec" in parameters(loaded)):
        loaded = _call("network", text, loaded, env.obs_spec, env.action_spec)
    if not isinstance(loaded, Network) and not is_functions(loaded):
        raise TriglotError(
            f"network {text!r} must be a Network or a function of obs_spec and action_spec that "
            f"returns one (see triglot.from_haiku, for example); got a {type(loaded).__name__}."
        )
    return loaded


def require_liftable(what: str, loaded: object) -> None:
    """Refuse what is neither a `Network` nor functions (init, apply) that can be wrapped.

    Args:
      what: how messages call it.
      loaded: what was given.

    Raises:
      TriglotError: saying what was given and how a network is made of it.
    """
    from ...backends.jax.signatures import is_functions
    from ...core.network import Network

    if isinstance(loaded, Network):
        return
    if adapter := adapter_of(loaded):
        raise TriglotError(
            f"{what} must be a triglot Network, got {kind_of(loaded)}, a raw "
            f"{_library_title(loaded)} module: wrap it in {adapter}."
        )
    if not is_functions(loaded):
        raise TriglotError(
            f"{what} must be a Network, such as triglot.from_haiku returns, functions (init, "
            f"apply), or one of these by each name of the algorithm's; got {kind_of(loaded)}."
        )


def adapter_of(loaded: object) -> str | None:
    """Name the adapter for a module of a network library, or for its class."""
    library = _library_of(loaded)
    return library and library.lift_path


def _library_of(loaded: object) -> libraries.Library | None:
    return libraries.find_by_class(loaded if isinstance(loaded, type) else type(loaded))


def _library_title(loaded: object) -> str:
    library = _library_of(loaded)
    return library.title if library else type(loaded).__name__


def is_path(text: str) -> bool:
    """Whether a text has the form `package.module:object`."""
    module_name, _, name = text.partition(":")
    return all(part.isidentifier() for part in (*module_name.split("."), name))


def is_module(name: str) -> bool:
    """Whether a module exists; only its parent packages are imported."""
    search_here()
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
    except Exception:  # a parent package fails on import, which `load` reports
        return True


def _call(
    kind: str, text: str, function: Callable[..., Any], *args: object, **options: object
) -> Any:
    """Call a custom function after checking what it is and that it accepts the arguments."""
    called = function
    while isinstance(called, functools.partial):
        called = called.func
    module_name = getattr(called, "__module__", None)
    if isinstance(called, types.BuiltinFunctionType) or _is_pythons_own(module_name or ""):
        raise TriglotError(
            f"{kind} {text!r} is {function!r}, a function of Python itself: give the {kind}, or a "
            "function that returns one."
        )
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        arguments = ", ".join(["obs_spec", "action_spec"][: len(args)] + list(options)) or "nothing"
        raise TriglotError(f"{kind} {text!r} is called with {arguments}: {error}.") from None
    with user_error_context(f"{kind} {text!r} failed when it was called"):
        return function(*args, **options)


def _is_pythons_own(module_name: str) -> bool:
    return module_name.partition(".")[0] in sys.stdlib_module_names


def _why_not(module_name: str, error: BaseException) -> str:
    # Distinguish a missing module from an existing one whose own import fails.
    absent = error.name if isinstance(error, ModuleNotFoundError) else None
    if absent and f"{module_name}.".startswith(f"{absent}."):
        return (
            f"no module {shown(absent)} is installed or in {os.getcwd()}: start in the folder of "
            "its file, or install it."
        )
    from ...backends.keras.importing import KERAS_BACKEND, wrong_backend  # imports JAX

    if absent and absent == os.environ.get(KERAS_BACKEND):
        return f"importing {module_name} failed: {wrong_backend(f'{KERAS_BACKEND} is', absent)}"
    return f"importing {module_name} failed: {describe(error)}"


def search_here() -> None:
    """Add the current folder to the module search path."""
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.append(os.getcwd())
