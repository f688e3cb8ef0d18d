"""Checks of exercise set 8: DeBERTa."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.deberta import disentangled_row
from pe_lib.positions import relative_position

FAR = 38_600

Rule = tuple[Tensor, Tensor, Tensor]


def delta(q_pos: Tensor, k_pos: Tensor, span: int) -> Tensor:
    """Return the row of the table for every pair."""
    return disentangled_row(relative_position(q_pos, k_pos), span)


def convention_of(rows: Tensor, q_pos: Tensor, k_pos: Tensor) -> Rule:
    """Return the sign of query minus key, the row of distance 0, and how many rows there are."""
    return convention(rows, -relative_position(q_pos, k_pos))


def convention(rows: Tensor, back: Tensor) -> Rule:
    """Read a rule from rows and what is taken for query minus key."""
    n = rows.max() + 1
    inside = (rows > 0) & (rows < n - 1)
    back, row = back[inside], rows[inside]
    rises = back[row.argmax()] > back[row.argmin()]
    sign = torch.where(rises, 1, -1)
    return sign, row[0] - sign * back[0], n


def convention_cases(draw: Draw) -> list[Case]:
    """DeBERTa's rule, others, and off by one; runs, a cache, any order, negative and far ones."""
    a, b = draw.sizes(2, 4, 8)
    start = draw.integer(11, 40)
    run = torch.arange(3 * b)
    some, more = 3 * b - 2 * run[draw.order(3 * b)], b - run[draw.order(3 * b)]
    far = torch.cat([run[:-1], torch.tensor([FAR])])
    places = (
        ("a run", run + start, run + start), ("in any order, some below 0", some[:-2], more),
        ("a far key", torch.tensor([b, b + 1]) - 12, far[draw.order(3 * b)] - 12),
        ("below 0", -run[draw.order(3 * b)], -run),
    )  # fmt: skip
    rules = ((1, b, 2 * b), (-1, b - 1, 2 * b - 1), (1, b - 1, 2 * b), (-1, a, 2 * a),
             (1, a // 2, a), (-1, 2, a))  # fmt: skip
    found = []
    for place, (sign, offset, n) in enumerate(rules):
        words, q_pos, k_pos = places[place % 4]
        rows = (offset - sign * relative_position(q_pos, k_pos)).clamp(0, n - 1)
        found.append(Case(words, (rows, q_pos, k_pos)))
    return found


def mail_rows(words: Tensor, ahead: Tensor, span: int, strength: float) -> Tensor:
    """Return the smallest table whose products with the words are as wished."""
    return written(words, ahead + span, 2 * span, strength * (3 * words.shape[1]) ** 0.5)


def written(words: Tensor, row: Tensor, n: int, size: float, elsewhere: float = 0.0) -> Tensor:
    """Return the smallest table (n, d) with a product of that size at one row for each word."""
    wishes = torch.full((len(words), n), elsewhere, dtype=words.dtype)
    wishes[torch.arange(len(words)), row.clamp(0, n - 1)] = size
    result: Tensor = torch.linalg.pinv(words) @ wishes
    return result.mT


def mail_cases(draw: Draw) -> list[Case]:
    """Fewer words than components, as many, one; both ends of the span; words that share much."""
    m, more, span, half = draw.sizes(4, 3, 7)

    def case(count: int, d: int, s: int, strength: float, common: float = 0.0) -> Case:
        words = draw.normal(count, d).double() + common
        ahead = torch.randint(-s, s, (count,), generator=draw.generator)
        ahead[0] = -s
        ahead[-1] = s - 1
        label = f"{count} words of width {d}, span {s}, strength {strength:g}"
        return Case(label, (words, ahead, s, strength))

    return [
        case(m, m + more, span, 10.0), case(m, m, half, 4.0), case(1, 8, 2, 1.5),
        case(half, 64, span + 8, 20.0, 1.0),
    ]  # fmt: skip


def by_row(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Return q_i . rows[index_ij], (B, H, Lq, Lk)."""
    return picked(q @ rows.mT, index)


def picked(scores: Tensor, index: Tensor) -> Tensor:
    """Pick a column of (B, H, L, N) for each entry of the index."""
    return scores.gather(-1, index.expand(*scores.shape[:2], *index.shape))


def logits_from_kept(
    q: Tensor, k: Tensor, kept: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor
) -> Tensor:
    """Return the scores from what a cache keeps."""
    return from_kept(q, k, kept, k_rows, q_pos, k_pos)


def from_kept(
    q: Tensor, k: Tensor, kept: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor, *,
    weights: tuple[float, float, float] = (1, 1, 1), share: int = 3, first: int = 1, third: int = 1,
) -> Tensor:  # fmt: skip
    """Return the three terms, each times a weight, over sqrt(share d); signs turn distances."""
    span = k_rows.shape[1] // 2
    c2p = by_row(q, k_rows, delta(first * q_pos, first * k_pos, span))
    p2c = picked(kept, delta(third * q_pos, third * k_pos, span).mT).mT
    terms = zip(weights, (q @ k.mT, c2p, p2c), strict=True)
    total = sum((weight * term for weight, term in terms), torch.zeros(()))
    result: Tensor = total * (share * q.shape[-1]) ** -0.5
    return result


def kept_cases(draw: Draw) -> list[Case]:
    """As many queries as keys, queries after a cache, positions in any order."""
    b, h, lq, d, other = draw.sizes(5, 2, 6)
    lk, start = lq + draw.integer(5, 7), draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)

    def case(
        label: str, d: int, span: int, q_pos: Tensor, k_pos: Tensor, b: int = b, h: int = h
    ) -> Case:
        q, k = draw.normal(b, h, len(q_pos), d), draw.normal(b, h, len(k_pos), d)
        q_rows, k_rows = draw.normal(h, 2 * span, d), draw.normal(h, 2 * span, d)
        args = (q, k, k @ q_rows.mT, k_rows, q_pos, k_pos)
        return Case(f"{label}, d {d}, span {span}", args)

    some, more = draw.places(3, high=30), draw.places(5, high=30)
    more[draw.integer(1, 4)] += FAR
    return [
        case(f"{lk} queries and keys, positions from {start}", d, 2, k_pos, k_pos),
        case(f"{lk} keys from {start}, queries at the last {lq}", other, 3, k_pos[-lq:], k_pos),
        case(f"q_pos {some.tolist()}, k_pos {more.tolist()}", d, 4, some, more),
        case("one head, 1 query and 20 keys", 64, 16, k_pos[-1:], torch.arange(20), 1, 1),
        case("16 heads, 4 queries and 6 keys, negative positions", 8, 5, -draw.places(4),
             -draw.places(6), 1, 16),
    ]  # fmt: skip


def by_query(
    q: Tensor, k: Tensor, kept: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor,
    *, share: int,
) -> Tensor:  # fmt: skip
    """Pick from row i of what is kept, as the listing does."""
    index = delta(q_pos, k_pos, k_rows.shape[1] // 2)
    total = q @ k.mT + by_row(q, k_rows, index) + picked(kept[:, :, : len(q_pos)], index)
    result: Tensor = total * (share * q.shape[-1]) ** -0.5
    return result


def changed(**how: object) -> Answer:
    """Return a wrong answer that weighs or scales the terms in another way."""
    return lambda *args: from_kept(*args, **how)  # type: ignore[arg-type]


EXERCISES = (
    Exercise(
        name="convention_of",
        cases=convention_cases,
        reference=convention_of,
        mistakes=(
            Mistake("the sign is the other way round: 1 is query minus key",
                    lambda r, q, k: convention(r, relative_position(q, k))),
            Mistake("the last row has the number n - 1; you return that",
                    lambda r, q, k: (*convention_of(r, q, k)[:2], r.max())),
            Mistake("the offset is half the number of rows in some codes only; read it",
                    lambda r, q, k: (convention_of(r, q, k)[0], (r.max() + 1) // 2, r.max() + 1)),
            Mistake("the offset is counted from the other end of the table",
                    lambda r, q, k: (convention_of(r, q, k)[0],
                                     r.max() - convention_of(r, q, k)[1], r.max() + 1)),
            Mistake("DeBERTa's sign is taken for granted; read it",
                    lambda r, q, k: (torch.tensor(1), *convention_of(r, q, k)[1:])),
            Mistake("the usual sign, key minus query, is taken for granted; read it",
                    lambda r, q, k: (torch.tensor(-1), *convention_of(r, q, k)[1:])),
            Mistake("the offset is one too large",
                    lambda r, q, k: tuple(x + i * (2 - i) for i, x in enumerate(
                        convention_of(r, q, k)))),
            Mistake("the offset is one too small",
                    lambda r, q, k: tuple(x - i * (2 - i) for i, x in enumerate(
                        convention_of(r, q, k)))),
            Mistake("the order is sign, offset, number of rows",
                    lambda r, q, k: tuple(convention_of(r, q, k)[i] for i in (0, 2, 1))),
        ),
    ),
    Exercise(
        name="mail_rows",
        cases=mail_cases,
        reference=mail_rows,
        tolerance=1e-6,
        axes=("row", "component"),
        mistakes=(
            Mistake("the rows are mirrored: query minus key is the number of places to the right",
                    lambda w, a, s, x: written(w, s - a, 2 * s, x * (3 * w.shape[1]) ** 0.5)),
            Mistake("distance 0 has row s; you begin with it at row 0",
                    lambda w, a, s, x: written(w, a % (2 * s), 2 * s,
                                               x * (3 * w.shape[1]) ** 0.5)),
            Mistake("the score is divided by sqrt(3 d) later; the products must be larger by that",
                    lambda w, a, s, x: written(w, a + s, 2 * s, x)),
            Mistake("one term alone is there, and it is still divided by sqrt(3 d)",
                    lambda w, a, s, x: written(w, a + s, 2 * s, x * w.shape[1] ** 0.5)),
            Mistake("the score is divided by sqrt(3 d), so multiply the wish with it",
                    lambda w, a, s, x: written(w, a + s, 2 * s, x * (3 * w.shape[1]) ** -0.5)),
            Mistake("a row is the sum of the words that want it; words are not at right angles, "
                    "and other words find it, too",
                    lambda w, a, s, x: torch.zeros(2 * s, w.shape[1]).double().index_add(
                        0, a + s, w * x * (3 * w.shape[1]) ** 0.5 / w.square().sum(1)[:, None])),
            Mistake("all other rows must have the product 0; yours have the opposite",
                    lambda w, a, s, x: written(w, a + s, 2 * s, x * (3 * w.shape[1]) ** 0.5,
                                               -x * (3 * w.shape[1]) ** 0.5)),
            Mistake("the row is one too high", lambda w, a, s, x: written(
                w, a + s + 1, 2 * s, x * (3 * w.shape[1]) ** 0.5)),
            Mistake("the row is one too low", lambda w, a, s, x: written(
                w, a + s - 1, 2 * s, x * (3 * w.shape[1]) ** 0.5)),
        ),
    ),
    Exercise(
        name="logits_from_kept",
        cases=kept_cases,
        reference=logits_from_kept,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("this is what the listing returns: nothing is mended yet",
                    lambda *a: by_query(*a, share=2)),
            Mistake("`kept` has a row for each key; you pick from the row of the query",
                    lambda *a: by_query(*a, share=3)),
            Mistake("three terms are added, so the factor is 1/sqrt(3 d)", changed(share=2)),
            Mistake("three terms are added, so the factor is 1/sqrt(3 d), not 1/sqrt(d)",
                    changed(share=1)),
            Mistake("the third term reads row delta(j, i); it must read delta(i, j)",
                    changed(third=-1)),
            Mistake("the second term reads row delta(j, i); it must read delta(i, j)",
                    changed(first=-1)),
            Mistake("both position terms count key minus query; DeBERTa counts query minus key",
                    changed(first=-1, third=-1)),
            Mistake("the content term is missing", changed(weights=(0, 1, 1))),
            Mistake("content-to-position is missing", changed(weights=(1, 0, 1))),
            Mistake("position-to-content is missing: what is kept is not used",
                    changed(weights=(1, 1, 0))),
            Mistake("positions are counted from 0; use q_pos and k_pos",
                    lambda q, k, kept, r, qp, kp: from_kept(
                        q, k, kept, r, torch.arange(len(qp)), torch.arange(len(kp)))),
            Mistake("queries are counted from 0; use q_pos",
                    lambda q, k, kept, r, qp, kp: from_kept(
                        q, k, kept, r, torch.arange(len(qp)), kp)),
            Mistake("negative positions are taken as 0",
                    lambda q, k, kept, r, qp, kp: from_kept(
                        q, k, kept, r, qp.clamp(min=0), kp.clamp(min=0))),
        ),
    ),
)  # fmt: skip
