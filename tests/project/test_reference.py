"""The API reference: public names have docstrings, and a page of the site each."""

import inspect
import re

import pytest

import triglot
from tests.project.documents import DOCS

DESCRIBED_BY_PROTOCOLS = {*vars(triglot.Agent), *vars(triglot.Environment)}
PAGES = {page.stem: page.read_text() for page in (DOCS / "reference").glob("*.md")}


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


def test_each_public_name_is_on_one_page_and_in_the_index() -> None:
    documented = re.findall(r"^::: triglot\.(\S+)$", "".join(PAGES.values()), re.MULTILINE)
    public = {f"{module}.{name}" for name, module in triglot._HOME.items()}
    assert public <= set(documented) and len(documented) == len(set(documented))
    assert {name for name in triglot._HOME if f"`{name}`" not in PAGES["index"]} == set()
