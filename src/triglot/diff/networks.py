"""Two networks on equal inputs: their initial weights, and equal ones at a pairing."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ..backends.calling import Inputs, describe_inputs
from ..backends.libraries import title
from ..backends.pairing.mapping import Target
from ..backends.pairing.statistics import translate_state
from ..core.errors import TriglotError, user_error_context
from ..core.network import Network, Variables, num_params
from ..core.types import by_path
from .inputs import batch_of, carry_of
from .measures import effort, weights
from .measures.compiling import quick_jit
from .measures.distributions import Drawing
from .measures.effort import Effort
from .measures.subject import Subject
from .outputs import match_outputs
from .pairing.leftovers import BIASES, Frozen
from .pairing.parameters import Pairing, is_inner_bias
from .pairing.use_order import Uses, read_uses
from .types import listed

FrozenOnes: TypeAlias = tuple[list[Frozen], list[Frozen]]


def _check_numbers(network: Network, variables: Variables) -> None:
    """Reject weights that are not a number: all results are, and equal whatever is computed."""
    if not any(map(_is_broken, jax.tree.leaves(variables))):
        return
    named = weights.canonical(network, variables)
    broken = [name for name, array in named.items() if _is_broken(array)]
    broken += [f"state {path}" for path, leaf in by_path(variables.state).items()
               if _is_broken(leaf)]  # fmt: skip
    raise TriglotError(
        f"{network.name!r} has weights that are not a number (NaN) in {listed(broken)}: no "
        "difference would show. Give finite weights."
    )


def _is_broken(array: Any) -> bool:
    """Return whether a number is NaN; keys have none."""
    return jnp.issubdtype(array.dtype, jnp.floating) and bool(np.any(np.isnan(np.asarray(array))))


@dataclass(frozen=True, eq=False)
class Networks:
    """Two networks, and what is drawn for them; each is computed once.

    Attributes:
      networks: in native arithmetic.
      inputs: the spec of one input.
      mapping: of parameters, as the user stated it.
      seed: of weights, inputs and targets.
      level: one of `triglot.diff.measures.effort.LEVELS`.
    """

    networks: tuple[Network, Network]
    inputs: Inputs
    mapping: Mapping[str, str] | None
    seed: int
    level: str

    @cached_property
    def keys(self) -> dict[str, jax.Array]:
        names = ("one", "other", "inputs", "carry", "training", "random")
        split = jax.random.split(jax.random.key(self.seed), len(names))
        return dict(zip(names, split, strict=True))

    @cached_property
    def labels(self) -> tuple[str, str]:
        first, second = (f"{each.name} ({title(each.backend)})" for each in self.networks)
        return (first, second) if first != second else (f"{first}, one", f"{second}, other")

    @cached_property
    def effort(self) -> Effort:
        """What is measured, by the size of both networks."""
        programs, sizes = [], []
        for network in self.networks:
            with user_error_context(f"{network.name!r} failed when it was initialized"):
                variables = jax.eval_shape(network.init, self.keys["one"])
            example = jax.eval_shape(lambda n=network, v=variables: self._batch(n, v, 1))
            with self._called(network):
                programs.append(jax.make_jaxpr(network.apply)(variables, example).jaxpr)
            sizes.append(num_params(variables.params))
        return effort.choose(self.level, programs, max(sizes))

    @cached_property
    def drawn(self) -> tuple[Drawing, Drawing]:
        made = []
        for network, name in zip(self.networks, ("one", "other"), strict=True):
            with user_error_context(f"{network.name!r} failed when it was initialized"):
                made.append(Drawing(network, self.keys[name], self.effort.num_keys))
        return made[0], made[1]

    @cached_property
    def starts(self) -> tuple[Subject, Subject]:
        """Both networks at their initial variables, with the outputs that they share.

        Raises:
          TriglotError: if weights are not a number.
        """
        for network, drawn in zip(self.networks, self.drawn, strict=True):
            _check_numbers(network, drawn.variables)
        given = [
            (network, drawn.variables, self._batches(network, drawn.variables))
            for network, drawn in zip(self.networks, self.drawn, strict=True)
        ]
        shapes = [self._shapes(*each) for each in given]
        names = self.networks[0].name, self.networks[1].name
        shared = match_outputs(shapes[0], shapes[1], names)
        random, leaves = np.random.default_rng(self.seed), jax.tree.leaves(shapes[0])
        targets = tuple(random.standard_normal(leaves[each.indices[0]].shape) for each in shared)
        one, other = (
            Subject(
                label=self.labels[index],
                network=network,
                variables=variables,
                names={},
                batches=batches,
                outputs=tuple((each.name, each.indices[index]) for each in shared),
                targets=targets,
            )
            for index, (network, variables, batches) in enumerate(given)
        )
        return one, other

    def _batches(self, network: Network, variables: Variables) -> dict[int, Any]:
        largest = self.effort.batch
        whole = quick_jit(lambda v: self._batch(network, v, largest))(variables)
        return {size: jax.tree.map(lambda x, size=size: x[:size], whole) for size in (1, largest)}

    def _batch(self, network: Network, variables: Variables, size: int) -> Any:
        """Draw inputs `[size, ...]`, with a carry if the network takes one."""
        inputs = batch_of(self.inputs, size, self.keys["inputs"])
        if not network.recurrent:
            return inputs
        return inputs, carry_of(network, variables, size, self.keys["carry"])

    def _shapes(self, network: Network, variables: Variables, batches: dict[int, Any]) -> Any:
        """Return the shapes of a network's outputs for the largest batch."""
        with self._called(network):
            return jax.eval_shape(
                lambda v, i: network.apply(v, i)[0], variables, batches[max(batches)]
            )

    def _called(self, network: Network) -> Any:
        return user_error_context(f"{network.name!r} failed on {describe_inputs(self.inputs)}")

    def uses(self) -> tuple[Uses, Uses]:
        """Read how both networks use their parameters."""
        return self._uses

    @cached_property
    def _uses(self) -> tuple[Uses, Uses]:
        one, other = (
            read_uses(side.network, side.variables, side.example, [i for _, i in side.outputs])
            for side in self.starts
        )
        return one, other

    def _statistics(self, pairing: Pairing, *, from_other: bool) -> Any:
        """Return the running statistics of trained weights for the other side; None to keep its."""
        order = (1, 0) if from_other else (0, 1)
        source, target = (self.networks[i] for i in order)
        given, start = (self.starts[i].variables.state for i in order)
        if source.random_start or not (jax.tree.leaves(given) and jax.tree.leaves(start)):
            return None
        pairs = {(p.one, p.other)[order[0]]: Target((p.one, p.other)[order[1]])
                 for p in pairing.pairs}  # fmt: skip
        try:
            return translate_state(given, source, start, target, pairs)
        except TriglotError:
            return None

    def subjects(
        self, pairing: Pairing, frozen: FrozenOnes, *, repaired: bool = False
    ) -> tuple[Subject, Subject]:
        """Put equal weights into both networks.

        Args:
          pairing: says which parameters are equal, and which are transposed.
          frozen: values of parameters that the other side holds outside its parameters.
          repaired: set biases and scales that the other side lacks to 0 and 1.
        """
        named_pairs = pairing.by_name().items()
        shared = {n: p.one for n, p in named_pairs}, {n: p.other for n, p in named_pairs}
        ones = [pair.one for pair in pairing.pairs]
        others = [pair.other for pair in pairing.pairs]
        turned: tuple[set[str], set[str]] = (set(), set())
        for pair in pairing.pairs:
            if pair.transposed:  # on the side where no other pair has the same array
                side = 0 if others.count(pair.other) > 1 and ones.count(pair.one) == 1 else 1
                turned[side].add((pair.one, pair.other)[side])
        networks = [
            weights.with_transposed(n, t) for n, t in zip(self.networks, turned, strict=True)
        ]
        own = [
            weights.with_noise(weights.canonical(network, start.variables), self.seed + index)
            for index, (network, start) in enumerate(zip(networks, self.starts, strict=True))
        ]
        from_other = self.networks[0].random_start and not self.networks[1].random_start
        values = weights.shared_values(pairing, own[from_other], from_other=from_other)
        moved = self._statistics(pairing, from_other=from_other)
        subjects = []
        for index, (network, start) in enumerate(zip(networks, self.starts, strict=True)):
            left = (pairing.only_one, pairing.only_other)[index]
            named = {each.name: own[index][each.name] for each in left}
            for name, array in named.items():
                if is_inner_bias(name):  # one of two variants has no such bias
                    named[name] = np.zeros_like(array)
                elif repaired and name.rpartition("/")[2] in (*BIASES, "scale"):
                    named[name] = np.full_like(array, name.endswith("scale"))
            named |= {shared[index][name]: array for name, array in values.items()}
            named |= {each.name: each.value for each in frozen[index]}
            variables = weights.put(network, start.variables, named)
            if moved is not None and index != from_other:
                variables = Variables(params=variables.params, state=moved)
            subjects.append(
                replace(start, network=network, variables=variables, names=shared[index])
            )
        return subjects[0], subjects[1]
