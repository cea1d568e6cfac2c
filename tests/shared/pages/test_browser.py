"""The page in headless Chromium, on a desk and on a phone."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shared.pages.sample import sample
from triglot.compare.pages import comparison
from triglot.shared.pages.charts import theme
from triglot.shared.pages.page import PAGE

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
WIDTHS = (1280, 390)
PAGES = {
    "different": {"num_updates": 200},
    "identical": {"num_updates": 40, "identical": True},
    "few_seeds": {"num_updates": 40, "num_seeds": 3, "envs": ("A:a", "B:b")},
}
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed"),
]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write the reports."""
    folders = {name: tmp_path_factory.mktemp(name) for name in PAGES}
    for name, options in PAGES.items():
        comparison.write(folders[name], sample(**options))
    return {name: folder / PAGE for name, folder in folders.items()}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium."""
    with playwright.sync_playwright() as running:
        started = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


class Visit:
    """An open page, with what it logged and what it asked for."""

    def __init__(self, browser: Any, path: Path, width: int, **options: Any) -> None:
        viewport = {"width": width, "height": 900}
        self.page = browser.new_page(viewport=viewport, **options)
        self.log: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.log.append(message.text))
        self.page.on("pageerror", lambda error: self.log.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_it_loads_alone_and_without_an_error(
    browser: Any, pages: dict[str, Path], name: str, width: int
) -> None:
    visit = Visit(browser, pages[name], width)
    assert visit.requests == [pages[name].as_uri()]
    folded = visit.page.locator("details:not([open]) > summary")
    while folded.count():
        folded.first.click()
    kinds = ("desk", "phone") if width > 640 else ("phone", "desk")
    for figure in visit.page.locator("figure[data-plot]").all():
        assert [figure.locator(f".{kind} svg").is_visible() for kind in kinds] == [True, False]
    assert visit.log == [] and len(visit.requests) == 1
    assert scrolls(visit.page) == []
    visit.page.close()


def scrolls(page: Any) -> list[str]:
    """List the elements that reach out of the window, but for those inside a scrolling one."""
    return page.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((element) => {
          const box = element.getBoundingClientRect();
          return box.right > innerWidth + 1 && box.width > 0
            && !element.closest(".wide, pre, svg");
        }).map((element) => element.outerHTML.slice(0, 90))
        .concat(document.documentElement.scrollWidth > innerWidth ? ["the page"] : [])"""
    )


def test_a_wide_table_scrolls_and_shows_it(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["different"], 390)
    table = visit.page.locator("#pairs .wide")
    sizes = table.evaluate("element => [element.scrollWidth, element.clientWidth]")
    assert sizes[0] > sizes[1]
    assert table.evaluate("element => getComputedStyle(element).overflowX") == "auto"
    assert "gradient" in table.evaluate("element => getComputedStyle(element).backgroundImage")
    visit.page.close()


def shown(page: Any, plot: str, words: str) -> int:
    """Count the parts of a plot, of all these keys, that can be seen."""
    parts = page.locator(f"[data-plot={plot}] .desk g.{words.replace(' ', '.')}")
    return sum(part.is_visible() for part in parts.all())


@pytest.mark.parametrize("script", [True, False])
def test_curves_can_be_hidden_and_seeds_shown(
    browser: Any, pages: dict[str, Path], script: bool
) -> None:
    visit = Visit(browser, pages["different"], 1280, java_script_enabled=script)
    figure = visit.page.locator("[data-plot=curves]")
    # Two libraries are one line in dashes of both.
    assert [shown(visit.page, "curves", f"g{i} band") for i in range(3)] == [1, 1, 1]
    assert [shown(visit.page, "curves", f"g{i}") for i in range(3)] == [3, 2, 2]
    figure.locator("[data-shows=g1]").uncheck()
    assert [shown(visit.page, "curves", f"g{i}") for i in range(3)] == [3, 0, 2]
    assert shown(visit.page, "divergence", "params_abs") == 1, "other plots are not changed"
    figure.locator("[data-shows=seeds]").check()
    assert [shown(visit.page, "curves", f"g{i} seeds") for i in range(3)] == [10, 0, 10]
    figure.locator("[data-shows=band]").uncheck()
    assert [shown(visit.page, "curves", f"g{i}") for i in range(3)] == [12, 0, 11]
    assert visit.log == []
    visit.page.close()


