"""What an agent is asked next: does it train under JAX's transformations, and on disk?"""

from typing import Any

import jax
import jax.numpy as jnp

from ...core.loop.state import RunnerState
from ..report import Failed, NotApplicable
from ..shared import by_path, different, lost_on_disk, not_finite, numbers, reused_key, unequal
from .answers import CHECKS
from .case import CHUNK_SIZE, AgentCase


@CHECKS.check(
    "scan",
    asks="Does Trainer.train_chunk run, two updates in one compiled loop?",
    why="all training is such a loop.",
    mend="keep the state's and the carry's structure, shapes and dtypes through act and update.",
    needs=["jit"],
)
def _scan(case: AgentCase) -> None:
    after, metrics = case.first_chunk
    if found := different("runner state", case.start, after):
        raise Failed(f"over {CHUNK_SIZE} updates, {found}")
    for name, value in metrics.items():
        if value.shape != (CHUNK_SIZE,):
            raise Failed(f"metric {name!r} is {list(value.shape[1:])} in training, no scalar")


@CHECKS.check(
    "finite",
    asks="Is the state free of NaN and infinity after four updates?",
    why="one NaN spreads to every parameter in one update.",
    mend="look for a division by a standard deviation or a count of 0, log(0) and steps too large.",
    needs=["scan"],
)
def _finite(case: AgentCase) -> None:
    state, metrics = case.second_chunk
    begun = by_path((case.made, case.carry))
    for path, leaf in by_path((state.agent, state.carry)).items():
        # A number may be infinite on purpose, such as a schedule that never ends.
        found = not_finite(path, leaf)
        if found and not not_finite(path, begun[path]):
            raise Failed(f"after {2 * CHUNK_SIZE} updates, state.{found}")
    for name, value in metrics.items():
        if jnp.isinf(value).any():
            raise Failed(f"metric {name!r} is {numbers(value).tolist()} in updates 3 and 4")


@CHECKS.check(
    "compilation",
    asks="Is training compiled once, for fresh states and for those that it returns?",
    why="a second compilation may cost more than the training.",
    mend="give jnp.array and jnp.full a dtype, so that no array of the state is of weak type; make "
    "no objects anew as static parts of the state.",
    needs=["scan"],
)
def _compilation(case: AgentCase) -> None:
    after, _ = case.second_chunk
    found = different("state", case.start, case.first_chunk[0], weak=True)
    if len(case.traces) > 1:
        raise Failed(f"the state that training returned compiled it again; {_told(found)}")
    fresh = case.init(case.key(8))
    case.train_chunk(_with_agent(after, fresh))
    if len(case.traces) > 1:
        found = different("state", case.made, fresh, weak=True)
        raise Failed(f"the state of another key compiled it again; {_told(found)}")


def _told(found: str) -> str:
    return found or "nothing that can be seen is different"


def _with_agent(state: RunnerState, agent_state: Any) -> RunnerState:
    return RunnerState(
        key=state.key,
        agent=agent_state,
        carry=state.carry,
        env=state.env,
        num_updates=state.num_updates,
    )


@CHECKS.check(
    "vmap",
    asks="Do init and training work under vmap over seeds?",
    why="many seeds train side by side in one program.",
    mend="use JAX's functions throughout; a jax.pure_callback needs a vmap_method.",
    needs=["scan"],
)
def _vmap(case: AgentCase) -> None:
    def train(key: jax.Array) -> Any:
        agent_state = case.agent.init(key, case.num_envs)
        return case.trainer.update(_with_agent(case.start, agent_state))

    # Tracing finds what cannot be batched; compiling would cost seconds and find no more.
    keys = jnp.stack([case.key(1), case.key(8), case.key(9)])
    case.call("training under jax.vmap over 3 seeds", jax.eval_shape, jax.vmap(train), keys)


@CHECKS.check(
    "key-reuse",
    asks="Does each key serve once, in init, act and two updates?",
    why="what is drawn twice with one key is no second draw: exploration repeats itself.",
    mend="split the key into as many as are needed; a key in the state is split and its rest kept.",
    needs=["scan"],
)
def _key_reuse(case: AgentCase) -> None:
    def steps(trajectory: Any, keys: list[jax.Array]) -> Any:
        state = case.agent.init(keys[0], case.num_envs)
        carry = case.agent.initial_carry(state, case.num_envs)
        output = case.agent.act(state, carry, case.inputs, keys[1], explore=True)
        state, _ = case.agent.update(state, trajectory, keys[2])
        return output, case.agent.update(state, trajectory, keys[3])

    keys = [case.key(number) for number in (30, 31, 32, 33)]
    if found := reused_key(steps, case.still, keys):
        raise Failed(found)


@CHECKS.check(
    "checkpoint",
    asks="Does a training's state come back from disk as it was?",
    why="a training that cannot be saved cannot be resumed.",
    mend="keep the state in dictionaries, tuples and registered dataclasses of arrays, with names "
    "that differ when they are joined by dots, and no arrays of size 0.",
    needs=["init", "act"],
)
def _checkpoint(case: AgentCase) -> None:
    if found := lost_on_disk("state", case.start):
        raise Failed(f"saved and restored, {found}")


@CHECKS.check(
    "hyper",
    asks="Does each number of hyper live in the state, so that a sweep is a vmap?",
    why="a number that is compiled in is compiled again for every value, and a sweep over it in "
    "one program would vary nothing.",
    mend="let init put `self.hyper if hyper is None else hyper` into the state as float32 arrays, "
    "and read it from there in act and update.",
    needs=["scan"],
)
def _hyper(case: AgentCase) -> None:
    hyper = jax.tree.map(jnp.asarray, case.agent.hyper)
    if not jax.tree.leaves(hyper):
        raise NotApplicable("the agent has no hyperparameters.")

    def init(hyper: Any) -> Any:
        what = "`init(key, num_envs, hyper)`"
        return case.call(what, case.agent.init, case.key(1), case.num_envs, hyper)

    leaves, treedef = jax.tree.flatten(hyper)
    before = init(hyper)
    for index, path in enumerate(by_path(hyper)):
        others = [_other(leaf) if i == index else leaf for i, leaf in enumerate(leaves)]
        if not unequal("state", before, init(treedef.unflatten(others))):
            raise Failed(
                f"hyper.{path} of {numbers(others[index]).tolist():g} in place of "
                f"{numbers(leaves[index]).tolist():g} leaves the state as it was"
            )
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, _other(leaf), leaf]), hyper)

    def train(hyper: Any) -> Any:
        return case.trainer.update(_with_agent(case.start, init(hyper)))

    case.call("training under jax.vmap over hyper", jax.eval_shape, jax.vmap(train), several)


def _other(number: jax.Array) -> jax.Array:
    if not jnp.issubdtype(number.dtype, jnp.inexact):
        return number + 1
    return jnp.where(jnp.isfinite(number) & (number != 0), number * 0.5, 0.125)
