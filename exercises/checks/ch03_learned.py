"""Checks of exercise set 3: learned positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.resizing import interpolate_grid, interpolate_table, sample_table

Grid = tuple[int, int]
Pair = tuple[Tensor, Tensor]


def rows_used(x: Tensor, tokens: Tensor, words: Tensor, places: Tensor, sides: Tensor) -> Pair:
    """Return which row of the positions and which of the segments each token got."""
    return nearest(x - words[tokens], places, sides)


def nearest(left: Tensor, places: Tensor, sides: Tensor) -> Pair:
    """Return the two rows whose sum comes nearest to what is left."""
    sums = (places[:, None] + sides).flatten(0, 1)  # (N S, D)
    number = torch.cdist(left.double(), sums.double()).argmin(-1)
    return number // len(sides), number % len(sides)


def rows_cases(draw: Draw) -> list[Case]:
    """Rows as large as those of the tokens and far smaller; one, two and three segments."""
    batch, length, dim, more = draw.sizes(4, 4, 9)
    n, v = draw.integer(30, 50), draw.integer(51, 70)

    def case(words: str, shape: tuple[int, int], d: int, s: int, size: float) -> Case:
        tables = draw.normal(v, d), size * draw.normal(n, d), size * draw.normal(s, d)
        tokens, places, sides = (
            torch.randint(most, shape, generator=draw.generator) for most in (v, n, s)
        )
        tokens[0, 0], places[0, 0], sides[0, 0] = v - 1, n - 1, s - 1
        x = tables[0][tokens] + tables[1][places] + tables[2][sides]
        return Case(f"{words}, tokens {shape}, {s} segments", (x, tokens, *tables))

    return [
        case("rows of one size", (batch, length), dim + 4, 2, 1.0),
        case("small rows", (length, batch), 32, 2, 0.02),
        case("rows of one size", (1, more), 16, 3, 1.0),
        case("large rows", (batch, batch), 24, 1, 5.0),
        case("a single token", (1, 1), 12, 2, 0.1),
    ]


def by_product(x: Tensor, tokens: Tensor, words: Tensor, places: Tensor, sides: Tensor) -> Pair:
    """Take the sum with the largest dot product."""
    sums = (places[:, None] + sides).flatten(0, 1)
    number = ((x - words[tokens]) @ sums.T).argmax(-1)
    return number // len(sides), number % len(sides)


def interpolate_cases(draw: Draw) -> list[Case]:
    """Stretch, shrink, leave alone, keep the ends alone, and begin with two rows."""
    rows, dim, more = draw.sizes(3, 4, 9)
    sizes = (
        ("stretched", rows, 3 * rows),
        ("squeezed", rows + more, rows),
        ("squeezed", 3 * rows, rows + 2),  # no step is a whole number
        ("as long as before", rows, rows),
        ("of which the ends stay", rows + 1, 2),
        ("of two rows", 2, rows + more),
    )
    return [
        Case(f"a table {words}: {(old, dim)} to {new} rows", (draw.normal(old, dim), new))
        for words, old, new in sizes
    ]


def resampled(table: Tensor, length: int, mode: str, **options: bool) -> Tensor:
    """Return the table through PyTorch's resampling."""
    return F.interpolate(table.T[None], length, mode=mode, **options)[0].T


def cycled(table: Tensor, length: int) -> Tensor:
    """Return rows from the start again where the table ends."""
    return table[torch.arange(length) % len(table)]


