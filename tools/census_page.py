"""The page of the census: a table that a reader sorts, filters and searches (book/census.md)."""

from __future__ import annotations

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
HEAD = ("Model", "Year", "Positions", "Designs", "Base", "Context", "Layout", "Library", "Seen")
SHOWN = ("method", "base", "context", "layout", "library")
SCRIPT = """
(() => {
  const place = document.getElementById("census");
  const [search, design] = place.querySelectorAll("input, select");
  const body = place.querySelector("tbody"), rows = [...body.rows];
  function sift() {
    const words = search.value.toLowerCase().split(" ");
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word))
        || !row.cells[3].textContent.includes(design.value);
    }
    place.querySelector("output").value = `${rows.filter((row) => !row.hidden).length} models`;
  }
  place.querySelector("thead").addEventListener("click", ({ target }) => {
    const head = target.closest("th"), at = head.cellIndex;
    const sign = head.ariaSort === "ascending" ? -1 : 1;
    for (const each of head.parentNode.cells) each.removeAttribute("aria-sort");
    head.ariaSort = sign > 0 ? "ascending" : "descending";
    const text = (row) => row.cells[at].textContent;
    const order = (a, b) => text(a).localeCompare(text(b), "en", { numeric: true });
    body.append(...rows.sort((a, b) => !text(a) - !text(b) || sign * order(a, b)));
  });
  place.addEventListener("input", sift);
  place.querySelector("p").hidden = false;
  sift();
})();
"""


def cells(row: dict[str, str]) -> list[str]:
    """Return what the table shows of a model."""
    designs = [
        f"{said} ({row[column]})" if column == "window" else said
        for column, said in DESIGNS.items()
        if row[column] not in ("", "given") and (column != "axes" or "-" in row["axes"])
    ]
    seen = [part.split(" ")[1] for part in row["evidence"].split("; ")[1:2]]
    method, *more = (row[key].replace(" | ", ", ") for key in SHOWN)
    if row["optional"]:
        method += f" (optional: {row['optional'].replace(' | ', ', ')})"
    return [row["model"], row["year"], method, ", ".join(designs), *more, *(seen or [""])]


def page() -> str:
    """Return the text of the page."""
    head = "".join(f"<th scope=col><button type=button>{word}</button></th>" for word in HEAD)
    body = "\n".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells(row)) + "</tr>"
        for row in census.read()
    )
    options = "".join(f"<option>{word}</option>" for word in DESIGNS.values())
    return f"""# The census of published models

What does the code of a model do with positions? One row for each model of three libraries, read
by a program ([chapter 16](16_today.ipynb) says how, and how often it was wrong). Positions, bases,
windows and contexts (the longest text) are those of the default configuration; *optional* is what
the code has and the defaults leave off. *Seen* names the first file and line. The whole file has a
line for every value: {{download}}`the CSV <../pe_course/data/census.csv>`.

```{{raw}} html
<style>
#census td:nth-child(4) {{ min-width: 10rem }}
#census > div {{ max-height: 70vh; overflow: auto; font-size: 0.8rem }}
#census thead th {{ position: sticky; top: 0; background: var(--pst-color-background) }}
#census th button {{ all: unset; cursor: pointer; font-weight: 600; white-space: nowrap }}
#census th button:focus-visible {{ outline: 2px solid }}
#census th[aria-sort=ascending] button::after {{ content: " ↑" }}
#census th[aria-sort=descending] button::after {{ content: " ↓" }}
</style>
<div id="census">
<p hidden><label>Search <input type="search" placeholder="llama rotary 2025"></label>
<label>Design <select><option value="">any</option>{options}</select></label> <output></output></p>
<div tabindex="0" role="region" aria-label="Models">
<table class="table"><thead><tr>{head}</tr></thead><tbody>
{body}
</tbody></table></div></div>
<script>{SCRIPT}</script>
```
"""
