"""Two networks on equal inputs, at their initial weights or at equal weights."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..backends.calling import Inputs, describe_inputs
from ..backends.libraries import title
from ..backends.pairing.mapping import Target
from ..backends.pairing.stacks import align_stacks
from ..backends.pairing.statistics import translate_state
from ..core.errors import TriglotError, user_error_context
from ..core.network import Network, Variables, num_params
from ..core.specs import Box
from ..core.types import PyTree, by_path
from .functions.arguments import Argument, Arguments
from .functions.lifting import ROWS, lift_function, names_of, over_batches, with_first_output
from .inputs import batch_of, carry_of
from .loading import load_network
from .measures import effort, weights
from .measures.compiling import quick_jit
from .measures.distributions import Drawing
from .measures.effort import Effort
from .measures.singular import share_vectors
from .measures.subject import Subject, Subjects
from .options import ComparisonOptions
from .outputs import match_outputs
from .pairing.leftovers import BIASES, Frozen
from .pairing.parameters import Pairing, is_inner_bias
from .pairing.use_order import Uses, read_uses
from .types import codec_of, join_names

FrozenParameters: TypeAlias = tuple[list[Frozen], list[Frozen]]


def load_networks(
    first_model: object,
    second_model: object,
    inputs: Inputs | Arguments,
    options: ComparisonOptions,
) -> "Networks":
    """Wrap two networks in any of the forms that `load_network` accepts, or two functions.

    Two networks whose outputs have no batch, such as losses, become functions of batches.
    """
    if isinstance(inputs, Arguments):
        first, second = (
            lift_function(model, inputs, name)
            for model, name in zip((first_model, second_model), options.names, strict=True)
        )
        counts = _num_outputs(first, inputs), _num_outputs(second, inputs)
        if counts[0] != counts[1] and 1 in counts:  # a loss, and one with metrics beside it
            first, second = with_first_output(first), with_first_output(second)
        return Networks((first, second), inputs, options)
    first, second = (
        load_network(model, inputs, name=name, action_spec=options.action_spec)
        for model, name in zip((first_model, second_model), options.names, strict=True)
    )
    if all(_reduces_batch(network, inputs) for network in (first, second)):
        specs = inputs if isinstance(inputs, tuple) else (inputs,)
        boxes = tuple(spec for spec in specs if isinstance(spec, Box))
        if len(boxes) == len(specs):
            names = names_of(first_model) or names_of(second_model)
            arguments = _batch_arguments(boxes, names)
            first, second = (
                over_batches(network, arguments.names, arguments) for network in (first, second)
            )
            return Networks((first, second), arguments, options)
    return Networks(align_stacks(first, second), inputs, options)


def _num_outputs(network: Network, arguments: Arguments) -> int:
    """Count the arrays that a function returns."""
    return len(_output_shapes(network, arguments, 2))


def _output_shapes(
    network: Network, inputs: Inputs | Arguments, size: int
) -> list[jax.ShapeDtypeStruct]:
    """List the shapes of a network's outputs for a batch, without computing them."""
    with user_error_context(f"{network.name!r} failed on {_describe(inputs)}"):
        variables = jax.eval_shape(network.init, jax.random.key(0))
        batch = jax.eval_shape(lambda: _batch_of(inputs, size, jax.random.key(0)))
        return jax.tree.leaves(jax.eval_shape(network.apply, variables, batch)[0])


def _describe(inputs: Inputs | Arguments) -> str:
    return str(inputs) if isinstance(inputs, Arguments) else describe_inputs(inputs)


def _batch_of(inputs: Inputs | Arguments, size: int, key: jax.Array) -> PyTree:
    """Draw a batch of inputs; the examples of a function's arguments are whole batches."""
    if isinstance(inputs, Arguments):
        return inputs.draw(size, key)
    return batch_of(inputs, size, key)


