"""Wrap a user's model, such as a class or an untransformed function, as a `Network`."""

import functools
import inspect
from collections.abc import Callable, Mapping

import jax

from ..backends import libraries
from ..backends.calling import Inputs, parameters
from ..backends.jax.lifting import from_functions
from ..backends.jax.signatures import is_functions
from ..core.errors import TriglotError, user_error_context
from ..core.network import Network
from ..core.specs import Spec

KEYS = ("key", "rng", "rng_key", "prng_key")  # names of the argument of a function of a key


def load_network(
    model: object, inputs: Inputs, *, name: str | None = None, action_spec: Spec | None = None
) -> Network:
    """Wrap a network in any of the forms in which libraries give it.

    Args:
      model: a `Network`; an untransformed Haiku function, a `hk.Module` class or the result of
        `hk.transform`; a Linen module, or its class if all fields have defaults; an NNX or Equinox
        module (an Equinox one may be a pair with its `eqx.nn.State`), its class, or a function of
        `rngs` or of a key; a Keras model, or its class; a PyTorch module, or its class if it takes
        no arguments; functions `(init, apply)` of plain JAX; a function of `obs_spec` and
        `action_spec`, or without arguments, that returns one of these.
      inputs: the spec of one input; a tuple of specs for several.
      name: the network's name in errors and reports.
      action_spec: the spec of the actions, for a function that takes it.

    Returns:
      The network, in native arithmetic.

    Raises:
      TriglotError: if it is none of these, its library is not installed, or it fails on such
        inputs.
    """
    if isinstance(model, Network):
        if model.arithmetic != "native":
            raise TriglotError(
                f"the network {name or model.name!r} has arithmetic {model.arithmetic!r}; give the "
                "native one, since both arithmetics are compared."
            )
        return model
    library = _library_of(model)
    if library is not None:
        return _lift(library, model, inputs, name)
    if is_functions(model) and not (callable(model) and "obs_spec" in parameters(model)):
        return from_functions(model, obs_spec=inputs, name=name)
    if not callable(model):
        raise TriglotError(
            f"{name or 'the network'} is a {type(model).__name__}; expected a module of Haiku, "
            "Linen, NNX, Equinox, Keras or PyTorch, functions (init, apply), a function that makes "
            "one of these, or a triglot Network."
        )
    return _from_function(model, inputs, name, action_spec)


def _library_of(model: object) -> libraries.Library | None:
    """Find the library of a module, of its class, or of a pair of a module and its state."""
    first = model[0] if type(model) is tuple and model else model
    kind = first if isinstance(first, type) else type(first)
    return libraries.find_by_class(kind)


def _lift(library: libraries.Library, model: object, inputs: Inputs, name: str | None) -> Network:
    lift = library.load_lift()
    if library.name == "linen" and isinstance(model, type):
        with user_error_context(
            f"the Linen class {model.__name__} has no default for some field: give an instance"
        ):
            model = model()
    arguments = (model, inputs) if "obs_spec" in parameters(lift) else (model,)
    return lift(*arguments, name=name)


def _from_function(
    function: Callable[..., object], inputs: Inputs, name: str | None, action_spec: Spec | None
) -> Network:
    names = parameters(function)
    label = name or getattr(function, "__name__", repr(function))
    if spec_names := [each for each in ("obs_spec", "action_spec") if each in names]:
        if action_spec is None and "action_spec" in spec_names:
            raise TriglotError(
                f"{label} takes action_spec: name the environment (--env gymnax:CartPole-v1)."
            )
        spec_values = {"obs_spec": inputs, "action_spec": action_spec}
        return _from_call(function, {each: spec_values[each] for each in spec_names}, inputs, label)
    required = required_names(names)
    if "rngs" in names:
        return _lift(libraries.find("nnx"), function, inputs, name)
    if names and not required - set(KEYS) and not names.keys().isdisjoint(KEYS):
        return _from_key(function, inputs, label)
    if not required:
        return _from_call(function, {}, inputs, label)
    return _from_inputs_or_key(function, inputs, label)


def required_names(signature: Mapping[str, inspect.Parameter]) -> set[str]:
    """Return the names of the parameters that a call must give."""
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name
        for name, parameter in signature.items()
        if parameter.default is parameter.empty and parameter.kind not in kinds
    }


def _from_call(
    function: Callable[..., object], arguments: Mapping[str, object], inputs: Inputs, label: str
) -> Network:
    with user_error_context(
        f"{label} failed when it was called with {list(arguments) or 'nothing'}"
    ):
        model = function(**arguments)
    library = _library_of(model)
    if library is not None and library.name == "keras":  # a function that makes it has more to say
        return _lift(library, functools.partial(function, **arguments), inputs, label)
    if not isinstance(model, Network) and library is None and not is_functions(model):
        raise TriglotError(
            f"{label} returned a {type(model).__name__}; expected a module or a triglot Network."
        )
    return load_network(model, inputs, name=None if isinstance(model, Network) else label)


def _from_key(function: Callable[..., object], inputs: Inputs, label: str) -> Network:
    with user_error_context(f"{label} failed when it was called with a key"):
        model = _call_with_key(function, jax.random.key(0))
    library = _library_of(model)
    if library is not None and library.name == "equinox":
        return _lift(library, function, inputs, label)
    if library is not None and library.name == "nnx":
        return _lift(library, lambda rngs: function(rngs.params()), inputs, label)
    return load_network(model, inputs, name=label)


def _call_with_key(function: Callable[..., object], key: jax.Array) -> object:
    """Call a function of a key without computing arrays, if it can be traced."""
    models = []

    def call(key: jax.Array) -> None:
        first = next(iter(parameters(function).values()))
        models.append(function(key=key) if first.kind == first.KEYWORD_ONLY else function(key))

    try:
        jax.eval_shape(call, key)
    except jax.errors.JAXTypeError:  # such as a constructor that computes float(jnp.sqrt(d))
        call(key)
    return models[-1]


def _from_inputs_or_key(function: Callable[..., object], inputs: Inputs, label: str) -> Network:
    """Wrap a function whose argument may be the observations or a key: try Haiku first."""
    haiku = libraries.find("haiku")
    problem = "Haiku is not installed"
    if haiku.installed:
        try:
            return _lift(haiku, function, inputs, label)
        except TriglotError as error:
            problem = str(error)
    if len(required_names(parameters(function))) == 1:
        try:
            return _from_key(function, inputs, label)
        except TriglotError:
            pass
    raise TriglotError(
        f"{label} is neither a function of the inputs nor of a key ({problem.rstrip('.')})."
    )
