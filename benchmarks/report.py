"""From results to lines on the terminal and to the book's page."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import Any

from benchmarks.cases import LLAMA_LAYER, QUESTIONS
from lab.registry import METHODS
from tools import ROOT

PAGE = ROOT / "book/benchmarks.md"
Row = dict[str, Any]
FASTEST = "the fastest library"


@dataclass
class Bar:
    """What is asked for: that `who` takes at most `most` times what `against` takes."""

    text: str
    question: str
    lengths: tuple[int, ...]
    who: str
    against: str
    most: float


def stated() -> list[Bar]:
    """Return the bars of `bars.csv`."""
    lines = (ROOT / "benchmarks/bars.csv").read_text(encoding="utf-8").splitlines()
    return [
        Bar(
            *(row["text"], row["question"], tuple(map(int, row["lengths"].split()))),
            *(row["who"], row["against"], float(row["most"])),
        )
        for row in csv.DictReader(lines)
    ]


LIGHT = ("RoPE, half", "RoPE", "ALiBi", "T5 bias", "KERPLE", "FIRE", "Shaw")
BARS = [
    *stated(),
    *(
        Bar(
            f"Decoding with {name}",
            "decode",
            (4096,),
            f"pe_lib, {name}",
            LLAMA_LAYER,
            1.0 if name in LIGHT else 1.5,
        )
        for name in ["RoPE, half", *(method.name for method in METHODS.values())]
    ),
    *(
        Bar(
            f"Training with {name}: as fast",
            "training-step",
            (1024,),
            f"pe_lib, {name}",
            f"x-transformers, {name}",
            1.05,
        )
        for name in ("no positions", "RoPE", "ALiBi", "T5 bias")
    ),
]


def find(rows: list[Row], question: str, length: int, who: str) -> Row:
    """Return the row of one contender, or of the fastest library."""
    asked = [row for row in rows if (row["question"], row["length"]) == (question, length)]
    if who == FASTEST:
        libraries = [row for row in asked[1:] if not row["who"].startswith("pe_lib")]
        return min(libraries, key=lambda row: row["ratio"])
    return next(row for row in asked if row["who"] == who)


def unmeasured(results: dict[str, Any]) -> list[str]:
    """Return the questions without a row for each contender that a bar names."""
    known = {(row["question"], row["length"], row["who"]) for row in results["rows"]}
    asked = {
        (bar.question, length, who)
        for bar in BARS
        for length in bar.lengths
        for who in {bar.who, bar.against} - {FASTEST}
    }
    return sorted({question for question, _, _ in asked - known})


def judged(results: dict[str, Any]) -> list[tuple[str, int, str, float, float]]:
    """Return text, length, opponent, the ratio asked for and the ratio measured, for each bar."""
    lines = []
    for bar in BARS:
        for length in bar.lengths:
            mine = find(results["rows"], bar.question, length, bar.who)
            other = find(results["rows"], bar.question, length, bar.against)
            measured = mine["ratio"] / other["ratio"]
            lines.append((bar.text, length, other["who"], bar.most, measured))
    return lines


def failed(results: dict[str, Any]) -> list[str]:
    """Say which bars were missed."""
    return [
        f"{text}, L {length}: {measured:.2f} of {against}, at most {most:.2f} asked"
        for text, length, against, most, measured in judged(results)
        if measured > most
    ]


def time_of(seconds: float) -> str:
    """Write seconds in ms with three digits."""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def times(ratio: float) -> str:
    """Write a ratio with two or three digits."""
    return f"{ratio:.4f}" if ratio < 0.01 else f"{ratio:.3g}" if ratio < 100 else f"{ratio:.0f}"


def size(number: int) -> str:
    """Write bytes in the unit that fits."""
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:.3g} {unit}" if unit != "B" else f"{number} B"
        number /= 1024  # type: ignore[assignment]
    return f"{number:.3g} GiB"


def print_rows(rows: list[Row]) -> None:
    """Print one table."""
    print(f"\n{rows[0]['title']}, L {rows[0]['length']}: {rows[0]['rounds']} rounds")
    for row in rows:
        print(
            f"  {row['who']:48} {time_of(row['seconds']):>8} ms  x {times(row['ratio']):>7} "
            f"({times(row['low'])} to {times(row['high'])})  peak {size(row['peak_bytes']):>9}"
            f"  scratch {size(row['peak_bytes'] - row['kept_bytes']):>9}",
            flush=True,
        )


def markdown(head: list[str], body: list[list[str]], words: int) -> list[str]:
    """Return the lines of a table: columns of words, then columns of numbers on one line each."""
    rule = ["---"] * words + ["---:"] * (len(head) - words)
    whole = [[*row[:words], *(cell.replace(" ", "\u00a0") for cell in row[words:])] for row in body]
    return ["| " + " | ".join(cells) + " |" for cells in (head, rule, *whole)]


def write_page(results: dict[str, Any]) -> None:
    """Write the book's page."""
    machine, rows = results["machine"], results["rows"]
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    lines = [
        "<!-- Written by `make bench` from benchmarks/results.json: change that, not this. -->",
        "# How fast it is",
        "",
        "Each table compares functions that answer the same question on the same input, checked to"
        " agree before they are timed. The first row is what the machine allows: a copy, a fill, or"
        " the product without positions. All functions of a table run in turn, round after round,"
        " in one process; `x` is the median over the rounds of a function's time divided by the"
        " first row's in the same round, with the quartiles behind it. On one thread it is the"
        " processor's time, so that other programs on the machine count little. Milliseconds are of"
        " one machine and one day; the ratios carry further.",
        "",
        "Memory is counted by PyTorch's profiler, as allocations minus releases during one call:"
        " `peak` is the most at any time, the result included; `scratch` is what of the peak the"
        " result does not keep.",
        "",
        f"Measured on {machine['cpu']}, {machine['cores']} cores, {machine['threads']} thread(s)"
        f" used, load {machine['load before']} at the start, Python {machine['python']},"
        f" {versions}; batch 1, 8 heads of width 64, float32. All of it on the"
        " CPU: attention through `flex_attention` needs a GPU and is not timed here.",
        "",
        "(bench-bars)=",
        "## What was asked for",
        "",
    ]
    lines += markdown(
        ["asked", "compared with", "L", "at most", "measured", "reached"],
        [
            [
                text,
                against,
                f"{length}",
                times(most),
                times(got),
                "yes" if got <= most else "**no**",
            ]
            for text, length, against, most, got in judged(results)
        ],
        words=2,
    )
    for question in dict.fromkeys(row["question"] for row in rows):
        asked = [row for row in rows if row["question"] == question]
        lines += ["", f"## {asked[0]['title']}", ""]
        lines += [QUESTIONS[question].note, ""] if QUESTIONS[question].note else []
        lines += markdown(
            ["function", "L", "ms", "x", "quartiles", "peak", "scratch"],
            [
                [
                    row["who"],
                    f"{row['length']}",
                    time_of(row["seconds"]),
                    times(row["ratio"]),
                    f"{times(row['low'])} to {times(row['high'])}",
                    size(row["peak_bytes"]),
                    size(row["peak_bytes"] - row["kept_bytes"]),
                ]
                for row in asked
            ],
            words=1,
        )
    PAGE.write_text("\n".join(lines) + "\n")
