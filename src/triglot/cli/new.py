"""`triglot new`: create a custom component from a template, or from a built-in algorithm."""

import ast
import importlib.util
import io
import keyword
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

from ..backends.libraries import LIBRARIES
from ..core import plugins
from ..core.errors import TriglotError, check_known, shown
from ..core.records import Values
from ..runs.registry.algorithms import ALGORITHMS
from ..runs.registry.components import names
from .list import source_of
from .options import NewOptions

if TYPE_CHECKING:
    from ..core.agent import Agent
    from ..core.environment import Environment

TEMPLATES = Path(__file__).parent / "templates"
EXTRAS = {name: library.extra or "" for name, library in LIBRARIES.items() if library.lift}
# The names in each template that are replaced: of the module, and of the class.
NAMES = {
    "algorithm": ("reinforce", "Reinforce"),
    "environment": ("random_walk", "RandomWalk"),
    "network": ("my_network", "MyNetwork"),
}
TRAIN = {
    "algorithm": "{name} {env}",
    "environment": "ppo {name}",
    "network": "ppo gymnax:CartPole-v1 --network {name}",
}
LOSS, LOSS_LIBRARIES = "loss", {"jax": "jax.numpy as jnp", "torch": "torch"}
MAX_CONFIG = 80  # characters in a line of a test
CHECK = {
    "algorithm": "config = {config}\n"
    "    agent = triglot.make_agent({part}, env, config=config)\n"
    "    report = triglot.check_agent(agent, env)",
    "environment": "report = triglot.check_environment(env)",
    "network": "network = {part}(env.obs_spec, env.action_spec)\n"
    "    report = triglot.check_network(network, env.obs_spec)",
}


def write(options: NewOptions) -> str:
    """Write the folder of a component.

    Returns:
      A description of the next steps.

    Raises:
      TriglotError: if the kind, library or algorithm is unknown, the name is invalid or taken, or
        the folder exists or cannot be created.
    """
    kind, name = options.kind, options.name
    _check_options(options)
    if kind == LOSS:
        return _write_loss(options)
    library = options.backend or "linen"
    class_name = "".join(word[:1].upper() + word[1:] for word in name.split("_"))
    if options.like is None:
        file = f"network_{library}.py" if kind == "network" else f"{kind}.py"
        source, old_class = (TEMPLATES / file).read_text(), NAMES[kind][1]
        own_names = {*NAMES[kind]}
    else:
        module, _, old_class = ALGORITHMS[options.like].partition(":")
        source = _outside(source_of(module), module)
        own_names = _classes_of(source, old_class)
    _check_name(kind, name, class_name, source, own_names)
    folder = options.out / name
    if folder.exists():
        raise TriglotError(f"{folder} already exists: choose another name or --out.")
    if options.like is None:
        code = source.replace(old_class, class_name).replace(NAMES[kind][0], name)
        env, test_env, config = "gymnax:CartPole-v1", "probe:two-step", '{"rollout_length": 8}'
    else:
        code = _renamed(source, own_names, old_class, class_name)
        env, test_env, config = _tried(options.like)
    part = name if kind == "network" else class_name
    words = {
        "kind": kind,
        "name": name,
        "part": part,
        "group": plugins.GROUPS[kind],
        "extra": "" if kind == "environment" or not EXTRAS[library] else f"[{EXTRAS[library]}]",
        "train": TRAIN[kind].format(name=name, env=env),
        "check": CHECK[kind].format(part=part, config=config),
        "env": f"{part}()" if kind == "environment" else f'triglot.make_env("{test_env}")',
    }
    files = {
        f"test_{name}.py": "test.txt",
        "pyproject.toml": "project.txt",
        "README.md": "readme.txt",
    }
    texts = {file: (TEMPLATES / form).read_text().format(**words) for file, form in files.items()}
    texts = {f"{name}.py": code, **texts}
    _write_files(folder, texts)
    return (
        f"{folder}: {', '.join(texts)}\n\nNext steps:\n"
        f"  cd {folder}\n"
        f"  triglot check {name}:{part}\n"
        f"  pip install -e .                # then `triglot list` shows it\n"
        f"  triglot train {words['train']}"
    )


def _write_files(folder: Path, texts: dict[str, str]) -> None:
    try:
        folder.mkdir(parents=True)
        for file, text in texts.items():
            (folder / file).write_text(text)
    except OSError as error:
        raise TriglotError(f"{folder} cannot be written: {error.strerror}.") from None


