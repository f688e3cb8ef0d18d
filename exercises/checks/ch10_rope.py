"""Checks of exercise set 10: rotary positions."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import frequencies


def seen_from(q: Tensor, rates: Tensor, distance: Tensor, layout: str = "neighbours") -> Tensor:
    """Return the query rotated by each distance (N, 2 n): its product with a key is the score."""
    angles = distance.double()[:, None] * rates.double()  # (N, n)
    a, b = (
        q.double()
        .unflatten(0, (-1, 2) if layout == "neighbours" else (2, -1))
        .unbind(1 if layout == "neighbours" else 0)
    )
    parts = a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()
    return torch.stack(parts, 2 if layout == "neighbours" else 1).flatten(1)


def key_for(q: Tensor, rates: Tensor, curve: Tensor) -> Tensor:
    """Return the key whose scores come nearest to a curve over distances 0, 1, 2, ..."""
    return nearest_key(seen_from(q, rates, torch.arange(len(curve))), curve)


def nearest_key(rows: Tensor, curve: Tensor) -> Tensor:
    """Return the key with the smallest sum of squared errors."""
    result: Tensor = torch.linalg.pinv(rows) @ curve.double()
    return result


def key_cases(draw: Draw) -> list[Case]:
    """Curves with a bump, of noise, and one that a key can have; rates of a head, and others."""
    n, m, more = draw.sizes(3, 3, 8)
    strange = torch.linspace(0.1, 2.9, m)[torch.randperm(m, generator=draw.generator)]

    def case(words: str, rates: Tensor, curve: Tensor) -> Case:
        q = draw.normal(2 * len(rates)).double()
        words = f"{words}, {len(rates)} pairs, {len(curve)} distances"
        return Case(words, (q, rates.double(), curve.double()))

    def bump(length: int, at: int) -> Tensor:
        return (-((torch.arange(length) - at) ** 2) / 9).exp()

    can = seen_from(draw.normal(2 * m), strange, torch.arange(60)) @ draw.normal(2 * m).double()
    return [
        case("a bump", frequencies(2 * n, 100.0), bump(90 + n, 12)),
        case("noise", strange, 5 + draw.normal(70 + more)),
        case("a sum of its own waves", strange, can),
        case("one pair", torch.tensor([0.3 + n / 10]), bump(50, 4)),
        case("a wide head", frequencies(32, 100.0), bump(600, 40 + n)),
        case("a slope", frequencies(2 * more, 30.0), -torch.arange(40 + 3 * more) / 10),
    ]


def other_rows(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Answer:
    """Return a wrong answer that takes other rows of q, rates and distances."""
    return lambda q, rates, curve: nearest_key(change(q, rates, torch.arange(len(curve))), curve)


def one_by_one(q: Tensor, rates: Tensor, curve: Tensor) -> Tensor:
    """Fit each component of the key alone."""
    rows = seen_from(q, rates, torch.arange(len(curve)))
    return rows.T @ curve.double() / rows.square().sum(0)


def without_sines(q: Tensor, rates: Tensor, distance: Tensor) -> Tensor:
    """Return the query times the cosines alone."""
    return q * (distance[:, None] * rates).cos().repeat_interleave(2, 1)


Weights = tuple[Tensor, Tensor]


def listed(weight: Tensor, n_heads: int) -> Tensor:
    """Return what the published listing makes of a weight."""
    found: Tensor = weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)
    return found


def before(weight: Tensor, n_heads: int) -> Tensor:
    """Undo the published listing."""
    found: Tensor = weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)
    return found


def from_lost(rule: Callable[..., Weights], *, own_heads: bool = False) -> Answer:
    """Return an answer that undoes the listing, and then applies a rule."""

    def answer(w_q: Tensor, w_k: Tensor, head_dim: int, rotary_dim: int) -> Weights:
        heads = len(w_q) // head_dim
        of_keys = len(w_k) // head_dim if own_heads else heads
        return rule(before(w_q, heads), before(w_k, of_keys), head_dim, rotary_dim)

    return answer


def converted(w_q: Tensor, w_k: Tensor, head_dim: int, rotary_dim: int) -> tuple[Tensor, Tensor]:
    """Reorder the first `rotary_dim` rows of each head: even ones first, then odd ones."""
    return reordered(w_q, head_dim, rotary_dim), reordered(w_k, head_dim, rotary_dim)


def halves_order(dim: int) -> Tensor:
    """Return 0, 2, 4, ..., 1, 3, 5, ..."""
    return torch.cat([torch.arange(0, dim, 2), torch.arange(1, dim, 2)])


def reordered(weight: Tensor, head_dim: int, rotary_dim: int, *, back: bool = False) -> Tensor:
    """Reorder the rows of each head that rotate, or put them back."""
    order = halves_order(rotary_dim).argsort() if back else halves_order(rotary_dim)
    heads = weight.unflatten(0, (-1, head_dim))  # (H, d, D)
    result: Tensor = torch.cat([heads[:, order], heads[:, rotary_dim:]], 1).flatten(0, 1)
    return result


def odd_first(weight: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    """Put the odd rows before the even ones."""
    order = halves_order(rotary_dim).roll(rotary_dim // 2)
    heads = weight.unflatten(0, (-1, head_dim))
    result: Tensor = torch.cat([heads[:, order], heads[:, rotary_dim:]], 1).flatten(0, 1)
    return result


def with_heads_of_q(w_q: Tensor, w_k: Tensor, head_dim: int, rotary_dim: int) -> Tensor:
    """Cut the keys' rows into as many heads as there are of queries."""
    width = head_dim * len(w_k) // len(w_q)
    return reordered(w_k, width, min(rotary_dim, width))


