"""Checks of exercise set 17: reading a comparison over lengths and seeds."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake

# --- windows that score the same characters -------------------------------------------------------


def window_starts(lengths: Tensor, scored: int, count: int) -> Tensor:
    """Return where the windows of each length begin, (C, W)."""
    return lengths.max() - lengths[:, None] + scored * torch.arange(count)


def window_cases(draw: Draw) -> list[Case]:
    """Lengths in any order, as many windows as lengths or not, and one length alone."""
    more, fewer, count, scored = draw.sizes(4, 4, 9)
    order = 2 + draw.order(more)
    some, few = 16 * order, 10 + 3 * draw.order(fewer)
    calls = ((some, scored, count + 4), (few, 5, fewer), (some[:1], scored, 3),
             (torch.tensor([48, 72, 56]), 32, count))  # fmt: skip
    return [
        Case(f"lengths {lengths.tolist()}, {n} characters scored, {windows} windows",
             (lengths, n, windows))
        for lengths, n, windows in calls
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
        label = f"{many}, {count} of them, at {len(factors)} lengths, trained at {trained}"
        found.append(Case(label, (lengths.long(), seeds, nats, trained)))
    return found


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
        words = f"{rows} comparisons over {seeds} seeds"
        ahead = 0.8 * (-1.0) ** torch.arange(rows)[:, None]
        found.append(Case(words, ((ours + ahead).double(), theirs.double())))
    theirs = draw.normal(3, 5).double()
    return [*found, Case("the same difference with each of 5 seeds", (theirs + 0.25, theirs))]


def with_error(error: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Pair]:
    """Return an answer with the right mean difference and another error."""
    return lambda a, b: ((a - b).mean(1), error(a, b))


# --- verdicts -------------------------------------------------------------------------------------


def verdicts(ours: Tensor, theirs: Tensor, higher: Tensor) -> Tensor:
    """Return 1 where ours is better, -1 where it is not, 0 where one cannot say; (C,)."""
    return judged(ours, theirs, higher)


def judged(
    ours: Tensor, theirs: Tensor, higher: Tensor, *, least: int = 2, ties: str = "false",
    missing: str = "left out", disagree: int = 0, room: float = 0.0, subtracted: bool = False,
) -> Tensor:  # fmt: skip
    """Judge with one thing done in another way; gains up to `room` are ties."""
    gain = torch.where(higher[:, None], ours - theirs, theirs - ours)
    gain = torch.where(gain.abs() <= room, 0.0, gain)
    if not subtracted:  # two infinite losses are a tie, and their difference is NaN
        gain = torch.where(ours == theirs, 0.0, gain)
    run = ~gain.isnan() if missing == "left out" else torch.ones_like(gain, dtype=torch.bool)
    if missing == "for it":
        gain = gain.nan_to_num(1.0)
    true = (gain >= 0 if ties == "true" else gain > 0) & run
    false = (gain < 0 if ties == "neither" else ~true) & run
    enough = run.sum(1) >= least
    holds, fails = true.sum(1) == run.sum(1), false.sum(1) == run.sum(1)
    found = torch.where(holds, 1, torch.where(fails, -1, disagree))
    return torch.where(enough, found, 0)


def by_sign(summary: Callable[[Tensor], Tensor]) -> Answer:
    """Return an answer that takes the sign of a summary of the seeds' differences."""

    def answer(ours: Tensor, theirs: Tensor, higher: Tensor) -> Tensor:
        gain = torch.where(higher[:, None], ours - theirs, theirs - ours)
        return summary(gain).sign().nan_to_num().long()

    return answer


def by_ranges(ours: Tensor, theirs: Tensor, higher: Tensor) -> Tensor:
    """Compare the worst seed of one with the best of the other."""
    sign = torch.where(higher, 1, -1)[:, None]
    a, b = ours * sign, theirs * sign
    low, high = a.nan_to_num(torch.inf).amin(1), b.nan_to_num(-torch.inf).amax(1)
    below, above = a.nan_to_num(-torch.inf).amax(1), b.nan_to_num(torch.inf).amin(1)
    found = torch.where(low > high, 1, torch.where(below <= above, -1, 0))
    return torch.where((~(a - b).isnan()).sum(1) >= 2, found, 0)


def gains(draw: Draw, seeds: int) -> Tensor:
    """Return differences of every kind, NaN where a seed was not run, (C, S).

    The last four are tiny ones, which count like others, and infinite ones, as of a loss that grew
    without end.
    """
    plus = 0.1 + torch.rand(16, seeds, generator=draw.generator).double()
    gain = torch.cat([plus[:8], -plus[8:]])
    gain[1, 0], gain[9, 1] = -9.0, 9.0  # one seed against all others, and the mean with it
    gain[2, 1], gain[10, 2] = -0.05, 0.05  # the mean against it
    gain[3, 0], gain[11, 0] = 0.0, 0.0
    gain[4, 1:], gain[12, 1:] = torch.nan, torch.nan
    gain[5], gain[13] = torch.nan, 0.0
    gain[6, 2:], gain[14, :-2] = torch.nan, torch.nan
    gain[7, 2] = gain[15, 0] = torch.nan
    more = torch.full((4, seeds), torch.nan, dtype=torch.float64)
    more[:, :2] = torch.tensor([[1, 1e-10], [-1, -1e-10], [1, torch.inf], [-1, -torch.inf]])
    return torch.cat([gain, more])