def _reduces_batch(network: Network, inputs: Inputs) -> bool:
    """Return whether no output of a network has the batch as its leading axis."""
    return not network.recurrent and not any(
        leaf.shape[:1] == (size,)
        for size in (2, 3)
        for leaf in _output_shapes(network, inputs, size)
    )


def _batch_arguments(specs: tuple[Box, ...], names: list[str]) -> Arguments:
    """Describe batches of rows whose specs are known."""
    argument_names = (
        names if len(names) == len(specs) else [f"input_{i}" for i in range(len(specs))]
    )
    return Arguments(
        tuple(
            Argument(name, replace(spec, shape=(ROWS, *spec.shape)))
            for name, spec in zip(argument_names, specs, strict=True)
        )
    )


def _check_numbers(network: Network, variables: Variables) -> None:
    """Reject NaN weights: all results would be NaN, and NaN compares equal here."""
    if not any(map(_is_broken, jax.tree.leaves(variables))):
        return
    arrays, display_names = weights.canonical(network, variables), codec_of(network).display_names
    broken = [display_names[name] for name, array in arrays.items() if _is_broken(array)]
    broken += [f"state {path}" for path, leaf in by_path(variables.state).items()
               if _is_broken(leaf)]  # fmt: skip
    raise TriglotError(
        f"{network.name!r} has NaN in {join_names(broken)}: no "
        "difference would show. Give finite weights."
    )


def _is_broken(array: jax.Array | np.ndarray) -> bool:
    """Return whether a number is NaN; keys have none."""
    return jnp.issubdtype(array.dtype, jnp.floating) and bool(np.any(np.isnan(np.asarray(array))))


