"""Environments as pure functions of a state; they never reset themselves."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import jax.numpy as jnp

from .errors import TriglotError, kind_of
from .specs import Dict, Spec, Specified, mask_size
from .types import EnvState, Obs, PyTree, pytree_dataclass, type_differences


@pytree_dataclass
class TimeStep:
    """What an environment returns after a reset or a step.

    Attributes:
      state: of the environment.
      obs: the observation of `state`, as `obs_spec` describes it.
      reward: float32 `[]`, for the action just taken; 0 after a reset.
      terminated: bool `[]`, the task ended: the value of `obs` is 0.
      truncated: bool `[]`, the episode was cut, by a time limit for example: bootstrap on `obs`.
      action_mask: bool `[num_actions]` of allowed actions, or None where all are allowed; for
        `MultiDiscrete` actions `[sum(num_values)]`, of the values that each integer may have.
    """

    state: EnvState
    obs: Obs
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    action_mask: jax.Array | None = None


def first_step(state: EnvState, obs: Obs, action_mask: jax.Array | None = None) -> TimeStep:
    """Build the `TimeStep` of a reset."""
    return TimeStep(
        state=state,
        obs=obs,
        reward=jnp.zeros((), jnp.float32),
        terminated=jnp.zeros((), bool),
        truncated=jnp.zeros((), bool),
        action_mask=action_mask,
    )


@runtime_checkable
class Environment(Specified, Protocol):
    """A single environment; implement it as a frozen dataclass, so that it can be hashed.

    `core` batches it, limits its time and resets it. `step` may be called after an episode's end;
    its result is then ignored.
    """

    def reset(self, key: jax.Array) -> TimeStep:
        """Start an episode."""
        ...

    def step(self, state: EnvState, action: jax.Array, key: jax.Array) -> TimeStep:
        """Take one action in `state`."""
        ...


@runtime_checkable
class CostlyReset(Environment, Protocol):
    """An environment that says whether its resets are costly; this is optional."""

    @property
    def costly_reset(self) -> bool:
        """Whether to prepare resets in a pool between rollouts, see `VectorEnvironment`.

        With a pool, 64 of Navix's rooms are stepped 4.3 times as fast, XLand-MiniGrid's 3.5 times
        and Playground's CartPole 1.9 times. The program takes some seconds longer to compile.
        """
        ...


def has_costly_reset(env: Environment) -> bool:
    """Whether an environment declares costly resets."""
    return isinstance(env, CostlyReset) and env.costly_reset


@runtime_checkable
class Renderable(Environment, Protocol):
    """An environment that renders its episodes; this is optional."""

    @property
    def draw_suffix(self) -> str:
        """Suffix of the file that `draw` writes, such as `.gif` or `.html`."""
        ...

    def draw(self, states: EnvState, path: str) -> None:
        """Render states `[T, ...]`, as `reset` and `step` return them, to a file."""


def with_strong_reward(step: TimeStep) -> TimeStep:
    """Cast a weakly typed reward, such as a Python number, to float32; return others as they are.

    Args:
      step: what `reset` or `step` returned for several environments; `check_steps` refuses another
        type.
    """
    if not isinstance(step, TimeStep) or not getattr(step.reward, "weak_type", False):
        return step
    return replace(step, reward=jnp.asarray(step.reward).astype(jnp.float32))


def check_starts(env: Environment, starts: object) -> None:
    """Refuse what `reset` returned for several keys, unless it is as the specs declare it.

    It reads types only, so that a traced program checks it once, while it is traced.

    Args:
      env: the single environment.
      starts: `[N, ...]`.

    Raises:
      TriglotError: naming the first field of a `TimeStep` that differs.
    """
    _check_time_steps(env, starts, "reset")


def check_steps(env: Environment, states: EnvState, obs: Obs, steps: object) -> None:
    """Refuse what `step` returned in several environments, unless it is as after `reset`.

    Args:
      env: the single environment.
      states, obs: before the step, `[N, ...]`; their types are read.
      steps: `[N, ...]`.

    Raises:
      TriglotError: naming the first field of a `TimeStep` that differs.
    """
    if isinstance(steps, TimeStep):
        pairs = {"state": states, "obs": obs}, {"state": steps.state, "obs": steps.obs}
        single = [jax.tree.map(_without_batch, tree) for tree in pairs]
        for name, (first, after) in type_differences(*single).items():
            raise TriglotError(
                f"the environment {env.name} changes its shapes: {name} is {first} after reset and "
                f"{after} after step; make them the same."
            )
    _check_time_steps(env, steps, "step")


def _without_batch(leaf: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _check_time_steps(env: Environment, steps: object, method: str) -> None:
    owner = f"{method} of the environment {env.name}"
    if not isinstance(steps, TimeStep):
        helper = "; first_step(state, obs) builds it" if method == "reset" else ""
        raise TriglotError(f"{owner} must return a TimeStep, got {kind_of(steps)}{helper}.")
    _check_obs(f"obs of {owner}", env.obs_spec, steps.obs)
    _check_array(f"reward of {owner}", steps.reward, (), "float32", "cast it by .astype")
    for flag in ("terminated", "truncated"):
        _check_array(f"{flag} of {owner}", getattr(steps, flag), (), "bool", "compare it with 0")
    size = mask_size(env.action_spec)
    if steps.action_mask is not None and size is not None:
        _check_array(
            f"action_mask of {owner}", steps.action_mask, (size,), "bool", "one per action"
        )


def _check_obs(what: str, spec: Spec, obs: Obs) -> None:
    declared = "as obs_spec declares"
    if not isinstance(spec, Dict):
        _check_array(what, obs, spec.shape, spec.dtype, declared)
        return
    names = [name for name, _ in spec.items]
    if not isinstance(obs, Mapping) or sorted(obs) != names:
        description = f"entries {sorted(obs)}" if isinstance(obs, Mapping) else kind_of(obs)
        raise TriglotError(f"{what} must have the entries {names}, {declared}; got {description}.")
    for name, child in spec.items:
        _check_obs(f"{name} of {what}", child, obs[name])


def _check_array(what: str, array: Any, shape: tuple[int, ...], dtype: str, hint: str) -> None:
    if not hasattr(array, "shape") or not hasattr(array, "dtype"):
        raise TriglotError(f"{what} must be {dtype}{list(shape)}, {hint}; got {kind_of(array)}.")
    if array.shape[1:] != shape or array.dtype != dtype:
        description = f"{array.dtype}{list(array.shape[1:])}"
        raise TriglotError(f"{what} must be {dtype}{list(shape)}, {hint}; got {description}.")


@runtime_checkable
class Curriculum(Environment, Protocol):
    """An environment whose next episodes depend on how earlier ones went; this is optional.

    What it has learned of them, its progress, is shared by all environments of a seed, and kept by
    `VectorEnvironment`. `reset` is for evaluations, which learn nothing.
    """

    def initial_progress(self) -> PyTree:
        """Make the progress before the first episode; None if it is not needed after all."""
        ...

    def update_progress(
        self, progress: PyTree, states: EnvState, returns: jax.Array, done: jax.Array
    ) -> PyTree:
        """Learn from the episodes that ended in one step of `N` environments.

        Args:
          progress: the progress so far.
          states: of the environments, `[N, ...]`, before any reset.
          returns: float32 `[N]`, the sum of the episode's rewards so far.
          done: bool `[N]`, whether the episode ended; others do not count.
        """
        ...

    def reset_by(self, progress: PyTree, key: jax.Array) -> TimeStep:
        """Start an episode that the progress suggests."""
        ...


def initial_progress(env: Environment) -> PyTree:
    """Make the progress of a `Curriculum`; None for all other environments."""
    return env.initial_progress() if isinstance(env, Curriculum) else None


def curriculum(env: Environment) -> Curriculum:
    """Return an environment whose progress is not None, which is a `Curriculum`."""
    assert isinstance(env, Curriculum)
    return env


Player: TypeAlias = Callable[[Obs, Any, jax.Array], jax.Array]
"""Choose an action from one observation, its action mask and a key."""


@runtime_checkable
class Game(Environment, Protocol):
    """An environment whose `step` holds the moves of other players; this is optional.

    All players observe what `obs_spec` describes and do what `action_spec` describes.
    """

    @property
    def num_players(self) -> int:
        """Number of players, the agent among them."""
        ...

    @property
    def copy_period(self) -> int | None:
        """Updates between two copies of the policy in training, which the others then play.

        None if the others are played by one opponent throughout. `reset` and `step` are then for
        evaluations, against an opponent that does not change.
        """
        ...

    def against(self, player: Player) -> "Game":
        """Let `player` play the others; it may hold tracers, so the result need not be hashable."""
        ...


@runtime_checkable
class TwoPlayerGame(Game, Protocol):
    """A zero-sum game of two players, in which an agent that plans can play itself."""

    def for_both(self) -> "BothPlayers":
        """Return the same game, in which the caller moves for both players; states are equal."""
        ...


@runtime_checkable
class BothPlayers(Environment, Protocol):
    """A zero-sum game in which the caller moves for whichever of two players has the turn.

    Observations and action masks are of the player who moves next, a reward of the one who moved.
    One whose players always move in turn is an `InTurn` too.
    """

    def moving(self, state: EnvState) -> jax.Array:
        """Return the number of the player who moves in a state, int32 `[]`."""
        ...


@runtime_checkable
class InTurn(BothPlayers, Protocol):
    """Such a game that says whether its two players always move in turn; this is optional."""

    @property
    def alternates(self) -> bool:
        """Whether they do: an agent that learns its model, as MuZero does, then moves for both."""
        ...


@runtime_checkable
class Bounded(Specified, Protocol):
    """An environment that knows the bounds of its return; this is optional."""

    @property
    def return_bounds(self) -> tuple[float, float]:
        """The lowest and the highest return of an episode."""
        ...
