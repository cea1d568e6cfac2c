"""Environments with one defect each, and the check that must find it."""

import itertools
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Discrete, Spec

from .sound_environments import Cell, Grid, Parts, Place, SplitsItsKey, Walk, where


class OtherSignature(Walk):
    def step(self, key: jax.Array, state: Place, action: jax.Array) -> TimeStep:  # type: ignore[override]
        return super().step(state, action, key)


@dataclass(frozen=True)
class HoldsAList(Walk):
    rewards: list[float] = field(default_factory=lambda: [0.0, 1.0])


class EqualsEverything(Walk):
    """A plain class that equals everything, and so has lost its hash."""

    def __eq__(self, other: object) -> bool:
        return True


class ResetsToATuple(Walk):
    def reset(self, key: jax.Array) -> Any:
        step = super().reset(key)
        return step.obs, step.state


class StepsToATuple(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> Any:
        step = super().step(state, action, key)
        return step.obs, step.state, step.reward, step.terminated | step.truncated, {}


class PythonFlag(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), truncated=False)  # type: ignore[arg-type]


class ChangesItsArgument(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        step = super().reset(key)
        return replace(step, state={"place": step.state, "count": jnp.int32(0)})

    def step(self, state: dict[str, Any], action: jax.Array, key: jax.Array) -> TimeStep:  # type: ignore[override]
        step = super().step(state["place"], action, key)
        state["place"] = step.state
        state["count"] = state["count"] + 1
        return replace(step, state=dict(state))


class CountsInPython(Walk):
    calls = itertools.count()

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), reward=jnp.float32(next(self.calls)))


class KeepsATarget(Walk):
    target: Any = 0.0

    def reset(self, key: jax.Array) -> TimeStep:
        KeepsATarget.target = jax.random.normal(jax.random.fold_in(key, 1))
        return super().reset(key)

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), reward=jnp.float32(self.target))


class DrawsFromNumPy(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        state = Place(position=jnp.float32(np.random.uniform(-0.5, 0.5)), time=jnp.int32(0))
        return first_step(state, self.observe(state))


class DrawsTwice(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, reward=jax.random.normal(key))


class NeverSplits(SplitsItsKey):
    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        place, kept = state
        step = Walk.step(self, place, action, kept)
        return replace(step, state=(step.state, kept))


class Branches(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, reward=jnp.float32(1)) if action == 1 else step


class AsksNumPy(Walk):
    def observe(self, state: Place) -> jax.Array:
        return jnp.asarray(np.stack([state.position, state.time]), jnp.float32)


class IntegerReward(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), reward=jnp.int32(1))


class LongReward(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), reward=jnp.ones((1,), jnp.float32))


class FloatFlag(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, terminated=step.terminated.astype(jnp.float32))


class OtherObservation(Walk):
    obs_spec: ClassVar[Spec] = Box((3,), "float32", -5.0, 20.0)


class OtherDtype(Walk):
    obs_spec: ClassVar[Spec] = Box((2,), "int32", -5.0, 20.0)


class LateMask(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), action_mask=jnp.ones((3,), bool))


class ShortMask(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        return replace(super().reset(key), action_mask=jnp.ones((2,), bool))

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), action_mask=jnp.ones((2,), bool))


class JointMask(Parts):
    """A mask of the 3 x 2 combinations, where one of the 3 + 2 values is expected."""

    def masked(self, step: TimeStep) -> TimeStep:
        return replace(step, action_mask=jnp.ones((6,), bool))


class NoneOfAPart(Parts):
    """Allows some directions, and neither to run nor not to."""

    obs_spec: ClassVar[Spec] = Box((2,), "float32", -10.0, 20.0)  # it may run to the left

    def masked(self, step: TimeStep) -> TimeStep:
        some = step.state.time < 10
        return replace(step, action_mask=jnp.array([True, True, True, False, False]) | some)


class FloatTime(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, state=replace(step.state, time=step.state.time.astype(jnp.float32)))


