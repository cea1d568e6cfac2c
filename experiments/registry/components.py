"""Algorithms, environments and networks by name, imported on first use.

A built-in name takes precedence over one of an installed package.
"""

import ast
import difflib
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from typing import TYPE_CHECKING, Any

from ...core import plugins
from ...core.errors import MissingExtra, TriglotError, unknown, user_error_context
from .loading import is_module, is_path, load, load_env, search_here
from .overrides import from_overrides

if TYPE_CHECKING:
    from ...core.agent import Agent
    from ...core.environment import Environment
    from ...core.host_environment import HostEnvironment
    from ...core.network import Network
    from ...core.networks.architecture import NetworkSpec
    from ...core.rl.optimizers import OptimizerFn

ALGORITHMS = {
    "ppo": "triglot.algorithms.ppo:PPO",
    "dqn": "triglot.algorithms.dqn:DQN",
    "sac": "triglot.algorithms.sac:SAC",
    "q_learning": "triglot.algorithms.q_learning:QLearning",
}


@dataclass(frozen=True)
class Suite:
    """A suite of environments.

    Attributes:
      module: a module with `make(name, **options)` and `names()`.
      example: a name that `make` accepts.
      library: the library it needs, which is also the name of its extra; None if none.
    """

    module: str
    example: str
    library: str | None = None


SUITES = {
    "gridworld": Suite("triglot.envs.gridworld", "8x8"),
    "gymnax": Suite("triglot.envs.gymnax", "CartPole-v1", "gymnax"),
    "gymnasium": Suite("triglot.envs.gymnasium", "CartPole-v1", "gymnasium"),
    "jumanji": Suite("triglot.envs.jumanji", "Maze-v0", "jumanji"),
    "brax": Suite("triglot.envs.brax", "ant", "brax"),
    "probe": Suite("triglot.envs.probes", "two-step"),
}


def find_algorithm(name: str) -> Any:
    """Find an algorithm's class by its name, built in or installed, or as `package.module:object`.

    Returns:
      A class that is built from `network, obs_spec, action_spec, config, hyper` into an `Agent`;
      it has the dataclasses `Config` and `Hyperparams`, and `networks(obs_spec, action_spec,
      config)`.

    Raises:
      TriglotError: if there is no such algorithm, it cannot be imported, or it lacks one of these.
    """
    if ":" not in name and name not in (known := names("algorithm")):
        raise unknown("algorithm", name, known)
    algorithm = load("algorithm", ALGORITHMS.get(name, name))
    lacking = [
        part for part in ("Config", "Hyperparams", "networks") if not hasattr(algorithm, part)
    ]
    if not isinstance(algorithm, type) or lacking:
        raise TriglotError(
            f"algorithm {name!r} must be a class with Config, Hyperparams and networks, as PPO is; "
            + (f"it lacks {', '.join(lacking)}." if lacking else f"got {algorithm!r}.")
        )
    for part in ("Config", "Hyperparams"):
        if not is_dataclass(getattr(algorithm, part)):
            raise TriglotError(
                f"{part} of the algorithm {name!r} must be a dataclass, whose fields become "
                f"options; got {getattr(algorithm, part)!r}."
            )
    return algorithm


def make_env(name: str, **options: Any) -> "Environment":
    """Make an environment by name.

    Args:
      name: `suite:name`, such as `gymnax:CartPole-v1`; or `package.module:object`, where the
        object is an `Environment` or a function that returns one; or a name registered by an
        installed package. Options may follow after commas.
      options: passed to the suite or function, together with those in the name.

    Raises:
      TriglotError: if there is no such environment, with the nearest existing one; or if making it
        fails.

    >>> make_env("gridworld:8x8").name
    'gridworld:8x8'
    >>> make_env("gymnax:CartPole-v1,max_steps_in_episode=200").params
    (('max_steps_in_episode', 200),)
    """
    name, in_name = _split_options(name)
    options = {**in_name, **options}
    suite, colon, rest = name.partition(":")
    if suite in suites() and rest:
        module = load_suite(suite)
        search_here()  # the name may be `module:name`, as in Gymnasium
        if suite in SUITES:
            return module.make(rest, **options)
        with user_error_context(f"environment {name!r} failed when it was created"):
            return module.make(rest, **options)
    if suite in suites() or (not colon and name not in plugins.names("environment")):
        raise _without_suite(name)
    if colon and (not is_path(name) or not is_module(suite)):
        raise unknown("environment suite", suite, suites())
    return load_env(name, options)


def _split_options(name: str) -> tuple[str, dict[str, Any]]:
    """Split the options off a name.

    >>> _split_options("jumanji:Maze-v0,num_rows=5,observation=dict")
    ('jumanji:Maze-v0', {'num_rows': 5, 'observation': 'dict'})
    """
    name, *pairs = name.split(",")
    options = {}
    for pair in pairs:
        option, equals, value = pair.partition("=")
        if not (option.isidentifier() and equals):
            raise TriglotError(
                f"environment {name!r}: write options as name,option=value,option=value; "
                f"got {pair!r}."
            )
        try:
            options[option] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            options[option] = value
    return name, options


def names(kind: str) -> list[str]:
    """List the names of one kind of component, built-in ones first; for environments, of suites.

    Args:
      kind: `algorithm`, `environment` or `network`.
    """
    built_in = {"algorithm": ALGORITHMS, "environment": SUITES}.get(kind, {})
    return [*built_in, *(name for name in plugins.names(kind) if name not in built_in)]


