"""Checks of what an agent learns from synthetic trajectories, above all at episode ends."""

from ..report import Checklist, Failed, NotApplicable
from ..trees import by_path, find_value_difference, is_inexact
from .feeder import LearningCase

CHECKS: Checklist[LearningCase] = Checklist(needs=["learns"])

NUM_UPDATES = 8


@CHECKS.check(
    question="Do updates change any floating-point array besides counters and stored data?",
    why="An agent that learns nothing trains without an error.",
    fix="Return the new parameters from update; look for a learning rate of 0, a loss without "
    "gradient, a replay buffer that never counts as full.",
    needs=["scan"],
)
def _learns(case: LearningCase) -> None:
    feeder = case.feeder
    if feeder.trained is None:
        raise Failed(
            f"after {feeder.counts[-1]} updates of {list(feeder.shape)} steps all are unchanged."
        )


@CHECKS.check(
    question="Does act with explore=False choose the same actions for any key after training?",
    why="Evaluation must measure the policy, not its noise.",
    fix="If explore is False, return the policy's mode or the argmax.",
)
def _greedy(case: LearningCase) -> None:
    # Untrained values may be equal, and the key may break such ties.
    feeder = case.feeder
    first, *others = (
        feeder.actions(feeder.trained, feeder.pool, case.key(20 + number), False)
        for number in range(5)
    )
    for other in others:
        if found := find_value_difference("the action", first, other, rtol=1e-4, atol=1e-5):
            raise Failed(f"with explore=False and two keys, {found}.")


@CHECKS.check(
    question="Do two keys give two different agents?",
    why="Equal seeds repeat one experiment.",
    fix="Split the keys given to init, act and update, and use the parts; never make a key from a "
    "constant.",
)
def _seeds(case: LearningCase) -> None:
    feeder = case.feeder
    data = (feeder.ends, feeder.nowhere, feeder.nowhere, NUM_UPDATES)
    first = by_path(feeder.feed(*data))
    second = by_path(feeder.feed(*data, state=case.fresh, agent_key=43))
    if not any(
        is_inexact(first[path]) and find_value_difference(path, first[path], second[path])
        for path in first
    ):
        raise Failed(
            f"two keys for init, act and update gave the same state after {NUM_UPDATES} updates."
        )


@CHECKS.check(
    question="Do explored actions depend on the key?",
    why="Exploration that repeats itself visits the same states.",
    fix="Sample with the key given to act. If the agent explores through its parameters, as an "
    "evolution strategy does, declare explores_by_parameters = True.",
    needs=["seeds"],
)
def _exploration(case: LearningCase) -> None:
    if case.agent.explores_by_parameters:
        raise NotApplicable(
            "the agent declares explores_by_parameters = True: its actions may ignore the key."
        )
    feeder = case.feeder
    greedy, *explored = (
        feeder.actions(case.made, feeder.views, case.key(50 + number), number > 0)
        for number in range(5)
    )
    if any(find_value_difference("", explored[0], other) for other in explored[1:]):
        return
    if find_value_difference("", greedy, explored[0]):
        raise Failed("four keys gave equal explored actions, which differ from the greedy ones.")


@CHECKS.check(
    question="Does a truncated step teach something else than a terminated one?",
    why="After a time limit the task would continue: the value of next_obs follows, not 0.",
    fix="Multiply the bootstrap by (1 - terminated) only; at truncated steps, bootstrap on "
    "next_obs and cut the sum. If the agent does not bootstrap, declare bootstraps = False.",
)
def _time_limits(case: LearningCase) -> None:
    if not case.agent.bootstraps:
        raise NotApplicable(
            "the agent declares bootstraps = False: it may treat truncated steps as terminated."
        )
    feeder = case.feeder
    count, difference = feeder.flag_difference
    if difference:
        return
    both = "bootstrapped" if feeder.uses_next_obs(feeder.ends, feeder.nowhere) else "taken for ends"
    raise Failed(
        f"{count} updates on trajectories that differ only in their flags gave equal parameters: "
        f"terminated and truncated steps are both {both}."
    )


@CHECKS.check(
    question="Does next_obs of a terminated step have no effect?",
    why="The episode is over: a bootstrap there learns values of states that never occur.",
    fix="Multiply the bootstrap by (1 - terminated) in every target.",
    needs=["time limits"],
)
def _terminal_successor(case: LearningCase) -> None:
    feeder = case.feeder
    if feeder.pool_size < 2:
        raise NotApplicable("there is only one observation.")
    if found := feeder.uses_next_obs(feeder.ends, feeder.nowhere):
        raise Failed(f"with another next_obs at terminated steps, {found}.")


@CHECKS.check(
    question="Does a truncated step bootstrap on its own next_obs?",
    why="next_obs is the true successor; the next row of the trajectory is the first observation "
    "of another episode.",
    fix="Use the value of trajectory.next_obs, not of obs shifted by one, and do not mask the "
    "step.",
    needs=["terminal successor"],
)
def _truncated_successor(case: LearningCase) -> None:
    feeder = case.feeder
    if feeder.pool_size < 2 or not feeder.uses_next_obs(feeder.nowhere, feeder.nowhere):
        raise NotApplicable("its update does not depend on next_obs.")
    if not feeder.uses_next_obs(feeder.nowhere, feeder.ends):
        raise Failed("another next_obs has an effect at other steps, but not at truncated steps.")
