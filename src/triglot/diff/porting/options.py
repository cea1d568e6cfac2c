"""The options of `triglot translate`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...runs.registry.arg import Arg, Count
from ...runs.registry.options import MachineOptions


@dataclass(frozen=True, kw_only=True)
class TranslateOptions(MachineOptions):
    """Options of `triglot translate`.

    Attributes:
      weights: a file: .safetensors, .npz, .msgpack of Flax, .eqx of Equinox, .pt of PyTorch,
        .weights.h5 of Keras, .pkl, or a folder of Orbax.
      network: the network that gets the weights: package.module:object.
      from_: the library that wrote the file: torch, keras, haiku, linen, nnx, equinox.
      to: the library of the network.
      source: the network whose weights the file holds, with which the function is checked.
      env: the environment whose observations both networks read.
      obs_shape: the shape of one float32 input, without the batch.
      inputs: one or several inputs, each DTYPE:SHAPE or DTYPE:SHAPE:LOW..HIGH, as for diff.
      mapping: pairs of layers or parameters, each NAME=NAME: of the file and of the network.
      ignore: arrays of the file to leave out, with * for any text, such as a mask.
      out: the file to write: .safetensors, .npz, .msgpack, .pt, or .weights.h5 of a Keras model; an
        existing one is replaced.
      seed: random seed of the inputs on which the networks are compared.
      trust: read a pickle, which may run code.
    """

    weights: Annotated[Path, Arg("FILE", positional=True)]
    network: Annotated[str, Arg("NETWORK")]
    from_: Annotated[str | None, Arg("LIBRARY", "that of --source, or by the file's suffix")] = None
    to: Annotated[str | None, Arg("LIBRARY", "that of the network")] = None
    source: Annotated[str | None, Arg("NETWORK", "none: the function is not checked")] = None
    env: Annotated[str | None, Arg("ENVIRONMENT", "none")] = None
    obs_shape: Annotated[tuple[int, ...] | None, Arg("N ...", "none")] = None
    inputs: Annotated[tuple[str, ...], Arg("INPUT ...", "none")] = ()
    mapping: Annotated[tuple[str, ...], Arg("NAME=NAME ...", "by name, or guessed")] = ()
    ignore: Annotated[tuple[str, ...], Arg("PATTERN ...", "none")] = ()
    out: Annotated[Path | None, Arg("FILE", "none: nothing is written")] = None
    seed: Count = 0
    trust: bool = False
