"""A run's networks as plain Equinox modules."""

from .sources import Cell, Style, joined_place

NETWORK = '''class {class_name}(eqx.Module):
    """One example of {described}."""

    {fields}

    def __init__(self, *, key):
        {made}

    def __call__(self, {arguments}):
        {body}
'''
LOADER = '''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name](key=jax.random.key(0))
    for place, array in weights_of(name).items():
        module = eqx.tree_at(attrgetter(place.replace("/", ".")), module, array)
    return module


MODELS = {name: load(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each; the module itself reads one example."""
    return jax.vmap(MODELS[name])(*inputs)
'''
STYLE = Style(
    backend="equinox",
    imports="import equinox as eqx\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n",
    network=NETWORK,
    entry="{class_name}",
    loader=LOADER,
    place=joined_place,
    linear="eqx.nn.Linear({before}, {size}, key=keys[{index}])",
    conv="eqx.nn.Conv2d({before}, {size}, {window}, {stride}, key=keys[{index}])",
    embed="eqx.nn.Embedding({rows}, {size}, key=keys[{index}])",
    constant="jnp.zeros(({size},))",
    read="{call}",
    cells={
        "lstm": Cell(
            "eqx.nn.LSTMCell({before}, {size}, key=keys[{index}])",
            (
                'x, cell = {call}(x, (carry["hidden"], carry["cell"]))',
                'carry = {{"hidden": x, "cell": cell}}',
            ),
        ),
        "gru": Cell(
            "eqx.nn.GRUCell({before}, {size}, key=keys[{index}])",
            ('x = {call}(x, carry["hidden"])', 'carry = {{"hidden": x}}'),
        ),
    },
    inline=False,
    batched=False,
)
