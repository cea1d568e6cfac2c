"""What a person may choose on the command line; tyro reads these classes and their docstrings.

The options of `train` and `compare` are generic: an algorithm's own `Config` and `Hyperparams`
become options beside the others.
"""

import contextlib
import difflib
import io
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar, get_args, get_origin

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Positional, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from ..core.errors import TriglotError

ConfigT = TypeVar("ConfigT")
HyperT = TypeVar("HyperT")
Count = Annotated[int, arg(metavar="N")]
Name = Annotated[str, arg(metavar="NAME")]


def _optional(metavar: str, otherwise: str) -> Any:
    return arg(metavar=metavar, help_behavior_hint=f"(default: {otherwise})")


@dataclass(frozen=True, kw_only=True)
class Nothing:
    """Stands for an algorithm's options where no algorithm was named."""


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """Options of `triglot list`.

    Attributes:
      suite: list the environments of this suite, which imports its library.
    """

    suite: Positional[Annotated[str | None, _optional("SUITE", "all that can be listed")]] = None


@dataclass(frozen=True, kw_only=True)
class SharedOptions(Generic[ConfigT, HyperT]):
    """Options of both `triglot train` and `triglot compare`.

    Attributes:
      algorithm: a name of `triglot list`, or package.module:object.
      env: suite:name, such as gymnax:CartPole-v1, or package.module:object; its own options follow
        after commas: jumanji:Maze-v0,num_rows=5,num_cols=5.
      num_seeds: trainings side by side in one program.
      seed: of every random choice.
      total_steps: environment steps per seed, rounded up to whole rollouts.
      eval_episodes: greedy episodes per seed at the end.
    """

    algorithm: Positional[Annotated[str, arg(metavar="ALGORITHM")]]
    env: Positional[Annotated[str, arg(metavar="ENVIRONMENT")]]
    num_seeds: Count = 1
    seed: Count = 0
    total_steps: Count = 500_000
    eval_episodes: Count = 128
    config: OmitArgPrefixes[ConfigT]
    hyper: OmitArgPrefixes[HyperT]


@dataclass(frozen=True, kw_only=True)
class TrainOptions(SharedOptions[ConfigT, HyperT]):
    """Options of `triglot train`.

    Attributes:
      backend: the library of the networks: haiku, linen, nnx, equinox, or table.
      arithmetic: native leaves all to the library; leaf_order sums gradients in one order;
        canonical makes all libraries agree bit for bit.
      network: your own network instead: package.module:object, a Network or a function of obs_spec
        and action_spec that returns one. Or several, as NAME=package.module:object each.
      out: a new folder for what the run leaves.
      checkpoint_seconds: how often a checkpoint is written while it trains; 0 for never but at the
        end.
      log: logs beside metrics.jsonl: tensorboard, wandb (Weights & Biases), or both. Each metric of
        each seed, and the mean over seeds, at most 1,000 points: a longer run is averaged.
      debug: nans stops where a NaN first appears. no-jit compiles nothing, so that print and
        breakpoints work everywhere, and is some thousand times slower.
      compilation_cache: where compiled programs are kept for the next run.
      no_compilation_cache: keep no compiled programs.
    """

    backend: Name = "linen"
    arithmetic: Annotated[
        str | None, _optional("NAME", "canonical; native with a network of your own")
    ] = None
    network: Annotated[tuple[str, ...], _optional("OBJECT ...", "from the zoo")] = ()
    out: Annotated[Path | None, _optional("FOLDER", "runs/ALGORITHM-ENVIRONMENT-BACKEND-TIME")] = (
        None
    )
    checkpoint_seconds: Annotated[float, arg(metavar="SECONDS")] = 60.0
    log: Annotated[tuple[str, ...], _optional("tensorboard|wandb ...", "neither")] = ()
    debug: Annotated[tuple[str, ...], _optional("nans|no-jit ...", "neither")] = ()
    compilation_cache: Annotated[
        Path | None, _optional("FOLDER", "triglot/jax in your cache directory")
    ] = None
    no_compilation_cache: FlagCreatePairsOff[bool] = False


