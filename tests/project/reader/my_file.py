"""A reader's file: networks, one for each library, and an environment of Gymnasium."""

import gymnasium
from two_networks import networks  # of docs/guide/networks.md  # pyright: ignore

__all__ = ["networks"]

if "Env-v0" not in gymnasium.registry:  # the tests import this file again for each page
    entry_point = "gymnasium.envs.classic_control:CartPoleEnv"
    gymnasium.register("Env-v0", entry_point, max_episode_steps=100)
