"""How a plain module of Haiku is written."""

from ..source import APPLY, PARAMS, Cell, Style

STYLE = Style(
    imports="import haiku as hk\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n",
    network='''def {name}({arguments}):
    """{described}."""
    {body}
''',
    entry="hk.without_apply_rng(hk.transform({name}))",
    loader=PARAMS + APPLY.format(more="", call="NETWORKS[name].apply(PARAMS[name], *inputs)"),
    place=lambda words, constant: "/".join(words),
    indent=4,
    linear='hk.Linear({size}, name="{label}")',
    conv='hk.Conv2D({size}, {window}, {stride}, padding="VALID", name="{label}")',
    embed='hk.Embed({rows}, {size}, name="{label}")',
    constant='hk.Bias(name="{label}")(jnp.zeros((x.shape[0], {size})))',
    read="{call}",
    cells={
        "lstm": Cell(
            'hk.LSTM({size}, name="cell")',
            (
                'x, after = {call}(x, hk.LSTMState(carry["hidden"], carry["cell"]))',
                'carry = {{"hidden": after.hidden, "cell": after.cell}}',
            ),
        ),
        "gru": Cell(
            'hk.GRU({size}, name="cell")',
            ('x, hidden = {call}(x, carry["hidden"])', 'carry = {{"hidden": hidden}}'),
        ),
    },
)
