"""What one training would compute first, in parts: to find the part in which two libraries differ.

Each probe depends on the parts before it only: keys, environments, outputs, gradients, optimizer.
All probes are of the first seed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...core.agent import Agent
from ...core.environment import Environment
from ...core.loop.state import RunnerState
from ...core.network import Network, Variables
from ...core.networks.architecture import NetworkSpec
from ...core.networks.combinators import part_of
from ...core.specs import Spec, sample
from ...core.types import AnyHyperparams, Obs, Params, PyTree, by_path
from .networks import SharedNames
from .random_policy import random_observations

NUM_INPUTS = 64
NUM_NORMS = 16
PROBE_KEY = 20_260_131  # of all that is drawn for the probes; no training uses it


class Outputs:
    """A network's outputs on a fixed set of inputs.

    Attributes:
      inputs: by part of the network, `[64, ...]`; one entry `""` for a network without parts. They
        are the same for every library.
    """

    def __init__(self, agent: Agent, env: Environment, inputs: PyTree = None) -> None:
        self._network = agent.network
        obs_key, self._key = jax.random.split(jax.random.key(PROBE_KEY))
        if inputs is not None:
            self.inputs = inputs
            return
        obs = random_observations(env, obs_key, count=NUM_INPUTS)
        specs = agent.networks(env.obs_spec, env.action_spec, agent.config)
        parts = self._network.parts or {"": self._network}
        self.inputs = {
            name: self._inputs(specs.get(name), env.obs_spec, obs) for name in sorted(parts)
        }

    def _inputs(self, spec: NetworkSpec | Network | None, obs_spec: Spec, obs: Obs) -> PyTree:
        """Give the observations, with drawn values for further inputs such as an action."""
        if not isinstance(spec, NetworkSpec) or spec.obs_spec == obs_spec:
            return obs

        def draw(index: int, input_spec: Spec) -> PyTree:
            if input_spec == obs_spec:
                return obs
            keys = jax.random.split(jax.random.fold_in(self._key, index), NUM_INPUTS)
            return jax.vmap(lambda key: sample(input_spec, key))(keys)

        return tuple(draw(index, input_spec) for index, input_spec in enumerate(spec.inputs))

    def __call__(self, variables: Variables, *, train: bool = False) -> dict[str, jax.Array]:
        """Compute the outputs by name, `[64, ...]` each."""
        outputs = {}
        for name, inputs in self.inputs.items():
            whole = not self._network.parts
            part: Network = self._network if whole else self._network.parts[name]
            variables_of_part = variables if whole else part_of(variables, name)
            if part.recurrent:
                inputs = (inputs, part.initial_carry(variables_of_part, NUM_INPUTS))
            returned, _ = part.apply(variables_of_part, inputs, key=self._key, train=train)
            for path, leaf in by_path(returned[0] if part.recurrent else returned).items():
                outputs["/".join(filter(None, (name, path)))] = leaf
        return outputs


@dataclass(frozen=True, kw_only=True, eq=False)
class Learning:
    """The gradients and optimizer steps that are probed, by the shared names of parameters.

    Attributes:
      agent: of one library.
      hyper: its hyperparameters, float32 `[]` each.
      names: the shared names of its network's parameters.
    """

    agent: Agent
    hyper: AnyHyperparams
    names: SharedNames

    def gradients(
        self, variables: Variables, outputs: Outputs, factors: dict[str, jax.Array]
    ) -> dict[str, jax.Array]:
        """Differentiate the sum of the network's outputs times fixed factors."""

        def objective(params: Params) -> tuple[jax.Array, tuple[()]]:
            named = outputs(Variables(params=params, state=variables.state))
            terms = [
                jnp.sum(out.astype(jnp.float32) * factors[name]) for name, out in named.items()
            ]
            return jnp.asarray(sum(terms)), ()

        grads = self.agent.network.value_and_grad(objective)(variables.params)[1]
        return self.encode(variables.params, grads)

    def factors(self, variables: Variables, outputs: Outputs) -> dict[str, jax.Array]:
        """Make the fixed factors of every output."""
        shapes = jax.eval_shape(outputs, variables)
        return {name: _pattern(out.shape) for name, out in shapes.items()}

    def fixed_gradients(self, params: Params, number: int) -> dict[str, jax.Array]:
        """Make gradients of every parameter, another set for each number."""
        named = jax.eval_shape(self.names.encode, params)
        return {name: _pattern(array.shape, number, array.dtype) for name, array in named.items()}

    def decode(self, params: Params, named: dict[str, jax.Array]) -> Params:
        """Convert gradients to the structure of the parameters."""
        # A layout may add a constant, so changes are converted by its linear part.
        return jax.jvp(self.names.decode, (self.names.encode(params),), (named,))[1]

    def steps(self, params: Params, grads: Params, count: int = 2) -> dict[str, jax.Array]:
        """Compute the changes of up to two optimizer steps with the same gradients."""
        transform = self.agent.optimizer(self.hyper)
        opt_state, changes = transform.init(params), {}
        for step in ("first step", "second step")[:count]:
            with jax.numpy_dtype_promotion("standard"):
                updates, opt_state = transform.update(grads, opt_state, params)
                params = optax.apply_updates(params, updates)
            named = self.encode(params, updates)
            changes |= {f"{step}/{name}": array for name, array in named.items()}
        return changes

    def norms(self, params: Params) -> np.ndarray:
        """Compute the global norms of all fixed gradients."""
        # Adam hides the last bit of a clipped gradient, so norms are compared by themselves;
        # several, since two orders of summation often give the same bits.
        norm, decode = jax.jit(optax.tree.norm), jax.jit(self.decode)
        return np.stack(
            [norm(decode(params, self.fixed_gradients(params, n))) for n in range(NUM_NORMS)]
        )

    def encode(self, params: Params, changes: Params) -> dict[str, jax.Array]:
        """Convert changes of parameters to shared names."""
        return jax.jvp(self.names.encode, (params,), (changes,))[1]


