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


def clip_of(counts: Tensor) -> Reach:
    """Return how far the table reaches to the left and to the right."""
    return around((2 * counts.cumsum(0) < counts.sum()).sum(), counts)


def around(own: Tensor, counts: Tensor) -> Reach:
    """Return how many rows stand before that of relative position 0, and how many after."""
    return own, len(counts) - 1 - own


def clip_cases(draw: Draw) -> list[Case]:
    """Longer to the left, to the right, alike, nothing on one side; few texts and many."""
    a, b = draw.sizes(2, 2, 6)
    found = []
    for left, right in ((max(a, b), min(a, b)), (min(a, b), max(a, b)), (a, a), (0, b), (a, 0)):
        for words, count, longest in (("many texts", 40, 60), ("two texts", 2, 30),
                                      ("few distances", 40, 90)):  # fmt: skip
            counts = torch.zeros(left + right + 1, dtype=torch.long)
            counts[left] = 1  # a text of one token
            share = torch.rand(longest, generator=draw.generator)
            if words == "few distances":
                share = share.round()
            share[0] /= 8
            for length in torch.randint(2, longest + 1, (count,), generator=draw.generator):
                places = torch.arange(int(length))
                distance = relative_position(places, places)
                drawn = torch.rand(distance.shape, generator=draw.generator).triu()
                seen = drawn + drawn.triu(1).T < share[distance.abs()]  # of two, both or neither
                row = distance[seen].clamp(-left, right) + left
                counts += torch.bincount(row, minlength=len(counts))
            found.append(Case(words, (counts,)))
    return found


def looks(output: Tensor, table: Tensor) -> Tensor:
    """Return the share of the weight on each row of the table, (H, L, n)."""
    rows = output @ torch.linalg.pinv(table)
    return completed(rows - along(rows))