@dataclass(frozen=True, eq=False)
class Networks:
    """Two networks with their initial weights, inputs and keys; each property is computed once.

    Attributes:
      networks: both networks, in native arithmetic.
      inputs: spec of one input, or the arguments of two functions.
      options: options of the comparison.
    """

    networks: tuple[Network, Network]
    inputs: Inputs | Arguments
    options: ComparisonOptions

    @cached_property
    def keys(self) -> dict[str, jax.Array]:
        names = ("one", "other", "inputs", "carry", "training", "random")
        split = jax.random.split(jax.random.key(self.options.seed), len(names))
        return dict(zip(names, split, strict=True))

    @cached_property
    def labels(self) -> tuple[str, str]:
        first, second = (f"{each.name} ({title(each.backend)})" for each in self.networks)
        return (first, second) if first != second else (f"{first}, one", f"{second}, other")

    @cached_property
    def effort(self) -> Effort:
        """How much is measured, chosen by the size of both networks."""
        programs, sizes = [], []
        for network in self.networks:
            with user_error_context(f"{network.name!r} failed when it was initialized"):
                variables = jax.eval_shape(network.init, self.keys["one"])
            example = jax.eval_shape(lambda n=network, v=variables: self._batch(n, v, 1))
            with self._error_context(network):
                programs.append(jax.make_jaxpr(network.apply)(variables, example).jaxpr)
            sizes.append(num_params(variables.params))
        return effort.choose(self.options.level, programs, max(sizes))

    @cached_property
    def drawings(self) -> tuple[Drawing, Drawing]:
        """Initial variables of both networks, and what their initializers draw over keys."""
        drawings = []
        for network, name in zip(self.networks, ("one", "other"), strict=True):
            with user_error_context(f"{network.name!r} failed when it was initialized"):
                drawings.append(Drawing(network, self.keys[name], self.effort.num_keys))
        return drawings[0], drawings[1]

    @property
    def num_keys(self) -> int:
        """Number of keys over which initializers are compared; 0 if they are not."""
        return min(drawing.num_keys for drawing in self.drawings)

    @cached_property
    def initial(self) -> Subjects:
        """Both networks at their initial variables, with the outputs that they share.

        Raises:
          TriglotError: if weights are not a number.
        """
        variables = [drawing.variables for drawing in self.drawings]
        for network, initial in zip(self.networks, variables, strict=True):
            _check_numbers(network, initial)
        batches = [
            self._batches(network, initial)
            for network, initial in zip(self.networks, variables, strict=True)
        ]
        shapes = [
            self._shapes(*each) for each in zip(self.networks, variables, batches, strict=True)
        ]
        names = self.networks[0].name, self.networks[1].name
        shared = match_outputs(shapes[0], shapes[1], names)
        random, leaves = np.random.default_rng(self.options.seed), jax.tree.leaves(shapes[0])
        targets = tuple(random.standard_normal(leaves[each.indices[0]].shape) for each in shared)
        first, second = (
            Subject(
                label=self.labels[index],
                network=self.networks[index],
                variables=variables[index],
                names={},
                of_batches=isinstance(self.inputs, Arguments),
                batches=batches[index],
                outputs=tuple((each.name, each.indices[index]) for each in shared),
                targets=targets,
            )
            for index in (0, 1)
        )
        return first, second

    @cached_property
    def smallest_batch(self) -> int:
        """Smaller number of examples: 1, or 2 where training needs it, as batch normalization."""
        for network, drawing in zip(self.networks, self.drawings, strict=True):
            if not self._trains_on(network, drawing.variables, 1):
                return 2 if self._trains_on(network, drawing.variables, 2) else 1
        return 1

    def _trains_on(self, network: Network, variables: Variables, size: int) -> bool:
        """Return whether a network can be traced in training on a number of examples."""
        key = self.keys["training"]

        def call(v: Variables) -> PyTree:
            return network.apply(v, self._batch(network, v, size), key=key, train=True)

        try:
            jax.eval_shape(call, variables)
        except Exception:
            return False
        return True

    def _batches(self, network: Network, variables: Variables) -> dict[int, PyTree]:
        sizes = self.smallest_batch, self.effort.batch
        largest = quick_jit(lambda v: self._batch(network, v, max(sizes)))(variables)
        return {size: jax.tree.map(lambda x, size=size: x[:size], largest) for size in sizes}

    def _batch(self, network: Network, variables: Variables, size: int) -> PyTree:
        """Draw inputs `[size, ...]`, with a carry if the network takes one."""
        inputs = _batch_of(self.inputs, size, self.keys["inputs"])
        if not network.recurrent:
            return inputs
        return inputs, carry_of(network, variables, size, self.keys["carry"])

    def _shapes(self, network: Network, variables: Variables, batches: dict[int, PyTree]) -> PyTree:
        """Return the shapes of a network's outputs for the largest batch."""
        with self._error_context(network):
            return jax.eval_shape(
                lambda v, i: network.apply(v, i)[0], variables, batches[max(batches)]
            )

    def _error_context(self, network: Network) -> AbstractContextManager[None]:
        return user_error_context(f"{network.name!r} failed on {_describe(self.inputs)}")

    def uses(self) -> tuple[Uses, Uses]:
        """Read how both networks use their parameters."""
        return self._uses

    @cached_property
    def _uses(self) -> tuple[Uses, Uses]:
        first, second = (
            read_uses(side.network, side.variables, side.example, [i for _, i in side.outputs])
            for side in self.initial
        )
        return first, second

    def subjects(
        self, pairing: Pairing, frozen: FrozenParameters, *, repaired: bool = False
    ) -> Subjects:
        """Put the same weights into both networks.

        Args:
          pairing: pairs of parameters that get equal values, some of them transposed.
          frozen: values of parameters that the other side holds outside its parameters.
          repaired: whether biases and scales that the other side lacks are set to 0 and 1.
        """
        transposed = _transposed_names(pairing)
        networks = [
            weights.with_transposed(network, names)
            for network, names in zip(self.networks, transposed, strict=True)
        ]
        arrays = [
            weights.with_noise(
                weights.canonical(network, start.variables), self.options.seed + index
            )
            for index, (network, start) in enumerate(zip(networks, self.initial, strict=True))
        ]
        from_other = self.networks[0].random_start and not self.networks[1].random_start
        shared_values = weights.shared_values(pairing, arrays[from_other], from_other=from_other)
        statistics = self._statistics(pairing, from_other=from_other)
        pairs = pairing.by_name().items()
        names = {name: p.one for name, p in pairs}, {name: p.other for name, p in pairs}
        unpaired = pairing.only_one, pairing.only_other
        subjects = []
        for index, (network, start) in enumerate(zip(networks, self.initial, strict=True)):
            values = {
                each.name: _unpaired_value(each.name, arrays[index][each.name], repaired=repaired)
                for each in unpaired[index]
            }
            values |= {names[index][name]: array for name, array in shared_values.items()}
            values |= {each.name: each.value for each in frozen[index]}
            variables = weights.replace_parameters(network, start.variables, values)
            if statistics is not None and index != from_other:
                variables = Variables(params=variables.params, state=statistics)
            subjects.append(
                replace(start, network=network, variables=variables, names=names[index])
            )
        return share_vectors((subjects[0], subjects[1]), pairing, self.options.seed)

    def _statistics(self, pairing: Pairing, *, from_other: bool) -> PyTree:
        """Translate the running statistics of trained weights; None to keep the other side's."""
        order = (1, 0) if from_other else (0, 1)
        source, target = (self.networks[i] for i in order)
        trained, initial = (self.initial[i].variables.state for i in order)
        if source.random_start or not (jax.tree.leaves(trained) and jax.tree.leaves(initial)):
            return None
        names = [(pair.one, pair.other) for pair in pairing.pairs]
        targets = {pair[order[0]]: Target(pair[order[1]]) for pair in names}
        try:
            return translate_state(trained, source, initial, target, targets)
        except TriglotError:
            return None


