"""The built site, page by page, as a reader meets it."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import yaml
from bs4 import BeautifulSoup

from browsing import ROOT, SITE, Visit, dead_sliders, left_out, open_page, visit_page
from exercises import checks

CHAPTER = re.compile(r"/(0[1-9]|1\d)_")
BUDGET = 1_500_000  # bytes of a page and its own pictures, without what all pages share


def toc_pages() -> list[str]:
    """Return the pages of the book in their order, without suffix."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    chapters = [entry for part in toc["parts"] for entry in part["chapters"]]
    return [toc["root"], *(entry["file"] for entry in chapters)]


PAGES = toc_pages()
every_page = pytest.mark.parametrize("name", PAGES)
_visits: dict[str, Visit | Exception] = {}


@pytest.fixture
def visit(name, browser, address, axe) -> Visit:
    """Visit a page, once for all the tests that ask about it."""
    if name not in _visits:
        try:
            _visits[name] = visit_page(browser, f"{address}{name}.html", address, axe)
        except Exception as error:
            _visits[name] = error
    if isinstance(_visits[name], Exception):
        pytest.fail(f"the visit ended early: {_visits[name]}")
    return _visits[name]


@every_page
def test_a_page_opens_without_an_error_on_the_console(name, visit):
    assert visit.console == []
    assert visit.failed == []


@every_page
def test_a_page_asks_no_other_host(name, visit):
    if shutil.which("npm") is None:
        left_out("npm is missing: scripts come from public addresses")
    assert visit.foreign == []


@every_page
def test_every_slider_moves_its_picture(name, visit):
    assert visit.dead == []


@every_page
def test_every_formula_is_set(name, visit):
    assert visit.bad_math == []


@every_page
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_keeps_nobody_out(name, scheme, visit):
    assert visit.violations[scheme] == []


@every_page
def test_sliders_can_be_read_in_both_looks(name, visit):
    assert visit.faint == {"light": [], "dark": []}


@every_page
def test_every_picture_says_what_it_shows(name, visit):
    assert visit.no_alt == []


@every_page
def test_every_figure_has_its_place_before_it_loads(name, visit):
    assert visit.unsized == []


@every_page
def test_a_page_fits_a_phone(name, visit):
    assert visit.too_wide == []


@every_page
def test_every_picture_keeps_its_shape_on_a_phone(name, visit):
    assert visit.distorted == []


@every_page
def test_a_page_has_a_light_and_a_dark_look(name, visit):
    assert visit.background["light"] != visit.background["dark"]


@every_page
def test_a_page_is_light_enough(name, site):
    path = site / f"{name}.html"
    soup = BeautifulSoup(path.read_bytes(), "html.parser")
    own = {
        (path.parent / unquote(image["src"])).resolve()
        for image in soup.select("article img[src]")
        if not image["src"].startswith("data:")
    }
    assert path.stat().st_size + sum(picture.stat().st_size for picture in own) <= BUDGET


def test_the_book_has_sliders(browser, address, axe):
    notebooks = [name for name in PAGES if (ROOT / f"{name}.ipynb").exists()]
    visits = [_visits[name] for name in notebooks if name in _visits]
    assert any(visit.sliders for visit in visits if isinstance(visit, Visit))


class Page(HTMLParser):
    """The ids of a page and its links."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.ids.add(value)
            if name in ("href", "src") and value:
                self.links.add(value)


def broken_links(site: Path) -> list[str]:
    """Return the internal links of a site that lead nowhere."""
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): Page(path) for path in paths}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            fragment = unquote(parts.fragment)
            lost = fragment and target in pages and fragment not in pages[target].ids
            if lost or not target.exists():
                broken.append(f"{path.relative_to(site.resolve())} -> {link}")
    return broken


def test_every_internal_link_and_anchor_leads_somewhere(site):
    assert broken_links(site) == []


def test_the_build_writes_the_page_of_the_proofs(site):
    page = (site / "book/check_proofs.html").read_text(encoding="utf-8")
    assert page.count("the student is told") == len(checks.EXERCISES)


def test_every_notebook_can_be_downloaded_and_run_elsewhere(site):
    for name in (name for name in PAGES if (ROOT / f"{name}.ipynb").exists()):
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert "mybinder.org" in page and "colab.research.google.com" in page
        assert f"{Path(name).name}.ipynb" in page


@pytest.mark.parametrize("name", [name for name in PAGES if CHAPTER.search(name)])
def test_a_chapter_links_each_term_once_to_the_glossary(name, site):
    soup = BeautifulSoup((site / f"{name}.html").read_bytes(), "html.parser")
    terms = [link.text.lower() for link in soup.select("article a.term[title]")]
    assert terms and len(terms) == len(set(terms))
    assert not soup.select(":is(h1, h2, h3, pre, code, td) a.term, a a")


def test_a_term_shows_its_entry_under_the_pointer_and_leads_to_it(browser, address):
    page = open_page(browser, f"{address}book/10_rope.html", address, Visit())
    term = page.locator("a.term", has_text="half-split layout").first
    shown = "e => getComputedStyle(e, '::after').content"
    assert term.evaluate(shown) == "none"
    term.hover()
    assert term.evaluate(shown) == '"Column j forms a pair with column j + d/2."'
    term.click()
    assert page.locator(":target").text_content().startswith("half-split layout")
    page.close()


def test_search_finds_a_word_of_the_book(browser, address):
    visit = Visit()
    page = open_page(browser, f"{address}search.html?q=rotation", address, visit)
    page.wait_for_selector("#search-results li")
    assert visit.foreign == []
    page.close()


def test_the_book_reads_from_a_folder_without_a_server(browser, site):
    if shutil.which("npm") is None:
        left_out("npm is missing: scripts come from public addresses")
    visit = Visit()
    name = next(name for name in PAGES if name.endswith("01_attention"))
    page = open_page(browser, (SITE / f"{name}.html").as_uri(), "file:", visit)
    assert (visit.console, visit.failed, visit.foreign) == ([], [], [])
    assert page.query_selector("mjx-container")
    sliders, dead = dead_sliders(page)
    assert sliders and not dead
    page.goto((SITE / "search.html").as_uri() + "?q=rotation")
    page.wait_for_selector("#search-results li")
    page.close()
