"""An agent whose network has parameters of their own for each observation.

What is learned about one observation is then read separately from what is learned about another:
nothing is shared by generalization. The agent's settings are changed so that nothing else couples
the steps of a rollout.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np
import optax

from ...core import specs
from ...core.agent import Agent
from ...core.errors import TriglotError
from ...core.network import Network, Variables
from ...core.networks.architecture import NetworkSpec
from ...core.networks.combinators import combine
from ...core.records import Values
from ...core.rl.optimizers import sgd
from ...core.types import AnyAgentState, AnyHyperparams, Key, PyTree, abstract_key
from ..trees import by_path, flat, is_inexact

ROWS = "rows_by_observation"  # part of the path of each such parameter in a state
CONSTANTS = "constants_by_observation"  # the same, of what is added to each row
NUM_PROJECTIONS = 4
MODERATE = 1e4  # of an observation's floats

# One gradient step on all that was collected: a number that all steps share, such as a temperature,
# then carries nothing from one step to another, and one that all steps contribute to, such as the
# mean of the advantages, is the same if the steps are exchanged.
SETTINGS: Values = {
    "num_envs": 6,
    "rollout_length": 12,
    "num_epochs": 1,
    "num_minibatches": 1,
    "num_gradient_steps": 1,
    "policy_delay": 1,
    "batch_size": 48,
    "buffer_size": 144,
    "learning_starts": 144,
    "burn_in_length": 0,
    "unroll_length": 12,
    "normalize_obs": False,  # observations are recognized by their values
}
# Samples do not depend on errors, so that equal keys draw equal steps.
HYPERPARAMETERS: Values = {"priority_exponent": 0.0}


class NotSeparable(Exception):
    """The agent's parameters cannot be separated; the message says why."""


@dataclass(frozen=True)
class Separated:
    """An agent with parameters for each observation.

    Attributes:
      agent: the agent with other settings and another network.
      obs: the observations `[P, ...]`, all different.
      changed: the settings that differ from the given agent's, by name.
    """

    agent: Agent
    obs: PyTree
    changed: Values

    def rows(self, state: AnyAgentState) -> dict[str, np.ndarray]:
        """Read what was learned: `[P, ...]` each, by the path in the state; 0 before learning."""
        size = num_rows(self.obs)
        rows = {}
        for path, leaf in by_path(state).items():
            if ROWS in path.split("."):
                array = np.asarray(leaf)
                rows[path] = np.moveaxis(array, array.shape.index(size + 1), 0)[:size]
        return rows


def num_rows(obs: PyTree) -> int:
    """Count the observations `[P, ...]`."""
    return jax.tree.leaves(obs)[0].shape[0]


def small(agent: Agent) -> tuple[Agent, Values]:
    """Replace the settings of an agent; also return those that differ.

    An agent without a dataclass as its `config`, or whose settings refuse this, stays as it is.
    """
    config, hyper = getattr(agent, "config", None), getattr(agent, "hyper", None)
    if not (_is_record(agent) and _is_record(config) and _is_record(hyper)):
        return agent, {}
    known = {field.name for field in dataclasses.fields(config)}
    wanted = {name: value for name, value in SETTINGS.items() if name in known}
    numbers = {field.name for field in dataclasses.fields(hyper)} & HYPERPARAMETERS.keys()
    if getattr(config, "prioritized", True) is False:
        numbers -= {"priority_exponent"}
    replaced: dict[str, Any] = {
        "config": replace(config, **wanted),
        "hyper": replace(hyper, **{name: HYPERPARAMETERS[name] for name in numbers}),
    }
    is_plain = getattr(agent, "optimizer", None) is sgd and not hasattr(hyper, "max_grad_norm")
    if "optimizer" in {field.name for field in dataclasses.fields(agent)} and not is_plain:
        replaced["optimizer"] = plain_sgd
    before = {**vars(config), **vars(hyper)}
    now = {**wanted, **{name: HYPERPARAMETERS[name] for name in numbers}}
    return replace(agent, **replaced), {k: v for k, v in now.items() if before[k] != v}


def plain_sgd(hyper: AnyHyperparams) -> optax.GradientTransformation:
    """Build gradient descent without a global norm, which would scale all steps by one number."""
    return optax.sgd(hyper.learning_rate)


