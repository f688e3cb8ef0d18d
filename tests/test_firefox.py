"""The site and its figures in Firefox: `BROWSER=firefox make test`, where Firefox is found."""

from __future__ import annotations

import re
import shutil

import firefox
import pytest
from test_live import LEAST, NAMES, ORACLES, flat, states_of, wrong
from test_site import faults

from browsing import left_out, toc_pages, visit_page
from pages import live

CONTROLS = ".live-controls :is(input, select), .live-stage [role=slider]"
PICTURE = """control => {
  const figure = control.closest('.live-figure');
  return figure.querySelector('.live-stage').innerHTML;
}"""
PRESSED = """control => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(
  () => done(document.activeElement === control))))"""

AGAIN = "() => document.querySelectorAll('.live-tools button:first-child').forEach(e => e.click())"


@pytest.fixture(scope="module")
def tab():
    path = firefox.found()
    if path is None:
        left_out("Firefox is not installed: apt-get install firefox-esr")
    page = firefox.Page(path)
    yield page
    page.close()


@pytest.mark.parametrize("name", toc_pages())
def test_a_page_keeps_its_promises_in_firefox(name, tab, address, axe, seen):
    visit = visit_page(tab, f"{address}{name}.html", address, axe, seen)
    assert list(faults(visit, offline=shutil.which("npm") is not None)) == []


def dead_controls(tab) -> tuple[int, list[str]]:
    """Press keys on each control of the figures; return their number and those that do nothing."""
    tab.evaluate("() => document.querySelectorAll('.live-more').forEach(e => { e.open = true; })")
    count, dead = len(tab.query_selector_all(CONTROLS)), []
    for index in range(count):
        tab.evaluate(AGAIN)
        control = tab.query_selector_all(CONTROLS)[index]
        if control.evaluate("e => !e.checkVisibility() || (e.type === 'radio' && !e.checked)"):
            continue
        kind, before = control.get_attribute("type"), control.evaluate(PICTURE)
        control.focus()
        keys = list(firefox.KEYS)
        if kind == "text":
            keys = list("dog" if control.get_attribute("pattern") == ".*" else "0,1,1,0")
        if kind == "checkbox":  # a space that BiDi types switches no box, on any page
            control.evaluate("e => e.click()")
        for key in keys:
            tab.keyboard.press(key)
            assert control.evaluate(PRESSED) or kind == "radio"  # an arrow chooses its neighbour
            chosen = kind == "radio" and not control.evaluate("e => e.checked")
            if chosen or control.evaluate(PICTURE) != before:
                break
        else:
            words = control.evaluate("e => e.id + e.getAttribute('aria-label') + e.value")
            dead.append(words)
    return count, dead


def test_every_figure_works_and_computes_the_same_in_firefox(tab, address, site):
    seen = set()
    for page in toc_pages():
        if "data-figure" not in (site / f"{page}.html").read_text(encoding="utf-8"):
            continue
        tab.goto(f"{address}{page}.html")
        tab.wait_for_function("() => document.querySelector('.live-words') !== null")
        names = tab.evaluate(
            "() => [...document.querySelectorAll('.live')].map(e => e.dataset.figure)"
        )
        count, dead = dead_controls(tab)
        assert count >= len(names) and dead == [], page
        for name in names:
            compared = 0
            for state in states_of(name):
                found = tab.evaluate("([n, s]) => Live.FIGURES[n].numbers(s)", [name, state])
                expected = ORACLES[name](state, found)
                assert list(wrong(found, expected)) == [], (name, state)
                compared += sum(flat(value).size for value in expected.values())
            assert compared >= LEAST
            seen.add(name)
    assert seen == set(NAMES) == set(live.starts())


def test_3_back_is_learned_in_firefox(tab, address):
    tab.goto(f"{address}book/bench.html#bench?method=rope")
    tab.wait_for_function("() => document.querySelector('.bench-buttons button') !== null")
    tab.evaluate("document.querySelector('.bench-buttons button').click()")
    said = "() => document.querySelector('.live-words').textContent"
    tab.wait_for_function(f"{said}.includes('learned after')")
    steps = int(re.search(r"learned after (\d+) steps", tab.evaluate(said))[1])
    assert steps <= 150
