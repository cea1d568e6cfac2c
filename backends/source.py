"""How a library writes layers, and how a plain module of it loads its weights."""

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
    """How a library writes its layers: what the module `source` of its folder holds as `STYLE`.

    Texts are formatted with the layer's numbers and `label`.

    Attributes:
      imports: the lines of imports.
      network: the text of one network, with the fields of `network_source`.
      entry: how it is built, with the fields `name` and `class_name`.
      loader: the text that loads the weights and defines `apply`.
      place: names a parameter by its path in the built-in network, and by whether it is the output
        itself, without a layer.
      linear, conv, embed: constructors, with the fields `before`, `size`, `window`, `stride` or
        `rows`; empty for what the library refuses.
      constant: makes an array of `size` parameters; empty as well.
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
      complete: adds arrays that the plain module has and the built-in network lacks.
    """

    imports: str
    network: str
    entry: str
    loader: str
    place: Callable[[Words, bool], str]
    linear: str
    conv: str = ""
    embed: str = ""
    constant: str = ""
    read: str = "{call}"
    cells: Mapping[str, Cell] = field(default_factory=dict)
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
    """Name an attribute and its parameter by their path; the layers lie in containers.

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
PARAMS = '''
def params_of(name):
    """Return the parameters of a network as {layer: {parameter: array}}."""
    params = {}
    for place, array in weights_of(name).items():
        layer, _, leaf = place.rpartition("/")
        params.setdefault(layer, {})[leaf] = array
    return params


PARAMS = {name: params_of(name) for name in NETWORKS}

'''


def second_bias(first: np.ndarray, inner: np.ndarray | None) -> np.ndarray:
    """Make a cell's second bias: zeros, and that of a GRU's last gate."""
    second = np.zeros_like(first)
    if inner is not None:
        second[-inner.size :] = inner
    return second