def conversion_cases(draw: Draw) -> list[Case]:
    """As many heads of keys, fewer and one; whole heads and parts of them; narrow and wide."""
    n, inputs, more = draw.sizes(3, 3, 7)
    # heads of queries, of keys, width, rotated, inputs
    sizes = (
        (4, 2, 4 * n, 4 * n, inputs), (2 * more, more, 4 * n, 2 * n, inputs + 30),
        (n, n, 4 * n, 4, 4 * n * n), (4, 1, 16 * more, 16 * more, inputs), (8, 4, 8, 4, 8),
    )  # fmt: skip
    return [
        Case(f"{'as many' if keys == heads else 'fewer'} heads of keys, "
             f"{'whole heads' if rotary == dim else 'a part of each head'} rotated: {heads} heads "
             f"of queries and {keys} of keys, {rotary} of {dim} rows, {wide} inputs",
             (listed(draw.normal(heads * dim, wide), heads),
              listed(draw.normal(keys * dim, wide), heads), dim, rotary))
        for heads, keys, dim, rotary, wide in sizes
    ]  # fmt: skip


def xpos_scores(
    q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, *, scale: float = 512.0,
    gamma: float = 0.4, on: str = "pairs", fades: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return xPos's scaled scores, from the distance of each query to each key."""
    d = q.shape[-1]
    hidden = k_pos > q_pos[:, None]  # (Lq, Lk)
    back = (q_pos[:, None] - k_pos).masked_fill(hidden, 0).double()[..., None]  # (Lq, Lk, 1)
    zeta = (torch.arange(0, d, 2).double() / d + gamma) / (1 + gamma)  # (d / 2,)
    if on == "halves":
        zeta = zeta.repeat(2).view(-1, 2).prod(1).sqrt()
    z = zeta ** (fades * back / scale) * torch.polar(torch.ones(()).double(),
                                                     back * frequencies(d, 10000.0))  # fmt: skip
    cq, ck = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    # Re(conj(q e^{i m w}) k e^{i n w}) = Re(conj(q) k e^{-i (m - n) w})
    result: Tensor = torch.einsum("bhir,bhjr,ijr->bhij", cq.conj(), ck, z.conj()).real / d**0.5
    return result.float().masked_fill(hidden, -torch.inf)


def unmasked(q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Let a query see later keys, too, with nothing instead of what grows."""
    found = xpos_scores(q, k, q_pos, k_pos)
    return found.masked_fill(found.isinf(), 0.0)


def xpos_cases(draw: Draw) -> list[Case]:
    """Near and far behind, at positions where powers overflow, and below 0."""
    b, h, lq, lk, half = draw.sizes(5, 3, 8)
    far = draw.integer(3_000_000, 8_000_000)
    run = torch.arange(lk)

    def case(words: str, q_pos: Tensor, k_pos: Tensor, d: int = 2 * half) -> Case:
        q, k = (draw.normal(b, h, len(p), d) for p in (q_pos, k_pos))
        return Case(f"{words}, width {d}", (q, k, q_pos, k_pos))

    return [
        case("a cache from 0", lk + torch.arange(lq), run),
        case("a text that goes on far out", far + lk + torch.arange(lq), far + run),
        case(
            "queries and keys in any order, some below 0",
            draw.places(lq) - 60,
            draw.places(lk) - 130,
        ),
        case(
            "keys everywhere before the queries",
            far + 700 * draw.places(lk),
            far - torch.tensor([0, 9, 300, 40_000, far])[draw.order(5)],
        ),
        case(
            "queries far from each other",
            far + torch.tensor([2_000_000, 3, 900_000, 0]),
            far - draw.places(lk),
        ),
        case(
            "a text in parts far from each other",
            torch.cat([torch.arange(lq), far + torch.arange(9)]),
            torch.cat([torch.arange(lk), far // 2 + torch.arange(3), far + torch.arange(9)]),
        ),
        case("as many queries as keys", 5000 + draw.places(lq), 4900 + draw.places(lq), 64),
    ]


EXERCISES = (
    Exercise(
        name="key_for",
        cases=key_cases,
        reference=key_for,
        axes=("component",),
        mistakes=(
            Mistake("the key stands behind the query; yours is rotated as if it stood before it",
                    other_rows(lambda q, w, t: seen_from(q, w, -t))),
            Mistake("all pairs rotate equally fast; each has its own rate",
                    other_rows(lambda q, w, t: seen_from(q, w[:1].expand(len(w)), t))),
            Mistake("neighbours are pairs; with you component j is rotated with j + n",
                    other_rows(lambda q, w, t: seen_from(q, w, t, "halves"))),
            Mistake("the first number of the curve belongs to distance 0",
                    other_rows(lambda q, w, t: seen_from(q, w, t + 1))),
            Mistake("the rates are computed from the width; take those that are given",
                    other_rows(lambda q, w, t: seen_from(q, frequencies(len(q), 10000.0), t))),
            Mistake("the query counts, too: a pair that is long in it needs less of the key",
                    other_rows(lambda q, w, t: seen_from(torch.ones_like(q), w, t))),
            Mistake("each component is fitted alone; what the pairs add overlaps, so solve for all "
                    "of them together", one_by_one),
            Mistake("the sines are missing", other_rows(without_sines)),
            Mistake("the score is the plain product: it is not divided by sqrt(d)",
                    lambda q, w, c: key_for(q, w, c) * len(q) ** 0.5),
            Mistake("the curve is wanted as it stands; you take its mean away first",
                    lambda q, w, c: key_for(q, w, c - c.mean())),
            Mistake("these are the scores of the best key; the key is asked for",
                    lambda q, w, c: seen_from(q, w, torch.arange(len(c))) @ key_for(q, w, c)),
        ),
    ),
    Exercise(
        name="converted",
        cases=conversion_cases,
        reference=from_lost(converted),
        axes=("row", "column"),
        mistakes=(
            Mistake("the listing has moved the rows already; put them back before you move them",
                    converted),
            Mistake("the listing cut the keys into as many heads as the queries have; to undo it, "
                    "so must you", from_lost(converted, own_heads=True)),
            Mistake("the listing is undone; now the rows have to be moved as it should have done",
                    from_lost(lambda q, k, d, r: (q, k))),
            Mistake("nothing is moved: this is what the listing left",
                    lambda q, k, d, r: (q, k)),
            Mistake("the keys are cut into as many heads as the queries have; they have fewer",
                    from_lost(lambda q, k, d, r: (reordered(q, d, r),
                                                  with_heads_of_q(q, k, d, r)))),
            Mistake("all rows of a head are reordered; those from `rotary_dim` on do not rotate "
                    "and stay", from_lost(lambda q, k, d, r: converted(q, k, d, d))),
            Mistake("only the queries' weight is mended",
                    lambda q, k, d, r: (from_lost(converted)(q, k, d, r)[0], k)),
            Mistake("only the keys' weight is mended",
                    lambda q, k, d, r: (q, from_lost(converted)(q, k, d, r)[1])),
            Mistake("this is the way back, from half-split to interleaved",
                    from_lost(lambda q, k, d, r: (reordered(q, d, r, back=True),
                                                  reordered(k, d, r, back=True)))),
            Mistake("the rows of all heads are mixed; reorder within each head",
                    from_lost(lambda q, k, d, r: (q[halves_order(len(q))],
                                                  k[halves_order(len(k))]))),
            Mistake("the odd rows come first; the even ones are the first halves of the pairs",
                    from_lost(lambda q, k, d, r: (odd_first(q, d, r), odd_first(k, d, r)))),
            Mistake("the two weights are exchanged: first the queries', then the keys'",
                    lambda q, k, d, r: from_lost(converted)(q, k, d, r)[::-1]),
        ),
    ),
    Exercise(
        name="xpos_scores",
        cases=xpos_cases,
        reference=xpos_scores,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("the scores grow with the distance; those of keys further back fade",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, fades=-1.0)),
            Mistake("nothing fades: these are RoPE's scores",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, fades=0.0)),
            Mistake("the scores fade at each token; the exponent is the distance over 512",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, scale=1.0)),
            Mistake("the factor is applied twice, to the query and to the key with the whole "
                    "distance", lambda q, k, m, n: xpos_scores(q, k, m, n, fades=2.0)),
            Mistake("gamma is missing: the fastest pair is lost at any distance but 0",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, gamma=0.0)),
            Mistake("the factors stand in the half-split order, and the pairs are neighbours",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, on="halves")),
            Mistake("the pairs rotate the other way: both rotate by plus their position",
                    lambda q, k, m, n: xpos_scores(conjugate(q), conjugate(k), m, n)),
            Mistake("a key that comes after a query is not seen: minus infinity", unmasked),
            Mistake("the factor 1/sqrt(d) is missing",
                    lambda q, k, m, n: xpos_scores(q, k, m, n) * q.shape[-1] ** 0.5),
            Mistake("queries and keys are both counted from 0; use q_pos and k_pos",
                    lambda q, k, m, n: xpos_scores(q, k, torch.arange(len(m)),
                                                   torch.arange(len(n)))),
            Mistake("each is counted from its own first position; what matters is the difference "
                    "between the two", lambda q, k, m, n: xpos_scores(q, k, m - m[0], n - n[0])),
            Mistake("far positions are cut off; only the distance needs to be bounded, and it is",
                    lambda q, k, m, n: xpos_scores(q, k, m.clamp(max=100_000),
                                                   n.clamp(max=100_000))),
        ),
    ),
)  # fmt: skip


def conjugate(x: Tensor) -> Tensor:
    """Flip the sign of every second component of each pair."""
    return x * torch.tensor([1.0, -1.0]).repeat(x.shape[-1] // 2)
