"""Record `make demo` in a terminal and draw it, with the report that it writes, as demo.gif.

python docs/images/make_demo.py

Needs pyte and Playwright from `pip install -e ".[dev]"`, and an installed Chromium. The recording
is real: the bytes that the command prints, drawn by a terminal emulator, some 20 times as fast.
"""

import argparse
import io
import os
import pty
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyte
from matplotlib import font_manager
from PIL import Image, ImageDraw, ImageFont
from playwright.sync_api import sync_playwright
from pyte.screens import Char

HERE = Path(__file__).parent
COLUMNS, ROWS = 80, 18
SIZE = 15  # of the font, in pixels
MARGIN, BAR = 10, 26
BACKGROUND, TEXT, FRAME = "#1e2127", "#d7dae0", "#3a3f4b"
# The theme's colors for the terminal's eight; `brown` is what pyte calls yellow.
COLORS = {
    "default": TEXT,
    "black": "#5c6370",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#ffffff",
}
SECONDS = 12.0  # that the terminal's part of the picture takes
FRAMES_PER_SECOND = 5
SECTIONS = ("", "#curves", "#pairs")  # of the report, one picture each
READING = 2500  # milliseconds for the end of the terminal, and for each section
Recording = list[tuple[float, bytes]]  # seconds since the start, and what was printed then


def record(command: list[str]) -> Recording:
    """Run a command in a terminal of 80 columns, and return what it prints and when.

    Raises:
      SystemExit: it failed.
    """
    started, printed = time.monotonic(), []

    def read(terminal: int) -> bytes:
        piece = os.read(terminal, 65536)
        printed.append((time.monotonic() - started, piece))
        return piece

    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        os.environ.pop(name, None)
    os.environ["TERM"] = "xterm-256color"
    sized = ["sh", "-c", f'stty cols {COLUMNS} rows {ROWS}; exec "$@"', "sh", *command]
    if status := pty.spawn(sized, read):
        sys.exit(f"{' '.join(command)} failed: exit code {os.waitstatus_to_exitcode(status)}.")
    return printed


def screens(command: str, printed: Recording) -> Iterator[pyte.Screen]:
    """Yield the terminal at equal intervals of the recording."""
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"$ {command}\r\n".encode())
    end, pieces = printed[-1][0], iter(printed)
    count = round(SECONDS * FRAMES_PER_SECOND)
    at, piece = next(pieces)
    for index in range(count + 1):
        now = end * index / count
        while piece and at <= now:
            stream.feed(piece)
            at, piece = next(pieces, (end, b""))
        yield screen


class Painter:
    """Draw the terminal's screen.

    Args:
      rows: of the terminal.

    Attributes:
      size: width and height of a picture, in pixels.
    """

    def __init__(self, rows: int = ROWS) -> None:
        find = font_manager.findfont
        self.fonts = {
            bold: ImageFont.truetype(
                find(font_manager.FontProperties(family="DejaVu Sans Mono", weight=weight)), SIZE
            )
            for bold, weight in ((False, "normal"), (True, "bold"))
        }
        self.cell = round(self.fonts[False].getlength("M")), round(SIZE * 1.25)
        self.size = 2 * MARGIN + COLUMNS * self.cell[0], BAR + 2 * MARGIN + rows * self.cell[1]

    def window(self, title: str) -> tuple[Image.Image, ImageDraw.ImageDraw]:
        """Draw an empty window."""
        image = Image.new("RGB", self.size, BACKGROUND)
        draw = ImageDraw.Draw(image)
        draw.rectangle((0, 0, self.size[0], BAR), fill=FRAME)
        for index, color in enumerate(("#e06c75", "#e5c07b", "#98c379")):
            left = MARGIN + 18 * index
            draw.ellipse((left, 8, left + 10, 18), fill=color)
        draw.text((self.size[0] / 2, BAR / 2), title, TEXT, self.fonts[False], anchor="mm")
        return image, draw

    def terminal(self, title: str, screen: pyte.Screen) -> Image.Image:
        """Draw what the screen shows."""
        image, draw = self.window(title)
        for row in range(screen.lines):
            for column in range(COLUMNS):
                char: Char = screen.buffer[row][column]
                if char.data.strip():
                    at = MARGIN + column * self.cell[0], BAR + MARGIN + row * self.cell[1]
                    fill = COLORS.get(char.fg.removeprefix("bright")) or f"#{char.fg}"
                    draw.text(at, char.data, fill, self.fonts[char.bold])
        return image

    def page(self, title: str, shot: Image.Image) -> Image.Image:
        """Draw a page of a browser."""
        image, _ = self.window(title)
        image.paste(
            shot.resize((self.size[0], self.size[1] - BAR), Image.Resampling.LANCZOS), (0, BAR)
        )
        return image


def report_shots(report: Path, shape: tuple[int, int]) -> list[Image.Image]:
    """Photograph sections of the report in a browser.

    Args:
      report: the HTML file.
      shape: width and height of the view, in pixels.
    """
    browsers = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    shots = []
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=next(browsers), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": shape[0], "height": shape[1]})
        for section in SECTIONS:
            page.goto(report.resolve().as_uri() + section)
            page.wait_for_timeout(3_000)  # the plots are drawn by a script
            shots.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
        browser.close()
    return shots


def few_colors(image: Image.Image, number: int) -> Image.Image:
    """Reduce the colors, and keep small areas of a strong one, as the legend's."""
    return image.quantize(number, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)


def main() -> None:
    """Record, draw and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=HERE / "demo.gif", help="the picture")
    parser.add_argument(
        "command", nargs="*", default=["make", "demo"], help="what is run, after --"
    )
    options = parser.parse_args()
    printed = record(options.command)
    text = b"".join(piece for _, piece in printed).decode()
    report = Path(re.findall(r"eport: (\S+report\.html)", text)[-1])
    painter, frames, durations = Painter(), [], []
    for screen in screens("make demo", printed):
        frames.append(painter.terminal("make demo", screen))
        durations.append(1000 // FRAMES_PER_SECOND)
    durations[-1] = READING
    # One palette for the terminal's frames, so that only what changes is stored.
    palette = few_colors(frames[-1], 32)
    drawn = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    width, height = painter.size
    for shot in report_shots(report, (round(width * 1.4), round((height - BAR) * 1.4))):
        drawn.append(few_colors(painter.page("report.html", shot), 128))
        durations.append(READING)
    drawn[0].save(options.out, save_all=True, append_images=drawn[1:], duration=durations, loop=0)
    print(f"{options.out}: {options.out.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