def probe(
    agent: Agent, state: RunnerState, variables: Variables, names: SharedNames, outputs: Outputs
) -> dict[str, np.ndarray]:
    """Compute every part once for the first seed.

    Args:
      agent: of one library.
      state: of one seed, as the training starts.
      variables: its network's.
      names: the shared names of its parameters.
      outputs: of the agent's network.

    Returns:
      Arrays called `PART/NAME`. `gradients` are those of a fixed linear function of the outputs,
      `optimizer` are the changes of two optimizer steps with fixed gradients, and their norm.
    """
    params = variables.params
    learning = Learning(agent=agent, hyper=state.agent.hyper, names=names)

    def gradients() -> dict[str, jax.Array]:
        factors = learning.factors(variables, outputs)
        return jax.jit(lambda at: learning.gradients(at, outputs, factors))(variables)

    def optimizer() -> dict[str, jax.Array | np.ndarray]:
        grads = jax.jit(learning.decode)(params, learning.fixed_gradients(params, 0))
        steps = jax.jit(learning.steps)(params, grads)
        return {**steps, "global norm": learning.norms(params)}

    parts: dict[str, Callable[[], Mapping[str, jax.Array | np.ndarray]]] = {
        "keys": lambda: {"run": jax.random.key_data(state.key)},
        "hyper": lambda: by_path(state.agent.hyper),
        "environment": lambda: by_path(state.env.obs),
        "params": lambda: names.encode(params),
        "outputs": lambda: jax.jit(outputs)(variables),
        "gradients": gradients,
        "optimizer": optimizer,
    }
    return {
        f"{part}/{name}": np.asarray(array)
        for part, compute in parts.items()
        for name, array in compute().items()
    }


def _pattern(shape: tuple[int, ...], number: int = 0, dtype: jnp.dtype = jnp.float32) -> jax.Array:
    """Make fixed numbers in [-1, 1] that differ from entry to entry."""
    places = np.arange(1, int(np.prod(shape)) + 1, dtype=np.float64)
    return jnp.asarray(np.cos(places * (1.7 + 0.31 * number)).reshape(shape), dtype)
