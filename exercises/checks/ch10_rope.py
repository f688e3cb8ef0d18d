"""Checks of exercise set 10: rotary positions."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope, layout_permutation, rope_angles
from pe_lib.sinusoidal import frequencies

FAR = 1e-2  # whoever writes a cosine as a shifted sine rounds the angle there


def rope(
    x: Tensor, positions: Tensor, base: float, layout: str = "interleaved", power: float = 1.0
) -> Tensor:
    """Rotate x (B, H, L, d); `power` changes the exponent of the frequencies."""
    rates = frequencies(x.shape[-1], base) ** power
    return apply_rope(x, rope_angles(positions, rates), layout)


def rope_cases(draw: Draw) -> list[Case]:
    """Positions shared by the batch, and not; fractions, some below 0; far ones; a wide head.

    With width 2 the only frequency is 1, so single precision has far angles right.
    """
    b, h, length, half = draw.sizes(4, 3, 8)
    start, far = draw.integer(11, 40), 2 * draw.integer(35_000, 49_000) + 1
    near = torch.arange(start, start + 3)
    shared = torch.arange(start, start + length)
    jumps = torch.tensor([0, 1, far, 300, 8193, 2500, 17_001])
    x, y, z = (draw.normal(b, h, length, 2 * half) for _ in range(3))
    return [
        Case(f"positions from {start}, dim {2 * half} and base 10000", (x, shared, 10000.0)),
        Case(f"positions of shape {(b, length)}, dim {2 * half} and base 500",
             (y, draw.places(b, length), 500.0)),
        Case(f"positions {jumps.tolist()}, dim 2", (draw.normal(2, 3, 7, 2), jumps, 10000.0),
             FAR),
        Case(f"fractions of shape {(b, length)}, some below 0, dim {2 * half} and base 1000",
             (z, signed(draw.places(b, length) / 4), 1000.0)),
        Case(f"positions from {start}, one wide head, dim 256 and base 500000",
             (draw.normal(2, 1, 3, 256), near, 500000.0)),
        Case("positions of shape (1, 6), 16 heads, dim 8 and base 10000",
             (draw.normal(1, 16, 6, 8), draw.places(1, 6), 10000.0)),
        Case("positions of shape (4, 4), 4 heads, dim 4 and base 10000",
             (draw.normal(4, 4, 4, 4), draw.places(4, 4), 10000.0)),
        Case("one position, dim 6 and base 10000", (draw.normal(3, 2, 1, 6), near[:1], 10000.0)),
    ]  # fmt: skip


def signed(positions: Tensor) -> Tensor:
    """Return positions of which every other one is negative."""
    return positions * (-1) ** torch.arange(positions.shape[-1])


def counted(axis: int, start: int = 0) -> Answer:
    """Return a wrong answer that counts positions along an axis of x."""

    def answer(x: Tensor, positions: Tensor, base: float) -> Tensor:
        places = torch.arange(start, start + x.shape[axis]).view(-1, *[1] * (2 - axis))
        angles = places.expand(x.shape[:-1])[..., None] * frequencies(x.shape[-1], base)
        return rotated(x, angles.cos(), angles.sin())

    return answer


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate neighbouring pairs with one cosine and one sine for each pair."""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)


