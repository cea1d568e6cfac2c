"""The default networks of algorithms that learn action values or their distributions."""

from dataclasses import replace

from ..specs import Box, Spec
from ..types import AnyConfig
from .architecture import MLP, SQRT_2, Head, NetworkSpec, Table, Torso, default_torso
from .heads import num_actions


def dense_torso(obs_spec: Spec, config: AnyConfig) -> Torso:
    """Choose a torso of relu layers by observation.

    Args:
      obs_spec: one observation.
      config: a `ConvolutionConfig` with `hidden_sizes`, and with `vector_sizes`, which replace None
        where there are no images.
    """
    sizes = config.hidden_sizes
    return default_torso(obs_spec, sizes, config, "relu", vector_sizes=config.vector_sizes)


def q_network(
    obs_spec: Spec,
    action_spec: Spec,
    config: AnyConfig,
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
      config: has `hidden_sizes`, `vector_sizes`, `dueling`, `normalization` and the options of
        `ConvolutionConfig`.
      algorithm: its name, for messages.
      head: the name of the head.
      atoms: of the head, for distributions.
      noise: of noisy layers at the start; None for plain layers.

    Returns:
      The `q_network`.
    """
    torso = dense_torso(obs_spec, config)
    size = num_actions(action_spec, algorithm=algorithm)
    values = Head(size=size, scale=1.0, dueling=config.dueling, atoms=atoms)
    spec = NetworkSpec(obs_spec, torso, ((head, values),), noise=noise)
    return {"q_network": spec.normalized(config.normalization)}


def implicit_quantile_network(
    obs_spec: Spec, action_spec: Spec, config: AnyConfig, *, algorithm: str
) -> dict[str, NetworkSpec]:
    """Describe f, psi and phi of quantiles f(relu(psi(s)) * relu(phi(cosines of tau))).

    Args:
      obs_spec: one observation.
      action_spec: one action, which must be discrete.
      config: has `hidden_sizes`, `vector_sizes`, `num_cosines`, `dueling`, `normalization`, which
        is that of all layers of psi but the last, and the options of `ConvolutionConfig`.
      algorithm: its name, for messages.

    Returns:
      `obs_features`, psi, and `tau_features`, phi, with a head of their own name `[B, F]`, and
      `quantiles`, f, which reads their product `[B, F]` and gives `quantiles` `[B, num_actions]`;
      F is the last of `hidden_sizes`, and the others are those of psi.
    """
    torso = dense_torso(obs_spec, config)
    if isinstance(torso, Table):
        sizes, torso = config.hidden_sizes or config.vector_sizes, Table(init=1.0)  # relu: not at 0
    else:
        sizes = torso.hidden_sizes
        torso = replace(torso, hidden_sizes=sizes[:-1])
    size = sizes[-1]
    features, linear = Head(size=size, scale=SQRT_2), MLP(hidden_sizes=())
    actions = num_actions(action_spec, algorithm=algorithm)
    quantiles = Head(size=actions, scale=1.0, dueling=config.dueling)
    cosines, product = Box((config.num_cosines,), low=-1.0, high=1.0), Box((size,), low=0.0)
    psi = NetworkSpec(obs_spec, torso, (("obs_features", features),))
    return {
        "obs_features": psi.normalized(config.normalization),
        "tau_features": NetworkSpec(cosines, linear, (("tau_features", features),)),
        "quantiles": NetworkSpec(product, linear, (("quantiles", quantiles),)),
    }
