"""Checks of exercise set 8: DeBERTa."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.attention import relative_position
from pe_lib.deberta import disentangled_row

FAR = 38_600


def delta(q_pos: Tensor, k_pos: Tensor, span: int) -> Tensor:
    """Return the row of the table for every pair."""
    return disentangled_row(relative_position(q_pos, k_pos), span)


def raw(q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return query minus key."""
    return -relative_position(q_pos, k_pos)


def delta_cases(draw: Draw) -> list[Case]:
    """Near and far pairs, large positions and negative ones, positions in any order."""
    lq, lk, span = draw.sizes(3, 4, 9)
    start, large = draw.integer(11, 40), 2**24 + 1  # float32 would round
    run = torch.arange(3 * lk)
    q_pos, k_pos = draw.places(lq, high=20), draw.places(lk, high=20)
    k_pos[0] = q_pos[0] + 1  # who counts both from their first position is off
    # a distance that comes out with the other sign in numbers of 8 bits, and in those of 16
    k_pos[-1] = q_pos[0] + FAR
    return [
        Case(f"{3 * lk} positions from {start}, span {span}", (run + start, run + start, span)),
        Case(f"q_pos {q_pos.tolist()}, k_pos {k_pos.tolist()}, span 3", (q_pos, k_pos, 3)),
        Case(f"{3 * lk} positions from {large}, span 2", (run + large, run + large, 2)),
        Case(f"{lq} queries and {lk} keys, negative positions, span {1000 + span}",
             (-300 * draw.places(lq), -300 * k_pos[:-1], 1000 + span)),
    ]  # fmt: skip


