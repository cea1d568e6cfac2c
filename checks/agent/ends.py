"""What an agent learns from made-up trajectories: at all, by its key, and at an episode's end."""

from ..report import Failed, NotApplicable
from ..shared import by_path, is_inexact, unequal
from .case import AgentCase
from .training import CHECKS

NUM_UPDATES = 8


@CHECKS.check(
    "learns",
    asks="Do updates change any floating-point array but counters and stored data?",
    why="an agent that learns nothing trains without an error.",
    mend="return the new parameters from update; look for a learning rate of 0, a loss without "
    "gradient, a replay that never counts as full.",
    needs=["scan"],
)
def _learns(case: AgentCase) -> None:
    feeder = case.feeder
    if feeder.taught is None:
        raise Failed(
            f"{feeder.counts[-1]} updates of {list(feeder.shape)} steps left them as they were"
        )


@CHECKS.check(
    "greedy",
    asks="Does act with explore=False, having learned, choose the same action for any key?",
    why="evaluation shows what was learned, not luck.",
    mend="where explore is False take the policy's mode or the argmax.",
    needs=["learns"],
)
def _greedy(case: AgentCase) -> None:
    # At the start actions may be as good as one another, and a tie be broken by the key.
    feeder = case.feeder
    first, *others = (
        feeder.actions(feeder.taught, feeder.pool, case.key(20 + number), False)
        for number in range(5)
    )
    for other in others:
        if found := unequal("the action", first, other, rtol=1e-4, atol=1e-5):
            raise Failed(f"with explore=False and two keys, {found}")


@CHECKS.check(
    "seeds",
    asks="Do two keys give two agents, and explored actions that differ?",
    why="seeds that are all alike are one experiment told several times; a well-known DQN rebound "
    "its key to PRNGKey(0).",
    mend="split the keys that init, act and update are given, and use the parts; never make a key "
    "from a constant inside.",
    needs=["learns"],
)
def _seeds(case: AgentCase) -> None:
    feeder = case.feeder
    data = (feeder.ends, feeder.nowhere, feeder.nowhere, NUM_UPDATES)
    first = by_path(feeder.feed(*data))
    second = by_path(feeder.feed(*data, state=case.init(case.key(8)), agent_key=43))
    same = [p for p in first if not is_inexact(first[p]) or not unequal(p, first[p], second[p])]
    if len(same) == len(first):
        raise Failed(
            f"two keys for init, act and update gave one state after {NUM_UPDATES} updates"
        )
    greedy, *explored = (
        feeder.actions(case.made, feeder.views, case.key(50 + number), number > 0)
        for number in range(5)
    )
    alike = not any(unequal("", explored[0], other) for other in explored[1:])
    if alike and unequal("", greedy, explored[0]):
        raise Failed("four keys explored alike, though not greedily: act makes nothing of its key")


@CHECKS.check(
    "time-limits",
    asks="Does a truncated step teach something else than a terminated one?",
    why="after a time limit the task would go on: its end is worth the value of next_obs, not 0.",
    mend="discount the bootstrap by (1 - terminated) and by that alone; where truncated, bootstrap "
    "on next_obs and cut the sum there.",
    needs=["learns"],
)
def _time_limits(case: AgentCase) -> None:
    feeder = case.feeder
    count, difference = feeder.told_apart
    if difference:
        return
    both = (
        "bootstrapped" if feeder.reads_successor(feeder.ends, feeder.nowhere) else "taken for ends"
    )
    raise Failed(
        f"{count} updates on trajectories alike but for their flags gave equal parameters: "
        f"terminated and truncated steps are both {both}"
    )


@CHECKS.check(
    "terminal-successor",
    asks="Is next_obs of a terminated step without influence?",
    why="nothing follows: bootstrapping there teaches values of what never happens.",
    mend="multiply the bootstrap by (1 - terminated), in every target.",
    needs=["time-limits"],
)
def _terminal_successor(case: AgentCase) -> None:
    feeder = case.feeder
    if feeder.pool_size < 2:
        raise NotApplicable("there is one observation only.")
    if found := feeder.reads_successor(feeder.ends, feeder.nowhere):
        raise Failed(f"with another next_obs where terminated is True, {found}")


@CHECKS.check(
    "truncated-successor",
    asks="Is a truncated step bootstrapped on its own next_obs?",
    why="next_obs is the true successor, from before the reset; what stands next in the trajectory "
    "is another episode's first observation.",
    mend="take the value of trajectory.next_obs, not that of obs shifted by one, and do not zero "
    "the step.",
    needs=["terminal-successor"],
)
def _truncated_successor(case: AgentCase) -> None:
    feeder = case.feeder
    if feeder.pool_size < 2 or not feeder.reads_successor(feeder.nowhere, feeder.nowhere):
        raise NotApplicable("its update does not depend on next_obs.")
    if not feeder.reads_successor(feeder.nowhere, feeder.ends):
        raise Failed(
            "another next_obs changes what is learned from other steps, and nothing where "
            "truncated is True"
        )
