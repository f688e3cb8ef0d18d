"""Checks of exercise set 10: rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.compare import ANY
from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope, layout_permutation
from pe_lib.sinusoidal import frequencies

Weights = tuple[Tensor, Tensor]


def factor_of(w: Tensor, v: Tensor, *, half: bool = False) -> Tensor:
    """Return the complex number by which each pair of rows was multiplied, (n,)."""
    z, u = (torch.complex(*(x.chunk(2) if half else (x[0::2], x[1::2]))) for x in (w, v))
    found: Tensor = (u * z.conj()).sum(1) / z.abs().square().sum(1)
    return found


def key_axes(w_q: Tensor, v_q: Tensor) -> Weights:
    """Return the angle and the factor of the keys: the angle is the queries' own."""
    c = factor_of(w_q, v_q)
    return c.angle(), 1 / c.abs()


def axes_cases(draw: Draw) -> list[Case]:
    """Angles of all quarters, longer and shorter ones; one pair, one input, a wide head."""
    n, inputs, more = draw.sizes(3, 4, 9)
    found = []
    for words, pairs, wide in (
        ("some pairs", n, inputs), ("one pair", 1, more), ("one input", more, 1),
        ("a wide head", 32, 2 * n),
    ):  # fmt: skip
        w = draw.normal(2 * pairs, wide).double()
        angle = 6.28 * torch.rand(pairs, generator=draw.generator).double() - 3.14
        angle[0] = 3.0 - pairs / 50  # the other side: no sine tells
        size = (draw.normal(pairs).double() * 0.8).exp() + 0.1
        a, b = size[:, None] * w[0::2], size[:, None] * w[1::2]
        c, s = angle.cos()[:, None], angle.sin()[:, None]
        v = torch.stack([a * c - b * s, a * s + b * c], 1).flatten(0, 1)
        found.append(Case(words, (w, v), drawn=f": n, D = {(pairs, wide)}"))
    return found


def listed(w_q: Tensor, w_k: Tensor, head_dim: int, n_groups: int, n_rotating: int = 0) -> Weights:
    """Return what the published listing makes of the weights."""
    return halves(w_q, head_dim), halves(pooled(w_k, head_dim, n_groups), head_dim)


def pooled(weight: Tensor, head_dim: int, n_groups: int) -> Tensor:
    """Return the mean of the heads of each group."""
    found: Tensor = weight.unflatten(0, (n_groups, -1, head_dim)).mean(1).flatten(0, 1)
    return found


