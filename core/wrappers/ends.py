"""Wrappers of ends: a time limit, and a state to stay in after the end of the task."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..environment import Environment, TimeStep
from ..errors import TriglotError
from ..specs import Box, Spec, bound_of
from ..types import PyTree, pytree_dataclass
from .base import Wrapper


@pytree_dataclass
class _Timed:
    state: PyTree
    time: jax.Array  # int32 [], steps since the reset


@dataclass(frozen=True)
class TimeLimit(Wrapper):
    """Cut episodes of `env` after `max_steps` steps: truncated, not terminated."""

    max_steps: int

    def begin(self, start: TimeStep) -> TimeStep:
        return replace(start, state=_Timed(state=start.state, time=jnp.zeros((), jnp.int32)))

    def step(self, state: _Timed, action: jax.Array, key: jax.Array) -> TimeStep:
        step = self.env.step(state.state, action, key)
        time = state.time + 1
        # A termination at the limit is a termination: there is no bootstrap.
        truncated = (step.truncated | (time >= self.max_steps)) & ~step.terminated
        return replace(step, state=_Timed(state=step.state, time=time), truncated=truncated)


@pytree_dataclass
class AbsorbingState:
    """The state of `AbsorbingStates`.

    Attributes:
      state: the inner state; the last one of the task where it has ended.
      absorbed: bool `[]`, the task has ended.
    """

    state: PyTree
    absorbed: jax.Array


@dataclass(frozen=True)
class AbsorbingStates(Wrapper):
    """Continue after a termination in an absorbing state, which no action leaves.

    The observation has one more number, 0 in the task and 1 in the absorbing state, where all
    others are 0. The step that would terminate leads there; later ones have reward 0, and every
    action is allowed. So no episode is terminated: the values of ends are learned, and not assumed
    to be 0. It needs a `TimeLimit` around it, as the option `absorbing_states=STEPS` adds one; a
    truncation of the inner environment passes.

    Source: Kostrikov et al. (2019), "Discriminator-Actor-Critic", https://arxiv.org/abs/1809.02925,
    section 4.2.

    Attributes:
      env: the inner environment, whose observation is a float32 vector.

    Raises:
      TriglotError: if the observation is something else.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.env.obs_spec
        if not (isinstance(spec, Box) and spec.dtype == "float32" and len(spec.shape) == 1):
            raise TriglotError(
                f"AbsorbingStates needs observations that are a float32 vector; {self.name} has "
                "others: wrap it in FlattenObservation first (flatten_observation=True)."
            )

    @property
    def obs_spec(self) -> Spec:
        spec = self.env.obs_spec
        assert isinstance(spec, Box)  # checked when it was made
        low, high = spec.bounds()
        low, high = np.append(np.minimum(low, 0), 0), np.append(np.maximum(high, 0), 1)
        return replace(spec, shape=low.shape, low=bound_of(low), high=bound_of(high))

    def begin(self, start: TimeStep) -> TimeStep:
        absorbed = jnp.zeros((), bool)
        state = AbsorbingState(state=start.state, absorbed=absorbed)
        return replace(start, state=state, obs=self._observe(start.obs, absorbed))

    def step(self, state: AbsorbingState, action: PyTree, key: jax.Array) -> TimeStep:
        step = self.env.step(state.state, action, key)
        was = state.absorbed
        absorbed = was | step.terminated
        kept = jax.tree.map(lambda old, new: jnp.where(was, old, new), state.state, step.state)
        mask = None if step.action_mask is None else step.action_mask | absorbed
        return TimeStep(
            state=AbsorbingState(state=kept, absorbed=absorbed),
            obs=self._observe(step.obs, absorbed),
            reward=jnp.where(was, 0.0, step.reward),
            terminated=jnp.zeros((), bool),
            truncated=step.truncated & ~absorbed,
            action_mask=mask,
        )

    def _observe(self, obs: jax.Array, absorbed: jax.Array) -> jax.Array:
        # `where`, not a product: after its end an environment may return NaN.
        shown = jnp.where(absorbed, 0.0, obs)
        return jnp.append(shown, absorbed.astype(jnp.float32))


def absorbing_until(env: Environment, max_steps: int) -> TimeLimit:
    """Wrap an environment in `AbsorbingStates` and cut its episodes after `max_steps` steps."""
    return TimeLimit(AbsorbingStates(env), max_steps)
