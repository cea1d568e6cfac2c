"""How a plain module of Flax Linen is written."""

from ..source import APPLY, Cell, Style

PARAMS = """
PARAMS = {name: unflatten_dict(weights_of(name), sep="/") for name in NETWORKS}

"""
STYLE = Style(
    imports="import flax.linen as nn\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
    "from flax.traverse_util import unflatten_dict\n",
    network='''class {class_name}(nn.Module):
    """{described}."""

    @nn.compact
    def __call__(self, {arguments}):
        {body}
''',
    entry="{class_name}()",
    loader=PARAMS
    + APPLY.format(more="", call='NETWORKS[name].apply({"params": PARAMS[name]}, *inputs)'),
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
