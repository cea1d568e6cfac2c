"""The size and the strictness of `comparison.json`."""

import json
import math
from typing import Any

import numpy as np
import pytest

from tests.shared.pages.sample import sample
from triglot.shared.pages.thinning import MAX_BYTES, MAX_POINTS, as_json, thinned


def strict(text: str) -> dict[str, Any]:
    """Parse JSON, and reject NaN and infinities, which it lacks."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.mark.covering(3)
@pytest.mark.parametrize(
    "options",
    [
        {"num_updates": 1000},
        {"num_updates": 400, "num_seeds": 40},
        {"num_updates": 100, "envs": tuple("ABCDE")},
    ],
    ids=["long", "many seeds", "five environments"],
)
def test_it_is_small(options: dict[str, Any]) -> None:
    result = sample(**options)
    assert len(as_json(result)) > MAX_BYTES
    text = as_json(thinned(result))
    assert len(text.encode()) < MAX_BYTES
    read = strict(text)
    assert read.keys() == result.keys()
    assert read["statistics"] == result["statistics"] and read["pairs"] == result["pairs"]
    assert len(read["curves"]["env_steps"]) <= MAX_POINTS
    assert read["curves"]["env_steps"][-1] == result["env_steps_per_seed"]


def test_the_ladder_of_many_libraries_has_fewer_digits() -> None:
    result = sample(num_updates=5, num_seeds=1)
    pair = {"backends": ["haiku", "nnx"], "mean": 1 / 3, "p_value": None, "seeds_needed": 12}
    result["ladder"] = [{"rung": "weights", "pairs": [pair] * 4000}]
    assert len(as_json(result)) > MAX_BYTES
    small = thinned(result)
    assert small["ladder"][0]["pairs"][0] == {**pair, "mean": 0.3333}
    assert small["statistics"] == result["statistics"] and small["pairs"] == result["pairs"]
    assert thinned({**result, "ladder": [pair]})["ladder"] == [pair]


def test_a_point_is_the_average_of_its_updates() -> None:
    result = sample(num_updates=2 * MAX_POINTS, num_seeds=1, backends=("haiku", "nnx"))
    result["curves"]["backends"]["haiku"] = [[1.0, None, 2.0, 4.0] * (MAX_POINTS // 2)]
    result["curves"]["backends"]["nnx"] = [[None, None, 2.0, 4.0] * (MAX_POINTS // 2)]
    small = thinned(result)["curves"]
    assert small["backends"]["haiku"] == [[1.0, 3.0] * (MAX_POINTS // 2)]
    assert small["backends"]["nnx"] == [[None, 3.0] * (MAX_POINTS // 2)]
    assert small["env_steps"] == result["curves"]["env_steps"][1::2]


def test_a_difference_is_the_largest_of_its_updates() -> None:
    result = sample(num_updates=2 * MAX_POINTS, num_seeds=1, backends=("haiku", "nnx"))
    (pair,) = result["divergence"]["pairs"]
    pair["params_abs"] = [0.0, 3.0, 2.0, None] * (MAX_POINTS // 2)
    (small,) = thinned(result)["divergence"]["pairs"]
    assert small["params_abs"] == [3.0, 2.0] * (MAX_POINTS // 2)


def test_nan_is_null_and_infinity_a_string() -> None:
    result = sample(num_updates=5, backends=("haiku", "nnx"))
    result["pairs"][0]["max_abs_param_difference"] = np.float32(np.inf)
    result["statistics"]["backends"]["haiku"]["final_returns"][0] = np.nan
    small = thinned(result)
    assert small["pairs"][0]["max_abs_param_difference"] == math.inf
    read = strict(as_json(small))
    assert read["pairs"][0]["max_abs_param_difference"] == "inf"
    assert read["statistics"]["backends"]["haiku"]["final_returns"][0] is None


def test_a_part_that_was_not_run_stays_null() -> None:
    parts = ("curves", "divergence", "programs", "ladder", "cost")
    result = sample(num_updates=5) | dict.fromkeys(parts)
    assert all(strict(as_json(thinned(result)))[part] is None for part in parts)
