"""The built site, page by page, as a reader meets it."""

from __future__ import annotations

import gzip
import json
import math
import re
import shutil
import time
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup, SoupStrainer

from browsing import (
    BACKGROUND,
    DESK,
    LOOK,
    PHONE,
    SHIFTS,
    Visit,
    dead_sliders,
    left_out,
    open_page,
    toc_pages,
    visit_page,
)
from exercises import checks, solutions
from pe_course.page import live
from tools import ROOT, build
from tools.build import SITE
from tools.refresh import WIDGET_VIEW

CHAPTER = re.compile(r"/(0[1-9]|1\d)_")
BUDGET = 750_000  # bytes of a page on its way, with all that it shows and all that pages share
MOST_SHIFT = 0.02  # of what is seen, times how far it moves
PACKED = {".html", ".css", ".js", ".svg"}  # what hosts pack

NO_ICONS = {"solid", "lg"}  # words of the icons' style sheet that name none

PAGES = toc_pages()
NOTEBOOKS = [name for name in PAGES if (ROOT / f"{name}.ipynb").exists()]


@pytest.fixture(scope="session")
def tab(browser):
    """One tab for all visits: scripts that pages share are read and compiled once."""
    page = new_page(browser, DESK)
    yield page
    page.close()


@cache
def article(path: Path) -> BeautifulSoup:
    """Return the article of a page; to parse it is what takes long."""
    only = SoupStrainer("article")
    return BeautifulSoup(path.read_bytes(), "html.parser", parse_only=only)


@cache
def on_its_way(path: Path) -> int:
    """Return the bytes of a file as a host sends it."""
    data = path.read_bytes()
    return len(gzip.compress(data)) if path.suffix in PACKED else len(data)


def weight(path: Path, asked: list[str], address: str) -> int:
    """Return the bytes of a page read to its end, with nothing kept from another page.

    Args:
        path: of the page's file.
        asked: the addresses that it asked for; its pictures below are counted too.
        address: of the site.
    """
    parts = {
        SITE / urlsplit(url.removeprefix(address)).path
        for url in asked
        if not url.startswith("data:")  # part of the file that says it; some browsers list it
    }
    pictures = {path.parent / image["src"] for image in article(path).select("img[src]")}
    return sum(map(on_its_way, {part.resolve() for part in {path} | parts | pictures}))


def faults(visit: Visit, offline: bool) -> Iterator[str]:
    """Yield what is wrong with a page, one line for each promise that it does not keep."""
    promises = {
        "errors on the console": visit.console,
        "requests that failed": visit.failed,
        "requests to other hosts": visit.foreign if offline else [],
        "sliders that move no picture": visit.dead,
        "formulas that are not set": visit.bad_math,
        "pictures that do not say what they show": visit.no_alt,
        "figures without a place before they load": visit.unsized,
        "parts wider than a phone": visit.too_wide,
        "pictures out of shape on a phone": visit.distorted,
        "letters below nine pixels on a phone": visit.small,
        "more than one right edge": visit.edges[1:],
        **{f"what keeps somebody out ({each})": v for each, v in visit.violations.items()},
    }
    yield from (f"{promise}: {found}" for promise, found in promises.items() if found)
    if visit.background["light"] == visit.background["dark"]:
        yield f"the same ground in both looks: {visit.background['light']}"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_keeps_its_promises(name, tab, address, axe, seen):
    visit = visit_page(tab, f"{address}{name}.html", address, axe, seen)
    assert list(faults(visit, offline=shutil.which("npm") is not None)) == []
    assert visit.shift <= MOST_SHIFT
    assert 0 < visit.mark["y"] < DESK["height"] - visit.mark["height"]  # the sidebar shows it
    assert 100_000 < weight(SITE / f"{name}.html", visit.parts, address) <= BUDGET


