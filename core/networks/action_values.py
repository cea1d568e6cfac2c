"""The default networks of algorithms that learn action values."""

from typing import Any

from ..specs import Spec
from .architecture import Head, NetworkSpec, default_torso
from .heads import num_actions


def q_network(
    obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str, head: str = "q", **how: Any
) -> dict[str, NetworkSpec]:
    """Describe a network of action values, or of return distributions by action.

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `dueling` and the options of `ConvolutionConfig`.
      algorithm: its name, for messages.
      head: the name of the head.
      how: other fields of the head, such as `atoms`.

    Returns:
      The `q_network`.
    """
    torso = default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
    size = num_actions(action_spec, algorithm=algorithm)
    values = Head(size=size, scale=1.0, dueling=config.dueling, **how)
    return {"q_network": NetworkSpec(obs_spec, torso, ((head, values),))}
