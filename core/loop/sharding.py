"""Divide one training among several devices: its seeds, or the environments of each seed.

*Seeds*: each device trains its share of them (`jax.shard_map`); devices exchange nothing. The bits
depend on the size of a share, not on the number of devices from two on; one device agrees up to
rounding. All shares are equally large: the last seed is repeated where the devices do not divide
the seeds, and the results of the repetitions are dropped. A share of another size would be a second
program to compile, and refusing 5 seeds on 2 devices would leave one device idle.

*Environments*: one program with a global view, which XLA partitions (`jax.jit` over a mesh).
Environments, and the batches that networks read, are divided; parameters, optimizer, replay and
statistics are replicated, and gradients are summed over devices. The algorithm is that of one
device; sums have another order, so numbers agree up to rounding.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Literal, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from ..agent import Agent, Trajectory, with_network
from ..errors import TriglotError, counted, unknown
from ..hyper import check_count
from ..network import Network, Variables
from ..types import Key, Metrics, PyTree, on_data
from .state import RunnerState, Updated

Shard: TypeAlias = Literal["seeds", "envs"]
ResultT = TypeVar("ResultT")

SHARDS = ("seeds", "envs")
AXIS = "devices"  # of the mesh
IN_PYTHON = "jax.config.update('jax_num_cpu_devices', {})"


@dataclass(frozen=True)
class Sharding:
    """How a training is divided among devices.

    Attributes:
      mesh: the devices, along one axis.
      shard: what is divided, the seeds or the environments of each seed.
    """

    mesh: Mesh
    shard: Shard

    @property
    def num_devices(self) -> int:
        """Number of devices, those of all processes together."""
        return self.mesh.size

    def describe(self, num_seeds: int, agent: Agent) -> str:
        """Say how many seeds or environments each device has."""
        number, envs = self.num_devices, agent.num_envs // self.num_devices
        if self.shard == "seeds":
            most = "at most " if num_seeds % number else ""
            share = f"{most}{-(-num_seeds // number):,} of {counted(num_seeds, 'seed')}"
        else:
            share = f"{envs:,} of the {counted(agent.num_envs, 'environment')} of each seed"
        return f"{counted(number, 'device')}, each with {share}"

    def of(self, states: RunnerState) -> RunnerState:
        """Give the sharding of each array of the runner states `[S, ...]`."""

        def everywhere(tree: PyTree, *axes: str | None) -> PyTree:
            return jax.tree.map(lambda _: self._named(*axes), tree)

        if self.shard == "seeds":
            return everywhere(states, AXIS)
        env = everywhere(states.env, None, AXIS)
        shared = {name: everywhere(getattr(states.env, name)) for name in ("pool", "progress")}
        env = replace(env, **shared)
        carry = everywhere(states.carry, None, AXIS)
        return replace(everywhere(states), env=env, carry=carry)

    def place(self, states: PyTree) -> PyTree:
        """Put the runner states `[S, ...]`, equal in all processes, on the devices.

        Returns:
          `[S', ...]`, where a divided `S` is rounded up to a multiple of the devices. States that
          are placed already are returned as they are.
        """
        return jax.tree.map(self._placed, states, self.of(states))

    def placed_shapes(self, states: PyTree) -> PyTree:
        """Describe the arrays that `place` returns."""

        def shape(leaf: jax.Array, sharding: NamedSharding) -> jax.ShapeDtypeStruct:
            full = (self._num_rows(leaf), *leaf.shape[1:])
            return jax.ShapeDtypeStruct(full, leaf.dtype, sharding=sharding)

        return jax.tree.map(shape, states, self.of(states))

    def over_seeds(self, function: Callable[..., ResultT], *args: PyTree) -> ResultT:
        """Trace `function(*args)`, each device with its share of the seeds `[S', ...]`."""
        spec = PartitionSpec(AXIS)
        divided = jax.shard_map(
            function, mesh=self.mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        return divided(*args)

    def constrained(self, states: RunnerState, metrics: Metrics) -> Updated:
        """Leave runner states where they are placed, and have the metrics on all devices."""
        states = jax.lax.with_sharding_constraint(states, self.of(states))
        return states, jax.lax.with_sharding_constraint(metrics, self._named())

    def keep_divided(self, trajectory: Trajectory) -> Trajectory:
        """Leave a rollout `[T, N, ...]` where its environments are.

        Otherwise XLA may collect each step of it on all devices, in as many exchanges.
        """
        if self.shard == "seeds":
            return trajectory
        steps = jax.lax.with_sharding_constraint(
            replace(trajectory, carry=()), self._named(None, AXIS)
        )
        return replace(steps, carry=trajectory.carry)

    def _num_rows(self, leaf: jax.Array) -> int:
        """Return the rows `S'` of an array `[S, ...]` that is placed."""
        return padded(leaf.shape[0], self.num_devices) if self.shard == "seeds" else leaf.shape[0]

    def _placed(self, leaf: jax.Array, sharding: NamedSharding) -> jax.Array:
        rows = self._num_rows(leaf)
        if rows == leaf.shape[0] and leaf.sharding.is_equivalent_to(sharding, leaf.ndim):
            return leaf

        # `jax.device_put` would compare the array between processes first, one by one.
        def place(array: jax.Array) -> jax.Array:
            values = np.asarray(array)
            if missing := rows - len(values):
                values = np.concatenate([values, np.repeat(values[-1:], missing, axis=0)])
            return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index])

        return on_data(place, leaf)

    def _named(self, *axes: str | None) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def data_parallel(self, agent: Agent) -> Agent:
        """Divide the batches that an agent's network reads."""
        if not is_dataclass(agent) or "network" not in [field.name for field in fields(agent)]:
            return agent
        return with_network(agent, self._divided(agent.network))

    def _divided(self, network: Network) -> Network:
        def apply(
            variables: Variables, inputs: PyTree, *, key: Key | None = None, train: bool = False
        ) -> tuple[PyTree, PyTree]:
            divided = jax.tree.map(self._divide, inputs)
            return network.apply(variables, divided, key=key, train=train)

        parts = {name: self._divided(part) for name, part in network.parts.items()}
        return replace(network, apply=apply, parts=parts)

    def _divide(self, leaf: jax.Array) -> jax.Array:
        """Divide an array `[B, ...]` along its batch axis, if the number of devices divides it."""
        if not leaf.ndim or leaf.shape[0] % self.num_devices:
            return leaf
        return jax.lax.with_sharding_constraint(leaf, self._named(AXIS))


