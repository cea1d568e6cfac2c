"""brax's own viewer in one page that needs no network.

The page that `brax.io.html` writes loads three.js, its controls and a panel from the network. Here
three.js comes from the copy inside trimesh, which brax depends on, and the rest of what brax's
viewer asks for is in `brax_viewer.html`.
"""

import base64
import io
import json
import re
import zipfile
from importlib import resources
from pathlib import Path

from ..core.errors import TriglotError

_TEMPLATE = "resources/templates/viewer.zip", "viewer.html.template"


def page(title: str, system: str) -> str:
    """Write the page.

    Args:
      title: its title.
      system: what `brax.io.json.dumps` makes of a system and its states.

    Returns:
      HTML.

    Raises:
      TriglotError: if brax or trimesh hold their viewers' scripts no longer where they were.
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
            f"the viewer's scripts, which are read from brax 0.14.2 and trimesh 5.2, were not "
            f"found in what is installed ({error}): install these versions."
        ) from None
    used = sorted(set(re.findall(r"\bTHREE\.(\w+)", "".join(modules.values()))))
    modules |= {
        "three": f"export const {{{', '.join(used)}}} = globalThis.THREE;",
        "three/addons/controls/OrbitControls.js": "export const {OrbitControls} = globalThis;",
        "lilgui": "export const {GUI} = globalThis;",
    }
    html = Path(__file__).with_name("brax_viewer.html").read_text()
    for name, text in {
        "title": title,
        "imports": json.dumps({"imports": {n: _data_url(code) for n, code in modules.items()}}),
        "system": system.replace("</", "<\\/"),
        "three": three,
    }.items():
        html = html.replace(f"{{{{{name}}}}}", text, 1)
    return html


def _three() -> str:
    """Cut three.js and its trackball controls out of trimesh's page."""
    archive, member = _TEMPLATE
    with zipfile.ZipFile(io.BytesIO((resources.files("trimesh") / archive).read_bytes())) as zipped:
        template = zipped.read(member).decode()
    start = template.index("<script>") + len("<script>")
    return template[start : template.index("(function(){class GLTFLoader", start)]


def _data_url(code: str) -> str:
    return "data:text/javascript;base64," + base64.b64encode(code.encode()).decode()
