"""A run's networks as plain Flax NNX modules."""

from .sources import Cell, Style, joined_place

NETWORK = '''class {class_name}(nnx.Module):
    """{described}."""

    def __init__(self, *, rngs):
        {made}

    def __call__(self, {arguments}):
        {body}
'''
LOADER = '''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name](rngs=nnx.Rngs(0))
    for place, array in weights_of(name).items():
        attrgetter(place.replace("/", "."))(module)[...] = array
    return module


MODELS = {name: load(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return MODELS[name](*inputs)
'''
STYLE = Style(
    backend="nnx",
    imports="import jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom flax import nnx\n",
    network=NETWORK,
    entry="{class_name}",
    loader=LOADER,
    # The last word is the variable's own.
    place=lambda words, constant: joined_place(words[:-1], constant),
    linear="nnx.Linear({before}, {size}, rngs=rngs)",
    conv='nnx.Conv({before}, {size}, ({window}, {window}), {stride}, padding="VALID", rngs=rngs)',
    embed="nnx.Embed({rows}, {size}, rngs=rngs)",
    constant="nnx.Param(jnp.zeros(({size},)))",
    read="jnp.broadcast_to({call}[...], (x.shape[0], {size}))",
    cells={
        "lstm": Cell(
            "nnx.OptimizedLSTMCell({before}, {size}, rngs=rngs)",
            (
                '(cell, hidden), x = {call}((carry["cell"], carry["hidden"]), x)',
                'carry = {{"hidden": hidden, "cell": cell}}',
            ),
        ),
    },
    refused="Flax NNX's GRUCell has no bias inside the product with the reset gate, which this "
    "run's cell has: export it as flax or equinox.",
    inline=False,
)
