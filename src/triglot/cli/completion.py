"""`triglot completion`: the script by which a shell completes commands, options and values."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from ..backends.libraries import LIBRARIES
from ..compare.check import FAIL_ON
from ..core.errors import check_known
from ..core.options import OptionTable, option_fields
from ..core.rl.optimizers import OPTIMIZERS
from ..export.written import FORMATS
from ..runs.jobs.choose import LOCAL, RAY, SEQUENTIAL
from ..runs.registry.algorithms import ALGORITHMS, find_algorithm
from ..runs.registry.arg import flag, marked, split_hint
from ..runs.registry.environments import suites
from ..runs.registry.overrides import type_hints
from .options import OPTIONS

SHELLS = ("bash", "zsh")
SCRIPT = Path(__file__).with_name("completion.bash")
FOR_ZSH = "(( $+functions[compdef] )) || { autoload -U compinit && compinit -u; }\n"
FLAG, ENVIRONMENT, SEVERAL = "@flag", "@environment", "+"


def completion_script(shell: str) -> str:
    """Write the completion script of a shell.

    The options of all built-in algorithms are offered together, since a script cannot know which
    algorithm is trained. The names of a suite's environments are asked for when they are needed.

    Args:
      shell: one of `SHELLS`.

    Raises:
      TriglotError: if the shell is unknown.
    """
    check_known("shell", shell, SHELLS)
    names = {command: _by_name(options) for command, options in OPTIONS.items()}
    words = {command: _words(options) for command, options in names.items()}
    values = {
        f"{command} {name}": " ".join(allowed)
        for command, options in names.items()
        for name, allowed in options.items()
        if allowed
    }
    values["help 0"] = " ".join(OPTIONS)
    tables = [
        _function("_triglot_options", "$1", {"": " ".join(OPTIONS), **words}),
        _function("_triglot_values", "$1 $2", values),
    ]
    script = SCRIPT.read_text().replace("{tables}", "\n".join(tables))
    script = script.replace("{suites}", " ".join(f"{suite}:" for suite in suites()))
    return (FOR_ZSH if shell == "zsh" else "") + script


def _by_name(options: type) -> dict[str, list[str]]:
    """Map the options and the numbered positional arguments of a command to their values."""
    hints = get_type_hints(options, include_extras=True)
    positional = marked(options, "positional")
    left_out = {*marked(options, "derived"), "config", "hyper"}
    values: dict[str, list[str]] = {"--config": ["@file"], "--help": [FLAG]}
    for field in fields(options):
        if field.name not in left_out:
            where = positional.index(field.name) if field.name in positional else flag(field.name)
            values[str(where)] = _values(field.name, hints[field.name])
    if "config" in hints:
        for algorithm in map(find_algorithm, ALGORITHMS):
            for owner in (algorithm.Config, algorithm.Hyperparams):
                values |= _of_algorithm(owner)
    return values


def _of_algorithm(owner: type | OptionTable) -> dict[str, list[str]]:
    """Map the options of an algorithm's `Config` or `Hyperparams` to their values."""
    values: dict[str, list[str]] = {}
    hints = type_hints(owner)
    for field in option_fields(owner):
        if bool in (hints[field.name], *get_args(hints[field.name])):
            values |= {flag(field.name): [FLAG], flag(f"no_{field.name}"): [FLAG]}
        else:
            allowed = field.metadata.get("allowed")
            values[flag(field.name)] = list(allowed) if isinstance(allowed, tuple) else []
    return values


def _values(name: str, hint: Any) -> list[str]:
    """List what an option's value may be, and whether it takes several."""
    if hint is bool:
        return [FLAG]
    kind, arg = split_hint(hint)
    several = [SEVERAL] if arg.metavar.endswith("...") else []
    words = arg.metavar.removesuffix(" ...")
    if name in _CHOICES:
        return [*_CHOICES[name], *several]
    if "|" in words:
        return [*words.split("|"), *several]
    if Path in (kind, *get_args(kind)):
        return ["@folder" if words == "FOLDER" else "@file", *several]
    return several


_CHOICES: dict[str, list[str]] = {
    "algorithm": list(ALGORITHMS),
    "like": list(ALGORITHMS),
    "part": [ENVIRONMENT, *ALGORITHMS],
    "env": [ENVIRONMENT],
    "envs": [ENVIRONMENT],
    "suite": [*suites(), "algorithms", "presets"],
    "backend": [*LIBRARIES],
    "backends": [*LIBRARIES],
    "arithmetic": ["native", "leaf_order", "canonical"],
    "optimizer": [*OPTIMIZERS],
    "executor": [SEQUENTIAL, LOCAL, RAY],
    "format": [*FORMATS],
    "fail_on": [*FAIL_ON],
    "kind": ["algorithm", "environment", "network"],
    "shell": [*SHELLS],
}


def _words(options: Mapping[str, list[str]]) -> str:
    return " ".join(name for name in options if name.startswith("--"))


def _function(name: str, subject: str, cases: Mapping[str, str]) -> str:
    """Write a shell function that prints the text of a case; those with equal texts are one."""
    by_text: dict[str, list[str]] = {}
    for case, text in cases.items():
        by_text.setdefault(text, []).append(f'"{case}"')
    lines = [f'  {"|".join(names)}) echo "{text}" ;;' for text, names in by_text.items()]
    return "\n".join([f'{name}() {{\n  case "{subject}" in', *lines, "  esac\n}"])
