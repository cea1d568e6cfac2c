"""What words become: values by name, of the types of the options, with where they are written."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from triglot.cli.argument_parser import attribute_docs
from triglot.cli.chain import Setting
from triglot.cli.parsing import CommandLine, HelpAsked
from triglot.core.errors import TriglotError
from triglot.runs.options import TrainOptions


@dataclass(frozen=True, kw_only=True)
class Config:
    """Static configuration.

    Attributes:
      sizes, more_sizes: units of the layers,
        one number each.
      size: one number, or one each.

    Source: nobody.
    """

    sizes: tuple[int, ...] = (8, 8)
    more_sizes: tuple[int, ...] | None = None
    size: int | tuple[int, ...] = 3
    kind: Literal["first", "every"] = "first"
    fast: bool = True
    maybe: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Hyperparams:
    rate: float = 1.0
    bound: float | None = 0.5
    names: tuple[str, ...] = field(default_factory=tuple)


ALGORITHM: Any = SimpleNamespace(Config=Config, Hyperparams=Hyperparams)


def options(words: str, algorithm: Any = ALGORITHM) -> Any:
    line = CommandLine("train", ["ppo", "probe:two-step", *words.split()])
    line.add_algorithm(algorithm)
    return line.options()


@pytest.mark.parametrize(
    ("words", "name", "value"),
    [
        ("--sizes 4 4", "sizes", (4, 4)),
        ("--sizes=4 4", "sizes", (4, 4)),
        ("--sizes", "sizes", ()),
        ("--sizes 1_0 5e1 --seed 3", "sizes", (10, 50)),
        ("--more_sizes none", "more_sizes", None),
        ("--size 4", "size", 4),
        ("--size 4 4", "size", (4, 4)),
        ("--kind every", "kind", "every"),
        ("--no-fast", "fast", False),
        ("--no_fast --no-fast", "fast", False),
        ("--maybe", "maybe", True),
        ("--maybe --seed 3", "maybe", True),
        ("--no-maybe", "maybe", False),
        ("--maybe False", "maybe", False),
        ("--maybe=None", "maybe", None),
        ("--rate -1e-3", "rate", -1e-3),
        ("--rate=-inf", "rate", float("-inf")),
        ("--bound None", "bound", None),
        ("--names=-a", "names", ("-a",)),
        ("--out None", "out", None),
        ("--out none", "out", Path("none")),
        ("--seed 3 --seed=3", "seed", 3),
        ("--log tensorboard wandb --rate 2", "log", ("tensorboard", "wandb")),
    ],
)
def test_words_become_values(words: str, name: str, value: Any) -> None:
    parsed = options(words)
    owner = next(one for one in (parsed, parsed.config, parsed.hyper) if name in vars(one))
    assert getattr(owner, name) == value
    assert type(getattr(owner, name)) is type(value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--siz 4", r"unknown option --siz; did you mean --size\?"),
        ("--sizes 4 x", "--sizes: .*'x'"),
        ("--sizes 4,8", "--sizes: separate numbers by spaces, 4 8; got '4,8'"),
        ("--cell gru", "has no option --cell, which is one of ppo, a2c.*r2d2"),
        ("--size", "--size"),
        ("--kind last", "--kind: .*'last'.*every"),
        ("--maybe perhaps", "--maybe: .*'perhaps'"),
        ("--no-maybe=True", "--no-maybe.*'True'"),
        ("--fast --no-fast", "--fast and --no-fast contradict"),
        ("--rate 1 --rate 2", "--rate is given twice, as 1 and 2"),
        ("--sizes 1 --sizes 1 2", "--sizes is given twice, as 1 and 1 2"),
        ("--rate", "--rate"),
        ("--seed 3 more", "unexpected argument 'more'"),
    ],
)
def test_wrong_words_are_refused(words: str, message: str) -> None:
    with pytest.raises(TriglotError, match=message):
        options(words)


def test_each_place_wins_over_the_one_before_it(tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text("seed = 5\nnum_seeds = 5\nrate = 2\n[config]\nsizes = [5]")
    words = ["ppo", "probe:two-step", "--config", str(path), "--seed", "7"]
    line = CommandLine("train", words)
    line.add_algorithm(ALGORITHM)
    preset = {name: Setting("1", name) for name in ("seed", "num_seeds", "total_steps")}
    parsed = line.options(preset)
    assert (parsed.seed, parsed.num_seeds, parsed.total_steps) == (7, 5, 1)
    assert parsed.eval_episodes == TrainOptions(algorithm="ppo", env="e").eval_episodes
    assert (parsed.config, parsed.hyper) == (Config(sizes=(5,)), Hyperparams(rate=2.0))
    assert type(parsed.hyper.rate) is float


@pytest.mark.parametrize("value", ["true", "[1, 2]", "'x'"])
def test_an_error_says_where_the_value_is_written(value: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(f"rate = {value}")
    line = CommandLine("train", ["ppo", "probe:two-step", "--config", str(path)])
    line.add_algorithm(ALGORITHM)
    with pytest.raises(TriglotError, match=f"^rate in {path}.* number, got "):
        line.options()


@pytest.mark.parametrize("words", ["--backend nnx runs/x", "runs/x --backend nnx"])
def test_an_argument_stands_before_or_after_options(words: str) -> None:
    parsed = CommandLine("resume", words.split()).options()
    assert (parsed.run, parsed.backend) == (Path("runs/x"), "nnx")


def test_a_field_with_the_name_of_an_option_is_refused() -> None:
    @dataclass(frozen=True)
    class Seeded:
        seed: int = 0

    with pytest.raises(TriglotError, match="Seeded has a field seed"):
        options("", SimpleNamespace(Config=Config, Hyperparams=Seeded))


def test_the_help_has_the_text_and_the_default_of_each_option(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(HelpAsked) as asked:
        options("--help")
    text = " ".join(str(asked.value).split())
    sizes = "--sizes INT [INT ...] units of the layers, one number each. (default: 8 8)"
    assert sizes in text and "--size INT [INT ...] one number, or one each. (default: 3)" in text
    assert "--fast, --no-fast (default: True)" in text and "{first,every}" in text
    assert attribute_docs(Config)["more_sizes"] == "units of the layers, one number each."
