"""Compare two networks: parameters, functions of the same weights, gradients, and initializers."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from ..backends.calling import Inputs
from ..core.errors import TriglotError, counted
from ..core.specs import Spec
from . import findings, stages
from .functions.algorithms import load_reference
from .functions.arguments import Arguments, arguments_of
from .measures.effort import QUICK, STANDARD
from .measures.numbers import measure
from .networks import EqualWeights, load_networks
from .options import MAX_ROUNDING, ComparisonOptions
from .report import EQUIVALENT, Report
from .search import locate, search_operations
from .types import Progress, Silent
from .verdict import FUNCTION, Results, decide, report_of


def diff_networks(
    one: object,
    other: object,
    inputs: Inputs | Mapping[str, object] | None = None,
    *,
    mapping: Mapping[str, str] | None = None,
    seed: int = 0,
    action_spec: Spec | None = None,
    names: tuple[str | None, str | None] = (None, None),
    level: str = STANDARD,
    modules: bool = False,
    compare_weights: bool = False,
    max_rounding: float = MAX_ROUNDING,
) -> Report:
    """Compare two networks with the same weights, and name the likely causes of a difference.

    The weights are those of a module that already has weights, else the first network's initial
    ones. Arrays that an initializer fills with a constant, such as biases, get noise, so that a
    missing one shows. `triglot.diff.measures.numbers` says what counts as rounding.

    Args:
      one, other: networks in any form that `triglot.diff.loading.load_network` accepts: a Haiku
        function, a Linen module, an NNX or Equinox module, class or constructor, or a `Network`.
        Losses, targets and update steps: functions of arrays in JAX or PyTorch, pairs
        `(init, function)`, or `"algorithm:ppo"` for the loss of a built-in algorithm.
      inputs: spec of one input, such as `Box((4,))`; a tuple of specs for several inputs. For a
        loss, a dictionary of whole arrays by the names of its parameters: specs, texts as for
        `--inputs`, such as `"log_prob:32"`, numbers, which are not traced, or arrays. None with
        the loss of an algorithm, which defines its inputs.
      mapping: names of parameters or modules of the first network to those of the second, in the
        spelling of their libraries (`{"encoder.0": "Dense_0"}`), canonical, or the end of such a
        name, if only one ends so; None pairs parameters by name, or guesses by shape and by order
        of use.
      seed: random seed of weights, inputs and targets.
      action_spec: spec that is passed to a function of obs_spec and action_spec.
      names: names of the networks in the report.
      level: `quick` compares the functions only, not gradients, steps and initializers; `standard`
        measures large networks only as far as the verdict needs; `thorough` measures everything,
        whatever the size.
      modules: whether modules are compared side by side, which is always done for small networks.
      compare_weights: whether both networks have trained weights, which are compared too.
      max_rounding: largest difference by rounding of equivalent networks, relative to the largest
        output or gradient, in the types in which they compute.

    Raises:
      TriglotError: if a network fails on such inputs, the outputs have different shapes, no
        parameter can be paired, the level is unknown, or `max_rounding` is not positive.

    >>> import equinox as eqx, haiku as hk
    >>> from triglot.core.specs import Box
    >>> def mlp(x):
    ...     return hk.nets.MLP([8, 2])(x)
    >>> def layers(key):
    ...     return eqx.nn.MLP(4, 2, 8, 1, key=key)
    >>> diff_networks(mlp, layers, Box((4,))).verdict
    'equivalent'
    """
    options = ComparisonOptions(
        mapping=mapping,
        seed=seed,
        action_spec=action_spec,
        names=names,
        level=level,
        modules=modules,
        compare_weights=compare_weights,
        max_rounding=max_rounding,
    )
    (one, other), parsed_inputs, options = _with_references(one, other, inputs, options)
    *_, report = compare_networks(one, other, parsed_inputs, options)
    return report


def _with_references(
    first_model: object,
    second_model: object,
    inputs: Inputs | Mapping[str, object] | None,
    options: ComparisonOptions,
) -> tuple[tuple[object, object], Inputs | Arguments, ComparisonOptions]:
    """Load the losses of built-in algorithms, whose signatures define the inputs.

    Raises:
      TriglotError: if inputs are missing, or stated although an algorithm defines them.
    """
    models, names = [first_model, second_model], list(options.names)
    parsed_inputs = arguments_of(inputs) if isinstance(inputs, Mapping) else inputs
    for index, model in enumerate(models):
        if isinstance(model, str):
            reference = load_reference(model)
            if parsed_inputs is not None and inputs is not None:
                raise TriglotError(f"{model} defines the inputs: leave them out.")
            models[index], names[index] = reference.function, names[index] or model
            parsed_inputs = parsed_inputs or reference.arguments
    if parsed_inputs is None:
        raise TriglotError(
            "the inputs are missing: give a spec, such as triglot.Box((4,)), or those of a loss by "
            'name, such as {"obs": "float32:32,4", "action": "action:32"}.'
        )
    return (models[0], models[1]), parsed_inputs, replace(options, names=(names[0], names[1]))


def compare_networks(
    one: object,
    other: object,
    inputs: Inputs | Arguments,
    options: ComparisonOptions,
    progress: Progress | None = None,
) -> Iterator[Report]:
    """Compare two networks stage by stage.

    A stage reads the results of those before it and adds one of its own to `Results`.
    `triglot.diff.verdict` makes the report of them, at any point.

    Args:
      one, other, inputs: arguments of `diff_networks`.
      options: all other arguments.
      progress: shows which stage begins and what it found; None to show nothing.

    Yields:
      The report so far, after each stage; the last one is complete.
    """
    progress = progress or Silent()
    networks = load_networks(one, other, inputs, options)
    results = Results(labels=networks.labels)
    yield report_of(results)

    progress.begin("initializing both networks")
    results.parameters = parameters = stages.pair(networks)
    pairing = parameters.pairing
    if pairing.pairs:
        progress.tell(f"parameters: {counted(len(pairing.pairs), 'pair')}, {pairing.source}")
    if options.compare_weights:
        results.checkpoints = stages.compare_checkpoints(networks, pairing)
        progress.tell(
            f"{counted(len(results.checkpoints), 'different parameter')} in the checkpoints"
        )
    yield report_of(results)

    progress.begin("comparing operation by operation")
    weights = EqualWeights(networks, pairing, parameters.frozen)
    setup = stages.choose_setup(networks, weights.subjects)
    results.randomness = stages.compare_randomness(networks, weights.subjects, setup)
    results.dtypes = findings.dtype_causes(pairing, weights.subjects, setup)
    modules = options.modules or setup.effort.everything
    results.operations = operations = search_operations(weights, setup, modules=modules)
    random_state_differs = not results.randomness.same_state
    locate_all = partial(locate, random_state_differs=random_state_differs)
    if operations.differing_modes:
        results.located = locate_all(operations)
        setup = replace(setup, effort=setup.effort.of_different())
        progress.tell(report_of(results).headline)
    else:
        progress.tell("operation by operation, the functions are equal up to rounding")
    yield report_of(results)

    results.measured = measured = measure(
        *weights.subjects, setup, same_dtypes=not results.dtypes, begin=progress.begin
    )
    results.gradients = stages.compare_gradients(networks, operations, setup, measured)
    results.precision = stages.compare_precision(weights.subjects, setup, networks.labels)
    if decide(results).differs_in == FUNCTION or results.draws_differ:
        measurements, previous = measured.measurements, results.located
        results.located = locate_all(operations, measurements, previous=previous)
    elif decide(results).verdict == EQUIVALENT:
        results.weighed = stages.weigh_rounding(operations, measured, options.max_rounding)
    decision = decide(results)
    progress.tell(f"{decision.verdict}: {decision.reason}")
    yield report_of(results)

    if decision.verdict == EQUIVALENT and options.level != QUICK:
        progress.begin("locating the first rounding")
        results.rounding = stages.locate_rounding(weights.subjects, setup, measured)
    if networks.num_keys:
        progress.begin(f"comparing initializers over {networks.num_keys:,} keys")
    results.initializers = stages.compare_initializers(networks, operations.pairing)
    results.notes = networks.effort.notes
    yield report_of(results)
