"""Checks of exercise set 5: Shaw's relative positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import relative_position
from pe_lib.shaw import clipped_row
from pe_lib.shaw import shaw_logits as position_term

# A distance that comes out with the other sign in numbers of 8 bits, and in those of 16.
FAR = 38_600

RowRule = Callable[[Tensor, int], Tensor]


def clipped_rows(q_pos: Tensor, k_pos: Tensor, clip: int) -> Tensor:
    """Return the row of the table for every pair."""
    return clipped_row(relative_position(q_pos, k_pos), clip)


def rows_cases(draw: Draw) -> list[Case]:
    """Runs of positions, also large ones, and positions in any order."""
    lq, lk, clip = draw.sizes(3, 4, 9)
    start, large = draw.integer(11, 40), 2**24 + 1  # float32 would round
    ends = torch.cat([torch.arange(3), torch.arange(3) + FAR]) + start
    run, q_pos, k_pos = torch.arange(lk), draw.places(lq, high=30), draw.places(lk, high=30)
    return [
        Case(f"{lk} positions from {start}, clip 2", (run + start, run + start, 2)),
        Case(f"q_pos {q_pos.tolist()}, k_pos {k_pos.tolist()}, clip {clip}", (q_pos, k_pos, clip)),
        Case(f"{lk} queries from {start - 200}, {lk} keys from {start}, clip {clip}",
             (run + start - 200, run + start, clip)),
        Case(f"{lk} positions from {large}, clip 3", (run + large, run + large, 3)),
        Case(f"q_pos {ends.tolist()}, k_pos in reverse order, clip {clip + 1000}",
             (ends, ends.flip(0), clip + 1000)),
    ]  # fmt: skip


def logits(q: Tensor, k: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return the scaled logits with a vector for each relative position."""
    result: Tensor = (q @ k.mT + position_term(q, table, q_pos, k_pos)) * q.shape[-1] ** -0.5
    return result


