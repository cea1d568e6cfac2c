"""Render the episodes of an agent as a video that a notebook shows."""

import base64
import tempfile
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import jax

from ..core.agent import Agent
from ..core.errors import MissingExtra, TriglotError, writing
from ..core.host_environment import AnyEnvironment
from ..core.types import AnyAgentState
from ..shared.machine.files import replacing
from .render import record, suffix_of

MP4 = ".mp4"
FORMS = {
    ".gif": '<img src="data:image/gif;base64,{data}">',
    MP4: '<video controls loop src="data:video/mp4;base64,{data}"></video>',
    ".svg": '<img src="data:image/svg+xml;base64,{data}">',
}


@dataclass(frozen=True)
class Video:
    """A rendered episode; a notebook shows it.

    Attributes:
      content: of the file.
      suffix: of the file, such as `.gif`.
      path: where it was written; None if it was not.
    """

    content: bytes
    suffix: str
    path: Path | None = None

    def __repr__(self) -> str:
        where = "" if self.path is None else f", path={str(self.path)!r}"
        return f"Video({len(self.content):,} bytes of {self.suffix}{where})"

    def _repr_html_(self) -> str:
        if self.suffix in FORMS:
            data = base64.b64encode(self.content).decode()
            return FORMS[self.suffix].format(data=data)
        page = escape(self.content.decode(), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="500"></iframe>'


def render_video(
    agent: Agent,
    env: AnyEnvironment,
    agent_state: AnyAgentState,
    keys: jax.Array,
    path: Path | None,
    **options: Any,
) -> Video:
    """Play episodes and render them.

    Args:
      agent, env, agent_state, keys: as those of `render.record`.
      path: the file to write; None writes none.
      options: of `render.record`.

    Raises:
      TriglotError: as `TrainResult.render`.
    """
    drawn = suffix_of(env)
    suffix = drawn if path is None else path.suffix
    allowed = [drawn, MP4] if drawn == ".gif" else [drawn]
    if suffix not in allowed:
        raise TriglotError(
            f"{env.name} is rendered as {' or '.join(allowed)}, got {path}: change the suffix."
        )
    if suffix == MP4:
        _require_mp4()
    with tempfile.TemporaryDirectory() as folder:
        episode = Path(folder) / f"episode{drawn}"
        record(episode, agent, env, agent_state, keys, **options)
        written = _as_mp4(episode) if suffix == MP4 else episode
        content = written.read_bytes()
    if path is not None:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            unfinished.write_bytes(content)
    return Video(content, suffix, path)


def _require_mp4() -> None:
    """Check that the library which writes MP4 is installed."""
    try:
        import imageio_ffmpeg  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        raise MissingExtra(
            "MP4 files are written by imageio-ffmpeg, which is not installed: run `pip install "
            "imageio-ffmpeg`, or give a path that ends in .gif."
        ) from None


def _as_mp4(gif: Path) -> Path:
    """Convert a GIF, frame by frame; MP4 needs even sizes."""
    import imageio_ffmpeg  # pyright: ignore[reportMissingImports]
    import numpy as np
    from PIL import Image, ImageSequence

    out = gif.with_suffix(MP4)
    with Image.open(gif) as image:
        width, height = image.width // 2 * 2, image.height // 2 * 2
        ticks = [frame.info.get("duration", 50) for frame in ImageSequence.Iterator(image)]
        shortest = max(min(ticks), 10)
        writer = imageio_ffmpeg.write_frames(
            str(out), (width, height), fps=1000 / shortest, macro_block_size=1
        )
        writer.send(None)
        for frame, ticked in zip(ImageSequence.Iterator(image), ticks, strict=True):
            pixels = np.asarray(frame.convert("RGB"))[:height, :width]
            # A GIF merges equal frames and shows one for longer; MP4 repeats it.
            for _ in range(max(1, round(ticked / shortest))):
                writer.send(np.ascontiguousarray(pixels))
        writer.close()
    return out
