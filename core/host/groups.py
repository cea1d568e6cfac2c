"""Collect rollouts in groups of host environments at the same time."""

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..host_environment import HostEnvironment
from ..types import PyTree
from .actor import Actor
from .collected import over_groups
from .vector import HostRunner

# The arrays that are recorded per step, in this order.
RECORDED = ("obs", "first", "action", "reward", "terminated", "truncated", "next_obs")


class HostGroups:
    """`S` times `N` open environments in `G` equal groups, each with a thread.

    While one group acts, the others step. A group needs only the policy and its own keys, so its
    steps are the same however the threads are scheduled.

    Attributes:
      num_steps: steps taken in each environment since they were opened.
    """

    def __init__(self, env: HostEnvironment, num_envs: int, seeds: Sequence[Sequence[int]]) -> None:
        """Open all environments and reset them.

        Args:
          env: the single environment.
          num_envs: `N`, a multiple of `G`.
          seeds: `[G, S]`, seeds of the environments.

        Raises:
          TriglotError: if opening or resetting fails.
        """
        self.num_steps = 0
        self._runners: list[HostRunner] = []
        self._threads = ThreadPoolExecutor(len(seeds), "triglot-environments")
        try:
            for index, one in enumerate(seeds):
                where = f" of group {index} of {len(seeds)}" if len(seeds) > 1 else ""
                self._runners.append(HostRunner(env, num_envs // len(seeds), one, where=where))
        except BaseException:
            self.close()
            raise

    def collect(
        self, actor: Actor, agent_state: PyTree, carry: PyTree, keys: np.ndarray, *, at_once: bool
    ) -> tuple[PyTree, dict[str, Any], PyTree]:
        """Take `T` steps in all environments.

        Args:
          actor: acts in one group.
          agent_state: `[S, ...]`.
          carry: the policy's, `[S, N, ...]`.
          keys: key data, `[S, T, G, ...]`.
          at_once: use the threads; False collects one group after the other, with equal results.

        Returns:
          The carry after the last step, the `RECORDED` arrays and `extras`, `[S, T, N, ...]` each.

        Raises:
          TriglotError: if an environment fails, after all groups have stopped.
        """
        read, count = actor.of(agent_state), len(self._runners)
        tasks: list[Callable[[], Any]] = [
            functools.partial(
                _collect, runner, actor, read, part_of(carry, index, count), keys[:, :, index]
            )
            for index, runner in enumerate(self._runners)
        ]
        if at_once and count > 1:
            running = [self._threads.submit(task) for task in tasks]
            wait(running)
            results = [future.result() for future in running]
        else:
            results = [task() for task in tasks]
        self.num_steps += keys.shape[1]
        carries, steps = zip(*results, strict=True)
        arrays, extras = over_groups(steps)
        return _joined(carries), dict(zip(RECORDED, arrays, strict=True)), extras

    def close(self) -> None:
        """Wait for the threads and close the environments."""
        self._threads.shutdown()
        for runner in self._runners:
            runner.close()


def part_of(carry: PyTree, index: int, count: int) -> PyTree:
    """Select one of `count` groups from `[S, N, ...]`."""
    if count == 1:
        return carry

    def part(leaf: jax.Array) -> jax.Array:
        size = leaf.shape[1] // count
        return leaf[:, index * size : (index + 1) * size]

    return jax.tree.map(part, carry)


def _joined(carries: Sequence[PyTree]) -> PyTree:
    if len(carries) == 1:
        return carries[0]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *carries)


def _collect(
    runner: HostRunner, actor: Actor, read: list[jax.Array], carry: PyTree, keys: np.ndarray
) -> tuple[PyTree, list[tuple]]:
    """Take `T` steps in one group, with keys `[S, T, ...]`."""
    steps = []
    for time in range(keys.shape[1]):
        obs, first = runner.obs, runner.first
        action, carry, extras = actor.call(read, carry, keys[:, time], obs, first)
        on_host = np.asarray(action)
        steps.append(((obs, first, on_host, *runner.step(on_host)[:-1]), extras))
    return carry, steps
