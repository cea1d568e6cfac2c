"""Reinforcement-learning mathematics: distributions, losses, normalization, replay."""

from ..deferred import deferred

# rlax imports distrax, and with it TensorFlow Probability, for deprecated distributions only.
with deferred("distrax"):
    import rlax as _rlax  # noqa: F401
