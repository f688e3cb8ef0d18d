"""Checks of exercise set 3: learned positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.resizing import interpolate_grid, interpolate_table, sample_table

Grid = tuple[int, int]


def embed(tokens: Tensor, positions: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """Return the rows of the tokens plus the rows of their positions."""
    return words[tokens] + places[positions]


def embed_cases(draw: Draw) -> list[Case]:
    """Positions shared by a batch, different ones after left padding, and in no order."""
    batch, length, dim = draw.sizes(3, 3, 8)
    rows = draw.integer(1030, 1100)  # both tables are read to their ends, or nearly
    words, places = draw.normal(rows, dim), draw.normal(rows + 1, dim)
    shared = draw.places(length)
    padded = (torch.arange(length) - torch.arange(batch)[:, None]).clamp(min=0)
    tokens = [draw.places(batch, length, high=rows - 1) for _ in range(3)]
    any_order = draw.places(batch, length, high=rows - 20)
    tokens[0][0, 0] = tokens[2][1, 1] = any_order[-1, 0] = rows - 1
    tokens[2][draw.integer(0, batch - 1), draw.integer(2, length - 1)] = 0
    shape = (batch, length)
    return [
        Case(f"tokens {shape}, positions {shared.tolist()}", (tokens[0], shared, words, places)),
        Case(f"tokens {shape}, positions max(0, column - row)", (tokens[1], padded, words, places)),
        Case(f"tokens {shape}, one of them 0, positions of the same shape in any order",
             (tokens[2], any_order, words, places)),
        *(Case(f"tokens {size}, positions of the same shape",
               (draw.places(*size, high=rows - 1), draw.places(*size, high=rows - 20),
                draw.normal(rows, wide), draw.normal(rows + 1, wide)))
          for size, wide in (((1, 16), 32), ((4, 4), 4), ((3, 1), 5), ((1, 1), 1))),
    ]  # fmt: skip


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


def counted_back(positions: Tensor, length: int) -> Tensor:
    """Return positions that rise by one to the last, not below 0."""
    return (positions[..., -1:] - (length - 1) + torch.arange(length)).clamp(min=0)


def unless_as_many(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Resize unless the number of patches stays."""
    return table if old[0] * old[1] == new[0] * new[1] else resize_grid(table, old, new)


EXERCISES = (
    Exercise(
        name="embed",
        cases=embed_cases,
        reference=embed,
        axes=("batch", "token", "channel"),
        mistakes=(
            Mistake("you count positions from 0; use those given: a cache or padding moves them",
                    lambda t, p, w, e: w[t] + e[: t.shape[1]]),
            Mistake("your positions come from the batch axis: each sequence gets one vector",
                    lambda t, p, w, e: w[t] + e[: t.shape[0], None]),
            Mistake("the token numbers are used to read the table of positions",
                    lambda t, p, w, e: w[t] + e[t]),
            Mistake("the positions are used to read the table of tokens",
                    lambda t, p, w, e: w[p] + e[p] + 0 * w[t]),
            Mistake("the position is missing", lambda t, p, w, e: w[t]),
            Mistake("the tokens are missing", lambda t, p, w, e: e[p].expand(*t.shape, -1)),
            Mistake("the sum is wanted, not the mean", lambda t, p, w, e: (w[t] + e[p]) / 2),
            Mistake("the sum is wanted, not the product", lambda t, p, w, e: w[t] * e[p]),
            Mistake("the two tables are exchanged: tokens read token_table",
                    lambda t, p, w, e: w[p] + e[t]),
            Mistake("the positions are sorted; use each where it stands",
                    lambda t, p, w, e: w[t] + e[p.sort(-1).values]),
            Mistake("the positions are counted back from the last one; use those given",
                    lambda t, p, w, e: w[t] + e[counted_back(p, t.shape[1])]),
            Mistake("the positions are counted on from the first one; use those given",
                    lambda t, p, w, e: w[t] + e[p.reshape(-1)[0] + torch.arange(t.shape[1])]),
            Mistake("the row of token 0 is left out; it is a token like the others",
                    lambda t, p, w, e: w[t] * (t != 0)[..., None] + e[p]),
            Mistake("the row of position 0 is left out; it is a position like the others",
                    lambda t, p, w, e: w[t] + e[p] * (p != 0)[..., None]),
            Mistake("the tokens are multiplied by sqrt(D); this exercise leaves them",
                    lambda t, p, w, e: w[t] * w.shape[1] ** 0.5 + e[p]),
            Mistake("your positions are one too high", lambda t, p, w, e: w[t] + e[p + 1]),
            Mistake("your positions are one too low", lambda t, p, w, e: w[t] + e[p - 1]),
            Mistake("every sequence has the positions of the first one",
                    lambda t, p, w, e: w[t] + e[p if p.ndim == 1 else p[0]]),
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
