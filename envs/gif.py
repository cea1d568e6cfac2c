"""Animated GIFs, written frame by frame, and pictures without a window."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from tqdm import tqdm

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image

MAX_COLOURS = 256  # of a GIF's palette


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
    watched = tqdm(
        frames,
        total=num_frames,
        unit=" frames",
        dynamic_ncols=True,
        delay=1.0,
        leave=False,
        disable=None,  # in a file or pipe
    )
    images = _indexed(watched)
    first = next(images)
    first.save(path, save_all=True, append_images=images, duration=milliseconds, loop=0)


def figure_frames(
    figure: "Figure", init: Callable[[], None], update: Callable[[int], object], num_frames: int
) -> Iterator[np.ndarray]:
    """Render a figure of matplotlib, uint8 `[height, width, 3]` each, and close it.

    Args:
      figure: what is drawn.
      init: called before the first frame.
      update: called before each frame, with its number.
      num_frames: the number of frames.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.pyplot import close

    try:
        init()
        canvas = FigureCanvasAgg(figure)
        for index in range(num_frames):
            update(index)
            canvas.draw()
            yield np.asarray(canvas.buffer_rgba())[..., :3]
    finally:
        close(figure)


def _indexed(frames: Iterable[np.ndarray]) -> "Iterator[Image.Image]":
    """Reduce frames to palettes.

    Choosing a palette takes 14 ms for 600 x 400 pixels and using one 1 ms, so that drawn frames,
    which have few colours, share one that holds all of them.
    """
    from PIL import Image

    known: set[Any] = set()
    palette = Image.new("P", (1, 1))
    for frame in frames:
        image = Image.fromarray(frame)
        counted = image.getcolors(MAX_COLOURS)
        if counted is None:
            yield image.quantize()
            continue
        colours = {colour for _, colour in counted}
        if not colours <= known:
            known = known | colours if len(known | colours) <= MAX_COLOURS else colours
            palette.putpalette([value for colour in sorted(known) for value in colour])
        yield image.quantize(palette=palette, dither=Image.Dither.NONE)
