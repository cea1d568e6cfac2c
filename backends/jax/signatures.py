"""The arguments of plain functions `init` and `apply`, found by the names of their parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Protocol, TypeAlias

from ...core.errors import TriglotError
from ...core.types import PyTree
from ..calling import EVALUATING, TRAINING, parameters

PARAMS = ("params", "parameters", "weights", "theta", "variables")
STATE = ("state", "net_state", "model_state")
KEYS = ("key", "rng", "rng_key", "prng_key", "rngs")
SHAPES = ("input_shape", "obs_shape", "in_shape", "shape")
INPUTS, SHAPE, KEY = "inputs", "input_shape", "key"

_ROLES = {
    **dict.fromkeys(PARAMS, "params"),
    **dict.fromkeys(STATE, "state"),
    **dict.fromkeys(KEYS, KEY),
    **dict.fromkeys(TRAINING, "train"),
    **dict.fromkeys(EVALUATING, "evaluate"),
}
_OF_INIT = {**_ROLES, **dict.fromkeys(SHAPES, SHAPE)}
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


class HasFunctions(Protocol):
    """An object with the two functions of a network."""

    @property
    def init(self) -> Callable[..., PyTree]: ...

    @property
    def apply(self) -> Callable[..., PyTree]: ...


Functions: TypeAlias = HasFunctions | tuple[Callable[..., PyTree], Callable[..., PyTree]]


def is_functions(functions: object) -> bool:
    """Check whether an object is a pair `(init, apply)`, or has these two methods."""
    if type(functions) is tuple:
        return len(functions) == 2 and all(map(callable, functions))
    return callable(getattr(functions, "init", None)) and callable(
        getattr(functions, "apply", None)
    )


@dataclass(frozen=True)
class Signature:
    """What each parameter of a function means.

    Attributes:
      function: is called.
      shown: the function, for messages.
      roles: `params`, `state`, `key`, `input_shape`, `train`, `evaluate` or `inputs` by parameter,
        in order.
      names: the parameters.
    """

    function: Callable[..., PyTree]
    shown: str
    roles: Mapping[str, str]
    names: Mapping[str, Parameter]

    @classmethod
    def of(cls, function: Any, shown: str, *, first: str, expected: str) -> "Signature":
        """Read a function's signature.

        Args:
          function: of the user.
          shown: the function, for messages.
          first: the role of the first parameter, if its name has no other.
          expected: the forms that are understood, for the message.

        Raises:
          TriglotError: if no parameter has the role `first`.
        """
        known = _OF_INIT if first == KEY else _ROLES
        names = parameters(function) if callable(function) else {}
        roles = {name: known.get(name, INPUTS) for name in names if not _is_keywords(names[name])}
        if first not in roles.values() and roles:
            name = next(iter(roles))
            if roles[name] == INPUTS and names[name].kind in _POSITIONAL:
                roles[name] = first
        if first not in roles.values():
            description = (
                f"takes ({', '.join(names)})" if callable(function) else "is not a function"
            )
            raise TriglotError(
                f"{shown} {description}; expected {expected}: use these names, in any order."
            )
        return cls(function, shown, roles, names)

    def takes(self, role: str) -> bool:
        """Check whether a parameter has a role."""
        return role in self.roles.values()

    @property
    def requires_inputs(self) -> bool:
        """Whether a parameter without a default is an input, or all further ones are."""
        return any(
            role == INPUTS and self.names[name].default is Parameter.empty
            for name, role in self.roles.items()
        )

    @property
    def requires_observations(self) -> bool:
        """Whether it requires inputs or their shape."""
        return self.requires_inputs or self.takes(SHAPE)

    def call(self, inputs: tuple[PyTree, ...], known: Mapping[str, PyTree]) -> PyTree:
        """Call the function.

        Args:
          inputs: in order.
          known: the arguments by role; a key of None is left out where the parameter has a default.

        Raises:
          TriglotError: if it requires more inputs.
        """
        rest, by_position, positional, named = list(inputs), True, [], {}
        for name, role in self.roles.items():
            parameter = self.names[name]
            if parameter.kind == parameter.VAR_POSITIONAL:
                positional, rest = positional + rest, []
                continue
            is_given = bool(rest) if role == INPUTS else role in known
            if role == KEY and known.get(KEY) is None and parameter.default is not parameter.empty:
                is_given = False
            if not is_given:
                if parameter.default is parameter.empty:
                    raise self._missing(name, len(inputs))
                by_position = False
                continue
            value = rest.pop(0) if role == INPUTS else known[role]
            if by_position and parameter.kind in _POSITIONAL:
                positional.append(value)
            else:
                named[name] = value
        if rest:
            raise TriglotError(
                f"{self.shown} takes {len(inputs) - len(rest)} inputs and was given {len(inputs)}: "
                "add a parameter for each."
            )
        # stax's functions take their key among `**kwargs`.
        has_kwargs = any(map(_is_keywords, self.names.values()))
        if has_kwargs and not self.takes(KEY) and known.get(KEY) is not None:
            named["rng"] = known[KEY]
        return self.function(*positional, **named)

    def _missing(self, name: str, num_inputs: int) -> TriglotError:
        wanted = [parameter for parameter, role in self.roles.items() if role == INPUTS]
        if name not in wanted:
            return TriglotError(
                f"{self.shown} requires `{name}`, which is unknown here: give it a default."
            )
        return TriglotError(
            f"{self.shown} requires {len(wanted)} inputs ({', '.join(wanted)}) and was given "
            f"{num_inputs}. If the network is recurrent, pass initial_carry=FUNCTION, where "
            "FUNCTION(num_envs) returns the carry at an episode's start; give any other parameter "
            "a default, or one of the names that triglot knows (params, state, key, train)."
        )


def _is_keywords(parameter: Parameter) -> bool:
    return parameter.kind == parameter.VAR_KEYWORD
