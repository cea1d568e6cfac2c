"""`triglot new`: create a custom component from a template."""

import importlib.util
import io
import keyword
import re
import sys
import tokenize
from pathlib import Path

from ..backends.libraries import LIBRARIES
from ..core import plugins
from ..core.errors import TriglotError, shown, unknown
from ..registry.components import names

TEMPLATES = Path(__file__).parent / "templates"
EXTRAS = {name: library.extra for name, library in LIBRARIES.items() if library.extra}
# The names in each template that are replaced: of the module, and of the class.
NAMES = {
    "algorithm": ("reinforce", "Reinforce"),
    "environment": ("random_walk", "RandomWalk"),
    "network": ("my_network", "MyNetwork"),
}
TRAIN = {
    "algorithm": "{name} gymnax:CartPole-v1",
    "environment": "ppo {name}",
    "network": "ppo gymnax:CartPole-v1 --network {name}",
}
CHECK = {
    "algorithm": 'agent = triglot.make_agent({part}, env, config={{"rollout_length": 8}})\n'
    "    report = triglot.check_agent(agent, env)",
    "environment": "report = triglot.check_environment(env)",
    "network": "network = {part}(env.obs_spec, env.action_spec)\n"
    "    report = triglot.check_network(network, env.obs_spec)",
}


def write(kind: str, name: str, *, backend: str | None = None, out: Path = Path()) -> str:
    """Write the folder `out/name`.

    Args:
      kind: `algorithm`, `environment` or `network`.
      name: the name of the folder, of the module, and of the component in commands; the class has
        the same name in CamelCase.
      backend: the library of a network; None for Linen.
      out: the parent of the folder.

    Returns:
      A description of the next steps.

    Raises:
      TriglotError: if the kind or library is unknown, the name is invalid or taken, or the folder
        exists or cannot be created.
    """
    if kind not in NAMES:
        raise unknown("kind of component", kind, NAMES)
    if backend is not None and kind != "network":
        raise TriglotError(
            f"--backend applies to networks only: an {kind} works with all libraries."
        )
    library = backend or "linen"
    if library not in EXTRAS:
        raise unknown("backend", library, EXTRAS)
    template = TEMPLATES / (f"network_{library}.py" if kind == "network" else f"{kind}.py")
    folder = out / name
    class_name = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    _check_name(kind, name, class_name, template)
    if folder.exists():
        raise TriglotError(f"{folder} already exists: choose another name or --out.")
    old_name, old_class = NAMES[kind]
    part = name if kind == "network" else class_name
    words = {
        "kind": kind,
        "name": name,
        "part": part,
        "group": plugins.GROUPS[kind],
        "extra": "" if kind == "environment" else f"[{EXTRAS[library]}]",
        "train": TRAIN[kind].format(name=name),
        "check": CHECK[kind].format(part=part),
        "env": f"{part}()" if kind == "environment" else 'triglot.make_env("probe:two-step")',
    }
    code = template.read_text().replace(old_class, class_name).replace(old_name, name)
    files = {
        f"test_{name}.py": "test.txt",
        "pyproject.toml": "project.txt",
        "README.md": "readme.txt",
    }
    texts = {file: (TEMPLATES / form).read_text().format(**words) for file, form in files.items()}
    texts = {f"{name}.py": code, **texts}
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text)
    except OSError as error:
        raise TriglotError(f"{folder} cannot be written: {error.strerror}.") from None
    return (
        f"{folder}: {', '.join(texts)}\n\nNext steps:\n"
        f"  cd {folder}\n"
        f"  triglot check {name}:{part}\n"
        f"  pip install -e .                # then `triglot list` shows it\n"
        f"  triglot train {words['train']}"
    )


def _check_name(kind: str, name: str, class_name: str, template: Path) -> None:
    if not re.fullmatch("[a-z]([a-z0-9_]{0,60}[a-z0-9])?", name) or keyword.iskeyword(name):
        raise TriglotError(
            f"{shown(name)} is not a valid module name: use at most 62 lowercase letters, digits "
            f"and underscores, such as {NAMES[kind][0]}."
        )
    if name in names(kind):
        raise TriglotError(
            f"the {kind} {name!r} already exists (`triglot list`): choose another name."
        )
    if name in sys.stdlib_module_names or importlib.util.find_spec(name) is not None:
        raise TriglotError(
            f"a module {name!r} already exists and would be hidden: choose another name."
        )
    tokens = tokenize.generate_tokens(io.StringIO(template.read_text()).readline)
    used = {token.string for token in tokens if token.type == tokenize.NAME} - set(NAMES[kind])
    if taken := {name, class_name} & used:
        raise TriglotError(
            f"the template already uses the name {taken.pop()!r}: choose another name than "
            f"{name!r}."
        )
