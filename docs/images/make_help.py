"""Run `triglot evaluate --help` in a terminal and draw what it prints as help.png.

python -m docs.images.make_help
"""

import shutil

import pyte

from docs.images.make_demo import COLUMNS, HERE, Painter, few_colors, record

COMMAND = "triglot evaluate --help"


def main() -> None:
    """Record, draw and write the picture."""
    program, *options = COMMAND.split()
    printed = record([shutil.which(program) or program, *options])
    text = f"$ {COMMAND}\r\n".encode() + b"".join(piece for _, piece in printed)
    screen = pyte.Screen(COLUMNS, text.count(b"\n") + 1)
    pyte.ByteStream(screen).feed(text)
    image = Painter(screen.lines).terminal("triglot", screen)
    few_colors(image, 64).save(HERE / "help.png", optimize=True)


if __name__ == "__main__":
    main()
