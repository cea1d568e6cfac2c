"""Reject a comparison's invalid options before anything starts."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import jax

from ..backends import libraries
from ..backends.canonical import ARITHMETICS
from ..core.agent import Agent
from ..core.environment import Environment
from ..core.errors import TriglotError, counted, unknown, user_error_context
from ..core.experiment import Experiment
from ..core.host_environment import require_jittable
from ..core.loop.sharding import fewest_devices, padded
from ..core.types import AnyConfig
from ..runs import identity
from ..runs.devices import most_devices
from ..runs.effects import check_effects
from ..runs.jobs.choose import num_local
from ..runs.plan import check_minimums, rounded_up
from ..runs.registry.algorithms import find_algorithm
from ..runs.registry.bounds import Bounds, return_bounds
from ..runs.registry.environments import make_env
from ..runs.registry.loading import load_networks_by_library
from ..runs.registry.overrides import from_overrides
from ..shared.machine import memory
from .jobs import environments
from .options import CompareOptions
from .rungs import RUNGS, rung_of_arithmetic
from .training import networks
from .verdict.pairs import DIFFERENT, INCONCLUSIVE

BACKENDS = ("haiku", "linen", "nnx", "equinox")
FAIL_ON = {DIFFERENT: (DIFFERENT,), INCONCLUSIVE: (DIFFERENT, INCONCLUSIVE)}


def with_backends(options: CompareOptions) -> CompareOptions:
    """Fill in the default libraries: those of the custom networks, or the built-in ones."""
    if options.backends is not None:
        return options
    if not options.network:
        return replace(options, backends=BACKENDS)
    custom = load_networks_by_library(options.network, make_env(options.env))
    return replace(options, backends=tuple(custom))


@dataclass(frozen=True)
class Checked:
    """What is known of a comparison before anything starts.

    Attributes:
      excluded: why a library cannot be trained, by rung and library: custom networks whose weights
        cannot be translated.
      bounds: of the return, by environment.
      size: describes the trainings, and whether their steps were rounded up.
    """

    excluded: Mapping[tuple[str, str], str]
    bounds: Mapping[str, Bounds]
    size: str


def check(options: CompareOptions) -> Checked:
    """Reject invalid options before anything starts.

    Raises:
      TriglotError: with the option and the nearest valid choice.
    """
    algorithm = find_algorithm(options.algorithm)
    config = from_overrides(algorithm.Config, options.config)
    from_overrides(algorithm.Hyperparams, options.hyper)
    for backend in options.libraries:
        libraries.find(backend).require()
    if len(set(options.libraries)) < max(2, len(options.libraries)):
        raise TriglotError(
            "compare needs at least two backends, each named once; got "
            f"{' '.join(options.libraries) or 'none'}."
        )
    if options.arithmetic not in ARITHMETICS:
        raise unknown("arithmetic", options.arithmetic, ARITHMETICS)
    if options.fail_on not in (None, *FAIL_ON):
        raise unknown("verdict", str(options.fail_on), FAIL_ON)
    if options.margin is not None and not options.margin > 0:
        raise TriglotError(f"margin must be a positive return, got {options.margin}.")
    if options.mapping is not None and not options.network:
        raise TriglotError("--mapping has no effect: it pairs custom networks (--network).")
    networks.read_mapping(options.mapping)
    check_minimums(options, num_seeds=1, eval_episodes=1, repetitions=0)
    names = environments(options)
    if len(set(names)) < len(names):
        raise TriglotError(f"each environment is given once; got {' '.join(names)}.")
    excluded: dict[tuple[str, str], str] = {}
    bounds, sizes = {}, []
    for name in names:
        env = make_env(name)
        bounds[name] = return_bounds(env, name)
        why, size = _check_programs(options, env, config)
        excluded |= why
        sizes.append(size)
    return Checked(excluded, bounds, sizes[0])


def _check_programs(
    options: CompareOptions, env: Environment, config: AnyConfig
) -> tuple[dict[tuple[str, str], str], str]:
    """Build every backend's agent, without computing anything, and compare what they need."""
    require_jittable(env)
    check_effects(options, find_algorithm(options.algorithm), env, config)
    rung = rung_of_arithmetic(options.arithmetic)
    agents = {
        backend: networks.build_agent(options, env, backend, rung) for backend in options.libraries
    }
    first = agents[options.libraries[0]]
    devices = fewest_devices(options.num_seeds, options.devices or most_devices())
    experiment = Experiment(
        first,
        env,
        key=jax.random.key(options.seed),
        total_steps=options.total_steps,
        num_seeds=padded(options.num_seeds, devices),
    )
    with user_error_context(f"{options.algorithm} on {options.env} failed when it was traced"):
        excluded = _check_weights(options, agents)
        needed = memory.of_training(
            experiment,
            num_lines=experiment.num_updates,
            eval_episodes=options.eval_episodes,
        )
    # Costs are measured with one process per library at a time.
    copies = max(len(options.libraries) if options.repetitions else 1, num_local(options))
    memory.check(needed, num_seeds=options.num_seeds, copies=copies)
    return excluded, _size(options, experiment)


def _size(options: CompareOptions, experiment: Experiment) -> str:
    steps, per_update = experiment.num_steps, experiment.steps_per_update
    text = (
        f"{options.algorithm} on {options.env}, {' '.join(options.libraries)}:\n"
        f"{counted(options.num_seeds, 'seed')} x {steps:,} steps, "
        f"{counted(experiment.num_updates, 'update')} of {per_update:,} steps"
    )
    if steps == options.total_steps:
        return text
    return f"{text}\n{rounded_up(options.total_steps, per_update, steps)}"


def _check_weights(
    options: CompareOptions, agents: Mapping[str, Agent]
) -> dict[tuple[str, str], str]:
    """Find the libraries that cannot start from the first one's weights.

    Raises:
      TriglotError: if none can.
    """
    if not options.network:
        _check_architectures(agents)
        return {}
    first, *others = options.libraries
    reference = agents[first].network
    mapping = networks.read_mapping(options.mapping)
    why: dict[str, str] = {}
    for backend in others:
        try:
            networks.shared_names(agents[backend].network, reference, mapping.get(backend))
        except TriglotError as error:
            why[backend] = str(error)
    if len(why) == len(others):
        raise TriglotError(
            f"no network can start from the weights of {first}. {next(iter(why.values()))}"
        )
    return {
        (rung.name, backend): message
        for rung in RUNGS
        if rung.shared_weights
        for backend, message in why.items()
    }


def _check_architectures(agents: Mapping[str, Agent]) -> None:
    """Check that built-in networks have equal parameters; Haiku's GRU has one bias less.

    Raises:
      TriglotError: naming a parameter that differs, and the libraries that can be compared.
    """
    shapes = {name: identity.shapes_of(agent.network) for name, agent in agents.items()}
    first = next(iter(shapes))
    for name, shapes_of_library in shapes.items():
        try:
            identity.check_architecture(name, shapes_of_library, shapes[first])
        except TriglotError as error:
            groups = [[b for b in shapes if shapes[b] == shapes[a]] for a in (name, first)]
            largest = " ".join(max(groups, key=len))
            hint = f" Compare those of one architecture: --backends {largest}."
            raise TriglotError(f"{error}{hint if ' ' in largest else ''}") from None
