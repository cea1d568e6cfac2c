"""Refuse options that cannot have an effect in the training that they are given for.

A field says by `core.hyper.only_for` where it acts. Nothing is refused unless it is certain.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, fields, replace
from typing import Any

from ...core.errors import TriglotError
from ...core.network import Network
from ...core.rl.optimizers import OPTIMIZERS
from ...core.specs import Box, Spec
from ..options import SharedOptions


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
    networks = getattr(options, "network", ())
    if networks and getattr(options, "backend", "linen") != "linen":
        raise TriglotError(
            f"--backend {options.backend} has no effect: the networks come from --network "  # pyright: ignore[reportAttributeAccessIssue]
            f"{' '.join(networks)}, so leave it out."
        )
    chosen = [*_chosen(algorithm.Config, options.config)]
    chosen += _chosen(algorithm.Hyperparams, options.hyper)
    for one, value in chosen:
        reader = one.metadata.get("only_for")
        if reader == "networks":
            if networks and _replaced(algorithm, env, config):
                why = f"the networks come from --network {' '.join(networks)}"
            elif _read_by_networks(algorithm, env, config, one.name):
                continue
            else:
                why = (
                    f"the networks that {options.algorithm} has by default for {env.name}, with "
                    f"{_kind(env.obs_spec)} observations and {_kind(env.action_spec)} actions, do "
                    "not use it"
                )
        elif reader == "optimizer":
            if options.optimizer not in OPTIMIZERS or _read(
                OPTIMIZERS[options.optimizer], algorithm.Hyperparams, one.name
            ):
                continue
            why = f"the optimizer {options.optimizer} does not use it"
        elif reader is None or getattr(config, reader):
            continue
        else:
            why = f"it needs --{_option(reader)}"
        raise TriglotError(
            f"--{_option(one.name)} {_words(value)} has no effect: {why}; leave it out."
        )


def _chosen(owner: type, given: Any) -> Iterator[tuple["Field[Any]", Any]]:
    """Yield the fields that differ from their defaults, with their values."""
    for one in fields(owner):
        values = given if isinstance(given, Mapping) else vars(given)
        value = values.get(one.name, one.default)
        value = tuple(value) if isinstance(value, list) else value
        if value != one.default:
            yield one, value


def _replaced(algorithm: Any, env: Any, config: Any) -> bool:
    """Return whether custom networks replace all that the algorithm describes."""
    specs = algorithm.networks(env.obs_spec, env.action_spec, config)
    return not any(isinstance(spec, Network) for spec in specs.values())


def _read_by_networks(algorithm: Any, env: Any, config: Any, name: str) -> bool:
    """Return whether another value of a field changes the description of the default networks."""
    specs = algorithm.networks(env.obs_spec, env.action_spec, config)
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


def _read(optimizer: Callable[[Any], Any], hyperparams: type, name: str) -> bool:
    """Return whether a built-in optimizer reads a hyperparameter."""
    read = set()

    class Recorder:
        def __getattr__(self, name: str) -> Any:
            read.add(name)
            return getattr(defaults, name)

    defaults = hyperparams()
    optimizer(Recorder())
    return name in read


def _option(name: str) -> str:
    return name.replace("_", "-")


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _kind(spec: Spec) -> str:
    shape = f" {list(spec.shape)}" if isinstance(spec, Box) else ""
    return f"{type(spec).__name__}{shape}"
