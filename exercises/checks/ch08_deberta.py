"""Checks of exercise set 8: DeBERTa."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.deberta import disentangled_row, log_bucket
from pe_lib.encoding import relative_position

FAR = 38_600

Rule = Callable[[Tensor, int, int], Tensor]


def distances_behind(rows: Tensor, span: int, ends: tuple[int, int] = (1, 2)) -> Tensor:
    """Return query minus key for every pair, from pairs that read no row at the ends."""
    inside = ((rows >= ends[0]) & (rows <= 2 * span - ends[1])).nonzero().tolist()
    q: dict[int, int] = {0: 0}
    k: dict[int, int] = {}
    while len(q) + len(k) < sum(rows.shape):
        for i, j in inside:
            back = int(rows[i, j]) - span
            if i in q and j not in k:
                k[j] = q[i] - back
            elif j in k and i not in q:
                q[i] = k[j] + back
    return torch.tensor([[q[i] - k[j] for j in range(len(k))] for i in range(len(q))])


def behind_cases(draw: Draw) -> list[Case]:
    """A run, a chain of gaps, more keys than queries, one query; any order, negative numbers."""
    a, b, span = draw.sizes(3, 5, 9)

    def case(words: str, q_pos: Tensor, k_pos: Tensor, span: int) -> Case:
        q_pos, k_pos = q_pos[draw.order(len(q_pos))], k_pos[draw.order(len(k_pos))]
        sizes = f", {len(q_pos)} queries and {len(k_pos)} keys, span {span}"
        rows = disentangled_row(relative_position(q_pos, k_pos), span)
        return Case(words, (rows, span), drawn=sizes)

    def chain(count: int, span: int) -> Tensor:
        gaps = torch.randint(1, span - 1, (count,), generator=draw.generator)
        return gaps.cumsum(0) - draw.integer(0, 60)

    some, long = chain(2 * a + 1, span), chain(20, 4)
    found = [
        case("a text without gaps", torch.arange(3 * b), torch.arange(3 * b), b),
        case("a text with gaps", some[::2], some[1::2], span),
        case("more keys", some[::2], torch.cat([some[1::2], some[::2] + 1, some[1::2] - 1]), span),
        case("a long chain", long[::2], long[1::2], 4),
    ]
    near = torch.arange(2 - span, span)[draw.order(2 * span - 2)]
    return [*found, Case("one query", (disentangled_row(near[None], span), span))]


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

    def case(kind: str, count: int, d: int, s: int, strength: float, common: float = 0.0) -> Case:
        words = draw.normal(count, d).double() + common
        ahead = torch.randint(-s, s, (count,), generator=draw.generator)
        ahead[0] = -s
        ahead[-1] = s - 1
        sizes = f": {count} of width {d}, span {s}, strength {strength:g}"
        return Case(kind, (words, ahead, s, strength), drawn=sizes)

    return [
        case("fewer words than components", m, m + more, span, 10.0),
        case("as many words as components", m, m, half, 4.0), case("one word", 1, 8, 2, 1.5),
        case("words that share much", half, 64, span + 8, 20.0, 1.0),
    ]  # fmt: skip


def by_row(q: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Return q_i . rows[index_ij], (B, H, Lq, Lk)."""
    return picked(q @ rows.mT, index)


def picked(scores: Tensor, index: Tensor) -> Tensor:
    """Pick a column of (B, H, L, N) for each entry of the index."""
    return scores.gather(-1, index.expand(*scores.shape[:2], *index.shape))


def bucketed(n: Tensor, span: int, reach: int) -> Tensor:
    """Return the rows of version 2 for key minus query."""
    return disentangled_row(log_bucket(n, span, reach), span)


def logits_from_kept(
    q: Tensor, k: Tensor, kept: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor, reach: int,
    *, weights: tuple[float, float, float] = (1, 1, 1), share: int = 3, first: int = 1,
    third: int = 1, rule: Rule = bucketed,
) -> Tensor:  # fmt: skip
    """Return the three terms, each times a weight, over sqrt(share d); signs turn distances."""
    span, n = k_rows.shape[1] // 2, relative_position(q_pos, k_pos)
    c2p = by_row(q, k_rows, rule(first * n, span, reach))
    p2c = picked(kept, rule(third * n, span, reach).mT).mT
    terms = zip(weights, (q @ k.mT, c2p, p2c), strict=True)
    total = sum((weight * term for weight, term in terms), torch.zeros(()))
    result: Tensor = total * (share * q.shape[-1]) ** -0.5
    return result


