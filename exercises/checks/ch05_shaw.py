"""Checks of exercise set 5: Shaw's relative positions."""

from __future__ import annotations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.positions import relative_position
from pe_lib.shaw import clipped_row

# A distance that comes out with the other sign in numbers of 8 bits, and in those of 16.
FAR = 38_600

Reach = tuple[Tensor, Tensor]


def around(draw: Draw, reach: int) -> list[tuple[str, Tensor, Tensor]]:
    """Return positions in which all distances up to `reach` occur, on both sides, and more."""
    run, start = torch.arange(2 * reach + 3), draw.integer(11, 40)
    middle = torch.tensor([reach + 1 - 12])  # 1 and 3 below zero for short reaches
    keys = torch.cat([middle + torch.arange(-reach, reach + 1), torch.tensor([FAR, -FAR])])
    some = run[draw.order(len(run))] - 700
    return [
        (f"{len(run)} queries and keys, positions from {start}", run + start, run + start),
        (f"one query at {int(middle)}, keys around it and far away", middle,
         keys[draw.order(len(keys))]),
        (f"{len(run)} queries and keys below 0, in any order", some, run.flip(0) - 700),
        ("three queries after a cache of keys", run[-reach - 3:-reach] + 70_001, run + 70_001),
    ]  # fmt: skip


def clip_of(scores: Tensor, q_pos: Tensor, k_pos: Tensor) -> Reach:
    """Return how far the table reaches to the left and to the right."""
    return reach_by(scores, relative_position(q_pos, k_pos))


def reach_by(scores: Tensor, distance: Tensor) -> Reach:
    """Return where the numbers of the two ends begin."""
    ends = [scores[distance == end][0] for end in (distance.min(), distance.max())]
    return -distance[scores == ends[0]].max(), distance[scores == ends[1]].min()


def clip_cases(draw: Draw) -> list[Case]:
    """Longer to the left, longer to the right, alike, and one side that is not told apart."""
    a, b = draw.sizes(2, 2, 6)
    found = []
    for left, right in ((max(a, b), min(a, b)), (min(a, b), max(a, b)), (a, a), (0, b)):
        for words, q_pos, k_pos in around(draw, max(left, right) + 3):
            numbers = draw.normal(left + right + 1)
            row = relative_position(q_pos, k_pos).clamp(-left, right) + left
            found.append(Case(words, (numbers[row], q_pos, k_pos)))
    return found


def looks(output: Tensor, value: Tensor, table: Tensor) -> Tensor:
    """Return the share of the weight on each row of the table, (H, L, n)."""
    result: Tensor = (output - value[:, None]) @ torch.linalg.pinv(table)
    return result


def looks_cases(draw: Draw) -> list[Case]:
    """Narrow heads and wide ones, as many rows as components, one head, one query."""
    h, length, more, half = draw.sizes(4, 3, 7)

    def case(words: str, heads: int, queries: int, n: int, d: int, sharp: float) -> Case:
        table, value = draw.normal(n, d).double(), 2 * draw.normal(heads, d).double()
        shares = (sharp * draw.normal(heads, queries, n).double()).softmax(-1)
        sizes = f"H, L, n, d = {(heads, queries, n, d)}"
        return Case(f"{words}, {sizes}", (value[:, None] + shares @ table, value, table))

    n = 2 * half + 1
    return [
        case("narrow heads", h, length, n, n + more, 1.0),
        case("wide heads", length, h, n, 64, 4.0),
        case("one head and one query", 1, 1, 5, 9, 2.0),
        case("as many heads as queries", h, h, 5, 6, 1.0),
        case("few rows and many queries", 2, 20, 3, 16, 8.0),
    ]  # fmt: skip


def table_of(
    q: Tensor, k: Tensor, logits: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int
) -> Tensor:
    """Return the table, (2 clip + 1, d)."""
    row = clipped_row(relative_position(q_pos, k_pos), clip)
    return solved(q, logits * q.shape[-1] ** 0.5 - q @ k.mT, row)


def solved(asked: Tensor, left: Tensor, row: Tensor) -> Tensor:
    """Return the vectors whose products with queries (B, Lq, d) come nearest to what is left."""
    found = []
    for r in range(int(row.max()) + 1):
        i, j = (row == r).nonzero().T
        goal = left[:, i, j].flatten()[:, None]
        found.append(torch.linalg.pinv(asked[:, i].flatten(0, 1)) @ goal)
    return torch.cat(found, dim=1).mT


def table_cases(draw: Draw) -> list[Case]:
    """Positions from 0, after a cache, below 0, far apart; more texts than components."""
    found = []
    for place, clip in enumerate(draw.sizes(4, 1, 5)):
        words, q_pos, k_pos = around(draw, clip + 1)[place]
        d = (3, 5, 8, 4)[place]
        batch = d + draw.integer(2, 5)
        q, k = (draw.normal(batch, len(p), d).double() for p in (q_pos, k_pos))
        table = draw.normal(2 * clip + 1, d).double()
        vectors = table[clipped_row(relative_position(q_pos, k_pos), clip)]
        logits = (q @ k.mT + torch.einsum("bid,ijd->bij", q, vectors)) * d**-0.5
        found.append(Case(f"{words}, {batch} texts, d {d}, clip {clip}",
                          (q, k, logits, q_pos, k_pos, clip)))  # fmt: skip
    return found


def normalized(shares: Tensor) -> Tensor:
    """Divide by the sum along the last axis."""
    return shares / shares.sum(-1, keepdim=True)


