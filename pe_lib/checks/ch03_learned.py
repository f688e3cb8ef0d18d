"""Checks of exercise set 3: learned positions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_lib.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.learned import interpolate_grid, interpolate_table, sample_table


def embed(tokens: Tensor, positions: Tensor, words: Tensor, places: Tensor) -> Tensor:
    """Return the rows of the tokens plus the rows of their positions."""
    return words[tokens] + places[positions]


def embed_cases(draw: Draw) -> list[Case]:
    """Positions shared by a batch, and different ones after left padding."""
    batch, length, dim = draw.sizes(3, 3, 8)
    words, places = draw.normal(50, dim), draw.normal(40, dim)
    start = draw.integer(5, 20)
    shared = torch.arange(start, start + length)
    padded = (torch.arange(length) - torch.arange(batch)[:, None]).clamp(min=0)
    return [
        Case(f"positions from {start}",
             (draw.places(batch, length, high=39), shared, words, places)),
        Case(f"positions of shape {(batch, length)}",
             (draw.places(batch, length, high=39), padded, words, places)),
    ]  # fmt: skip


def interpolate_cases(draw: Draw) -> list[Case]:
    """Stretch, shrink, and leave alone."""
    rows, dim, more = draw.sizes(3, 4, 9)
    return [
        Case("a longer table", (draw.normal(rows, dim), rows + more)),
        Case("a shorter table", (draw.normal(rows + more, dim), rows)),
        Case("the same length", (draw.normal(rows, dim), rows)),
    ]


def resampled(table: Tensor, length: int, mode: str, **options: bool) -> Tensor:
    """Return the table through PyTorch's resampling."""
    return F.interpolate(table.T[None], length, mode=mode, **options)[0].T


def cycled(table: Tensor, length: int) -> Tensor:
    """Return rows from the start again where the table ends."""
    return table[torch.arange(length) % len(table)]


def resize_grid(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize the rows of the patches; keep the class token's row."""
    return torch.cat([table[:1], interpolate_grid(table[1:], old, new, "bilinear")])


def grid_cases(draw: Draw) -> list[Case]:
    """Grids that are no squares."""
    h, w, more, dim = draw.sizes(4, 3, 8)
    old, larger, smaller = (h, w), (h + more, w + 1), (max(2, h - 1), w + more)
    return [
        Case("a larger grid", (draw.normal(1 + h * w, dim), old, larger)),
        Case("a grid of another shape", (draw.normal(1 + h * w, dim), old, smaller)),
    ]


def grid_by(table: Tensor, old: tuple[int, int], new: tuple[int, int], **options: object) -> Tensor:
    """Resize with other options of PyTorch's resampling."""
    image = table[1:].T.reshape(1, -1, *old)
    return torch.cat([table[:1], F.interpolate(image, new, **options)[0].flatten(1).T])  # type: ignore[arg-type]


def scrambled(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize after a reshape that mixes channels and places."""
    image = F.interpolate(table[1:].reshape(1, -1, *old), new, mode="bilinear")
    return torch.cat([table[:1], image.reshape(table.shape[1], -1).T])


def scrambled_back(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize, and mix channels and places on the way back."""
    image = F.interpolate(table[1:].T.reshape(1, -1, *old), new, mode="bilinear")
    return torch.cat([table[:1], image.reshape(-1, table.shape[1])])


def by_columns(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize a grid that is read column by column."""
    image = table[1:].T.reshape(1, -1, *old[::-1]).mT
    return torch.cat([table[:1], F.interpolate(image, new, mode="bilinear")[0].flatten(1).T])


def as_a_line(table: Tensor, old: tuple[int, int], new: tuple[int, int]) -> Tensor:
    """Resize as if the patches stood in one row."""
    return torch.cat([table[:1], resampled(table[1:], new[0] * new[1], "linear")])


EXERCISES = (
    Exercise(
        name="embed",
        asks="token rows plus position rows",
        cases=embed_cases,
        reference=embed,
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
        asks="a table of another length whose ends stay where they are",
        cases=interpolate_cases,
        reference=interpolate_table,
        mistakes=(
            Mistake("the ends move: the last position must meet the last row. You scale by "
                    "N/length with half-pixel centres (align_corners=False)",
                    lambda t, n: resampled(t, n, "linear")),
            Mistake("rows are repeated or left out; mix the two neighbours",
                    lambda t, n: resampled(t, n, "nearest")),
            Mistake("rows are repeated or left out; mix the two neighbours",
                    lambda t, n: t[torch.linspace(0, len(t) - 1, n).round().long()]),
            Mistake("you take the lower neighbour alone; mix it with the upper one",
                    lambda t, n: t[torch.linspace(0, len(t) - 1, n).double().floor().long()]),
            Mistake("the table is repeated past its end; stretch it", cycled),
            Mistake("the last row is repeated past the end; stretch the table",
                    lambda t, n: t[torch.arange(n).clamp(max=len(t) - 1)]),
            Mistake("positions are scaled by N/length: the last position must meet the last row, "
                    "so the step is (N - 1)/(length - 1)",
                    lambda t, n: sample_table(t, torch.arange(n).double() * len(t) / n)),
            Mistake("the step is (N - 1)/length, so the last row is never reached",
                    lambda t, n: sample_table(t, torch.arange(n).double() * (len(t) - 1) / n)),
            Mistake("the shares of the two neighbours are swapped",
                    lambda t, n: swapped_shares(t, torch.linspace(0, len(t) - 1, n).double())),
            Mistake("the table is upside down", lambda t, n: interpolate_table(t, n).flip(0)),
            Mistake("the two neighbours are averaged half and half; weigh them by distance",
                    lambda t, n: halved(t, torch.linspace(0, len(t) - 1, n).double())),
        ),
    ),
    Exercise(
        name="resize_grid",
        asks="a table for a grid of patches, resized, with the class token in front",
        cases=grid_cases,
        reference=resize_grid,
        mistakes=(
            Mistake("the reshape mixes channels and places: transpose to (D, places) first",
                    scrambled),
            Mistake("the reshape on the way back mixes channels and places: flatten, then "
                    "transpose", scrambled_back),
            Mistake("rows and columns are exchanged: patches are numbered row by row", by_columns),
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


def swapped_shares(table: Tensor, places: Tensor) -> Tensor:
    """Mix neighbours with their shares exchanged."""
    lower = places.floor().long()
    upper = (lower + 1).clamp(max=len(table) - 1)
    share = (places - lower).unsqueeze(-1).to(table.dtype)
    return share * table[lower] + (1 - share) * table[upper]


def halved(table: Tensor, places: Tensor) -> Tensor:
    """Mix neighbours in equal parts."""
    lower = places.floor().long()
    return (table[lower] + table[(lower + 1).clamp(max=len(table) - 1)]) / 2