def c2p(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Return q_i . rows[index_ij], (B, H, Lq, Lk)."""
    scores = q @ rows.mT  # (B, H, Lq, N)
    return scores.gather(-1, index.expand(*scores.shape[:2], *index.shape))


def p2c(k: Tensor, rows: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return k_j . rows[delta(i, j)]."""
    return c2p(k, rows, delta(q_pos, k_pos, rows.shape[1] // 2).mT).mT


def terms(
    q: Tensor, k: Tensor, q_rows: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor,
    *, weights: tuple[float, float, float] = (1, 1, 1), share: int = 3, c2p_sign: int = 1,
) -> Tensor:  # fmt: skip
    """Return the sum of the three terms, each times a weight, over sqrt(share * d)."""
    index = delta(c2p_sign * q_pos, c2p_sign * k_pos, k_rows.shape[1] // 2)
    found = (q @ k.mT, c2p(q, k_rows, index), p2c(k, q_rows, q_pos, k_pos))
    total = sum((w * t for w, t in zip(weights, found, strict=True)), torch.zeros(()))
    result: Tensor = total * (share * q.shape[-1]) ** -0.5
    return result


def with_other_p2c(
    q: Tensor, k: Tensor, q_rows: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor,
    *, term: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
) -> Tensor:  # fmt: skip
    """Return the logits with another third term."""
    first = terms(q, k, q_rows, k_rows, q_pos, k_pos, weights=(1, 1, 0))
    result: Tensor = first + term(k, q_rows, q_pos, k_pos) * (3 * q.shape[-1]) ** -0.5
    return result


def fourth(
    q: Tensor, k: Tensor, q_rows: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor,
    *, share: int,
) -> Tensor:  # fmt: skip
    """Return the logits with position meeting position, too."""
    both = (q_rows * k_rows).sum(-1)[:, delta(q_pos, k_pos, k_rows.shape[1] // 2)]
    first = terms(q, k, q_rows, k_rows, q_pos, k_pos, share=share)
    result: Tensor = first + both * (share * q.shape[-1]) ** -0.5
    return result


def logits_cases(draw: Draw) -> list[Case]:
    """As many queries as keys, queries after a cache, positions in any order."""
    b, h, lq, d, other = draw.sizes(5, 2, 6)
    lk, start = lq + draw.integer(5, 7), draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)

    def case(
        label: str, d: int, span: int, q_pos: Tensor, k_pos: Tensor, b: int = b, h: int = h
    ) -> Case:
        q, k = draw.normal(b, h, len(q_pos), d), draw.normal(b, h, len(k_pos), d)
        tables = draw.normal(h, 2 * span, d), draw.normal(h, 2 * span, d)
        return Case(f"{label}, d {d}, span {span}", (q, k, *tables, q_pos, k_pos))

    some, more = draw.places(3, high=30), draw.places(5, high=30)
    more[draw.integer(1, 4)] += FAR
    return [
        case(f"{lk} queries and keys, positions from {start}", d, 2, k_pos, k_pos),
        case(f"{lk} keys from {start}, queries at the last {lq}", other, 3, k_pos[-lq:], k_pos),
        case(f"q_pos {some.tolist()}, k_pos {more.tolist()}", d, 4, some, more),
        case("one head, 1 query and 20 keys", 64, 16, k_pos[-1:], torch.arange(20), 1, 1),
        case(
            "16 heads, 4 queries and 6 keys, negative positions",
            8,
            5,
            -draw.places(4),
            -draw.places(6),
            1,
            16,
        ),
    ]


def p2c_cases(draw: Draw) -> list[Case]:
    """The same calls, with what this term needs."""
    return [
        Case(case.label, (case.args[1], case.args[2], case.args[4], case.args[5]))
        for case in logits_cases(draw)
    ]


def clipped_index(k: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Gather by key with an index of (Lk, Lq)."""
    return c2p(k, rows, index.clamp(0, rows.shape[1] - 1)).mT


def by_query(k: Tensor, rows: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Gather by key with an index whose rows are queries: the listing to repair."""
    return c2p(k, rows, delta(q_pos, k_pos, rows.shape[1] // 2))


def exchanged(k: Tensor, rows: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Read row delta(j, i)."""
    return p2c(k, rows, -q_pos, -k_pos)


EXERCISES = (
    Exercise(
        name="delta",
        cases=delta_cases,
        reference=delta,
        integers=True,
        axes=("query", "key"),
        mistakes=(
            Mistake("the sign is flipped: delta takes query minus key",
                    lambda q, k, s: (-raw(q, k) + s).clamp(0, 2 * s - 1)),
            Mistake("rows run to 2 span - 1: you clip one too late",
                    lambda q, k, s: (raw(q, k) + s).clamp(0, 2 * s)),
            Mistake("rows begin at 0: you clip one too early",
                    lambda q, k, s: (raw(q, k) + s).clamp(1, 2 * s - 1)),
            Mistake("nothing is clipped", lambda q, k, s: raw(q, k) + s),
            Mistake("the rows are not moved: distance 0 has row `span`",
                    lambda q, k, s: raw(q, k).clamp(-s, s - 1)),
            Mistake("distance 0 has row `span`; yours has row span - 1",
                    lambda q, k, s: (raw(q, k) + s - 1).clamp(0, 2 * s - 1)),
            Mistake("distance 0 has row `span`; yours has row span + 1",
                    lambda q, k, s: (raw(q, k) + s + 1).clamp(0, 2 * s - 1)),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, s: delta(torch.arange(len(q)), torch.arange(len(k)), s)),
            Mistake("you count positions yourself; use q_pos and k_pos", lambda q, k, s: delta(
                torch.arange(len(k) - len(q), len(k)), torch.arange(len(k)), s)),
            Mistake("queries and keys are each counted from their own first position; use q_pos "
                    "and k_pos as they are", lambda q, k, s: delta(q - q[0], k - k[0], s)),
            Mistake("negative positions are taken as 0",
                    lambda q, k, s: delta(q.clamp(min=0), k.clamp(min=0), s)),
            Mistake("large positions are rounded: in float32 whole numbers end at 2**24; stay "
                    "with integers",
                    lambda q, k, s: (raw(q.float(), k.float()) + s).clamp(0, 2 * s - 1).long()),
            Mistake("the sign of the distance is lost: left and right must differ",
                    lambda q, k, s: (raw(q, k).abs() + s).clamp(0, 2 * s - 1)),
            Mistake("rows that are out of range wrap around; they must stay at the ends",
                    lambda q, k, s: (raw(q, k) + s) % (2 * s)),
            Mistake("only the upper end is clipped",
                    lambda q, k, s: (raw(q, k) + s).clamp(max=2 * s - 1)),
            Mistake("only the lower end is clipped",
                    lambda q, k, s: (raw(q, k) + s).clamp(min=0)),
            Mistake("the table is upside down", lambda q, k, s: 2 * s - 1 - delta(q, k, s)),
        ),
    ),
    Exercise(
        name="p2c",
        rests_on=("delta",),
        cases=p2c_cases,
        reference=p2c,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("entry (i, j) uses key i; it must use key j", by_query),
            Mistake("the result is not transposed: rows belong to queries",
                    lambda k, r, qp, kp: p2c(k, r, qp, kp).mT),
            Mistake("the distance is that of key and query exchanged: delta(j, i) in place of "
                    "delta(i, j)", lambda k, r, qp, kp: clipped_index(
                        k, r, delta(kp, qp, r.shape[1] // 2))),
            Mistake("the index is right for queries in the rows, but you gather with keys in the "
                    "rows: transpose the index too", lambda k, r, qp, kp: clipped_index(
                        k, r, delta(qp, kp, r.shape[1] // 2))),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda k, r, qp, kp: p2c(k, r, torch.arange(len(qp)), torch.arange(len(kp)))),
            Mistake("you count positions yourself; use q_pos and k_pos", lambda k, r, qp, kp: p2c(
                k, r, torch.arange(len(kp) - len(qp), len(kp)), torch.arange(len(kp)))),
            Mistake("it is scaled; this exercise leaves it unscaled",
                    lambda k, r, qp, kp: p2c(k, r, qp, kp) * k.shape[-1] ** -0.5),
            Mistake("it is scaled; this exercise leaves it unscaled",
                    lambda k, r, qp, kp: p2c(k, r, qp, kp) * (3 * k.shape[-1]) ** -0.5),
            Mistake("the table is read upside down",
                    lambda k, r, qp, kp: p2c(k, r.flip(1), qp, kp)),
            Mistake("the lowest row of the table is never read",
                    lambda k, r, qp, kp: p2c(k, torch.cat([r[:, 1:2], r[:, 1:]], 1), qp, kp)),
            Mistake("rows that are out of range wrap around; they must stay at the ends",
                    lambda k, r, qp, kp: c2p(k, r, (raw(qp, kp) + r.shape[1] // 2).mT
                                             % r.shape[1]).mT),
            Mistake("all heads use the first head's table",
                    lambda k, r, qp, kp: p2c(k, r[:1].expand_as(r), qp, kp)),
            Mistake("distance 0 has row `span`; yours has row span - 1",
                    lambda k, r, qp, kp: p2c(k, r, qp, kp + 1)),
            Mistake("distance 0 has row `span`; yours has row span + 1",
                    lambda k, r, qp, kp: p2c(k, r, qp, kp - 1)),
            Mistake("every pair uses the row of distance 0",
                    lambda k, r, qp, kp: p2c(k, r, 0 * qp, 0 * kp)),
        ),
    ),
    Exercise(
        name="deberta_logits",
        rests_on=("delta", "p2c"),
        cases=logits_cases,
        reference=terms,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("you divide by d, not by a square root",
                    lambda *a: terms(*a, share=1) * a[0].shape[-1] ** -0.5),
            Mistake("you divide by 3 d, not by its square root",
                    lambda *a: terms(*a) * (3 * a[0].shape[-1]) ** -0.5),
            Mistake("the 3 belongs under the root, too; you divide by 3 sqrt(d)",
                    lambda *a: terms(*a, share=9)),
            Mistake("three terms are added, so the factor is 1/sqrt(3 d), not 1/sqrt(d)",
                    lambda *a: terms(*a, share=1)),
            Mistake("three terms are added, so the factor is 1/sqrt(3 d), not 1/sqrt(2 d)",
                    lambda *a: terms(*a, share=2)),
            Mistake("this is the factor of four terms; DeBERTa has three",
                    lambda *a: terms(*a, share=4)),
            Mistake("the factor 1/sqrt(3 d) is missing",
                    lambda *a: terms(*a) * (3 * a[0].shape[-1]) ** 0.5),
            Mistake("content-to-position is missing", lambda *a: terms(*a, weights=(1, 0, 1))),
            Mistake("position-to-content is missing", lambda *a: terms(*a, weights=(1, 1, 0))),
            Mistake("content-to-content is missing", lambda *a: terms(*a, weights=(0, 1, 1))),
            Mistake("the two tables are exchanged: the query must meet k_rows, the key q_rows",
                    lambda q, k, qr, kr, qp, kp: terms(q, k, kr, qr, qp, kp)),
            Mistake("you read k_rows in both terms; the key must meet q_rows",
                    lambda q, k, qr, kr, qp, kp: terms(q, k, kr, kr, qp, kp)),
            Mistake("you read q_rows in both terms; the query must meet k_rows",
                    lambda q, k, qr, kr, qp, kp: terms(q, k, qr, qr, qp, kp)),
            Mistake("there is a fourth term, position with position; DeBERTa leaves it out",
                    lambda *a: fourth(*a, share=3)),
            Mistake("there is a fourth term, position with position; DeBERTa leaves it out",
                    lambda *a: fourth(*a, share=4)),
            Mistake("only the content is scaled: 1/sqrt(3 d) is on the sum",
                    lambda *a: terms(*a, weights=(
                        1, s := (3 * a[0].shape[-1]) ** 0.5, s))),
            Mistake("only the position terms are scaled: 1/sqrt(3 d) is on the sum",
                    lambda *a: terms(*a, weights=((3 * a[0].shape[-1]) ** 0.5, 1, 1))),
            Mistake("in position-to-content, query and key are exchanged in delta",
                    lambda *a: with_other_p2c(*a, term=exchanged)),
            Mistake("in position-to-content, entry (i, j) uses key i; it must use key j",
                    lambda *a: with_other_p2c(*a, term=by_query)),
            Mistake("in content-to-position, query and key are exchanged in delta",
                    lambda *a: terms(*a, c2p_sign=-1)),
            Mistake("in both terms, delta takes key minus query",
                    lambda q, k, qr, kr, qp, kp: terms(q, k, qr, kr, -qp, -kp)),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, qr, kr, qp, kp: terms(
                        q, k, qr, kr, torch.arange(len(qp)), torch.arange(len(kp)))),
            Mistake("you count positions yourself; use q_pos and k_pos",
                    lambda q, k, qr, kr, qp, kp: terms(
                        q, k, qr, kr, torch.arange(len(kp) - len(qp), len(kp)),
                        torch.arange(len(kp)))),
        ),
    ),
)  # fmt: skip
