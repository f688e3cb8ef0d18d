"""Checks of exercise set 18: what a function does with positions, from what it returns alone."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations

import torch
from torch import Tensor

from exercises.checks.spec import Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope
from pe_lib.sinusoidal import frequencies


def pairs_from(first: Tensor, second: Tensor, width: int) -> Tensor:
    """Return the partner of each of `width` components; who is in no pair is alone."""
    found = torch.arange(width)
    found[first], found[second] = second, first
    return found


def record_of(partner: Tensor, places: Tensor, gain: float, slow: float) -> Tensor:
    """Return what a rotation by these pairs makes of impulses, (L, d, d): impulse, then output."""
    width = len(partner)
    first = (partner > torch.arange(width)).nonzero().flatten()
    second, angles = partner[first], places[:, None] / slow * frequencies(2 * len(first))
    record = torch.eye(width).repeat(len(places), 1, 1)
    record[:, first, first] = record[:, second, second] = gain * angles.cos().float()
    record[:, first, second] = gain * angles.sin().float()
    record[:, second, first] = -gain * angles.sin().float()
    return record


def partner_cases(draw: Draw) -> list[Case]:
    """Both layouts, a part of the width at either end, blocks, and an order that nobody uses.

    Position 0 stands first, last, in between, or is missing; one function has slow pairs only. In
    the last, each position comes with its negative, and a sine is larger than its cosine.
    """
    n, more, other = draw.sizes(3, 4, 9)
    whole, some = torch.arange(2 * n), torch.arange(2 * more)
    mixed = 2 * other + torch.randperm(2 * other, generator=draw.generator)
    ways = {
        f"{2 * n} components, a function A": (whole[:n], whole[n:], 2 * n),
        f"{2 * more} components, a function B": (some[::2], some[1::2], 2 * more),
        f"{2 * more + 3} components, a function C": (some[:more], some[more:], 2 * more + 3),
        f"{2 * n + 5} components, a function D": (5 + whole[::2], 5 + whole[1::2], 2 * n + 5),
        f"{4 * other} components, a function E": (mixed[:other], mixed[other:], 4 * other),
    }
    zero, there = torch.zeros(1, dtype=torch.long), draw.places(3)
    back = 3 * draw.integer(1, 2) + 5
    places = (
        torch.cat([zero, there]), torch.cat([there, zero]), torch.cat([there[:1], zero, there]),
        torch.cat([zero, -there]), torch.tensor([back, -back]),
    )  # fmt: skip
    slow = (1.0, 1.0, 1.0, 1e7, 1.0)
    return [
        Case(label, (record_of(pairs_from(*pairs), places[i], 1.0 + 0.1 * i, slow[i]),))
        for i, (label, pairs) in enumerate(ways.items())
    ]


def mixing(record: Tensor) -> Tensor:
    """Return how much each impulse reaches each other component, (d, d)."""
    size = record.abs().amax(0)
    return size - torch.diag(size.diagonal())


def partners(record: Tensor) -> Tensor:
    """Return the partner of each component, and itself where it has none."""
    return chosen(mixing(record))


def chosen(size: Tensor, least: float = 0.0, alone: Tensor | None = None) -> Tensor:
    """Return the largest of each row above a bound."""
    own = torch.arange(len(size)) if alone is None else alone
    return torch.where(size.amax(1) > least, size.argmax(1), own)


def second_largest(record: Tensor) -> Tensor:
    """Take the largest entry of each component for its own, and the next for its partner's."""
    largest = record.abs().amax(0).topk(2)
    return torch.where(largest.values[:, 1] > 0, largest.indices[:, 1], own(record))


def own(record: Tensor) -> Tensor:
    """Return the number of each component."""
    return torch.arange(record.shape[-1])


def half_inside(record: Tensor) -> Tensor:
    """Pair the halves of the components that are in pairs, whatever the record shows."""
    partner = partners(record)
    inside = (partner != own(record)).nonzero().flatten()
    first, second = inside.chunk(2)
    return pairs_from(first, second, len(partner))


def neighbours_inside(record: Tensor) -> Tensor:
    """Pair neighbours among the components that are in pairs, whatever the record shows."""
    partner = partners(record)
    inside = (partner != own(record)).nonzero().flatten()
    return pairs_from(inside[::2], inside[1::2], len(partner))


