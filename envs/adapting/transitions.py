"""The transitions of a Gymnasium environment alone, and of several under each autoreset mode."""

from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from ...core.host_environment import Choose, HostStart, Transition, row
from .host import GymnasiumVector

if TYPE_CHECKING:
    from .masks import AnyEnv

# `AutoresetMode` of Gymnasium: when a vector environment begins the next episode.
MODES = ("SameStep", "NextStep", "Disabled")


def of_single(
    single: "AnyEnv", read: GymnasiumVector, seed: int, choose: Choose, num: int, number: int
) -> list[Transition]:
    """Step one environment, which is reset after the end of an episode, and copy what it returns.

    Args:
      single: the environment, with action masks in its `info` if it has any.
      read: converts its observations.
      seed: of its first reset.
      choose: `choose(number, step, action_mask)` returns an action.
      num: number of transitions.
      number: of the environment among several.
    """
    raw_obs, info = single.reset(seed=seed)
    obs, mask, steps = read.read(raw_obs), read.mask_of(raw_obs, info), []
    for step in range(num):
        action = read.as_action(choose(number, step, mask))
        raw_obs, reward, terminated, truncated, info = single.step(action)
        next_obs, next_mask = read.read(raw_obs), read.mask_of(raw_obs, info)
        flags = bool(terminated), bool(truncated) and not terminated
        steps.append(Transition(obs, np.float32(reward), *flags, next_obs, next_mask))
        obs, mask = next_obs, next_mask
        if terminated or truncated:
            raw_obs, info = single.reset()
            obs, mask = read.read(raw_obs), read.mask_of(raw_obs, info)
    return steps


def of_several(
    vector: GymnasiumVector, mode: str, num_envs: int, seed: int, choose: Choose, num: int
) -> list[list[Transition]]:
    """Step several environments under an autoreset mode; `num` transitions of each.

    An environment that is reset in the step after the end takes no transition in that step.
    """
    with closing(vector):
        start = vector.reset(seed)
        obs, masks = start if isinstance(start, HostStart) else (start, None)
        transitions: list[list[Transition]] = [[] for _ in range(num_envs)]
        while min(map(len, transitions)) < num:
            actions = np.stack(
                [
                    choose(i, len(transitions[i]), None if masks is None else masks[i])
                    for i in range(num_envs)
                ]
            )
            resetting = vector.ended if mode == "NextStep" else np.zeros(num_envs, bool)
            step = vector.step(actions)
            done = step.terminated | step.truncated
            for i in np.flatnonzero(~resetting):
                mask = step.next_action_mask
                transitions[i].append(
                    Transition(
                        row(obs, i), step.reward[i], bool(step.terminated[i]),
                        bool(step.truncated[i]), row(step.next_obs, i),
                        None if mask is None else mask[i],
                    )
                )  # fmt: skip
            vector.ended = done
            obs, masks = step.obs, step.action_mask
            if mode == "Disabled" and done.any():
                obs, masks = vector.reset_where(done, obs, masks)
    return [steps[:num] for steps in transitions]