def verdict_cases(draw: Draw) -> list[Case]:
    """Seeds that agree, disagree and tie, that one side or both did not run; and one alone."""
    found = []
    for seeds in draw.sizes(2, 4, 6):
        gain = gains(draw, seeds)[torch.randperm(20, generator=draw.generator)]
        higher = torch.arange(20) % 2 == draw.integer(0, 1)
        theirs = 3 * draw.normal(20, seeds).double()
        ours = theirs + torch.where(higher[:, None], gain, -gain)
        worse = torch.where(higher, -torch.inf, torch.inf)[:, None].expand(-1, seeds)
        theirs, ours = (
            torch.where(gain == torch.inf, worse, theirs),
            torch.where(gain == -torch.inf, worse, ours),
        )
        ours = torch.where(gain == torch.inf, draw.normal(20, seeds).double(), ours)
        ours[gain == 0] = theirs[gain == 0]
        alone = gain.isnan() & (torch.arange(seeds) % 2 == 0)  # here one side was run
        ours = torch.where(alone, theirs + 1, ours)
        theirs = torch.where(alone, torch.nan, theirs)
        wrong = torch.full((2, seeds), torch.inf, dtype=torch.float64)  # both sides' losses: ties
        better = wrong.clone()
        better[0, :2] = 1.0
        given = torch.cat([ours, better]), torch.cat([theirs, wrong])
        higher = torch.cat([higher, torch.tensor([False, False])])
        found.append(Case(f"22 claims over {seeds} seeds", (*given, higher)))
    alone = draw.normal(2, 6, 1).double()
    return [*found, Case("6 claims over a single seed", (*alone, torch.arange(6) % 2 == 0))]


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
        cases=rise_cases,
        reference=rise,
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
                      "ones", lambda n, s, v, t, cut=cut: rise(n, cut(s), v, t))
              for cut in (torch.trunc, torch.floor, torch.round)),
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
        name="verdicts",
        cases=verdict_cases,
        reference=verdicts,
        integers=True,
        axes=("claim",),
        mistakes=(
            Mistake("for a loss smaller is better: look at `higher`",
                    lambda a, b, h: judged(a, b, torch.ones_like(h))),
            Mistake("better and worse are exchanged", lambda a, b, h: judged(a, b, ~h)),
            Mistake("you compare means; one seed against the others means: cannot say",
                    by_sign(lambda g: g.nanmean(1))),
            Mistake("you let the majority of the seeds decide; if one disagrees, one cannot say",
                    by_sign(lambda g: (g > 0).sum(1) - (g <= 0).sum(1))),
            Mistake("you compare the worst seed with the best of the others; here each seed has "
                    "its rival of the same seed", by_ranges),
            Mistake("one pair is not enough: there must be two at least",
                    lambda *a: judged(*a, least=1)),
            Mistake("with no pair at all nothing holds: there must be two at least",
                    lambda *a: judged(*a, least=0)),
            Mistake("a seed that was not run is no evidence against: leave it out",
                    lambda *a: judged(*a, missing="false", least=0)),
            Mistake("a seed that was not run is no evidence for the claim: leave it out",
                    lambda *a: judged(*a, missing="for it")),
            Mistake("a tie is not better: it counts against the claim",
                    lambda *a: judged(*a, ties="true")),
            Mistake("a tie is false for the claim, which says *better*; it is not left open",
                    lambda *a: judged(*a, ties="neither")),
            *(Mistake("a small gain is a gain: nothing but a tie is a tie",
                      lambda a, b, h, ties=ties: judged(a, b, h, ties=ties, room=1e-3))
              for ties in ("false", "neither", "true")),
            Mistake("an infinite loss is a number like others; only NaN is missing",
                    lambda a, b, h: judged(a.where(a.isfinite(), torch.nan),
                                           b.where(b.isfinite(), torch.nan), h)),
            Mistake("two infinite losses are a tie, not a seed that was not run: compare them, and "
                    "do not subtract", lambda *a: judged(*a, subtracted=True)),
            Mistake("where the seeds disagree one cannot say: that is 0",
                    lambda *a: judged(*a, disagree=-1)),
            Mistake("1 is for what holds, -1 for what does not; yours have the other sign",
                    lambda *a: -judged(*a)),
        ),
    ),
)  # fmt: skip
