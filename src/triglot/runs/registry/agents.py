"""Build agents from an algorithm, an environment, networks and an optimizer."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ...core.arguments import check_env
from ...core.errors import (
    MissingExtra,
    TriglotError,
    check_known,
    check_text,
    shown,
    user_error_context,
)
from ...core.options import OptionTable, are_options_of, option_fields, option_values
from ...core.rl.planning import model_in, plannable, takes_turns
from .algorithms import check_algorithm, find_algorithm
from .effects import Effects, check_values
from .loading import load, load_networks, require_liftable
from .origins import remember_agent
from .overrides import from_overrides

if TYPE_CHECKING:
    from ...backends.jax.signatures import Functions
    from ...core.agent import Agent, Algorithm
    from ...core.host_environment import AnyEnvironment
    from ...core.network import Network
    from ...core.networks.architecture import NetworkSpec
    from ...core.records import Values
    from ...core.rl.optimizers import OptimizerFn
    from ...core.types import AnyConfig, AnyHyperparams


def make_agent(
    algorithm: str | type,
    env: "AnyEnvironment",
    *,
    backend: str = "linen",
    arithmetic: str | None = None,
    config: "AnyConfig | Values | None" = None,
    hyper: "AnyHyperparams | Values | None" = None,
    networks: "str | Network | Functions | Mapping[str, str | Network | Functions] | None" = None,
    optimizer: "str | OptimizerFn | None" = None,
    refuse_ineffective: bool = True,
) -> "Agent":
    """Build an algorithm for an environment, on networks of one library.

    Args:
      algorithm: a name, `package.module:object`, or the class itself.
      env: the environment to act in.
      backend: the library whose built-in networks are used.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`. None:
        canonical for built-in networks, which costs nothing and makes the libraries agree
        (docs/measurements.md has the measurement), and native for custom networks.
      config: static configuration: the algorithm's `Config`, or values by field name.
      hyper: hyperparameters: the algorithm's `Hyperparams`, or values by field name.
      networks: custom networks instead of the built-in ones: one for everything, or each by the
        name that the algorithm gives it. Plain functions `(init, apply)` are wrapped by
        `from_functions`. A text is `package.module:object`, a network or a function of obs_spec and
        action_spec that returns one; a run folder then finds it again by this name.
      optimizer: `hyper -> optax.GradientTransformation`, such as
        `lambda hyper: optax.lion(hyper.learning_rate)`; a name of
        `triglot.core.rl.optimizers.OPTIMIZERS`; or `package.module:object`. None: the algorithm's
        own.
      refuse_ineffective: whether to refuse values that are given by name and cannot have an effect
        here, such as sizes of layers that the networks for these observations do not have.

    Raises:
      TriglotError: if a name is unknown, the algorithm, the environment and the network do not fit
        each other, or a value has no effect (`refuse_ineffective`).
    """
    from ...backends import build
    from ...backends.canonical import with_arithmetic
    from ...backends.jax.lifting import lift_if_functions

    algorithm_class = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    called = algorithm if isinstance(algorithm, str) else getattr(algorithm_class, "__name__", "")
    check_algorithm(algorithm_class, f"algorithm {called!r}" if called else "algorithm")
    check_env(env)
    check_text("backend", backend)
    check_text("arithmetic", arithmetic or "native")
    given_config, given_hyper, given_networks = config, hyper, networks
    networks = _loaded(networks, env)
    if not are_options_of(algorithm_class.Config, config):
        _check_place("config", config, "hyper", algorithm_class.Hyperparams)
        config = from_overrides(algorithm_class.Config, config)
    if not are_options_of(algorithm_class.Hyperparams, hyper):
        _check_place("hyper", hyper, "config", algorithm_class.Config)
        hyper = from_overrides(algorithm_class.Hyperparams, hyper)
    further: dict[str, Any] = {} if optimizer is None else {"optimizer": find_optimizer(optimizer)}
    try:
        if algorithm_class.plans:
            further["model"] = model_in(plannable(algorithm_class.__name__, env))
        if "two_players" in _field_names(algorithm_class) and takes_turns(env):
            further["two_players"] = True
        if networks is None or isinstance(networks, Mapping):
            what = f"algorithm {called!r}: networks(obs_spec, action_spec, config)"
            with user_error_context(f"{what} failed"):
                specs = algorithm_class.networks(env.obs_spec, env.action_spec, config)
            if networks is None:
                network = build(backend, specs, arithmetic=arithmetic or "canonical")
            else:
                loaded: Any = networks
                network = _custom_networks(loaded, specs, arithmetic or "native")
        else:
            require_liftable("networks", networks)
            wrapped = lift_if_functions(networks, env.obs_spec)
            network = with_arithmetic(wrapped, arithmetic or "native")
        with user_error_context(f"algorithm {called!r} could not be built"):
            agent = algorithm_class(
                network=network,
                obs_spec=env.obs_spec,
                action_spec=env.action_spec,
                config=config,
                hyper=hyper,
                **further,
            )
        for name, number in option_values(hyper).items():  # an agent need not check its own
            if isinstance(number, float) and number != number:
                raise TriglotError(f"{name} is NaN: give a number.")
    except MissingExtra:
        raise
    except TriglotError as error:
        raise TriglotError(f"on {env.name}: {error}") from None
    if refuse_ineffective:
        is_whole = networks is not None and not isinstance(networks, Mapping)
        effects = Effects(
            algorithm=agent,
            called=called,
            env=env,
            config=agent.config,
            optimizer=optimizer,
            custom="the network was given" if is_whole else None,
        )
        check_values(effects, given_config, given_hyper)
    remember_agent(
        agent,
        algorithm,
        backend=backend,
        arithmetic=arithmetic,
        networks=given_networks,
        optimizer=optimizer,
    )
    return agent


build_agent = partial(make_agent, refuse_ineffective=False)
"""`make_agent` for commands, which refuse such values by the names of their options."""


def describe_images(
    algorithm: "Algorithm | Agent", env: "AnyEnvironment", config: "AnyConfig"
) -> list[str]:
    """Say in one line which network was chosen for images; in none without such a choice.

    Args:
      algorithm: its class, or an agent, which describes its default networks.
      env: the environment to act in.
      config: the algorithm's `Config`.
    """
    from ...core.networks.architecture import NetworkSpec, describe_image_torso

    specs = algorithm.networks(env.obs_spec, env.action_spec, config).values()
    texts = (describe_image_torso(spec, config) for spec in specs if isinstance(spec, NetworkSpec))
    return [*dict.fromkeys(text for text in texts if text)][:1]


def find_optimizer(optimizer: "str | OptimizerFn") -> "OptimizerFn":
    """Find an optimizer by its name or as `package.module:object`; a function is returned as it is.

    Raises:
      TriglotError: if there is no such optimizer, or it cannot be imported.
    """
    from ...core.rl.optimizers import OPTIMIZERS

    if not isinstance(optimizer, str):
        return optimizer
    if ":" not in optimizer:
        check_known("optimizer", optimizer, OPTIMIZERS)
    return OPTIMIZERS.get(optimizer) or load("optimizer", optimizer)


def _loaded(networks: Any, env: "AnyEnvironment") -> Any:
    """Load the networks that are named as `package.module:object`; return others as they are.

    A tuple of texts is that of `--network`; one of functions is a network.
    """
    texts = [networks] if isinstance(networks, str) else networks
    if isinstance(texts, list | tuple) and all(isinstance(text, str) for text in texts):
        return load_networks(texts, env)
    if not isinstance(networks, Mapping):
        return networks
    return {
        name: load_networks([network], env) if isinstance(network, str) else network
        for name, network in networks.items()
    }


def _check_place(argument: str, values: Any, other: str, options: type | OptionTable) -> None:
    """Reject values of which one belongs to the other argument, whose class is `options`."""
    known = {field.name for field in option_fields(options)}
    for name in values if isinstance(values, Mapping) else ():
        if name in known:
            raise TriglotError(
                f"{name} belongs to {other}, not to {argument}: give "
                f"{other}={{{name!r}: {shown(values[name])}}}."
            )


def _field_names(algorithm: object) -> set[str]:
    return {field.name for field in fields(algorithm)} if is_dataclass(algorithm) else set()


def _custom_networks(
    networks: "Mapping[str, Network | Functions]",
    specs: "Mapping[str, NetworkSpec | Network]",
    arithmetic: str,
) -> "Network":
    from ...backends.canonical import with_arithmetic
    from ...backends.jax.lifting import lift_if_functions
    from ...core.network import Network
    from ...core.networks.combinators import combine, ensemble

    asked = {name: spec for name, spec in specs.items() if not isinstance(spec, Network)}
    for name in networks:
        check_known("network", name, asked)
    missing = [name for name in asked if name not in networks]
    if missing:
        raise TriglotError(
            f"give all of the networks {', '.join(asked)}: {missing[0]!r} is missing."
        )
    parts = {name: spec for name, spec in specs.items() if isinstance(spec, Network)}
    for name, network in networks.items():
        require_liftable(f"networks[{name!r}]", network)
    for name, network in networks.items():
        wrapped = lift_if_functions(network, asked[name].obs_spec, name)
        wrapped, size = with_arithmetic(wrapped, arithmetic), asked[name].ensemble_size
        parts[name] = wrapped if size == 1 else ensemble(wrapped, size)
    return combine(parts)
