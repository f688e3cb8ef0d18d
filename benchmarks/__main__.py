"""Run the comparison: `python -m benchmarks`, or some of it: `python -m benchmarks rope sdpa`."""

from __future__ import annotations

import argparse
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from benchmarks.cases import QUESTIONS
from benchmarks.measure import side_by_side
from benchmarks.report import failed, print_rows, unmeasured, write_page

RESULTS = Path(__file__).with_name("results.json")
READERS = ("11_one_table", "19_choosing")
LIBRARIES = (
    "torch",
    "transformers",
    "rotary-embedding-torch",
    "x-transformers",
    "positional-encodings",
    "diffusers",
)


def machine(threads: int) -> dict[str, Any]:
    """Describe the machine in terms that mean something elsewhere."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": threads,
        "load before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="question", help=", ".join(QUESTIONS))
    parser.add_argument("--seconds", type=float, default=4.0, help="per table and length")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.questions) - set(QUESTIONS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    chosen = arguments.questions or list(QUESTIONS)
    torch.set_num_threads(arguments.threads)
    for name in chosen:
        rows: list[dict[str, Any]] = []
        question = QUESTIONS[name]
        for length in question.lengths:
            with torch.set_grad_enabled(question.with_gradients):
                works = question.works(length)
                limit = next(iter(works))
                measured = side_by_side(works, limit, budget=arguments.seconds)
            table = [
                {"question": name, "title": question.title, "length": length, "who": who}
                | asdict(numbers)
                for who, numbers in measured.items()
            ]
            print_rows(table)
            rows += table
        keep(name, rows, machine(arguments.threads))
    publish()
    print(f"Chapters print some of these numbers: make refresh NB='{' '.join(READERS)}'")


def keep(name: str, rows: list[dict[str, Any]], where: dict[str, Any]) -> None:
    """Put one question's rows in the place of its earlier ones; the others stay as they are."""
    earlier = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = rows + [row for row in earlier if row["question"] != name]
    rows.sort(key=lambda row: list(QUESTIONS).index(row["question"]))  # stable: lengths keep order
    results = {"machine": where, "rows": rows}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


def publish() -> None:
    """Write the page, and say what was missed, once every question has rows of today's names."""
    results = json.loads(RESULTS.read_text())
    if again := unmeasured(results):
        print("The page waits for", ", ".join(again))
        return
    write_page(results)
    for line in failed(results):
        print("missed:", line)


if __name__ == "__main__":
    main()