@dataclass(frozen=True, kw_only=True)
class CompareCommand(SharedOptions[ConfigT, HyperT]):
    """Options of `triglot compare`.

    Attributes:
      backends: the libraries of the networks, at least two; the first one's initial weights are
        given to all.
      arithmetic: native leaves all to the library; leaf_order sums gradients in one order;
        canonical makes all libraries agree bit for bit.
      out: a new folder for the report.
    """

    backends: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = (
        "haiku",
        "linen",
        "nnx",
        "equinox",
    )
    arithmetic: Name = "canonical"
    out: Annotated[Path | None, _optional("FOLDER", "runs/compare-ALGORITHM-ENVIRONMENT-TIME")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class ResumeCommand:
    """Options of `triglot resume`.

    Attributes:
      run: the folder that `triglot train` wrote.
      previous: where the last checkpoint is damaged, go on from the one before.
    """

    run: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    previous: FlagCreatePairsOff[bool] = False


@dataclass(frozen=True, kw_only=True)
class EvaluateCommand:
    """Options of `triglot evaluate`.

    Attributes:
      run: the folder that `triglot train` wrote.
      episodes: whole episodes per seed.
      sampled: act as in training, by chance, and not greedily.
      seed: of the episodes.
      max_steps: greatest number of steps of one episode.
      previous: where the last checkpoint is damaged, take the one before.
    """

    run: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    episodes: Count = 128
    sampled: FlagCreatePairsOff[bool] = False
    seed: Count = 0
    max_steps: Count = 100_000
    previous: FlagCreatePairsOff[bool] = False


@dataclass(frozen=True, kw_only=True)
class RenderCommand:
    """Options of `triglot render`.

    Attributes:
      run: the folder that `triglot train` wrote.
      out: the file to write, over one that is there.
      episodes: episodes, one after the other in the same file.
      seed_index: which of the run's trainings acts, counted from 0.
      sampled: act as in training, by chance, and not greedily.
      seed: of the episodes.
      max_steps: greatest number of steps of one episode.
      previous: where the last checkpoint is damaged, take the one before.
    """

    run: Positional[Annotated[Path, arg(metavar="FOLDER")]]
    out: Annotated[Path | None, _optional("FILE", "episode.gif or .html in the run's folder")] = (
        None
    )
    episodes: Count = 1
    seed_index: Count = 0
    sampled: FlagCreatePairsOff[bool] = False
    seed: Count = 0
    max_steps: Count = 1000
    previous: FlagCreatePairsOff[bool] = False


@dataclass(frozen=True, kw_only=True)
class CurvesCommand:
    """Options of `triglot curves`.

    Attributes:
      runs: the folders that `triglot train` wrote.
      out: the PNG to write, over one that is there.
      metric: a name of metrics.jsonl.
      band: what is shaded around the mean over seeds: interval (95%, of the mean), range (least to
        greatest) or half (the middle half of the seeds).
      smooth: updates that are averaged to a point.
      labels: of the runs, in their order.
    """

    runs: Positional[Annotated[tuple[Path, ...], arg(metavar="FOLDER ...")]]
    out: Annotated[Path, arg(metavar="FILE")] = Path("curves.png")
    metric: Name = "episode_return"
    band: Annotated[str | None, _optional("NAME", "interval; range below 5 seeds")] = None
    smooth: Annotated[int | None, _optional("N", "as many as leave 80 points")] = None
    labels: Annotated[tuple[str, ...], _optional("TEXT ...", "what the runs differ in")] = ()


@dataclass(frozen=True, kw_only=True)
class CheckCommand(Generic[ConfigT, HyperT]):
    """Options of `triglot check`.

    Attributes:
      part: a name of `triglot list`, a whole suite of environments, or package.module:object.
      kind: algorithm, environment or network, where it cannot be told.
      algorithm: the algorithm whose heads a network must have; one network of several is given
        as NAME=PART.
      env: what an algorithm or a network is checked on.
      backends: the libraries on whose networks an algorithm is checked.
    """

    part: Positional[Annotated[str, arg(metavar="PART")]]
    kind: Annotated[str | None, _optional("KIND", "found out")] = None
    algorithm: Annotated[str | None, _optional("NAME", "none")] = None
    env: Annotated[
        str | None,
        _optional("ENVIRONMENT", "gymnax:CartPole-v1, or probe:two-step without gymnax"),
    ] = None
    backends: Annotated[tuple[str, ...], arg(metavar="NAME ...")] = ("linen",)
    config: OmitArgPrefixes[ConfigT]
    hyper: OmitArgPrefixes[HyperT]


@dataclass(frozen=True, kw_only=True)
class NewCommand:
    """Options of `triglot new`.

    Attributes:
      kind: algorithm, network or environment.
      name: of the folder, the module and, in capitals, the class; a Python name such as my_agent.
      backend: the library of a network: haiku, linen, nnx or equinox.
      out: the folder in which the new one is made.
    """

    kind: Positional[Annotated[str, arg(metavar="KIND")]]
    name: Positional[Annotated[str, arg(metavar="NAME")]]
    backend: Annotated[str | None, _optional("NAME", "linen, for a network")] = None
    out: Annotated[Path, arg(metavar="FOLDER", help_behavior_hint="(default: here)")] = Path()


def parse(options: Any, arguments: Sequence[str], *, prog: str, description: str) -> Any:
    """Build an options class from the command line; `--help` prints and raises `SystemExit(0)`.

    Raises:
      TriglotError: in one sentence, with the nearest option there is.
    """
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            chosen, rest = tyro.cli(
                options,
                prog=prog,
                description=description,
                args=arguments,
                return_unknown_args=True,
                registry=_registry(),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise TriglotError(_one_sentence(complaint.getvalue())) from None
    for given in rest:
        if given.startswith("-"):
            name = given.partition("=")[0]
            near = difflib.get_close_matches(name, _option_names(options), n=1)
            hint = f"; did you mean {near[0]}?" if near else ";"
            raise TriglotError(f"unknown option {name}{hint} `{prog} --help` lists the options.")
    if rest:
        raise TriglotError(f"unexpected argument {rest[0]!r}; see `{prog} --help`.")
    return chosen


def _option_names(options: Any) -> list[str]:
    """List the options of a class, those of the dataclasses in it among them."""
    inner = [part for part in get_args(options) if is_dataclass(part)]
    classes = [get_origin(options) or options, *inner]
    names = [field.name for one in classes for field in fields(one)]
    return ["--" + name.replace("_", "-") for name in names if name not in ("config", "hyper")]


def _one_sentence(box: str) -> str:
    """Take tyro's message out of its frame, up to the first rule: what follows it is help."""
    lines = (line.strip("│ ") for line in box.splitlines()[1:])
    message = " ".join(itertools.takewhile(lambda line: not line.startswith(("─", "╰")), lines))
    return re.sub("^Error parsing (config: |hyper: )?", "", message)


def _registry() -> ConstructorRegistry:
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def whole_number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        return _number(_whole, "INT") if info.type is int else None

    @registry.primitive_rule
    def number(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
        # A hyperparameter is a float here, and an array once it is in an agent's state.
        members = get_args(info.type) or (info.type,)
        if float not in members:
            return None
        return _number(_float_or_none if type(None) in members else _float, "FLOAT")

    return registry


def _number(read: Callable[[str], Any], metavar: str) -> PrimitiveConstructorSpec:
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, int | float),
        str_from_instance=lambda value: [str(value)],
    )


def _whole(text: str) -> int:
    """Read a whole number, which may be written as 500_000 or 5e5."""
    number = _float(text)
    if not number.is_integer():
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(number) if "e" in text.lower() or "." in text else int(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number, got {text!r}") from None


def _float_or_none(text: str) -> float | None:
    return None if text.lower() == "none" else _float(text)
