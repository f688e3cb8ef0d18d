"""Checks of exercise set 3: learned positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake
from pe_lib.recent.resizing import interpolate_grid

Grid = tuple[int, int]
Pair = tuple[Tensor, Tensor]


def rows_used(x: Tensor, tokens: Tensor, words: Tensor, places: Tensor, sides: Tensor) -> Pair:
    """Return how often each row of the positions and of the segments was used."""
    return counted(x - words[tokens].sum(1), places, sides)


def counted(left: Tensor, places: Tensor, sides: Tensor, power: int = 2) -> Pair:
    """Return products with the rows, divided by a power of their lengths and rounded."""
    places, sides = (
        (left @ rows.T / rows.norm(dim=1) ** power).round().long() for rows in (places, sides)
    )
    return places, sides


def rows_cases(draw: Draw) -> list[Case]:
    """Rows as long as those of the tokens and far shorter; one, two and three segments."""
    batch, length, more, few = draw.sizes(4, 4, 9)
    v = draw.integer(51, 70)

    def case(words: str, shape: tuple[int, int], n: int, d: int, s: int, size: float) -> Case:
        turned = torch.linalg.qr(draw.normal(d, d).double())[0][: n + s]
        rows = size * (1 + torch.rand(n + s, 1, generator=draw.generator)) * turned
        tables = draw.normal(v, d).double(), rows[:n].clone(), rows[n:].clone()
        drawn = [torch.randint(m, shape, generator=draw.generator) for m in (v, n, s)]
        x = torch.stack([table[row] for table, row in zip(tables, drawn, strict=True)])
        sizes = f", tokens {shape}, segments {s}"
        return Case(words, (x.sum((0, 2)), drawn[0], *tables), drawn=sizes)

    return [
        case("some texts", (batch, 20), 30, 40, 2, 1.0),
        case("short rows", (length, batch), more, 32, 2, 0.02),
        case("one text", (1, 3 * more), more + few, more + few + 4, 3, 2.0),
        case("long texts, long rows", (batch, 90), 12, 24, 1, 5.0),
        case("a single token", (1, 1), few, 16, 2, 0.1),
    ]


def unstretched(table: Tensor, room: float = 1e-9) -> Tensor:
    """Return the shortest table, float64, that gives this one when it is stretched."""
    tried = (solved(tents(table, rows), table, room) for rows in range(2, len(table) + 1))
    return next(found for found in tried if found is not None)


def tents(table: Tensor, rows: int, step: float | None = None) -> Tensor:
    """Return the shares (length, rows) of the rows before in the rows of a stretched table."""
    place = torch.arange(len(table)).double() * (step or (rows - 1) / (len(table) - 1))
    return (1 - (place.clamp(max=rows - 1)[:, None] - torch.arange(rows)).abs()).clamp(min=0)


def solved(shares: Tensor, table: Tensor, room: float = torch.inf) -> Tensor | None:
    """Return the rows of which the shares make the table, if they do."""
    found: Tensor = torch.linalg.pinv(shares) @ table
    return found if (shares @ found - table).abs().max() < room else None


def stretched_cases(draw: Draw) -> list[Case]:
    """Stretched a little and much, by whole steps, left alone; of two rows, and almost of fewer."""
    rows, dim, more = draw.sizes(3, 4, 9)
    sizes = (
        ("stretched", rows, 2 * rows + 1), ("of many rows", 20 + more, 49),
        ("as before", rows, rows), ("stretched by whole steps", rows, 3 * rows - 2),
        ("of two rows", 2, rows + more),
    )  # fmt: skip
    found = []
    for words, old, new in sizes:
        table = draw.normal(old, dim).double()
        stretched = tents(table.new_zeros(new, 1), old) @ table
        found.append(Case(f"a table {words}", (stretched,), drawn=f": {(new, dim)}"))
    old, new = 2 * rows - 1, 5 * rows  # every other row is almost the mean of its neighbours
    table = tents(torch.zeros(old, 1), rows) @ draw.normal(rows, dim).double()
    stretched = tents(torch.zeros(new, 1), old) @ (table + 1e-4 * draw.normal(old, dim))
    words = "a table that a shorter one almost gives"
    return [*found, Case(words, (stretched,), drawn=f": {(new, dim)}")]


def resampled(table: Tensor, length: int, mode: str, **options: bool) -> Tensor:
    """Return the table through PyTorch's resampling."""
    return F.interpolate(table.T[None], length, mode=mode, **options)[0].T


