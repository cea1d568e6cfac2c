"""A run's networks as plain Equinox modules."""

from ..core.networks.architecture import NetworkSpec
from .sources import Cell, Style, arguments_of, camel, described, joined_place, written

IMPORTS = "import equinox as eqx\nimport jax\nimport jax.numpy as jnp\nimport numpy as np\n"
STYLE = Style(
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
)
LOADER = '''
def load(name):
    """Build a module and set its parameters."""
    module = NETWORKS[name](key=jax.random.key(0))
    for path, array in WEIGHTS.items():
        part, _, place = path.partition("/")
        if part == name:
            where = attrgetter(place.replace("/", "."))
            module = eqx.tree_at(where, module, jnp.asarray(array))
    return module


MODELS = {name: load(name) for name in NETWORKS}


def apply(name, *inputs):
    """Apply a network to a batch, `[B, ...]` each; the module itself reads one example."""
    return jax.vmap(MODELS[name])(*inputs)
'''


def module(name: str, spec: NetworkSpec) -> str:
    """Write the module of one network."""
    source = written(spec, STYLE)
    made = "\n        ".join(source.constructors)
    if "keys[" in made:
        made = f"keys = jax.random.split(key, {len(source.constructors)})\n        {made}"
    fields = "\n    ".join(map(_field, source.constructors))
    body, arguments = "\n        ".join(source.body), ", ".join(["self", *arguments_of(spec)])
    return (
        f'class {camel(name)}(eqx.Module):\n    """One example of {described(spec)}."""\n\n'
        f"    {fields}\n\n"
        f"    def __init__(self, *, key):\n        {made}\n\n"
        f"    def __call__({arguments}):\n        {body}\n"
    )


def _field(constructor: str) -> str:
    """Declare the attribute that a constructor sets: Equinox's modules are dataclasses."""
    target, _, made = constructor.partition(" = ")
    kind = made.partition("(")[0]
    return f"{target.removeprefix('self.')}: {'jax.Array' if kind == 'jnp.zeros' else kind}"


entry = camel
place = joined_place
