"""Checks of exercise set 10: rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import frequencies


def rope(
    x: Tensor, positions: Tensor, rates: Tensor, pairs: Tensor, *, sines: float = 1.0
) -> Tensor:
    """Rotate the pairs of components (n, 2) of x (B, H, L, d); the others stay."""
    first, second = pairs.unbind(1)
    angles = positions.double()[:, None] * rates.double()  # (L, n)
    a, b, cos, sin = x[..., first], x[..., second], angles.cos(), sines * angles.sin()
    out = x.double()
    out[..., first], out[..., second] = a * cos - b * sin, a * sin + b * cos
    return out.to(x.dtype)


def signed(positions: Tensor) -> Tensor:
    """Return positions of which every other one is negative."""
    return positions * (-1) ** torch.arange(positions.shape[-1])


def neighbours(n: int) -> Tensor:
    """Return the pairs (0, 1), (2, 3), ..."""
    return torch.arange(2 * n).view(n, 2)


def halves(n: int) -> Tensor:
    """Return the pairs (0, n), (1, n + 1), ..."""
    return torch.arange(2 * n).view(2, n).T


def rope_cases(draw: Draw) -> list[Case]:
    """Both layouts, a part of the width at either end, and pairs and rates that nobody uses."""
    b, h, length, n = draw.sizes(4, 3, 8)
    start, any_pairs = draw.integer(11, 40), torch.randperm(4 * n, generator=draw.generator)
    strange = draw.order(n + 3).float() / 7 + 0.05

    def case(words: str, shape: tuple[int, ...], p: Tensor, rates: Tensor, pairs: Tensor) -> Case:
        # At 900 single precision rounds angles in the fourth decimal.
        room = 1e-3 if p.max() > 60 else None
        return Case(f"{words}, x {shape}", (draw.normal(*shape), p, rates.float(), pairs), room)

    usual = frequencies(2 * n, 10000.0)
    return [
        case("neighbours", (b, h, length, 2 * n), start + torch.arange(length), usual,
             neighbours(n)),
        case("halves, positions in any order", (b, h, length, 2 * n), draw.places(length) / 4,
             usual, halves(n)),
        case("the first part of the width", (b, h, length, 4 * n), signed(draw.places(length)),
             usual, halves(n)),
        case("the last part of the width", (h, b, length, 4 * n), draw.places(length), usual,
             neighbours(n) + 2 * n),
        case("any pairs and rates", (b, h, length, 4 * n + 7), draw.places(length) * 15 + 1,
             strange[:n], any_pairs[: 2 * n].view(n, 2)),
        case("all sizes equal", (4, 4, 4, 4), draw.places(4), strange[:2], neighbours(2).flip(0)),
    ]  # fmt: skip


Rotation = tuple[Tensor, Tensor, Tensor, Tensor]


def overwritten(x: Tensor, p: Tensor, rates: Tensor, pairs: Tensor) -> Tensor:
    """The second component computed from the first one's new value."""
    first, second = pairs.unbind(1)
    angles = p[:, None] * rates
    out = x.clone()
    out[..., first] = out[..., first] * angles.cos() - out[..., second] * angles.sin()
    out[..., second] = out[..., first] * angles.sin() + out[..., second] * angles.cos()
    return out


def only_pairs(x: Tensor, p: Tensor, rates: Tensor, pairs: Tensor) -> Tensor:
    """Zeros where a component is in no pair."""
    alone = torch.ones(x.shape[-1])
    alone[pairs.flatten()] = 0
    return rope(x, p, rates, pairs) * (1 - alone)


def exchanged(x: Tensor, p: Tensor, rates: Tensor, pairs: Tensor) -> Tensor:
    """Sine in the place of cosine, and the other way round."""
    first, second = pairs.unbind(1)
    cos, sin = (p[:, None] * rates).sin(), (p[:, None] * rates).cos()
    out = x.clone()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def other_places(change: Answer) -> Answer:
    """Return an answer that rotates by other positions."""
    return lambda x, p, rates, pairs: rope(x, change(p), rates, pairs)


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
        Case(f"{heads} heads of queries and {keys} of keys, {rotary} of {dim} rows rotated, "
             f"{wide} inputs", (draw.normal(heads * dim, wide), draw.normal(keys * dim, wide),
                                dim, rotary))
        for heads, keys, dim, rotary, wide in sizes
    ]  # fmt: skip


