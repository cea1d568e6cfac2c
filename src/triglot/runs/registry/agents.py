"""Build agents from an algorithm, an environment, networks and an optimizer."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

from ...core.arguments import check_env
from ...core.errors import MissingExtra, TriglotError, check_known, check_text, user_error_context
from ...core.options import are_options_of, option_values
from ...core.rl.planning import check_model, model_in, takes_turns
from .algorithms import check_algorithm, find_algorithm
from .effects import check_values
from .loading import load, load_networks, require_liftable
from .origins import remember_agent
from .overrides import from_overrides

if TYPE_CHECKING:
    from ...backends.jax.signatures import Functions
    from ...core.agent import Agent
    from ...core.environment import Environment
    from ...core.host_environment import HostEnvironment
    from ...core.network import Network
    from ...core.networks.architecture import NetworkSpec
    from ...core.rl.optimizers import OptimizerFn


def make_agent(
    algorithm: str | type,
    env: "Environment | HostEnvironment",
    *,
    backend: str = "linen",
    arithmetic: str | None = None,
    config: Any = None,
    hyper: Any = None,
    networks: "str | Network | Functions | Mapping[str, str | Network | Functions] | None" = None,
    optimizer: "str | OptimizerFn | None" = None,
) -> "Agent":
    """Build an algorithm for an environment, on networks of one library.

    Args:
      algorithm: a name, `package.module:object`, or the class itself.
      env: the environment to act in.
      backend: the library whose zoo the networks come from.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`. None:
        canonical for networks of the zoo, which costs nothing and makes the libraries agree
        (docs/measurements.md has the measurement), and native for custom networks.
      config: static configuration: the algorithm's `Config`, or values by field name.
      hyper: hyperparameters: the algorithm's `Hyperparams`, or values by field name.
      networks: custom networks instead of the zoo's: one for everything, or each by the name that
        the algorithm gives it. Plain functions `(init, apply)` are wrapped by `from_functions`. A
        text is `package.module:object`, a network or a function of obs_spec and action_spec that
        returns one; a run folder then finds it again by this name.
      optimizer: `hyper -> optax.GradientTransformation`, such as
        `lambda hyper: optax.lion(hyper.learning_rate)`; a name of
        `triglot.core.rl.optimizers.OPTIMIZERS`; or `package.module:object`. None: the algorithm's
        own.

    Raises:
      TriglotError: if a name is unknown, the algorithm, the environment and the network do not fit
        each other, or a value that is given by name cannot have an effect.
    """
    agent = build_agent(
        algorithm,
        env,
        backend=backend,
        arithmetic=arithmetic,
        config=config,
        hyper=hyper,
        networks=networks,
        optimizer=optimizer,
    )
    called = algorithm if isinstance(algorithm, str) else algorithm.__name__
    whole = networks is not None and not isinstance(networks, Mapping)
    how = {"optimizer": optimizer, "custom": "the network was given" if whole else None}
    check_values(agent, called, env, agent.config, config, hyper, **how)
    names: Any = {"backend": backend, "arithmetic": arithmetic, "networks": networks}
    remember_agent(agent, algorithm, optimizer=optimizer, **names)
    return agent


def build_agent(
    algorithm: str | type,
    env: "Environment | HostEnvironment",
    *,
    backend: str = "linen",
    arithmetic: str | None = None,
    config: Any = None,
    hyper: Any = None,
    networks: Any = None,
    optimizer: "str | OptimizerFn | None" = None,
) -> "Agent":
    """Build an agent as `make_agent`, where values without an effect are found elsewhere."""
    from ...backends import build
    from ...backends.canonical import with_arithmetic
    from ...backends.jax.lifting import lift_if_functions

    found = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    called = algorithm if isinstance(algorithm, str) else getattr(found, "__name__", "")
    check_algorithm(found, f"algorithm {called!r}" if called else "algorithm")
    check_env(env)
    check_text("backend", backend)
    check_text("arithmetic", arithmetic or "native")
    networks = _loaded(networks, env)
    if not are_options_of(found.Config, config):
        config = from_overrides(found.Config, config)
    if not are_options_of(found.Hyperparams, hyper):
        hyper = from_overrides(found.Hyperparams, hyper)
    given: dict[str, Any] = {} if optimizer is None else {"optimizer": find_optimizer(optimizer)}
    try:
        if found.plans:
            check_model(found, env)
            plannable: Any = env  # none that is stepped in Python: that is refused
            given["model"] = model_in(plannable)
        if "two_players" in _field_names(found) and takes_turns(env):
            given["two_players"] = True
        if networks is not None and not isinstance(networks, Mapping):
            require_liftable("networks", networks)
            whole = lift_if_functions(networks, env.obs_spec)
            network = with_arithmetic(whole, arithmetic or "native")
        else:
            what = f"algorithm {called!r}: networks(obs_spec, action_spec, config)"
            with user_error_context(f"{what} failed"):
                specs = found.networks(env.obs_spec, env.action_spec, config)
            if networks is None:
                network = build(backend, specs, arithmetic=arithmetic or "canonical")
            else:
                network = _custom_networks(networks, specs, arithmetic or "native")
        with user_error_context(f"algorithm {called!r} failed when it was made"):
            agent = found(
                network=network,
                obs_spec=env.obs_spec,
                action_spec=env.action_spec,
                config=config,
                hyper=hyper,
                **given,
            )
        for name, number in option_values(hyper).items():  # an agent need not check its own
            if isinstance(number, float) and number != number:
                raise TriglotError(f"{name} is NaN: give a number.")
        return agent
    except MissingExtra:
        raise
    except TriglotError as error:
        raise TriglotError(f"on {env.name}: {error}") from None


def describe_images(algorithm: Any, env: Any, config: Any) -> list[str]:
    """Say in one line which network was chosen for images; in none without such a choice.

    Args:
      algorithm: its class, or an agent, which describes its default networks.
      env: the environment to act in.
      config: the algorithm's `Config`.
    """
    from ...core.networks.architecture import NetworkSpec, describe_image_torso

    specs = algorithm.networks(env.obs_spec, env.action_spec, config).values()
    texts = (describe_image_torso(one, config) for one in specs if isinstance(one, NetworkSpec))
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


def _loaded(networks: Any, env: Any) -> Any:
    """Load the networks that are named as `package.module:object`; return others as they are."""
    if isinstance(networks, str):
        return load_networks([networks], env)
    if not isinstance(networks, Mapping):
        return networks
    return {
        name: load_networks([one], env) if isinstance(one, str) else one
        for name, one in networks.items()
    }


def _field_names(algorithm: Any) -> set[str]:
    return {one.name for one in fields(algorithm)} if is_dataclass(algorithm) else set()


def _custom_networks(
    networks: "Mapping[str, Any]", specs: "Mapping[str, NetworkSpec | Network]", arithmetic: str
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
    for name, own in networks.items():
        require_liftable(f"networks[{name!r}]", own)
    given = {
        name: with_arithmetic(lift_if_functions(own, asked[name].obs_spec, name), arithmetic)
        for name, own in networks.items()
    }
    made = {
        name: own if asked[name].ensemble_size == 1 else ensemble(own, asked[name].ensemble_size)
        for name, own in given.items()
    }
    return combine({**{n: s for n, s in specs.items() if isinstance(s, Network)}, **made})
