"""A run's networks as plain Haiku functions."""

from ..core.networks.architecture import NetworkSpec
from .sources import Cell, Style, arguments_of, described, written

IMPORTS = "import haiku as hk\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
STYLE = Style(
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
LOADER = '''
def params_of(name):
    """Return the parameters of a network as Haiku stores them: {module: {parameter: array}}."""
    params = {}
    for path, array in WEIGHTS.items():
        part, _, rest = path.partition("/")
        module, _, leaf = rest.rpartition("/")
        if part == name:
            params.setdefault(module, {})[leaf] = jnp.asarray(array)
    return params


PARAMS = {name: params_of(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each."""
    return NETWORKS[name].apply(PARAMS[name], *inputs)
'''


def module(name: str, spec: NetworkSpec) -> str:
    """Write the function of one network."""
    body = "\n    ".join(written(spec, STYLE).body)
    arguments = ", ".join(arguments_of(spec))
    return f'def {name}({arguments}):\n    """{described(spec)}."""\n    {body}\n'


def entry(name: str) -> str:
    """Write how the network is built."""
    return f"hk.without_apply_rng(hk.transform({name}))"


def place(words: tuple[str, ...], constant: bool) -> str:
    """Name a parameter by its path in the zoo's network."""
    del constant
    return "/".join(words)
