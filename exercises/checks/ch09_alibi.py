"""Checks of exercise set 9: ALiBi."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake

Heads = tuple[Tensor, Tensor]


def left_out(outs: Tensor, logs: Tensor, whole: Tensor) -> Tensor:
    """Return what each block has left out of its logits, up to a number of the head, (n, H, 1)."""
    return shares_of(outs, whole).log()[..., None] - logs[..., -1:]


def shares_of(outs: Tensor, whole: Tensor) -> Tensor:
    """Return the shares of the blocks of which the last query's output is made, (n, H)."""
    system = torch.cat([outs[:, :, -1], torch.ones_like(outs[:, :, -1, :1])], -1)  # (n, H, d + 1)
    wanted = torch.cat([whole, torch.ones_like(whole[:, :1])], -1)[..., None]
    found: Tensor = torch.linalg.lstsq(system.permute(1, 2, 0), wanted).solution[..., 0]
    return found.T


def merged(outs: Tensor, logs: Tensor, whole: Tensor) -> Tensor:
    """Return the outputs of attention to the keys of all blocks, (H, Lq, d)."""
    return together(outs, logs + left_out(outs, logs, whole))


def together(outs: Tensor, logs: Tensor, axis: int = 0) -> Tensor:
    """Add up the blocks by their shares, what is not seen counting nothing."""
    return (logs.softmax(axis)[..., None] * outs.nan_to_num()).sum(0)


