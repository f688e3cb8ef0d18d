"""How light a page is: one sheet before its first words, its scripts after them, no idle rules."""

from __future__ import annotations

import gzip
import re

import pytest

from browsing import PARTS, Visit, open_page, toc_pages
from tools import light
from tools.build import SITE

SHEET = """.used, .gone { color: red }
a:is(.gone, b:not(.gone)) { top: 0 }
@media (max-width: 1px) { .gone:hover { top: 0 } @supports (top: 0) { .gone > a { top: 0 } } }
@font-face { src: url("data:font/woff2;base64,AA==") }
.begun-later, .gone .used { top: 0 }"""
CUT = """.used { color: red }
a:is(.gone, b:not(.gone)) { top: 0 }

@font-face { src: url("data:font/woff2;base64,AA==") }
.begun-later { top: 0 }"""
CLASSES = "() => [...document.querySelectorAll('[class]')].flatMap(e => [...e.classList])"
WAITED_FOR = """() => performance.getEntriesByType('resource')
  .filter(e => e.renderBlockingStatus === 'blocking').map(e => e.name)"""
# Requests of a page that is read for the first time, and kilobytes of what it waits for.
MOST = {
    "00_intro": (9, 105),
    "01_attention": (14, 130),
    "02_sinusoidal": (15, 140),
    "10_rope": (15, 145),
    "13_context_extension": (15, 150),
}


def spaces(sheet: str) -> str:
    return re.sub(r"\s+", "", sheet)


def test_a_rule_goes_whose_class_no_page_has_and_no_script_names():
    assert spaces(light.cut(SHEET, {"used", "begun-"})) == spaces(CUT)


def test_classes_of_pages_and_words_of_scripts_are_known(tmp_path):
    (tmp_path / "_static").mkdir()
    (tmp_path / "page.html").write_text('<p class="one two">three</p>')
    (tmp_path / "_static" / "script.js").write_text("list.add('four', `five-${six}`)")
    known = light.words(tmp_path)
    assert {"one", "two", "four", "five-"} <= known and "three" not in known


def test_a_page_waits_for_one_sheet_and_asks_for_few_parts(site, browser, address):
    known = light.words(site)
    begun = tuple(word for word in known if word.endswith("-"))
    for name, (requests, kilobytes) in MOST.items():
        with open_page(browser, f"{address}book/{name}.html", address, Visit()) as page:
            waited = page.evaluate(WAITED_FOR)
            assert len(page.evaluate(PARTS)) <= requests, name
            odd = {each for each in page.evaluate(CLASSES) if each not in known}
        assert [re.sub(r"\?.*", "", each) for each in waited] == [f"{address}_static/site.css"]
        sent = [SITE / "book" / f"{name}.html", SITE / "_static" / light.STYLE]
        size = sum(len(gzip.compress(path.read_bytes())) for path in sent)
        assert size <= 1000 * kilobytes, name
        assert not [each for each in odd if not each.startswith(begun)], name


@pytest.mark.parametrize("name", [*toc_pages(), "genindex"])
def test_no_page_loads_a_sheet_of_the_themes_or_a_script_before_its_words(name, site):
    page = (site / f"{name}.html").read_text(encoding="utf-8")
    own = {"site.css", "bench.css"} if name.endswith("/bench") else {"site.css"}
    assert {sheet[2] for sheet in light.LINK.finditer(page)} == own
    assert light.SOURCE.search(page) is None
