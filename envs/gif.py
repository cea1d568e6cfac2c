"""Animated GIFs, written frame by frame."""

import os
from collections.abc import Iterable

import numpy as np
from PIL import Image
from tqdm import tqdm


def without_window() -> None:
    """Configure pygame to draw without a window, a sound card or a banner, unless already set."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        os.environ.setdefault(driver, "dummy")


def write_gif(
    path: str,
    frames: Iterable[np.ndarray],
    *,
    num_frames: int | None = None,
    milliseconds: int = 50,
) -> None:
    """Write an animated GIF, with a progress bar.

    Args:
      path: the file to write.
      frames: uint8 `[height, width, 3]` each; consecutive equal frames are merged.
      num_frames: the number of frames, for the progress bar; None if unknown.
      milliseconds: duration of a frame, rounded to steps of 10 by the format.
    """
    watched = tqdm(frames, total=num_frames, unit=" frames", dynamic_ncols=True, delay=1.0)
    images = (Image.fromarray(frame).quantize() for frame in watched)
    first = next(images)
    first.save(path, save_all=True, append_images=images, duration=milliseconds, loop=0)
