"""Make the script of the bench, the page on which a reader trains a model, and its grey curves.

Usage: python -m tools.bench [--script] [--seeds N]

The trainer (pe_course/page/web/bench) is bundled first; the page's script holds it as text and
starts it beside the page, so that the book reads from a folder too. Needs npm for the bundler, and
Node for the curves: the very trainer, run with every seed for each task and method. With --script
they stay, and what chapter 17 measured is read anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

from pe_course.bakeoff.rows import SHIPPED, Row, curves, read_rows
from pe_course.page.live import WEB
from tools import ROOT, live

SCRIPT, STYLE, CURVES = (WEB / f"bench.{kind}" for kind in ("js", "css", "json"))
PAGE = "book/bench"
RUNNER = ROOT / "tests" / "bench_run.mjs"
SETTINGS: dict[str, dict[str, Any]] = {  # of the grey curves: what the comparison has
    "none": {"method": "none"},
    "alibi": {"method": "alibi", "steep": 1},
    "t5": {"method": "t5", "buckets": 16, "reach": 16},
    "shaw": {"method": "shaw", "clip": 16},
    "rope": {"method": "rope", "base": 1e4},
    "sinusoidal": {"method": "sinusoidal", "base": 1e4, "gain": 1},
}
USUAL = {"task": "back", "seed": 1, "steps": 400}
TASKS = {"back": "n-back", "recall": "marker"}  # as the page and as the comparison calls them
LENGTHS = (32, 64, 128, 256, 512)
LICENCE = "d3-axis, d3-drag, d3-scale, d3-selection and what they need: ISC, LICENSE-d3.txt"
OPTIONS = ("--bundle", "--minify", "--format=iife", "--target=es2022", "--charset=utf8")


def digest() -> str:
    """Return the digest of all that the script is made of."""
    whole = hashlib.sha256()
    for path in sorted(
        [*WEB.glob("bench/*.js"), WEB / "src" / "kit.js", WEB / "package.json", CURVES]
    ):
        whole.update(path.name.encode() + b"\n" + path.read_bytes())
    return whole.hexdigest()


def script() -> str:
    """Bundle the trainer, then the page's own script with the trainer as its text."""
    live.bring_bundler()
    source, esbuild = live.WORKSHOP / "bench", live.WORKSHOP / "node_modules" / ".bin" / "esbuild"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(WEB / "src", source / "src")
    shutil.copytree(WEB / "bench", source / "bench")
    shutil.copy(CURVES, source / "bench")
    worker = source / "bench" / "worker.txt"
    live.run(
        esbuild,
        source / "bench/worker.js",
        *OPTIONS,
        "--global-name=Trainer",
        f"--outfile={worker}",
    )
    made = live.WORKSHOP / "bench.js"
    live.run(
        esbuild, source / "bench/page.js", *OPTIONS, "--global-name=Bench", f"--outfile={made}"
    )
    text = made.read_text(encoding="utf-8")
    return f"/* Made by tools/bench.py from {digest()}\n   {LICENCE} */\n{text}"


def run(job: str, **given: Any) -> Any:
    """Return what the shipped trainer makes of a job, in Node."""
    command = ["node", str(RUNNER), str(SCRIPT)]
    text = json.dumps({"job": job, **given})
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the trainer failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def ends(values: Iterable[float]) -> list[float]:
    """Return the lowest and the highest."""
    known = list(values)
    return [round(min(known), 3), round(max(known), 3)]


def chapter(rows: Sequence[Row], task: str, method: str, scale: str) -> dict[str, Any]:
    """Return steps, learning rate, seeds and ranges of a method in a training of chapter 17."""
    found = curves(rows, TASKS[task], "accuracy", scale)[method]
    ((steps, rate),) = {
        (int(row["steps"]), float(row["lr"]))
        for row in rows
        if (row["scale"], row["task"], row["variant"]) == (scale, TASKS[task], method)
    }
    shares = [ends(found[length]) for length in LENGTHS]
    return {"steps": steps, "rate": rate, "seeds": len(found[LENGTHS[0]]), "shares": shares}


def trained(seeds: int) -> dict[str, Any]:
    """Train every method on every task with seeds 1 to `seeds`; return what is drawn of them."""
    tasks: dict[str, Any] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for task in TASKS:
            tasks[task] = {}
            for method, setting in SETTINGS.items():
                given = [
                    setting | USUAL | {"task": task, "seed": seed} for seed in range(1, seeds + 1)
                ]
                seen = list(pool.map(lambda each: run("whole", setting=each), given))
                by_length = list(zip(*(each["accuracies"] for each in seen), strict=True))
                learned = [each["learned"] for each in seen if each["learned"]]
                tasks[task][method] = {
                    "middle": [round(median(shares), 3) for shares in by_length],
                    "here": [ends(shares) for shares in by_length],
                    "learned": {
                        "count": len(learned),
                        "first": min(learned, default=0),
                        "last": max(learned, default=0),
                    },
                }
    return {"seeds": seeds, "tasks": tasks, "plain": plain()}


def plain(steps: int = 400) -> dict[str, float]:
    """Return how many times as long training takes without WebAssembly, and seconds of a step."""
    setting = SETTINGS["rope"] | USUAL | {"steps": steps}
    fast, slow = (run("whole", setting=setting, plain=each)["worked"] for each in (False, True))
    return {"times": round(slow / fast), "seconds": round(slow / steps, 2)}


def beside(known: dict[str, Any]) -> str:
    """Return the curves as the page reads them, with what chapter 17's two trainings measured."""
    rows = {scale: read_rows(SHIPPED / f"{scale}.csv") for scale in ("small", "long")}
    for task, methods in known["tasks"].items():
        for method, kept in methods.items():
            kept |= {scale: chapter(rows[scale], task, method, scale) for scale in rows}
    return json.dumps(known) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--script", action="store_true", help="leave the curves as they are")
    parser.add_argument("--seeds", type=int, default=20, help="of each method and task")
    options = parser.parse_args()
    if options.script:
        known = json.loads(CURVES.read_text("utf-8"))
    else:
        SCRIPT.write_text(script(), encoding="utf-8")  # which is what trains
        known = trained(options.seeds)
    CURVES.write_text(beside(known), encoding="utf-8")
    SCRIPT.write_text(script(), encoding="utf-8")  # which holds them
    print(f"{SCRIPT.relative_to(ROOT)}: {SCRIPT.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