def from_positions(
    q: Tensor, k: Tensor, table: Tensor, q_pos: Tensor, k_pos: Tensor, *, rule: RowRule
) -> Tensor:
    """Return the logits with another rule for the row of a relative position."""
    vectors = table[rule(relative_position(q_pos, k_pos), len(table) // 2)]
    position = torch.einsum("bhid,ijd->bhij", q, vectors)
    result: Tensor = (q @ k.mT + position) * q.shape[-1] ** -0.5
    return result


def logits_cases(draw: Draw) -> list[Case]:
    """As many queries as keys, queries after a cache of keys, any order, and below 0."""
    b, h, lq, d, other = draw.sizes(5, 2, 6)
    lk, start = lq + draw.integer(5, 7), draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)

    def case(
        label: str, d: int, clip: int, q_pos: Tensor, k_pos: Tensor, b: int = b, h: int = h
    ) -> Case:
        q, k = draw.normal(b, h, len(q_pos), d), draw.normal(b, h, len(k_pos), d)
        return Case(f"{label}, d {d}, clip {clip}",
                    (q, k, draw.normal(2 * clip + 1, d), q_pos, k_pos))  # fmt: skip

    some, more = 20 - draw.places(3, high=30), 20 - draw.places(5, high=30)
    some[0], more[0] = -12, -9  # who takes both for 0 is off
    more[draw.integer(1, 4)] += FAR
    return [
        case(f"{lk} queries and keys, positions from {start}", d, 2, k_pos, k_pos),
        case(f"{lk} keys from {start}, queries at the last {lq}", other, 3, k_pos[-lq:], k_pos),
        case(f"q_pos {some.tolist()}, k_pos {more.tolist()}", d, 4, some, more),
        case("one head, 1 query and 20 keys", 64, 16, k_pos[-1:], torch.arange(20), 1, 1),
        case("16 heads, 6 queries and 4 keys", 8, 3, draw.places(6), draw.places(4), 1, 16),
    ]


def skew(scores: Tensor) -> Tensor:
    """Return entry (i, j) from column L - 1 - i + j."""
    length = len(scores)
    steps = torch.arange(length)
    return scores.gather(1, length - 1 - steps[:, None] + steps)


def skew_cases(draw: Draw) -> list[Case]:
    """Scores of each query with each relative position: even, odd, few and many queries."""
    half = draw.integer(2, 4)
    sizes = (2 * half, 2 * draw.integer(2, 4) + 1, 1, 2, 3, 16, 2 * draw.integer(20, 40) + 1)
    return [Case(f"scores of shape {(n, 2 * n - 1)}", (draw.normal(n, 2 * n - 1),)) for n in sizes]


def skew_by(scores: Tensor, column: str) -> Tensor:
    """Skew with another rule for the column, kept inside the table."""
    n = len(scores)
    i, j = torch.arange(n)[:, None], torch.arange(n)[None]
    rules = {
        "mirrored": n - 1 + i - j, "late": n - i + j, "early": n - 2 - i + j, "none": j + 0 * i,
        "sum": i + j, "from middle": n - 1 + j + 0 * i,
    }  # fmt: skip
    return scores.gather(1, rules[column].clamp(0, 2 * n - 2))


def padded(scores: Tensor) -> Tensor:
    """The pad-and-reshape trick with the zero on the other side."""
    n = len(scores)
    wide = torch.cat([scores, torch.zeros(n, 1)], 1).flatten()  # (n * 2n,)
    return wide[n:].reshape(n, 2 * n - 1)[:, :n]


EXERCISES = (
    Exercise(
        name="clipped_rows",
        cases=rows_cases,
        reference=clipped_rows,
        integers=True,
        axes=("query", "key"),
        mistakes=(
            Mistake("the sign is flipped: the relative position is key minus query, so a key to "
                    "the left has a low row", lambda q, k, c: clipped_rows(-q, -k, c)),
            Mistake("the distances are not clipped", lambda q, k, c: relative_position(q, k) + c),
            Mistake("the rows do not begin at 0: yours begin at -clip",
                    lambda q, k, c: clipped_rows(q, k, c) - c),
            Mistake("you add clip first and limit to -clip ... clip then: rows may be negative",
                    lambda q, k, c: (relative_position(q, k) + c).clamp(-c, c)),
            Mistake("you clip one step too early: distances from -clip to clip have a row each",
                    lambda q, k, c: relative_position(q, k).clamp(-c, c - 1) + c),
            Mistake("you clip one step too early: distances from -clip to clip have a row each",
                    lambda q, k, c: relative_position(q, k).clamp(1 - c, c) + c),
            Mistake("you clip one step too early: distances from -clip to clip have a row each",
                    lambda q, k, c: relative_position(q, k).clamp(1 - c, c - 1) + c),
            Mistake("you clip one step too late", lambda q, k, c: relative_position(q, k).clamp(
                -c - 1, c + 1) + c),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, c: clipped_rows(torch.arange(len(q)), torch.arange(len(k)), c)),
            Mistake("you count positions yourself; use q_pos and k_pos", lambda q, k, c:
                    clipped_rows(torch.arange(len(k) - len(q), len(k)), torch.arange(len(k)), c)),
            Mistake("queries and keys are each counted from their own first position; use q_pos "
                    "and k_pos as they are", lambda q, k, c: clipped_rows(q - q[0], k - k[0], c)),
            Mistake("large positions are rounded: in float32 whole numbers end at 2**24; stay "
                    "with integers", lambda q, k, c: (
                        relative_position(q.float(), k.float()).clamp(-c, c).long() + c)),
            Mistake("the sign of the distance is lost: left and right must differ",
                    lambda q, k, c: relative_position(q, k).abs().clamp(max=c) + c),
            Mistake("the sign of the distance is lost: left and right must differ",
                    lambda q, k, c: relative_position(q, k).abs().clamp(max=c)),
            Mistake("only the right side is clipped",
                    lambda q, k, c: relative_position(q, k).clamp(max=c) + c),
            Mistake("only the left side is clipped",
                    lambda q, k, c: relative_position(q, k).clamp(min=-c) + c),
            Mistake("rows that are too high or too low wrap around; they must stay at the end",
                    lambda q, k, c: (relative_position(q, k) + c) % (2 * c + 1)),
            Mistake("distances to the right are treated as 0",
                    lambda q, k, c: relative_position(q, k).clamp(-c, 0) + c),
        ),
    ),
    Exercise(
        name="shaw_logits",
        rests_on=("clipped_rows",),
        cases=logits_cases,
        reference=logits,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("you divide by d, not by its square root",
                    lambda *a: logits(*a) * a[0].shape[-1] ** -0.5),
            Mistake("the table is read upside down: the relative position is key minus query",
                    lambda q, k, t, qp, kp: logits(q, k, t.flip(0), qp, kp)),
            Mistake("the position term is not scaled: 1/sqrt(d) is on the sum",
                    lambda q, k, t, qp, kp: logits(q, k, t * q.shape[-1] ** 0.5, qp, kp)),
            Mistake("nothing is scaled: the factor 1/sqrt(d) is missing",
                    lambda q, k, t, qp, kp: logits(q, k, t, qp, kp) * q.shape[-1] ** 0.5),
            Mistake("the content term is not scaled: 1/sqrt(d) is on the sum",
                    lambda q, k, t, qp, kp: logits(q, k * q.shape[-1] ** 0.5, t, qp, kp)),
            Mistake("the factor is 1/sqrt(2 d); Shaw's is 1/sqrt(d)",
                    lambda q, k, t, qp, kp: logits(q, k, t, qp, kp) * 0.5**0.5),
            Mistake("the content term is missing",
                    lambda q, k, t, qp, kp: logits(q, 0 * k, t, qp, kp)),
            Mistake("the position term is missing",
                    lambda q, k, t, qp, kp: logits(q, k, 0 * t, qp, kp)),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, t, qp, kp: logits(q, k, t, torch.arange(len(qp)),
                                                   torch.arange(len(kp)))),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, t, qp, kp: logits(q, k, t, torch.arange(
                        len(kp) - len(qp), len(kp)), torch.arange(len(kp)))),
            Mistake("queries and keys are each counted from their own first position; use q_pos "
                    "and k_pos as they are",
                    lambda q, k, t, qp, kp: logits(q, k, t, qp - qp[0], kp - kp[0])),
            Mistake("negative positions are taken as 0", lambda q, k, t, qp, kp: logits(
                q, k, t, qp.clamp(min=0), kp.clamp(min=0))),
            Mistake("the vector is added to the key, so it meets the query: the term is q . a, "
                    "yours is k . a", lambda q, k, t, qp, kp: (q @ k.mT + torch.einsum(
                        "bhjd,ijd->bhij", k, t[clipped_rows(qp, kp, len(t) // 2)]))
                    * q.shape[-1] ** -0.5),
            Mistake("the position term is subtracted",
                    lambda q, k, t, qp, kp: logits(q, k, -t, qp, kp)),
            Mistake("the distances are clipped one step too early",
                    lambda q, k, t, qp, kp: logits(q, k, torch.cat([t[1:2], t[1:-1], t[-2:-1]]),
                                                   qp, kp)),
            Mistake("the sign of the distance is lost: left and right must differ",
                    lambda *a: from_positions(*a, rule=lambda r, c: r.abs().clamp(max=c) + c)),
            Mistake("the sign of the distance is lost: left and right must differ",
                    lambda *a: from_positions(*a, rule=lambda r, c: r.abs().clamp(max=c))),
            Mistake("the rows of the table are not moved: distance 0 reads the first row, it has "
                    "the one in the middle",
                    lambda *a: from_positions(*a, rule=lambda r, c: r.clamp(-c, c))),
            Mistake("rows that are too high or too low wrap around; they must stay at the end",
                    lambda *a: from_positions(*a, rule=lambda r, c: (r + c) % (2 * c + 1))),
        ),
    ),
    Exercise(
        name="skew",
        cases=skew_cases,
        reference=skew,
        axes=("query", "key"),
        mistakes=(
            Mistake("it shifts the other way: entry (i, j) is column L - 1 + j - i",
                    lambda s: skew_by(s, "mirrored")),
            Mistake("it is one column too far to the right", lambda s: skew_by(s, "late")),
            Mistake("it is one column too far to the left", lambda s: skew_by(s, "early")),
            Mistake("nothing is shifted: these are the first L columns",
                    lambda s: skew_by(s, "none")),
            Mistake("nothing is shifted: these are the last L columns",
                    lambda s: skew_by(s, "from middle")),
            Mistake("it shifts the other way: entry (i, j) is column i + j here",
                    lambda s: skew_by(s, "sum")),
            Mistake("it is one column too far to the right", padded),
            Mistake("it is the transpose of what is wanted", lambda s: skew(s).T),
            Mistake("the queries are in reverse order", lambda s: skew(s).flip(0)),
        ),
    ),
)  # fmt: skip
