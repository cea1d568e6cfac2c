"""Build the API reference from the docstrings: `make docs`, or `python docs/reference/build.py`.

The pages are self-contained: open them without a server. Members without a docstring are left out,
except constructors. A member that a protocol of triglot declares gets the docstring from there.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import jax
import pdoc.doc
import pdoc.extract
import pdoc.render
import pdoc.render_helpers
import tyro
from tqdm import tqdm

import triglot
from triglot.core.agent import ActionValues, Agent
from triglot.core.environment import CostlyReset, Environment, Renderable
from triglot.core.errors import writing

Modules: TypeAlias = dict[str, pdoc.doc.Module]

HERE = Path(__file__).parent
ROOMS = ("core", "algorithms", "backends", "envs", "checks", "diff", "experiments")
PROTOCOLS = (Agent, ActionValues, Environment, CostlyReset, Renderable)
# The templates of `triglot new` are on the page docs/extending.md.
LEFT_OUT = "!triglot.experiments.authoring.templates"


def main(out: Path = HERE.parent / "api") -> None:
    """Build the API reference from the docstrings; open index.html in the folder.

    Args:
      out: the folder; existing pages are overwritten.
    """
    name_what_is_public()
    configure()
    modules, failed = load(pdoc.extract.walk_specs(["triglot", LEFT_OUT]))
    for file, make in tqdm(list(pages(modules)), desc="pages", unit="page", dynamic_ncols=True):
        with writing(out / file):
            (out / file).parent.mkdir(parents=True, exist_ok=True)
            (out / file).write_text(make(), encoding="utf-8")
    for name, why in failed.items():
        print(f"{name} is left out: {why}")
    print(f"{len(modules)} modules: open {out / 'index.html'}")


def name_what_is_public() -> None:
    """List the public names on the first page, then the subpackages."""
    for name in triglot._HOME:
        getattr(triglot, name)  # imports it
    triglot.__all__ = [*triglot._HOME, *ROOMS]  # pyright: ignore[reportAttributeAccessIssue]
    jax.Array.__qualname__ = "Array"  # instead of its path in jaxlib


def configure() -> None:
    """Set pdoc's docstring format and the folder of the page templates."""
    pdoc.render.configure(docformat="google", template_directory=HERE)
    linkify = pdoc.render_helpers.linkify

    @functools.wraps(linkify)
    def linkify_full_names(context: Any, code: str, *args: Any, **options: Any) -> str:
        # Otherwise pdoc links the suffix `.gif` as a module.
        hidden = re.sub(r"(?<!\w)\.(?=[a-z])", "&#46;", code)
        return linkify(context, hidden, *args, **options)

    pdoc.render.env.filters["linkify"] = linkify_full_names


def load(names: Iterable[str]) -> tuple[Modules, dict[str, str]]:
    """Import the modules.

    Args:
      names: full module names.

    Returns:
      The modules, and by name the error of those that could not be imported, for example because a
      library is not installed.
    """
    modules, failed = {}, {}
    for name in names:
        try:
            modules[name] = pdoc.doc.Module.from_name(name)
        except RuntimeError as error:
            failed[name] = str(error.__cause__ or error).partition("\n")[0]
            continue
        for member in modules[name].members.values():
            if isinstance(member, pdoc.doc.Class):
                describe_by_protocol(member)
    return modules, failed


def describe_by_protocol(described: pdoc.doc.Class) -> None:
    """Copy docstrings of the protocols to members that have none."""
    has = {*dir(described.obj), *getattr(described.obj, "__annotations__", ())}
    for protocol in PROTOCOLS:
        asked = {name: thing for name, thing in vars(protocol).items() if not name.startswith("_")}
        for name, thing in asked.items() if asked.keys() <= has else ():
            member = described.members.get(name)
            if member is not None and not member.docstring:
                member.docstring = inspect.getdoc(thing) or ""


def pages(modules: Modules) -> Iterator[tuple[str, Callable[[], str]]]:
    """Yield each file's name with a function that renders its text."""

    def page(module: pdoc.doc.Module) -> Callable[[], Any]:
        return lambda: pdoc.render.html_module(module, modules)

    for name, module in modules.items():
        yield f"{name.replace('.', '/')}.html", page(module)
    yield "index.html", lambda: pdoc.render.html_index(modules)
    yield "search.js", lambda: pdoc.render.search_index(modules)


if __name__ == "__main__":
    tyro.cli(main)
