"""How each library writes layers, and how a plain module of it loads its weights."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

Words: TypeAlias = tuple[str, ...]
NPZ, SAFETENSORS = "weights.npz", "weights.safetensors"


class Cell(NamedTuple):
    """A recurrent cell's constructor, and the lines that call it as `{call}` on `x` and `carry`."""

    constructor: str
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Style:
    """How a library writes its layers; texts are formatted with the layer's numbers and `label`.

    Attributes:
      backend: the library's name.
      imports: the lines of imports.
      network: the text of one network, with the fields of `network_source`.
      entry: how it is built, with the fields `name` and `class_name`.
      loader: the text that loads the weights and defines `apply`.
      place: names a parameter by its path in the zoo's network, and by whether it is the output
        itself, without a layer.
      linear, conv, embed: constructors, with the fields `before`, `size`, `window`, `stride` or
        `rows`.
      constant: makes an array of `size` parameters.
      read: reads it, as `{call}`, for the batch of `x`.
      cells: the cells that the library has, by kind.
      refused: why it does not have the others.
      inline: whether a layer is constructed where it is called, with its name.
      batched: whether a module is called with a batch, not with one example.
      indent: of the lines of a function in `network`.
      floats, joined: how `{}` becomes float32, and how arrays `{}` are concatenated.
      activation: the text of a function by its name in `jax.nn`; None if the library lacks it.
      image: how a convolution `{call}` is applied to `x`.
      file, reads: the file of weights, and the lines that read it into `WEIGHTS`.
      array: makes an array of the library from NumPy's `array`.
      acts: texts that replace those of JAX where actions are chosen.
      complete: adds arrays that the plain module has and the zoo's lacks.
    """

    backend: str
    imports: str
    network: str
    entry: str
    loader: str
    place: Callable[[Words, bool], str]
    linear: str
    conv: str
    embed: str
    constant: str
    read: str
    cells: Mapping[str, Cell]
    refused: str = ""
    inline: bool = True
    batched: bool = True
    indent: int = 8
    floats: str = "{}.astype(jnp.float32)"
    joined: str = "jnp.concatenate([{}], axis=-1)"
    activation: Callable[[str], str | None] = "jax.nn.{}".format
    image: str = "{call}(x)"
    file: str = NPZ
    reads: str = """with np.load(Path(__file__).with_name("weights.npz")) as file:
    WEIGHTS = dict(file)
"""
    array: str = "jnp.asarray(array)"
    acts: Mapping[str, str] = field(default_factory=dict)
    complete: Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]] = dict


def joined_place(words: Words, constant: bool) -> str:
    """Name an attribute and its parameter by the path in the zoo, whose layers lie in containers.

    Args:
      words: such as `("head", "q", "value", "kernel")`, which becomes `head_q_value/kernel`.
      constant: whether the parameter is the output itself, without a layer.
    """
    if words[0] not in ("torso", "head"):
        return "/".join(words)
    layer = "_".join(words[:-1])
    return layer if constant else f"{layer}/{words[-1]}"


