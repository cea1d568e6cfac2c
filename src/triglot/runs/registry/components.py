"""Find a component by name or path, and infer its kind."""

import inspect
from dataclasses import dataclass, replace
from typing import Any

from ...core import plugins
from ...core.errors import TriglotError, check_known, unknown, user_error_context
from .algorithms import ALGORITHMS, find_algorithm
from .environments import SUITES, suites
from .loading import adapter_of, advise_file, is_path, load

KINDS = ("algorithm", "environment", "network")


@dataclass(frozen=True)
class Component:
    """A component to check.

    Attributes:
      kind: one of `KINDS`.
      text: its name or path, as given.
      loaded: the imported object, or None for a registered name.
      role: the name that the algorithm `target` gives to a network, as in `actor=my_file:net`.
      target: the algorithm for which a network is checked.
    """

    kind: str
    text: str
    loaded: Any = None
    role: str | None = None
    target: str | None = None

    @property
    def algorithm(self) -> Any:
        """The class of the algorithm, which adds options; None without one."""
        if self.target is not None:
            return find_algorithm(self.target)
        if self.kind != "algorithm" or not isinstance(self.loaded, type | None):
            return None
        return find_algorithm(self.text)


def find_component(text: str, kind: str | None = None, target: str | None = None) -> Component:
    """Find a component: a registered name, a suite of environments, or `package.module:object`.

    Args:
      text: its name or path; with `target` also `NAME=` and the path.
      kind: one of `KINDS`; None to infer it.
      target: the algorithm for which a network is checked.

    Raises:
      TriglotError: if it does not exist, or its kind cannot be inferred.
    """
    if target is not None:
        return _find_network(text, kind, target)
    if kind is not None:
        check_known("component kind", kind, KINDS)
    wanted = KINDS if kind is None else (kind,)
    named = [component for component in wanted if _is_name(component, text)]
    if len(named) > 1:
        raise TriglotError(f"{text!r} is an {' and a '.join(named)}: choose one with --kind.")
    if named:
        return Component(named[0], text, load("network", text) if named == ["network"] else None)
    if ":" not in text:
        advise_file("component" if kind is None else kind, text)
        there = [name for component in wanted for name in names(component)]
        raise TriglotError(
            f"{unknown('component', text, there)} Give a custom one as package.module:object."
        )
    path, comma, _ = text.partition(",")
    if comma and is_path(path):  # only names of environments have options
        return Component("environment", text)
    if not is_path(text):
        raise unknown("environment suite", text.partition(":")[0], suites())
    loaded = load(kind or "component", text)
    with user_error_context(f"{text!r} failed when it was inspected"):
        return Component(kind or _kind_of(text, loaded), text, loaded)


def _find_network(text: str, kind: str | None, target: str) -> Component:
    role, equals, path = text.partition("=")
    component = find_component(path if equals else text, kind)
    if component.kind != "network":
        raise TriglotError(
            f"--algorithm is an option for networks; {text!r} is an {component.kind}."
        )
    return replace(component, role=role if equals else None, target=target)


def names(kind: str) -> list[str]:
    """List the names of one kind of component, built-in ones first; for environments, of suites.

    Args:
      kind: `algorithm`, `environment` or `network`.
    """
    built_in = {"algorithm": ALGORITHMS, "environment": SUITES}.get(kind, {})
    return [*built_in, *(name for name in plugins.names(kind) if name not in built_in)]


def _is_name(kind: str, text: str) -> bool:
    suite, _, rest = text.partition(":")
    in_suite = kind == "environment" and bool(rest) and suite in suites()
    extended = kind == "algorithm" and text.partition("+")[0] in names(kind)
    return in_suite or extended or text in names(kind)


def _kind_of(text: str, loaded: Any) -> str:
    from ...backends.jax.signatures import is_functions
    from ...core.network import Network

    def has(*names: str) -> bool:
        return all(hasattr(loaded, name) for name in names)

    if isinstance(loaded, Network) or adapter_of(loaded):
        return "network"
    if has("act", "update") or has("Config", "Hyperparams", "networks"):
        return "algorithm"
    if has("reset", "step"):
        return "environment"
    try:
        takes = inspect.signature(loaded).parameters if callable(loaded) else ()
    except (TypeError, ValueError):
        takes = ()
    if {"obs_spec", "action_spec"} <= set(takes) or is_functions(loaded):
        return "network"
    if isinstance(loaded, type) or callable(loaded):
        loaded = getattr(loaded, "__name__", loaded)
    raise TriglotError(
        f"cannot infer the kind of {text!r}, {loaded!r}: an algorithm has Config, Hyperparams and "
        "networks, an environment has reset and step, a network is a function of obs_spec and "
        "action_spec, or functions (init, apply). Give --kind "
        f"{', '.join(KINDS[:-1])} or {KINDS[-1]}."
    )