class Grows(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        step = super().reset(key)
        return replace(step, state=(step.state, jnp.zeros((1,), jnp.float32)))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        place, history = state
        step = super().step(place, action, key)
        return replace(step, state=(step.state, jnp.append(history, step.reward)))


class WeakStart(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        step = super().reset(key)
        return replace(step, state=replace(step.state, time=jnp.asarray(0)))


class KnowsTheCompiler(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        traced = isinstance(state.position, Tracer)
        return replace(super().step(state, action, key), reward=jnp.float32(2 if traced else 1))


class MixesItsBatch(Walk):
    def observe(self, state: Place) -> jax.Array:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        mean = jax.pure_callback(
            lambda x: np.full_like(x, np.mean(x)), shape, state.position, vmap_method="expand_dims"
        )
        return jnp.stack([mean, state.time.astype(jnp.float32)])


class CannotBeBatched(Walk):
    def observe(self, state: Place) -> jax.Array:
        shape = jax.ShapeDtypeStruct((), jnp.float32)
        same = jax.pure_callback(np.array, shape, state.position, vmap_method=None)
        return jnp.stack([same, state.time.astype(jnp.float32)])


def _early(time: Any) -> Any:
    if np.max(time) >= 5:
        raise OverflowError("only 5 steps were foreseen")
    return np.asarray(time)


class GivesUp(Walk):
    def observe(self, state: Place) -> jax.Array:
        shape = jax.ShapeDtypeStruct((), jnp.int32)
        time = jax.pure_callback(_early, shape, state.time, vmap_method="expand_dims")
        return jnp.stack([state.position, time.astype(jnp.float32)])


class StartsEnded(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        return replace(super().reset(key), terminated=jnp.ones((), bool))


class PaysForResets(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        return replace(super().reset(key), reward=jnp.float32(1))


class EndsTwice(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, truncated=step.truncated | step.terminated)


class RootOfNegative(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, reward=jnp.sqrt(2.5 - step.state.position))


class NotANumber(Walk):
    def observe(self, state: Place) -> jax.Array:
        return super().observe(state) / jnp.where(state.time == 7, 0.0, 1.0)


class LeavesItsBounds(Walk):
    obs_spec: ClassVar[Spec] = Box((2,), "float32", (-2.0, 0.0), (2.0, 20.0))


class Fractions(Walk):
    obs_spec: ClassVar[Spec] = Box((2,), "float32", -20, 20, whole=True)

    def observe(self, state: Place) -> jax.Array:
        return super().observe(state) / 4


class OneCellTooMany(Walk):
    obs_spec: ClassVar[Spec] = Discrete(20)

    def observe(self, state: Place) -> jax.Array:
        return state.time


class NothingAllowed(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        return replace(super().reset(key), action_mask=jnp.ones((3,), bool))

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, action_mask=jnp.broadcast_to(step.state.time < 10, (3,)))


class FearsTheEdge(Walk):
    action_spec: ClassVar[Spec] = Box((), "float32", -1.0, 1.0)

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return replace(super().step(state, action, key), reward=jnp.log(1 - action))

    def push(self, action: jax.Array) -> jax.Array:
        return action


class FearsTheLast(Walk):
    action_spec: ClassVar[Spec] = Discrete(100_000)

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        reward = 1.0 / (99_999 - action).astype(jnp.float32)
        return replace(super().step(state, action, key), reward=reward)

    def push(self, action: jax.Array) -> jax.Array:
        return super().push(action % 3)


class ResetsItself(Walk):
    """As gymnax's `step` does, flags and reward apart."""

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step_key, reset_key = jax.random.split(key)
        step = super().step(state, action, step_key)
        start = super().reset(reset_key)
        done = step.terminated | step.truncated
        shown = where(done, (start.state, start.obs), (step.state, step.obs))
        return replace(step, state=shown[0], obs=shown[1])


class ResetsFromItsState(SplitsItsKey):
    """As environments do that carry their key."""

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        place, kept = state
        kept, next_kept = jax.random.split(kept)
        step = Walk.step(self, place, action, key)
        start = Walk.reset(self, kept)
        done = step.terminated | step.truncated
        shown = where(done, (start.state, start.obs), (step.state, step.obs))
        return replace(step, state=(shown[0], next_kept), obs=shown[1])


class GridResetsItself(Grid):
    def step(self, state: Cell, action: jax.Array, key: jax.Array) -> TimeStep:
        step, start = super().step(state, action, key), super().reset(key)
        shown = where(step.terminated, (start.state, start.obs), (step.state, step.obs))
        return replace(step, state=shown[0], obs=shown[1])


class GridShowsTheStart(Grid):
    def step(self, state: Cell, action: jax.Array, key: jax.Array) -> TimeStep:
        step, start = super().step(state, action, key), super().reset(key)
        return replace(step, obs=where(step.terminated, start.obs, step.obs))


class GridShowsThePast(Grid):
    def step(self, state: Cell, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, obs=where(step.terminated, self.observe(state), step.obs))


class ShowsTheStart(Walk):
    """As wrappers do that reset and keep the last observation nowhere."""

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step_key, reset_key = jax.random.split(key)
        step = super().step(state, action, step_key)
        done = step.terminated | step.truncated
        return replace(step, obs=where(done, super().reset(reset_key).obs, step.obs))


class ShowsThePast(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        done = step.terminated | step.truncated
        return replace(step, obs=where(done, self.observe(state), step.obs))


class NamesClash(Walk):
    def reset(self, key: jax.Array) -> TimeStep:
        step = super().reset(key)
        return replace(step, state={"a.b": step.state.position, "a": {"b": step.state.time}})

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(Place(position=state["a.b"], time=state["a"]["b"]), action, key)
        return replace(step, state={"a.b": step.state.position, "a": {"b": step.state.time}})


BROKEN: list[tuple[str, Any]] = [
    ("protocol", OtherSignature()),
    ("hashing", HoldsAList()),
    ("hashing", EqualsEverything()),
    ("reset", ResetsToATuple()),
    ("step", StepsToATuple()),
    ("arrays", PythonFlag()),
    ("arguments unchanged", ChangesItsArgument()),
    ("deterministic", CountsInPython()),
    ("deterministic", KeepsATarget()),
    ("deterministic", DrawsFromNumPy()),
    ("keys used once", DrawsTwice()),
    ("keys used once", NeverSplits()),
    ("jit", Branches()),
    ("jit", AsksNumPy()),
    ("reward", IntegerReward()),
    ("reward", LongReward()),
    ("flags", FloatFlag()),
    ("observation", OtherObservation()),
    ("observation", OtherDtype()),
    ("action mask", LateMask()),
    ("action mask", ShortMask()),
    ("action mask", JointMask()),
    ("scan", FloatTime()),
    ("scan", Grows()),
    ("compiles once", WeakStart()),
    ("jit", KnowsTheCompiler()),
    ("vmap", MixesItsBatch()),
    ("vmap", CannotBeBatched()),
    ("scan", GivesUp()),
    ("clean start", StartsEnded()),
    ("clean start", PaysForResets()),
    ("one end", EndsTwice()),
    ("finite", RootOfNegative()),
    ("finite", NotANumber()),
    ("declared bounds", LeavesItsBounds()),
    ("declared bounds", OneCellTooMany()),
    ("declared bounds", Fractions()),
    ("allowed actions", NothingAllowed()),
    ("allowed actions", NoneOfAPart()),
    ("every action", FearsTheEdge()),
    ("every action", FearsTheLast()),
    ("no self-reset", ResetsItself()),
    ("no self-reset", ResetsFromItsState()),
    ("no self-reset", GridResetsItself()),
    ("no self-reset", GridResetsItself(anywhere=True)),
    ("last observation", ShowsTheStart()),
    ("last observation", ShowsThePast()),
    ("last observation", GridShowsTheStart()),
    ("last observation", GridShowsTheStart(onehot=True)),
    ("last observation", GridShowsTheStart(anywhere=True)),
    ("last observation", GridShowsThePast()),
    ("last observation", GridShowsThePast(onehot=True, anywhere=True)),
    ("checkpoint", NamesClash()),
]
