"""Refuse options that cannot have an effect in the training that they are given for.

`registry.effects` finds them; nothing is refused unless it is certain.
"""

from ..core.agent import Agent, Algorithm
from ..core.errors import TriglotError
from ..core.host_environment import AnyEnvironment
from ..core.options import option_fields
from ..core.types import AnyConfig
from .options import TrainOptions
from .registry.arg import flag
from .registry.effects import Effects, chosen
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
    effects = _effects(options, algorithm, env, config)
    backend = options.backend if isinstance(options, TrainOptions) else TrainOptions.backend
    if effects.custom and backend != TrainOptions.backend:
        raise TriglotError(f"--backend {backend} has no effect: {effects.custom}; leave it out.")
    for field, value in (
        *chosen(algorithm.Config, options.config),
        *chosen(algorithm.Hyperparams, options.hyper),
    ):
        why = effects.why_not(field)
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
    effects = _effects(options, algorithm, env, config)
    declared = (*option_fields(algorithm.Config), *option_fields(algorithm.Hyperparams))
    return {field.name for field in declared if effects.why_not(field) is None}


def _effects(
    options: SharedOptions, algorithm: Algorithm | Agent, env: AnyEnvironment, config: AnyConfig
) -> Effects:
    custom = getattr(options, "network", ())
    return Effects(
        algorithm=algorithm,
        called=options.algorithm,
        env=env,
        config=config,
        optimizer=options.optimizer,
        custom=f"the networks come from --network {' '.join(custom)}" if custom else None,
        named=flag,
    )


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
