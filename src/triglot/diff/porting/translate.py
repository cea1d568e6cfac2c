"""`triglot translate`: convert a checkpoint of one library into another's network."""

import fnmatch
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from ...backends import libraries
from ...backends.calling import Inputs
from ...backends.pairing.author_names import display_pairs
from ...backends.pairing.guessing import mapping_of
from ...backends.pairing.mapping import Target
from ...backends.pairing.stacks import align_stacks
from ...backends.translate import move
from ...core.errors import TriglotError, user_error_context, writing
from ...core.network import Network, Variables, num_params
from ...core.specs import Spec
from ...core.types import PyTree
from ...runs.registry.loading import load
from ...shared.terminal.progress import phase
from ..compare import diff_networks
from ..inputs import batch_of, carry_of
from ..loading import load_network
from .files import OF_KERAS, ORDERED, check_kind, read_weights, write_weights
from .keras_files import KerasModel, built_model, save_model
from .layouts import network_of
from .names import named_arrays, variables_from
from .options import TranslateOptions
from .pairs import Paired, naturally, pair

IN_ORDER = (".pt", ".pth", ".bin")
BATCH = 8
UNIT = 2.0**-23  # of float32, relative to the largest output
TOLERANCE = 1024  # units by which sums in another order differ in deep networks
SAME, DIFFERENT = 0, 1


def port(
    options: TranslateOptions,
    inputs: Inputs,
    action_spec: Spec | None,
    mapping: Mapping[str, str],
) -> int:
    """Convert the weights, print the mapping, check the function and write the file.

    Args:
      options: the options of the command.
      inputs: one observation of both networks; a tuple for several.
      action_spec: the action spec of the environment, if there is one.
      mapping: names of the file to those of the network, as `translate` takes them; empty to pair
        by names, or by shape and order.

    Returns:
      The exit code: 0 if the functions agree or could not be compared, 1 if they differ.

    Raises:
      TriglotError: if the file or a network cannot be read, or the weights do not fit.
    """
    if options.out is not None:
        check_kind(options.out)
    with phase("reading"):
        arrays = read_weights(options.weights, trust=options.trust)
    arrays = _leave_out(arrays, options.ignore, options.weights)
    nonfinite = [name for name, array in arrays.items() if not np.all(np.isfinite(array))]
    if nonfinite:
        more = f" and {len(nonfinite) - 1} more" if nonfinite[1:] else ""
        print(f"warning: NaN or infinite numbers in {nonfinite[0]}{more}, which are translated too")
    with phase("building"):
        target = _network(options.network, inputs, action_spec, options.to, "--to")
        model = _model_to_save(options, target, inputs)
        source, variables = _source(options, arrays, target, inputs, action_spec)
        source, target = align_stacks(source, target)
    with phase("pairing the parameters"):
        order = None if options.source else _order(source, arrays, options.weights)
        example = _inputs_of(target, target.init(jax.random.key(0)), inputs, options.seed, 1)
        paired = pair(source, variables, target, mapping or None, example, order)
        translated = move(variables, source, target, paired.targets, split=bool(mapping))
    _print_mapping(paired, translated, (source, target))
    code = SAME
    if options.source is None:
        print(
            "The function was not checked, since the file holds weights only: give the network "
            "that was saved, --source my_file:net."
        )
    else:
        code = _check(options, (source, variables), (target, translated), inputs, paired.targets)
    if options.out is not None:
        with writing(options.out):
            if model is None:
                write_weights(options.out, named_arrays(translated, target))
            else:
                save_model(model, translated, options.out)
        print(f"Weights of {options.network} ({libraries.title(target.backend)}): {options.out}")
    return code


def _leave_out(
    arrays: dict[str, np.ndarray], patterns: tuple[str, ...], path: Path
) -> dict[str, np.ndarray]:
    for pattern in patterns:
        if not fnmatch.filter(arrays, pattern):
            names = ", ".join(list(arrays)[:6])
            raise TriglotError(
                f"--ignore {pattern} matches no array of {path}, whose arrays are {names} ..."
            )
    return {
        name: array
        for name, array in arrays.items()
        if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    }


def _network(
    text: str, inputs: Inputs, action_spec: Spec | None, library: str | None, option: str
) -> Network:
    with user_error_context(f"{text} cannot be built"):
        network = load_network(load("network", text), inputs, name=text, action_spec=action_spec)
    if library is not None:
        libraries.find(library)
        if network.backend != library:
            raise TriglotError(
                f"{option} {library}, and {text} is a network of {network.backend}: leave out "
                f"{option}, or give another network."
            )
    return network


def _model_to_save(options: TranslateOptions, target: Network, inputs: Inputs) -> KerasModel | None:
    """Make the Keras model that will write `--out`; None for another kind of file."""
    if options.out is None or options.out.suffix != OF_KERAS:
        return None
    if target.backend != "keras":
        raise TriglotError(
            f"--out {options.out} is a file of Keras, and {options.network} is a network of "
            f"{libraries.title(target.backend)}: write .safetensors, .npz, .msgpack or .pt."
        )
    return built_model(load("network", options.network), options.out, inputs, options.network)


