"""Components that fail in ways other than an exception, for `wrong_commands.txt`."""

import sys

import triglot
from triglot.backends import build
from triglot.envs.gridworld import GridWorld


class _Raising(type):
    def __getattr__(cls, name):
        raise RuntimeError(f"no {name} here")


class Touchy(metaclass=_Raising):
    """Raises when an optional attribute is looked up."""


class TouchyEnv(GridWorld):
    def __getattr__(self, name):
        raise RuntimeError(f"no {name} here")


class Leaving(triglot.PPO):
    @classmethod
    def networks(cls, obs_spec, action_spec, config=None):
        sys.exit("bye")


class LeavingUpdate(triglot.PPO):
    def update(self, state, trajectory, key):
        sys.exit(3)


class LeavingInit(triglot.PPO):
    def __post_init__(self):
        sys.exit()


class LeavingStep(GridWorld):
    def step(self, state, action, key):
        sys.exit(1)


class _Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


_Mute.__name__ = "Mute"


def mute_env():
    raise _Mute


def leaving_env():
    sys.exit(0)


def sized_env(size):
    return GridWorld(size, size)


def sound_network(obs_spec, action_spec):
    return build("linen", triglot.PPO.networks(obs_spec, action_spec))


def leaving_network(obs_spec, action_spec):
    sys.exit("no network today")


def leaving_optimizer(hyper):
    sys.exit(7)


number = 3
