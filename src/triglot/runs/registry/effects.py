"""Find values of `Config` and `Hyperparams` that cannot have an effect where they are given.

A field says by `core.hyper.only_for` where it acts. Nothing is found unless it is certain.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field
from typing import Any

from ...core.agent import Agent, Algorithm
from ...core.errors import TriglotError
from ...core.host_environment import AnyEnvironment
from ...core.hyper import first_numbers, for_environment
from ...core.loop.state import reads_learning_rate
from ...core.network import Network
from ...core.networks.architecture import NetworkSpec
from ...core.options import OptionTable, option_fields, option_values, replace_options
from ...core.records import AnyOptions, Values
from ...core.rl.optimizers import OPTIMIZERS, OptimizerFn, is_read
from ...core.specs import Box, Spec
from ...core.types import AnyConfig, AnyHyperparams

# One configuration often serves several environments and networks, of which some have these layers.
SHARED = ("hidden_sizes", "cell_size")


def check_values(
    algorithm: Agent,
    called: str,
    env: AnyEnvironment,
    config: AnyConfig,
    config_values: AnyConfig | Values | None,
    hyper: AnyHyperparams | Values | None,
    *,
    optimizer: str | OptimizerFn | None,
    custom: str | None,
) -> None:
    """Refuse values that were given by name in Python and cannot have an effect.

    Those in `SHARED` are not checked, as they are on the command line.

    Args:
      algorithm, called, env, config: as in `why_not`.
      config_values: the argument `config` of `make_agent`; only a mapping is checked.
      hyper: the argument `hyper`, likewise.
      optimizer, custom: as in `why_not`.

    Raises:
      TriglotError: naming the field and where it would act.
    """
    pairs = (algorithm.Config, config_values), (algorithm.Hyperparams, hyper)
    for owner, values in pairs:
        for field, value in chosen(owner, values) if isinstance(values, Mapping) else ():
            if field.name in SHARED:
                continue
            why = why_not(field, algorithm, called, env, config, optimizer=optimizer, custom=custom)
            if why is None and field.name == "learning_rate" and not reads_learning_rate(algorithm):
                why = "the optimizer does not read it"
            if why is not None:
                raise TriglotError(
                    f"{called}'s {field.name}={value!r} has no effect: {why}; leave it out."
                )


def why_not(
    field: "Field[Any]",
    algorithm: Algorithm | Agent,
    called: str,
    env: AnyEnvironment,
    config: AnyConfig,
    *,
    optimizer: str | OptimizerFn | None = None,
    custom: str | None = None,
    named: Callable[[str], str] = str,
) -> str | None:
    """Say why a field cannot have an effect; None if it can.

    Args:
      field: a field of the algorithm's `Config` or `Hyperparams`.
      algorithm: the algorithm's class, or an agent.
      called: how messages call it.
      env: the environment.
      config: the complete `Config`.
      optimizer: as it was chosen, a name or a function; None for the algorithm's own.
      custom: where the networks come from, if not from the algorithm's description.
      named: how messages call another field.
    """
    reader = field.metadata.get("only_for")
    if reader == "networks":
        specs = algorithm.networks(env.obs_spec, env.action_spec, config)
        if custom and not any(isinstance(spec, Network) for spec in specs.values()):
            return custom  # they replace all that the algorithm describes
        if not _is_read_by_networks(algorithm, env, config, field.name, specs):
            return (
                f"the networks that {called} has by default for {env.name}, with "
                f"{_kind(env.obs_spec)} observations and {_kind(env.action_spec)} actions, do not "
                "use it"
            )
    if reader == "optimizer":
        function = _optimizer(optimizer, algorithm)
        name = next((name for name, known in OPTIMIZERS.items() if known is function), None)
        hyper = first_numbers(for_environment(algorithm.Hyperparams(), ()))  # which has all numbers
        if name is not None and not is_read(OPTIMIZERS[name], hyper, field.name):
            return f"the optimizer {name} does not use it"
    if reader == "continuous" and not isinstance(env.action_spec, Box):
        return f"the actions of {env.name} are not a Box of floats"
    if reader not in (None, "networks", "optimizer", "continuous") and not getattr(config, reader):
        return f"it needs {named(reader)}"
    return None


def _optimizer(
    optimizer: str | OptimizerFn | None, algorithm: Algorithm | Agent
) -> OptimizerFn | None:
    """Return the optimizer that was chosen, or the algorithm's own; None if it is unknown here."""
    if optimizer is not None:
        return OPTIMIZERS.get(optimizer) if isinstance(optimizer, str) else optimizer
    return getattr(algorithm, "optimizer", None)  # a class may leave it to whoever builds agents


def chosen(
    owner: type | OptionTable, options: AnyOptions | Values
) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield the fields that differ from their defaults, with their values."""
    values = options if isinstance(options, Mapping) else option_values(options)
    for field in option_fields(owner):
        value = values.get(field.name, field.default)
        value = tuple(value) if isinstance(value, list) else value
        if value != field.default:
            yield field, value


def _is_read_by_networks(
    algorithm: Algorithm | Agent,
    env: AnyEnvironment,
    config: AnyConfig,
    name: str,
    specs: Mapping[str, NetworkSpec | Network],
) -> bool:
    """Return whether another value of a field changes the description of the default networks."""
    try:
        changed = replace_options(config, {name: _another(config, name)})
        return specs != algorithm.networks(env.obs_spec, env.action_spec, changed)
    except Exception:  # the other value is refused, so something reads it
        return True


def _another(config: AnyConfig, name: str) -> Any:
    """Choose a value that differs from the field's."""
    value = getattr(config, name)
    field = next(candidate for candidate in option_fields(config) if candidate.name == name)
    allowed = field.metadata.get("allowed")
    if isinstance(allowed, tuple):
        return next(other for other in allowed if other != value)
    if isinstance(value, bool):
        return not value
    if value is None:  # a size for each layer, or one for all
        return (2,)
    return (*value, 2) if isinstance(value, tuple) else value + 1


def _kind(spec: Spec) -> str:
    shape = f" {list(spec.shape)}" if isinstance(spec, Box) else ""
    return f"{type(spec).__name__}{shape}"
