"""Checks of exercise set 13: sequences longer than those of training."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Case, Draw, Exercise, Mistake
from pe_lib.sinusoidal import frequencies

# How near to a full turn rounding could decide, on whichever way it is computed.
ROUNDED = 1e-5


def trained_for(dim: int, base: float, count: int) -> Tensor:
    """Return the longest text by whose end `count` pairs have not made a full turn."""
    return longest(dim, base, dim // 2 - count)


def longest(dim: int, base: float, pair: int, turn: float = 2 * math.pi) -> Tensor:
    """Return the largest whole number of tokens within which a pair makes less than a turn."""
    inv_freq = base ** (-torch.arange(dim, dtype=torch.float64) * 2 / dim)  # and some beyond
    return torch.tensor(math.ceil(turn / float(inv_freq[pair])) - 1)


def trained_cases(draw: Draw) -> list[Case]:
    """Widths and bases of published models and drawn ones; one pair, some, and all of them."""
    wide, drawn = 2 * draw.integer(20, 90), float(10 ** draw.integer(3, 6))
    found = [
        ("one pair", 64, 100.0, 1),
        ("a head of one pair", 2, 1e4, 1),
        ("all pairs", 128, 1e4, 64),
        ("all pairs of a drawn width", wide, drawn, wide // 2),
    ]
    for words, dim, base, low in (
        ("a base of 10,000", 128, 1e4, 10), ("a base of 500,000", 128, 5e5, 10),
        ("a base of a million", 256, 1e6, 10), ("a base of 100", 64, 100.0, 10),
        ("a base of 20,000", 96, 2e4, 10), ("a drawn width and base", wide, drawn, 10),
        ("a long text", 128, 5e5, 5000), ("a very long text", 256, 1e6, 10_000),
    ):  # fmt: skip
        found.append((words, dim, base, drawn_count(draw, dim, base, low)))
    return [Case(words, (d, b, n), drawn=f": dim {d}, base {b:g}, n = {n}")
            for words, d, b, n in found]  # fmt: skip


def drawn_count(draw: Draw, dim: int, base: float, low: int) -> int:
    """Return a number of pairs with a length above `low`, which no way of rounding decides."""
    while True:
        count = draw.integer(1, dim // 2)
        exact = 2 * math.pi * base ** (1 - 2 * count / dim)
        off = exact - round(exact)
        # Of a long text the nearest whole number is above the turn, so that it is no answer.
        if abs(off) > ROUNDED * exact and low < exact < 2e4 and (low < 5000 or off < 0):
            return count


def number(value: float | Tensor) -> Tensor:
    """Return a number in double precision."""
    return torch.as_tensor(value, dtype=torch.float64)


def stretched(slowed: Tensor, base: float) -> tuple[Tensor, Tensor]:
    """Return frequencies, and the same slowed down pair by pair."""
    before = frequencies(2 * len(slowed), base)
    return before, before / slowed


def schedule_cases(draw: Draw) -> list[Case]:
    """Each method, with small and large factors; a step, a ramp, a falling search, two at once."""
    n, more, last = draw.sizes(3, 6, 20)
    s = 1.5 + draw.integer(1, 60) / 8
    line, ones = torch.linspace(0, 1, more, dtype=torch.float64), torch.ones(n).double()
    many = torch.arange(64, dtype=torch.float64)
    ramp = ((many - 20) / 25).clamp(0, 1)
    found = 3 - torch.rand(last, generator=draw.generator).double().cumsum(0) / last
    ways = {
        "A": (ones, 10000.0), "B": (s * ones, 500000.0),
        "C": (s**line, 10000.0), "D": (1 / (1 - ramp + ramp / s), 10000.0),
        "E": (torch.where(many < 30, 1.0, s), 1e6), "F": (found, 10000.0),
        "G": (1.25 * s**line, 500.0), "H": (1.02 * ones, 10000.0),
        "I": (1.02 ** (many / 63), 10000.0),
        "J": (torch.tensor([1.0, 1.0, 1.0, 4.0]).double(), 10000.0),
        "K": ((1 + s * line), 10000.0),
    }  # fmt: skip
    cases = []
    for name, (slowed, base) in ways.items():
        size = len(slowed)
        given = draw.order(size)[: max(4, size - 1 - size // 4)]  # a head's pairs, but for some
        before, after = stretched(slowed, base)
        sizes = f", {len(given)} pairs"
        cases.append(Case(f"model {name}", (before[given], after[given]), drawn=sizes))
    return cases


def schedule_of(before: Tensor, after: Tensor, room: float = 1e-7) -> tuple[Tensor, Tensor]:
    """Return what was done, and by how much the slowest pair was slowed down."""
    slowed, slowest = (before / after).log(), before.argmin()
    most, share = slowed[slowest], before.log() / before.log()[slowest]
    shapes = (0 * share, most + 0 * share, share * most)  # nothing, interpolation, a larger base
    kinds = [i for i, shape in enumerate(shapes) if float((slowed - shape).abs().max()) < room]
    return number(min(kinds, default=3)), most.exp()


Schedule = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def by_kind(*kinds: int) -> Schedule:
    """Return an answer that says something else of each kind."""

    def answer(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
        kind, factor = schedule_of(before, after)
        return number(kinds[int(kind)]), factor

    return answer


def by_ends(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Look at the fastest and the slowest pair alone."""
    first, last = (before / after)[[int(before.argmax()), int(before.argmin())]]
    same = bool((first - last).abs() < 1e-7)
    moved = bool((first - 1).abs() > 1e-7)
    return number((1 if moved else 0) if same else (3 if moved else 2)), last


