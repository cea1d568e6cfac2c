"""How a plain module of the toy library is written."""

from triglot.backends.source import APPLY, PARAMS, Style, joined_place

STYLE = Style(
    imports="from functools import partial\n\n"
    "import jax\nimport jax.numpy as jnp\nimport numpy as np\nimport toy_nn\n",
    network='''class {class_name}:
    """{described}."""

    def __init__(self, params):
        {made}

    def __call__(self, {arguments}):
        {body}
''',
    entry="{class_name}",
    loader=PARAMS + APPLY.format(more="", call="NETWORKS[name](PARAMS[name])(*inputs)"),
    place=joined_place,
    linear='partial(toy_nn.Dense({before}, {size}), params["{label}"])',
    inline=False,
)
