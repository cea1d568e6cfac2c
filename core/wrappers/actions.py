"""Wrappers that repeat actions: at random, or a fixed number of times."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from ..environment import TimeStep
from ..hyper import unit_interval
from ..specs import Discrete, MultiDiscrete, Spec, zeros
from ..types import PyTree, pytree_dataclass
from .base import Stateless, Wrapper


@pytree_dataclass
class StickyState:
    """The state of `StickyActions`.

    Attributes:
      state: the inner state.
      previous: the action that the inner environment took last.
      repeatable: bool `[]`, whether it may be taken again: not at a start, and not where the action
        mask forbids it.
    """

    state: PyTree
    previous: PyTree
    repeatable: jax.Array


@dataclass(frozen=True)
class StickyActions(Wrapper):
    """Repeat the previous action with a fixed probability, in place of the agent's.

    What is taken again is the action taken, not the agent's choice. An episode's first action is
    never replaced, and none by an action that the mask forbids.

    Source: Machado et al. (2018), "Revisiting the Arcade Learning Environment",
    https://arxiv.org/abs/1709.06009, section 5.

    Attributes:
      env: the inner environment.
      probability: of taking the previous action again, 0.25 in the paper.
    """

    probability: float = unit_interval(0.25)

    def begin(self, start: TimeStep) -> TimeStep:
        previous = zeros(self.action_spec)
        state = StickyState(state=start.state, previous=previous, repeatable=jnp.zeros((), bool))
        return replace(start, state=state)

    def step(self, state: StickyState, action: PyTree, key: jax.Array) -> TimeStep:
        step_key, stick_key = jax.random.split(key)
        stick = jax.random.bernoulli(stick_key, self.probability) & state.repeatable
        taken = jax.tree.map(
            lambda old, new: jnp.where(stick, old, jnp.asarray(new, old.dtype)),
            state.previous,
            action,
        )
        step = self.env.step(state.state, taken, step_key)
        allowed = _allows(self.action_spec, step.action_mask, taken)
        after = StickyState(state=step.state, previous=taken, repeatable=allowed)
        return replace(step, state=after)


def _allows(spec: Spec, mask: jax.Array | None, action: PyTree) -> jax.Array:
    """Tell whether a mask allows an action, bool `[]`."""
    if mask is None or not isinstance(spec, Discrete | MultiDiscrete):
        return jnp.ones((), bool)
    if isinstance(spec, MultiDiscrete):  # the mask holds the values of one integer after the other
        counts = np.asarray(spec.num_values)
        action = action + jnp.asarray(np.cumsum(counts) - counts, action.dtype)
    return mask[action].all()


@dataclass(frozen=True)
class ActionRepeat(Stateless):
    """Take each action several times; the rewards are summed.

    The repetition stops where the episode ends, terminated or truncated, and returns that step.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning",
    https://doi.org/10.1038/nature14236 (frame skipping; without its maximum over frames).

    Attributes:
      env: the inner environment.
      num_repeats: how often each action is taken, 4 in the paper.
    """

    num_repeats: int = 4

    def step(self, state: PyTree, action: PyTree, key: jax.Array) -> TimeStep:
        def repeat(before: TimeStep, key: jax.Array) -> tuple[TimeStep, None]:
            ended = before.terminated | before.truncated
            after = self.env.step(before.state, action, key)
            after = replace(after, reward=before.reward + after.reward)
            # `where` on all of it: what an environment returns after its end may be NaN.
            return jax.tree.map(lambda old, new: jnp.where(ended, old, new), before, after), None

        # A loop that starts from zeros has one copy of `step`, which may be large.
        shapes = replace(jax.eval_shape(self.env.step, state, action, key), state=())
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        keys = jax.random.split(key, self.num_repeats)
        return jax.lax.scan(repeat, replace(nothing, state=state), keys)[0]