def along(rows: Tensor, left: int = 0, right: int = -1) -> Tensor:
    """Return what the value has along the rows: what queries have that cannot look there."""
    first, last = (rows[:, [query]] for query in (left, right))
    place = torch.arange(rows.shape[-1])
    return torch.where(place < len(place) // 2, first, last)


def completed(rows: Tensor) -> Tensor:
    """Let the middle row have what is left of one."""
    middle = torch.arange(rows.shape[-1]) == rows.shape[-1] // 2
    return torch.where(middle, 1 - (rows * ~middle).sum(-1, keepdim=True), rows)


def mended(output: Tensor, table: Tensor, rows: slice | list[int]) -> Tensor:
    """Take the value out of some rows only."""
    found: Tensor = output @ torch.linalg.pinv(table)
    found[..., rows] = looks(output, table)[..., rows]
    return found


def looks_cases(draw: Draw) -> list[Case]:
    """Narrow heads and wide ones, as many rows as components, one head, few tokens and many."""
    h, length, more, clip = draw.sizes(4, 3, 7)

    def case(words: str, heads: int, tokens: int, c: int, d: int, sharp: float) -> Case:
        table, value = draw.normal(2 * c + 1, d).double(), 2 * draw.normal(heads, 1, d).double()
        weights = (sharp * draw.normal(heads, tokens, tokens).double()).softmax(-1)
        places = torch.arange(tokens)
        row = clipped_row(relative_position(places, places), c).expand_as(weights)
        shares = weights.new_zeros(heads, tokens, len(table)).scatter_add(-1, row, weights)
        label = f"{words}, H, L, c, d = {(heads, tokens, c, d)}"
        return Case(label, (value + shares @ table, table))

    return [
        case("narrow heads", h, length, clip, 2 * clip + 1 + more, 1.0),
        case("wide heads", length, h, clip, 64, 4.0),
        case("one head", 1, 5, 2, 9, 2.0),
        case("as many rows as components", h, h, 2, 5, 1.0),
        case("few rows and many tokens", 2, 20, 1, 16, 8.0),
        case("more rows than a query meets", 3, 4, 6, 13, 1.0),
    ]  # fmt: skip


def table_of(scores: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int) -> Tensor:
    """Return what each query gets from each row of the table, (Lq, 2 clip + 1)."""
    return filled(*met_by(scores, q_pos, k_pos, clip))


def met_by(scores: Tensor, q_pos: Tensor, k_pos: Tensor, clip: int) -> tuple[Tensor, Tensor]:
    """Return the scores by query and row, 0 where there are none, and where there are some."""
    row = clipped_row(relative_position(q_pos, k_pos), clip)
    empty = scores.new_zeros(len(q_pos), 2 * clip + 1)
    return empty.scatter(1, row, scores), empty.scatter(1, row, 1.0) > 0


def filled(found: Tensor, met: Tensor, all_columns: bool = False) -> Tensor:
    """Fill the gaps of each query by a mixture of those that met all rows."""
    whole, result = found[met.all(1)], found.clone()
    for query, here in enumerate(met):
        used = here | all_columns
        mixture = found[query, used] @ torch.linalg.pinv(whole[:, used])
        result[query] = torch.where(here, found[query], mixture @ whole)
    return result


def copied(found: Tensor, met: Tensor) -> Tensor:
    """Fill the gaps of each query from the most similar one of those that met all rows."""
    whole = found[met.all(1)]
    far = ((whole - found[:, None]) * met[:, None]).norm(dim=-1)  # (Lq, whole)
    return torch.where(met, found, whole[far.argmin(1)])


def last_met(found: Tensor, met: Tensor) -> Tensor:
    """Fill each gap with the nearest row that the query met."""
    place = torch.arange(found.shape[1])
    near = (place - place[:, None]).abs() + 10_000 * ~met[:, None]  # (Lq, gap, row)
    return found.gather(1, near.argmin(-1))


def by_column(found: Tensor, met: Tensor) -> Tensor:
    """Fill each gap with the mean of the queries that met its row."""
    return torch.where(met, found, found.sum(0) / met.sum(0))


def table_cases(draw: Draw) -> list[Case]:
    """Whole texts, positions below 0 in any order, keys with holes, positions far apart."""
    found = []
    for place, (clip, d) in enumerate(zip(draw.sizes(4, 3, 6), (3, 4, 3, 2), strict=True)):
        run = torch.arange(2 * clip + d)  # in the middle, d queries meet all rows
        start, order = draw.integer(11, 40), draw.order(len(run))
        far = torch.cat([run[clip : clip + d], torch.tensor([FAR // 2, -FAR // 2])])
        words, q_pos, k_pos = (
            ("a text", run + start, run + start),
            ("a text below 0, in any order", run[order] - 700, run.flip(0) - 700),
            ("queries after a cache of keys", run[clip:] + 70_001, run + 70_001),
            ("keys far away on both sides", far, torch.cat([run, torch.tensor([FAR, -FAR])])),
        )[place]
        vectors = draw.normal(len(q_pos), d).double() @ draw.normal(d, 2 * clip + 1).double()
        row = clipped_row(relative_position(q_pos, k_pos), clip)
        found.append(Case(f"{words}, {len(q_pos)} queries, {len(k_pos)} keys, d {d}, clip {clip}",
                          (vectors.gather(1, row) * d**-0.5, q_pos, k_pos, clip)))  # fmt: skip
    return found


EXERCISES = (
    Exercise(
        name="clip_of",
        parts=(0, 1),
        cases=clip_cases,
        reference=clip_of,
        mistakes=(
            Mistake("left and right are exchanged: the rows begin with the farthest keys on the "
                    "left", lambda c: clip_of(c)[::-1]),
            Mistake("return how far it reaches, a number that is not negative; to the left you "
                    "return a relative position", lambda c: (-clip_of(c)[0], clip_of(c)[1])),
            Mistake("both sides get the same reach; they need not be alike",
                    lambda c: (len(c) // 2,) * 2),
            Mistake("the row with most pairs is often one at an end, which all farther pairs share",
                    lambda c: around(c.argmax(), c)),
            Mistake("the largest number between the ends need not be that of relative position 0: "
                    "few tokens may have seen themselves",
                    lambda c: around(c[1:-1].argmax() + 1, c)),
            Mistake("this is how many relative positions a side tells apart, distance 0 included; "
                    "the reach is one less", lambda c: tuple(n + 1 for n in clip_of(c))),
            Mistake("this is the last relative position before the end begins; the end itself is "
                    "asked for", lambda c: tuple(n - 1 for n in clip_of(c))),
            Mistake("this is the number of rows of the table", lambda c: (len(c),) * 2),
        ),
    ),
    Exercise(
        name="looks",
        cases=looks_cases,
        reference=looks,
        tolerance=1e-6,
        axes=("head", "query", "row"),
        mistakes=(
            Mistake("the word's value is still in your shares: it has a part along the rows, the "
                    "same for all queries of a head", lambda o, t: o @ torch.linalg.pinv(t)),
            Mistake("the mean over the queries is taken for the value",
                    lambda o, t: (o - o.mean(1, keepdim=True)) @ torch.linalg.pinv(t)),
            Mistake("the rows on the right still have the value in them: which query has nothing "
                    "to its right?", lambda o, t: mended(o, t, slice(None, len(t) // 2))),
            Mistake("the rows on the left still have the value in them: which query has nothing "
                    "to its left?", lambda o, t: mended(o, t, slice(len(t) // 2 + 1, None))),
            Mistake("the row of the query's own place still has the value in it; the weights of a "
                    "query sum to one", lambda o, t: mended(o, t, [
                        r for r in range(len(t)) if r != len(t) // 2])),
            Mistake("the first token has nothing to its left, the last one nothing to its right; "
                    "you exchange the two", lambda o, t: completed(
                        o @ torch.linalg.pinv(t) - along(o @ torch.linalg.pinv(t), -1, 0))),
            Mistake("the first token has nothing to its left, but it may look to its right",
                    lambda o, t: completed(
                        o @ torch.linalg.pinv(t) - along(o @ torch.linalg.pinv(t), 0, 0))),
            Mistake("this is a product with the table; the shares are what the table must be "
                    "multiplied with", lambda o, t: completed(o @ t.mT - along(o @ t.mT))),
            Mistake("the rows are in reverse order", lambda o, t: looks(o, t).flip(-1)),
        ),
    ),
    Exercise(
        name="table_of",
        cases=table_cases,
        reference=table_of,
        tolerance=1e-6,
        axes=("query", "row"),
        mistakes=(
            Mistake("rows that a query never met are left at 0", lambda *a: met_by(*a)[0]),
            Mistake("rows that a query never met get the mean of the queries that met them; each "
                    "query is another vector", lambda *a: by_column(*met_by(*a))),
            Mistake("rows that a query never met get the score of the nearest row that it met; "
                    "that is a clip, and the server has another", lambda *a: last_met(*met_by(*a))),
            Mistake("rows that a query never met get those of the most similar query; a mixture of "
                    "several is exact", lambda *a: copied(*met_by(*a))),
            Mistake("the mixture must fit the scores that a query has; yours takes the empty "
                    "places for zeros", lambda *a: filled(*met_by(*a), all_columns=True)),
            Mistake("the rows are in reverse order: relative positions are key minus query",
                    lambda *a: table_of(*a).flip(1)),
            Mistake("positions are counted from 0; use q_pos and k_pos",
                    lambda s, q, k, c: table_of(s, q - q.min(), k - k.min(), c)),
        ),
    ),
)  # fmt: skip