def make_sharding(
    devices: int | Mesh, shard: str | None = None, *, num_seeds: int, num_envs: int
) -> Sharding:
    """Choose the devices, and what is divided among them.

    Args:
      devices: how many, or a mesh with one axis.
      shard: `seeds` or `envs`; None chooses seeds where there are as many as devices, and
        environments otherwise.
      num_seeds: `S`.
      num_envs: `N`, of each seed.

    Raises:
      TriglotError: if there are not as many devices, there are fewer seeds, or their number does
        not divide the environments.
    """
    number = devices.size if isinstance(devices, Mesh) else devices
    check_count("devices", number)
    chosen = choose_shard(number, shard, num_seeds=num_seeds, num_envs=num_envs)
    if not isinstance(devices, Mesh):
        mesh = Mesh(np.array(_first_devices(devices)), (AXIS,))
    elif devices.devices.ndim == 1:
        mesh = Mesh(devices.devices, (AXIS,))
    else:
        raise TriglotError(
            f"devices must be a mesh with one axis, got one of shape {devices.devices.shape}: "
            "jax.make_mesh((8,), ('devices',)) makes one."
        )
    return Sharding(mesh, chosen)


def choose_shard(devices: int, shard: str | None, *, num_seeds: int, num_envs: int) -> Shard:
    """Choose what is divided among devices, see `make_sharding`.

    >>> [choose_shard(2, None, num_seeds=seeds, num_envs=4) for seeds in (1, 5)]
    ['envs', 'seeds']
    """
    if shard not in (None, *SHARDS):
        raise unknown("shard", shard, SHARDS)
    if shard != "envs" and devices <= num_seeds:
        return "seeds"
    if shard != "seeds" and num_envs % devices == 0:
        return "envs"
    needed = {"seeds": f"be at most num_seeds, {num_seeds}", "envs": f"divide num_envs, {num_envs}"}
    tried = SHARDS if shard is None else (shard,)
    raise TriglotError(
        f"devices must {', or '.join(needed[name] for name in tried)}; got {devices}."
    )


def padded(num_seeds: int, devices: int) -> int:
    """Round a number of seeds up to a multiple of the devices.

    >>> padded(5, 2)
    6
    """
    return -(-num_seeds // devices) * devices


def fewest_devices(num_seeds: int, most: int) -> int:
    """Choose the fewest devices with which each has as few seeds as with `most` devices.

    >>> [fewest_devices(5, most) for most in (1, 2, 3, 4, 64)]
    [1, 2, 3, 3, 5]
    """
    return -(-num_seeds // -(-num_seeds // most))


def _first_devices(number: int) -> list[Any]:
    there = jax.devices()
    if number > len(there):
        kind = there[0].platform
        advice = (
            f"`triglot train --devices {number}` makes them; in Python, call "
            f"{IN_PYTHON.format(number)} before JAX's first computation"
            if kind == "cpu" and jax.process_count() == 1
            else f"give at most {len(there)}"
        )
        raise TriglotError(
            f"{number} devices were asked for, and JAX has {len(there)} ({kind}): {advice}."
        )
    if jax.process_count() > 1 and number != len(there):
        raise TriglotError(
            f"{jax.process_count()} processes have {len(there)} devices together, and each must "
            f"take part: got {counted(number, 'device')}, expected {len(there)}."
        )
    return there[:number]


def gathered(tree: PyTree, num_seeds: int) -> PyTree:
    """Copy arrays from all devices, also those of other processes, to this process's first one.

    All processes must call it together.

    Args:
      tree: arrays `[S', ...]`, of which the first `S` rows are kept; what is on one device stays.
      num_seeds: `S`.
    """
    return jax.tree.map(lambda leaf: _gathered(leaf, num_seeds), tree)


def on_host(leaf: jax.Array) -> np.ndarray:
    """Copy an array from all devices, also those of other processes, to the host."""
    if not isinstance(leaf, jax.Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def _gathered(leaf: PyTree, num_seeds: int) -> PyTree:
    if not isinstance(leaf, jax.Array) or len(leaf.sharding.device_set) == 1:
        return leaf
    return on_data(lambda array: jnp.asarray(on_host(array)[:num_seeds]), leaf)