def resize_grid(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize the rows of the patches; keep the class token's row."""
    return torch.cat([table[:1], interpolate_grid(table[1:], old, new, "bilinear")])


def grid_cases(draw: Draw) -> list[Case]:
    """Grids higher than wide and wider than high, squares, and a single row of patches."""
    a, b, more, dim = draw.sizes(4, 3, 8)
    h, w = max(a, b), min(a, b)
    return [
        Case(
            f"a grid {old} to {new}, {dim} channels",
            (draw.normal(1 + old[0] * old[1], dim), old, new),
        )
        for old, new in (
            ((h, w), (h + more, w + 1)),
            ((w, h), (w - 1, h + more)),
            ((h, w), (w, h)),
            ((h, h), (h, h)),
            ((w, w), (2 * w, 2 * w)),
            ((1, h), (2, w)),
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


def divided(table: Tensor, length: int) -> Tensor:
    """Return the places to read, whole where they should be."""
    return torch.arange(length) * (len(table) - 1) / (length - 1)


def spaced(table: Tensor, length: int) -> Tensor:
    """Return the same from torch.linspace, which may fall short of a whole number."""
    return torch.linspace(0, len(table) - 1, length)


WAYS = (divided, spaced)


def swapped_shares(table: Tensor, places: Tensor) -> Tensor:
    """Mix neighbours with their shares exchanged."""
    lower = places.floor().long()
    upper = (lower + 1).clamp(max=len(table) - 1)
    share = (places - lower).unsqueeze(-1).to(table.dtype)
    return share * table[lower] + (1 - share) * table[upper]


def halved(table: Tensor, places: Tensor, up: bool) -> Tensor:
    """Mix neighbours in equal parts: the row above a whole place with the next, or with itself."""
    lower = places.floor().long()
    upper = places.ceil().long() if up else (lower + 1).clamp(max=len(table) - 1)
    return (table[lower] + table[upper]) / 2


def bent(table: Tensor, places: Tensor) -> Tensor:
    """Mix neighbours with shares along a curve."""
    share = places.frac()
    return sample_table(table, places.floor() + share**2 * (3 - 2 * share))


def unless_as_many(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize unless the number of patches stays."""
    return table if old[0] * old[1] == new[0] * new[1] else resize_grid(table, old, new)


EXERCISES = (
    Exercise(
        name="rows_used",
        cases=rows_cases,
        reference=rows_used,
        integers=True,
        axes=("batch", "token"),
        mistakes=(
            Mistake("the two are exchanged: positions first, then segments",
                    lambda *a: rows_used(*a)[::-1]),
            Mistake("the tokens' rows are still in what you compare: subtract them first",
                    lambda x, t, w, p, s: nearest(x, p, s)),
            Mistake("the segment is forgotten: what is left is the sum of two rows",
                    lambda x, t, w, p, s: nearest(x - w[t], p, 0 * s)),
            Mistake("the first segment is taken for all; find each token's own",
                    lambda x, t, w, p, s: (
                        nearest(x - w[t], p, s[:1])[0], torch.zeros_like(t))),
            Mistake("the positions are counted from 0 in each row; find those that were used",
                    lambda x, t, w, p, s: (
                        torch.arange(t.shape[1]).expand_as(t), rows_used(x, t, w, p, s)[1])),
            Mistake("the sum with the largest dot product need not be the nearest", by_product),
            Mistake("the numbers are counted from 1; the first row of a table is row 0",
                    lambda *a: tuple(rows + 1 for rows in rows_used(*a))),
            Mistake("these are the numbers of the tokens", lambda x, t, w, p, s: (t, t)),
        ),
    ),
    Exercise(
        name="interpolate",
        cases=interpolate_cases,
        reference=interpolate_table,
        axes=("row", "channel"),
        mistakes=(
            Mistake("the ends move: the last position must meet the last row. You scale by "
                    "N/length with half-pixel centres (align_corners=False)",
                    lambda t, n: resampled(t, n, "linear")),
            Mistake("rows are repeated or left out; mix the two neighbours",
                    lambda t, n: resampled(t, n, "nearest")),
            Mistake("rows are repeated or left out; mix the two neighbours",
                    lambda t, n: t[torch.linspace(0, len(t) - 1, n).round().long()]),
            *(Mistake("you take the lower neighbour alone; mix it with the upper one",
                      lambda t, n, even=even: t[even(t, n).long()]) for even in WAYS),
            Mistake("the table is repeated past its end; stretch it", cycled),
            Mistake("the last row is repeated past the end; stretch the table",
                    lambda t, n: t[torch.arange(n).clamp(max=len(t) - 1)]),
            Mistake("positions are scaled by N/length: the last position must meet the last row, "
                    "so the step is (N - 1)/(length - 1)",
                    lambda t, n: sample_table(t, torch.arange(n).double() * len(t) / n)),
            Mistake("the step is N/(length - 1), so the last row comes too early; it must be "
                    "(N - 1)/(length - 1)",
                    lambda t, n: sample_table(
                        t, (torch.arange(n).double() * len(t) / (n - 1)).clamp(max=len(t) - 1))),
            Mistake("the step is (N - 1)/length, so the last row is never reached",
                    lambda t, n: sample_table(t, torch.arange(n).double() * (len(t) - 1) / n)),
            *(Mistake("the shares of the two neighbours are swapped",
                      lambda t, n, even=even: swapped_shares(t, even(t, n))) for even in WAYS),
            Mistake("the table is upside down", lambda t, n: interpolate_table(t, n).flip(0)),
            *(Mistake("the two neighbours are averaged half and half; weigh them by distance",
                      lambda t, n, even=even, up=up: halved(t, even(t, n), up))
              for even in WAYS for up in (False, True)),
            Mistake("stretching is right; where the table shrinks you pick rows, or the lower "
                    "neighbour alone: mix there, too",
                    lambda t, n: interpolate_table(t, n) if n >= len(t) else
                    t[divided(t, n).long()]),
            Mistake("stretching is right; where the table shrinks you keep the first rows: "
                    "squeeze it", lambda t, n: interpolate_table(t, n) if n >= len(t) else t[:n]),
            Mistake("the shares are bent; they must follow the distance in a straight line",
                    lambda t, n: bent(t, torch.linspace(0, len(t) - 1, n).double())),
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
            Mistake("the reshape mixes channels and places: transpose to (D, places) first",
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
            Mistake("the patches begin at row 1; row 0 is the class token's",
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
)  # fmt: skip
