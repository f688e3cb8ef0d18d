"""Checks of exercise set 5: Shaw's relative positions."""

from __future__ import annotations

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake
from pe_lib.encoding import relative_position
from pe_lib.shaw import clipped_row

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
    for sides, left, right in (
        ("a longer reach to the left", max(a, b), min(a, b)),
        ("a longer reach to the right", min(a, b), max(a, b)),
        ("both reaches alike", a, a), ("no reach to the left", 0, b),
        ("no reach to the right", a, 0),
    ):  # fmt: skip
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
            found.append(Case(f"{words}, {sides}", (counts,)))
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
        sizes = f", H, L, c, d = {(heads, tokens, c, d)}"
        return Case(words, (value + shares @ table, table), drawn=sizes)

    return [
        case("narrow heads", h, length, clip, 2 * clip + 1 + more, 1.0),
        case("wide heads", length, h, clip, 64, 4.0),
        case("one head", 1, 5, 2, 9, 2.0),
        case("as many rows as components", h, h, 2, 5, 1.0),
        case("few rows and many tokens", 2, 20, 1, 16, 8.0),
        case("more rows than a query meets", 3, 4, 6, 13, 1.0),
    ]  # fmt: skip


def apart(scores: Tensor) -> Tensor:
    """Return how far apart every two tokens of a shuffled text stand, (L, L)."""
    return between(ranks(across(scores)))


def sharing(scores: Tensor) -> tuple[int, Tensor, Tensor]:
    """Return a token at an end, and with how many keys each end shares each query's score."""
    same = scores[:, :, None] == scores[:, None]  # (query, key, key)
    end = int(same.sum(2).amax(1).argmax())
    near = same[:, end].sum(1)
    return end, near, same[:, int(near.argmax())].sum(1)


def across(scores: Tensor) -> Tensor:
    """Return a number of each token that grows from one end of the text to the other."""
    _, near, far = sharing(scores)
    return near - far


def ranks(x: Tensor) -> Tensor:
    """Return how many numbers are smaller than each; of equal ones the first is smaller."""
    return x.argsort(stable=True).argsort()


def between(place: Tensor) -> Tensor:
    """Return the distances of places, (L, L)."""
    return (place[:, None] - place).abs()


def clipped_alike(scores: Tensor) -> Tensor:
    """Take the reach on one side for that on both."""
    _, near, far = sharing(scores)
    clip = len(scores) - int(far.max())
    return between(torch.where(near > 1, near + clip - 1, len(scores) - clip - far))


def apart_cases(draw: Draw) -> list[Case]:
    """Clips alike and not, the nearest on a side; texts as short as can be, and long ones."""
    a, b = draw.sizes(2, 2, 6)
    calls = (
        ("both sides clipped alike", a, a, 2 * a + b), ("a long text", b, a, 60),
        ("a longer reach to the left", max(a, b), min(a, b), 2 * (a + b)),
        ("a longer reach to the right", min(a, b), max(a, b), 2 * (a + b)),
        ("left clipped at once", 1, b, 3 * b + a), ("right clipped at once", a, 1, 3 * a + b),
        ("the shortest text", a, b, a + b + 2),
    )  # fmt: skip
    found = []
    for words, left, right, length in calls:
        order = draw.order(length)
        row = relative_position(order, order).clamp(-left, right) + left
        by_row = draw.normal(length, 16).double() @ draw.normal(16, left + right + 1).double()
        found.append(Case(words, (by_row.gather(1, row) / 4,), drawn=f", {length} tokens"))
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
            *(Mistake("the word's value is still in your shares: scaling them to a sum of one does "
                      "not take it out", lambda o, t, to_one=to_one: to_one(
                          o @ torch.linalg.pinv(t)))
              for to_one in (lambda r: r / r.sum(-1, keepdim=True), lambda r: r.softmax(-1))),
            Mistake("the value has a part in every row, not only in that of the query's own place",
                    lambda o, t: completed(o @ torch.linalg.pinv(t))),
            Mistake("the first token's output is not the value alone: that token has looked, too",
                    lambda o, t: (o - o[:, :1]) @ torch.linalg.pinv(t)),
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
        name="apart",
        cases=apart_cases,
        reference=apart,
        integers=True,
        axes=("token", "token"),
        mistakes=(
            Mistake("these are the distances in the order in which the tokens came; they were "
                    "shuffled", lambda s: between(torch.arange(len(s)))),
            Mistake("a distance has no sign here; which end was the first cannot be known",
                    lambda s: ranks(across(s))[:, None] - ranks(across(s))),
            *(Mistake("you count along one end only; the queries that have nothing beyond the clip "
                      "there all count one key, and only the other end tells them apart",
                      lambda s, end=end: between(ranks(sharing(s)[1:][end]))) for end in (0, 1)),
            *(Mistake("the keys that share a score are counted, and the counts of neighbours may "
                      "differ by two, or by one: put the tokens in order, then number them",
                      lambda s, by=by: between(across(s)) // by) for by in (1, 2)),
            Mistake("you return the distances of the order: `argsort` says which token comes "
                    "first, second, ...; the place of each token is asked for",
                    lambda s: between(across(s).argsort())),
            *(Mistake("scores do not fall with distance: a larger one need not be nearer",
                      lambda s, query=query: between(ranks(s[query(s)])))
              for query in (lambda s: sharing(s)[0], lambda _: 0)),
            Mistake("your distances end where the clip begins: tokens farther apart are asked for, "
                    "too", lambda s: apart(s).clamp(max=len(s) - int(sharing(s)[2].max()))),
            Mistake("both sides are clipped alike in your answer; the two reaches may differ",
                    clipped_alike),
            Mistake("you count the tokens between two; neighbours are 1 apart, and not 0",
                    lambda s: (apart(s) - 1).clamp(min=0)),
        ),
    ),
)  # fmt: skip
