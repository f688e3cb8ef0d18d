"""Tables on a phone: which row a cell belongs to stays in sight, and what is read becomes cards."""

from __future__ import annotations

import pytest

from browsing import PHONE, UNFOLD
from tools.build import SITE

SIZES = [(390, "light"), (320, "dark")]
# Each box is moved to its end, so what it says is that of a reader who has scrolled.
FAULTS = """() => [...document.querySelectorAll('.pst-scrollable-table-container')].flatMap(box => {
  const table = box.querySelector('table'), name = table.textContent.trim().slice(0, 40);
  const hidden = box.scrollWidth - box.clientWidth, said = [];
  const check = (fine, words) => fine || said.push(words + ': ' + name);
  const [left, right] = [box.getBoundingClientRect().left, box.getBoundingClientRect().right];
  check(box.classList.contains('goes-on') === hidden > 1, 'what is hidden and what fades differ');
  if (hidden <= 1) return said;
  check(table.tBodies[0].rows[0].cells.length > 2, 'two columns, one of them out of sight');
  const second = table.rows[0].cells[1].getBoundingClientRect();
  check(second.left < right - 48, 'the second column is out of sight');
  box.scrollLeft = hidden;
  for (const { cells: [first] } of table.rows) {
    const place = first.getBoundingClientRect(), ground = getComputedStyle(first).backgroundColor;
    check(Math.abs(place.left - left) < 1.5, 'the first column has left');
    check(place.width <= 0.41 * box.clientWidth, 'the first column is too wide');
    check(first.scrollWidth <= first.clientWidth + 1, 'words leave the first column');
    check(/^rgb\\(/.test(ground), 'the first column is not opaque');
  }
  return [...new Set(said)];
})"""


def with_tables() -> list[str]:
    """Return the pages that have a table, below the site."""
    pages = [*SITE.glob("book/*.html"), SITE / "genindex.html", SITE / "py-modindex.html"]
    having = [page for page in pages if "<table" in page.read_text(encoding="utf-8")]
    return sorted(page.relative_to(SITE).as_posix() for page in having)


def phone(browser, url: str, width: int = 390, look: str = "light"):
    """Open a page on a phone, with all folds open."""
    tab = browser.new_page()
    tab.set_viewport_size(PHONE | {"width": width})
    tab.emulate_media(color_scheme=look, reduced_motion="reduce")
    tab.goto(url, wait_until="load")
    tab.evaluate(UNFOLD)
    tab.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    return tab


@pytest.mark.parametrize(("width", "look"), SIZES)
def test_the_first_column_stays_and_no_page_moves_sideways(width, look, address, browser):
    pages, faults, moved = with_tables(), {}, 0
    for page in pages:
        tab = phone(browser, address + page, width, look)
        if tab.evaluate("document.documentElement.scrollWidth") > width:
            faults[page] = ["the page moves sideways"]
        if found := tab.evaluate(FAULTS):
            faults[page] = [*faults.get(page, []), *found]
        moved += tab.evaluate(
            "[...document.querySelectorAll('*')].filter(e => e.scrollLeft).length"
        )
        tab.close()
    assert faults == {}
    assert len(pages) > 30 and moved > 60  # or nothing was looked at


def test_a_table_fades_where_it_goes_on(address, browser):
    tab = phone(browser, f"{address}book/11_one_table.html")
    box = tab.locator(".pst-scrollable-table-container.goes-on").first.element_handle()
    assert "gradient" in box.evaluate("e => getComputedStyle(e).maskImage")
    box.evaluate("e => { e.scrollLeft = e.scrollWidth }")
    tab.wait_for_function("e => getComputedStyle(e).maskImage === 'none'", arg=box)
    tab.close()


LABELS = """table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell =>
  [getComputedStyle(cell, '::before').content.replace(/^"|:?"? ?"?$/g, ''), cell.offsetWidth]))"""


@pytest.mark.parametrize("page", ["16_today", "18_clinic", "claims", "configs", "notation"])
def test_what_is_read_becomes_cards_with_the_words_of_the_head(page, address, browser):
    tab = phone(browser, f"{address}book/{page}.html")
    for table in tab.query_selector_all("table.stacked"):
        heads = table.evaluate("e => [...e.tHead.rows[0].cells].map(c => c.textContent.trim())")
        for row in table.evaluate(LABELS):
            assert [label.rstrip(" :") for label, _ in row] == heads
            assert all(wide <= PHONE["width"] for _, wide in row)
        assert not table.evaluate("e => e.tHead.checkVisibility()")
    tab.set_viewport_size({"width": 1440, "height": 900})
    assert tab.evaluate("document.querySelector('.stacked').tHead.checkVisibility()")
    assert tab.evaluate("getComputedStyle(document.querySelector('.stacked td')).display") == (
        "table-cell"
    )
    tab.close()


def test_the_head_of_a_tall_table_stays_in_sight(address, browser):
    tab = phone(browser, f"{address}book/configs.html")
    table = tab.locator("table.sideways").element_handle()
    table.evaluate("e => { e.closest('div').scrollTop = 3000 }")
    above = (
        "e => e.tHead.getBoundingClientRect().top - e.closest('div').getBoundingClientRect().top"
    )
    assert abs(table.evaluate(above)) < 1.5
    assert table.evaluate("e => e.closest('div').offsetHeight") < PHONE["height"]
    tab.close()
