"""Correct environments, some of them unusual."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from triglot.core.environment import TimeStep, first_step
from triglot.core.specs import Box, Dict, Discrete, MultiDiscrete, Spec
from triglot.core.wrappers.ends import TimeLimit


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Place:
    position: jax.Array
    time: jax.Array


@dataclass(frozen=True)
class Walk:
    """A correct environment: walk on a line from near 0, until beyond 3 or for 20 steps."""

    name = "walk"
    obs_spec: ClassVar[Spec] = Box((2,), "float32", -5.0, 20.0)
    action_spec: ClassVar[Spec] = Discrete(3)

    def reset(self, key: jax.Array) -> TimeStep:
        position = jax.random.uniform(key, (), jnp.float32, -0.5, 0.5)
        state = Place(position=position, time=jnp.int32(0))
        return first_step(state, self.observe(state))

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        noise = jax.random.uniform(key, (), jnp.float32, -0.1, 0.1)
        moved = Place(
            position=state.position + self.push(action) + noise,
            time=state.time + 1,
        )
        terminated = jnp.abs(moved.position) > 3
        return TimeStep(
            state=moved,
            obs=self.observe(moved),
            reward=jnp.float32(1),
            terminated=terminated,
            truncated=(moved.time >= 20) & ~terminated,
        )

    def push(self, action: jax.Array) -> jax.Array:
        return action.astype(jnp.float32) - 1.0

    def observe(self, state: Place) -> jax.Array:
        return jnp.stack([state.position, state.time.astype(jnp.float32)])


def where(condition: jax.Array, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


@jax.tree_util.register_dataclass
@dataclass(frozen=True, kw_only=True)
class Cell:
    row: jax.Array
    column: jax.Array


@dataclass(frozen=True)
class Grid:
    """A correct environment: from one of `starts` to the top left of five by five cells."""

    anywhere: bool = False
    onehot: bool = False
    name = "grid"
    action_spec: ClassVar[Spec] = Discrete(4)

    @property
    def obs_spec(self) -> Spec:
        return Box((25,), "float32", 0.0, 1.0) if self.onehot else Box((2,), "int32", 0, 4)

    def reset(self, key: jax.Array) -> TimeStep:
        cell = jnp.int32(24)
        if self.anywhere:
            cell = jax.random.randint(key, (), 1, 25)
        state = Cell(row=cell // 5, column=cell % 5)
        return first_step(state, self.observe(state))

    def step(self, state: Cell, action: jax.Array, key: jax.Array) -> TimeStep:
        down, right = jnp.asarray([[-1, 0], [0, 1], [1, 0], [0, -1]], jnp.int32)[action]
        state = Cell(
            row=jnp.clip(state.row + down, 0, 4), column=jnp.clip(state.column + right, 0, 4)
        )
        return TimeStep(
            state=state,
            obs=self.observe(state),
            reward=jnp.float32(0),
            terminated=(state.row == 0) & (state.column == 0),
            truncated=jnp.zeros((), bool),
        )

    def observe(self, state: Cell) -> jax.Array:
        if self.onehot:
            return jax.nn.one_hot(5 * state.row + state.column, 25, dtype=jnp.float32)
        return jnp.stack([state.row, state.column])


class SplitsItsKey(Walk):
    """Randomness from a key in the state, split at each step."""

    def reset(self, key: jax.Array) -> TimeStep:
        start_key, kept = jax.random.split(key)
        step = super().reset(start_key)
        return replace(step, state=(step.state, kept))

    def step(self, state: Any, action: jax.Array, key: jax.Array) -> TimeStep:
        place, kept = state
        kept, used = jax.random.split(kept)
        step = super().step(place, action, used)
        return replace(step, state=(step.state, kept))


class Clips(Walk):
    """The observation follows the state linearly, but for the last one of an episode."""

    def observe(self, state: Place) -> jax.Array:
        return jnp.clip(super().observe(state), -3.0, 3.0)


class MayStop(Walk):
    """Action 2 ends the episode and changes nothing but a counter that is not shown."""

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        stop = action == 2
        place = where(stop, replace(state, time=state.time + 1), step.state)
        terminated = step.terminated | stop
        return replace(
            step,
            state=place,
            obs=self.observe(place),
            terminated=terminated,
            truncated=step.truncated & ~terminated,
        )

    def observe(self, state: Place) -> jax.Array:
        return jnp.stack([jnp.sin(state.position), jnp.cos(state.position)])


class Blank(Walk):
    """A blank is shown before the stimulus and after it."""

    def observe(self, state: Place) -> jax.Array:
        shown = (state.time > 0) & (state.time < 6)
        return jnp.where(shown, jnp.sin(super().observe(state)), 0.0)

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, jnp.ones_like(action), key)
        return replace(step, terminated=step.state.time >= 6, truncated=jnp.zeros((), bool))


class FillsUp(Walk):
    """Nothing can be moved any more for some steps before the end; only time is counted."""

    obs_spec: ClassVar[Spec] = Box((1,), "float32", -1.0, 1.0)

    def observe(self, state: Place) -> jax.Array:
        return jnp.sin(state.position)[None]

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        del key
        further = state.position + 1.0 + action.astype(jnp.float32)
        state = Place(position=jnp.minimum(further, 6.0), time=state.time + 1)
        return TimeStep(
            state=state,
            obs=self.observe(state),
            reward=jnp.float32(1),
            terminated=state.time >= 8,
            truncated=jnp.zeros((), bool),
        )


class Masks(Walk):
    """Steps to the left are not allowed on the left."""

    def reset(self, key: jax.Array) -> TimeStep:
        return self.masked(super().reset(key))

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        return self.masked(super().step(state, action, key))

    def masked(self, step: TimeStep) -> TimeStep:
        allowed = jnp.ones((3,), bool).at[0].set(step.state.position > 0)
        return replace(step, action_mask=allowed)


class Parts(Masks):
    """Choose a direction, and whether to run; a mask allows both parts separately."""

    action_spec: ClassVar[Spec] = MultiDiscrete((3, 2))

    def push(self, action: jax.Array) -> jax.Array:
        direction, run = action.astype(jnp.float32)
        return (direction - 1.0) * (1.0 + run)

    def masked(self, step: TimeStep) -> TimeStep:
        may_run = jnp.array([True, False]) | (step.state.time % 2 == 0)
        direction = jnp.ones((3,), bool).at[0].set(step.state.position > 0)
        return replace(step, action_mask=jnp.concatenate([direction, may_run]))


class Nested(Walk):
    """Observations and actions in dictionaries."""

    obs_spec: ClassVar[Spec] = Dict(
        {"line": Dict({"place": Box((1,), "float32", -5.0, 5.0)}), "time": Discrete(21)}
    )
    action_spec: ClassVar[Spec] = Dict({"push": Box((), "float32", -1.0, 1.0), "far": Discrete(2)})

    def push(self, action: Any) -> jax.Array:
        return action["push"] * jnp.where(action["far"] == 1, 1.5, 0.5)

    def observe(self, state: Place) -> Any:
        return {"line": {"place": state.position[None]}, "time": state.time}


class Sights(Walk):
    """Nested observations with an image, integers and a vector; the position is in the image.

    The step is 1 to the left, none, or 1 to the right: episodes are longest near the middle.
    """

    obs_spec: ClassVar[Spec] = Dict(
        {
            "eye": Box((4, 7, 1), "uint8", 0, 255),
            "body": Dict(
                {"place": Box((1,), "float32", -5.0, 5.0), "signs": MultiDiscrete((2, 3))}
            ),
            "time": Discrete(21),
        }
    )

    def observe(self, state: Place) -> Any:
        column = jnp.clip(jnp.round(state.position) + 3, 0, 6).astype(jnp.int32)
        row = jnp.zeros((7,), jnp.uint8).at[column].set(255)
        sign = jnp.sign(state.position).astype(jnp.int32) + 1
        return {
            "eye": jnp.broadcast_to(row[None, :, None], (4, 7, 1)),
            "body": {
                "place": state.position[None],
                "signs": jnp.stack([state.time % 2, sign]),
            },
            "time": state.time,
        }


class SightsAndForce(Sights):
    """The same, with a force as action."""

    action_spec: ClassVar[Spec] = Box((1,), "float32").within(1.0)

    def push(self, action: jax.Array) -> jax.Array:
        return action[0]


class ContextsInTurn(Walk):
    """Each observation is drawn anew, whatever came before; episodes take 10 steps."""

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        moved = Place(position=self.reset(key).state.position, time=state.time + 1)
        return TimeStep(
            state=moved,
            obs=self.observe(moved),
            reward=moved.position,
            terminated=jnp.zeros((), bool),
            truncated=moved.time >= 10,
        )


class Lasts(ContextsInTurn):
    """Terminates after a fixed number of steps, which is correct if the task says so."""

    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        return replace(step, terminated=step.truncated, truncated=step.terminated)


class Endless(Walk):
    def step(self, state: Place, action: jax.Array, key: jax.Array) -> TimeStep:
        step = super().step(state, action, key)
        never = jnp.zeros((), bool)
        place = replace(
            step.state, position=jnp.clip(step.state.position, -3.0, 3.0), time=state.time
        )
        return replace(
            step, state=place, obs=self.observe(place), terminated=never, truncated=never
        )


def limited(env: Any, max_steps: int) -> TimeLimit:
    return TimeLimit(env, max_steps)


SOUND: list[Any] = [
    Walk(),
    Grid(),
    Grid(onehot=True),
    Grid(anywhere=True),
    Grid(anywhere=True, onehot=True),
    limited(Grid(), 12),
    limited(Grid(anywhere=True, onehot=True), 12),
    limited(Walk(), 3),
    SplitsItsKey(),
    Clips(),
    MayStop(),
    Blank(),
    Masks(),
    Nested(),
    Parts(),
    ContextsInTurn(),
    Lasts(),
    Endless(),
    limited(Endless(), 15),
    FillsUp(),
]
