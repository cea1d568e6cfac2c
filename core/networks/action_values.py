"""The default networks of algorithms that learn action values or their distributions."""

from typing import Any

from ..specs import Box, Discrete, Spec
from .architecture import MLP, SQRT_2, Head, NetworkSpec, Table, default_torso
from .heads import num_actions


def q_network(
    obs_spec: Spec,
    action_spec: Spec,
    config: Any,
    *,
    algorithm: str,
    head: str = "q",
    atoms: int | None = None,
    noise: float | None = None,
) -> dict[str, NetworkSpec]:
    """Describe a network of action values, or of return distributions by action.

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `dueling`, `normalization` and the options of
        `ConvolutionConfig`.
      algorithm: its name, for messages.
      head: the name of the head.
      atoms: of the head, for distributions.
      noise: of noisy layers at the start; None for plain layers.

    Returns:
      The `q_network`.
    """
    torso = default_torso(obs_spec, config.hidden_sizes, config, activation="relu")
    size = num_actions(action_spec, algorithm=algorithm)
    values = Head(size=size, scale=1.0, dueling=config.dueling, atoms=atoms)
    spec = NetworkSpec(obs_spec, torso, ((head, values),), noise=noise)
    return {"q_network": spec.normalized(config.normalization)}


def implicit_quantile_network(
    obs_spec: Spec, action_spec: Spec, config: Any, *, algorithm: str
) -> dict[str, NetworkSpec]:
    """Describe f, psi and phi of quantiles f(relu(psi(s)) * relu(phi(cosines of tau))).

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `num_cosines`, `dueling`, `normalization`, which is that of all
        layers of psi but the last, and the options of `ConvolutionConfig`.
      algorithm: its name, for messages.

    Returns:
      `obs_features`, psi, and `tau_features`, phi, with a head of their own name `[B, F]`, and
      `quantiles`, f, which reads their product `[B, F]` and gives `quantiles` `[B, num_actions]`;
      F is the last of `hidden_sizes`, and the others are those of psi.
    """
    *hidden_sizes, size = config.hidden_sizes
    features, linear = Head(size=size, scale=SQRT_2), MLP(hidden_sizes=())
    torso = default_torso(obs_spec, tuple(hidden_sizes), config, activation="relu")
    if isinstance(obs_spec, Discrete):
        torso = Table(init=1.0)  # at 0, a relu has no gradient
    actions = num_actions(action_spec, algorithm=algorithm)
    quantiles = Head(size=actions, scale=1.0, dueling=config.dueling)
    cosines, product = Box((config.num_cosines,), low=-1.0, high=1.0), Box((size,), low=0.0)
    psi = NetworkSpec(obs_spec, torso, (("obs_features", features),))
    return {
        "obs_features": psi.normalized(config.normalization),
        "tau_features": NetworkSpec(cosines, linear, (("tau_features", features),)),
        "quantiles": NetworkSpec(product, linear, (("quantiles", quantiles),)),
    }
