"""A run's networks as plain Haiku functions."""

from .sources import Cell, Style

NETWORK = '''def {name}({arguments}):
    """{described}."""
    {body}
'''
LOADER = '''
def params_of(name):
    """Return the parameters of a network as Haiku stores them: {module: {parameter: array}}."""
    params = {}
    for place, array in weights_of(name).items():
        module, _, leaf = place.rpartition("/")
        params.setdefault(module, {})[leaf] = array
    return params


PARAMS = {name: params_of(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return NETWORKS[name].apply(PARAMS[name], *inputs)
'''
STYLE = Style(
    backend="haiku",
    imports="import haiku as hk\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n",
    network=NETWORK,
    entry="hk.without_apply_rng(hk.transform({name}))",
    loader=LOADER,
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