def by_shift(change: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Answer:
    """Return a wrong answer that adds something else to the logarithms."""
    return lambda o, z, w: together(o, z + change(o, z, w))


def block_cases(draw: Draw) -> list[Case]:
    """Two blocks and many, in any order, with gaps; one head and many."""
    h, few, more = draw.sizes(3, 3, 7)
    found = []
    for words, count, heads, size in (
        ("two blocks", 2, h, more), ("many blocks", more, h + 1, few), ("one head", 3, 1, 2),
        ("as many blocks as heads", few, few, 4), ("one key in each block", 5, 8, 1),
    ):  # fmt: skip
        places = (torch.arange(count) * (size + 2))[:, None] + torch.arange(size)  # (n, S)
        places = places[draw.order(count) if count > 2 else torch.tensor([1, 0])]
        slopes = drawn_slopes(draw, heads)[:, None, None] / 8
        q_pos = places.max() - torch.tensor([size + 2, 1, size, 0])
        v = draw.normal(count, heads, size, count + 3).double()
        logits = 2 * draw.normal(count, heads, 4, size).double()
        logits = logits.masked_fill((places[:, None] > q_pos[:, None])[:, None], -torch.inf)
        all_keys = (logits + slopes * places[:, None, None]).movedim(0, 2).flatten(2).softmax(-1)
        whole = all_keys[:, -1:] @ v.movedim(0, 1).flatten(1, 2)  # (H, 1, d)
        logits = logits + slopes * torch.arange(size)
        given = logits.softmax(-1) @ v, logits.logsumexp(-1), whole[:, 0]
        found.append(Case(words, given, drawn=f", H = {heads}"))
    return found


def drawn_slopes(draw: Draw, heads: int) -> Tensor:
    """Return slopes that no formula gives."""
    return 0.05 + torch.rand(heads, generator=draw.generator).double()


def slope_cases(draw: Draw) -> list[Case]:
    """Gaps that opened and gaps that closed, one head and many, a head without a slope."""
    h, length, more = draw.sizes(3, 4, 9)

    def case(words: str, heads: int, queries: int, first: Tensor, second: Tensor) -> Case:
        slopes = drawn_slopes(draw, heads)
        slopes[draw.integer(0, heads - 1)] *= float(heads == 1)
        words_say = 2 * draw.normal(heads, queries, len(first)).double()
        last = torch.arange(len(first) - queries, len(first))[draw.order(queries)]
        hidden = torch.arange(len(first)) > last[:, None]
        weights = [
            (words_say + slopes[:, None, None] * places).masked_fill(hidden, -torch.inf).softmax(-1)
            for places in (first, second)
        ]
        return Case(words, (*weights, first, second), drawn=f", H = {heads}")

    run, gap = torch.arange(length), draw.integer(5, 20)
    late, long = run + gap * (run > 1), torch.arange(3 * more)
    return [
        case("a gap in the second text", h, length, run, late),
        case("a gap that was closed", h + 1, length, 3 * late, 3 * run + 700),
        case("a gap opened, one closed, both ends moved alike", 8, more, long + 9 * (long > 2),
             long + 9 * (long > more)),
        case("one head, positions far out", 1, length, run + 50_000, late * 2),
    ]  # fmt: skip


def slopes_of(
    first: Tensor, second: Tensor, first_pos: Tensor, second_pos: Tensor, row: int | None = None
) -> Tensor:
    """Return the slope of each head, read in the row that sees all keys, or in another one."""
    change, moved = looks(first, second, first_pos, second_pos, row)
    early, late = moved.argmin(), moved.argmax()
    return (change[:, late] - change[:, early]) / (moved[late] - moved[early])


def looks(first: Tensor, second: Tensor, p: Tensor, moved: Tensor, row: int | None = None) -> Heads:
    """Return by how much logits and positions changed in the row that sees most, or another."""
    row = int((first[0] > 0).sum(1).argmax()) if row is None else row
    return second[:, row].log() - first[:, row].log(), (moved - p).double()


def read_in(row: int) -> Answer:
    """Return a wrong answer that reads one row, whatever it sees."""
    return lambda a, b, p, m: slopes_of(a, b, p, m, row)


def from_first(w: Tensor, p: Tensor) -> Tensor:
    """Return the slopes that one look would mean if words said nothing."""
    change, places = looks(torch.ones_like(w) * (w > 0), w, 0 * p, p)
    early, late = places.argmin(), places.argmax()
    return (change[:, late] - change[:, early]) / (places[late] - places[early])


def heads_of(response: Tensor, n_heads: int) -> Heads:
    """Return the slopes of the heads, the steepest first, and their factors."""
    ratios, sizes = decays(response, n_heads)
    return -ratios.log(), sizes / (1 - ratios)


def decays(response: Tensor, n_heads: int) -> Heads:
    """Return ratios, smallest first, and sizes of the geometric series in a response."""
    rows = response.unfold(0, n_heads + 1, 1)  # each number from those before it
    rule = torch.linalg.lstsq(rows[:, :-1], rows[:, -1:]).solution[:, 0]
    step = torch.eye(n_heads, dtype=response.dtype).roll(1, 1)
    step[-1] = rule
    ratios = torch.linalg.eigvals(step).real.sort().values
    powers = ratios ** torch.arange(len(response))[:, None]
    return ratios, torch.linalg.lstsq(powers, response[:, None]).solution[:, 0]


def head_cases(draw: Draw) -> list[Case]:
    """One head and several, as few numbers as can be and more, factors of both signs."""
    found = []
    for words, heads, length in (
        ("one head, two numbers", 1, 2), ("two heads, four numbers", 2, 4),
        ("two heads, more numbers", 2, 11), ("three heads", 3, 6 + draw.integer(0, 2)),
        ("four heads", 4, 30), ("one head, more numbers", 1, 9),
    ):  # fmt: skip
        steps = 2.05 + 0.35 * torch.rand(heads, generator=draw.generator).double()
        slopes = draw.integer(30, 50) / 1000 * steps.cumprod(0).flip(0)  # each twice the next
        factors = draw.normal(heads).double()
        factors = (factors.abs() + 0.4) * (-1.0) ** torch.arange(heads)[
            draw.order(heads) if heads > 2 else slice(None)
        ]
        ratios = (-slopes).exp()
        parts = factors * (1 - ratios) * ratios ** torch.arange(length)[:, None]
        found.append(Case(words, (parts.sum(1), heads), drawn=f": n = {length}"))
    return found


def with_heads(change: Callable[[Tensor, Tensor], Heads]) -> Answer:
    """Return a wrong answer that makes something else of ratios and sizes."""
    return lambda y, n: change(*decays(y, n))


def moved_apart(first: Tensor, second: Tensor, p: Tensor, moved: Tensor) -> Tensor:
    """Return how far two keys have moved apart at most."""
    return looks(first, second, p, moved)[1].max() - looks(first, second, p, moved)[1].min()


EXERCISES = (
    Exercise(
        name="slopes_of",
        cases=lambda draw: draw.telling(slope_cases, slopes_of, read_in(0), read_in(-1)),
        reference=slopes_of,
        tolerance=2e-7,  # what single precision has; no search over slopes comes so near
        axes=("head",),
        mistakes=(
            Mistake("the slopes are negative; a key that moves away loses",
                    lambda a, b, p, m: -slopes_of(a, b, p, m)),
            Mistake("this takes all from the first look: the words are in it, too",
                    lambda a, b, p, m: from_first(a, p)),
            Mistake("this takes all from the second look: the words are in it, too",
                    lambda a, b, p, m: from_first(b, m)),
            Mistake("what counts is by how much a key has moved, not where it was",
                    lambda a, b, p, m: slopes_of(a, b, 0 * p, p)),
            Mistake("what counts is by how much a key has moved, not where it is now",
                    lambda a, b, p, m: slopes_of(a, b, 0 * p, m)),
            Mistake("the change is not divided by how far the keys have moved apart",
                    lambda a, b, p, m: slopes_of(a, b, p, m) * moved_apart(a, b, p, m)),
            Mistake("a softmax has powers of e, not of 2",
                    lambda a, b, p, m: slopes_of(a, b, p, m) / torch.tensor(2.0).double().log()),
            *(Mistake(f"the {which} query need not see all keys; find one that does", read_in(row))
              for which, row in (("first", 0), ("last", -1))),
            Mistake("the slopes are put in falling order; each belongs to its head",
                    lambda a, b, p, m: slopes_of(a, b, p, m).sort(descending=True).values),
            Mistake("this is the mean of all heads; each has its own",
                    lambda a, b, p, m: slopes_of(a, b, p, m).mean().expand(len(a))),
        ),
    ),
    Exercise(
        name="merged",
        cases=block_cases,
        reference=merged,
        axes=("head", "query", "component"),
        mistakes=(
            Mistake("this is the listing, unchanged",
                    lambda o, z, w: (z.softmax(0)[..., None] * o).sum(0)),
            Mistake("where a query sees nothing of a block, 0 times NaN is NaN",
                    lambda o, z, w: ((z + left_out(o, z, w)).softmax(0)[..., None] * o).sum(0)),
            Mistake("each block has left out another constant, and you do not bring it back",
                    by_shift(lambda o, z, w: torch.zeros_like(z))),
            Mistake("the sign of what the blocks have left out is flipped",
                    by_shift(lambda o, z, w: -left_out(o, z, w))),
            Mistake("you use the last query's shares for all; each query has its own logarithms",
                    lambda o, z, w: together(o, torch.where(
                        z > -torch.inf, shares_of(o, w).log()[..., None], z))),
            Mistake("the last query's shares hold its own logarithms already; take these away",
                    by_shift(lambda o, z, w: shares_of(o, w).log()[..., None])),
            Mistake("all heads get what the first one has left out; slopes differ by head",
                    by_shift(lambda o, z, w: left_out(o, z, w)[:, :1])),
            Mistake("what is left out is added to the logarithms; you add its exponential",
                    by_shift(lambda o, z, w: left_out(o, z, w).exp())),
            Mistake("this is the plain mean of the blocks that a query sees",
                    lambda o, z, w: together(o, torch.where(z > -torch.inf, 0.0, z))),
            Mistake("the shares of the blocks must add up to one for each query and head; yours "
                    "do so over the queries",
                    lambda o, z, w: together(o, z + left_out(o, z, w), 2)),
        ),
    ),
    Exercise(
        name="heads_of",
        cases=head_cases,
        reference=heads_of,
        tolerance=1e-6,
        axes=("head",),
        mistakes=(
            Mistake("the flattest head comes first; the steepest should",
                    with_heads(lambda r, c: (-r.log().flip(0), (c / (1 - r)).flip(0)))),
            Mistake("the factors stand in the other order than the slopes",
                    lambda y, n: (heads_of(y, n)[0], heads_of(y, n)[1].flip(0))),
            Mistake("these are the ratios r; the slope is what makes them",
                    with_heads(lambda r, c: (r, c / (1 - r)))),
            Mistake("the slopes are negative", with_heads(lambda r, c: (r.log(), c / (1 - r)))),
            Mistake("a head's part at 0 back is its factor times 1 - r",
                    with_heads(lambda r, c: (-r.log(), c))),
            Mistake("you divide by r where 1 - r belongs",
                    with_heads(lambda r, c: (-r.log(), c / r))),
            Mistake("factors may be negative", with_heads(lambda r, c: (
                -r.log(), (c / (1 - r)).abs()))),
            Mistake("the factors need not add up to one", with_heads(lambda r, c: (
                -r.log(), c / (1 - r) / (c / (1 - r)).sum()))),
            Mistake("the softmax has powers of e, not of 2",
                    with_heads(lambda r, c: (-r.log2(), c / (1 - r)))),
            Mistake("slopes and factors are exchanged: the slopes come first",
                    lambda y, n: heads_of(y, n)[::-1]),
        ),
    ),
)  # fmt: skip
