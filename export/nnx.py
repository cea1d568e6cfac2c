"""A run's networks as plain Flax NNX modules."""

from ..core.networks.architecture import NetworkSpec
from .sources import Cell, Style, arguments_of, camel, described, joined_place, written

IMPORTS = "import jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom flax import nnx\n"
STYLE = Style(
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
LOADER = '''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name](rngs=nnx.Rngs(0))
    for path, array in WEIGHTS.items():
        part, _, place = path.partition("/")
        if part == name:
            attrgetter(place.replace("/", "."))(module)[...] = jnp.asarray(array)
    return module


MODELS = {name: load(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return MODELS[name](*inputs)
'''


def module(name: str, spec: NetworkSpec) -> str:
    """Write the module of one network."""
    source = written(spec, STYLE)
    made, body = "\n        ".join(source.constructors), "\n        ".join(source.body)
    arguments = ", ".join(["self", *arguments_of(spec)])
    return (
        f'class {camel(name)}(nnx.Module):\n    """{described(spec)}."""\n\n'
        f"    def __init__(self, *, rngs):\n        {made}\n\n"
        f"    def __call__({arguments}):\n        {body}\n"
    )


entry = camel


def place(words: tuple[str, ...], constant: bool) -> str:
    """Name a parameter by its path in the zoo's network, whose last word is the variable's own."""
    return joined_place(words[:-1], constant)