@pytest.mark.parametrize("name", ["book/12_heads", "genindex"])  # a long folded line, an index
def test_no_page_moves_sideways_on_a_phone_while_all_is_folded(name, browser, address):
    with open_page(browser, f"{address}{name}.html", address, Visit()) as page:
        page.set_viewport_size(PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_who_comes_with_a_question_finds_its_door_on_the_first_screen(size, browser, address):
    with open_page(browser, f"{address}book/00_intro.html", address, Visit()) as page:
        page.set_viewport_size(size)
        for name in ("answers", "18_clinic", "19_choosing", "census"):
            door = page.locator(f'article a[href="{name}.html"]').first.bounding_box()
            assert 0 < door["y"] < size["height"] - door["height"], name


def test_scripts_come_with_the_site(site):
    if shutil.which("npm") is None:
        left_out("npm is missing: scripts come from public addresses")
    for name in PAGES:
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        sources = re.findall(r'<script[^>]* src="([^"]+)"', page)
        assert sources and not [source for source in sources if urlsplit(source).netloc], name


ASSETS = ROOT / "book" / "assets"


def test_type_faces_are_those_that_were_cut_and_light(site):
    cut = {path.relative_to(ASSETS): path.read_bytes() for path in ASSETS.rglob("*.woff2")}
    assert {name: (site / "_static" / name).read_bytes() for name in cut} == cut
    assert 0 < sum(map(len, cut.values())) <= 120_000
    assert "SIL Open Font License" in (ASSETS / "fonts" / "LICENSE.txt").read_text(encoding="utf-8")


def test_every_icon_of_a_page_is_among_those_that_are_served(site):
    served = {*build.ICONS} | NO_ICONS
    for name in [*PAGES, "search", "genindex"]:
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        named = set(re.findall(r"\bfa-([a-z-]+)", page))
        assert named <= served, name


def new_page(browser, size):
    """Open a tab that adds up how far the parts of a page jump."""
    page = browser.new_page()
    page.set_viewport_size(size)
    page.add_init_script(SHIFTS)
    return page


def late(seconds: float):
    """Return what lets an answer wait."""
    return lambda route: (time.sleep(seconds), route.continue_())


def test_nothing_jumps_when_the_type_face_comes_late(browser, address):
    page = new_page(browser, DESK)
    page.route("**/fonts/*.woff2", late(1))
    page.goto(f"{address}book/01_attention.html", wait_until="load")
    page.wait_for_function("document.fonts.check('1em \"Course Sans\"')")
    page.wait_for_timeout(500)
    assert page.evaluate("window.shifts") <= MOST_SHIFT
    page.close()


# With words, tables, formulas, a figure that computes, one that moves.
@pytest.mark.parametrize("name", ["00_intro", "02_sinusoidal", "methods", "exercises"])
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_nothing_jumps_when_scripts_and_pictures_come_late(name, size, browser, address):
    page = new_page(browser, size)
    slow = re.compile(r"/(course|live|bootstrap|pydata-sphinx-theme)\.js|_images/")
    page.route(slow, late(0.3))
    page.route("**/fonts/fonts.css*", lambda route: route.abort())  # the test above is for these
    page.goto(f"{address}book/{name}.html", wait_until="load")
    page.wait_for_timeout(300)
    assert page.evaluate("window.shifts") <= MOST_SHIFT
    page.close()


def test_a_jump_is_measured(browser, address):
    """Or no page could fail by it."""
    page = new_page(browser, DESK)
    page.goto(f"{address}book/methods.html", wait_until="load")
    page.evaluate("document.querySelector('.bd-article').style.paddingTop = '200px'")
    page.wait_for_function(f"window.shifts > {MOST_SHIFT}")
    page.close()


def test_only_text_is_offered_to_be_edited_where_it_lies(site):
    """A notebook would open as JSON."""
    for name in PAGES:
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert ("btn-source-edit-button" in page) == (name not in NOTEBOOKS), name
        assert "btn-source-issues-button" in page


def test_no_page_carries_widgets(site):
    pages = [(site / f"{name}.html").read_text(encoding="utf-8") for name in NOTEBOOKS]
    assert not any("jupyter" in page and "widget-state" in page for page in pages)


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
    # The page for errors counts from there.
    root = urlsplit("https://positional-encodings.github.io/course/").path
    paths = [path for path in sorted(site.rglob("*.html")) if "_static" not in path.parts]
    pages = {path.resolve(): Page(path) for path in paths}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = unquote(parts.path)
            at_root = place.startswith(root)
            place, folder = (place.removeprefix(root), site) if at_root else (place, path.parent)
            target = (folder / place).resolve() if parts.path else path
            fragment = unquote(parts.fragment).partition("?")[0]  # behind it, a figure's state
            lost = fragment and target in pages and fragment not in pages[target].ids
            if lost or not target.exists():
                broken.append(f"{path.relative_to(site.resolve())} -> {link}")
    return broken


def test_every_internal_link_and_anchor_leads_somewhere(site):
    assert broken_links(site) == []


def test_the_build_writes_the_page_of_the_proofs(site):
    page = (site / "book/check_proofs.html").read_text(encoding="utf-8")
    assert page.count("the student is told") == len(checks.EXERCISES)


def test_the_site_has_no_model_solution(site):
    """In no page, script or archive; its archives are tried in test_exercises.py."""
    secret = [
        max(re.findall(r"[\w ,]+", why), key=len).encode() for why in solutions.whys().values()
    ]
    for path in (path for path in site.rglob("*") if path.is_file()):
        data = path.read_bytes()
        assert not [each for each in secret if each in data], path


def test_every_notebook_can_be_downloaded_and_run_elsewhere(site):
    for name in NOTEBOOKS:
        page = (site / f"{name}.html").read_text(encoding="utf-8")
        assert "mybinder.org" in page and "colab.research.google.com" in page
        assert f"{Path(name).name}.ipynb" in page


@pytest.mark.parametrize("name", [name for name in PAGES if CHAPTER.search(name)])
def test_a_chapter_links_each_term_once_to_the_glossary(name, site):
    page = article(site / f"{name}.html")
    terms = [link.text.lower() for link in page.select("a.term[title]")]
    assert terms and len(terms) == len(set(terms))
    assert not page.select(":is(h1, h2, h3, pre, code, td) a.term, a a")


def test_a_term_shows_its_entry_under_the_pointer_and_leads_to_it(browser, address):
    with open_page(browser, f"{address}book/10_rope.html", address, Visit()) as page:
        term = page.locator("a.term", has_text="half-split layout").first
        shown = "e => getComputedStyle(e, '::after').content"
        assert term.evaluate(shown) == "none"
        term.hover()
        entry = "(前后对半配对) Column r forms a pair with column r + d/2."
        assert term.evaluate(shown) == f'"{entry}"'
        term.click()
        assert page.locator(":target").text_content().startswith("half-split layout")


def test_a_moving_figure_has_every_picture_and_shows_its_first_without_scripts(site):
    for name in NOTEBOOKS:
        source = nbformat.read(ROOT / f"{name}.ipynb", as_version=4)
        outputs = [each for cell in source.cells for each in cell.get("outputs", [])]
        views = [each.data for each in outputs if WIDGET_VIEW in each.get("data", {})]
        figures = article(site / f"{name}.html").select(".moving")
        assert len(figures) == len(views), name
        for figure, view in zip(figures, views, strict=True):
            frames = json.loads(figure["data-frames"])
            lengths = [len(json.loads(each["data-labels"])) for each in figure.select("input")]
            assert len(frames) == math.prod(lengths) > 1
            for alt, *files in frames:
                assert len(alt) >= 30 and len(files) in (1, 2)
                assert all((site / "book" / file).exists() for file, *_ in files)
            shown = figure.select_one("img[alt][width][height]")
            assert [shown["alt"], shown["src"]] in [[alt, broad[0]] for alt, broad, *_ in frames]
            still = (site / "book" / shown["src"]).read_bytes()
            assert still == b64decode(view["image/png"])  # as the notebook's own first picture


def test_two_sliders_choose_the_picture_that_the_notebook_has_for_them(browser, address):
    with open_page(browser, f"{address}book/02_sinusoidal.html", address, Visit()) as page:
        base, width = page.locator(".moving input").all()
        picture = page.locator(".moving img")
        for keys in (["Home", "ArrowRight"], ["End"]):
            base.focus()
            for key in keys:
                page.keyboard.press(key)
            width.focus()
            page.keyboard.press("Home")
            said = [each.get_attribute("aria-valuetext") for each in (base, width)]
            assert picture.get_attribute("alt").startswith(f"Base {said[0]}, width {said[1]}:")
            assert page.locator(".moving output").all_text_contents() == said
        assert said == ["1,000,000", "16"]


def test_a_formula_is_read_aloud_and_copied_as_its_tex(browser, address):
    with open_page(browser, f"{address}book/10_rope.html", address, Visit()) as page:
        formula = page.locator("mjx-container[data-tex]").first
        assert formula.locator("mjx-assistive-mml math").count() == 1
        assert formula.locator("mjx-math").get_attribute("aria-hidden") == "true"
        copied = page.evaluate(COPIED)
        assert f"${formula.get_attribute('data-tex')}$" in copied
        assert page.locator("script[src*=mathjax]").count() == 0


# What goes to the clipboard of the first paragraph with a formula.
COPIED = """() => {
  const choice = document.createRange(), data = new DataTransfer();
  choice.selectNode(document.querySelector('.bd-article p:has(mjx-container)'));
  getSelection().removeAllRanges();
  getSelection().addRange(choice);
  const event = {clipboardData: data, bubbles: true, cancelable: true};
  document.dispatchEvent(new ClipboardEvent('copy', event));
  return data.getData('text/plain');
}"""


def test_a_figure_that_computes_is_a_picture_until_its_script_draws_it(site, browser, address):
    found = 0
    for name in NOTEBOOKS:
        page = article(site / f"{name}.html")
        stills = page.select(".live[data-figure][data-state][style] img[alt][width][height]")
        assert len(stills) == len(page.select(".live")) <= len(page.select("figure[id] .live"))
        text = (site / f"{name}.html").read_text(encoding="utf-8")
        wanted = [live.script_of(each["data-figure"]).name for each in page.select(".live")]
        brought = [path.name for path in live.SCRIPTS if f"/{path.name}" in text]
        assert brought == wanted, name
        found += len(stills)
    assert found >= 2
    changed = f"{address}book/10_rope.html#figure-10-1?m=4&n=9"
    with open_page(browser, changed, address, visit := Visit()) as page:
        words = page.locator("#figure-10-1 .live-words")
        assert "Query at 4, key at 9" in words.text_content()
        assert page.query_selector_all(".live img") == []
        assert page.locator("#figure-10-1").bounding_box()["y"] < 900
        assert (visit.console, visit.failed) == ([], [])


FOUND = """query => {
  const [asked, words, without, marked, objects] = Search._parseQuery(query);
  const found = Search._performSearch(asked, words, without, marked, objects).reverse();
  return found.slice(0, 3).map(each => each[0].replace("book/", "") + each[2]);
}"""


@cache
def searches() -> dict[str, list[str]]:
    """Return, for what readers type, the pages that answer it, some with the section."""
    lines = (ROOT / "tests" / "searches.txt").read_text(encoding="utf-8").splitlines()[1:]
    return {query: places.split() for query, _, places in (line.rpartition(":") for line in lines)}


@pytest.fixture(scope="module")
def found(browser, address) -> dict[str, list[str]]:
    """Return, for what readers type, where the first three results lead."""
    with open_page(browser, f"{address}search.html", address, Visit()) as page:
        page.wait_for_function("Search.hasIndex()")
        return {query: page.evaluate(FOUND, query) for query in searches()}


def pages_of(places: list[str]) -> set[str]:
    return {place.partition("#")[0] for place in places}


def test_search_has_the_page_that_is_looked_for_among_the_first_three(found):
    wanted = {query: pages_of(places) for query, places in searches().items()}
    lost = {q: found[q] for q, pages in wanted.items() if pages and not pages & pages_of(found[q])}
    assert lost == {}
    assert {
        query: found[query] for query, pages in wanted.items() if not pages and found[query]
    } == {}


def test_the_first_result_leads_to_the_section_that_is_looked_for(found):
    sections = {query: places for query, places in searches().items() if "#" in "".join(places)}
    assert len(sections) >= 50
    assert {q: found[q][0] for q, places in sections.items() if found[q][0] not in places} == {}


def test_a_page_stands_once_among_the_results(found):
    assert {q: places for q, places in found.items() if len(pages_of(places)) < len(places)} == {}


@pytest.mark.parametrize(
    "query",
    ["rotate_half", "mrope_section", "score_mod alibi", "rel_shift function", "左填充 位置编号",
     "alibi slopes heads not power of 2", "llama 3 theta 500000", "gpt-oss attention sink softmax",
     "does causal mask replace positional encoding", "longrope short_factor long_factor",
     "bert longer than max_position_embeddings", "yarn mscale_all_dim attention factor"],
)  # fmt: skip
def test_a_click_on_a_result_brings_its_section_in_sight(query, browser, address):
    with open_page(browser, f"{address}search.html?q={query}", address, Visit()) as page:
        first = page.locator("#search-results li a").first
        place = first.get_attribute("href").removeprefix("book/").replace(".html", "")
        assert place in searches()[query]
        first.click()
        page.wait_for_url("**/book/*.html#*")
        page.wait_for_function("scrollY > 0")
        target = page.locator(":target")
        assert target.get_attribute("id") == place.partition("#")[2]
        assert 0 <= target.bounding_box()["y"] < DESK["height"] / 2


BESIDE = """form => {
  const input = form.querySelector("input"), look = getComputedStyle(input);
  const before = parseFloat(look.paddingLeft) + parseFloat(look.borderLeftWidth);
  const icon = form.querySelector("i").getBoundingClientRect();
  return input.getBoundingClientRect().left + before - icon.right;
}"""


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_what_is_looked_for_begins_right_of_the_magnifier(size, browser, address):
    with open_page(browser, f"{address}search.html?q=rope", address, Visit()) as page:
        page.set_viewport_size(size)
        assert page.locator(".bd-search-container form.bd-search").evaluate(BESIDE) >= 4
        page.goto(f"{address}book/methods.html")
        page.keyboard.press("Control+k")
        page.wait_for_selector("#pst-search-dialog[open]")
        assert page.locator("#pst-search-dialog form.bd-search").evaluate(BESIDE) >= 4


def test_no_single_letter_of_a_search_is_marked(browser, address):
    with open_page(browser, f"{address}search.html?q=2-D+RoPE", address, Visit()) as page:
        page.wait_for_selector("#search-results li p.context")
        marked = page.locator("#search-results .highlighted").all_inner_texts()
    assert marked and min(map(len, marked)) > 2


def test_the_search_shows_sentences_of_prose(browser, address):
    with open_page(browser, f"{address}search.html?q=rotation", address, Visit()) as page:
        page.wait_for_function("document.querySelectorAll('p.context').length > 9")
        shown = [said for said in page.locator("p.context").all_text_contents()[:10] if said]
    assert len(shown) > 7  # a section may have the word in its heading or its table alone
    texts = {name: " ".join(article(SITE / f"{name}.html").text.split()) for name in PAGES}
    for said in shown:
        words = re.sub(r"\W+", "", said)
        assert said[-1] in ".?!:" and not re.search("def |import |Contents|Print", said)
        assert any(words[:30] in re.sub(r"\W+", "", text) for text in texts.values()), said


@pytest.mark.parametrize("query", ["nope", "toeplitz", "rotary", "slides"])
def test_an_excerpt_has_what_was_looked_for_or_is_left_out(query, browser, address):
    with open_page(browser, f"{address}search.html?q={query}", address, Visit()) as page:
        page.wait_for_function("document.querySelectorAll('p.context').length > 1")
        shown = page.locator("p.context").all_text_contents()[:10]
    assert [said for said in shown if said and query[:4] not in said.lower()] == []


def test_only_the_page_of_the_search_loads_its_index(site):
    loading = {name for name in PAGES if "searchindex.js" in (site / f"{name}.html").read_text()}
    assert loading == set() and "searchindex.js" in (site / "search.html").read_text()


PALE = """() => [...document.querySelectorAll('.bd-article :is(p, h2, pre, pre span)')].filter(e =>
  e.checkVisibility() && getComputedStyle(e).color.match(/\\d+/g).slice(0, 3)
  .reduce((sum, part) => sum + Number(part), 0) > 400).map(e => e.outerHTML.slice(0, 80))"""


def test_a_page_read_in_the_dark_prints_dark_on_white(browser, address):
    with open_page(browser, f"{address}book/01_attention.html", address, Visit()) as page:
        page.emulate_media(media="screen", color_scheme="dark")
        page.wait_for_function(LOOK, arg="dark")
        assert page.evaluate(PALE)
        page.emulate_media(media="print", color_scheme="dark")
        assert page.evaluate(PALE) == []
        assert page.evaluate(BACKGROUND) == "rgb(255, 255, 255)"
        page.emulate_media(media="screen", color_scheme="light")


def test_the_book_reads_from_a_folder_without_a_server(browser, site):
    if shutil.which("npm") is None:
        left_out("npm is missing: scripts come from public addresses")
    visit = Visit()
    name = next(name for name in PAGES if name.endswith("05_shaw"))
    with open_page(browser, (SITE / f"{name}.html").as_uri(), "file:", visit) as page:
        assert (visit.console, visit.failed, visit.foreign) == ([], [], [])
        assert page.query_selector("mjx-container")
        sliders, dead = dead_sliders(page)
        assert sliders and not dead
        page.goto((SITE / "search.html").as_uri() + "?q=rotation")
        page.wait_for_selector("#search-results li")