APPLY = '''
def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each{more}."""
    return {call}
'''
LOAD = '''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name]({arguments})
    for place, array in weights_of(name).items():
        {setting}
    return module


MODELS = {{name: load(name) for name in NETWORKS}}

'''
HAIKU_PARAMS = '''
def params_of(name):
    """Return the parameters of a network as Haiku stores them: {module: {parameter: array}}."""
    params = {}
    for place, array in weights_of(name).items():
        module, _, leaf = place.rpartition("/")
        params.setdefault(module, {})[leaf] = array
    return params


PARAMS = {name: params_of(name) for name in NETWORKS}

'''
LINEN_PARAMS = """
PARAMS = {name: unflatten_dict(weights_of(name), sep="/") for name in NETWORKS}

"""
HAIKU = Style(
    backend="haiku",
    imports="import haiku as hk\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n",
    network='''def {name}({arguments}):
    """{described}."""
    {body}
''',
    entry="hk.without_apply_rng(hk.transform({name}))",
    loader=HAIKU_PARAMS + APPLY.format(more="", call="NETWORKS[name].apply(PARAMS[name], *inputs)"),
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
FLAX = Style(
    backend="linen",
    imports="import flax.linen as nn\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
    "from flax.traverse_util import unflatten_dict\n",
    network='''class {class_name}(nn.Module):
    """{described}."""

    @nn.compact
    def __call__(self, {arguments}):
        {body}
''',
    entry="{class_name}()",
    loader=LINEN_PARAMS
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
NNX = Style(
    backend="nnx",
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
EQUINOX = Style(
    backend="equinox",
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
# jax.nn's functions of these names; those of one name are computed alike.
TORCH_ACTIVATIONS = {
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


def _second_bias(first: np.ndarray, inner: np.ndarray | None) -> np.ndarray:
    """Make a cell's second bias: zeros, and that of a GRU's last gate."""
    second = np.zeros_like(first)
    if inner is not None:
        second[-inner.size :] = inner
    return second


def _with_second_of_torch(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Add the second bias that PyTorch's cells have."""
    for name in [name for name in weights if name.endswith("cell.bias_ih")]:
        inner = weights.pop(name.replace("bias_ih", "bias_n"), None)
        weights[name.replace("bias_ih", "bias_hh")] = _second_bias(weights[name], inner)
    return weights


def _with_second_of_keras(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stack the two biases of Keras's GRU."""
    for name in [name for name in weights if name.endswith("cell/bias_n")]:
        first = weights[name.removesuffix("_n")]
        weights[name.removesuffix("_n")] = np.stack([first, _second_bias(first, weights.pop(name))])
    return weights


TORCH = Style(
    backend="torch",
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
    activation=TORCH_ACTIVATIONS.get,
    image="{call}(x.movedim(-1, 1)).movedim(1, -1)",
    file=SAFETENSORS,
    reads='WEIGHTS = load_file(Path(__file__).with_name("weights.safetensors"))\n',
    array="torch.from_numpy(array)",
    acts={
        "jax.lax.rsqrt(variance + 1e-8)": "1.0 / np.sqrt(variance + 1e-8)",
        "jax.nn.softmax(": "softmax(",
        "jnp.": "np.",
    },
    complete=_with_second_of_torch,
)
KERAS = Style(
    backend="keras",
    imports='import os\n\nos.environ.setdefault("KERAS_BACKEND", "jax")\n\n'
    "import jax\nimport jax.numpy as jnp\nimport keras\nimport numpy as np\n"
    "from keras import layers\n",
    network='''class {class_name}(keras.Model):
    """{described}."""

    def __init__(self):
        super().__init__()
        {made}

    def call(self, {arguments}):
        {body}
''',
    entry="{class_name}",
    loader='''def built(layer, *shape):
    """Make a layer's weights, for inputs [B, *shape]."""
    layer.build((None, *shape))
    return layer

'''
    + LOAD.format(arguments="", setting='attrgetter(place.replace("/", "."))(module).assign(array)')
    + APPLY.format(more="", call="MODELS[name](*inputs)"),
    # The zoo's parameters are named by one text.
    place=lambda words, constant: joined_place(tuple(words[0].split("/")), constant),
    linear="built(layers.Dense({size}), {before})",
    conv="built(layers.Conv2D({size}, {window}, {stride}), None, None, {before})",
    embed="built(layers.Embedding({rows}, {size}))",
    constant="self.add_weight(shape=({size},))",
    read="jnp.broadcast_to({call}.value, (x.shape[0], {size}))",
    cells={
        "lstm": Cell(
            "built(layers.LSTMCell({size}), {before})",
            (
                'x, (hidden, cell) = {call}(x, [carry["hidden"], carry["cell"]])',
                'carry = {{"hidden": hidden, "cell": cell}}',
            ),
        ),
        "gru": Cell(
            "built(layers.GRUCell({size}), {before})",
            ('x, hidden = {call}(x, carry["hidden"])', 'carry = {{"hidden": hidden}}'),
        ),
    },
    inline=False,
    complete=_with_second_of_keras,
)
LIBRARIES = {
    "haiku": HAIKU,
    "flax": FLAX,
    "nnx": NNX,
    "equinox": EQUINOX,
    "keras": KERAS,
    "torch": TORCH,
}
"""The styles by format."""
