"""Checks of exercise set 2: sinusoidal codes."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import frequencies


def codes_at(positions: Tensor, inv_freq: Tensor, first: Tensor | float = 0.0) -> Tensor:
    """Return codes (..., d) of positions (...) by the hands' steps and angles at 0, float64."""
    angles = first + positions[..., None] * inv_freq.double()
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)


def reading_cases(draw: Draw) -> list[Case]:
    """Up to almost half a turn on both sides of 0, and through 0; narrow codes and wide; two."""
    some, rows, length = draw.sizes(3, 4, 9)
    dims = [2 * half for half in draw.sizes(3, 5, 9)]
    near, most = 0.97 * math.pi, draw.integer(40, 90)
    calls = (
        ("a few codes", some, dims[0], near, 3), ("some codes below 0", rows, dims[1], -near, 4),
        ("wide codes", some, 40, near, 2), ("codes of width 4", length, 4, -near, most),
        ("some codes about 0", length, dims[2], 0.0, 3), ("two codes", 2, dims[0], 0.5 * near, 2),
    )  # fmt: skip
    found = []
    for words, count, dim, end, slower in calls:  # whole rounds, so that no fast hand tells enough
        inv_freq = 2 * math.pi / (draw.integer(5, 9) * slower ** torch.arange(dim // 2)).double()
        start = int(end / inv_freq[-1]) - (count - 1 if end > 0 else 0 if end else count // 2)
        codes = codes_at(torch.arange(start, start + count), inv_freq)
        found.append(Case(words, (codes,), drawn=f": shape {(count, dim)}"))
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


CUT = (lambda codes: steps_in(angles_of(codes)).long(),
       lambda codes: steps_in(angles_of(codes)).floor().long())  # fmt: skip


def laid_out(codes: Tensor, halves: bool) -> Tensor:
    """Return interleaved codes as they are, or with all sines first."""
    return codes.unflatten(-1, (-1, 2)).mT.flatten(-2) if halves else codes


def hands_of(x: Tensor, y: Tensor, halves: bool | None = None) -> tuple[Tensor, Tensor, bool]:
    """Return the hands' steps (up to whole turns) and first angles; whether all sines are first."""
    codes = (y - x)[:2, 0]
    pairs = codes.unflatten(-1, (-1, 2))
    if halves is None:  # sine and cosine of a hand have together the length 1
        halves = bool((pairs.norm(dim=-1) - 1).abs().max() > 1e-6)
    pairs = codes.unflatten(-1, (2, -1)).mT if halves else pairs
    first, second = torch.atan2(pairs[..., 0], pairs[..., 1])
    return second - first, first, halves


def add_positions(
    x: Tensor, y: Tensor, places: Tensor | None = None, halves: bool | None = None
) -> Tensor:
    """Add codes to x (B, L, D) that go on from the first in y, for 0 ... L - 1 or `places`."""
    step, first, halves = hands_of(x, y, halves)
    places = torch.arange(x.shape[1]) if places is None else places
    return x + laid_out(codes_at(places, step, first), halves)


def changed(rule: Callable[[Tensor, Tensor, Tensor, bool], Tensor]) -> Answer:
    """Return a wrong answer that makes other codes of places, steps, first angles and order."""
    return lambda x, y: x + rule(torch.arange(x.shape[1]), *hands_of(x, y))


def add_cases(draw: Draw) -> list[Case]:
    """In both orders: more tokens than rows and fewer, one pair, fast hands, a long text."""
    batch, length = draw.sizes(2, 3, 8)
    n, more = draw.sizes(2, 3, 6)

    def case(words: str, rows: int, tokens: int, inv_freq: Tensor, halves: bool = False) -> Case:
        start = draw.integer(15, 900)
        x = draw.normal(rows, tokens, 2 * len(inv_freq)).double()
        codes = laid_out(codes_at(torch.arange(start, start + rows), inv_freq), halves)
        words += ", all sines first" if halves else ""
        return Case(words, (x, x + codes[:, None]), drawn=f", x {tuple(x.shape)}")

    return [
        case("more tokens than rows", batch, batch + length, drawn_rates(draw, n, 0.01, 2.0)),
        case("two rows", 2, length, drawn_rates(draw, more, 3.3, 6.0), halves=True),
        case("more rows than tokens", batch + length, length, drawn_rates(draw, more, 0.02, 1.0)),
        case("as many rows as tokens", batch, batch, drawn_rates(draw, n, 0.05, 3.0), halves=True),
        case("one pair", 2, batch, torch.tensor([0.1 * draw.integer(3, 29)])),
        case("a long text", 3, 1501, drawn_rates(draw, 2, 0.003, 3.0), halves=True),
    ]


def otherwise(rule: Callable[[int, int], Tensor]) -> Answer:
    """Return a wrong answer that takes other numbers for the places, from B and L."""
    return lambda x, y: add_positions(x, y, rule(*x.shape[:2]))


def table_of(draw: Draw, inv_freq: Tensor, length: int) -> Tensor:
    """Return codes (L, d) of consecutive positions from anywhere, mixed by a matrix, float64."""
    n = len(inv_freq)
    start = draw.integer(-40, 90)
    angles = torch.arange(start, start + length)[:, None] * inv_freq.double()
    codes = torch.cat([angles.sin(), angles.cos()], dim=1)  # (L, d)
    q, _ = torch.linalg.qr(draw.normal(2, 2 * n, 2 * n).double())
    spread = torch.linspace(0.6, 1.8, 2 * n, dtype=torch.float64)
    found: Tensor = codes @ (q[0] * spread) @ q[1]
    return found


def drawn_rates(draw: Draw, n: int, slowest: float, fastest: float) -> Tensor:
    """Return frequencies that are apart from each other, in no order."""
    steps = torch.linspace(math.log(slowest), math.log(fastest), n)
    moved = steps + 0.2 * (torch.rand(n, generator=draw.generator) - 0.5) * (steps[1] - steps[0])
    return moved.double().exp()[torch.randperm(n, generator=draw.generator)]


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
        Case(words, (table, n), drawn=f": a table of shape {tuple(table.shape)}, n = {n}")
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
        Case(words, (table,), drawn=f": a table of shape {tuple(table.shape)}")
        for words, table in tables(draw)
    ]
    slow = table_of(draw, drawn_rates(draw, 2, 0.001, 0.015), 300)
    words = "slow frequencies alone, in 300 rows, where float32 is too coarse"
    return [*cases, Case(words, (slow,), 2e-9)]  # what float32 rounds of a result


def by_fourier(table: Tensor) -> Tensor:
    """Return the frequencies where the spectrum of the columns is largest."""
    power = torch.fft.rfft(table, dim=0).abs().sum(1)
    most: Tensor = power.topk(table.shape[1] // 2).indices.sort(descending=True).values
    return 2 * math.pi * most / len(table)


EXERCISES = (
    Exercise(
        name="positions_of",
        cases=lambda draw: draw.telling(reading_cases, read_hand, *CUT),
        reference=read_hand,
        tolerance=1e-6,  # positions go into the millions
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
            *(Mistake("the quotient is cut off: rounded angles lie now above and now below a "
                      "whole number, so round it", cut) for cut in CUT),
            Mistake("the hand is read in the other direction", lambda c: -read_hand(c)),
            Mistake("the hands have speeds of their own; you use those of the base 10000",
                    lambda c: (angles_of(c) / frequencies(c.shape[-1], 10000.0)[-1]).round()
                    .long()),
            Mistake("all of these are 0: is the angle multiplied by the step? divide by it",
                    lambda c: torch.zeros(len(c)).long()),
            Mistake("the angle is not divided by the step that the hand makes from row to row",
                    lambda c: angles_of(c).round().long()),
            Mistake("positions below 0 come out too high, by one turn of the slowest hand",
                    turned_on),
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
            Mistake("this is what the module gives: the code changes along the batch axis, and "
                    "each token of a row gets the same", lambda x, y: y),
            Mistake("nothing is added to x", lambda x, y: x),
            Mistake("the positions run on from row to row; each row begins with the same one",
                    otherwise(lambda b, n: torch.arange(b * n).view(b, n))),
            Mistake("each row begins one position after the row above, as in the module; they "
                    "all begin with the same one",
                    otherwise(lambda b, n: torch.arange(b)[:, None] + torch.arange(n))),
            Mistake("the positions are one too high: the first token gets what the module adds "
                    "to the first row", otherwise(lambda b, n: torch.arange(n) + 1)),
            Mistake("the positions fall from token to token; they must rise",
                    otherwise(lambda b, n: -torch.arange(n))),
            Mistake("the codes of the B positions that you see are repeated; go on after them",
                    otherwise(lambda b, n: torch.arange(n) % b)),
            Mistake("the last code that you see is repeated; go on after it",
                    otherwise(lambda b, n: torch.arange(n).clamp(max=b - 1))),
            Mistake("the columns are read as interleaved in all of these; look whether they are: "
                    "sine and cosine of a hand have together the length 1",
                    lambda x, y: add_positions(x, y, halves=False)),
            Mistake("the code is right, and its columns are always interleaved; return them in "
                    "the order of the module", changed(lambda p, w, a, h: codes_at(p, w, a))),
            Mistake("the positions begin with 0; the module began elsewhere",
                    changed(lambda p, w, a, h: laid_out(codes_at(p, w), h))),
            Mistake("these are the frequencies of the chapter's formula; the module has others",
                    changed(lambda p, w, a, h: codes_at(p, frequencies(2 * len(w), 10000.0)))),
            Mistake("sine and cosine are exchanged: atan2 takes the sine first",
                    changed(lambda p, w, a, h: laid_out(codes_at(p, -w, math.pi / 2 - a), h))),
            Mistake("this goes on in a straight line; the hands rotate",
                    lambda x, y: x + (y - x)[0, 0] + torch.arange(x.shape[1])[:, None]
                    * ((y - x)[1, 0] - (y - x)[0, 0])),
            Mistake("the code is added to what the module gives, in which there is a wrong one; "
                    "add it to x", lambda x, y: y + add_positions(x, y) - x),
            Mistake("the code is returned without x", lambda x, y: add_positions(x, y) - x),
            Mistake("the code is subtracted; it must be added",
                    lambda x, y: 2 * x - add_positions(x, y)),
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
        cases=lambda draw: draw.telling(
            frequency_cases, frequencies_of, lambda t: frequencies_of(t.float().double())),
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