def with_factor(change: Callable[[Tensor], Tensor]) -> Schedule:
    """Return an answer whose factor is something else of the quotients, fastest pair first."""
    return lambda before, after: (
        schedule_of(before, after)[0],
        change((before / after)[before.argsort(descending=True)]),
    )


def recached(keys: Tensor, places: Tensor, written: Tensor, now: Tensor) -> Tensor:
    """Return the keys of a cache as they would be with the frequencies of now."""
    return turned(keys, places[:, None] * (now - written))


def turned(keys: Tensor, angles: Tensor) -> Tensor:
    """Rotate keys (H, L, 2n), whose pairs are halves of the head, by angles (L, n)."""
    a, b = keys.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def neighbours(keys: Tensor, angles: Tensor) -> Tensor:
    """Rotate as if the pairs were neighbours."""
    a, b = keys[..., 0::2], keys[..., 1::2]
    cos, sin = angles.cos(), angles.sin()
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def cache_cases(draw: Draw) -> list[Case]:
    """Frequencies that fall as the text grows; places in order and not, one pair, one key."""
    heads, more, n, length = draw.sizes(4, 2, 9)

    def case(words: str, h: int, pairs: int, places: Tensor, trained: int) -> Case:
        lengths = places.clamp(min=trained).double() / trained
        s = 2 * lengths - 1  # dynamic NTK, by 2; a place was written when the text ended there
        written = frequencies(2 * pairs) * s[:, None] ** -torch.linspace(0, 1, pairs).double()
        now = frequencies(2 * pairs) * 7.0 ** -torch.linspace(0, 1, pairs).double()
        keys = draw.normal(h, len(places), 2 * pairs).double()
        sizes = f": H, L, n = {(h, len(places), pairs)}"
        return Case(words, (keys, places, written, now), drawn=sizes)

    start = draw.integer(20, 90)
    return [
        case("a text from the beginning", heads, n, torch.arange(3 * length), length),
        case("a text whose beginning was dropped", more, n, start + torch.arange(length), start),
        case("keys in no order", heads, 4, draw.places(length + 4, high=200), 16),
        case("one pair", more, 1, torch.tensor([3, 9, 40]), 8),
        case("one key", 1, n, torch.tensor([start]), 16),
    ]


