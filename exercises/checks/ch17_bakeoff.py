"""Checks of exercise set 17: reading a comparison over lengths and seeds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake

# --- windows that score the same characters -------------------------------------------------------


def window_starts(lengths: Tensor, scored: int, count: int) -> Tensor:
    """Return where the windows of each length begin, (C, W)."""
    return lengths.max() - lengths[:, None] + scored * torch.arange(count)


def window_cases(draw: Draw) -> list[Case]:
    """Lengths in any order, as many windows as lengths or not, and one length alone."""
    more, fewer, count, scored = draw.sizes(4, 4, 9)
    order = 2 + draw.order(more)
    some, few = 16 * order, 10 + 3 * draw.order(fewer)
    calls = (("several lengths", some, scored, count + 4),
             ("as many windows as lengths", few, 5, fewer), ("one length", some[:1], scored, 3),
             ("lengths 48, 72 and 56", torch.tensor([48, 72, 56]), 32, count))  # fmt: skip
    return [
        Case(words, (lengths, n, windows),
             drawn=f": {lengths.tolist()}, {n} characters scored, {windows} windows")
        for words, lengths, n, windows in calls
    ]  # fmt: skip


def starts(offset: Callable[[Tensor, int], Tensor], stride: int = 0) -> Answer:
    """Return an answer with other first windows, and a stride that is not `scored`."""

    def answer(lengths: Tensor, scored: int, count: int) -> Tensor:
        steps = (stride or scored) * torch.arange(count)
        return offset(lengths, scored)[:, None] + steps

    return answer


def early(lengths: Tensor, scored: int) -> Tensor:
    """Return the first start of each length."""
    return lengths.max() - lengths


# --- the rise over lengths ------------------------------------------------------------------------

Pair = tuple[Tensor, Tensor]


def rise(lengths: Tensor, seeds: Tensor, nats: Tensor, trained: int) -> Pair:
    """Return multiples of the trained length, and by how much the loss has risen there."""
    return risen(lengths, seeds, nats, trained)


def risen(
    lengths: Tensor, seeds: Tensor, nats: Tensor, trained: int, *,
    summary: Callable[[Tensor], Tensor] = lambda d: d.median(),
    compare: Callable[[Tensor, Tensor], Tensor] = torch.sub,
    from_length: float = 1.01, paired: bool = True, sort: bool = True,
) -> Pair:  # fmt: skip
    """Do it with one thing done in another way."""
    found = lengths.unique().tolist() if sort else list(dict.fromkeys(lengths.tolist()))
    longer = [n for n in found if n >= from_length * trained]
    order = seeds.argsort(stable=True) if paired else torch.arange(len(seeds))
    by = {n: nats[order][lengths[order] == n] for n in {*longer, trained}}
    rises = torch.stack([summary(compare(by[n], by[trained])) for n in longer])
    return torch.tensor(longer).double() / trained, rises


def medians_apart(lengths: Tensor, seeds: Tensor, nats: Tensor, trained: int) -> Pair:
    """Subtract the median at the trained length from that at each other."""
    multiples, high = risen(lengths, seeds, nats, trained, compare=lambda a, _: a)
    return multiples, high - nats[lengths == trained].median()


def from_one_seed(lengths: Tensor, seeds: Tensor, nats: Tensor, trained: int) -> Pair:
    """Subtract the first row of the trained length from all."""
    multiples, high = risen(lengths, seeds, nats, trained, compare=lambda a, _: a)
    return multiples, high - nats[lengths == trained][0]


def rise_cases(draw: Draw) -> list[Case]:
    """Tables with rows in no order; seeds of any names, which differ more than lengths do.

    Of seven names several have the same size, or the same whole part.
    """
    found, names = [], torch.tensor([-3.0, -2.5, -2.0, 2.0, 2.5, 3.0, 0.25])
    for count, trained, factors in (
        (3, 32, (0.5, 1, 1.5, 4)), (7, 64, (1, 2, 8, 0.25, 16, 3, 32, 4)),
        (7, 48, (3, 1, 0.5, 2, 5, 1.25, 4, 8)),
        (1, 40, (1, 2)),
    ):  # fmt: skip
        seeds_here = names[draw.order(7)[:count]].tolist()
        rows = [(round(trained * f), seed) for f in factors for seed in seeds_here]
        lengths, seeds = torch.tensor(rows)[torch.randperm(len(rows), generator=draw.generator)].T
        nats = 2 + draw.normal(len(rows)).abs().double() + 0.2 * (lengths > trained)
        many = {1: "a single seed", 3: "few seeds"}.get(count, "many seeds")
        label = f"{many} at {len(factors)} lengths, trained at {trained}"
        found.append(Case(label, (lengths.long(), seeds, nats, trained)))
    return found


WITH_WHOLE_NAMES: tuple[Answer, ...] = tuple(
    lambda n, s, v, t, cut=cut: rise(n, cut(s), v, t)
    for cut in (torch.trunc, torch.floor, torch.round)
)


# --- two methods, the same seeds ------------------------------------------------------------------


def paired_difference(ours: Tensor, theirs: Tensor) -> Pair:
    """Return the mean difference and its standard error over paired seeds, (C,) each."""
    gain = ours - theirs
    return gain.mean(1), gain.std(1) / gain.shape[1] ** 0.5


def paired_cases(draw: Draw) -> list[Case]:
    """Seeds that matter much more than methods, and seeds that do not."""
    found = []
    for seeds, rows in zip((*draw.sizes(3, 3, 7), 2), (4, 2, 9, 1), strict=True):
        level = draw.normal(1, seeds) * draw.normal(rows, 1)  # what both have from their seed
        ours, theirs = (level + 0.3 * draw.normal(rows, seeds) for _ in range(2))
        words = f"{rows} comparisons" if rows > 1 else "a single comparison"
        ahead = 0.8 * (-1.0) ** torch.arange(rows)[:, None]
        args = ((ours + ahead).double(), theirs.double())
        found.append(Case(words, args, drawn=f" over {seeds} seeds"))
    theirs = draw.normal(3, 5).double()
    return [*found, Case("the same difference with each of 5 seeds", (theirs + 0.25, theirs))]


def with_error(error: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Pair]:
    """Return an answer with the right mean difference and another error."""
    return lambda a, b: ((a - b).mean(1), error(a, b))


# --- what chance can do ---------------------------------------------------------------------------


def by_chance(ours: Tensor, theirs: Tensor) -> Pair:
    """Return how often chance does as well, of each comparison alone and of the best; (C,) each."""
    return flipped(ours - theirs)


def sizes(gain: Tensor) -> Tensor:
    """Return the size of each comparison with each pattern of signs, (2^S, C); as it was, first."""
    signs = torch.cartesian_prod(*gain.shape[1] * [torch.tensor([1.0, -1.0]).double()])
    return signs.view(-1, gain.shape[1]) @ gain.T / gain.square().sum(1).sqrt()


def flipped(
    gain: Tensor, *, both: bool = True, room: float = -1e-9,
    best: Callable[[Tensor], Tensor] = lambda size: size.amax(1, keepdim=True),
) -> Pair:  # fmt: skip
    """Do it with one thing done in another way."""
    size = sizes(gain).abs() if both else sizes(gain)
    least = size[0] + room
    return (size >= least).double().mean(0), (best(size) >= least).double().mean(0)


def of_unlike(ours: Tensor, theirs: Tensor) -> Pair:
    """Compare means of what is measured in different units."""
    gain = ours - theirs
    size = (sizes(gain) * gain.square().sum(1).sqrt()).abs()
    least = size[0] - 1e-9
    return by_chance(ours, theirs)[0], (size.amax(1, keepdim=True) >= least).double().mean(0)


def chance_cases(draw: Draw) -> list[Case]:
    """One seed and ten, one comparison and many, units far apart, ties that rounding hides."""
    few, many, rows = draw.sizes(3, 3, 8)

    def case(words: str, count: int, seeds: int, ahead: float) -> Case:
        unit = 10.0 ** draw.normal(count, 1).double()  # nats, accuracies, perplexities
        theirs = draw.normal(count, seeds).double()
        gain = ahead * (-1.0) ** torch.arange(count)[:, None] + draw.normal(count, seeds)
        args = (unit * (theirs + gain), unit * theirs)
        return Case(words, args, drawn=f": C, S = {(count, seeds)}")

    tenths = torch.randint(1, 4, (rows + 16, 6), generator=draw.generator).double() / 10
    tenths *= (-1.0) ** torch.randint(2, tenths.shape, generator=draw.generator)
    return [
        case("ahead with every seed", rows, few, 3.0),
        case("a little ahead", rows + 8, many, 0.5),
        case("nothing but chance", 6, 10, 0.0),
        case("two seeds", 3, 2, 1.0),
        case("one comparison", 1, 6, 1.0),
        case("one seed", 4, 1, 1.0),
        Case("gains in tenths, over 6 seeds", (1 + tenths, 1 + 0 * tenths)),
    ]


def then(change: Callable[[Tensor, Tensor, Tensor], Pair]) -> Answer:
    """Return an answer that makes something else of the right one and of the gains."""
    return lambda ours, theirs: change(*by_chance(ours, theirs), ours - theirs)


EXERCISES = (
    Exercise(
        name="window_starts",
        cases=window_cases,
        reference=window_starts,
        integers=True,
        axes=("length", "window"),
        mistakes=(
            Mistake("you cut the text into windows one after the other, so that each length scores "
                    "other characters",
                    lambda n, s, c: n[:, None] * torch.arange(c)),
            Mistake("windows of all lengths begin together; it is their last characters that must "
                    "be the same", starts(lambda n, s: torch.zeros_like(n))),
            Mistake("the longest window need not stand last in the list",
                    starts(lambda n, s: n[-1] - n)),
            Mistake("the longest window need not stand first in the list",
                    starts(lambda n, s: n[0] - n)),
            Mistake("longer windows begin earlier, so that they end at the same place; yours begin "
                    "later", starts(lambda n, s: n - n.min())),
            Mistake("a window cannot begin before the text does", starts(lambda n, s: n.min() - n)),
            Mistake("the blocks that are scored overlap: each window begins one block after the "
                    "one before", starts(early, 1)),
            Mistake("there are gaps between the blocks: each window begins `scored` characters "
                    "after the one before, not a whole window",
                    lambda n, s, c: early(n, s)[:, None] + n.max() * torch.arange(c)),
            Mistake("there are gaps or overlaps between the blocks: the stride is `scored` at "
                    "every length", lambda n, s, c: early(n, s)[:, None]
                    + n[:, None] * torch.arange(c)),
            Mistake("the first block could begin earlier: the longest window starts with the text",
                    starts(lambda n, s: early(n, s) + s)),
            Mistake("these are the first characters that are scored, not those that windows begin "
                    "with", starts(lambda n, s: (n.max() - s).expand_as(n))),
            Mistake("this is where windows end, not where they begin",
                    starts(lambda n, s: early(n, s) + n)),
        ),
    ),
    Exercise(
        name="rise",
        cases=lambda draw: draw.telling(rise_cases, rise, *WITH_WHOLE_NAMES),
        reference=rise,
        axes=("length",),
        mistakes=(
            Mistake("you subtract one median from another; take each seed's own rise first",
                    medians_apart),
            Mistake("this is the mean over the seeds: one seed that fails would decide it",
                    lambda *a: risen(*a, summary=torch.mean)),
            Mistake("this is the worst seed; take the median", lambda *a: risen(*a, summary=max)),
            Mistake("this is the best seed; take the median", lambda *a: risen(*a, summary=min)),
            Mistake("the sign is flipped: a loss that grows rises",
                    lambda *a: risen(*a, compare=lambda x, y: y - x)),
            Mistake("this is a ratio of losses; a rise in nats is a difference",
                    lambda *a: risen(*a, compare=torch.div)),
            Mistake("this is a difference of perplexities; a rise in nats is one of losses",
                    lambda *a: risen(*a, compare=lambda x, y: x.exp() - y.exp())),
            Mistake("you subtract the same number from every seed; each has a loss of its own at "
                    "the trained length", from_one_seed),
            Mistake("seeds with negative names are taken for others: the sign is lost",
                    lambda n, s, v, t: rise(n, s.abs(), v, t)),
            *(Mistake("seeds may have any numbers for names; yours are cut or rounded to whole "
                      "ones", answer) for answer in WITH_WHOLE_NAMES),
            Mistake("rows come in any order: find the row at the trained length by its seed",
                    lambda *a: risen(*a, paired=False)),
            Mistake("nothing is subtracted: this is the loss, not its rise",
                    lambda *a: risen(*a, compare=lambda x, _: x)),
            Mistake("the first value is in multiples of the trained length; yours are lengths",
                    lambda n, s, v, t: (rise(n, s, v, t)[0] * t, rise(n, s, v, t)[1])),
            Mistake("multiples must grow: sort the lengths", lambda *a: risen(*a, sort=False)),
            Mistake("leave the trained length itself out", lambda *a: risen(*a, from_length=1)),
            Mistake("leave lengths up to the trained one out",
                    lambda *a: risen(*a, from_length=0)),
        ),
    ),
    Exercise(
        name="paired_difference",
        cases=paired_cases,
        reference=paired_difference,
        axes=("comparison",),
        mistakes=(
            Mistake("the sign is flipped: it is ours minus theirs",
                    lambda a, b: paired_difference(b, a)),
            Mistake("the error is that of two separate groups; these are pairs: subtract first",
                    with_error(lambda a, b: ((a.var(1) + b.var(1)) / a.shape[1]) ** 0.5)),
            Mistake("divide by the root of the number of seeds, not by the number",
                    with_error(lambda a, b: (a - b).std(1) / a.shape[1])),
            Mistake("this is the standard deviation over seeds; the mean of several is known "
                    "better than that", with_error(lambda a, b: (a - b).std(1))),
            Mistake("divide the squares by one less than the number of seeds: the mean was fitted "
                    "to them",
                    with_error(lambda a, b: (a - b).std(1, correction=0) / a.shape[1] ** 0.5)),
            Mistake("this is a variance: take its root",
                    with_error(lambda a, b: (a - b).var(1) / a.shape[1])),
            Mistake("only our own seeds are in the error",
                    with_error(lambda a, b: a.std(1) / a.shape[1] ** 0.5)),
            Mistake("this is the median; the standard error belongs to the mean",
                    lambda a, b: ((a - b).quantile(0.5, 1), paired_difference(a, b)[1])),
            Mistake("this is the range over the seeds",
                    with_error(lambda a, b: (a - b).amax(1) - (a - b).amin(1))),
            Mistake("seeds lie along the last axis; your error is taken over all comparisons",
                    with_error(lambda a, b: ((a - b).std() / a.numel() ** 0.5).expand(len(a)))),
            Mistake("the difference is without its sign",
                    lambda a, b: ((a - b).mean(1).abs(), paired_difference(a, b)[1])),
        ),
    ),
    Exercise(
        name="by_chance",
        parts=(0, 1),
        cases=chance_cases,
        reference=by_chance,
        tolerance=1e-6,
        axes=("comparison",),
        mistakes=(
            Mistake("only gains of the same sign are counted; chance can make the rival win, too",
                    lambda a, b: flipped(a - b, both=False)),
            Mistake("a pattern whose size equals the measured one counts, too; the measured "
                    "pattern itself is one of them", lambda a, b: flipped(a - b, room=1e-9)),
            Mistake("sizes that differ by rounding alone are the same",
                    lambda a, b: flipped(a - b, room=0.0)),
            Mistake("each comparison asks whether the best of all reaches *its own* size, not that "
                    "of the best one", then(lambda alone, best, gain: (
                        alone, flipped(gain)[1].min().expand(len(gain))))),
            Mistake("sums in different units cannot be compared: divide by the root of the sum of "
                    "squares", of_unlike),
            Mistake("the second is the first times the number of comparisons; they share their "
                    "seeds, so count how often the best one does it",
                    then(lambda alone, best, gain: (alone, (alone * len(gain)).clamp(max=1)))),
            Mistake("the comparisons share their seeds: they are not so many independent chances",
                    then(lambda alone, best, gain: (alone, 1 - (1 - alone) ** len(gain)))),
            Mistake("the second is that of each comparison alone, too",
                    then(lambda alone, best, gain: (alone, alone))),
            Mistake("in each pattern the best comparison counts; yours is the mean of all",
                    lambda a, b: flipped(a - b, best=lambda size: size.mean(1, keepdim=True))),
            Mistake("these are numbers of patterns; return shares of all of them",
                    then(lambda alone, best, gain: (alone * 2 ** gain.shape[1],
                                                    best * 2 ** gain.shape[1]))),
            Mistake("the two are exchanged: first each comparison alone, then the best of all",
                    then(lambda alone, best, gain: (best, alone))),
        ),
    ),
)  # fmt: skip
