"""A run's networks as plain Flax Linen modules."""

from .sources import Cell, Style

NETWORK = '''class {class_name}(nn.Module):
    """{described}."""

    @nn.compact
    def __call__(self, {arguments}):
        {body}
'''
LOADER = '''
PARAMS = {name: unflatten_dict(weights_of(name), sep="/") for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return NETWORKS[name].apply({"params": PARAMS[name]}, *inputs)
'''
STYLE = Style(
    backend="linen",
    imports="import flax.linen as nn\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
    "from flax.traverse_util import unflatten_dict\n",
    network=NETWORK,
    entry="{class_name}()",
    loader=LOADER,
    place=lambda words, constant: "/".join(words[:-1] if constant else words),
    linear='nn.Dense({size}, name="{label}")',
    conv='nn.Conv({size}, ({window}, {window}), {stride}, padding="VALID", name="{label}")',
    embed='nn.Embed({rows}, {size}, name="{label}")',
    constant='self.param("{label}", nn.initializers.zeros, ({size},))',
    read="jnp.broadcast_to({call}, (x.shape[0], {size}))",
    cells={
        "lstm": Cell(
            'nn.OptimizedLSTMCell({size}, name="cell")',
            (
                '(cell, hidden), x = {call}((carry["cell"], carry["hidden"]), x)',
                'carry = {{"hidden": hidden, "cell": cell}}',
            ),
        ),
        "gru": Cell(
            'nn.GRUCell({size}, name="cell")',
            ('hidden, x = {call}(carry["hidden"], x)', 'carry = {{"hidden": hidden}}'),
        ),
    },
)
