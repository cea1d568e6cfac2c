"""`triglot diff`: find two networks and their inputs, compare them and print the report."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import TriglotError, masked, shown, user_error_context
from ..diff.porting.options import TranslateOptions
from ..diff.porting.recordings.reading import is_recording, read_recording
from ..runs.registry.arg import flag
from ..runs.registry.loading import load
from .options import DiffOptions

if TYPE_CHECKING:
    from ..backends.calling import Inputs
    from ..core.network import Network
    from ..core.networks.architecture import NetworkSpec
    from ..core.specs import Spec
    from ..diff.functions.arguments import Arguments
    from ..diff.options import ComparisonOptions
    from ..diff.report import Report

SAME, DIFFERENT = 0, 1
ZOO = "zoo"
PREFIX = "algorithm:"  # before the name of a built-in algorithm, whose loss is meant


def is_reference(text: str) -> bool:
    """Return whether a text names the loss of a built-in algorithm."""
    return text.startswith(PREFIX)


def diff(options: DiffOptions) -> int:
    """Compare two networks, print the report and write it as JSON; with --watch after each edit.

    Returns:
      The exit code: 0 if they are identical or equivalent, 1 if they are different. With --watch 0,
      after Ctrl-C.

    Raises:
      TriglotError: if a network or the inputs cannot be made, or the networks have nothing in
        common.
    """
    mapping = mapping_of(options.mapping)
    if any(map(is_recording, (options.one, options.other))):
        compare = _of_recording(options, mapping)
    elif any(map(is_reference, (options.one, options.other))):
        compare = _of_losses(options, mapping)
    else:
        compare = _of_networks(options, mapping)
    if not options.watch:
        return compare()
    from .watching import watch

    texts = (options.one, options.other)
    return watch([text for text in texts if not _is_built_in(text)], compare)


def _is_built_in(text: str) -> bool:
    """Return whether a text names no module of the user."""
    return is_recording(text) or is_reference(text) or text.partition(":")[0] == ZOO


def _of_networks(options: DiffOptions, mapping: dict[str, str]) -> Callable[[], int]:
    """Return the comparison of two networks, which loads their modules.

    Raises:
      TriglotError: if an option does not apply, or the inputs cannot be made.
    """
    from ..diff.options import ComparisonOptions

    check_one_way(options)
    if len(options.checkpoint) > 2:
        raise TriglotError(
            f"--checkpoint takes one file, or one of each network, got {len(options.checkpoint)}."
        )
    level = _level(options)
    texts = (options.one, options.other)
    zoo = [text for text in texts if text.partition(":")[0] == ZOO]
    if zoo and options.env is None:
        raise TriglotError(
            f"{zoo[0]} needs --env: the environment's actions decide on the network's outputs."
        )
    inputs, action_spec = inputs_of(options)
    comparison = ComparisonOptions(
        mapping=mapping or None,
        seed=options.seed,
        action_spec=action_spec,
        names=texts,
        level=level,
        modules=options.html is not None,
        compare_weights=len(options.checkpoint) == 2,
        max_rounding=options.max_rounding,
    )

    def compare() -> int:
        modules = [None if text in zoo else load("network", text) for text in texts]
        networks = [
            _zoo(text, options.algorithm, inputs, action_spec) if text in zoo else module
            for text, module in zip(texts, modules, strict=True)
        ]
        networks = _with_weights(networks, options, inputs, action_spec)
        return _compared(networks[0], networks[1], inputs, comparison, options)

    return compare


def _of_losses(options: DiffOptions, mapping: dict[str, str]) -> Callable[[], int]:
    """Return the comparison of a loss with that of a built-in algorithm.

    Raises:
      TriglotError: if an option does not apply, or the loss of the algorithm cannot be built.
    """
    _check_absent(
        options, ("env", "obs_shape", "inputs", "checkpoint"), f"{PREFIX}NAME, which defines the"
    )
    from ..diff.functions.algorithms import load_reference
    from ..diff.options import ComparisonOptions

    texts = options.one, options.other
    level = _level(options)
    references = {text: load_reference(text) for text in texts if is_reference(text)}
    first = next(iter(references.values()))
    comparison = ComparisonOptions(
        mapping=mapping or None, seed=options.seed, names=texts, level=level
    )

    def compare() -> int:
        losses = [
            references[text].function if text in references else load("network", text)
            for text in texts
        ]
        print(f"{first.name}: {first.describe()}", file=sys.stderr)
        return _compared(losses[0], losses[1], first.arguments, comparison, options)

    return compare


def _compared(
    first: Any,
    second: Any,
    inputs: "Inputs | Arguments",
    comparison: "ComparisonOptions",
    options: DiffOptions,
) -> int:
    """Compare two networks or functions, print the report and write it as JSON."""
    from ..diff.compare import compare_networks
    from ..diff.report import DIFFERENT as DIFFERENT_VERDICT
    from ..shared.terminal.progress import steps

    problem = f"{options.one} and {options.other} could not be compared"
    with steps() as progress, user_error_context(problem):
        reports = compare_networks(first, second, inputs, comparison, progress)
        report = next(reports)  # which says only that nothing is known yet
        try:
            for further in reports:
                report = further
        except KeyboardInterrupt:
            _finish(report, options)
            raise
    _finish(report, options)
    return DIFFERENT if report.verdict == DIFFERENT_VERDICT else SAME


def _of_recording(options: DiffOptions, mapping: dict[str, str]) -> Callable[[], int]:
    """Return the comparison of a port with a recording.

    Raises:
      TriglotError: if an option does not apply, or the recording cannot be read.
    """
    if is_recording(options.one) and is_recording(options.other):
        raise TriglotError(
            f"{options.one} and {options.other} are two recordings: give one, and the port to "
            "compare with it, such as my_port:net."
        )
    if is_recording(options.other):
        raise TriglotError(
            f"{options.other} is the second network: give the recording first, and then the port."
        )
    names = ("env", "obs_shape", "inputs", "quick", "thorough")
    _check_absent(options, names, "a recording, which has its own")
    if options.other.partition(":")[0] == ZOO:
        raise TriglotError(f"{options.other} cannot be compared with a recording: give a module.")
    if len(options.checkpoint) > 1:
        raise TriglotError(
            "--checkpoint takes one file with a recording, which has its own weights: the port's."
        )
    from ..diff.porting.recordings.compare import diff_recording
    from ..diff.report import DIFFERENT as DIFFERENT_VERDICT
    from ..shared.terminal.progress import steps

    read_recording(Path(options.one))

    def compare() -> int:
        port = load("network", options.other)
        problem = f"{options.other} could not be compared with {options.one}"
        with steps() as shown_steps, user_error_context(problem):
            report = diff_recording(
                options.one,
                port,
                checkpoint=next(iter(options.checkpoint), None),
                mapping=mapping or None,
                name=options.other,
                trust=options.trust,
                begin=shown_steps.begin,
            )
        _finish(report, options)
        return DIFFERENT if report.verdict == DIFFERENT_VERDICT else SAME

    return compare


def _check_absent(options: DiffOptions, names: Sequence[str], what: str) -> None:
    """Reject options that do not apply to something with inputs of its own."""
    for name in names:
        if getattr(options, name):
            raise TriglotError(f"{flag(name)} does not apply to {what} inputs: leave it out.")


def _with_weights(
    networks: list[Any], options: DiffOptions, inputs: "Inputs", action_spec: "Spec | None"
) -> list[Any]:
    """Give networks the weights of their checkpoints in place of initial ones."""
    from dataclasses import replace

    from ..diff.loading import load_network
    from ..diff.porting.names import load_weights

    weighted = list(networks)
    texts = (options.one, options.other)
    for index, path in enumerate(options.checkpoint):
        with user_error_context(f"{texts[index]} cannot be built"):
            network = load_network(
                networks[index], inputs, name=texts[index], action_spec=action_spec
            )
        variables = load_weights(path, network, trust=options.trust)
        weighted[index] = replace(network, init=lambda key, v=variables: v, random_start=False)
    return weighted


def _finish(report: "Report", options: DiffOptions) -> None:
    """Write what was found, and print it."""
    from ..shared.machine.files import write_files, write_json

    content = report.to_json()
    if options.json is not None:
        write_json(options.json, content)
    if options.html is not None:
        from ..diff.page import page

        command = masked(shlex.join(["triglot", *sys.argv[1:]]))
        write_files(options.html.parent, {options.html.name: page(content, command)})
    print(report)


def _level(options: DiffOptions) -> str:
    """Read how much is measured.

    Raises:
      TriglotError: if two levels are given.
    """
    if options.quick and options.thorough:
        raise TriglotError("--quick and --thorough exclude each other: give one of them.")
    return "quick" if options.quick else "thorough" if options.thorough else "standard"


def mapping_of(pairs: Sequence[str]) -> dict[str, str]:
    """Read pairs, each NAME=NAME.

    Raises:
      TriglotError: if one has another form.
    """
    mapping: dict[str, str] = {}
    for text in pairs:
        name, equals, other = text.partition("=")
        if not (name and equals and other):
            raise TriglotError(
                f"--mapping {shown(text)} must have the form NAME=NAME, such as "
                "mlp/linear_0=layers/0."
            )
        mapping[name] = other
    return mapping


def check_one_way(options: DiffOptions | TranslateOptions) -> None:
    """Reject inputs that are not given, or twice.

    Raises:
      TriglotError: if they are.
    """
    ways = [options.env is not None, options.obs_shape is not None, bool(options.inputs)]
    if sum(ways) != 1:
        raise TriglotError(
            "give the inputs of both networks in one of these ways: --env gymnax:CartPole-v1, "
            "--obs-shape 84 84 4, or --inputs float32:84,84,4 int32:; of losses, by name: --inputs "
            "obs=float32:32,4 action:32."
        )


def inputs_of(
    options: DiffOptions | TranslateOptions,
) -> "tuple[Any, Spec | None]":
    """Make the spec of the inputs, and that of the actions if there is an environment.

    Raises:
      TriglotError: if they cannot be made.
    """
    from ..core.specs import Box
    from ..diff.functions.arguments import names_arguments, parse_arguments
    from ..diff.inputs import parse_input
    from ..runs.registry.environments import make_env

    if options.env is not None:
        env = make_env(options.env)
        return env.obs_spec, env.action_spec
    if options.obs_shape is not None:
        if any(size < 1 for size in options.obs_shape):
            raise TriglotError(
                f"--obs-shape takes positive sizes, got {' '.join(map(str, options.obs_shape))}."
            )
        return Box(options.obs_shape), None
    if isinstance(options, DiffOptions) and names_arguments(options.inputs):
        return parse_arguments(options.inputs), None
    several = tuple(map(parse_input, options.inputs))
    return (several[0] if len(several) == 1 else several), None


def _zoo(text: str, algorithm: str, inputs: "Inputs", action_spec: "Spec | None") -> Any:
    """Build the networks that an algorithm asks for from a library's own layers."""
    from ..backends import build
    from ..runs.registry.algorithms import find_algorithm

    algorithm_class = find_algorithm(algorithm)
    describe: Callable[..., Mapping[str, NetworkSpec | Network]] = algorithm_class.networks
    with user_error_context(f"algorithm {algorithm!r}: networks(obs_spec, action_spec, config)"):
        specs = describe(inputs, action_spec, algorithm_class.Config())
    return build(text.partition(":")[2], specs)
