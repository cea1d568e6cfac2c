"""The options of `triglot export`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ..runs.options import PlayOptions
from ..runs.registry.arg import Arg, Count, Name


@dataclass(frozen=True, kw_only=True)
class ExportOptions(PlayOptions):
    """Options of `triglot export`.

    Attributes:
      format: safetensors, all weights by canonical name; haiku, flax, nnx, equinox or keras,
        model.py and weights.npz for that library; torch, model.py and a state_dict for each network
        in weights.safetensors; stablehlo, the greedy policy for JAX; onnx, for onnxruntime.
      out: a new folder.
      seed_index: which of the run's seeds is exported, counted from 0.
    """

    format: Name
    out: Annotated[Path, Arg("FOLDER")]
    seed_index: Annotated[Count | None, Arg("N", "0, and the best member of a population")] = None
