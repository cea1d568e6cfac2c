"""Use presets at the command line, where all that is given wins over them."""

import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.options import option_values
from ..runs.registry.presets.find import find
from ..runs.storage import config_files

SEVERAL = re.compile(r"--envs\b.*|(--over=)?(env|algorithm)=.*")  # words that name further ones


def use_preset(words: Sequence[str], options: type, algorithm: Any) -> tuple[list[str], str | None]:
    """Add the settings of a preset to a command that does not give them.

    A preset is for one algorithm and one environment: it is not used where a comparison or a sweep
    has several. With custom networks, its settings of networks are left out.

    Args:
      words: after the command, beginning with the algorithm and the environment.
      options: the command's class.
      algorithm: its class.

    Returns:
      The words; and the preset's name with the settings that the command gives instead, None if no
      preset is used.
    """
    found = find(*words[:2])
    if found is None or any(map(SEVERAL.fullmatch, words)):
        return list(words), None
    numbers = list(config_files.numbers_of(algorithm))
    known = {one.name for one in (*fields(options), *numbers)}
    own = {name: value for name, value in found.options.items() if name in known}
    left_out = config_files.given_in(words, own)
    if config_files.given_in(words, ["network"]):
        of_networks = [one.name for one in numbers if one.metadata.get("only_for") == "networks"]
        left_out += ["backend", *of_networks]
    values = {name: value for name, value in own.items() if name not in left_out}
    if config_files.given_in(words, ["no_preset"]) or not values:
        return list(words), None
    changed = ", ".join(name for name in own if name in left_out)
    name = f"{found.name} without {changed}" if changed else found.name
    file = config_files.ConfigFile(Path(found.name), values, is_run=False)
    return config_files.merge(file, words, options, algorithm), name


def preset_in_file(parsed: Any, words: Sequence[str], named: str | None) -> str | None:
    """Name the preset of a config file, with the settings that are not the preset's now.

    Args:
      parsed: the options of the command.
      words: after the command, as for `use_preset`.
      named: the preset that the file names.

    Returns:
      The name; None if the command is for another environment or several, or no file names one.
    """
    found = find(parsed.algorithm, parsed.env)
    if named is None or found is None or any(map(SEVERAL.fullmatch, words)):
        return None
    if not named.startswith(found.name):
        return None
    now = vars(parsed) | option_values(parsed.config) | option_values(parsed.hyper)
    own = {name: _value(one) for name, one in found.options.items()}
    changed = ", ".join(name for name, value in own.items() if now.get(name, value) != value)
    return f"{found.name} without {changed}" if changed else found.name


def _value(value: Any) -> Any:
    """Convert a value of a preset's file to that of an option."""
    if isinstance(value, str) and "(" in value:
        from ..core.rl.schedules import schedule  # imports JAX

        return schedule(value)
    return tuple(value) if isinstance(value, list) else value
