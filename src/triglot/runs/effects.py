"""Refuse options that cannot have an effect in the training that they are given for.

`registry.effects` finds them; nothing is refused unless it is certain.
"""

from dataclasses import Field
from typing import Any

from ..core.agent import Agent, Algorithm
from ..core.errors import TriglotError
from ..core.host_environment import AnyEnvironment
from ..core.options import option_fields
from ..core.types import AnyConfig
from .options import TrainOptions
from .registry.arg import flag
from .registry.effects import chosen, why_not
from .registry.options import SharedOptions


def check_effects(
    options: SharedOptions, algorithm: Algorithm | Agent, env: AnyEnvironment, config: AnyConfig
) -> None:
    """Refuse fields of `Config` and `Hyperparams` that were chosen and cannot have an effect.

    Args:
      options: what was chosen.
      algorithm: the algorithm's class, or an agent.
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
    for field, value in (
        *chosen(algorithm.Config, options.config),
        *chosen(algorithm.Hyperparams, options.hyper),
    ):
        why = _why_not(field, options, algorithm, env, config)
        if why is not None:
            raise TriglotError(
                f"{flag(field.name)} {_words(value)} has no effect: {why}; leave it out."
            )


def with_effect(
    options: SharedOptions, algorithm: Algorithm | Agent, env: AnyEnvironment, config: AnyConfig
) -> set[str]:
    """Name the fields of `Config` and `Hyperparams` that can have an effect.

    Args:
      options, algorithm, env, config: as in `check_effects`.
    """
    owners = (algorithm.Config, algorithm.Hyperparams)
    return {
        field.name
        for owner in owners
        for field in option_fields(owner)
        if _why_not(field, options, algorithm, env, config) is None
    }


def _why_not(
    field: "Field[Any]",
    options: SharedOptions,
    algorithm: Algorithm | Agent,
    env: AnyEnvironment,
    config: AnyConfig,
) -> str | None:
    custom = _custom(options)
    return why_not(
        field,
        algorithm,
        options.algorithm,
        env,
        config,
        optimizer=options.optimizer,
        custom=_source(custom) if custom else None,
        named=flag,
    )


def _custom(options: SharedOptions) -> tuple[str, ...]:
    return getattr(options, "network", ())


def _source(custom: tuple[str, ...]) -> str:
    return f"the networks come from --network {' '.join(custom)}"


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