def tables(base: float, factor: float, n: int, start: int, length: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines of consecutive positions, (L, n) each, float64."""
    places = torch.arange(start, start + length)[:, None].double()
    angles = places * frequencies(2 * n, base) / factor
    return angles.cos(), angles.sin()


def table_cases(draw: Draw) -> list[Case]:
    """Usual bases and others, stretched or not; tables that start at 0, at 3, and far out.

    No rounding gives the last base and factor; one table has two rows, one has wide heads.
    """
    n, more, last = draw.sizes(3, 4, 12)
    start, far = draw.integer(20, 90), draw.integer(500, 900)
    some = 100 * draw.integer(2, 9) + 37.5
    ways = {
        f"a usual table: {n} pairs, from position 0": (10000.0, 1.0, n, 0, 9 + n),
        f"two rows: {more} pairs, from position 3": (500000.0, 1.0, more, 3, 2),
        f"a stretched one: 64 pairs, from position {start}": (10000.0, 4.0, 64, start, 10),
        f"a strange one: {last} pairs, from position {far}": (some, 2.374, last, far, 8 + n),
    }
    return [Case(label, tables(*way)) for label, way in ways.items()]


def rates_of(cos: Tensor, sin: Tensor) -> Tensor:
    """Return the angle from one row to the next, (n,)."""
    z = torch.complex(cos.double(), sin.double())
    return (z[1] * z[0].conj()).angle()


Pair = tuple[Tensor, Tensor]


def base_and_factor(cos: Tensor, sin: Tensor) -> Pair:
    """Return the base and the factor by which all frequencies are divided."""
    return read(rates_of(cos, sin))


def read(rates: Tensor) -> Pair:
    """Return base and factor of frequencies base ** (-j / n) / factor."""
    return (rates[0] / rates[1]) ** len(rates), 1 / rates[0]


def by_rates(change: Callable[[Tensor, Tensor, Tensor], Pair]) -> Callable[[Tensor, Tensor], Pair]:
    """Return an answer that makes something else of the rates, the right base and factor."""
    return lambda cos, sin: change(rates_of(cos, sin), *base_and_factor(cos, sin))


def angles_of(cos: Tensor, sin: Tensor) -> Tensor:
    """Return angles between -pi and pi, (L, n)."""
    return torch.atan2(sin.double(), cos.double())


ONE = torch.ones((), dtype=torch.float64)
WIDE = 3000  # positions to be read back are smaller: the slowest pair makes less than half a turn


def rotated(draw: Draw, places: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Return vectors (B, L, d), and the same rotated by places (B, L)."""
    x = draw.normal(*places.shape, width)
    x = x + x.sign() / 4  # no component is so small that its angle is lost
    return x, rotate(x, places)


def rotate(x: Tensor, places: Tensor) -> Tensor:
    """Rotate x (B, L, d) by places (B, L), neighbours being pairs."""
    angles = places[..., None] * frequencies(x.shape[-1])
    return apply_rope(x.double()[:, None], angles)[:, 0].float()


def reading_cases(draw: Draw) -> list[Case]:
    """Calls whose positions are as they should be, or are not: all numbers below 3,000."""
    rows, length, n = draw.sizes(3, 4, 9)
    given = torch.sort(draw.places(rows, length, high=WIDE - 1)).values
    given[-1, -1] = WIDE - 1
    run = torch.arange(length)
    ways = {
        f"{rows} rows of {length} tokens": given,
        "a second function": given[:1].expand(rows, -1),
        "a third function": given[:, :1].clamp(max=WIDE - 20) + run,
        "a fourth function": torch.cat([run.expand(rows, -1), given], 1),
        "a fifth function": given.clamp(max=700),
    }
    widths = (8, 128, 8, 2 * n, 2 * n)
    return [
        Case(f"{label}, width {width}", rotated(draw, places, width))
        for (label, places), width in zip(ways.items(), widths, strict=True)
    ]


def phases(x: Tensor, y: Tensor, *, half: bool = False) -> Tensor:
    """Return the angle by which each pair was rotated, (B, L, d / 2), between -pi and pi."""

    def pairs(v: Tensor) -> Tensor:
        both = v.double().chunk(2, -1) if half else (v.double()[..., ::2], v.double()[..., 1::2])
        return torch.complex(*both)

    return (pairs(y) * pairs(x).conj()).angle()


def positions_used(x: Tensor, y: Tensor) -> Tensor:
    """Return the position by which each token was rotated, (B, L) int64."""
    return slowest(phases(x, y))


def slowest(angles: Tensor, base: float = 10000.0) -> Tensor:
    """Read positions from the slowest pair."""
    return (angles[..., -1] / frequencies(2 * angles.shape[-1], base)[-1]).round().long()


def each_pair(x: Tensor, y: Tensor) -> Tensor:
    """Average what all pairs say, although the fast ones have gone around many times."""
    angles = phases(x, y)
    return (angles / frequencies(x.shape[-1])).mean(-1).round().long()


def stories(call: Tensor) -> list[Tensor]:
    """Return the positions (B, L) that each of the four functions uses in a call."""
    run = torch.arange(call.shape[1])
    return [call, run.expand_as(call), call[:1].expand_as(call), call[:, :1] + run]


def telling_calls(calls: Tensor) -> Tensor:
    """Return which calls (C, B, L) tell all four stories apart, (C,)."""
    return told(calls)


def somewhere(a: Tensor, b: Tensor) -> bool:
    """Return whether two stories differ for some token."""
    return bool((a != b).any())


def told(
    calls: Tensor,
    differ: Callable[[Tensor, Tensor], bool] = somewhere,
    among: tuple[tuple[int, int], ...] = tuple(combinations(range(4), 2)),
    read: Callable[[Tensor], list[Tensor]] = stories,
    every: Callable[[list[bool]], bool] = all,
) -> Tensor:
    """Return for each call whether pairs of stories differ."""
    found = []
    for call in calls:
        each = read(call)
        found.append(every([differ(each[i], each[j]) for i, j in among]))
    return torch.tensor(found)


def without(story: int) -> tuple[tuple[int, int], ...]:
    """Return the pairs of stories but for those of one."""
    return tuple(pair for pair in combinations(range(4), 2) if story not in pair)


def changed(story: int, make: Callable[[Tensor], Tensor]) -> Callable[[Tensor], list[Tensor]]:
    """Return stories of which one is told otherwise."""

    def read(call: Tensor) -> list[Tensor]:
        found = stories(call)
        found[story] = make(call).expand_as(call)
        return found

    return read


def call_cases(draw: Draw) -> list[Case]:
    """Calls of every kind: some tell all four apart, some mix up two stories, some all."""
    rows, length, more, longer = draw.sizes(4, 3, 9)
    ways = (("several rows", rows, length), ("more rows", more, longer), ("two rows", 2, longer))
    found = [Case(label, (some_calls(draw, *size),)) for label, *size in ways]
    return [*found, Case("one row", (some_calls(draw, 1, length),)),
            Case("one token in each row", (draw.places(4, rows, 1),))]  # fmt: skip


def some_calls(draw: Draw, rows: int, length: int) -> Tensor:
    """Return calls (C, rows, length): free ones, and those in which stories agree.

    In some a single row, or the last token, tells two stories apart.
    """
    run = torch.arange(length)
    free, other = (rising(draw, rows, length) for _ in range(2))
    starts = draw.order(rows)[:, None] * 3 + 4 if rows > 2 else 4 + 3 * torch.arange(rows)[:, None]
    lone, ended = free[:1].repeat(rows, 1), starts + run
    lone[-1] = other[-1]
    ended[-1, -1] += 2
    late = torch.cat([run[None] + 5, free[1:]])
    late[:, 0] = 5
    zero = free.clone()
    zero[:, 0] = 0
    bent, swapped = free.clone(), starts + run
    bent[:, -1] = free[:, 0] + length - 1  # only tokens in the middle tell
    swapped[:, 1:3] = swapped[:, 1:3].flip(1)
    calls = [
        free, run.expand(rows, -1), free[:1].expand(rows, -1), starts + run, bent, swapped, zero,
        late, torch.cat([run[None] + 5, free[1:]]), torch.cat([run[None], other[1:]]),
        torch.cat([other[:1], (other[:1, :1] + run).expand(rows - 1, -1)]), other.flip(1),
        run.flip(0) + starts, lone, ended,
    ]  # fmt: skip
    return torch.stack(calls)[torch.randperm(len(calls), generator=draw.generator)]


def rising(draw: Draw, rows: int, length: int) -> Tensor:
    """Return positions (rows, length) that grow with gaps, other ones in each row."""
    steps = torch.randint(2, 9, (rows, length), generator=draw.generator)
    return steps.cumsum(1) + 10 * torch.arange(rows)[:, None]


EXERCISES = (
    Exercise(
        name="partners",
        cases=partner_cases,
        reference=partners,
        integers=True,
        axes=("component",),
        mistakes=(
            Mistake("every component is its own partner here: leave the diagonal out, and look at "
                    "more than the first position, where nothing is rotated yet",
                    lambda r: partners(r[:1])),
            Mistake("you look at the last position alone: it may be 0, where nothing is rotated",
                    lambda r: partners(r[-1:])),
            Mistake("you look at the second position alone: it may be 0, where nothing is rotated",
                    lambda r: partners(r[1:2])),
            *(Mistake("slow pairs mix too: their sines are small, and not zero; your bound is too "
                      "high", lambda r, least=least: chosen(mixing(r), least))
              for least in (0.1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)),
            Mistake("you sum the positions with their signs: a rotation and the same one back "
                    "cancel", lambda r: partners(r.sum(0, keepdim=True))),
            Mistake("the largest entry need not be a component's own: a sine may be larger than "
                    "its cosine; leave the diagonal out", second_largest),
            Mistake("you take neighbours whatever the record shows",
                    lambda r: own(r) ^ 1 if r.shape[-1] % 2 == 0 else (own(r) ^ 1)
                    .clamp(max=r.shape[-1] - 1)),
            Mistake("you take component i and i + d / 2 whatever the record shows",
                    lambda r: (own(r) + r.shape[-1] // 2) % r.shape[-1]),
            Mistake("these are halves of what rotates, whatever the record shows", half_inside),
            Mistake("these are neighbours within what rotates, whatever the record shows",
                    neighbours_inside),
            Mistake("a component that is left alone is its own partner; yours has -1",
                    lambda r: chosen(mixing(r), alone=torch.full((r.shape[-1],), -1))),
            Mistake("a component that is left alone is its own partner; yours has 0",
                    lambda r: mixing(r).argmax(1)),
            Mistake("you sum the positions with their signs, and the diagonal too: leave it out",
                    lambda r: r.sum(0).abs().argmax(1)),
            Mistake("this is the smaller number of each pair, for both of its components",
                    lambda r: torch.minimum(partners(r), own(r))),
            Mistake("this is how far away the partner is, not which it is",
                    lambda r: partners(r) - own(r)),
            Mistake("components are counted from 0; yours from 1", lambda r: partners(r) + 1),
        ),
    ),
    Exercise(
        name="base_and_factor",
        cases=table_cases,
        reference=base_and_factor,
        mistakes=(
            Mistake("the two values are exchanged: the base comes first",
                    lambda c, s: base_and_factor(c, s)[::-1]),
            Mistake("the factor is upside down: frequencies are divided by it",
                    by_rates(lambda w, b, f: (b, 1 / f))),
            Mistake("this is the base upside down", by_rates(lambda w, b, f: (1 / b, f))),
            Mistake("this is the ratio of the first frequency and the last; the last is not quite "
                    "1/base of the first", by_rates(lambda w, b, f: (w[0] / w[-1], f))),
            Mistake("the base is squared: the exponent is j / n for n pairs, and n is the number "
                    "of columns", by_rates(lambda w, b, f: (b**2, f))),
            Mistake("this is the root of the base: the exponent is j / n, not j / (2n)",
                    by_rates(lambda w, b, f: (b**0.5, f))),
            Mistake("this is the logarithm of the base", by_rates(lambda w, b, f: (b.log(), f))),
            Mistake("this is the ratio of two neighbouring frequencies; over all n pairs it "
                    "multiplies n times", by_rates(lambda w, b, f: (w[0] / w[1], f))),
            Mistake("the first frequency need not be 1: you take the factor into the base",
                    by_rates(lambda w, b, f: (w[-1] ** (-len(w) / (len(w) - 1)), ONE))),
            Mistake("the first frequency need not be 1: you take the factor into the base",
                    by_rates(lambda w, b, f: ((1 / w[1]) ** len(w), ONE))),
            Mistake("the factor is missing: it is 1 over the first frequency",
                    by_rates(lambda w, b, f: (b, ONE))),
            Mistake("the factor stands for the last pair; it divides all of them alike",
                    by_rates(lambda w, b, f: (b, 1 / w[-1]))),
            Mistake("the first row need not be position 0: take the angle between two rows",
                    lambda c, s: read(angles_of(c, s)[1])),
            Mistake("the angle of a row lies between -pi and pi: the difference of two may have "
                    "lost a full turn", lambda c, s: read(angles_of(c, s).diff(dim=0)[0])),
            Mistake("from the first row to the last, fast pairs make more than one turn: take rows "
                    "that are neighbours",
                    lambda c, s: read((angles_of(c, s)[-1] - angles_of(c, s)[0]) / (len(c) - 1))),
        ),
    ),
    Exercise(
        name="positions_used",
        cases=reading_cases,
        reference=positions_used,
        integers=True,
        axes=("row", "token"),
        mistakes=(
            Mistake("the first pair has gone around many times; the slowest has not",
                    lambda x, y: phases(x, y)[..., 0].round().long()),
            Mistake("the sign is flipped: it is y that has been rotated, not x",
                    lambda x, y: positions_used(y, x)),
            Mistake("neighbours are pairs here; you pair component i with i + d / 2",
                    lambda x, y: slowest(phases(x, y, half=True))),
            Mistake("the slowest frequency is not 1/10000: its exponent is (n - 1) / n",
                    lambda x, y: (phases(x, y)[..., -1] * 10000).round().long()),
            Mistake("the exponent is j / n for n pairs; yours is j / (2n)",
                    lambda x, y: slowest(phases(x, y), 100.0)),
            Mistake("the angle is divided by another pair's frequency: the angle is the last "
                    "pair's, the frequency the first's",
                    lambda x, y: phases(x, y)[..., -1].round().long()),
            Mistake("the angle is multiplied by the frequency; divide by it",
                    lambda x, y: (phases(x, y)[..., -1] * frequencies(x.shape[-1])[-1])
                    .round().long()),
            Mistake("you average over all pairs; the fast ones have gone around many times",
                    each_pair),
            Mistake("these are the places in the row, which is what was wanted, perhaps; read what "
                    "was used", lambda x, y: torch.arange(x.shape[1]).expand(x.shape[:2])),
            Mistake("every row has positions of its own; you repeat those of the first",
                    lambda x, y: positions_used(x, y)[:1].expand(x.shape[:2])),
            Mistake("these count from the first token of each row; wanted is what was used",
                    lambda x, y: positions_used(x, y) - positions_used(x, y)[:, :1]),
            Mistake("the first token's position is read, and the rest counted from there; read "
                    "each token's", lambda x, y: positions_used(x, y)[:, :1]
                    + torch.arange(x.shape[1])),
            Mistake("positions start at 0; yours are one more",
                    lambda x, y: positions_used(x, y) + 1),
        ),
    ),
    Exercise(
        name="telling_calls",
        cases=call_cases,
        reference=telling_calls,
        axes=("call",),
        mistakes=(
            Mistake("the answer is the wrong way round: True where the call tells them apart",
                    lambda c: ~telling_calls(c)),
            Mistake("each story is compared with the right one only; two wrong ones may agree, "
                    "and you could not say which bug it is",
                    lambda c: told(c, among=((0, 1), (0, 2), (0, 3)))),
            Mistake("it is not enough that two of the stories differ: all pairs must",
                    lambda c: told(c, every=any)),
            Mistake("by this no call tells: functions 0 and 2 agree in the first row, always; one "
                    "token of any row is enough", lambda c: torch.zeros(len(c), dtype=torch.bool)),
            Mistake("you look at the last row alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[-1], b[-1]))),
            Mistake("you look at the first two rows alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[:2], b[:2]))),
            Mistake("you look at the last token of each row alone; each may tell",
                    lambda c: told(c, lambda a, b: somewhere(a[:, -1], b[:, -1]))),
            Mistake("the order of positions matters: you compare them sorted",
                    lambda c: told(c, lambda a, b: somewhere(a.sort(1).values, b.sort(1).values))),
            Mistake("you leave out the function that counts from 0",
                    lambda c: told(c, among=without(1))),
            Mistake("you leave out the function that gives all rows the first row's positions",
                    lambda c: told(c, among=without(2))),
            Mistake("you leave out the function that counts on from each row's first position",
                    lambda c: told(c, among=without(3))),
            Mistake("a function that counts on starts in each row at that row's first position; "
                    "yours starts at the first row's",
                    lambda c: told(c, read=changed(3, lambda p: p[:1, :1]
                                                   + torch.arange(p.shape[1])))),
            Mistake("rows that differ are not enough",
                    lambda c: (c != c[:, :1]).flatten(1).any(1)),
        ),
    ),
)  # fmt: skip
