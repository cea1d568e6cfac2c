"""Frames as an animated GIF, written while they are drawn."""

from collections.abc import Iterable

import numpy as np
from PIL import Image
from tqdm import tqdm


def write_gif(
    path: str, frames: Iterable[np.ndarray], *, num_frames: int, milliseconds: int = 50
) -> None:
    """Write an animated GIF, with a progress bar.

    Args:
      path: the file to write.
      frames: uint8 `[height, width, 3]` each; equal ones in a row become one that stays longer.
      num_frames: how many there are.
      milliseconds: how long each is shown; GIF counts in steps of 10.
    """
    watched = tqdm(frames, total=num_frames, unit=" frames", dynamic_ncols=True, delay=1.0)
    images = (Image.fromarray(frame).quantize() for frame in watched)
    first = next(images)
    first.save(path, save_all=True, append_images=images, duration=milliseconds, loop=0)
