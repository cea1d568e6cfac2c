"""Animated GIFs: colours, and the palettes that frames share."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageSequence

from triglot.envs.gif import write_gif

SHAPE = (30, 40, 3)


def drawn(*colours: tuple[int, int, int]) -> np.ndarray:
    """Draw a stripe of each colour."""
    frame = np.zeros(SHAPE, np.uint8)
    for number, colour in enumerate(colours):
        frame[3 * number : 3 * number + 3] = colour
    return frame


def read(path: Path) -> list[np.ndarray]:
    with Image.open(path) as image:
        return [np.asarray(one.convert("RGB")) for one in ImageSequence.Iterator(image)]


def test_frames_keep_their_colours(tmp_path: Path) -> None:
    photo = np.random.default_rng(0).integers(0, 256, SHAPE, np.uint8)
    few = [drawn((255, 0, 0), (9, 9, 9)), drawn((0, 114, 178)), drawn((255, 0, 0), (10, 200, 3))]
    write_gif(str(tmp_path / "one.gif"), [*few, photo, few[0]])
    found = read(tmp_path / "one.gif")
    for frame, same in zip([*few, few[0]], [*found[:3], found[4]], strict=True):
        np.testing.assert_array_equal(frame, same)
    assert np.abs(found[3].astype(int) - photo).mean() < 32  # 1,200 colours in a palette of 256


def test_drawn_frames_share_a_palette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, quantize = [], Image.Image.quantize

    def counted(image: Image.Image, *args: Any, **how: Any) -> Image.Image:
        chosen.append(how.get("palette"))
        return quantize(image, *args, **how)

    monkeypatch.setattr(Image.Image, "quantize", counted)
    write_gif(str(tmp_path / "one.gif"), (drawn((n, 0, 0), (0, n, 0)) for n in range(0, 200, 4)))
    assert len(chosen) == 50 and None not in chosen