def separate(agent: Agent, obs_spec: specs.Spec, count: int, key: jax.Array) -> Separated:
    """Give an agent a network with parameters for each of `count` observations.

    Args:
      agent: of `small`.
      obs_spec: of its environment. A `Discrete` one with fewer values is enlarged.
      count: `P`.
      key: of the observations.

    Raises:
      NotSeparable: saying why it is impossible.
    """
    network = getattr(agent, "network", None)
    if not (_is_record(agent) and isinstance(network, Network)):
        raise NotSeparable(
            "it has no field `network` with a triglot.nn.Network, whose parameters could be read "
            "for each observation separately"
        )
    enlarged, with_specs = obs_spec, {}
    if isinstance(obs_spec, specs.Discrete) and obs_spec.num_values < count:
        enlarged = replace(obs_spec, num_values=count)
        with_specs["obs_spec"] = enlarged
    obs = _different(enlarged, count, key)
    try:
        described = agent.networks(obs_spec, agent.action_spec, agent.config)
        parts = network.parts or {"": network}
        new = {
            name: _separated(part, described.get(name), obs_spec, obs)
            for name, part in parts.items()
        }
        whole = combine(new) if network.parts else new[""]
        return Separated(replace(agent, network=whole, **with_specs), obs, {})
    except (TriglotError, TypeError, ValueError) as error:
        raise NotSeparable(f"its network cannot be replaced: {error}") from None


def _is_record(value: object) -> TypeGuard[Any]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _different(spec: specs.Spec, count: int, key: jax.Array) -> PyTree:
    """Draw different observations `[count, ...]`."""
    if isinstance(spec, specs.Discrete):
        return jnp.arange(count, dtype=spec.dtype)
    drawn = jax.vmap(lambda sample_key: specs.sample(spec, sample_key))(
        jax.random.split(key, 4 * count)
    )
    drawn = jax.tree.map(_of_moderate_size, drawn)
    _, chosen = np.unique(flat(drawn, 1), axis=0, return_index=True)
    if len(chosen) < count:
        raise NotSeparable(
            f"only {len(chosen)} different observations were found, and {count} are needed: give "
            "an environment with more of them"
        )
    return jax.tree.map(lambda leaf: leaf[np.sort(chosen)[:count]], drawn)


def _of_moderate_size(leaf: jax.Array) -> jax.Array:
    """Bring floats that are drawn up to float32's largest number to [-1, 1]."""
    if not is_inexact(leaf):
        return leaf
    exact = np.asarray(leaf, np.float64)
    largest = np.abs(exact).max(axis=0)
    return jnp.asarray(exact / np.where(largest > MODERATE, largest, 1.0), leaf.dtype)


def _separated(
    network: Network, described: NetworkSpec | Network | None, obs_spec: specs.Spec, obs: PyTree
) -> Network:
    """Replace a network that reads observations; return another one as it is."""
    if isinstance(described, Network):
        return network
    reads = obs_spec if described is None else described.obs_spec
    several = isinstance(reads, tuple)
    read = reads[0] if isinstance(reads, tuple) else reads
    if read == specs.one_hot_spec(obs_spec) != obs_spec:
        pool = jax.nn.one_hot(obs, num_rows(obs))
    elif read == obs_spec:
        pool = obs
    else:
        return network
    return _with_rows(network, reads, _recognizer(pool), several, num_rows(obs) + 1)


def _recognizer(pool: PyTree) -> Callable[[PyTree], jax.Array]:
    """Return a function that finds observations `[B, ...]` in `pool` `[P, ...]`.

    It returns their numbers, int32 `[B]`, or `P` for one that is not in it.
    """
    columns = flat(pool, 1)
    scale = np.where(columns.std(axis=0) > 0, columns.std(axis=0), 1.0)
    # By a few random projections, since comparing whole images would take long.
    weights = np.random.default_rng(0).normal(size=(columns.shape[1], NUM_PROJECTIONS))
    weights = weights / scale[:, None] / math.sqrt(columns.shape[1])

    def project(obs: PyTree) -> jax.Array:
        leaves = [jnp.asarray(leaf) for leaf in jax.tree.leaves(obs)]
        rows = [leaf.reshape(leaf.shape[0], -1).astype(jnp.float32) for leaf in leaves]
        whole = jnp.concatenate(rows, axis=1)
        return jnp.matmul(
            whole, jnp.asarray(weights, jnp.float32), precision=jax.lax.Precision.HIGHEST
        )

    def recognize(obs: PyTree) -> jax.Array:
        known, queries = project(pool), project(obs)
        distance = jnp.square(queries[:, None] - known[None]).sum(axis=-1)
        is_known = jnp.min(distance, axis=1) <= 1e-8 * jnp.square(known).max()
        return jnp.where(is_known, jnp.argmin(distance, axis=1), len(known)).astype(jnp.int32)

    return recognize