def resize_grid(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize the rows of the patches; keep the class token's row."""
    return torch.cat([table[:1], interpolate_grid(table[1:], old, new, "bilinear")])


def grid_cases(draw: Draw) -> list[Case]:
    """Grids higher than wide and wider than high, squares, and a single row of patches."""
    a, b, more, dim = draw.sizes(4, 3, 8)
    h, w = max(a, b), min(a, b)
    return [
        Case(
            words,
            (draw.normal(1 + old[0] * old[1], dim), old, new),
            drawn=f": {old} to {new}, {dim} channels",
        )
        for words, old, new in (
            ("a high grid that grows", (h, w), (h + more, w + 1)),
            ("a wide grid that gets lower and wider", (w, h), (w - 1, h + more)),
            ("a grid that is turned on its side", (h, w), (w, h)),
            ("a square that stays as it is", (h, h), (h, h)),
            ("a square of twice the size", (w, w), (2 * w, 2 * w)),
            ("a single row of patches", (1, h), (2, w)),
        )
    ]


def grid_by(table: Tensor, old: Grid, new: Grid, **options: object) -> Tensor:
    """Resize with other options of PyTorch's resampling."""
    image = table[1:].T.reshape(1, -1, *old)
    return torch.cat([table[:1], F.interpolate(image, new, **options)[0].flatten(1).T])  # type: ignore[arg-type]


def scrambled(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize after a reshape that mixes channels and places."""
    image = F.interpolate(table[1:].reshape(1, -1, *old), new, mode="bilinear")
    return torch.cat([table[:1], image.reshape(table.shape[1], -1).T])


def scrambled_back(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize, and mix channels and places on the way back."""
    image = F.interpolate(table[1:].T.reshape(1, -1, *old), new, mode="bilinear")
    return torch.cat([table[:1], image.reshape(-1, table.shape[1])])


def exchanged(
    table: Tensor, old: Grid, new: Grid, *, read: str = "", size: bool = False,
    write: bool = False,
) -> Tensor:  # fmt: skip
    """Resize with rows and columns exchanged while reading, in the size, or while writing."""
    image = table[1:].T.reshape(1, -1, *(old if read in ("", "transposed") else old[::-1]))
    image = image.mT if read in ("transposed", "columns") else image
    image = F.interpolate(image, new[::-1] if size else new, mode="bilinear")
    return torch.cat([table[:1], (image.mT if write else image)[0].flatten(1).T])


def as_a_line(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize as if the patches stood in one row."""
    return torch.cat([table[:1], resampled(table[1:], new[0] * new[1], "linear")])


def unless_as_many(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize unless the number of patches stays."""
    return table if old[0] * old[1] == new[0] * new[1] else resize_grid(table, old, new)


EXERCISES = (
    Exercise(
        name="rows_used",
        cases=rows_cases,
        reference=rows_used,
        integers=True,
        axes=("text", "row"),
        mistakes=(
            Mistake("the tokens' rows are still in the sum: subtract them first",
                    lambda x, t, w, p, s: counted(x, p, s)),
            Mistake("each token of a text added its row; you subtract their mean",
                    lambda x, t, w, p, s: counted(x - w[t].mean(1), p, s)),
            Mistake("a product with a row is how often it came, times the square of its length; "
                    "the square is still there",
                    lambda x, t, w, p, s: counted(x - w[t].sum(1), p, s, 0)),
            Mistake("divide by the square of a row's length; yours is divided by the length",
                    lambda x, t, w, p, s: counted(x - w[t].sum(1), p, s, 1)),
            Mistake("whether a row was used is not enough; it may have come several times",
                    lambda *a: tuple(counts.clamp(max=1) for counts in rows_used(*a))),
            Mistake("the positions are taken to be 0, 1, 2, …; find those that were used",
                    lambda x, t, w, p, s: (
                        (torch.arange(len(p)) < t.shape[1]).long().expand(len(t), -1),
                        rows_used(x, t, w, p, s)[1])),
        ),
    ),
    Exercise(
        name="resize_grid",
        cases=grid_cases,
        reference=resize_grid,
        axes=("row", "channel"),
        mistakes=(
            Mistake("this is the listing, unchanged",
                    lambda t, o, n: torch.cat([t[:1], scrambled(t.roll(1, 0), o, n)[1:]])),
            Mistake("channels and places come out mixed: which numbers does the reshape lay "
                    "side by side?",
                    scrambled),
            Mistake("the reshape on the way back mixes channels and places: flatten, then "
                    "transpose", scrambled_back),
            *(Mistake("rows and columns are exchanged where the grid is read: patches are "
                      "numbered row by row, and `old` is (rows, columns)",
                      lambda t, o, n, read=read: exchanged(t, o, n, read=read))
              for read in ("columns", "swapped", "transposed")),
            Mistake("rows and columns are exchanged in the new size: `new` is (rows, columns)",
                    lambda t, o, n: exchanged(t, o, n, size=True)),
            Mistake("rows and columns are exchanged in the old and the new size: both are (rows, "
                    "columns)", lambda t, o, n: exchanged(t, o, n, read="swapped", size=True)),
            Mistake("the new patches come out column by column: rows and columns are exchanged "
                    "on the way back", lambda t, o, n: exchanged(t, o, n, write=True)),
            Mistake("all patches come out one place off: which rows are patches?",
                    lambda t, o, n: torch.cat([t[:1], resize_grid(t.roll(1, 0), o, n)[1:]])),
            Mistake("a table with as many rows is returned as it is; the grid may have another "
                    "shape", unless_as_many),
            Mistake("antialias=True blurs a grid that shrinks: legal, but this exercise asks for "
                    "plain bilinear",
                    lambda t, o, n: grid_by(t, o, n, mode="bilinear", antialias=True)),
            Mistake("the patches are resized as one line, not as a grid", as_a_line),
            Mistake("the class token's row must stay first; yours is last",
                    lambda t, o, n: resize_grid(t, o, n).roll(-1, 0)),
            Mistake("the class token's row must stay what it was",
                    lambda t, o, n: torch.cat([t[:1] * 0, resize_grid(t, o, n)[1:]])),
            Mistake("the class token's row must stay what it was",
                    lambda t, o, n: torch.cat([t.mean(0, True), resize_grid(t, o, n)[1:]])),
            Mistake("this is the nearest row; mix the neighbours (bilinear)",
                    lambda t, o, n: grid_by(t, o, n, mode="nearest")),
            Mistake("this is bicubic: legal, but this exercise asks for bilinear",
                    lambda t, o, n: grid_by(t, o, n, mode="bicubic")),
            Mistake("the corners are aligned: legal, but this exercise asks for "
                    "align_corners=False", lambda t, o, n: grid_by(
                        t, o, n, mode="bilinear", align_corners=True)),
            Mistake("this is bicubic with aligned corners; this exercise asks for bilinear with "
                    "align_corners=False", lambda t, o, n: grid_by(
                        t, o, n, mode="bicubic", align_corners=True)),
            Mistake("the class token is taken to be the last row; it is the first",
                    lambda t, o, n: torch.cat([t[-1:], resize_grid(t.roll(1, 0), o, n)[1:]])),
        ),
    ),
    Exercise(
        name="unstretched",
        cases=stretched_cases,
        reference=unstretched,
        tolerance=1e-6,
        axes=("row", "channel"),
        mistakes=(
            Mistake("these are rows of the table as it is; most of them are mixtures",
                    lambda t: t[torch.linspace(0, len(t) - 1, len(unstretched(t))).round().long()]),
            Mistake("these are the first rows of the table as it is; most of them are mixtures",
                    lambda t: t[:len(unstretched(t))]),
            Mistake("this mixes the mixtures once more; find what was mixed",
                    lambda t: tents(unstretched(t), len(t)) @ t),
            Mistake("the shares are applied backwards; find the rows of which they make the table",
                    lambda t: tents(t, len(unstretched(t))).T @ t),
            Mistake("positions are scaled by N/length: the last position met the last row, so the "
                    "step is (N - 1)/(length - 1)", lambda t: solved(
                        tents(t, (n := len(unstretched(t))), n / len(t)), t)),
            Mistake("the table is taken as repeated past its end; it was stretched",
                    lambda t: solved(torch.eye(n := len(unstretched(t))).double()[
                        torch.arange(len(t)) % n], t)),
            Mistake("a shorter table fits nearly; it must fit to within 1e-9",
                    lambda t: unstretched(t, room=1e-2)),
            Mistake("the table is upside down", lambda t: unstretched(t).flip(0)),
        ),
    ),
)  # fmt: skip
