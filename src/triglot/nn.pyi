from .core.network import Network, Variables
from .core.networks.action_values import implicit_quantile_network, q_network
from .core.networks.actor_critic import (
    CriticConfig,
    actor_critic,
    check_parts,
    continuous_actor_critic,
    soft_actor_critic,
)
from .core.networks.architecture import (
    CELLS,
    CNN,
    MLP,
    NORMALIZATIONS,
    ConvolutionConfig,
    Head,
    NetworkSpec,
    RecurrentCell,
    Table,
    default_torso,
    gaussian_heads,
    policy_head,
    q_head,
    value_head,
)
from .core.networks.combinators import (
    combine,
    ensemble,
    freeze,
    part_of,
    scalar,
    start_from,
)
from .core.networks.heads import (
    apply_heads,
    check_heads,
    merge_heads,
    num_actions,
    policy_heads,
    policy_shapes,
    require_parts,
    require_single_steps,
)
from .core.networks.unroll import apply_step, carries, outputs_and_carries, unroll

__all__ = [
    # Descriptions
    "NetworkSpec", "default_torso", "MLP", "CNN", "Table", "ConvolutionConfig", "CriticConfig",
    "RecurrentCell", "CELLS", "NORMALIZATIONS", "Head", "policy_head", "value_head", "q_head",
    "gaussian_heads", "policy_heads",
    "actor_critic", "soft_actor_critic", "continuous_actor_critic", "q_network",
    "implicit_quantile_network",
    # Outputs, and what an algorithm needs of them
    "apply_heads", "merge_heads", "num_actions", "policy_shapes", "check_heads", "require_parts",
    "require_single_steps", "check_parts",
    # Networks and combinations of them
    "Network", "Variables", "combine", "part_of", "ensemble", "scalar", "start_from", "freeze",
    # Recurrent networks
    "apply_step", "unroll", "carries", "outputs_and_carries",
]  # fmt: skip