def counted(
    q: Tensor, k: Tensor, logits: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int
) -> Tensor:
    """Count the positions from 0; where a row of the table is not reached, it is 0."""
    own = table_of(q, k, logits, torch.arange(len(q_pos)), torch.arange(len(k_pos)), clip)
    return torch.cat([own, own.new_zeros(2 * clip + 1 - len(own), own.shape[1])])


def means(q: Tensor, k: Tensor, logits: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int) -> Tensor:
    """Average what is left of the scores times the query."""
    row = clipped_row(relative_position(q_pos, k_pos), clip)
    left = logits * q.shape[-1] ** 0.5 - q @ k.mT
    pairs = left[..., None] * q[:, :, None]  # (B, Lq, Lk, d)
    return torch.stack([pairs[:, row == r].mean((0, 1)) for r in range(2 * clip + 1)])


EXERCISES = (
    Exercise(
        name="clip_of",
        parts=(0, 1),
        cases=clip_cases,
        reference=clip_of,
        mistakes=(
            Mistake("left and right are exchanged: the left side is the past, keys before the "
                    "query", lambda s, q, k: clip_of(s, q, k)[::-1]),
            Mistake("return how far it reaches, a number that is not negative; to the left you "
                    "return a relative position",
                    lambda s, q, k: (-clip_of(s, q, k)[0], clip_of(s, q, k)[1])),
            Mistake("both sides get the larger reach; they need not be alike",
                    lambda s, q, k: (max(clip_of(s, q, k)),) * 2),
            Mistake("both sides get the smaller reach; they need not be alike",
                    lambda s, q, k: (min(clip_of(s, q, k)),) * 2),
            Mistake("this is how many relative positions a side tells apart, distance 0 included; "
                    "the reach is one less", lambda s, q, k: tuple(
                        n + 1 for n in clip_of(s, q, k))),
            Mistake("this is the last relative position before the end begins; the end itself is "
                    "asked for", lambda s, q, k: tuple(n - 1 for n in clip_of(s, q, k))),
            Mistake("these are the farthest keys there are; the table ends before",
                    lambda s, q, k: (-relative_position(q, k).min(),
                                     relative_position(q, k).max())),
            Mistake("this is the number of rows of the table", lambda s, q, k: (
                sum(clip_of(s, q, k)) + 1,) * 2),
            Mistake("positions are counted from 0; use q_pos and k_pos",
                    lambda s, q, k: reach_by(s, relative_position(
                        torch.arange(len(q)), torch.arange(len(k))))),
        ),
    ),
    Exercise(
        name="looks",
        cases=looks_cases,
        reference=looks,
        tolerance=1e-6,
        axes=("head", "query", "row"),
        mistakes=(
            Mistake("the word's value is still in what you take apart; subtract it first",
                    lambda o, v, t: o @ torch.linalg.pinv(t)),
            Mistake("this is a product with the table; the shares are what the table must be "
                    "multiplied with", lambda o, v, t: (o - v[:, None]) @ t.mT),
            Mistake("a product with the table, made to sum to one, is no solution of the system",
                    lambda o, v, t: normalized((o - v[:, None]) @ t.mT)),
            Mistake("a softmax of products with the table is no solution of the system",
                    lambda o, v, t: ((o - v[:, None]) @ t.mT).softmax(-1)),
            Mistake("the rows are in reverse order",
                    lambda o, v, t: looks(o, v, t).flip(-1)),
            Mistake("the value of the first head is taken from all; each has its own",
                    lambda o, v, t: looks(o, v[:1], t)),
            Mistake("the mean over the queries is taken for the value",
                    lambda o, v, t: looks(o, o.mean(1), t)),
            Mistake("the value is added; it is in the output already",
                    lambda o, v, t: looks(o, -v, t)),
            Mistake("all queries get the mean of what they look at",
                    lambda o, v, t: looks(o, v, t).mean(1, keepdim=True).expand(
                        -1, o.shape[1], -1)),
        ),
    ),
    Exercise(
        name="table_of",
        cases=table_cases,
        reference=table_of,
        tolerance=1e-6,
        axes=("row", "component"),
        mistakes=(
            Mistake("the rows are in reverse order: relative positions are key minus query",
                    lambda q, k, s, qp, kp, c: table_of(q, k, s, qp, kp, c).flip(0)),
            Mistake("the scores were divided by sqrt(d); undo it first",
                    lambda q, k, s, qp, kp, c: table_of(
                        q, k, s * q.shape[-1] ** -0.5 + q @ k.mT * (
                            q.shape[-1] ** -0.5 - 1 / q.shape[-1]), qp, kp, c)),
            Mistake("the scores were divided by sqrt(d), and so was q . k in them",
                    lambda q, k, s, qp, kp, c: solved(
                        q, s - q @ k.mT, clipped_row(relative_position(qp, kp), c))),
            Mistake("the contents are still in what you solve for: subtract q . k first",
                    lambda q, k, s, qp, kp, c: table_of(q, 0 * k, s, qp, kp, c)),
            Mistake("the vector is multiplied with the query; you solve as though it were with the "
                    "key", lambda q, k, s, qp, kp, c: solved(
                        k, (s * q.shape[-1] ** 0.5 - q @ k.mT).mT,
                        clipped_row(relative_position(qp, kp), c).mT)),
            Mistake("positions are counted from 0; use q_pos and k_pos", counted),
            Mistake("these are what the scores have in the mean; solve for the vectors",
                    lambda q, k, s, qp, kp, c: means(q, k, s, qp, kp, c)),
            Mistake("the table holds what is added to a key; yours has the key in it",
                    lambda q, k, s, qp, kp, c: table_of(q, k, s, qp, kp, c) + k.mean((0, 1))),
        ),
    ),
)  # fmt: skip
