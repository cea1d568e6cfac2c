"""Show the examples of docstrings, lines that begin with `>>>`, as code."""

import re
from typing import Any

import griffe

# An example ends at an empty line or at the docstring's end.
EXAMPLE = re.compile(r"^>>> .*?(?=\n[ \t]*\n|\Z)", re.DOTALL | re.MULTILINE)


class Examples(griffe.Extension):
    """Put examples into fences."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of each object."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """Put the examples of a docstring into fences."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```", text)