def xpos_scores(
    q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, *, scale: float = 512.0,
    gamma: float = 0.4, on: str = "pairs", fades: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return xPos's scaled scores, from the distance of each query to each key."""
    d = q.shape[-1]
    back = (q_pos[:, None] - k_pos).double()[..., None]  # (Lq, Lk, 1)
    zeta = (torch.arange(0, d, 2).double() / d + gamma) / (1 + gamma)  # (d / 2,)
    if on == "halves":
        zeta = zeta.repeat(2).view(-1, 2).prod(1).sqrt()
    z = zeta ** (fades * back / scale) * torch.polar(torch.ones(()).double(),
                                                     back * frequencies(d, 10000.0))  # fmt: skip
    cq, ck = (torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous()) for x in (q, k))
    # Re(conj(q e^{i m w}) k e^{i n w}) = Re(conj(q) k e^{-i (m - n) w})
    result: Tensor = torch.einsum("bhir,bhjr,ijr->bhij", cq.conj(), ck, z.conj()).real / d**0.5
    return result.float()


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
        case("as many queries as keys", 5000 + draw.places(lq), 4900 + draw.places(lq), 64),
    ]


EXERCISES = (
    Exercise(
        name="apply_rope",
        cases=rope_cases,
        reference=rope,
        axes=("batch", "head", "position", "component"),
        mistakes=(
            Mistake("the pairs rotate the other way: (a, b) becomes (a cos - b sin, a sin + b cos)",
                    other_places(lambda p: -p)),
            Mistake("neighbours are rotated, whatever `pairs` says",
                    lambda x, p, r, c: rope(x, p, r, neighbours(len(c)))),
            Mistake("component j is rotated with j + n, whatever `pairs` says",
                    lambda x, p, r, c: rope(x, p, r, halves(len(c)))),
            Mistake("a pair is taken for (smaller, larger); its order tells the direction",
                    lambda x, p, r, c: rope(x, p, r, c.sort(1).values)),
            Mistake("components that are in no pair are lost; they stay as they are", only_pairs),
            Mistake("the second component of a pair is computed from the new first one",
                    overwritten),
            Mistake("cosine and sine are exchanged: at position 0 nothing must rotate", exchanged),
            Mistake("the sines are missing",
                    lambda x, p, r, c: rope(x, p, r, c, sines=0.0)),
            Mistake("you count the positions from 0 yourself: those given are ignored",
                    other_places(lambda p: torch.arange(len(p)))),
            Mistake("you take the first position and count on; there may be gaps",
                    other_places(lambda p: p[0] + torch.arange(len(p)))),
            Mistake("your positions are one too high", other_places(lambda p: p + 1)),
            Mistake("negative positions are taken as 0", other_places(lambda p: p.clamp(min=0))),
            Mistake("negative positions lose their sign", other_places(lambda p: p.abs())),
            Mistake("positions are cut to whole numbers; they may be fractions",
                    other_places(lambda p: p.long())),
            Mistake("the rates are computed from the width; take those that are given",
                    lambda x, p, r, c: rope(x, p, frequencies(2 * len(r), 10000.0), c)),
            Mistake("all pairs rotate equally fast; each has its own rate",
                    lambda x, p, r, c: rope(x, p, r[:1].expand(len(r)), c)),
            Mistake("the rates are put in falling order; each belongs to the pair of its row",
                    lambda x, p, r, c: rope(x, p, r.sort(descending=True).values, c)),
        ),
    ),
    Exercise(
        name="converted",
        cases=conversion_cases,
        reference=converted,
        axes=("row", "column"),
        mistakes=(
            Mistake("the keys are cut into as many heads as the queries have; they have fewer",
                    lambda q, k, d, r: (reordered(q, d, r), with_heads_of_q(q, k, d, r))),
            Mistake("all rows of a head are reordered; those from `rotary_dim` on do not rotate "
                    "and stay", lambda q, k, d, r: converted(q, k, d, d)),
            Mistake("only the queries' weight is converted",
                    lambda q, k, d, r: (reordered(q, d, r), k)),
            Mistake("only the keys' weight is converted",
                    lambda q, k, d, r: (q, reordered(k, d, r))),
            Mistake("this is the way back, from half-split to interleaved",
                    lambda q, k, d, r: (reordered(q, d, r, back=True),
                                        reordered(k, d, r, back=True))),
            Mistake("the rows of all heads are mixed; reorder within each head",
                    lambda q, k, d, r: (q[halves_order(len(q))], k[halves_order(len(k))])),
            Mistake("the odd rows come first; the even ones are the first halves of the pairs",
                    lambda q, k, d, r: (odd_first(q, d, r), odd_first(k, d, r))),
            Mistake("nothing is moved", lambda q, k, d, r: (q, k)),
            Mistake("the rows that do not rotate come first; they belong behind the others",
                    lambda q, k, d, r: tuple(
                        reordered(w, d, r).unflatten(0, (-1, d)).roll(d - r, 1).flatten(0, 1)
                        for w in (q, k))),
            Mistake("the two weights are exchanged: first the queries', then the keys'",
                    lambda q, k, d, r: converted(k, q, d, r)),
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