def kept_cases(draw: Draw) -> list[Case]:
    """As many queries as keys, queries after a cache, positions in any order, a long text.

    No bucket ends near a distance that is drawn, where rounding would decide.
    """
    b, h, lq, d, other = draw.sizes(5, 2, 6)
    lk, start = lq + draw.integer(5, 7), draw.integer(11, 40)
    k_pos = torch.arange(start, start + lk)

    def case(
        label: str, d: int, span: int, reach: int, q_pos: Tensor, k_pos: Tensor, b: int = b,
        h: int = h,
    ) -> Case:  # fmt: skip
        k_pos = k_pos - (relative_position(q_pos, k_pos) == reach - 1).any(0).long()
        q, k = draw.normal(b, h, len(q_pos), d), draw.normal(b, h, len(k_pos), d)
        q_rows, k_rows = draw.normal(h, 2 * span, d), draw.normal(h, 2 * span, d)
        args = (q, k, k @ q_rows.mT, k_rows, q_pos, k_pos, reach)
        sizes = f", Lq, Lk, d = {(len(q_pos), len(k_pos), d)}, span {span}, reach {reach}"
        return Case(label, args, drawn=sizes)

    some, more = 3 * draw.places(3, high=30), 3 * draw.places(5, high=30)
    more[draw.integer(1, 4)] += FAR
    long = 2 * torch.arange(130)
    return [
        case("as many queries as keys", d, 6, 20, k_pos, k_pos),
        case("queries at the last keys", other, 6, 20, k_pos[-lq:], k_pos),
        case("positions in any order, one key far out", d, 10, 38, some, more),
        case("one query", 64, 16, 65, torch.tensor([89]), torch.arange(90), 1, 1),
        case("a long text", 8, 8, 26, long[:100], long, 1, 4),
        case("negative positions", 8, 8, 41, -draw.places(4),
             -draw.places(6)),
    ]  # fmt: skip


def by_query(
    q: Tensor, k: Tensor, kept: Tensor, k_rows: Tensor, q_pos: Tensor, k_pos: Tensor, reach: int,
    *, share: int, rule: Rule = bucketed,
) -> Tensor:  # fmt: skip
    """Pick from row i of what is kept, as the listing does."""
    index = rule(relative_position(q_pos, k_pos), k_rows.shape[1] // 2, reach)
    total = q @ k.mT + by_row(q, k_rows, index) + picked(kept[:, :, : len(q_pos)], index)
    result: Tensor = total * (share * q.shape[-1]) ** -0.5
    return result


def changed(**how: object) -> Answer:
    """Return a wrong answer that weighs or scales the terms in another way."""
    return lambda *args: logits_from_kept(*args, **how)  # type: ignore[arg-type]


EXERCISES = (
    Exercise(
        name="distances_behind",
        cases=behind_cases,
        reference=distances_behind,
        integers=True,
        axes=("query", "key"),
        mistakes=(
            Mistake("the first row and the last say only 'this far, or further'; find these "
                    "distances through other pairs", lambda r, s: r - s),
            Mistake("the sign is the other way round: query minus key",
                    lambda r, s: -distances_behind(r, s)),
            Mistake("this is the row; the distance is the row less the span",
                    lambda r, s: distances_behind(r, s) + s),
            Mistake("distance 0 has row s; you take row s - 1 for it",
                    lambda r, s: distances_behind(r, s) + 1),
            Mistake("distances have a sign", lambda r, s: distances_behind(r, s).abs()),
            Mistake("the first row is read by every distance of -s and below: it tells none",
                    lambda r, s: distances_behind(r, s, (0, 2))),
            Mistake("the last row is read by every distance of s - 1 and above: it tells none",
                    lambda r, s: distances_behind(r, s, (1, 1))),
            Mistake("these are means over rows and columns, in which the ends count as distances",
                    lambda r, s: (r.double().mean(1, keepdim=True) + r.double().mean(0)
                                  - r.double().mean() - s).round().long()),
            Mistake("these are places in the log; positions may be in any order, with gaps",
                    lambda r, s: torch.arange(r.shape[0])[:, None] - torch.arange(r.shape[1])),
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
                    lambda *a: by_query(*a, share=2, rule=lambda n, s, m: disentangled_row(n, s))),
            Mistake("what the listing does wrong is mended; its rows are still those of version 1",
                    changed(rule=lambda n, s, m: disentangled_row(n, s))),
            Mistake("the rows of version 2 are there, and nothing else of the listing is mended",
                    lambda *a: by_query(*a, share=2)),
            Mistake("the logarithm ends at M - 1, not at M",
                    changed(rule=lambda n, s, m: bucketed(n, s, m + 1))),
            Mistake("distances to the left and to the right have rows of their own: give the "
                    "bucket its sign back",
                    changed(rule=lambda n, s, m: bucketed(-n.abs(), s, m))),
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
                    lambda q, k, kept, r, qp, kp, m: logits_from_kept(
                        q, k, kept, r, torch.arange(len(qp)), torch.arange(len(kp)), m)),
            Mistake("queries are counted from 0; use q_pos",
                    lambda q, k, kept, r, qp, kp, m: logits_from_kept(
                        q, k, kept, r, torch.arange(len(qp)), kp, m)),
            Mistake("negative positions are taken as 0",
                    lambda q, k, kept, r, qp, kp, m: logits_from_kept(
                        q, k, kept, r, qp.clamp(min=0), kp.clamp(min=0), m)),
        ),
    ),
)  # fmt: skip