def suites() -> list[str]:
    """List the environment suites without importing them."""
    added = [plugin.name for plugin in plugins.installed("environment") if plugin.is_suite]
    return [*SUITES, *(name for name in added if name not in SUITES)]


def load_suite(name: str) -> Any:
    """Import a suite's module, which has `make(name, **options)` and `names()`.

    Raises:
      TriglotError: if there is no such suite, or it cannot be imported.
    """
    if name not in suites():
        raise unknown("environment suite", name, suites())
    return (
        importlib.import_module(SUITES[name].module)
        if name in SUITES
        else load("environment", name)
    )


def make_agent(
    algorithm: str | type,
    env: "Environment | HostEnvironment",
    *,
    backend: str = "linen",
    arithmetic: str | None = None,
    config: Any = None,
    hyper: Any = None,
    networks: "Network | Mapping[str, Network] | None" = None,
    optimizer: "str | OptimizerFn | None" = None,
) -> "Agent":
    """Build an algorithm for an environment, on networks of one library.

    Args:
      algorithm: a name, `package.module:object`, or the class itself.
      env: the environment to act in.
      backend: the library whose zoo the networks come from.
      arithmetic: `native`, `leaf_order` or `canonical`; see `triglot.backends.canonical`. None:
        canonical for networks of the zoo, which costs nothing and makes the libraries agree
        (docs/results.md has the measurement), and native for custom networks.
      config: static configuration: the algorithm's `Config`, or values by field name.
      hyper: hyperparameters: the algorithm's `Hyperparams`, or values by field name.
      networks: custom networks instead of the zoo's: one for everything, or each by the name that
        the algorithm gives it.
      optimizer: `hyper -> optax.GradientTransformation`, such as
        `lambda hyper: optax.lion(hyper.learning_rate)`; a name of
        `triglot.core.rl.optimizers.OPTIMIZERS`; or `package.module:object`. None: the algorithm's
        own.

    Raises:
      TriglotError: if a name is unknown, or the algorithm, the environment and the network do not
        fit each other.
    """
    from ...backends import build
    from ...backends.canonical import with_arithmetic
    from ...core.network import Network

    found = find_algorithm(algorithm) if isinstance(algorithm, str) else algorithm
    called = algorithm if isinstance(algorithm, str) else algorithm.__name__
    config = config if isinstance(config, found.Config) else from_overrides(found.Config, config)
    hyper = (
        hyper if isinstance(hyper, found.Hyperparams) else from_overrides(found.Hyperparams, hyper)
    )
    given = {} if optimizer is None else {"optimizer": find_optimizer(optimizer)}
    try:
        if isinstance(networks, Network):
            network = with_arithmetic(networks, arithmetic or "native")
        else:
            with user_error_context(
                f"algorithm {called!r}: networks(obs_spec, action_spec, config) failed"
            ):
                specs = found.networks(env.obs_spec, env.action_spec, config)
            if networks is None:
                network = build(backend, specs, arithmetic=arithmetic or "canonical")
            else:
                network = _custom_networks(networks, specs, arithmetic or "native")
        with user_error_context(f"algorithm {called!r} failed when it was made"):
            return found(
                network=network,
                obs_spec=env.obs_spec,
                action_spec=env.action_spec,
                config=config,
                hyper=hyper,
                **given,
            )
    except MissingExtra:
        raise
    except TriglotError as error:
        raise TriglotError(f"on {env.name}: {error}") from None


def find_optimizer(optimizer: "str | OptimizerFn") -> "OptimizerFn":
    """Find an optimizer by its name or as `package.module:object`; a function is returned as it is.

    Raises:
      TriglotError: if there is no such optimizer, or it cannot be imported.
    """
    from ...core.rl.optimizers import OPTIMIZERS

    if not isinstance(optimizer, str):
        return optimizer
    if ":" not in optimizer and optimizer not in OPTIMIZERS:
        raise unknown("optimizer", optimizer, OPTIMIZERS)
    return OPTIMIZERS.get(optimizer) or load("optimizer", optimizer)


def _custom_networks(
    networks: "Mapping[str, Network]",
    specs: "Mapping[str, NetworkSpec | Network]",
    arithmetic: str,
) -> "Network":
    from ...backends.canonical import with_arithmetic
    from ...core.network import Network
    from ...core.networks.combinators import combine, ensemble

    asked = {name: spec for name, spec in specs.items() if not isinstance(spec, Network)}
    for name in networks:
        if name not in asked:
            raise unknown("network", name, asked)
    missing = [name for name in asked if name not in networks]
    if missing:
        raise TriglotError(
            f"give all of the networks {', '.join(asked)}: {missing[0]!r} is missing."
        )
    given = {name: with_arithmetic(own, arithmetic) for name, own in networks.items()}
    made = {
        name: own if asked[name].ensemble_size == 1 else ensemble(own, asked[name].ensemble_size)
        for name, own in given.items()
    }
    return combine({**{n: s for n, s in specs.items() if isinstance(s, Network)}, **made})


def _without_suite(name: str) -> TriglotError:
    full = {env: env for env in plugins.names("environment")}
    for suite, where in SUITES.items():
        try:
            module = importlib.import_module(where.module)
            full = {env: f"{suite}:{env}" for env in module.names()} | full
        except MissingExtra:
            continue
    near = difflib.get_close_matches(name.rstrip(":"), full, n=1, cutoff=0.4)
    hint = f"; did you mean {full[near[0]]!r}?" if near else "."
    return TriglotError(
        f"environment {name!r} must have the form suite:name{hint} "
        f"Suites: {', '.join(suites())} (`triglot list gymnax` lists one)."
    )
