"""The API reference: public names have docstrings, and a place on a page of the site each."""

import inspect
import re
from importlib import import_module

import pytest

import triglot
from tests.project.documents import DOCS
from tests.project.source import PUBLIC

BASES = (triglot.Agent, triglot.Environment, triglot.rl.Wrapper)
DESCRIBED_BY_PROTOCOLS = {name for base in BASES for name in vars(base)}
PAGES = {page.stem: page.read_text() for page in (DOCS / "reference").glob("*.md")}
# Each public name once, with the namespace that documents it: `gae` of `triglot.rl`.
NAMES = {name: module for module, names in PUBLIC.items() for name in names}


def documented(page: str) -> list[str]:
    """List the modules and names that a page describes, without `triglot.`."""
    return re.findall(r"^::: triglot\.(\S+)$", page, re.MULTILINE)


def undocumented(name: str) -> set[str]:
    """Return a public name, and its public methods, as far as they have no docstring."""
    public = getattr(import_module(NAMES[name]), name)
    docstring = public.__doc__ or ""
    if not docstring or docstring.startswith(f"{name}("):  # a dataclass's signature
        return {name}
    if not inspect.isclass(public):
        return set()
    fields = getattr(public, "__dataclass_fields__", {})  # which its own docstring describes
    methods = {key: thing for key, thing in vars(public).items() if inspect.isroutine(thing)}
    silent = {key for key, method in methods.items() if not method.__doc__ and key[0] != "_"}
    return {f"{name}.{key}" for key in silent - DESCRIBED_BY_PROTOCOLS - set(fields)}


def test_what_is_public_has_a_docstring() -> None:
    assert set[str]().union(*map(undocumented, NAMES)) == set()


def test_each_public_name_is_described_once() -> None:
    described = [name for page in PAGES.values() for name in documented(page)]
    assert len(described) == len(set(described))
    names = {f"{home}.{name}" for module in PUBLIC.values() for name, home in module.items()}
    assert names - {"rl.rl", "nn.nn"} <= set(described)


@pytest.mark.parametrize("page", ["rl", "nn"])
def test_the_page_of_a_namespace_lists_its_names_in_their_order(page: str) -> None:
    names = PUBLIC[f"triglot.{page}"]
    assert documented(PAGES[page]) == [f"{home}.{name}" for name, home in names.items()]


@pytest.mark.parametrize("module", PUBLIC)
def test_the_index_lists_the_public_names_in_their_order(module: str) -> None:
    (row,) = (row for row in PAGES["index"].split("\n\n") if row.startswith(f"`{module}`"))
    listed = re.findall(r"`(\w+)`", row.partition("\n")[2])
    assert listed == list(PUBLIC[module])
