"""What `--over` means, and which settings follow."""

import math
from typing import Any

import numpy as np
import pytest

from tests.sweep import small
from triglot.cli.parsing import CommandLine
from triglot.core.errors import TriglotError
from triglot.runs.registry.algorithms import find_algorithm
from triglot.sweep.axes import Choices, Range, parse_axes
from triglot.sweep.options import SweepCommandOptions
from triglot.sweep.settings import MAX_SETTINGS, Settings, algorithms_of, settings_of, train_options

pytestmark = pytest.mark.packaging


def options(**changes: Any) -> SweepCommandOptions:
    """Build the options of a sweep of PPO."""
    chosen = {"algorithm": "ppo", "over": ("learning_rate=1,2", "clip_epsilon=0.1,0.2")}
    return small.options(**{"config": {}, **chosen, **changes})


def listed(given: SweepCommandOptions) -> Settings:
    return settings_of(given, algorithms_of(given))


AXES = {
    "learning_rate=1e-4,3e-4": Choices("learning_rate", (1e-4, 3e-4)),
    "--learning-rate=1": Choices("learning_rate", (1.0,)),
    "value_clip_range=none,100,inf": Choices("value_clip_range", (None, 100.0, math.inf)),
    "learning_rate=1e-4,linear(3e-4,0),cosine(1, 0, 9)": Choices(
        "learning_rate", (1e-4, "linear(0.0003, 0)", "cosine(1, 0, 9 steps)")
    ),
    "num_envs=8,1_6,4e1": Choices("num_envs", (8, 16, 40)),
    "hidden_sizes=64/64,256,none": Choices("hidden_sizes", ((64, 64), (256,), None)),
    "clip_value=true,False": Choices("clip_value", (True, False)),
    "normalize_obs=none,true": Choices("normalize_obs", (None, True)),
    "cell=none,lstm": Choices("cell", ("none", "lstm")),
    "backend=haiku,nnx": Choices("backend", ("haiku", "nnx")),
    "env=a:b,c=1,d=2,e:f": Choices("env", ("a:b,c=1,d=2", "e:f")),
    "learning_rate=0.1..0.2": Range("learning_rate", 0.1, 0.2),
    "learning_rate=log:1e-5..1e-2": Range("learning_rate", 1e-5, 1e-2, log=True),
    "num_envs=log:4..64": Range("num_envs", 4, 64, log=True, integer=True),
    "adam_eps=-1..1": Range("adam_eps", -1.0, 1.0),
}
WRONG = {
    "learning_rate": "must have the form NAME=VALUE,VALUE",
    "=1": "must have the form",
    "learning_rate=": "has no values",
    "learning_rte=1": "did you mean 'learning_rate'",
    "total_steps=1,2": "unknown option 'total_steps' of ppo in --over",
    "learning_rate=fast": "expected a number, got 'fast'",
    "learning_rate=nan": "expected a number",
    "learning_rate=liner(1,0)": "--over learning_rate: unknown schedule 'liner'",
    "clip_epsilon=none": "expected a number",
    "learning_rate=1,,2": "has an empty value",
    "learning_rate=1e-3,0.001": "has 0.001 twice",
    "num_envs=1.5": "expected an integer, got '1.5'",
    "hidden_sizes=64,64": "joined by slashes, 64/64",
    "hidden_sizes=64/x": "expected an integer, got 'x'",
    "clip_value=yes": "expected true or false, got 'yes'",
    "backend=haiku,": "has an empty value",
    "learning_rate=1e-2..1e-5": "must have two finite bounds, the lower one first",
    "learning_rate=0.1..0.1": "the lower one first; for a single value write learning_rate=0.1",
    "learning_rate=log:0..1": "first and above 0, since it is logarithmic",
    "learning_rate=log:-1..1": "first and above 0, since it is logarithmic",
    "learning_rate=0..inf": "must have two finite bounds",
    "learning_rate=log:1e-3": "mixes a range with other values",
    "learning_rate=1,2..3": "mixes a range with other values",
    "learning_rate=1..2..3": "mixes a range",
    "learning_rate=1..": "expected a number, got ''",
    "num_envs=1..2.5": "expected an integer",
}


@pytest.mark.parametrize("text", AXES)
def test_an_axis_is_parsed_by_the_type_of_its_option(text: str) -> None:
    assert parse_axes([text], {"ppo": find_algorithm("ppo")}) == [AXES[text]]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_axis_is_explained(text: str) -> None:
    with pytest.raises(TriglotError) as error:
        parse_axes([text], {"ppo": find_algorithm("ppo")})
    assert WRONG[text] in str(error.value)


