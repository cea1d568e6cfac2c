"""How a plain module of PyTorch is written."""

import numpy as np

from ..source import SAFETENSORS, Cell, Style, second_bias

# jax.nn's functions of these names; those of one name are computed alike.
ACTIVATIONS = {
    "celu": "functional.celu",
    "elu": "functional.elu",
    "leaky_relu": "functional.leaky_relu",
    "mish": "functional.mish",
    "relu": "torch.relu",
    "relu6": "functional.relu6",
    "selu": "functional.selu",
    "sigmoid": "torch.sigmoid",
    "silu": "functional.silu",
    "tanh": "torch.tanh",
    "gelu": 'nn.GELU("tanh")',
    "hard_tanh": "functional.hardtanh",
    "log_sigmoid": "functional.logsigmoid",
    "soft_sign": "functional.softsign",
    "softplus": "functional.softplus",
    "swish": "functional.silu",
}


def _with_second_bias(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the second bias that PyTorch's cells have."""
    for name in [name for name in weights if name.endswith("cell.bias_ih")]:
        inner = weights.pop(name.replace("bias_ih", "bias_n"), None)
        weights[name.replace("bias_ih", "bias_hh")] = second_bias(weights[name], inner)
    return weights


STYLE = Style(
    imports="import numpy as np\nimport torch\n"
    "from safetensors.numpy import load_file\nfrom torch import nn\n"
    "from torch.nn import functional\n",
    network='''class {class_name}(nn.Module):
    """{described}."""

    def __init__(self):
        super().__init__()
        {made}

    def forward(self, {arguments}):
        {body}
''',
    entry="{class_name}",
    loader='''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name]()
    module.load_state_dict(weights_of(name))
    return module.eval()


MODELS = {name: load(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to NumPy arrays of a batch, `[B, ...]` each; MODELS has the modules."""
    given = [mapped(torch.as_tensor, each) for each in inputs]
    with torch.no_grad():
        return mapped(torch.Tensor.numpy, MODELS[name](*given))


def mapped(function, given):
    """Apply a function to each array of a dictionary or a tuple."""
    if isinstance(given, dict):
        return {name: mapped(function, each) for name, each in given.items()}
    if isinstance(given, tuple):
        return tuple(mapped(function, each) for each in given)
    return function(given)
''',
    place=lambda words, constant: words[0].removesuffix(".bias") if constant else words[0],
    linear="nn.Linear({before}, {size})",
    conv="nn.Conv2d({before}, {size}, {window}, {stride})",
    embed="nn.Embedding({rows}, {size})",
    constant="nn.Parameter(torch.zeros({size}))",
    read="{call}.expand(x.shape[0], {size})",
    cells={
        "lstm": Cell(
            "nn.LSTMCell({before}, {size})",
            (
                'x, cell = {call}(x, (carry["hidden"], carry["cell"]))',
                'carry = {{"hidden": x, "cell": cell}}',
            ),
        ),
        "gru": Cell(
            "nn.GRUCell({before}, {size})",
            ('x = {call}(x, carry["hidden"])', 'carry = {{"hidden": x}}'),
        ),
    },
    inline=False,
    floats="{}.float()",
    joined="torch.cat([{}], dim=-1)",
    activation=ACTIVATIONS.get,
    image="{call}(x.movedim(-1, 1)).movedim(1, -1)",
    file=SAFETENSORS,
    reads='WEIGHTS = load_file(Path(__file__).with_name("weights.safetensors"))\n',
    array="torch.from_numpy(array)",
    acts={
        "jax.lax.rsqrt(variance + 1e-8)": "1.0 / np.sqrt(variance + 1e-8)",
        "jax.nn.softmax(": "softmax(",
        "jnp.": "np.",
    },
    complete=_with_second_bias,
)
