"""The calls and rollouts with which `check_environment` tries one; each is computed once."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeGuard

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.environment import Environment, TimeStep
from ...core.rl.distributions import policy
from ...core.specs import Spec
from ...core.types import PyTree
from ..purity import Call, Case, Compiled, attempt

NUM_ENVS, NUM_STEPS, NUM_STARTS = 4, 512, 256
MAX_ROLLOUT_BYTES = 2**28
# Forces cancel: what is left of them has the rounding of the largest, after many sums.
OF_LARGEST = 1e-5


class EnvironmentCase(Case):
    """An environment being checked."""

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(seed)
        self.env = env

    @cached_property
    def reset(self) -> Call:
        return Call(
            name="reset",
            function=lambda key: self.env.reset(key),
            args={"key": self.key(0)},
            rtol=1e-3,
            of_largest=OF_LARGEST,
            batch=lambda: (self.start_keys,),
        )

    @cached_property
    def step(self) -> Call:
        return Call(
            name="step",
            function=lambda state, action, key: self.env.step(state, action, key),
            args={"state": self.start.state, "action": self.action, "key": self.key(2)},
            rtol=1e-3,
            of_largest=OF_LARGEST,
            batch=lambda: (
                self.starts.state,
                jax.vmap(self.choose)(self.starts.action_mask, self.start_keys),
                self.start_keys,
            ),
        )

    @property
    def start(self) -> TimeStep:
        return self.reset.result

    @property
    def after(self) -> TimeStep:
        return self.step.result

    @cached_property
    def action(self) -> PyTree:
        """One action that is allowed at `start`."""
        return self.choose(self.start.action_mask, self.key(1))

    @property
    def compiled_steps(self) -> dict[str, TimeStep]:
        """The results of the compiled methods, by method."""
        return {"reset": self.reset.compiled_result, "step": self.step.compiled_result}

    @cached_property
    def start_keys(self) -> jax.Array:
        return jax.random.split(self.key(3), NUM_STARTS)

    @cached_property
    def starts(self) -> TimeStep:
        """`NUM_STARTS` resets, compiled and batched."""
        return self.reset.batched(self.start_keys)

    def calls(self) -> tuple[Call, ...]:
        return (self.reset, self.step)

    def key_sequences(self) -> list[tuple[Callable[..., PyTree], tuple[PyTree, ...]]]:
        def episode(action: PyTree, keys: list[jax.Array]) -> TimeStep:
            step = self.env.reset(keys[0])
            for key in keys[1:]:
                step = self.env.step(step.state, action, key)
            return step

        return [(episode, (self.action, [self.key(number) for number in range(9, 13)]))]

    def carried(self) -> list[tuple[str, PyTree, PyTree]]:
        start, after = self.compiled_steps.values()
        return [("state", start.state, after.state)]

    def run_loop(self) -> None:
        _ = self.rollout

    def repeated_calls(self) -> Iterator[tuple[str, Compiled, tuple[PyTree, ...]]]:
        for text, result in self.compiled_steps.items():
            args = (result.state, self.action, self.key(2))
            yield f"the state that {text} returned", self.step.compiled, args

    def stored(self) -> dict[str, PyTree]:
        return dict(self.compiled_steps)

    def strongly_typed(self) -> dict[str, PyTree]:
        # The training casts a weakly typed reward.
        steps = self.compiled_steps.items()
        return {text: replace(step, reward=None) for text, step in steps}  # pyright: ignore

    def choose(self, mask: jax.Array | None, key: jax.Array) -> PyTree:
        """Draw a uniformly random action; with an action mask, an allowed one."""
        spec: Any = self.env.action_spec
        if not is_mask(mask, spec):
            return specs.sample(spec, key)
        allowed = policy(spec, {"logits": jnp.zeros(jnp.shape(mask))}, jnp.asarray(mask))
        return allowed.sample(jax.random.fold_in(key, 0)).astype(spec.dtype)

    @cached_property
    def rollout(self) -> "Rollout":
        """Random actions in `NUM_ENVS` environments, reset by the checker at episode ends."""
        leaves = jax.tree.leaves(self.compiled_steps)
        step_bytes = NUM_ENVS * sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
        num_steps = min(NUM_STEPS, max(32, MAX_ROLLOUT_BYTES // max(1, step_bytes)))
        starts = self.starts

        def step(carry: tuple[StepInput, jax.Array], key: jax.Array) -> tuple:
            before, num_used = carry
            action_keys, step_keys = jax.random.split(key, (2, NUM_ENVS))
            action = jax.vmap(self.choose)(before.action_mask, action_keys)
            after = jax.vmap(self.step.function)(before.state, action, step_keys)
            done = after.terminated | after.truncated
            rows = (num_used + jnp.cumsum(done.astype(jnp.int32)) - 1) % NUM_STARTS

            def where_done(start: jax.Array, current: jax.Array) -> jax.Array:
                mask = done.reshape(done.shape + (1,) * (current.ndim - 1))
                return jnp.where(mask, start[rows], current)

            now = jax.tree.map(where_done, StepInput.of(starts), StepInput.of(after))
            return (now, num_used + done.sum(dtype=jnp.int32)), (before, action, after)

        def run(keys: jax.Array) -> tuple[StepInput, PyTree, TimeStep]:
            first = jax.tree.map(lambda leaf: leaf[:NUM_ENVS], StepInput.of(starts))
            return jax.lax.scan(step, (first, jnp.int32(NUM_ENVS)), keys)[1]

        keys = jax.random.split(self.key(4), num_steps)
        text = "a rollout of random actions"
        return Rollout(*attempt(text, lambda: jax.block_until_ready(jax.jit(run)(keys))))


def is_mask(mask: Any, spec: Spec) -> TypeGuard[jax.Array]:
    """Return True if `mask` is an action mask for `spec`."""
    return (
        (size := specs.mask_size(spec)) is not None
        and np.shape(mask) == (size,)
        and str(getattr(mask, "dtype", "")) == "bool"
    )


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class StepInput:
    """The parts of a TimeStep from which the next action and step are computed."""

    state: PyTree
    obs: PyTree
    action_mask: jax.Array | None

    @classmethod
    def of(cls, step: TimeStep) -> "StepInput":
        return cls(step.state, step.obs, step.action_mask)


class Episodes(ABC):
    """Episodes in `T` steps of `N` environments."""

    @property
    @abstractmethod
    def done(self) -> np.ndarray:
        """Where an episode ended, bool `[T, N]`."""

    @property
    def time(self) -> np.ndarray:
        """Number of each step in its episode, from 1: int `[T, N]`."""
        steps = np.arange(len(self.done))[:, None]
        is_first = np.concatenate([np.ones_like(self.done[:1]), self.done[:-1]])
        return steps - np.maximum.accumulate(np.where(is_first, steps, 0)) + 1

    @property
    def ends(self) -> np.ndarray:
        """Indices of the steps, of `T x N`, that end an episode of at least two steps."""
        return np.flatnonzero(self.done & (self.time > 1))

    @property
    def middles(self) -> np.ndarray:
        """Indices of the steps, of `T x N`, that do not end an episode."""
        return np.flatnonzero(~self.done)


@dataclass(frozen=True)
class Rollout(Episodes):
    """Steps `[T, N, ...]`; `after` comes before any reset, `before` after it."""

    before: StepInput
    action: PyTree
    after: TimeStep

    @property
    def done(self) -> np.ndarray:
        return np.asarray(self.after.terminated) | np.asarray(self.after.truncated)

    def where(self, step: int) -> str:
        """Describe one of the `T x N` steps."""
        return f"step {self.time.ravel()[step]} of an episode"


def spec_leaves(
    spec: Spec, value: PyTree, path: str = "obs"
) -> Iterator[tuple[str, specs.Box | specs.Discrete | specs.MultiDiscrete, PyTree]]:
    """Yield path, spec and value of each leaf of a spec."""
    if isinstance(spec, specs.Dict):
        for name, child in spec.items:
            yield from spec_leaves(child, value[name], f"{path}[{name!r}]")
    else:
        yield path, spec, value