def _source(
    options: TranslateOptions,
    arrays: dict[str, np.ndarray],
    target: Network,
    inputs: Inputs,
    action_spec: Spec | None,
) -> tuple[Network, Variables]:
    """Find what the arrays are: by the network that was saved, or by the library's layers."""
    path = options.weights
    if options.source is not None and path.suffix == OF_KERAS:
        model = built_model(load("network", options.source), path, inputs, options.source)
        with user_error_context(f"{options.source} cannot read {path}"):
            model.load_weights(path)
        source = load_network(model, inputs, name=options.source, action_spec=action_spec)
        return source, source.init(jax.random.key(0))
    if options.source is not None:
        source = _network(options.source, inputs, action_spec, options.from_, "--from")
        variables, unused = variables_from(arrays, source, path)
        if unused:
            print(f"not used, since {options.source} has no place for them: {', '.join(unused)}")
        return source, variables
    if path.suffix in (ORDERED, OF_KERAS):
        raise TriglotError(
            f"{path} has no names of arrays, only their order in each layer or module: give the "
            "network that was saved, --source my_file:net."
        )
    library = options.from_
    if library is None and (writer := libraries.find_by_suffix(path.suffix)) is not None:
        library = writer.name
    if library is None:
        raise TriglotError(
            f"any library may have written {path}: give --from, such as --from torch, or the "
            "network that was saved, --source my_file:net."
        )
    source = network_of(arrays, library, target, path.name)
    for note in source.notes:
        print(f"note: {note}")
    return source.network, source.variables


def _order(source: Network, arrays: Mapping[str, np.ndarray], path: Path) -> list[str]:
    """List a file's canonical names in the order of its layers.

    PyTorch's own files keep the order of the module; safetensors sort by name.
    """
    codec = source.require_codec("weights cannot be translated")
    leaves = codec.treedef.unflatten(codec.leaves)
    names = list(arrays) if path.suffix in IN_ORDER else sorted(leaves, key=naturally)
    return [canonical for name in names if name in leaves for canonical in leaves[name].names]


def _print_mapping(
    paired: Paired, translated: Variables, networks: tuple[Network, Network]
) -> None:
    leaves = [network.require_codec("weights cannot be translated").by_name for network in networks]
    pairs = mapping_of({name: to.name for name, to in paired.targets.items()})
    stated = display_pairs(pairs, (leaves[0], leaves[1]))
    print(f"{num_params(translated.params):,} parameters, paired {paired.method}:")
    width = max(map(len, stated), default=0)
    for name, target_name in stated.items():
        print(f"  {name:<{width}}  ->  {target_name}")
    if paired.assumed:
        assumed = ", ".join(leaves[0][name].display_name(name) for name in paired.assumed)
        print(f"Assumed to have the same layout (no listed layer): {assumed}")
    if paired.is_guess:
        words = " ".join(
            shlex.quote(f"{name}={target_name}") for name, target_name in stated.items()
        )
        print(f"To keep these pairs: --mapping {words}")


def _inputs_of(
    network: Network, variables: Variables, inputs: Inputs, seed: int, size: int
) -> PyTree:
    """Draw a batch of inputs, with a carry for a recurrent network."""
    key, carry_key = jax.random.split(jax.random.key(seed))
    batch = batch_of(inputs, size, key)
    return (batch, carry_of(network, variables, size, carry_key)) if network.recurrent else batch


def _check(
    options: TranslateOptions,
    source: tuple[Network, Variables],
    target: tuple[Network, Variables],
    inputs: Inputs,
    pairs: Mapping[str, Target],
) -> int:
    """Compare the outputs in evaluation; where they differ, print what `diff` finds."""
    with phase("comparing the functions"):
        outputs = []
        for network, variables in (source, target):
            batch = _inputs_of(network, variables, inputs, options.seed, BATCH)
            with user_error_context(f"{network.name} failed on the inputs"):
                outputs.append(jax.tree.leaves(jax.jit(network.apply)(variables, batch)[0]))
    shapes = [[tuple(leaf.shape) for leaf in side] for side in outputs]
    if shapes[0] != shapes[1]:
        raise TriglotError(
            f"{options.source} returns outputs of shapes {shapes[0]}, and {options.network} of "
            f"{shapes[1]}: they compute different functions."
        )
    pairs_of_leaves = zip(outputs[0], outputs[1], strict=True)
    difference = max(float(jnp.abs(a - b).max(initial=0.0)) for a, b in pairs_of_leaves)
    largest = max(float(jnp.abs(leaf).max(initial=0.0)) for leaf in outputs[0])
    units = difference / (largest * UNIT) if largest else difference / UNIT
    size = f"(the largest is {largest:.3g})"
    measured = f"outputs of {BATCH} inputs differ by up to {difference:.2g} {size}"
    if np.isfinite(largest) and np.isfinite(difference) and units <= TOLERANCE:
        exact = (
            "The functions are the same, bit for bit" if difference == 0 else "The functions agree"
        )
        print(f"{exact}: {measured}." if difference else f"{exact}, on {BATCH} inputs.")
        return SAME
    print(f"The functions differ: {measured}. What `triglot diff` finds with these weights:")
    fixed = [
        replace(network, init=lambda key, v=variables: v, random_start=False)
        for network, variables in (source, target)
    ]
    names = {name: pair.name for name, pair in pairs.items()}
    print(
        diff_networks(
            fixed[0], fixed[1], inputs, mapping=names, names=(options.source, options.network)
        )
    )
    return DIFFERENT