def _differing_axis(one: jax.ShapeDtypeStruct, other: jax.ShapeDtypeStruct) -> int:
    """Return the first axis in which two shapes differ: that of the batch."""
    pairs = enumerate(zip(one.shape, other.shape, strict=True))
    return next(axis for axis, (size, other_size) in pairs if size != other_size)


def _with_rows(
    network: Network,
    reads: specs.Spec | tuple[specs.Spec, ...],
    recognize: Callable[[PyTree], jax.Array],
    several: bool,
    size: int,
) -> Network:
    """Build a network of the same outputs, whose parameters are a row for each observation.

    An output is a constant, drawn at the start, plus the row, which is 0 at the start, plus what
    depends on the other inputs: actions, and a carry which mixes the observations so far.
    """

    def outputs_for(batch: int) -> PyTree:
        """Describe the outputs for a batch of that size."""

        def run(key: jax.Array) -> PyTree:
            inputs = (
                tuple(specs.zeros(read, batch) for read in reads)
                if isinstance(reads, tuple)
                else specs.zeros(reads, batch)
            )
            variables = network.init(key)
            if not network.recurrent:
                return network.apply(variables, inputs)[0]
            carry = network.initial_carry(variables, batch)
            return network.apply(variables, (inputs, carry))[0][0]

        return jax.eval_shape(run, abstract_key())

    three, five = outputs_for(3), outputs_for(5)
    axes = jax.tree.map(_differing_axis, three, five)
    shapes = jax.tree.map(
        lambda leaf, axis: (size, *leaf.shape[:axis], *leaf.shape[axis + 1 :]), three, axes
    )
    mixing = np.random.default_rng(1).normal(size=(size, 2)).astype(np.float32)

    def leaves(make: Callable[[int, tuple[int, ...], np.dtype], jax.Array]) -> PyTree:
        flat_shapes, treedef = jax.tree.flatten(shapes, is_leaf=lambda x: isinstance(x, tuple))
        dtypes = [leaf.dtype for leaf in jax.tree.leaves(three)]
        leaves = [make(i, *leaf) for i, leaf in enumerate(zip(flat_shapes, dtypes, strict=True))]
        return treedef.unflatten(leaves)

    def init(key: jax.Array) -> Variables:
        def draw(offset: int, scale: float) -> PyTree:
            return leaves(
                lambda i, shape, dtype: (
                    scale * jax.random.normal(jax.random.fold_in(key, 2 * i + offset), shape, dtype)
                )
            )

        rows = leaves(lambda i, shape, dtype: jnp.zeros(shape, dtype))
        return Variables(
            params={ROWS: rows}, state={CONSTANTS: draw(0, 0.5), "slopes": draw(1, 0.2)}
        )

    def apply(
        variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
    ) -> tuple[PyTree, PyTree]:
        del key, train
        read, carry = inputs if network.recurrent else (inputs, {})
        obs, rest = (read[0], read[1:]) if several else (read, ())
        index = recognize(obs)
        mixed = jnp.zeros(index.shape, jnp.float32)
        for number, leaf in enumerate(jax.tree.leaves((rest, carry))):
            columns = leaf.reshape(leaf.shape[0], -1).astype(jnp.float32)
            weights = jnp.cos(1.0 + number + jnp.arange(columns.shape[1], dtype=jnp.float32))
            mixed = mixed + jnp.tanh(columns * weights[None]).sum(axis=1)

        def output(
            axis: int, rows: jax.Array, constants: jax.Array, slopes: jax.Array
        ) -> jax.Array:
            scaled = mixed.reshape(-1, *(1,) * (rows.ndim - 1)).astype(rows.dtype)
            return jnp.moveaxis(constants[index] + rows[index] + slopes[index] * scaled, 0, axis)

        state = variables.state
        outputs = jax.tree.map(
            output, axes, variables.params[ROWS], state[CONSTANTS], state["slopes"]
        )
        if not network.recurrent:
            return outputs, state
        return (outputs, {"mixed": 0.5 * carry["mixed"] + jnp.asarray(mixing)[index]}), state

    def initial_carry(variables: Variables, num_envs: int) -> PyTree:
        del variables
        if not network.recurrent:
            return ()
        return {"mixed": jnp.full((num_envs, mixing.shape[1]), 0.3, jnp.float32)}

    return Network(
        name=f"{network.name}, separated",
        backend="core",
        init=init,
        apply=apply,
        recurrent=network.recurrent,
        initial_carry=initial_carry,
    )