def halves(weight: Tensor, head_dim: int, *, odd_first: bool = False) -> Tensor:
    """Put the even rows of each head first, then the odd ones; or the other way round."""
    order = layout_permutation(head_dim).roll(head_dim // 2 if odd_first else 0)
    found: Tensor = weight.unflatten(0, (-1, head_dim))[:, order].flatten(0, 1)
    return found


def together(
    w_q: Tensor, w_k: Tensor, head_dim: int, n_groups: int, n_rotating: int, *, half: bool = False,
    to: str = "first", alike: tuple[int, ...] = (), turn: tuple[int, int] = (1, 1),
    longer: bool = False, all_turn: bool = False, **standing: bool | int,
) -> Weights:  # fmt: skip
    """Bring the keys of each head nearest to those of the first of its group; queries follow."""
    order = layout_permutation(head_dim).argsort() if half else torch.arange(head_dim)
    edge = head_dim if all_turn else 2 * n_rotating
    q, k = (w.unflatten(0, (n_groups, -1, head_dim))[:, :, order] for w in (w_q, w_k))
    goal = k[:, :1] if to == "first" else k[:1, :1] if to == "of all" else k.mean(1, True)
    a, b, c, e = (x[:, :, i:edge:2] for x in (k, goal) for i in (0, 1))  # (G, H / G, r, D)
    cos, sin = (x.sum((-1, *alike), keepdim=True) for x in (a * c + b * e, a * e - b * c))
    if not longer:
        size = (cos.square() + sin.square()).sqrt()
        cos, sin = cos / size, sin / size
    still = reordered(q[:, :, edge:], k[:, :, edge:], goal[:, :, edge:], **standing)  # type: ignore[arg-type]
    found = []
    for w, moved, sign in zip((q, k), still, turn, strict=True):
        x, y = w[:, :, 0:edge:2], w[:, :, 1:edge:2]
        s = sign * sin
        turned = torch.stack([x * cos - y * s, x * s + y * cos], 3).flatten(2, 3)
        both = torch.cat([turned, moved], 2) if sign else w
        found.append(both[:, :, order.argsort()].flatten(0, 2))
    return found[0], found[1]


def reordered(
    q: Tensor, k: Tensor, goal: Tensor, *, moved: int = 2, signed: bool = True, back: bool = False,
) -> Weights:  # fmt: skip
    """Put rows (G, H / G, m, D) of keys where those of the goal are like them; queries follow."""
    if not moved or not k.numel():
        return q, k
    alike = goal @ k.mT  # (G, H / G, m, m)
    place = alike.abs().argmax(-1, keepdim=True)
    sign = alike.gather(-1, place).sign() if signed else 1
    place = (place.argsort(2) if back else place).expand_as(k)
    return sign * q.gather(2, place) if moved == 2 else q, sign * k.gather(2, place)


def converted(w_q: Tensor, w_k: Tensor, head_dim: int, n_groups: int, n_rotating: int,
              **how: object) -> Weights:  # fmt: skip
    """Bring the heads of a group together, then do what the listing does."""
    both = together(w_q, w_k, head_dim, n_groups, n_rotating, **how)  # type: ignore[arg-type]
    return listed(*both, head_dim, n_groups)


def other(**how: object) -> Answer:
    """Return a wrong answer that brings heads together in another way."""
    return lambda *args: converted(*args, **how)  # type: ignore[arg-type]


def then(rule: Answer) -> Answer:
    """Return a wrong answer that does something else with heads that were brought together."""
    return lambda q, k, d, g, r: rule(*together(q, k, d, g, r), d, g)


def scrambled(draw: Draw, heads: Tensor, edge: int) -> Tensor:
    """Give the rows from `edge` on of each head (H, d, D) an order and signs of their own."""
    heads = heads.clone()
    for head in heads:
        still = len(head) - edge
        head[edge:] = head[edge + draw.order(still)] * draw.normal(still, 1).sign()
    return heads


def conversion_cases(draw: Draw) -> list[Case]:
    """Groups of two heads, of more, one group, and as many as heads; few pairs rotate, or most."""
    n, inputs, more = draw.sizes(3, 3, 7)
    found = []
    # groups, heads of each, pairs, those that rotate
    for words, groups, each, pairs, r in (
        ("two heads in each group", 2, 2, n + 1, n - 1), ("many groups", more, 3, 4, 1),
        ("one group", 1, 4, 8, 5), ("as many groups as heads", 3, 1, more + 1, 2),
        ("four heads in each group", 2, 4, 5, 2),
    ):  # fmt: skip
        wide = 2 * pairs + inputs
        first = draw.normal(groups, 1, wide, 2 * pairs)
        first[..., 2 * r :] = wide**0.5 * torch.linalg.qr(first[..., 2 * r :]).Q  # none alike
        angles = 6.28 * torch.rand(groups, each, 1, pairs, generator=draw.generator)
        angles[..., r:] = 0
        asked = first.expand(-1, each, -1, -1)
        turned = apply_rope(asked, angles.expand(-1, -1, wide, -1)).mT.flatten(0, 1)
        keys = scrambled(draw, turned, 2 * r)  # the same in other axes, (H, d, D)
        w_k = (keys + 0.3 * draw.normal(*keys.shape)).flatten(0, 1)
        sizes = f": {groups * each} heads, width {2 * pairs}, {r} of {pairs} pairs rotate"
        args = (draw.normal(*w_k.shape), w_k, 2 * pairs, groups, r)
        found.append(Case(words, args, drawn=sizes))
    return found


def xpos_scores(
    q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, *, scale: float = 512.0,
    gamma: float = 0.4, on: str = "pairs", scales_pairs: float = 1.0,
) -> Tensor:  # fmt: skip
    """Return xPos's scores of rotated vectors, from the distance of each query to each key."""
    d = q.shape[-1]
    hidden = later(q, k, q_pos, k_pos)
    back = (q_pos[:, None] - k_pos).masked_fill(hidden, 0).double()[..., None]  # (Lq, Lk, 1)
    fading = rates(d, gamma, on) ** (scales_pairs * back / scale)
    result: Tensor = torch.einsum("bhid,bhjd,ijd->bhij", q.double(), k.double(), fading) / d**0.5
    return result.float().masked_fill(hidden, -torch.inf)


def rates(d: int, gamma: float = 0.4, on: str = "pairs") -> Tensor:
    """Return by how much each component fades in 512 tokens, (d,)."""
    zeta = (torch.arange(0, d, 2).double() / d + gamma) / (1 + gamma)
    return zeta.repeat(2) if on == "halves" else zeta.repeat_interleave(2)


def later(q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
    """Return which keys come after each query, (Lq, Lk)."""
    return k_pos > q_pos[:, None]


def with_a_number(number: float) -> Answer:
    """Return a wrong answer with a number in the place of minus infinity."""
    return lambda *args: xpos_scores(*args).masked_fill(later(*args), number)


def counted_from(place: Callable[[Tensor, Tensor], Tensor | int], on: str = "pairs") -> Answer:
    """Return a wrong answer that fades queries and keys by themselves, whatever it hides."""

    def answer(q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        zeta, start = rates(q.shape[-1], on=on), place(q_pos, k_pos)
        q, k = (x.double() * zeta ** (far.double()[:, None] / 512)
                for x, far in ((q, q_pos - start), (k, start - k_pos)))  # fmt: skip
        scores: Tensor = (q @ k.mT / q.shape[-1] ** 0.5).float()
        return scores.masked_fill(later(q, k, q_pos, k_pos), ANY)

    return answer


def hiding(hidden: Answer) -> Answer:
    """Return a wrong answer that hides other keys, and with what later ones are left is open."""
    return lambda *args: xpos_scores(*args).masked_fill(later(*args), ANY).masked_fill(
        hidden(*args), -torch.inf)  # fmt: skip


def xpos_cases(draw: Draw) -> list[Case]:
    """Near and far behind, at positions where powers overflow, and below 0."""
    b, h, lq, lk, half = draw.sizes(5, 3, 8)
    far = draw.integer(3_000_000, 8_000_000)
    run = torch.arange(lk)

    def case(words: str, q_pos: Tensor, k_pos: Tensor, d: int = 2 * half) -> Case:
        q, k = (draw.normal(b, h, len(p), d) for p in (q_pos, k_pos))
        return Case(words, (q, k, q_pos, k_pos), drawn=f", width {d}")

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


def once_more(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate x (B, H, L, d), neighbours being pairs."""
    d = x.shape[-1]
    return apply_rope(x.double(), positions[:, None] * frequencies(d)).float()


def by_factor(rule: Callable[[Tensor], Weights]) -> Answer:
    """Return a wrong answer that makes something else of the queries' factor."""
    return lambda w, v: rule(factor_of(w, v))


EXERCISES = (
    Exercise(
        name="key_axes",
        cases=axes_cases,
        reference=key_axes,
        tolerance=1e-8,  # no search over angles comes so near
        axes=("pair",),
        mistakes=(
            Mistake("this is what was done to the queries; where they became longer, the keys must "
                    "have become shorter", by_factor(lambda c: (c.angle(), c.abs()))),
            Mistake("the keys rotate the same way as the queries: a score keeps both in step",
                    by_factor(lambda c: (-c.angle(), 1 / c.abs()))),
            Mistake("the angle and the factor are exchanged: the angle comes first",
                    by_factor(lambda c: (1 / c.abs(), c.angle()))),
            Mistake("neighbouring rows are pairs; you pair row r with row r + n",
                    lambda w, v: (factor_of(w, v, half=True).angle(),
                                  1 / factor_of(w, v, half=True).abs())),
            Mistake("each pair has an angle of its own; you give all of them one",
                    by_factor(lambda c: (c.sum().angle().expand(len(c)), 1 / c.abs()))),
            Mistake("each pair has a factor of its own; you give all of them one",
                    by_factor(lambda c: (c.angle(), (1 / c.abs().mean()).expand(len(c))))),
            Mistake("from the tangent alone one cannot tell more than a quarter turn from less",
                    by_factor(lambda c: ((c.imag / c.real).atan(), 1 / c.abs()))),
            Mistake("from the cosine alone one cannot tell a rotation from the same one back",
                    by_factor(lambda c: ((c.real / c.abs()).acos(), 1 / c.abs()))),
            Mistake("angles are wanted from -pi to pi; yours are from 0 to two pi",
                    by_factor(lambda c: (c.angle() % math.tau, 1 / c.abs()))),
            Mistake("angles are wanted in radians; yours are in degrees",
                    by_factor(lambda c: (c.angle().rad2deg(), 1 / c.abs()))),
            Mistake("the sum of squares grows with the square of the factor",
                    by_factor(lambda c: (c.angle(), 1 / c.abs().square()))),
            Mistake("once a pair is rotated, one of its rows alone does not tell how much longer "
                    "it is; take both",
                    lambda w, v: (key_axes(w, v)[0], w[0::2].norm(dim=1) / v[0::2].norm(dim=1))),
        ),
    ),
    Exercise(
        name="converted",
        cases=conversion_cases,
        reference=converted,
        axes=("row", "column"),
        mistakes=(
            Mistake("this is what the listing returns: nothing is brought together yet", listed),
            Mistake("a head's queries must rotate with its keys, or its scores change",
                    other(turn=(0, 1))),
            Mistake("the keys themselves have to be rotated before their mean is taken, too",
                    other(turn=(1, 0))),
            Mistake("the queries are rotated against their keys; both by the same angle",
                    other(turn=(-1, 1))),
            Mistake("the angle has the wrong sign: the heads are rotated further apart",
                    other(turn=(-1, -1))),
            Mistake("in the old code neighbours are pairs; you pair row r with row r + d/2",
                    other(half=True)),
            Mistake("all pairs of a head are rotated alike; each has an angle of its own",
                    other(alike=(2,))),
            Mistake("each group has a first head of its own; you take the first head of all",
                    other(to="of all")),
            Mistake("heads in other axes have no mean worth coming near to; take the first head",
                    other(to="mean")),
            Mistake("a rotation keeps lengths: divide cosine and sine by their common size",
                    other(longer=True)),
            Mistake("components that stand still are left where they are; each head has them in an "
                    "order of its own, with signs of its own", other(moved=0)),
            Mistake("components that stand still are treated like pairs that rotate; no rotation "
                    "of a pair brings another order back", other(all_turn=True)),
            Mistake("the order is mended, and the signs are not: a product below 0 is a likeness, "
                    "too", other(signed=False)),
            Mistake("the order is the wrong way round: ask for each component of the first head "
                    "where the other head has it", other(back=True)),
            Mistake("rows of queries that stand still must move along with those of the keys",
                    other(moved=1)),
            Mistake("nothing is moved: the new code rotates halves, so the even rows go first",
                    then(lambda q, k, d, g: (q, pooled(k, d, g)))),
            Mistake("the rows of all heads are mixed; reorder within each head",
                    then(lambda q, k, d, g: (q[layout_permutation(len(q))],
                                             pooled(k, d, g)[layout_permutation(g * d)]))),
            Mistake("the odd rows come first; the even ones are the first halves of the pairs",
                    then(lambda q, k, d, g: (halves(q, d, odd_first=True), halves(
                        pooled(k, d, g), d, odd_first=True)))),
            Mistake("the two weights are exchanged: first the queries', then the keys'",
                    lambda *a: converted(*a)[::-1]),
        ),
    ),
    Exercise(
        name="xpos_scores",
        cases=xpos_cases,
        reference=xpos_scores,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("the scores grow with the distance; those of keys further back fade",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, scales_pairs=-1.0)),
            Mistake("nothing fades and nothing is hidden: these are RoPE's scores without a mask",
                    lambda q, k, m, n: q @ k.mT / q.shape[-1] ** 0.5),
            *(Mistake("far from the position that you count from, one factor is infinite and the "
                      "other 0, and their product is NaN: no such position is near all others, so "
                      "each score needs its own distance", counted_from(place, on))
              for place, on in (
                  (lambda m, n: 0, "pairs"), (lambda m, n: 0, "halves"),
                  (lambda m, n: n.max(), "pairs"), (lambda m, n: n[-1], "pairs"),
                  (lambda m, n: n.min(), "pairs"), (lambda m, n: m.max(), "pairs"),
                  (lambda m, n: m.min(), "pairs"), (lambda m, n: m[0], "pairs"))),
            Mistake("0 times infinity is NaN: let `masked_fill` put minus infinity in place, or "
                    "`where`", lambda *a: xpos_scores(*a) + later(*a) * -torch.inf),
            Mistake("the mask counts rows and columns: compare k_pos with q_pos", hiding(
                lambda q, k, m, n: torch.arange(len(n)) > torch.arange(len(m))[:, None])),
            *(Mistake("the mask is the wrong way round: it hides keys that may be seen",
                      hiding(hidden))
              for hidden in (lambda q, k, m, n: n <= m[:, None],
                             lambda q, k, m, n: n < m[:, None])),
            Mistake("nothing fades: these are RoPE's scores",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, scales_pairs=0.0)),
            Mistake("the scores fade at each token; the exponent is the distance over 512",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, scale=1.0)),
            Mistake("the factor is applied twice, to the query and to the key with the whole "
                    "distance", lambda q, k, m, n: xpos_scores(q, k, m, n, scales_pairs=2.0)),
            Mistake("gamma is missing: the fastest pair is lost at any distance but 0",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, gamma=0.0)),
            Mistake("the factors stand in the half-split order, and the pairs are neighbours",
                    lambda q, k, m, n: xpos_scores(q, k, m, n, on="halves")),
            Mistake("queries and keys have been rotated already; you rotate them once more",
                    lambda q, k, m, n: xpos_scores(once_more(q, m), once_more(k, n), m, n)),
            *(Mistake("where a key is not seen, the score is minus infinity itself: a large number "
                      "is a score like others", with_a_number(number))
              for number in (-1e9, -3.4028234663852886e38)),  # the least of float32
            Mistake("a query sees the key at its own place, too: only later keys are hidden",
                    lambda q, k, m, n: xpos_scores(q, k, m, n).masked_fill(
                        n >= m[:, None], -torch.inf)),
            Mistake("a key that comes after a query is not seen: minus infinity",
                    with_a_number(ANY)),
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
