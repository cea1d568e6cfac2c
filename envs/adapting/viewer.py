"""brax's viewer as one HTML page that loads nothing from the network."""

import base64
import io
import json
import re
import zipfile
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import jax

from ...core.errors import TriglotError, require

# The page of trimesh that contains three.js: an archive and its member.
_TEMPLATE = "resources/templates/viewer.zip", "viewer.html.template"


class _Frame(NamedTuple):
    x: Any  # positions and rotations of the bodies; the viewer reads nothing else


def write_page(
    path: str,
    title: str,
    system: Any,
    bodies: Sequence[tuple[jax.Array, jax.Array]],
    seconds: float,
) -> None:
    """Write an episode as an HTML page with brax's viewer.

    Args:
      path: the file to write.
      title: the page's title.
      system: a `brax.System`.
      bodies: for each step the positions `[n, 3]` and rotations `[n, 4]` of the bodies.
      seconds: of one step.

    Raises:
      TriglotError: if the viewers' scripts are not found in brax or trimesh.
    """
    # The viewer would show the time of a physics step; an environment step has several.
    system = system.tree_replace({"opt.timestep": seconds})
    moved = require("brax.base", "brax").Transform
    frames = [_Frame(moved(pos=pos, rot=rot)) for pos, rot in bodies]
    shown = require("brax.io.json", "brax").dumps(system, frames)
    Path(path).write_text(_page(title, shown))


def _page(title: str, system: str) -> str:
    """Build brax's viewer as a single HTML page without network access.

    The page of `brax.io.html` loads three.js, its controls and a panel from the network. Here
    three.js comes from the copy inside trimesh, a dependency of brax, and the other scripts are in
    `viewer.html`.

    Args:
      title: the page's title.
      system: the system and its states, from `brax.io.json.dumps`.

    Returns:
      HTML.

    Raises:
      TriglotError: if the viewers' scripts are not found in brax or trimesh.
    """
    try:
        folder = resources.files("brax") / "visualizer" / "js"
        modules = {
            f"brax/{file.name}": re.sub(r"from '\./", "from 'brax/", file.read_text())
            for file in sorted(folder.iterdir(), key=lambda file: file.name)
            if file.name.endswith(".js")
        }
        three = _three()
    except (OSError, KeyError, ValueError, ModuleNotFoundError) as error:
        raise TriglotError(
            f"the viewer's scripts of brax 0.14.2 and trimesh 5.2 were not found ({error}): "
            "install these versions."
        ) from None
    used = sorted(set(re.findall(r"\bTHREE\.(\w+)", "".join(modules.values()))))
    modules |= {
        "three": f"export const {{{', '.join(used)}}} = globalThis.THREE;",
        "three/addons/controls/OrbitControls.js": "export const {OrbitControls} = globalThis;",
        "lilgui": "export const {GUI} = globalThis;",
    }
    html = Path(__file__).with_name("viewer.html").read_text()
    for name, text in {
        "title": title,
        "imports": json.dumps({"imports": {n: _data_url(code) for n, code in modules.items()}}),
        "system": system.replace("</", "<\\/"),
        "three": three,
    }.items():
        html = html.replace(f"{{{{{name}}}}}", text, 1)
    return html


def _three() -> str:
    """Extract three.js and its trackball controls from trimesh's page."""
    archive, member = _TEMPLATE
    with zipfile.ZipFile(io.BytesIO((resources.files("trimesh") / archive).read_bytes())) as zipped:
        template = zipped.read(member).decode()
    start = template.index("<script>") + len("<script>")
    return template[start : template.index("(function(){class GLTFLoader", start)]


def _data_url(code: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(code.encode()).decode()