def test_equal_curves_are_one_and_say_so(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["identical"], 1280)
    assert shown(visit.page, "curves", "g0") == len(theme.LIBRARIES) + 1
    assert visit.page.locator("[data-plot=curves] .chips").inner_text().strip() == "All four"
    text = visit.page.locator("#divergence").inner_text()
    assert "No parameter, output or return differs at any of the 40 updates." in text
    visit.page.close()


def test_another_measure_has_another_axis(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["different"], 1280)
    for chosen in ("params_abs", "return_abs"):
        visit.page.locator(f"[data-plot=divergence] [data-shows={chosen}]").check()
        for name in ("params_abs", "params_rel", "outputs_abs", "return_abs"):
            assert shown(visit.page, "divergence", name) == (name == chosen)
    visit.page.close()


def test_the_command_is_copied(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["different"], 1280)
    visit.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    button = visit.page.locator("[data-copy=command]")
    button.click()
    visit.page.wait_for_function("document.querySelector('[data-copy]').textContent == 'Copied'")
    visit.page.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_without_javascript_curves_and_tables_are_shown(
    browser: Any, pages: dict[str, Path], width: int
) -> None:
    visit = Visit(browser, pages["different"], width, java_script_enabled=False)
    kind = "desk" if width > 640 else "phone"
    for name in ("curves", "divergence", "returns", "ladder", "cost"):
        plot = visit.page.locator(f"[data-plot={name}] .{kind} svg")
        assert plot.is_visible(), name
        assert plot.bounding_box()["width"] > 200
    assert visit.page.locator("#returns table").is_visible()
    assert visit.page.locator("#pairs table").is_visible()
    assert visit.page.locator("[data-plot=curves] .chips").inner_text().count("Haiku") == 1
    assert not visit.page.locator("[data-copy]").is_visible()
    visit.page.close()


def colour(page: Any, selector: str, name: str = "stroke") -> str:
    return page.locator(selector).first.evaluate(
        f"element => getComputedStyle(element).getPropertyValue('{name}')"
    )


def test_plots_are_dark_where_the_page_is(browser: Any, pages: dict[str, Path]) -> None:
    line = "[data-plot=returns] .desk path[style*='--c-0072b2']"
    light = Visit(browser, pages["different"], 1280, color_scheme="light")
    dark = Visit(browser, pages["different"], 1280, color_scheme="dark")
    assert colour(light.page, line) == "rgb(0, 114, 178)"
    assert colour(dark.page, line) == "rgb(69, 165, 224)"
    labels = "[data-plot=curves] .desk text"
    assert colour(light.page, labels, "fill") != colour(dark.page, labels, "fill")
    assert colour(dark.page, "body", "background-color") == "rgb(15, 20, 26)"
    dark.page.emulate_media(media="print")  # on paper it is light again
    assert colour(dark.page, "body", "background-color") == "rgb(255, 255, 255)"
    light.page.close()
    dark.page.close()


def test_it_is_printed_with_everything_unfolded(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["different"], 1280)
    assert visit.page.locator("details:not([open])").count() > 0
    assert len(visit.page.pdf(format="A4")) > 50_000
    visit.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    visit.page.emulate_media(media="print")
    assert visit.page.locator("details:not([open])").count() == 0
    assert visit.page.locator("[data-plot=curves] .desk svg").is_visible()
    visit.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert visit.page.locator("details:not([open])").count() > 0
    visit.page.close()


def test_a_download_holds_the_file(browser: Any, pages: dict[str, Path]) -> None:
    visit = Visit(browser, pages["different"], 1280)
    for name, path in (("comparison.json", "comparison.json"), ("pairs.csv", "tables/pairs.csv")):
        with visit.page.expect_download() as download:
            visit.page.locator(f"[download='{name}']").click()
        saved = Path(download.value.path()).read_bytes()
        assert saved == (pages["different"].parent / path).read_bytes()
    visit.page.close()
