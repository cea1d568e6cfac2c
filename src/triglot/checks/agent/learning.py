"""Checks of an agent in training, and of what it learns, above all at episode ends."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from ...core import specs
from ...core.agent import ActionValues
from ...core.hyper import first_numbers
from ...core.loop.state import Updated
from ...core.types import AnyAgentState, AnyHyperparams
from ..purity import attempt
from ..report import Checklist, Failed, NotApplicable
from ..trees import by_path, find_not_finite, find_value_difference, is_inexact, to_float64
from .case import CHUNK_SIZE
from .feeder import LearningCase

TRAINING: Checklist[LearningCase] = Checklist(needs=["scan"])
CHECKS: Checklist[LearningCase] = Checklist(needs=["learns"])  # on synthetic trajectories

NUM_UPDATES = 8


@TRAINING.check(needs=["jit"])
def _action_mask(case: LearningCase) -> None:
    """Does it choose allowed actions only, exploring and greedily?

    Why: The result of an action that is not allowed is undefined.

    Fix: Set the logits or values to -inf (or the lowest float) where inputs.action_mask is False.
    """
    spec = case.env.action_spec
    if case.inputs.action_mask is None or isinstance(spec, specs.Box | specs.Dict):
        raise NotApplicable("the environment has no action mask.")
    counts = spec.num_values
    for number in range(8):
        key = case.key(20 + number)
        keys = jax.random.split(key, case.num_envs)
        allowed = jax.vmap(lambda key: specs.sample(spec, key))(keys)
        inputs = replace(case.inputs, action_mask=_only(counts, allowed))
        for explore, call in case.acts.items():
            output = call.compiled(case.initial_state, case.carry, inputs, key)
            wrong = np.asarray(output.action != allowed).reshape(case.num_envs, -1).any(axis=-1)
            if wrong.any():
                row = int(wrong.argmax())
                raise Failed(
                    f"with explore={explore} it chose action {output.action[row].tolist()} of "
                    f"{counts}, but only {allowed[row].tolist()} was allowed."
                )


def _only(num_values: int | tuple[int, ...], action: jax.Array) -> jax.Array:
    """Build the masks that allow one action each."""
    if isinstance(num_values, int):
        return jax.nn.one_hot(action, num_values, dtype=bool)
    parts = [_only(count, action[:, i]) for i, count in enumerate(num_values)]
    return jnp.concatenate(parts, axis=-1)


@TRAINING.check()
def _finite(case: LearningCase) -> None:
    """Is the state free of NaN and infinity after four updates?

    Why: One NaN spreads to every parameter in one update.

    Fix: Look for division by a standard deviation or a count of 0, log(0) and large step sizes.
    """
    state, metrics = case.second_chunk
    initial = by_path((case.initial_state, case.carry))
    for path, leaf in by_path((state.agent, state.carry)).items():
        # An initial value may be infinite on purpose, such as the end of a schedule.
        problem = find_not_finite(path, leaf)
        if problem and not find_not_finite(path, initial[path]):
            raise Failed(f"after {2 * CHUNK_SIZE} updates, state.{problem}.")
    for name, value in metrics.items():
        if jnp.isinf(value).any():
            raise Failed(f"metric {name!r} is {to_float64(value).tolist()} in updates 3 and 4.")


@TRAINING.check()
def _hyperparameters(case: LearningCase) -> None:
    """Is each hyperparameter stored in the state, so that a sweep is a vmap?

    Why: A hyperparameter outside the state is a constant of the compiled program: another value
    needs another compilation, and has no effect under vmap.

    Fix: In init, put `self.hyper if hyper is None else hyper` into the state as float32 arrays;
    read them from the state in act and update.
    """
    hyper = jax.tree.map(jnp.asarray, first_numbers(case.agent.hyper))
    if not jax.tree.leaves(hyper):
        raise NotApplicable("the agent has no hyperparameters.")

    def init(hyper: AnyHyperparams) -> AnyAgentState:
        text = "`init(key, num_envs, hyper)`"
        return attempt(text, case.agent.init, case.key(1), case.num_envs, hyper)

    leaves, treedef = jax.tree.flatten(hyper)
    before = init(hyper)
    for index, path in enumerate(by_path(hyper)):
        changed = [other_value(leaf) if i == index else leaf for i, leaf in enumerate(leaves)]
        if not find_value_difference("", before, init(treedef.unflatten(changed))):
            new, old = (to_float64(tree[index]).tolist() for tree in (changed, leaves))
            raise Failed(
                f"the state does not change if hyper.{path} is {new:g} in place of {old:g}."
            )
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, other_value(leaf), leaf]), hyper)

    def train(hyper: AnyHyperparams) -> Updated:
        return case.trainer.update(replace(case.start, agent=init(hyper)))

    attempt("training under jax.vmap over hyper", jax.eval_shape, jax.vmap(train), several)


def other_value(number: jax.Array) -> jax.Array:
    """Return a different value of a hyperparameter."""
    if not jnp.issubdtype(number.dtype, jnp.inexact):
        return number + 1
    return jnp.where(jnp.isfinite(number) & (number != 0), number * 0.5, 0.125)


@CHECKS.check(needs=["scan"])
def _learns(case: LearningCase) -> None:
    """Do updates change any floating-point array besides counters and stored data?

    Why: An agent that learns nothing trains without an error.

    Fix: Return the new parameters from update; look for a learning rate of 0, a loss without
    gradient, a replay buffer that never counts as full.
    """
    if case.trained is None:
        raise Failed(
            f"after {case.counts[-1]} updates of {list(case.shape)} steps all are unchanged."
        )


@CHECKS.check()
def _greedy(case: LearningCase) -> None:
    """Does act with explore=False choose the same actions for any key after training?

    Why: Evaluation must measure the policy, not its noise.

    Fix: If explore is False, return the policy's mode or the argmax.
    """
    # Untrained values may be equal, and the key may break such ties.
    first, *others = (
        case.actions(case.trained, case.pool, case.key(20 + number), False) for number in range(5)
    )
    what, agent = "the action", case.agent
    if isinstance(agent, ActionValues) and not jax.tree.leaves(case.carry):
        # Of actions with equal values, any is greedy.
        what, values = "the value of the action", agent.action_values(case.trained, case.pool)
        first, *others = (case.at_actions(values, actions) for actions in (first, *others))
    for other in others:
        if difference := find_value_difference(what, first, other, rtol=1e-4, atol=1e-5):
            raise Failed(f"with explore=False and two keys, {difference}.")


@CHECKS.check()
def _seeds(case: LearningCase) -> None:
    """Do two keys give two different agents?

    Why: Equal seeds repeat one experiment.

    Fix: Split the keys given to init, act and update, and use the parts; never make a key from a
    constant.
    """
    first = by_path(case.feed("terminated", NUM_UPDATES))
    second = by_path(case.feed("terminated", NUM_UPDATES, state=case.fresh, key=43))
    if not any(
        is_inexact(first[path]) and find_value_difference(path, first[path], second[path])
        for path in first
    ):
        raise Failed(
            f"two keys for init, act and update gave the same state after {NUM_UPDATES} updates."
        )


@CHECKS.check(needs=["seeds"])
def _exploration(case: LearningCase) -> None:
    """Do explored actions depend on the key?

    Why: Exploration that repeats itself visits the same states.

    Fix: Sample with the key given to act. If the agent explores through its parameters, as an
    evolution strategy does, declare explores_by_parameters = True.
    """
    if case.agent.explores_by_parameters:
        raise NotApplicable(
            "the agent declares explores_by_parameters = True: its actions may ignore the key."
        )
    greedy, *explored = (
        case.actions(case.initial_state, case.views, case.key(50 + number), number > 0)
        for number in range(5)
    )
    if any(find_value_difference("", explored[0], other) for other in explored[1:]):
        return
    if find_value_difference("", greedy, explored[0]):
        raise Failed("four keys gave equal explored actions, which differ from the greedy ones.")


@CHECKS.check()
def _time_limits(case: LearningCase) -> None:
    """Does a truncated step teach something else than a terminated one?

    Why: After a time limit the task would continue: the value of next_obs follows, not 0.

    Fix: Multiply the bootstrap by (1 - terminated) only; at truncated steps, bootstrap on next_obs
    and cut the sum. If the agent does not bootstrap, declare bootstraps = False.
    """
    if not case.agent.bootstraps:
        raise NotApplicable(
            "the agent declares bootstraps = False: it may treat truncated steps as terminated."
        )
    count, difference = case.flag_difference
    if difference:
        return
    both = "bootstrapped" if case.uses_next_obs("terminated") else "taken for ends"
    raise Failed(
        f"{count} updates on trajectories that differ only in their flags gave equal parameters: "
        f"terminated and truncated steps are both {both}."
    )


@CHECKS.check(needs=["time limits"])
def _terminal_successor(case: LearningCase) -> None:
    """Does next_obs of a terminated step have no effect?

    Why: The episode is over: a bootstrap there learns values of states that never occur.

    Fix: Multiply the bootstrap by (1 - terminated) in every target.
    """
    if case.pool_size < 2:
        raise NotApplicable("there is only one observation.")
    if effect := case.algorithm.uses_next_obs("terminated"):
        raise Failed(f"with another next_obs at terminated steps, {effect}.")


@CHECKS.check(needs=["terminal successor"])
def _truncated_successor(case: LearningCase) -> None:
    """Does a truncated step bootstrap on its own next_obs?

    Why: next_obs is the true successor; the next row of the trajectory is the first observation of
    another episode.

    Fix: Use the value of trajectory.next_obs, not of obs shifted by one, and do not mask the step.
    """
    case = case.algorithm
    if case.pool_size < 2 or not case.uses_next_obs("nowhere"):
        raise NotApplicable("its update does not depend on next_obs.")
    if not case.uses_next_obs("truncated"):
        raise Failed("another next_obs has an effect at other steps, but not at truncated steps.")