def _transposed_names(pairing: Pairing) -> tuple[set[str], set[str]]:
    """Name the parameters of each side that are stored transposed."""
    firsts = [pair.one for pair in pairing.pairs]
    seconds = [pair.other for pair in pairing.pairs]
    names: tuple[set[str], set[str]] = (set(), set())
    for pair in pairing.pairs:
        if pair.transposed:  # on the side where no other pair has the same array
            side = 0 if seconds.count(pair.other) > 1 and firsts.count(pair.one) == 1 else 1
            names[side].add((pair.one, pair.other)[side])
    return names


def _unpaired_value(name: str, array: np.ndarray, *, repaired: bool) -> np.ndarray:
    """Return the value of a parameter that the other network lacks."""
    if is_inner_bias(name):  # only one of the two variants of the GRU has this bias
        return np.zeros_like(array)
    if repaired and name.rpartition("/")[2] in (*BIASES, "scale"):
        return np.full_like(array, name.endswith("scale"))
    return array


@dataclass(frozen=True, eq=False)
class EqualWeights:
    """Two networks with the same weights.

    Attributes:
      networks: both networks.
      pairing: pairing of their parameters.
      frozen: values of parameters that the other side holds outside its parameters.
    """

    networks: Networks
    pairing: Pairing
    frozen: FrozenParameters

    @cached_property
    def subjects(self) -> Subjects:
        """Both networks at `pairing`."""
        return self.networks.subjects(self.pairing, self.frozen)

    @property
    def has_state(self) -> bool:
        """Whether a network has a state, such as running statistics."""
        return any(jax.tree.leaves(subject.variables.state) for subject in self.subjects)

    def at(self, pairing: Pairing, *, repaired: bool = False) -> Subjects:
        """Return both networks at any pairing; no copy is kept of new weights.

        Args:
          pairing: pairing of their parameters.
          repaired: whether biases and scales that the other side lacks are set to 0 and 1.
        """
        if pairing is self.pairing and (pairing.is_complete or not repaired):
            return self.subjects
        return self.networks.subjects(pairing, self.frozen, repaired=repaired)
