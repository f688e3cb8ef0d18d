"""The page of the census: a table that a reader sorts, filters and searches (book/census.md)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from html import escape

from pe_course import census

DESIGNS = {
    "part": "part of the head",
    "axes": "axes",
    "window": "window",
    "no_position_layers": "layers without positions",
    "sink": "sink",
    "temperature": "temperature",
    "latent": "latent attention",
    "rotated_back": "values rotated back",
    "learned_rates": "learned frequencies",
    "content_bias": "content-read distances",
    "output_gate": "gate after attention",
    "recurrence": "recurrence or convolution",
}
HEAD = ("Model", "Positions", "Designs", "Base", "Context", "Year", "Library")
SCRIPT = """
(() => {
  const place = document.getElementById("census");
  const fields = [...place.querySelectorAll("[name]")], heads = [...place.querySelectorAll("th")];
  const names = heads.map((head) => head.textContent.toLowerCase());
  const plain = (text) => text.toLowerCase().replace(/(\\d),(?=\\d)/g, "$1");
  const body = place.querySelector("tbody"), rows = [...body.rows];
  const texts = new Map(rows.map((row) => [row, [...row.cells].map((e) => plain(e.textContent))]));
  const { compare } = new Intl.Collator("en", { numeric: true });
  let sort = "";  // the name of a column, after a minus where it descends

  function has(row, { name, value }) {
    const cell = texts.get(row)[names.indexOf(name)];
    if (cell !== undefined) return cell.split(" (optional")[0].includes(value.toLowerCase());
    const whole = texts.get(row).join(" ");
    return plain(value).split(" ").every((word) => whole.includes(word));
  }
  function show() {
    for (const row of rows) row.hidden = !fields.every((field) => has(row, field));
    const at = names.indexOf(sort.replace("-", "")), down = sort.startsWith("-");
    const text = (row) => texts.get(row)[at] ?? "";
    const order = (a, b) => !text(a) - !text(b) || (down ? -1 : 1) * compare(text(a), text(b));
    body.append(...[...rows].sort(order));
    const said = (place) => (place !== at ? "none" : down ? "descending" : "ascending");
    heads.forEach((head, place) => head.setAttribute("aria-sort", said(place)));
    place.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} models`;
  }
  function change() {  // the address leads to what is shown
    show();
    const all = [...fields.map(({ name, value }) => [name, value]), ["sort", sort]];
    const state = new URLSearchParams(all.filter(([, value]) => value)).toString();
    history.replaceState(null, "", location.href.split("#")[0] + (state && `#census?${state}`));
  }
  function read() {
    const [anchor, state] = location.hash.slice(1).split("?");
    const asked = new URLSearchParams(anchor === "census" ? state : "");
    for (const field of fields) field.value = asked.get(field.name) ?? "";
    sort = asked.get("sort") ?? "";
    show();
  }
  place.querySelector("thead").addEventListener("click", ({ target }) => {
    const name = names[target.closest("th").cellIndex];
    sort = sort === name ? `-${name}` : name;
    change();
  });
  place.addEventListener("input", change);
  addEventListener("hashchange", read);
  place.querySelector("p").hidden = false;
  read();
})();
"""


def in_words(values: str) -> str:
    """Return a cell's values as they are read: "full_attention=10000" is "10,000 (full)"."""
    values = re.sub(r"(\w+?)(?:_attention)?=(\S+)", r"\2 (\1)", values.replace(" | ", ", "))
    return re.sub(r"\d{4,}", lambda number: f"{int(number[0]):,}", values)


def cells(row: dict[str, str]) -> list[str]:
    """Return what the table shows of a model."""
    designs = [
        f"{said} ({in_words(row[column])})" if column == "window" else said
        for column, said in DESIGNS.items()
        if row[column] not in ("", "given") and (column != "axes" or "-" in row["axes"])
    ]
    method = in_words(row["method"])
    if row["layout"]:
        method = method.replace("rotary", f"rotary ({in_words(row['layout'])})")
    if row["optional"]:
        method += f" (optional: {in_words(row['optional'])})"
    numbers = (in_words(row[column]) for column in ("base", "context"))
    return [row["model"], method, ", ".join(designs), *numbers, row["year"], row["library"]]


def choice(name: str, values: Iterable[str]) -> str:
    """Return the control that keeps the models with one of the values in a column."""
    options = "".join(f"<option>{escape(value)}</option>" for value in values)
    return (
        f"<label>{name} <select name={name.lower()}>"
        f'<option value="">any</option>{options}</select></label>'
    )


def page() -> str:
    """Return the text of the page."""
    rows = census.read()
    head = "".join(f"<th scope=col><button type=button>{word}</button></th>" for word in HEAD)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>"
        for row in rows
    ).replace("_", "_<wbr>")
    methods = Counter(method for row in rows for method in census.values(row, "method"))
    choices = [
        choice("Positions", [method for method, _ in methods.most_common()]),
        choice("Designs", DESIGNS.values()),
        choice("Library", sorted({row["library"] for row in rows})),
    ]
    return f"""# The census of published models

What does the code of a model do with positions? One row for each model of three libraries, read
by a program ([chapter 16](16_today.ipynb) says how, and how often it was wrong). Positions, bases,
windows and contexts (the longest text) are those of the default configuration; *half* or
*interleaved* is the [layout of pairs](notation.md#the-layout-of-pairs), and *optional* is what the
code has and the defaults leave off. The whole file names the line of code of every value:
{{download}}`the CSV <../pe_course/data/census.csv>`.

```{{raw}} html
<style>
.bd-main .bd-content .bd-article-container:has(#census) {{ max-width: 76rem }}
.bd-article:has(#census) > section > :is(h1, p) {{ max-width: var(--course-line) }}
#census p {{ display: flex; flex-wrap: wrap; align-items: end; gap: 0.5rem 1rem }}
#census p[hidden] {{ display: none }}
#census label {{ flex: 1 1 8rem; max-width: 12rem; font-size: 0.9rem }}
#census :is(input, select) {{
  display: block; width: 100%; height: 2.2rem; padding: 0 0.5rem; border-radius: 6px;
  border: 1px solid var(--pst-color-text-muted); background: var(--pst-color-background);
  color: inherit; font: inherit;
}}
@media screen {{ #census > div {{ max-height: 80vh; overflow: auto }} }}
#census table {{ margin: 0; font-size: 0.85rem }}
#census td:nth-child(n + 2):nth-child(-n + 3) {{ min-width: 8rem }}
#census thead {{ position: sticky; top: 0; z-index: 2 }}
#census th button {{ all: unset; cursor: pointer; font-weight: 600; white-space: nowrap }}
#census th button:focus-visible {{ outline: 2px solid }}
#census th[aria-sort=ascending] button::after {{ content: " ↑" }}
#census th[aria-sort=descending] button::after {{ content: " ↓" }}
</style>
<div id="census">
<p hidden><label>Search <input type="search" name="search" placeholder="llama 2025"></label>
{" ".join(choices)} <output></output></p>
<div class="pst-scrollable-table-container" tabindex="0" role="region" aria-label="Models">
<table class="table sideways"><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div></div>
<script>{SCRIPT}</script>
```
"""