def yarn_tables(
    inv_freq: Tensor,
    attention_factor: float,
    factor: float,
    ends: tuple[float, float],
    places: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the tables of YaRN, (L, n) each, and the frequencies before."""
    first, last = ends
    u = ((torch.arange(len(inv_freq)) - first).double() / (last - first)).clamp(0, 1)
    angles = places[:, None] * inv_freq * (1 - u + u / factor)
    return attention_factor * angles.cos(), attention_factor * angles.sin(), inv_freq


def yarn_cases(draw: Draw) -> list[Case]:
    """Gains of three kinds; short ramps and long ones, from the first pair on and to the last."""
    n, start = draw.integer(20, 40), draw.integer(50, 900)
    first, length = draw.integer(2, 6), draw.integer(4, 9)
    s, strange = float(draw.integer(3, 40)), 1.3 + draw.integer(1, 90) / 17
    a, b = first + draw.integer(1, 9) / 11, draw.integer(1, 9) / 13
    ways = {
        "the paper's gain": (64, 1e4, 1 + 0.1 * math.log(s), s, (20.0, 46.0), 0),
        "a gain of 1": (n, 5e5, 1.0, s, (a, a + length - b), start),
        "a strange gain": (n, 1e4, 0.6 + strange / 9, strange, (a, n - 2 + b), 1),
        "a short ramp": (n, 1e6, 1.2, 2.0, (a, first + 3), -start),
        "a ramp from the first pair to the last": (12, 150.0, 1.1, 1.5, (0, 11), 3),
    }
    return [
        Case(words,
             yarn_tables(frequencies(2 * count, b), attention_factor, factor, ends,
                         torch.arange(begin, begin + 3 + count // 3)), drawn=f", {count} pairs")
        for words, (count, b, attention_factor, factor, ends, begin) in ways.items()
    ]  # fmt: skip


Four = tuple[Tensor, Tensor, Tensor, Tensor]


def yarn_of(cos: Tensor, sin: Tensor, inv_freq: Tensor) -> Four:
    """Return the gain on the tables, the factor, and the ends of the ramp."""
    z = torch.complex(cos, sin)
    share = (z[1] * z[0].conj()).angle() / inv_freq
    u = (1 - share) / (1 - share[-1])
    one, *_, other = ((u > 1e-6) & (u < 1 - 1e-6)).nonzero().flatten()
    slope = (u[other] - u[one]) / (other - one)
    first = one - u[one] / slope
    return z.abs().mean(), 1 / share[-1], first, first + 1 / slope


def then(change: Callable[[Tensor, Tensor, Tensor, Tensor], Four]) -> Callable[..., Four]:
    """Return an answer that makes something else of the right one."""
    return lambda cos, sin, inv_freq: change(*yarn_of(cos, sin, inv_freq))


EXERCISES = (
    Exercise(
        name="trained_for",
        cases=trained_cases,
        reference=trained_for,
        tolerance=1e-9,
        integers=True,
        mistakes=(
            Mistake("2 pi is missing: a full turn is 2 pi radians",
                    lambda d, b, n: longest(d, b, d // 2 - n, 1.0)),
            Mistake("a full turn is 2 pi, not pi",
                    lambda d, b, n: longest(d, b, d // 2 - n, math.pi)),
            Mistake("this is the shortest text by whose end the pair has made its turn; one token "
                    "less is asked for", lambda d, b, n: trained_for(d, b, n) + 1),
            Mistake("that is one token too few: the largest number below a full turn is asked for",
                    lambda d, b, n: trained_for(d, b, n) - 1),
            Mistake("this is the pair before: it has made its turn",
                    lambda d, b, n: longest(d, b, max(0, d // 2 - n - 1))),
            Mistake("this is the slowest pair but one; the fastest of those that have not been "
                    "around comes first", lambda d, b, n: longest(d, b, d // 2 - n + 1)),
            Mistake("the slowest pair has the most room; the fastest of those that have not been "
                    "around decides", lambda d, b, n: longest(d, b, d // 2 - 1)),
            Mistake("the fast pairs are counted; those that have not been around are the slow ones",
                    lambda d, b, n: longest(d, b, n - 1)),
            Mistake("the exponent is r/d; it must be 2r/d for pair r",
                    lambda d, b, n: trained_for(d, b**0.5, n)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda d, b, n: trained_for(d, 10000.0, n)),
        ),
    ),
    Exercise(
        name="schedule_of",
        cases=schedule_cases,
        reference=schedule_of,
        tolerance=1e-6,
        mistakes=(
            Mistake("1 and 2 are exchanged: interpolation slows all pairs alike",
                    by_kind(0, 2, 1, 3)),
            Mistake("a model that was not changed is 0", by_kind(1, 1, 2, 3)),
            Mistake("not everything that slows pairs unevenly is a larger base: look at all pairs",
                    by_kind(0, 1, 2, 2)),
            Mistake("a larger base is 2, and not 3: pairs are missing and in no order, so that a"
                    " place in the list is no pair's number", by_kind(0, 1, 3, 3)),
            Mistake("the fastest and the slowest pair alone cannot tell; look at all", by_ends),
            Mistake("small changes are taken for none",
                    lambda b, a: schedule_of(b, a, 0.03)),
            Mistake("the factor is upside down: a slowed pair has a factor above 1",
                    with_factor(lambda q: 1 / q[-1])),
            Mistake("this is the factor of the fastest pair; the slowest one's is asked for",
                    with_factor(lambda q: q[0])),
            Mistake("this is the factor of the last pair given, which need not be the slowest",
                    lambda b, a: (schedule_of(b, a)[0], (b / a)[-1])),
            Mistake("this is the mean factor; the slowest pair's is asked for",
                    with_factor(lambda q: q.mean())),
            Mistake("this is the largest factor; the slowest pair need not be the one that is "
                    "slowed down most", with_factor(lambda q: q.max())),
            Mistake("the factor is rounded to a whole number",
                    with_factor(lambda q: q[-1].round())),
            Mistake("this is the logarithm of the factor", with_factor(lambda q: q[-1].log())),
        ),
    ),
    Exercise(
        name="recached",
        cases=cache_cases,
        reference=recached,
        tolerance=1e-6,
        axes=("head", "key", "component"),
        mistakes=(
            Mistake("the keys are rotated the wrong way: by what was written less what is now",
                    lambda k, p, w, now: turned(k, p[:, None] * (w - now))),
            Mistake("the rotation of now comes on top of the old one: that must be undone first",
                    lambda k, p, w, now: turned(k, p[:, None] * now)),
            Mistake("the old rotation is undone and no new one made: such keys stand nowhere",
                    lambda k, p, w, now: turned(k, -p[:, None] * w)),
            Mistake("nothing is mended: each key still has the angles of when it was written",
                    lambda k, p, w, now: k.clone()),
            Mistake("pair r is the components r and r + n; you take neighbours",
                    lambda k, p, w, now: neighbours(k, p[:, None] * (now - w))),
            Mistake("keys are rotated by their place in the text, not in the cache",
                    lambda k, p, w, now: turned(k, torch.arange(len(p))[:, None] * (now - w))),
            Mistake("each key has the frequencies of when it was written, a row for each; you take "
                    "the first row for all",
                    lambda k, p, w, now: turned(k, p[:, None] * (now - w[:1]))),
            Mistake("each key has the frequencies of when it was written, a row for each; you take "
                    "the last row for all",
                    lambda k, p, w, now: turned(k, p[:, None] * (now - w[-1:]))),
            Mistake("an angle is place times frequency: what differs is the frequency, and the "
                    "place is forgotten", lambda k, p, w, now: turned(k, now - w)),
            Mistake("places are counted from the last key; the rotation is by the place itself",
                    lambda k, p, w, now: turned(k, (p - p.max())[:, None] * (now - w))),
        ),
    ),
    Exercise(
        name="yarn_of",
        cases=yarn_cases,
        reference=yarn_of,
        tolerance=1e-6,
        mistakes=(
            Mistake("this is the gain on scores, the square of the one on the tables",
                    then(lambda g, s, a, b: (g * g, s, a, b))),
            Mistake("the gain is taken from the formula 1 + 0.1 ln s; read it from the tables",
                    then(lambda g, s, a, b: (1 + 0.1 * s.log(), s, a, b))),
            Mistake("the gain is taken for 1; read it from the tables",
                    then(lambda g, s, a, b: (number(1), s, a, b))),
            Mistake("the factor is upside down: slowed frequencies are smaller by s > 1",
                    then(lambda g, s, a, b: (g, 1 / s, a, b))),
            Mistake("the factor is multiplied by the gain; cosine and sine both have it",
                    then(lambda g, s, a, b: (g, g * s, a, b))),
            Mistake("the ends are those of the pairs that are mixed; the ramp begins one pair "
                    "before and ends one pair after",
                    then(lambda g, s, a, b: (g, s, a + 1, b - 1))),
            Mistake("`first` is the last pair that stays, not the first that is mixed",
                    then(lambda g, s, a, b: (g, s, a + 1, b))),
            Mistake("`last` is the first pair slowed by all of s, not the last that is mixed",
                    then(lambda g, s, a, b: (g, s, a, b - 1))),
            Mistake("the ends are rounded; not every model rounds them",
                    then(lambda g, s, a, b: (g, s, a.round(), b.round()))),
            Mistake("the ends are counted from 1; the fastest pair is number 0",
                    then(lambda g, s, a, b: (g, s, a + 1, b + 1))),
            Mistake("the two ends are exchanged", then(lambda g, s, a, b: (g, s, b, a))),
            Mistake("the order is gain, factor, first, last: the first two are exchanged",
                    then(lambda g, s, a, b: (s, g, a, b))),
        ),
    ),
)  # fmt: skip