def test_a_name_is_given_once() -> None:
    with pytest.raises(TriglotError, match="learning_rate is given twice"):
        parse_axes(["learning_rate=1", "learning-rate=2"], {"ppo": find_algorithm("ppo")})


def test_a_name_is_an_option_of_every_algorithm() -> None:
    over = ("algorithm=ppo,dqn", "clip_epsilon=0.1,0.2")
    with pytest.raises(TriglotError, match="unknown option 'clip_epsilon' of dqn in --over"):
        listed(options(over=over))


def test_a_grid_is_every_combination_in_order() -> None:
    settings = listed(options(over=("learning_rate=1,2", "num_envs=4,8")))
    pairs = [(one["learning_rate"], one["num_envs"]) for one in settings]
    assert pairs == [(1, 4), (1, 8), (2, 4), (2, 8)]


RANGES = ("learning_rate=log:1e-5..1e-2", "clip_epsilon=0.1..0.3", "num_envs=2..9")


def test_random_settings_are_drawn_from_their_ranges() -> None:
    drawn = listed(options(over=RANGES, num_settings=400))
    columns = {name: np.array([one[name] for one in drawn]) for name in drawn[0]}
    logs = np.log10(columns["learning_rate"])
    assert logs.min() >= -5 and logs.max() <= -2
    np.testing.assert_allclose(np.quantile(logs, [0.25, 0.5, 0.75]), [-4.25, -3.5, -2.75], atol=0.3)
    np.testing.assert_allclose(np.median(columns["clip_epsilon"]), 0.2, atol=0.02)
    assert set(columns["num_envs"].tolist()) == set(range(2, 10))
    assert all(float(f"{one:.4g}") == one for one in columns["learning_rate"])


def test_random_settings_follow_from_the_seed_and_begin_alike() -> None:
    few, many, other = (
        listed(options(over=RANGES, num_settings=number, seed=seed))
        for number, seed in ((3, 0), (9, 0), (3, 1))
    )
    assert many[:3] == few and other != few


def test_random_settings_are_different() -> None:
    drawn = listed(options(over=("learning_rate=1,2,3", "num_envs=4,8"), num_settings=6))
    assert len({tuple(one.values()) for one in drawn}) == 6


REFUSED = {
    "nothing": ({"over": ()}, "give what to vary"),
    "a range alone": ({"over": RANGES}, "learning_rate is a range: give --num-settings"),
    "too many drawn": ({"num_settings": 5}, "only 4 different settings exist"),
    "too narrow": (
        {"over": ("learning_rate=0.1..0.1002",), "num_settings": 5},
        "only 3 different settings were found in ranges this narrow",
    ),
    "none drawn": ({"num_settings": 0}, "num_settings must be at least 1"),
    "far too many": ({"over": RANGES, "num_settings": MAX_SETTINGS + 1}, "at most 10,000"),
    "a large grid": (
        {"over": [f"{name}={','.join(map(str, range(1, 103)))}" for name in ("tau", "discount")]},
        "these lists have 10,404 settings",
    ),
    "another algorithm": (
        {"over": ("algorithm=dqn,sac",)},
        "algorithm ppo is not among the values of --over algorithm, dqn, sac",
    ),
    "another environment": (
        {"over": ("env=gymnax:CartPole-v1",)},
        "env gridworld:3x3,max_steps=8 is not among the values",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_cannot_be_are_refused(case: str) -> None:
    changes, says = REFUSED[case]
    if "tau" in str(changes):
        changes = changes | {"algorithm": "dqn"}
    with pytest.raises(TriglotError) as error:
        listed(options(**changes))
    assert says in str(error.value)


def test_a_setting_is_a_training() -> None:
    values: dict[str, Any] = {"learning_rate": 0.5, "num_envs": 8, "backend": "nnx"}
    given = options(over=(), hyper={"discount": 0.5}, config={"rollout_length": 4})
    chosen = train_options(given, values, algorithms_of(given))
    assert (chosen.backend, chosen.num_seeds) == ("nnx", given.num_seeds)
    assert chosen.hyper == {"discount": 0.5, "learning_rate": 0.5}
    assert chosen.config["num_envs"] == 8 and chosen.config["rollout_length"] == 4


@pytest.mark.parametrize(
    ("words", "over"),
    [
        ("--over a --over b", ("a", "b")),
        ("--over=a --seed -1 --over b c", ("a", "b", "c")),
        ("--over a --over=b --over=c d", ("a", "b", "c", "d")),
        ("--seed 0", ()),
    ],
)
def test_a_repeated_option_is_one(words: str, over: tuple[str, ...]) -> None:
    line = CommandLine("sweep", ["ppo", "probe:two-step", *words.split()])
    assert line.options().over == over
