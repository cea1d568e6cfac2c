"""Presets as text: the first line of a command, and `triglot list presets`."""

from ....core.errors import shown
from ....shared.statistics import format_return
from ..options import SharedOptions
from .find import Preset, Sample, find, presets

LEFT_OUT = "--no-preset ignores it"


def announcement(options: SharedOptions) -> list[str]:
    """Describe the preset that a command uses, in at most one line.

    An environment with options is another one, so the preset without them is not used, which is
    reported.
    """
    base, _, _ = options.env.partition(",")
    known = find(options.algorithm, options.env) or find(options.algorithm, base)
    if known is None or options.no_preset:
        return []
    if options.preset is None:
        if known.env == options.env:
            return []
        return [f"no preset: that of {known.name} is for {base} without options"]
    if options.preset != known.name:  # some settings were replaced, so another return is expected
        return [f"preset: {options.preset}; {LEFT_OUT}"]
    return [f"preset: {known.name}, with which the {returns(known)}; {LEFT_OUT}"]


def listing() -> str:
    """List all presets, for `triglot list presets`."""
    lines = ["presets (`triglot train ALGORITHM ENVIRONMENT --print-config` shows all settings)"]
    for preset in presets():
        settings = ", ".join(f"{name} {_value(value)}" for name, value in preset.options.items())
        lines += [f"  {preset.name}: {settings}", f"    {returns(preset)}"]
    lines.append("`triglot train`, `compare` and `sweep` use them unless --no-preset is given.")
    return "\n".join(lines)


def returns(preset: Preset) -> str:
    """Describe what was measured.

    >>> sample = Sample(num_seeds=5, programs=1, mean=0.64, interval=(0.6, 0.68))
    >>> returns(Preset(algorithm="ppo", env="jumanji:Maze-v0", agent={}, train={}, sampled=True,
    ...                measured=(sample,)))
    'sampled return was 0.640 [0.600, 0.680] over 5 seeds'
    """
    policy = "sampled" if preset.sampled else "greedy"
    first, *others = preset.measured
    texts = [_sample(first, "seeds"), *(_sample(sample, "other seeds") for sample in others)]
    return f"{policy} return was {' and '.join(texts)}"


def _sample(sample: Sample, seeds: str) -> str:
    low, high = map(format_return, sample.interval)
    programs = f" in {sample.programs} programs" if sample.programs > 1 else ""
    return f"{format_return(sample.mean)} [{low}, {high}] over {sample.num_seeds} {seeds}{programs}"


def _value(value: object) -> str:
    if isinstance(value, list):
        return "/".join(map(str, value))
    return value if isinstance(value, str) else shown(value)
