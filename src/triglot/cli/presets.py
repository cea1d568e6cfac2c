"""Use presets at the command line, where all that is written wins over them."""

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ..core.options import option_values
from ..core.records import AnyOptions, Values
from ..runs.registry.presets.find import Preset, find
from ..runs.storage.config_files import numbers_of
from .chain import Setting, Settings

if TYPE_CHECKING:
    from ..core.agent import Algorithm


def preset_settings(
    chain: Settings, options: type, algorithm: "Algorithm | None"
) -> tuple[dict[str, Setting], str | None]:
    """Look up the settings of a preset, without those that are written.

    A preset is for one algorithm and one environment: it is not used where a comparison or a sweep
    has several. With custom networks, its settings of networks are left out.

    Args:
      chain: the settings of the file and of the command line, with an algorithm and an environment.
      options: the command's class.
      algorithm: its class.

    Returns:
      The settings; and the preset's name with those that are left out, None if no preset is used.
    """
    written = {name: setting.value for name, setting in chain.items()}
    preset = _preset_for(written)
    if preset is None or written.get("no_preset"):
        return {}, None
    numbers = list(numbers_of(algorithm))
    known = {field.name for field in (*fields(options), *numbers)}
    values = {name: value for name, value in preset.options.items() if name in known}
    left_out = set(written)
    if "network" in written:
        of_networks = [
            field.name for field in numbers if field.metadata.get("only_for") == "networks"
        ]
        left_out |= {"backend", *of_networks}
    settings = {
        name: Setting(value, f"{name} in the preset {preset.name}")
        for name, value in values.items()
        if name not in left_out
    }
    if not settings:
        return {}, None
    return settings, _name(preset, [name for name in values if name in left_out])


def preset_in_file(options: AnyOptions, name: str) -> str | None:
    """Name the preset of a config file, with the settings that are not the preset's now.

    Args:
      options: of the command.
      name: the preset that the file names.

    Returns:
      The name; None if the command is for another environment or several.
    """
    preset = _preset_for(vars(options))
    if preset is None or not name.startswith(preset.name):
        return None
    now = vars(options) | option_values(options.config) | option_values(options.hyper)
    values = {name: _value(value) for name, value in preset.options.items()}
    return _name(preset, [name for name in values if now.get(name, values[name]) != values[name]])


def _preset_for(values: Values) -> Preset | None:
    """Find the preset of a command, unless it has several algorithms or environments."""
    over = values.get("over", ())
    axes = over if isinstance(over, list | tuple) else [over]
    several = any(str(axis).startswith(("env=", "algorithm=")) for axis in axes)
    return None if several or values.get("envs") else find(values["algorithm"], values.get("env"))


def _name(preset: Preset, changed: list[str]) -> str:
    return f"{preset.name} without {', '.join(changed)}" if changed else preset.name


def _value(value: Any) -> Any:
    """Convert a value of a preset's file to that of an option."""
    if isinstance(value, str) and "(" in value:
        from ..core.rl.schedules import schedule  # imports JAX

        return schedule(value)
    return tuple(value) if isinstance(value, list) else value