def angles_for(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Return angles that broadcast with pairs of x: (L, d / 2) or (B, 1, L, d / 2)."""
    angles = rope_angles(positions, frequencies(x.shape[-1], base))
    return angles if angles.ndim == 2 else angles[:, None]


def mixed(x: Tensor, positions: Tensor, base: float, pairs_are_halves: bool) -> Tensor:
    """Pair components in one layout, and lay the table out in the other."""
    angles = angles_for(x, positions, base)
    if pairs_are_halves:
        table = angles.repeat_interleave(2, -1)
        half = x.shape[-1] // 2
        partner = torch.cat([-x[..., half:], x[..., :half]], -1)
    else:
        table = torch.cat([angles, angles], -1)
        partner = torch.stack([-x[..., 1::2], x[..., 0::2]], -1).flatten(-2)
    return (x * table.cos() + partner * table.sin()).to(x.dtype)


def no_rotation(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Both sines with a plus sign."""
    angles = angles_for(x, positions, base)
    a, b, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
    return torch.stack([a * cos + b * sin, a * sin + b * cos], -1).flatten(-2)


def only_cosine(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """The sines forgotten."""
    angles = angles_for(x, positions, base)
    return rotated(x, angles.cos(), angles.cos() * 0)


def exchanged(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Sine in the place of cosine, and the other way round."""
    angles = angles_for(x, positions, base)
    return rotated(x, angles.sin(), angles.cos())


def put_back_as_halves(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """All first components, then all second ones."""
    y = rope(x, positions, base)
    return torch.cat([y[..., 0::2], y[..., 1::2]], -1)


def growing(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """Frequencies that grow; in float32, as written: the angles are too large to be exact."""
    angles = positions[..., None] * base ** (torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angles = angles if angles.ndim == 2 else angles[:, None]
    return rotated(x, angles.cos(), angles.sin())


def overwritten(x: Tensor, positions: Tensor, base: float) -> Tensor:
    """The second component computed from the first one's new value."""
    angles = angles_for(x, positions, base)
    a, b, cos, sin = x[..., 0::2], x[..., 1::2], angles.cos(), angles.sin()
    first = a * cos - b * sin
    return torch.stack([first, first * sin + b * cos], -1).flatten(-2)


def logits(q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, base: float = 10000.0) -> Tensor:
    """Return the scaled scores of rotated queries and keys."""
    result: Tensor = rope(q, q_pos, base) @ rope(k, k_pos, base).mT * q.shape[-1] ** -0.5
    return result


def logits_cases(draw: Draw) -> list[Case]:
    """A step of decoding after a cache, a whole sequence, gaps, and positions below 0."""
    b, h, lq, lk, half = draw.sizes(5, 3, 8)
    start = draw.integer(11, 40)
    whole, cached = torch.arange(lk), torch.arange(start, start + lk)
    wide, far = signed(draw.places(lq) * 7), draw.places(lk) * 9

    def vectors(length: int, b: int = b, h: int = h, d: int = 2 * half) -> Tensor:
        return draw.normal(b, h, length, d)

    return [
        Case("far apart, width 2", (draw.normal(1, 2, 4, 2), draw.normal(1, 2, 5, 2),
                                    torch.tensor([0, 9001, 70_001, 5]),
                                    torch.tensor([3, 35_001, 70_000, 8192, 1025])), FAR),
        Case("all positions from 0", (vectors(lk), vectors(lk), whole, whole)),
        Case(f"queries from position {start + lk}, keys from {start}",
             (vectors(lq), vectors(lk), torch.arange(start + lk, start + lk + lq), cached)),
        Case(f"queries at {wide.tolist()}, keys at {far.tolist()}",
             (vectors(lq), vectors(lk), wide, far)),
        Case("one head, 1 query and 20 keys",
             (vectors(1, 1, 1, 64), vectors(20, 1, 1, 64), cached[-1:], torch.arange(20))),
        Case("16 heads, 6 queries and 4 keys",
             (vectors(6, 1, 16, 4), vectors(4, 1, 16, 4), draw.places(6), draw.places(4))),
    ]  # fmt: skip


def from_zero(positions: Tensor) -> Tensor:
    """Return 0, 1, 2, ..., as many as there are positions."""
    return torch.arange(len(positions))


def counted_on(positions: Tensor) -> Tensor:
    """Return the first position, and each next one by one more."""
    return positions[:1] + from_zero(positions)


def half_split_weights(weight: Tensor, n_heads: int) -> Tensor:
    """Reorder the rows of each head: even ones first, then odd ones."""
    per_head = weight.unflatten(0, (n_heads, -1))
    result: Tensor = per_head[:, layout_permutation(per_head.shape[1])].flatten(0, 1)
    return result


def weights_cases(draw: Draw) -> list[Case]:
    """As many inputs as outputs, more, fewer, one; heads of width 2 and 6; a single head."""
    heads, half, width = draw.sizes(3, 3, 8)
    sizes = (
        (heads, half, 2 * width + 21), (heads + 1, half + 1, 5), (heads, 4, 8 * heads),
        (heads, 1, width), (2, 3, 2 * width + 21), (1, half, 1),
    )  # fmt: skip
    return [
        Case(f"{n} heads of width {2 * pairs}, {inputs} inputs",
             (draw.normal(n * 2 * pairs, inputs), n))
        for n, pairs, inputs in sizes
    ]  # fmt: skip


def by_head(weight: Tensor, n_heads: int, order: Tensor) -> Tensor:
    """Reorder the rows of each head in another order."""
    result: Tensor = weight.unflatten(0, (n_heads, -1))[:, order].flatten(0, 1)
    return result


def per_width(weight: Tensor, n_heads: int) -> int:
    """Return the width of a head."""
    return len(weight) // n_heads


EXERCISES = (
    Exercise(
        name="apply_rope",
        cases=rope_cases,
        reference=rope,
        axes=("batch", "head", "position", "component"),
        mistakes=(
            Mistake("the pairs rotate the other way: (a, b) becomes (a cos - b sin, a sin + b cos)",
                    lambda x, p, b: rope(x, -p, b)),
            Mistake("the rotation is right, but the pairs are put back as halves, the first "
                    "components and then the second; those of a pair must be neighbours again",
                    put_back_as_halves),
            Mistake("this is the half-split layout: legal, but this exercise asks for interleaved "
                    "pairs (0, 1), (2, 3), ...", lambda x, p, b: rope(x, p, b, "half")),
            Mistake("this is the half-split layout, and it rotates the other way",
                    lambda x, p, b: rope(x, -p, b, "half")),
            Mistake("the layouts are mixed: the pairs are neighbours, but the angles stand in "
                    "the half-split order", lambda x, p, b: mixed(x, p, b, False)),
            Mistake("the layouts are mixed: the angles stand in the interleaved order, but "
                    "component j is paired with j + d/2", lambda x, p, b: mixed(x, p, b, True)),
            Mistake("you count the positions from 0 yourself: the offset is ignored",
                    counted(2)),
            Mistake("your positions start at 1, and you count them yourself; use those given",
                    counted(2, 1)),
            Mistake("your positions come from the batch axis", counted(0)),
            Mistake("your positions come from the axis of the heads",
                    counted(1)),
            Mistake("your positions are one too high", lambda x, p, b: rope(x, p + 1, b)),
            Mistake("negative positions are taken as 0",
                    lambda x, p, b: rope(x, p.clamp(min=0), b)),
            Mistake("negative positions lose their sign", lambda x, p, b: rope(x, p.abs(), b)),
            Mistake("positions are cut to whole numbers; they may be fractions",
                    lambda x, p, b: rope(x, p.long(), b)),
            Mistake("the exponent is j/d; it must be 2j/d for pair j",
                    lambda x, p, b: rope(x, p, b, power=0.5)),
            Mistake("the exponent is 4j/d: 2j is already the index of the component",
                    lambda x, p, b: rope(x, p, b, power=2.0)),
            Mistake("the frequencies grow with j: the sign of the exponent is missing", growing),
            Mistake("the base is an argument; you use 10000 always",
                    lambda x, p, b: rope(x, p, 10000.0)),
            Mistake("both sines have a plus sign, so this is no rotation", no_rotation),
            Mistake("the sines are missing", only_cosine),
            Mistake("cosine and sine are exchanged: at position 0 nothing must rotate", exchanged),
            Mistake("the second component of a pair is computed from the new first one",
                    overwritten),
            Mistake("all pairs rotate equally fast; each has its own frequency",
                    lambda x, p, b: rope(x, p, 1 + 1e-12)),
        ),
    ),
    Exercise(
        name="rope_logits",
        rests_on=("apply_rope",),
        cases=logits_cases,
        reference=logits,
        axes=("batch", "head", "query", "key"),
        mistakes=(
            Mistake("the keys rotate the other way, so the score depends on the sum of the "
                    "positions", lambda q, k, qp, kp: logits(q, k, qp, -kp)),
            Mistake("the queries rotate the other way, so the score depends on the sum of the "
                    "positions", lambda q, k, qp, kp: logits(q, k, -qp, kp)),
            Mistake("queries and keys both rotate backwards: the scores depend on the difference, "
                    "but on its negative", lambda q, k, qp, kp: logits(q, k, -qp, -kp)),
            Mistake("this is what the listing returns: nothing is mended yet",
                    lambda q, k, qp, kp: logits(q, k, from_zero(qp), -kp)),
            Mistake("the offset of the cache is ignored: queries are counted from 0",
                    lambda q, k, qp, kp: logits(q, k, from_zero(qp), kp)),
            Mistake("the offset of the cache is ignored: keys are counted from 0",
                    lambda q, k, qp, kp: logits(q, k, qp, from_zero(kp))),
            Mistake("queries and keys are both counted from 0; use q_pos and k_pos",
                    lambda q, k, qp, kp: logits(q, k, from_zero(qp), from_zero(kp))),
            Mistake("queries and keys are each counted from their own first position; what "
                    "matters is the difference between the two",
                    lambda q, k, qp, kp: logits(q, k, qp - qp[0], kp - kp[0])),
            Mistake("you take the first position and count on by one; there may be gaps",
                    lambda q, k, qp, kp: logits(q, k, counted_on(qp), counted_on(kp))),
            Mistake("you take the first query's position and count on by one; there may be gaps",
                    lambda q, k, qp, kp: logits(q, k, counted_on(qp), kp)),
            Mistake("you take the first key's position and count on by one; there may be gaps",
                    lambda q, k, qp, kp: logits(q, k, qp, counted_on(kp))),
            Mistake("only the queries are rotated",
                    lambda q, k, qp, kp: logits(q, k, qp, 0 * kp)),
            Mistake("only the keys are rotated",
                    lambda q, k, qp, kp: logits(q, k, 0 * qp, kp)),
            Mistake("neither queries nor keys are rotated",
                    lambda q, k, qp, kp: logits(q, k, 0 * qp, 0 * kp)),
            Mistake("negative positions are taken as 0",
                    lambda q, k, qp, kp: logits(q, k, qp.clamp(min=0), kp.clamp(min=0))),
            Mistake("the factor 1/sqrt(d) is missing",
                    lambda q, k, qp, kp: logits(q, k, qp, kp) * q.shape[-1] ** 0.5),
            Mistake("the factor 1/sqrt(d) is applied to queries and keys, so twice",
                    lambda q, k, qp, kp: logits(q, k, qp, kp) * q.shape[-1] ** -0.5),
            Mistake("the keys are rotated twice: the cache holds them as projected",
                    lambda q, k, qp, kp: logits(q, k, qp, 2 * kp)),
        ),
    ),
    Exercise(
        name="half_split_weights",
        cases=weights_cases,
        reference=half_split_weights,
        axes=("row", "column"),
        mistakes=(
            Mistake("this is the way back, from half-split to interleaved",
                    lambda w, n: by_head(w, n, layout_permutation(per_width(w, n)).argsort())),
            Mistake("the rows of all heads are mixed; reorder within each head",
                    lambda w, n: half_split_weights(w, 1)),
            Mistake("the way back, and the rows of all heads are mixed",
                    lambda w, n: by_head(w, 1, layout_permutation(len(w)).argsort())),
            Mistake("the odd rows come first; the even ones are the first halves of the pairs",
                    lambda w, n: by_head(w, n, layout_permutation(per_width(w, n)).roll(
                        per_width(w, n) // 2))),
            Mistake("nothing is moved", lambda w, n: w),
            Mistake("each head is split in the middle and its halves are swapped",
                    lambda w, n: by_head(w, n, torch.arange(per_width(w, n)).roll(
                        per_width(w, n) // 2))),
            Mistake("the rows of each head are reversed",
                    lambda w, n: by_head(w, n, torch.arange(per_width(w, n)).flip(0))),
            Mistake("the columns are reordered; the rows are the outputs",
                    lambda w, n: w[:, torch.cat([torch.arange(0, w.shape[1], 2),
                                                 torch.arange(1, w.shape[1], 2)])]),
            Mistake("neighbouring rows are exchanged; wanted is even rows first, then odd ones",
                    lambda w, n: w.unflatten(0, (-1, 2)).flip(1).flatten(0, 1)),
        ),
    ),
)  # fmt: skip
