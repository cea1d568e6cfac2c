"""Both networks' modules side by side, as a page, in a notebook and as JSON."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from tests.diff import networks as nets
from triglot.core.specs import Box
from triglot.diff.compare import diff_networks
from triglot.diff.page import page
from triglot.diff.porting.recordings import compare as recordings
from triglot.diff.report import Report

DOCUMENT = Path(__file__).parents[2] / "docs/reference/diff-json.md"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)


class Linen(nn.Module):
    """Three layers, a norm between the first two."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = nn.LayerNorm(epsilon=1e-5, name="norm")(nn.Dense(8, name="first")(x))
        x = jnp.tanh(nn.Dense(8, name="second")(x))
        return nn.Dense(2, name="out")(x)


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.LayerNorm
    second: eqx.nn.Linear
    out: eqx.nn.Linear

    def __init__(self, key: jax.Array, epsilon: float = 1e-5) -> None:
        keys = jax.random.split(key, 3)
        self.first, self.second, self.out = (
            eqx.nn.Linear(inputs, outputs, key=each)
            for inputs, outputs, each in ((4, 8, keys[0]), (8, 8, keys[1]), (8, 2, keys[2]))
        )
        self.norm = eqx.nn.LayerNorm(8, eps=epsilon)

    def __call__(self, x: jax.Array) -> jax.Array:
        x = self.norm(self.first(x))
        return self.out(jnp.tanh(self.second(x)))


def plain(epsilon: float = 1e-5) -> Any:
    """Return the same network without modules."""

    def init(key: jax.Array) -> Any:
        keys = jax.random.split(key, 3)
        sizes = {"first": (4, 8), "second": (8, 8), "out": (8, 2)}
        layers = {
            name: {"w": jax.random.normal(own, size), "b": jnp.zeros(size[1])}
            for own, (name, size) in zip(keys, sizes.items(), strict=True)
        }
        return {**layers, "norm": {"g": jnp.ones(8), "b": jnp.zeros(8)}}

    def apply(p: Any, x: jax.Array) -> jax.Array:
        x = x @ p["first"]["w"] + p["first"]["b"][None]
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + epsilon)
        x = x * p["norm"]["g"][None] + p["norm"]["b"][None]
        x = jnp.tanh(x @ p["second"]["w"] + p["second"]["b"][None])
        return x @ p["out"]["w"] + p["out"]["b"][None]

    return init, apply


MADE = {
    "linen": lambda epsilon: Linen(),
    "equinox": lambda epsilon: lambda key: Equinox(key, epsilon),
    "plain": plain,
}


def compared(one: str, other: str, epsilon: float = 1e-5) -> Report:
    networks = MADE[one](1e-5), MADE[other](epsilon)
    names = ("<a> & b", None)
    return diff_networks(*networks, Box((4,)), level="quick", modules=True, names=names)


@pytest.fixture(scope="module")
def different() -> Report:
    return compared("linen", "equinox", 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["equinox", "plain"])
@pytest.mark.parametrize("one", ["linen", "equinox", "plain"])
def test_equal_networks_have_equal_modules_only(one: str, other: str) -> None:
    for parts in compared(one, other).parts:
        assert parts and {part.state for part in parts} <= {"equal", "inner"}


def test_a_difference_is_in_one_module_and_the_rest_follows(different: Report) -> None:
    one, other = different.parts
    names = [part.name.rpartition("/")[2] for part in one]
    states = dict(zip(names, (part.state for part in one), strict=True))
    assert states == {
        "first": "equal",
        "norm": "different",
        "second": "follows",
        "Linen": "follows",
        "out": "follows",
    }
    norm = one[names.index("norm")]
    assert norm.counterpart is not None and other[norm.counterpart].state == "different"
    assert norm.max_rel is not None and 1e-4 < norm.max_rel < 0.1
    assert norm.parameters == ("norm/scale", "norm/bias")
    assert (norm.shape, norm.dtype) == ((3, 8), "float64")
    assert norm.source.endswith(f"test_modules.py:{line_of('name=' + chr(34) + 'norm')}")


def line_of(text: str) -> int:
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def test_counterparts_point_at_each_other(different: Report) -> None:
    one, other = different.parts
    for own, theirs in ((one, other), (other, one)):
        for index, part in enumerate(own):
            if part.counterpart is not None:
                assert theirs[part.counterpart].counterpart == index


@pytest.mark.slow
def test_modules_of_large_networks_are_left_out_unless_asked_for() -> None:
    assert diff_networks(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS, level="quick").parts == (
        (),
        (),
    )
    assert diff_networks(nets.haiku_mlp, nets.equinox_mlp, nets.INPUTS).parts[0]


def test_the_page_shows_what_differs(different: Report) -> None:
    text = page(different.to_json(), "triglot diff a:net b:net --html page.html")
    assert "norm_epsilon" in text and "triglot diff a:net b:net" in text
    assert text.count('class="module different"') == 1
    assert "&lt;a&gt; &amp; b" in text and "<a>" not in text
    assert 'class="hll"' in text  # the code of the first difference
    assert not re.findall(r"(?:src|href)=\"(?!data:)", text)


def test_a_notebook_shows_the_same_without_the_frame(different: Report) -> None:
    text = different._repr_html_()
    assert "norm_epsilon" in text and 'class="module different"' in text
    assert "<html" not in text and "<body" not in text


@pytest.mark.slow
def test_many_equal_modules_are_folded() -> None:
    def deep(x: jax.Array) -> jax.Array:
        for _ in range(12):
            x = nn.Dense(4)(x)
        return x

    class Deep(nn.Module):
        @nn.compact
        def __call__(self, x: jax.Array) -> jax.Array:
            return deep(x)

    report = diff_networks(Deep(), Deep(), Box((4,)), level="quick", modules=True)
    text = page(report.to_json(), "triglot diff")
    assert "10 modules that are equal" in text


def keys_of(value: Any) -> set[str]:
    """Collect the keys of an object and of those in it, but for names of parameters."""
    if isinstance(value, list | tuple):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    names = [key for key, each in value.items() if key not in ("only_one", "only_other")]
    return {*value} | set().union(*(keys_of(value[key]) for key in names))


@pytest.mark.slow
def test_the_keys_of_the_json_are_documented(different: Report) -> None:
    missing = diff_networks(nets.haiku_mlp, nets.haiku_without_bias, nets.INPUTS)
    recorded = {"modules": [dict.fromkeys(recordings.Module.__dataclass_fields__)]}
    keys = keys_of([different.to_json(), missing.to_json(), recorded])
    text = DOCUMENT.read_text()
    documented = set(re.findall(r"`([a-z_0-9]+)`", text))
    assert keys - {"mean", "std", "gain"} <= documented
    first_columns = re.findall(r"^\| (`.+?) \|", text, re.MULTILINE)
    listed = {word for cell in first_columns for word in re.findall(r"`(\w+)`", cell)}
    assert listed <= keys | {"compiled_only"}
    assert different.to_json()["format"] == 2
    json.dumps(different.to_json(), allow_nan=False)


@pytest.mark.packaging
@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_the_window_and_opens_rows(
    different: Report, width: int, tmp_path: Path
) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    file = tmp_path / "page.html"
    file.write_text(page(different.to_json(), "triglot diff a:net b:net"))
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": width, "height": 900})
        opened.goto(file.as_uri())
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        row = opened.locator("details.module.different")
        row.locator("summary").click()
        assert row.locator("dd").first.is_visible()
        assert opened.evaluate("document.documentElement.scrollWidth") <= width
        browser.close()
