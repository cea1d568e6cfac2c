"""The agent of one library on one rung, and the parameter names that all libraries share."""

import functools
import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeVar

import jax

from ...backends import build
from ...backends.translate import translate
from ...core.agent import Agent
from ...core.environment import Environment
from ...core.errors import Guessed, TriglotError
from ...core.network import Network, Variables
from ...core.networks.architecture import NetworkSpec
from ...core.types import Params, abstract_key
from ...runs.identity import codec_of
from ...runs.registry import agents
from ...runs.registry.algorithms import find_algorithm
from ...runs.registry.loading import load_networks_by_library
from ...runs.registry.overrides import from_overrides
from ..options import CompareOptions
from ..rungs import Rung

NamesByLibrary: TypeAlias = Mapping[str, Mapping[str, str]]
Input = TypeVar("Input")
Output = TypeVar("Output")


def build_agent(options: CompareOptions, env: Environment, backend: str, rung: Rung) -> Agent:
    """Build the agent of one library, with custom networks or its built-in ones.

    Raises:
      TriglotError: if the parts do not fit each other.
    """
    networks: Network | Mapping[str, Network] | None = None
    if options.network:
        custom = load_networks_by_library(options.network, env)
        if backend not in custom:
            raise TriglotError(
                f"{' '.join(options.network)} has no network for {backend}: it has "
                f"{', '.join(custom)}."
            )
        networks = custom[backend]
    elif rung.library_initializers:
        algorithm = find_algorithm(options.algorithm)
        config = from_overrides(algorithm.Config, options.config)
        specs = algorithm.networks(env.obs_spec, env.action_spec, config)
        plain = {
            name: spec.with_library_initializers() if isinstance(spec, NetworkSpec) else spec
            for name, spec in specs.items()
        }
        networks = build(backend, plain, arithmetic=rung.arithmetic)
    return agents.build_agent(
        options.algorithm,
        env,
        backend=backend,
        networks=networks,
        arithmetic=rung.arithmetic,
        config=options.config,
        hyper=options.hyper,
        optimizer=options.optimizer,
    )


@dataclass(frozen=True)
class SharedNames:
    """Converts a network's parameters to and from arrays by the names that all libraries share.

    Attributes:
      encode: `encode(params) -> {name: array}`, in canonical layout.
      decode: `decode(arrays) -> params`, the inverse.
      guessed: the pairs that were guessed by shape and order, as text; empty if none were.
    """

    encode: Callable[[Params], dict[str, jax.Array]]
    decode: Callable[[dict[str, jax.Array]], Params]
    guessed: str = ""


def shared_names(
    network: Network, reference: Network | None, mapping: Mapping[str, str] | None = None
) -> SharedNames:
    """Find how the parameters of a network correspond to those of the reference.

    Args:
      network: of any library.
      reference: the network whose canonical names are shared; None if this network's own names are,
        as for the built-in networks.
      mapping: this network's canonical names or prefixes to the reference's; None to pair equal
        names, or else by shape and order.

    Raises:
      TriglotError: if the parameters do not correspond; nothing is computed.
    """
    codec = codec_of(network)
    if reference is None or reference is network:
        return SharedNames(codec.encode, codec.decode)
    shared = codec_of(reference)
    back = None if mapping is None else {to: name for name, to in mapping.items()}

    def encode(params: Params) -> dict[str, jax.Array]:
        variables = Variables(params=params, state=())
        return shared.encode(translate(variables, network, reference, mapping).params)

    def decode(named: dict[str, jax.Array]) -> Params:
        variables = Variables(params=shared.decode(named), state=())
        return translate(variables, reference, network, back).params

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", Guessed)
        jax.eval_shape(lambda key: decode(encode(network.init(key).params)), abstract_key())
    guesses = [str(warning.message) for warning in caught if issubclass(warning.category, Guessed)]
    return SharedNames(_quiet(encode), _quiet(decode), guesses[0] if guesses else "")


def _quiet(function: Callable[[Input], Output]) -> Callable[[Input], Output]:
    """Ignore warnings of guessed pairs, which were collected once."""

    @functools.wraps(function)
    def quiet(tree: Input) -> Output:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Guessed)
            return function(tree)

    return quiet


def read_mapping(path: Path | None) -> NamesByLibrary:
    """Read `--mapping`: by library, its canonical names to those of the first library.

    Raises:
      TriglotError: if the file is missing or is not such an object.
    """
    if path is None:
        return {}
    try:
        content = json.loads(path.read_text())
    except OSError as error:
        raise TriglotError(f"--mapping {path}: {error.strerror}.") from None
    except ValueError as error:
        raise TriglotError(f"--mapping {path} is not JSON: {error}.") from None
    fits = isinstance(content, dict) and all(
        isinstance(names, dict) and all(isinstance(to, str) for to in names.values())
        for names in content.values()
    )
    if not fits:
        raise TriglotError(
            f'--mapping {path} must hold {{"LIBRARY": {{"NAME": "NAME OF THE FIRST LIBRARY"}}}}.'
        )
    return content
