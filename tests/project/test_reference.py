"""The API reference: public names have docstrings and appear on the first page."""

import importlib.util
import inspect
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import jax
import pytest

import triglot

ROOT = Path(__file__).parents[2]
FEW = ["triglot", "triglot.core", "triglot.core.environment", "triglot.envs.gridworld"]
DESCRIBED_BY_PROTOCOLS = {*vars(triglot.Agent), *vars(triglot.Environment)}


@pytest.mark.parametrize("name", sorted(triglot._HOME))
def test_what_is_public_has_a_docstring(name: str) -> None:
    public = getattr(triglot, name)
    said = public.__doc__ or ""
    assert said and not said.startswith(f"{name}("), f"{name} has none, or only its signature"
    if inspect.isclass(public):
        fields = getattr(public, "__dataclass_fields__", {})  # which its own docstring describes
        methods = {key: thing for key, thing in vars(public).items() if inspect.isroutine(thing)}
        silent = {key for key, method in methods.items() if not method.__doc__ and key[0] != "_"}
        assert silent <= DESCRIBED_BY_PROTOCOLS | set(fields)


@pytest.fixture(scope="module")
def build() -> Iterator[ModuleType]:
    """Import docs/reference/build.py; restore what it sets afterwards."""
    spec = importlib.util.spec_from_file_location("build", ROOT / "docs" / "reference" / "build.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    called = jax.Array.__qualname__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(triglot, "__all__", [], raising=False)
        yield module
    jax.Array.__qualname__ = called


@pytest.fixture(scope="module")
def pages(build: ModuleType) -> dict[str, str]:
    """Build the pages of a few modules; a warning is an error."""
    build.name_what_is_public()
    build.configure()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        modules, failed = build.load(FEW)
        assert not failed
        return {file: make() for file, make in build.pages(modules)}


@pytest.mark.packaging
def test_the_public_names_stand_on_the_first_page(pages: dict[str, str]) -> None:
    sections = re.findall(r'<section id="([\w.]+)">', pages["triglot.html"])
    assert sections[: len(triglot._HOME)] == list(triglot._HOME)
    assert "url=./triglot.html" in pages["index.html"]


@pytest.mark.packaging
def test_a_page_reads_our_docstrings(pages: dict[str, str]) -> None:
    page = pages["triglot/core/environment.html"]
    assert re.search("<strong>terminated:</strong> *bool <code>.*, the task ended", page)
    assert "jaxlib" not in page


@pytest.mark.packaging
def test_a_protocol_speaks_for_who_keeps_it(pages: dict[str, str]) -> None:
    _, _, step = pages["triglot/envs/gridworld.html"].partition('<div id="GridWorld.step"')
    assert "Take one action in" in step


@pytest.mark.packaging
def test_a_suffix_is_no_module(pages: dict[str, str]) -> None:
    assert "&#39;&#46;gif&#39;" in pages["triglot/envs/gridworld.html"]


@pytest.mark.packaging
def test_the_pages_need_no_network(pages: dict[str, str]) -> None:
    for file, text in pages.items():
        assert not re.search(r"""(src|<link[^>]* href)=["']?(https?:)?//""", text), file


@pytest.mark.packaging
def test_a_module_that_cannot_be_imported_is_told(build: ModuleType) -> None:
    name = "triglot.core.no_such_module"
    modules, failed = build.load([name])
    assert not modules
    assert failed == {name: f"No module named {name!r}"}