def _write_loss(options: NewOptions) -> str:
    """Write the signature of an algorithm's loss, and a test that compares the two."""
    from ..diff.functions.algorithms import load_reference

    name, algorithm, library = options.name, options.like or "ppo", options.backend or "jax"
    check_known("backend of a loss", library, LOSS_LIBRARIES)
    reference = load_reference(f"algorithm:{algorithm}")
    _check_name(LOSS, name, name, "", {name})
    folder = options.out / name
    if folder.exists():
        raise TriglotError(f"{folder} already exists: choose another name or --out.")
    first, *parameters = reference.describe().splitlines()
    words = {
        "algorithm": reference.name,
        "name": name,
        "learned": ", ".join(reference.arguments.learned),
        "source": reference.source.removeprefix("triglot/"),
        "module": LOSS_LIBRARIES[library],
        "arguments": ", ".join(reference.arguments.names),
        "described": "\n".join(f"    {line}" for line in parameters),
        "zero": "jnp.zeros(())" if library == "jax" else "torch.zeros(())",
    }
    forms = {f"{name}.py": "loss.txt", f"test_{name}.py": "loss_test.txt"}
    texts = {file: (TEMPLATES / form).read_text().format(**words) for file, form in forms.items()}
    _write_files(folder, texts)
    return (
        f"{folder}: {', '.join(texts)}\n\n{first}\n" + "\n".join(parameters) + "\n\n"
        f"Next steps:\n  cd {folder}\n  triglot diff algorithm:{reference.name} {name}:loss"
    )


def _check_options(options: NewOptions) -> None:
    kind = options.kind
    check_known("component kind", kind, (*NAMES, LOSS))
    if kind == LOSS:
        return
    if options.backend is not None and kind != "network":
        raise TriglotError(
            f"--backend applies to networks only: an {kind} works with all libraries."
        )
    if options.backend is not None:
        check_known("backend", options.backend, EXTRAS)
    if options.like is None:
        return
    if kind != "algorithm":
        raise TriglotError(
            "--like applies to algorithms only: a network has --backend, and an environment is "
            "written from a template."
        )
    check_known("built-in algorithm", options.like, ALGORITHMS)


def _classes_of(source: str, prefix: str) -> set[str]:
    """Name the classes of a module that begin with the name of its algorithm, such as DQNState."""
    body = ast.parse(source).body
    classes = {node.name for node in body if isinstance(node, ast.ClassDef)}
    return {name for name in classes if name.startswith(prefix)}


def _outside(source: str, module: str) -> str:
    """Make the relative imports of a module absolute: `from .. import rl`, `from triglot import`.

    >>> _outside("from .. import nn, rl", "triglot.algorithms.dqn")
    'from triglot import nn, rl'
    """
    package = module.rpartition(".")[0]

    def absolute(match: re.Match[str]) -> str:
        return f"from {importlib.util.resolve_name(match[1], package)} import"

    return re.sub(r"^from (\.+[\w.]*) import", absolute, source, flags=re.MULTILINE)


def _renamed(source: str, classes: set[str], old: str, new: str) -> str:
    """Rename classes in code, and in strings that are only a name; texts stay as they are.

    >>> _renamed("class DQNState: pass  # of DQN", {"DQN", "DQNState"}, "DQN", "MyDqn")
    'class MyDqnState: pass  # of DQN'
    """
    lines = source.splitlines(keepends=True)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    for token in reversed(list(tokens)):  # from the end, so that columns stay valid
        if token.string.strip("\"'") in classes:
            (row, begin), (_, end) = token.start, token.end
            line = lines[row - 1]
            lines[row - 1] = line[:begin] + token.string.replace(old, new, 1) + line[end:]
    return "".join(lines)


def _tried(algorithm: str) -> tuple[str, str, str]:
    """Find environments that fit, to train in and for the test, and a small configuration."""
    from ..runs.registry.algorithms import find_algorithm
    from ..runs.registry.overrides import overrides_of
    from .fitting import WITHOUT_LIBRARY, fitting_env, small_agent, small_config

    def make(env: "Environment") -> "Agent":
        return small_agent(algorithm, env, {})

    env, test_env = fitting_env(make)[0].name, fitting_env(make, names=WITHOUT_LIBRARY)[0].name
    small = overrides_of(small_config(find_algorithm(algorithm).Config, {}))
    values = ", ".join(_items(small))
    config = f"{{{values}}}"
    if len(config) > MAX_CONFIG:
        config = "{\n" + "".join(f"        {item},\n" for item in _items(small)) + "    }"
    return env, test_env, config


def _items(values: Values) -> list[str]:
    return [f'"{name}": {value!r}' for name, value in values.items()]


def _check_name(kind: str, name: str, class_name: str, source: str, own_names: set[str]) -> None:
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
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    used = {token.string for token in tokens if token.type == tokenize.NAME} - own_names
    if taken := [word for word in (name, class_name) if word in used]:
        raise TriglotError(
            f"the template already uses the name {taken[0]!r}: choose another name than {name!r}."
        )
