"""The command: `python -m pe_course.bakeoff`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from pe_course.bakeoff.grid import SCALES, TASKS, Cell, grid
from pe_course.bakeoff.protocol import GROUPS, higher_cells, rate_cells, seed_cells
from pe_course.bakeoff.recipes import TRAINABLE
from pe_course.bakeoff.rows import read_rows
from pe_course.bakeoff.run import CellsFailed, run

TABLES = Path(__file__).resolve().with_name("data")  # where a checkout keeps what it ships


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(prog="python -m pe_course.bakeoff", description=__doc__)
    options.add_argument("--scale", choices=SCALES, default="small")
    options.add_argument("--tasks", nargs="+", choices=TASKS, help="default: all of the scale")
    options.add_argument(
        "--methods", nargs="+", choices=tuple(TRAINABLE), help="default: those of the tables"
    )
    options.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="but for long")
    options.add_argument("--workers", type=int, default=2, help="processes on this machine")
    options.add_argument(
        "--scheduler",
        help="address of a Dask scheduler, tcp://host:port; needs requirements-bakeoff.txt",
    )
    options.add_argument("--out", type=Path, help="the CSV; finished cells in it are not run again")
    return options


def stages(chosen: argparse.Namespace, path: Path) -> Iterator[list[Cell]]:
    """Yield what is to be run at one time; of the long scale, rates before seeds."""
    if chosen.scale != "long":
        yield grid(chosen.scale, chosen.tasks, chosen.methods, chosen.seeds)
        return
    for task in chosen.tasks or ("n-back", "marker", "text"):
        for methods in [chosen.methods] if chosen.methods else GROUPS:
            yield rate_cells(task, methods)
            for more in (seed_cells, higher_cells, seed_cells):
                yield more(read_rows(path), task, methods)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is missing of the grid; return 1 if a cell failed."""
    chosen = parser().parse_args(arguments)
    path = chosen.out or TABLES / f"{chosen.scale}.csv"
    count, failed = 0, list[CellsFailed]()
    for cells in stages(chosen, path):
        count += len(cells)
        try:
            run(cells, path, workers=chosen.workers, scheduler=chosen.scheduler)
        except CellsFailed as error:
            failed.append(error)
    print(f"{count} cells, {len(read_rows(path))} rows in {path}")
    for each in failed:
        print(each, file=sys.stderr)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
