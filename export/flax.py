"""A run's networks as plain Flax Linen modules."""

from ..core.networks.architecture import NetworkSpec
from .sources import Cell, Style, arguments_of, camel, described, written

IMPORTS = "import flax.linen as nn\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
STYLE = Style(
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
LOADER = '''
def params_of(name):
    """Return the parameters of a network as Flax stores them, in nested dictionaries."""
    params = {}
    for path, array in WEIGHTS.items():
        part, *places, leaf = path.split("/")
        if part == name:
            node = params
            for place in places:
                node = node.setdefault(place, {})
            node[leaf] = jnp.asarray(array)
    return params


PARAMS = {name: params_of(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return NETWORKS[name].apply({"params": PARAMS[name]}, *inputs)
'''


def module(name: str, spec: NetworkSpec) -> str:
    """Write the module of one network."""
    body = "\n        ".join(written(spec, STYLE).body)
    arguments = ", ".join(["self", *arguments_of(spec)])
    return (
        f'class {camel(name)}(nn.Module):\n    """{described(spec)}."""\n\n    @nn.compact\n'
        f"    def __call__({arguments}):\n        {body}\n"
    )


def entry(name: str) -> str:
    """Write how the network is built."""
    return f"{camel(name)}()"


def place(words: tuple[str, ...], constant: bool) -> str:
    """Name a parameter by its path in the zoo's network."""
    return "/".join(words[:-1] if constant else words)
