"""Run the cells of a grid, here or on a cluster, and keep one CSV that can be resumed."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures import as_completed as local_completed
from functools import partial
from pathlib import Path

from filelock import FileLock
from tqdm.auto import tqdm

from pe_course.bakeoff.cells import run_cell
from pe_course.bakeoff.grid import Cell
from pe_course.bakeoff.rows import Row, read_rows
from pe_course.processes import loaded_once
from pe_course.training import quiet

INSTALL_DASK = "pip install -r requirements-bakeoff.txt -c constraints.txt"
Outcome = list[Row] | Exception  # of one cell


class CellsFailed(Exception):
    """Some cells raised an error; the rows of all others are in the CSV."""

    def __init__(self, errors: dict[str, Exception], path: Path) -> None:
        """Name each cell with its error."""
        lines = [f"{key}: {type(error).__name__}: {error}" for key, error in errors.items()]
        head = f"{len(lines)} cells failed; all others are in {path}:"
        super().__init__("\n  ".join([head, *lines]))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Replace a CSV in one step: whoever is interrupted leaves the old file or the new one."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def add_rows(path: Path, cell: Cell, new_rows: Sequence[Row]) -> None:
    """Put a cell's rows into a CSV, to which other runs may be adding theirs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_name(f".{path.name}.lock")):
        kept = [line for line in read_rows(path) if not same_key(line, cell)]
        write_rows(path, sorted([*kept, *new_rows], key=sort_key))


def settings_of(line: Row, cell: Cell) -> dict[str, str]:
    """Return the part of a row that names its cell, as text."""
    return {name: str(line.get(name)) for name in cell.settings()}


def is_finished(cell: Cell, rows: Sequence[Row]) -> bool:
    """Return whether the rows hold this very cell, with these very settings."""
    wanted = {name: str(value) for name, value in cell.settings().items()}
    return any(settings_of(line, cell) == wanted for line in rows)


def sort_key(line: Row) -> tuple[str, ...]:
    """Order rows by what they are, not by who was ready first."""
    names = ("scale", "task", "method", "seed", "variant", "metric")
    return (*(str(line[name]) for name in names), f"{int(str(line['length'])):06d}")


def outcome(rows_of_cell: Callable[[], list[Row]]) -> Outcome:
    """Return the rows of a cell, or the error that it raised: other cells go on."""
    try:
        return rows_of_cell()
    except Exception as error:
        return error


def run_local(cells: Sequence[Cell], workers: int) -> Iterator[tuple[Cell, Outcome]]:
    """Yield each cell with its outcome as it becomes ready, from processes on this machine."""
    if workers == 1:
        for cell in cells:
            yield cell, outcome(partial(run_cell, cell))
        return
    with ProcessPoolExecutor(workers, mp_context=loaded_once(["pe_course.bakeoff.cells"])) as pool:
        futures = {pool.submit(run_cell, cell): cell for cell in cells}
        for future in local_completed(futures):
            yield futures[future], outcome(future.result)


def run_dask(cells: Sequence[Cell], address: str) -> Iterator[tuple[Cell, Outcome]]:
    """Yield each cell with its outcome as it becomes ready, from the workers of a Dask scheduler.

    A cell whose worker dies is run again by another; the scheduler hands out each result once.

    Raises:
        ImportError: if Dask is not installed.
    """
    try:
        from distributed import Client, as_completed
    except ImportError as error:
        raise ImportError(f"a scheduler needs Dask: {INSTALL_DASK}") from error

    with Client(address) as client:  # type: ignore[no-untyped-call]
        futures = {client.submit(run_cell, cell, key=f"bakeoff-{cell.key}"): cell for cell in cells}
        for future in as_completed(futures):  # type: ignore[no-untyped-call]
            yield futures[future], outcome(future.result)


def run(
    cells: Sequence[Cell], path: Path, *, workers: int = 1, scheduler: str | None = None
) -> list[Row]:
    """Run the cells that the CSV does not hold yet, and add each as soon as it is ready.

    Args:
        cells: the grid; what is finished is not run again.
        path: the CSV. Rows of other cells stay, those that another run adds meanwhile too.
        workers: processes on this machine.
        scheduler: address of a Dask scheduler to use instead.

    Returns:
        all rows of the CSV, as text.

    Raises:
        CellsFailed: at the end, if cells raised errors; all others are in the CSV.
    """
    rows = read_rows(path)
    left = [cell for cell in cells if not is_finished(cell, rows)]
    results = run_dask(left, scheduler) if scheduler else run_local(left, workers)
    failed = {}
    with tqdm(
        total=len(cells), initial=len(cells) - len(left), desc="cells", disable=quiet()
    ) as bar:
        for cell, found in results:
            if isinstance(found, Exception):
                failed[cell.key] = found
            else:
                add_rows(path, cell, found)
            bar.set_postfix_str(cell.key)
            bar.update()
    if failed:
        raise CellsFailed(failed, path)
    return read_rows(path)


def same_key(line: Row, cell: Cell) -> bool:
    """Return whether a row belongs to a cell of this name, with whatever settings."""
    return f"{line['scale']}/{line['task']}/{line['method']}/{line['seed']}" == cell.key
