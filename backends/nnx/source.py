"""How a plain module of Flax NNX is written."""

from ..source import APPLY, LOAD, Cell, Style, joined_place

STYLE = Style(
    imports="import jax\nimport jax.numpy as jnp\nimport numpy as np\nfrom flax import nnx\n",
    network='''class {class_name}(nnx.Module):
    """{described}."""

    def __init__(self, *, rngs):
        {made}

    def __call__(self, {arguments}):
        {body}
''',
    entry="{class_name}",
    loader=LOAD.format(
        arguments="rngs=nnx.Rngs(0)",
        setting='attrgetter(place.replace("/", "."))(module)[...] = array',
    )
    + APPLY.format(more="", call="MODELS[name](*inputs)"),
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
