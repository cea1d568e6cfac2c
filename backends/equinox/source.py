"""How a plain module of Equinox is written."""

from ..source import APPLY, LOAD, Cell, Style, joined_place

STYLE = Style(
    imports="import equinox as eqx\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n",
    network='''class {class_name}(eqx.Module):
    """One example of {described}."""

    {fields}

    def __init__(self, *, key):
        {made}

    def __call__(self, {arguments}):
        {body}
''',
    entry="{class_name}",
    loader=LOAD.format(
        arguments="key=jax.random.key(0)",
        setting='module = eqx.tree_at(attrgetter(place.replace("/", ".")), module, array)',
    )
    + APPLY.format(
        more="; the module itself reads one example", call="jax.vmap(MODELS[name])(*inputs)"
    ),
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
    image="jnp.moveaxis({call}(jnp.moveaxis(x, -1, 0)), 0, -1)",
)
