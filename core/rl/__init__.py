"""Reinforcement-learning mathematics: distributions, losses, normalization, replay."""

from ..deferred import deferred

# rlax imports distrax, and with it TensorFlow Probability, for deprecated distributions only; and,
# by chex, a reporter of tests.
with deferred("distrax", "absl.testing.xml_reporter"):
    import rlax as _rlax  # noqa: F401
