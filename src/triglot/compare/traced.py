"""The parts of one library's first update as recorded programs, in which operations are located."""

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file

from ..backends import libraries
from ..core.agent import Agent, Trajectory
from ..core.errors import TriglotError
from ..core.hyper import as_float32
from ..core.loop.state import RunnerState
from ..core.network import Network, Variables, num_params
from ..core.types import AnyAgentState, Key, PyTree
from ..diff.programs import Program, record
from ..diff.programs.tape import Tape
from ..diff.types import Side
from ..runs.identity import learned
from ..shared.machine.memory import nbytes
from .batches import Batch, state_before_last
from .jobs import weights_file
from .training.library import LibraryExperiment
from .training.probes import PROBE_KEY, Learning, Outputs

Named: TypeAlias = dict[str, jax.Array]

# About 1 KB of intermediate arrays for each parameter.
MAX_PARAMS = 1_000_000
MAX_STATE_BYTES = 2**25


@dataclass(frozen=True, eq=False)
class Traced:
    """One library's agent at the shared weights of the first seed.

    Attributes:
      library: its experiment, on one device.
      weights: by shared name.
      tapes: what was recorded, by its name and whether in float64.
    """

    library: LibraryExperiment
    weights: Named
    tapes: dict[tuple[Hashable, bool], Tape] = field(default_factory=dict)

    @property
    def agent(self) -> Agent:
        """The agent, as it is trained."""
        return self.library.agent

    @functools.cached_property
    def learning(self) -> Learning:
        """The gradients and optimizer steps that the training probed."""
        return Learning(
            agent=self.agent,
            hyper=as_float32(self.library.experiment.hyperparams),
            names=self.library.names,
        )

    @functools.cached_property
    def variables(self) -> Variables:
        """The network's, with the shared weights."""
        state = jax.jit(lambda key: self.agent.network.init(key).state)(jax.random.key(0))
        return Variables(params=jax.jit(self.learning.names.decode)(self.weights), state=state)

    @functools.cached_property
    def side(self) -> Side:
        """The network as `triglot diff` takes it."""
        return side_of(libraries.title(self.library.backend), self.agent.network, self.variables)

    def draws(self, inputs: PyTree) -> bool:
        """Return whether the network draws random numbers in training, as dropout does.

        Args:
          inputs: by part of the network.
        """
        outputs = self._outputs(inputs)
        traced = jax.make_jaxpr(lambda variables: outputs(variables, train=True))(self.variables)
        return "random_bits" in str(traced)

    @functools.cached_property
    def norms(self) -> np.ndarray:
        """The global norms of all sets of fixed gradients, `[16]`."""
        return self.learning.norms(self.variables.params)

    def gradients(self, inputs: PyTree, *, wide: bool) -> Tape:
        """Record the gradient of a fixed function of the outputs.

        Args:
          inputs: by part of the network.
          wide: in float64.
        """

        def function(
            named: Named, state: PyTree, inputs: PyTree, key: Key
        ) -> tuple[Named, tuple[()]]:
            del key
            variables = Variables(params=self.learning.names.decode(named), state=state)
            outputs = self._outputs(inputs["obs"])
            return self.learning.gradients(variables, outputs, inputs["factors"]), ()

        factors = self.learning.factors(self.variables, self._outputs(inputs))
        arguments = {"obs": inputs, "factors": factors}
        program = functools.partial(self._program, function, params=self.weights, inputs=arguments)
        return self._recorded("gradients", program, wide=wide)

    def optimizer(self, number: int, *, wide: bool) -> Tape:
        """Record an optimizer step, or two where `wide`: another order of sums shows in the first.

        Args:
          number: of the set of fixed gradients.
          wide: in float64.

        Raises:
          TriglotError: if there are too many parameters to keep every intermediate array.
        """
        params = self.variables.params
        if (count := num_params(params)) > MAX_PARAMS:
            raise TriglotError(
                f"the network has {count:,} parameters, and operations of the optimizer are "
                f"located up to {MAX_PARAMS:,}: compare a smaller network."
            )
        named = self.learning.fixed_gradients(params, number)
        grads = jax.jit(self.learning.decode)(params, named)

        def function(
            named: Named, state: PyTree, inputs: PyTree, key: Key
        ) -> tuple[Named, tuple[()]]:
            del named, state, key
            return self.learning.steps(*inputs, count=2 if wide else 1), ()

        # The library's own arrays: how canonical ones are packed is no part of the optimizer.
        program = functools.partial(self._program, function, inputs=(params, grads))
        return self._recorded(("optimizer", number), program, wide=wide)

    @functools.cached_property
    def start(self) -> RunnerState:
        """The state with which the first seed starts."""
        experiment = self.library.experiment
        first = replace(experiment, key=experiment.keys[:1], num_seeds=1)
        params = jax.tree.map(lambda leaf: leaf[None], self.variables.params)
        return jax.tree.map(lambda leaf: leaf[0], first.start(params))

    def update(self, batches: Sequence[Batch], *, wide: bool) -> Tape:
        """Record the agent's update from the last batch.

        The outputs are the metrics of the loss, the norms of gradients, which Adam hides, and the
        changes of all parameters, as one array each: what is 0 but for rounding is judged by the
        size of the rest.

        Args:
          batches: those of `first_batches`, of any library.
          wide: in float64.

        Raises:
          TriglotError: if the agent's state is too large to keep every intermediate array.
        """
        if (size := nbytes(self.start.agent)) > MAX_STATE_BYTES:
            raise TriglotError(
                f"the agent's state takes {size / 1e6:,.0f} MB, and operations of the update are "
                f"located up to {MAX_STATE_BYTES / 1e6:,.0f} MB: compare with a smaller replay "
                "buffer or network."
            )

        def function(
            named: Named, state: AnyAgentState, batch: Trajectory, key: Key
        ) -> tuple[list[jax.Array], tuple[()]]:
            del named
            after, metrics = self.agent.update(state, batch, key)
            before, params = (learned(agent_state).params for agent_state in (state, after))
            changes = self.learning.encode(before, jax.tree.map(jnp.subtract, params, before))
            losses, norms = (
                {name: value for name, value in metrics.items() if word in name}
                for word in ("loss", "norm")
            )
            return [_joined(losses), _joined(norms), _joined(changes)], ()

        last = batches[-1]

        def program() -> Program:
            return Program(
                function=function,
                params={},
                state=state_before_last(self.agent, self.start.agent, batches),
                inputs=last.trajectory,
                key=last.key,
                is_update=True,
            )

        return self._recorded("update", program, wide=wide)

    def _outputs(self, inputs: PyTree) -> Outputs:
        return Outputs(self.agent, self.library.env, inputs)

    def _recorded(self, name: Hashable, program: Callable[[], Program], *, wide: bool) -> Tape:
        """Record a program once, in float64 if `wide`."""
        if (name, wide) not in self.tapes:
            self.tapes[name, wide] = record(program(), wide=wide)
        return self.tapes[name, wide]

    def _program(
        self, function: Callable[..., PyTree], *, params: Named | None = None, inputs: PyTree = ()
    ) -> Program:
        return Program(
            function=function,
            params=dict(params or {}),
            state=self.variables.state,
            inputs=inputs,
            key=jax.random.key(PROBE_KEY),
        )


def side_of(label: str, network: Network, variables: Variables) -> Side:
    """Pair the parameters of a network by its own canonical names."""
    names = (
        {name: name for leaf in network.codec.leaves for name in leaf.names}
        if network.codec
        else {}
    )
    return Side(label=label, network=network, variables=variables, names=names)


def _joined(named: Mapping[str, jax.Array]) -> jax.Array:
    flat = [jnp.ravel(named[name]).astype(jnp.float32) for name in sorted(named)]
    return jnp.concatenate([jnp.zeros((0,), jnp.float32), *flat])


def shared_weights(out: Path, position: int) -> Named:
    """Load the weights with which the first seed starts in one environment of a comparison."""
    arrays = load_file(weights_file(out, position))
    return {name: jnp.asarray(array[0]) for name, array in arrays.items()}
