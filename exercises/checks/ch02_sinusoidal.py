"""Checks of exercise set 2: sinusoidal codes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import frequencies, sinusoidal

ROUNDED = 1e-3  # single precision rounds the angles of far positions


def codes_at(positions: Tensor, rates: Tensor) -> Tensor:
    """Return codes (..., d) of positions (...) with the given frequencies, interleaved, float64."""
    angles = positions[..., None] * rates.double()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def reading_cases(draw: Draw) -> list[Case]:
    """Up to almost half a turn on both sides of 0, and through 0; narrow codes and wide; two."""
    some, rows, length = draw.sizes(3, 4, 9)
    dims = [2 * half for half in draw.sizes(3, 5, 9)]
    near = 0.97 * math.pi
    calls = (
        ("a few", some, dims[0], near), ("some below 0", rows, dims[1], -near),
        ("wide ones", some, 128, near), ("of width four", length, 4, -near),
        ("some about 0", length, dims[2], 0.0), ("two", 2, dims[0], 0.5 * near),
    )  # fmt: skip
    found = []
    for words, count, dim, end in calls:
        rates = frequencies(dim, 300 + 20_000 * float(draw.normal(1).abs()))
        rates = rates * (0.4 + 2 * torch.rand(1, generator=draw.generator))
        start = int(end / rates[-1]) - (count - 1 if end > 0 else 0 if end else count // 2)
        codes = codes_at(torch.arange(start, start + count), rates)
        found.append(Case(f"{words}: codes of shape {(count, dim)}", (codes,)))
    return found


def angles_of(codes: Tensor, hand: int = -1) -> Tensor:
    """Return the angles (L,) of one hand."""
    sine, cosine = codes.double().unflatten(-1, (-1, 2))[:, hand].unbind(-1)
    return torch.atan2(sine, cosine)


def steps_in(angles: Tensor) -> Tensor:
    """Return how many of its own steps a hand has made."""
    return angles / (angles[1] - angles[0])


def read_hand(codes: Tensor, hand: int = -1) -> Tensor:
    """Return the positions that one hand shows, of either sign."""
    return steps_in(angles_of(codes, hand)).round().long()


def by_sine(codes: Tensor) -> Tensor:
    """Read the sine alone."""
    return steps_in(codes[:, -2].clamp(-1, 1).asin()).round().long()


def by_cosine(codes: Tensor) -> Tensor:
    """Read the cosine alone."""
    return steps_in(codes[:, -1].clamp(-1, 1).acos()).round().long()


def turned_on(codes: Tensor) -> Tensor:
    """Return the positions with a whole turn of the slowest hand added to those below 0."""
    angles = angles_of(codes)
    turned = torch.where(angles < 0, angles + 2 * math.pi, angles)
    return (turned / (angles[1] - angles[0])).round().long()


def places(start: Tensor) -> Tensor:
    """Return the place of each token in its document, which may go on in the next row."""
    number = torch.arange(start.numel())
    first = torch.where(start.flatten(), number, 0).cummax(0).values
    return (number - first).view(start.shape)


def add_positions(x: Tensor, start: Tensor) -> Tensor:
    """Add to x (B, L, D) the codes of places in documents."""
    return x + sinusoidal(places(start), x.shape[2])


def add_cases(draw: Draw) -> list[Case]:
    """Documents within rows and across them, one for all, one for each token, and a long one."""
    batch, length = draw.sizes(2, 3, 8)
    dim, other, third = (2 * half for half in draw.sizes(3, 5, 9))

    def case(words: str, rows: int, tokens: int, width: int, share: float) -> Case:
        start = torch.rand(rows, tokens, generator=draw.generator) < share
        start[1:, 0] &= share == 1  # a row goes on with the document of the row before
        start[0, 0] = True
        start[0, tokens // 2] |= 0 < share < 1
        label = f"{words}, x {(rows, tokens, width)}"
        return Case(label, (draw.normal(rows, tokens, width), start), ROUNDED)

    return [
        case("some documents", batch, 4 * length, dim, 0.1),
        case("one document for all rows", batch, length, other, 0.0),
        case("each token a document", length, batch, third, 1.0),
        case("as many rows as tokens", batch, batch, 2 * third, 0.3),
        case("a document of thousands of tokens", 4, 1501, 4, 0.0),
    ]


def otherwise(rule: Callable[[Tensor], Tensor]) -> Answer:
    """Return a wrong answer that takes other numbers for the places."""
    return lambda x, start: x + sinusoidal(rule(start), x.shape[2])


def in_each_row(start: Tensor) -> Tensor:
    """Count anew in each row as well."""
    column = torch.arange(start.shape[1])
    return column - torch.where(start, column, 0).cummax(1).values


def table_of(draw: Draw, rates: Tensor, length: int) -> Tensor:
    """Return codes (L, d) of consecutive positions from anywhere, mixed by a matrix, float64."""
    n = len(rates)
    start = draw.integer(-40, 90)
    angles = torch.arange(start, start + length)[:, None] * rates.double()
    codes = torch.cat([angles.sin(), angles.cos()], dim=1)  # (L, d)
    q, _ = torch.linalg.qr(draw.normal(2, 2 * n, 2 * n).double())
    spread = torch.linspace(0.6, 1.8, 2 * n, dtype=torch.float64)
    found: Tensor = codes @ (q[0] * spread) @ q[1]
    return found


def drawn_rates(draw: Draw, n: int, slowest: float, fastest: float) -> Tensor:
    """Return frequencies that are apart from each other, in no order."""
    steps = torch.linspace(math.log(slowest), math.log(fastest), n)
    moved = steps + 0.2 * (torch.rand(n, generator=draw.generator) - 0.5) * (steps[1] - steps[0])
    return moved.exp()[torch.randperm(n, generator=draw.generator)]


def tables(draw: Draw) -> list[tuple[str, Tensor]]:
    """Return tables with few rows and many, of fast frequencies and of slow ones, and one pair."""
    n, more = draw.sizes(2, 2, 4)
    length = draw.integer(50, 70)
    return [
        ("fast frequencies", table_of(draw, drawn_rates(draw, n, 0.4, 3.0), 2 * n + 9)),
        ("slow frequencies", table_of(draw, drawn_rates(draw, more, 0.02, 1.0), length)),
        ("two rows more than columns", table_of(draw, drawn_rates(draw, 3, 0.7, 2.6), 8)),
        ("one pair", table_of(draw, torch.tensor([0.1 * draw.integer(3, 29)]), 12)),
    ]


def continued_cases(draw: Draw) -> list[Case]:
    """The next row, some rows on, and far on."""
    ahead = (1, draw.integer(60, 99), draw.integer(4, 9), draw.integer(2000, 3000))
    return [
        Case(f"{words}: a table of shape {tuple(table.shape)}, n = {n}", (table, n))
        for (words, table), n in zip(tables(draw), ahead, strict=True)
    ]


def step_of(table: Tensor) -> Tensor:
    """Return the matrix (d, d) that turns each row into the next: row @ step."""
    found: Tensor = torch.linalg.lstsq(table[:-1].double(), table[1:].double()).solution
    return found


def continued(table: Tensor, n: int) -> Tensor:
    """Return the row that stands n rows after the last."""
    found: Tensor = table[-1] @ torch.linalg.matrix_power(step_of(table), n)
    return found


def transposed(table: Tensor, n: int) -> Tensor:
    """Apply the matrix from the wrong side."""
    found: Tensor = torch.linalg.matrix_power(step_of(table), n) @ table[-1]
    return found


def frequencies_of(table: Tensor) -> Tensor:
    """Return the frequencies inside of a table, the fastest first."""
    angles: Tensor = torch.linalg.eigvals(step_of(table)).angle()
    return angles[angles > 0].sort(descending=True).values


def frequency_cases(draw: Draw) -> list[Case]:
    """The tables of the exercise before, and one so slow that float32 shows on the way."""
    cases = [
        Case(f"{words}: a table of shape {tuple(table.shape)}", (table,))
        for words, table in tables(draw)
    ]
    slow = table_of(draw, drawn_rates(draw, 2, 0.004, 0.06), 300)
    return [*cases, Case("slow frequencies alone: a table of shape (300, 4)", (slow,), 1e-8)]


def by_fourier(table: Tensor) -> Tensor:
    """Return the frequencies where the spectrum of the columns is largest."""
    power = torch.fft.rfft(table, dim=0).abs().sum(1)
    most: Tensor = power.topk(table.shape[1] // 2).indices.sort(descending=True).values
    return 2 * math.pi * most / len(table)


EXERCISES = (
    Exercise(
        name="positions_of",
        cases=reading_cases,
        reference=read_hand,
        tolerance=1e-6,  # positions go into hundreds of thousands
        integers=True,
        axes=("position",),
        mistakes=(
            Mistake("this reads the fastest hand, which has gone around many times",
                    lambda c: read_hand(c, 0)),
            Mistake("this reads the fastest hand, which has gone around many times",
                    lambda c: angles_of(c, 0).round().long()),
            Mistake("this reads the second slowest hand, which may have gone around",
                    lambda c: read_hand(c, -2)),
            Mistake("the sine alone is read, or its quotient with the cosine: two directions of "
                    "a hand have the same one", by_sine),
            Mistake("the cosine alone is read: it does not tell p from -p", by_cosine),
            Mistake("sine and cosine are exchanged: a hand at position 0 has the sine 0",
                    lambda c: read_hand(c.flip(-1), 0)),
            Mistake("the quotient is cut off: rounded angles lie now above and now below a whole "
                    "number, so round it", lambda c: steps_in(angles_of(c)).long()),
            Mistake("the hand is read in the other direction", lambda c: -read_hand(c)),
            Mistake("the hands have speeds of their own; you use those of the base 10000",
                    lambda c: (angles_of(c) / frequencies(c.shape[-1], 10000.0)[-1]).round()
                    .long()),
            Mistake("all of these are 0: is the angle multiplied by the step? divide by it",
                    lambda c: torch.zeros(len(c)).long()),
            Mistake("the angle is not divided by the step that the hand makes from row to row",
                    lambda c: angles_of(c).round().long()),
            Mistake("negative positions are taken for a turn more", turned_on),
            Mistake("the first position is taken for 0; the codes tell where they stand",
                    lambda c: torch.arange(len(c))),
        ),
    ),
    Exercise(
        name="add_positions",
        cases=add_cases,
        reference=add_positions,
        axes=("batch", "token", "channel"),
        mistakes=(
            Mistake("your positions come from the batch axis: x.shape[0] counts rows, and each "
                    "token of a row gets the same vector",
                    otherwise(lambda s: torch.arange(len(s))[:, None].expand_as(s))),
            Mistake("the positions run on from document to document",
                    otherwise(lambda s: torch.arange(s.numel()).view(s.shape))),
            Mistake("the positions begin anew in each row, and know nothing of documents",
                    otherwise(lambda s: torch.arange(s.shape[1]).expand_as(s))),
            Mistake("a row that does not begin a document goes on where the row before stopped; "
                    "yours begins at 0", otherwise(in_each_row)),
            Mistake("these are the numbers of the documents; places in them are wanted",
                    otherwise(lambda s: s.flatten().cumsum(0).view(s.shape) - 1)),
            Mistake("the places are one too high: a document begins with 0",
                    otherwise(lambda s: places(s) + 1)),
            Mistake("the stream runs along the rows; you go down the columns",
                    otherwise(lambda s: places(s.mT).mT)),
            Mistake("x is multiplied by sqrt(D); this exercise leaves it as it is",
                    lambda x, s: add_positions(x * x.shape[2] ** 0.5, s)),
            Mistake("the code is multiplied with x; it must be added",
                    lambda x, s: x * add_positions(x * 0, s)),
            Mistake("the code is returned without x", lambda x, s: add_positions(x * 0, s)),
            Mistake("the code is subtracted; it must be added",
                    lambda x, s: 2 * x - add_positions(x, s)),
            Mistake("these are all sines, then all cosines; this exercise uses interleaved "
                    "columns",
                    lambda x, s: x + sinusoidal(places(s), x.shape[2], layout="half")),
        ),
    ),
    Exercise(
        name="continued",
        cases=continued_cases,
        reference=continued,
        tolerance=1e-6,
        axes=("column",),
        mistakes=(
            Mistake("this is the last row of the table; the one asked for stands n rows later",
                    lambda t, n: t[-1]),
            Mistake("this is one row too early: n = 1 asks for the next row",
                    lambda t, n: continued(t, n - 1)),
            Mistake("this is one row too late: n = 1 asks for the next row",
                    lambda t, n: continued(t, n + 1)),
            Mistake("this is the next row whatever n is", lambda t, n: continued(t, 1)),
            Mistake("it is counted from the first row of the table; count from the last",
                    lambda t, n: continued(t[:1], 0) @ torch.linalg.matrix_power(step_of(t), n)),
            Mistake("the matrix is applied from the wrong side: lstsq's turns rows into rows",
                    transposed),
            Mistake("the step is applied once and multiplied by n; apply it n times",
                    lambda t, n: n * continued(t, 1)),
            Mistake("this goes on in a straight line; the rows rotate",
                    lambda t, n: t[-1] + n * (t[-1] - t[-2])),
            Mistake("the table is begun anew after its end",
                    lambda t, n: t[(len(t) - 1 + n) % len(t)]),
            Mistake("this goes back from the last row; the matrix is that of a step back",
                    lambda t, n: t[-1] @ torch.linalg.matrix_power(step_of(t).inverse(), n)),
        ),
    ),
    Exercise(
        name="frequencies_of",
        cases=frequency_cases,
        reference=frequencies_of,
        tolerance=1e-6,
        axes=("pair",),
        mistakes=(
            Mistake("each frequency comes with both of its signs; return the positive ones",
                    lambda t: torch.linalg.eigvals(step_of(t)).angle().sort(descending=True)
                    .values),
            Mistake("the slowest comes first; begin with the fastest",
                    lambda t: frequencies_of(t).flip(0)),
            Mistake("these are turns per position; return radians",
                    lambda t: frequencies_of(t) / (2 * math.pi)),
            Mistake("these are wavelengths; return frequencies",
                    lambda t: 2 * math.pi / frequencies_of(t)),
            Mistake("these are the real parts of the eigenvalues, the cosines of the frequencies",
                    lambda t: frequencies_of(t).cos()),
            Mistake("these are the imaginary parts of the eigenvalues, the sines of the "
                    "frequencies", lambda t: frequencies_of(t).sin()),
            Mistake("these are the sizes of the eigenvalues, which are all 1; the frequencies are "
                    "their angles", lambda t: torch.ones(t.shape[1] // 2)),
            Mistake("these are the frequencies that the chapter's formula gives; this table has "
                    "others", lambda t: frequencies(t.shape[1], 10000.0)),
            Mistake("this is read from a Fourier transform, whose frequencies are multiples of "
                    "2 pi / L", by_fourier),
            Mistake("the frequencies are rounded to two places",
                    lambda t: (100 * frequencies_of(t)).round() / 100),
        ),
    ),
)  # fmt: skip
