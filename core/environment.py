"""Environments as pure functions: single, stateless, and never resetting themselves."""

from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from .errors import TriglotError
from .specs import Spec, zeros

PyTree: TypeAlias = Any


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class TimeStep:
    """What one environment says after a reset or a step.

    Attributes:
      state: everything the environment needs to go on.
      obs: the observation of `state`, as the environment's `obs_spec` declares it.
      reward: float32 `[]`, for the action just taken; 0 after a reset.
      terminated: bool `[]`, the task ended here: nothing follows, the value of `obs` is 0.
      truncated: bool `[]`, the episode was cut here: the task would go on, so bootstrap on `obs`.
      action_mask: bool `[num_actions]` of allowed actions, or None where all are.
    """

    state: PyTree
    obs: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    action_mask: jax.Array | None = None


def first_step(state: PyTree, obs: PyTree, action_mask: jax.Array | None = None) -> TimeStep:
    """Build the `TimeStep` that a reset returns."""
    return TimeStep(
        state=state,
        obs=obs,
        reward=jnp.zeros((), jnp.float32),
        terminated=jnp.zeros((), bool),
        truncated=jnp.zeros((), bool),
        action_mask=action_mask,
    )


@runtime_checkable
class Environment(Protocol):
    """One environment; implement it as a frozen dataclass, so that it can be hashed.

    `step` after an episode's end is allowed and its result is never used; `core` owns batching,
    time limits and resets.
    """

    @property
    def name(self) -> str:
        """Say how errors and reports call it."""
        ...

    @property
    def obs_spec(self) -> Spec:
        """Describe one observation."""
        ...

    @property
    def action_spec(self) -> Spec:
        """Describe one action."""
        ...

    def reset(self, key: jax.Array) -> TimeStep:
        """Start an episode."""
        ...

    def step(self, state: PyTree, action: jax.Array, key: jax.Array) -> TimeStep:
        """Take one action in `state`."""
        ...


@runtime_checkable
class CostlyReset(Environment, Protocol):
    """An environment that says whether its resets are costly; this is optional."""

    @property
    def costly_reset(self) -> bool:
        """Whether to prepare resets in a pool between rollouts, see `VectorEnvironment`."""
        ...


def has_costly_reset(env: Environment) -> bool:
    """Whether an environment declares costly resets."""
    return isinstance(env, CostlyReset) and env.costly_reset


@runtime_checkable
class Drawn(Environment, Protocol):
    """An environment that can draw its episodes; this is optional."""

    @property
    def draw_suffix(self) -> str:
        """Say what `draw` writes: `.gif`, say, or `.html`."""
        ...

    def draw(self, states: PyTree, path: str) -> None:
        """Draw states `[T, ...]`, as `reset` and `step` return them, to a file."""
        ...


def check_constant_shapes(env: Environment) -> None:
    """Refuse an environment whose steps are not shaped as its starts are; nothing is computed.

    Raises:
      TriglotError: naming the first part of a `TimeStep` that differs.
    """
    start = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.eval_shape(lambda: zeros(env.action_spec))
    after = jax.eval_shape(env.step, start.state, action, jax.random.key(0))
    made, given = _described(start), _described(after)
    for name in (*made, *given):
        if made.get(name) != given.get(name):
            raise TriglotError(
                f"the environment {env.name} changes its shapes: {name} is "
                f"{made.get(name, 'absent')} after reset and {given.get(name, 'absent')} after "
                "step; make them the same."
            )


def _described(step: TimeStep) -> dict[str, str]:
    return {
        jax.tree_util.keystr(path).lstrip("."): f"{leaf.dtype} {list(leaf.shape)}"
        for path, leaf in jax.tree_util.tree_leaves_with_path(step)
    }


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class _Timed:
    state: PyTree
    time: jax.Array  # int32 [], steps since the reset


@dataclass(frozen=True)
class TimeLimit:
    """Cut episodes of `env` after `max_steps` steps: truncated, not terminated."""

    env: Environment
    max_steps: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        if self.max_steps < 1:
            raise TriglotError(f"TimeLimit needs max_steps of at least 1, got {self.max_steps}.")
        object.__setattr__(self, "name", self.env.name)

    @property
    def obs_spec(self) -> Spec:
        return self.env.obs_spec

    @property
    def action_spec(self) -> Spec:
        return self.env.action_spec

    @property
    def costly_reset(self) -> bool:
        return has_costly_reset(self.env)

    def reset(self, key: jax.Array) -> TimeStep:
        step = self.env.reset(key)
        return replace(step, state=_Timed(state=step.state, time=jnp.zeros((), jnp.int32)))

    def step(self, state: _Timed, action: jax.Array, key: jax.Array) -> TimeStep:
        step = self.env.step(state.state, action, key)
        time = state.time + 1
        return replace(
            step,
            state=_Timed(state=step.state, time=time),
            # Where the task ends at the limit, it ended: nothing is left to bootstrap on.
            truncated=(step.truncated | (time >= self.max_steps)) & ~step.terminated,
        )
