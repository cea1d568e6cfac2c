"""How a plain module of Keras is written."""

import numpy as np

from ..source import APPLY, LOAD, Cell, Style, joined_place, second_bias


def _with_second_bias(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Stack the two biases of Keras's GRU."""
    for name in [name for name in weights if name.endswith("cell/bias_n")]:
        first = weights[name.removesuffix("_n")]
        weights[name.removesuffix("_n")] = np.stack([first, second_bias(first, weights.pop(name))])
    return weights


STYLE = Style(
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
    # The built-in networks' parameters are named by one text.
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
    complete=_with_second_bias,
)
