"""Refuse options that cannot have an effect in the training that they are given for.

A field says by `core.hyper.only_for` where it acts. Nothing is refused unless it is certain.
"""

from collections.abc import Iterator, Mapping
from dataclasses import Field, fields, is_dataclass, replace
from typing import Any

from ..core.errors import TriglotError
from ..core.network import Network
from ..core.rl.optimizers import OPTIMIZERS, OptimizerFn
from ..core.specs import Box, Spec
from ..registry.arg import flag
from ..registry.options import SharedOptions
from .options import TrainOptions


def check_effects(options: SharedOptions, algorithm: Any, env: Any, config: Any) -> None:
    """Refuse fields of `Config` and `Hyperparams` that were chosen and cannot have an effect.

    Args:
      options: what was chosen.
      algorithm: the algorithm's class.
      env: the environment.
      config: the complete `Config`.

    Raises:
      TriglotError: naming the option and where it would act.
    """
    custom = _custom(options)
    if isinstance(options, TrainOptions) and custom and options.backend != TrainOptions.backend:
        raise TriglotError(
            f"--backend {options.backend} has no effect: {_source(custom)}; leave it out."
        )
    for one, value in (
        *_chosen(algorithm.Config, options.config),
        *_chosen(algorithm.Hyperparams, options.hyper),
    ):
        why = _why_not(one, options, algorithm, env, config)
        if why is not None:
            raise TriglotError(
                f"{flag(one.name)} {_words(value)} has no effect: {why}; leave it out."
            )


def with_effect(options: SharedOptions, algorithm: Any, env: Any, config: Any) -> set[str]:
    """Name the fields of `Config` and `Hyperparams` that can have an effect.

    Args:
      options, algorithm, env, config: as in `check_effects`.
    """
    owners = (algorithm.Config, algorithm.Hyperparams)
    return {
        one.name
        for owner in owners
        for one in fields(owner)
        if _why_not(one, options, algorithm, env, config) is None
    }


def _why_not(
    one: "Field[Any]", options: SharedOptions, algorithm: Any, env: Any, config: Any
) -> str | None:
    """Say why a field cannot have an effect; None if it can."""
    reader, custom = one.metadata.get("only_for"), _custom(options)
    if reader == "networks":
        specs = algorithm.networks(env.obs_spec, env.action_spec, config)
        if custom and not any(isinstance(spec, Network) for spec in specs.values()):
            return _source(custom)  # they replace all that the algorithm describes
        if not _is_read_by_networks(algorithm, env, config, one.name, specs):
            return (
                f"the networks that {options.algorithm} has by default for {env.name}, with "
                f"{_kind(env.obs_spec)} observations and {_kind(env.action_spec)} actions, do not "
                "use it"
            )
    if reader == "optimizer":
        optimizer = _optimizer(options, algorithm)
        name = getattr(optimizer, "__name__", "")
        known = optimizer in OPTIMIZERS.values()
        if known and not _is_read_by_optimizer(optimizer, algorithm.Hyperparams(), one.name):
            return f"the optimizer {name} does not use it"
    if reader not in (None, "networks", "optimizer") and not getattr(config, reader):
        return f"it needs {flag(reader)}"
    return None


def _optimizer(options: SharedOptions, algorithm: Any) -> Any:
    """Return the optimizer that was chosen, or the algorithm's own; None if it is unknown here."""
    if options.optimizer is not None:
        return OPTIMIZERS.get(options.optimizer)
    own = fields(algorithm) if is_dataclass(algorithm) else ()
    return next((one.default for one in own if one.name == "optimizer"), None)


def _custom(options: SharedOptions) -> tuple[str, ...]:
    return getattr(options, "network", ())


def _source(custom: tuple[str, ...]) -> str:
    return f"the networks come from --network {' '.join(custom)}"


def _chosen(owner: type, given: Any) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield the fields that differ from their defaults, with their values."""
    for one in fields(owner):
        values = given if isinstance(given, Mapping) else vars(given)
        value = values.get(one.name, one.default)
        value = tuple(value) if isinstance(value, list) else value
        if value != one.default:
            yield one, value


def _is_read_by_networks(algorithm: Any, env: Any, config: Any, name: str, specs: Any) -> bool:
    """Return whether another value of a field changes the description of the default networks."""
    try:
        changed = replace(config, **{name: _another(config, name)})
        return specs != algorithm.networks(env.obs_spec, env.action_spec, changed)
    except Exception:  # the other value is refused, so something reads it
        return True


def _another(config: Any, name: str) -> Any:
    """Choose a value that differs from the field's."""
    value = getattr(config, name)
    allowed = next(one for one in fields(config) if one.name == name).metadata.get("allowed")
    if isinstance(allowed, tuple):
        return next(other for other in allowed if other != value)
    if isinstance(value, bool):
        return not value
    return (*value, 2) if isinstance(value, tuple) else value + 1


def _is_read_by_optimizer(optimizer: OptimizerFn, hyper: Any, name: str) -> bool:
    """Return whether a built-in optimizer reads a hyperparameter."""
    read = set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(hyper, name)

    optimizer(Recorder())
    return name in read


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kind(spec: Spec) -> str:
    shape = f" {list(spec.shape)}" if isinstance(spec, Box) else ""
    return f"{type(spec).__name__}{shape}"
