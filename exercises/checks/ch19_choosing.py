"""Checks of exercise set 19: what a choice costs, what it implies, and how it is made."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake

# --- bytes in a cache -----------------------------------------------------------------------------


def cache_bytes(
    layers: int, heads: int, kv_heads: int, head_dim: int, length: int, window: int, every: int
) -> Tensor:
    """Return the bytes of a cache in half precision of which most layers keep a window."""
    return held(layers, kv_heads, head_dim, length, window, every)


def held(
    layers: int, kv_heads: int, head_dim: int, length: int, window: int, every: int, *,
    full: int | None = None, tensors: int = 2, each: int = 2, limit: bool = True,
) -> Tensor:  # fmt: skip
    """Count them with one thing counted otherwise."""
    whole = layers // every if full is None else full
    kept = min(length, window) if limit else window
    tokens = whole * length + (layers - whole) * kept
    return torch.tensor(tensors * each * kv_heads * head_dim * tokens)


def otherwise(**change: Any) -> Answer:
    """Return an answer that counts one thing otherwise."""

    def answer(layers: int, heads: int, kv: int, d: int, n: int, w: int, every: int) -> Tensor:
        given: dict[str, Any] = {key: value(layers, every) if callable(value) else value
                 for key, value in change.items()}  # fmt: skip
        return held(layers, kv, d, n, w, every, **given)

    return answer


def cache_cases(draw: Draw) -> list[Case]:
    """Windows shorter and longer than the text, one kind of layer alone, and layers left over."""
    every, kv, group, half = draw.sizes(4, 3, 9)
    odd = 3 * every + draw.integer(1, every - 1)
    calls = (
        ("layers left over", odd, kv * group, kv, 16 * half, 4000 + half, 512, every),
        ("a text shorter than the windows", 4 * every, 2 * kv, kv, 64, 300 + half, 1024, every),
        ("no windows at all", 12 + kv, 12, 12, 64, 2048, 128, 1),
        ("windows alone", every - 1, 8, 2, 128, 5000 + group, 1000 + half, every),
        ("one head of keys", 2 * every, 8, 1, 256, 1024, 1024, every),
        ("a published model", 32, 32, 8, 128, 131072, 4096, 4),
    )
    return [
        Case(words, (n, h, kv, d, length, w, e),
             drawn=f": layers {n}, heads {h} of {d} and {kv} of keys, {length} tokens, windows of "
                   f"{w}, one layer of {e} without")
        for words, n, h, kv, d, length, w, e in calls
    ]  # fmt: skip


# --- the base that a length asks for --------------------------------------------------------------


def base_for(head_dim: int, length: int, turns: float) -> Tensor:
    """Return the base with which the slowest pair makes so many turns over a length."""
    return based(head_dim, length, turns)


def based(
    dim: int, length: int, turns: float, *,
    circle: float = 2 * math.pi, power: Callable[[int], float] = lambda d: d / (d - 2),
) -> Tensor:  # fmt: skip
    """Solve it with one thing done in another way."""
    return torch.tensor(length / (circle * turns), dtype=torch.float64) ** power(dim)


def base_cases(draw: Draw) -> list[Case]:
    """Narrow heads and wide ones; whole turns, parts of one, several."""
    half, other, more = draw.sizes(3, 3, 12)
    length = draw.integer(500, 5000)
    calls = (
        ("one turn", 2 * half, length, 1.0), ("a part of a turn", 4 * other, 8192, 0.25),
        ("a published model", 128, 131072, 0.5), ("the least width", 4, 300 + other, 1.5),
        ("several turns", 16 * more, 50 * length, 3.0), ("a wide head", 256, 8192, 0.9),
    )  # fmt: skip
    return [Case(words, (d, n, t), drawn=f": width {d}, length {n}, turns {t:g}")
            for words, d, n, t in calls]  # fmt: skip


# --- from which step a cached key is stale --------------------------------------------------------

SAME = 1e-3  # keys that differ by less are the same


def first_stale(keys: Tensor) -> Tensor:
    """Return the first step at which a kept key is no longer the one in use, (M,)."""
    return stale_from(keys)


def own_step(keys: Tensor) -> Tensor:
    """Return each token's key at its own step, (M, 1, T, d)."""
    return keys.diagonal(dim1=1, dim2=2).mT[:, None]


def seen(keys: Tensor) -> Tensor:
    """Return which tokens a step has, (T, T)."""
    return torch.ones(keys.shape[1:3], dtype=torch.bool).tril()


def first_true(bad: Tensor) -> Tensor:
    """Return the first step of each method that is bad, and the number of steps if none is."""
    steps = torch.arange(bad.shape[1])
    return torch.where(bad, steps, bad.shape[1]).amin(1)


def stale_from(
    keys: Tensor, *, kept: Callable[[Tensor], Tensor] = own_step, bound: float = SAME,
    part: Callable[[Tensor], Tensor] = lambda k: k,
    among: Callable[[Tensor], Tensor] = seen,
) -> Tensor:  # fmt: skip
    """Find it with one thing done in another way."""
    moved = (part(keys) - part(kept(keys))).abs().amax(-1)  # (M, T, T)
    return first_true(((moved > bound) & among(keys)).any(-1))


def step_before(keys: Tensor) -> Tensor:
    """Return what each key was at the step before, if it was there, (M, T, T, d)."""
    before = torch.cat([keys[:, :1], keys[:, :-1]], 1)
    new = torch.eye(keys.shape[1], dtype=torch.bool)[..., None]
    return torch.where(new, keys, before)


def only(tokens: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Return a choice among the tokens that a step has."""
    return lambda keys: seen(keys) & tokens(torch.arange(keys.shape[1]))


def stale_cases(draw: Draw) -> list[Case]:
    """Methods whose keys stay, move at once, late, little by little, in one token or component.

    Few steps, many, and one alone.
    """
    found = [Case("2 methods, a single step", (draw.normal(2, 1, 1, 4),))]
    counts = (*draw.sizes(2, 8, 12), draw.integer(20, 30))
    kinds = ("some", "some more", "many")
    for words, steps, d in zip(kinds, counts, draw.sizes(3, 3, 9), strict=True):
        keys = records(draw, steps, d)[torch.randperm(13, generator=draw.generator)]
        found.append(Case(f"13 methods, {words} steps", (keys,), drawn=f": T, d = {(steps, d)}"))
    return found


def records(draw: Draw, steps: int, d: int) -> Tensor:
    """Return keys (M, T, T, d) of methods that move them in different ways."""
    plain = draw.normal(13, 1, steps, d).expand(-1, steps, -1, -1).clone()
    late, mid = draw.integer(4, steps - 2), draw.integer(2, steps - 4)
    step = torch.arange(steps)
    plain[1] += 0.3 * step[:, None, None]  # numbered from the newest token
    plain[2] *= torch.where(step >= late, 1.2, 1.0)[:, None, None]  # another rule past a length
    plain[3, late:] = plain[3, late:].flip(-1)  # norms stay
    plain[4, mid + 1 :, mid] -= 0.5  # one token alone
    plain[5, late + 1 :, late, -1] += 0.2  # its last component alone
    plain[6, late, 0] += 1.0  # and back again
    plain[7] += 4e-4 * step[:, None, None]  # little by little
    plain[11, late:] += 2e-3  # hardly, at once
    plain[12, late:] += 6e-4  # no more than rounding may
    plain[8, :, 0, 0] += 0.4 * (step >= steps - 1)
    plain[9, mid + 2 :, 1 : mid + 1, d // 2] -= 0.2
    noise = 1e-5 * draw.normal(13, steps, steps, d)
    later = ~torch.ones(steps, steps, dtype=torch.bool).tril()[None, ..., None]
    return torch.where(later, draw.normal(13, steps, steps, d), plain + noise)


def token_not_step(keys: Tensor) -> Tensor:
    """Return the first token that ever goes stale."""
    moved = (keys - own_step(keys)).abs().amax(-1) > SAME
    return first_true((moved & seen(keys)).any(1))


def how_many(keys: Tensor) -> Tensor:
    """Return how many steps see a stale key."""
    moved = (keys - own_step(keys)).abs().amax(-1) > SAME
    return (moved & seen(keys)).any(-1).sum(-1)


def if_never(value: Callable[[int], int]) -> Answer:
    """Return an answer with another word for never."""

    def answer(keys: Tensor) -> Tensor:
        found, steps = first_stale(keys), keys.shape[1]
        return torch.where(found == steps, value(steps), found)

    return answer


# --- the choice -----------------------------------------------------------------------------------


def choose(scores: Tensor, bars: Tensor, higher: Tensor, cost: Tensor) -> Tensor:
    """Return the cheapest method that reaches every bar with every seed, or -1."""
    return cheapest(reached(scores, bars, higher).all(2).all(1), cost)


def reached(scores: Tensor, bars: Tensor, higher: Tensor) -> Tensor:
    """Return which seeds reach the bars, (M, P, S)."""
    at, up = bars[:, None], higher[:, None]
    return torch.where(up, scores >= at, scores <= at)


def strictly(scores: Tensor, bars: Tensor, higher: Tensor, way: str) -> Tensor:
    """Return which methods fit if a number on the bar does not reach it, from one side or both."""
    at, up = bars[:, None], higher[:, None]
    on_bar = (scores == at) & (up if way == "above" else ~up if way == "below" else True)
    return (reached(scores, bars, higher) & ~on_bar).all(2).all(1)


def cheapest(fits: Tensor, cost: Tensor, none: int = -1) -> Tensor:
    """Return the cheapest of those that fit."""
    if not fits.any():
        return torch.tensor(none)
    return torch.where(fits, cost, torch.inf).argmin()


def by_summary(summary: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Return an answer that looks at one number for all seeds."""

    def answer(scores: Tensor, bars: Tensor, higher: Tensor, cost: Tensor) -> Tensor:
        value = summary(scores, higher[:, None])[..., None]
        return cheapest(reached(value, bars, higher).all(2).all(1), cost)

    return answer


def not_failing(scores: Tensor, bars: Tensor, higher: Tensor, cost: Tensor) -> Tensor:
    """Ask which seeds miss the bar, which no missing number does."""
    at, up = bars[:, None], higher[:, None]
    return cheapest(~torch.where(up, scores < at, scores > at).any(2).any(1), cost)


KINDS = (
    "one seed", "by a hair", "one bad seed", "most seeds", "missing", "missing all", "one need",
    "all needs", "tie above", "tie below", "",
)  # fmt: skip


def methods(draw: Draw, tempting: str, seeds: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return six methods; the cheapest tempts, two others fit, or none does without a kind."""
    higher = torch.tensor([True, False, True, False])[torch.randperm(4, generator=draw.generator)]
    if tempting.startswith("tie"):
        higher[:] = tempting == "tie above"
    margin = 0.2 + 0.2 * torch.rand(6, 4, seeds, generator=draw.generator).double()
    need, seed = KINDS.index(tempting) % 4, draw.integer(0, seeds - 1)
    for spoiled, kind in ((0, tempting), (3, "one need"), (4, "most seeds"), (5, "one need")):
        spoil(margin[spoiled], kind, need, seed)
    if not tempting:
        margin[:3, need] *= -1
    bars = 2 * draw.normal(4).double()
    scores = bars[:, None] + torch.where(higher, 1, -1)[:, None] * margin
    cost = torch.tensor([1.0, 3, 5, 2, 4, 6]) * draw.integer(2, 9)
    if tempting == "tie below":
        cost *= 1e12
    order = draw.order(6)
    return scores[order], bars, higher, cost[order]


def spoil(margin: Tensor, kind: str, need: int, seed: int) -> None:
    """Let a method, (P, S), miss its bars in some way."""
    others = torch.arange(margin.shape[1]) != seed
    if kind == "one seed":
        margin[need, seed] = -0.02
    elif kind == "by a hair":
        margin[need, seed] = -1e-7
    elif kind == "one bad seed":
        margin[need, seed] = -9
    elif kind == "most seeds":
        margin[need, others] = -0.3
    elif kind == "missing":
        margin[need, seed] = torch.nan
    elif kind == "missing all":
        margin[need] = torch.nan
    elif kind == "one need":
        margin[need] *= -1
    elif kind == "all needs":
        margin *= -1
    elif kind.startswith("tie"):
        margin[need, seed] = 0


def choice_cases(draw: Draw) -> list[Case]:
    """Every way to miss a bar in the cheapest method, two on the bar, and nothing that fits."""
    seeds = draw.sizes(len(KINDS), 3, 13)
    return [
        Case("6 methods, 4 needs", methods(draw, kind, n), drawn=f", {n} seeds")
        for kind, n in zip(KINDS, seeds, strict=True)
    ]


def best_seed(scores: Tensor, higher: Tensor) -> Tensor:
    """Return the best seed of each method and need."""
    low, high = scores.nan_to_num(torch.inf).amin(-1), scores.nan_to_num(-torch.inf).amax(-1)
    return torch.where(higher[..., 0], high, low)


def among_fitting(scores: Tensor, bars: Tensor, higher: Tensor, cost: Tensor) -> Tensor:
    """Return the place among those that fit."""
    fits = reached(scores, bars, higher).all(2).all(1)
    return cost[fits].argmin() if fits.any() else torch.tensor(-1)


def with_fits(choice: Callable[[Tensor, Tensor], Tensor]) -> Answer:
    """Return an answer that chooses otherwise among the right ones."""

    def answer(scores: Tensor, bars: Tensor, higher: Tensor, cost: Tensor) -> Tensor:
        return choice(reached(scores, bars, higher).all(2).all(1), cost)

    return answer


EXERCISES = (
    Exercise(
        name="cache_bytes",
        cases=cache_cases,
        reference=cache_bytes,
        tolerance=1e-9,
        mistakes=(
            Mistake("a factor of two is missing: keys and values are kept, and a number in half "
                    "precision takes two bytes", otherwise(tensors=1)),
            Mistake("these are the numbers of the keys alone; values are kept, too, and each "
                    "number takes two bytes", otherwise(tensors=1, each=1)),
            Mistake("a number in half precision takes two bytes, not four", otherwise(each=4)),
            Mistake("keys and values have fewer heads than queries: count `kv_heads`",
                    lambda n, h, kv, d, *rest: held(n, h, d, *rest)),
            Mistake("one head of keys serves a group of queries' heads; you count groups' sizes",
                    lambda n, h, kv, d, *rest: held(n, h // kv, d, *rest)),
            Mistake("layers with a window keep no more than the window",
                    otherwise(full=lambda n, e: n)),
            Mistake("every `every`-th layer keeps all tokens", otherwise(full=lambda n, e: 0)),
            Mistake("a window keeps no more tokens than there are", otherwise(limit=False)),
            Mistake("layers `every`, 2 `every` ... keep all, counted from 1: those left over at "
                    "the end have windows", otherwise(full=lambda n, e: -(-n // e))),
            Mistake("the two kinds of layers are exchanged",
                    otherwise(full=lambda n, e: n - n // e)),
            Mistake("this is the cache of one layer",
                    lambda n, h, kv, d, length, w, e: torch.tensor(4 * kv * d * length)),
        ),
    ),
    Exercise(
        name="base_for",
        cases=base_cases,
        reference=base_for,
        mistakes=(
            Mistake("the slowest pair's frequency is not 1/base: its exponent is (d - 2)/d",
                    lambda d, n, t: based(d, n, t, power=lambda d: 1.0)),
            Mistake("the exponent is upside down: the base is a power d / (d - 2)",
                    lambda d, n, t: based(d, n, t, power=lambda d: (d - 2) / d)),
            Mistake("there are d / 2 pairs, and the last has the exponent (d - 2)/d, not "
                    "(d - 1)/d", lambda d, n, t: based(d, n, t, power=lambda d: d / (d - 1))),
            Mistake("there are d / 2 pairs; you count d, and the last exponent is half as large",
                    lambda d, n, t: based(d, n, t, power=lambda d: 2 * d / (d - 2))),
            Mistake("a full turn is 2 pi radians; yours is one",
                    lambda d, n, t: based(d, n, t, circle=1.0)),
            Mistake("a full turn is 2 pi radians; yours is pi",
                    lambda d, n, t: based(d, n, t, circle=math.pi)),
            Mistake("more turns need a smaller base: divide by `turns`",
                    lambda d, n, t: based(d, n, 1 / t)),
            Mistake("the number of turns is left out", lambda d, n, t: based(d, n, 1.0)),
            Mistake("2 pi belongs below the length: a wavelength is 2 pi over the frequency",
                    lambda d, n, t: based(d, n, t, circle=1 / (2 * math.pi))),
            Mistake("this is the frequency of the slowest pair, not the base",
                    lambda d, n, t: based(d, n, t, power=lambda d: -1.0)),
        ),
    ),
    Exercise(
        name="first_stale",
        cases=stale_cases,
        reference=first_stale,
        integers=True,
        axes=("method",),
        mistakes=(
            Mistake("a step has no keys of later tokens: what stands there means nothing",
                    lambda k: stale_from(k, among=lambda k: seen(k) | True)),
            Mistake("you look at the first token alone; any may go stale",
                    lambda k: stale_from(k, among=only(lambda n: n == 0))),
            Mistake("you leave out the first token",
                    lambda k: stale_from(k, among=only(lambda n: n > 0))),
            Mistake("compare with the key at its own step, not at the step before: it may move "
                    "little by little", lambda k: stale_from(k, kept=step_before)),
            Mistake("compare with the key at its own step, which a cache has kept; you compare "
                    "with the last step", lambda k: stale_from(k, kept=lambda k: k[:, -1:])),
            *(Mistake("rounding moves numbers, too: keys that differ by less than 0.001 are the "
                      "same", lambda k, bound=bound: stale_from(k, bound=bound))
              for bound in (0.0, 1e-4, 5e-4)),
            *(Mistake("keys that differ by more than 0.001 are not the same; your bound is larger",
                      lambda k, bound=bound: stale_from(k, bound=bound)) for bound in (0.1, 1e-2)),
            Mistake("a rotation keeps the norm: compare the keys, not their norms",
                    lambda k: stale_from(k, part=lambda k: k.norm(dim=-1, keepdim=True))),
            Mistake("you look at the first component alone",
                    lambda k: stale_from(k, part=lambda k: k[..., :1])),
            Mistake("you average over components: one alone is enough",
                    lambda k: stale_from(k, part=lambda k: k.mean(-1, keepdim=True))),
            Mistake("this is the first token that goes stale; return the step", token_not_step),
            Mistake("this is how many steps see a stale key; return the first", how_many),
            Mistake("if no key is ever stale, return the number of steps; yours is 0",
                    if_never(lambda steps: 0)),
            Mistake("if no key is ever stale, return the number of steps; yours is -1",
                    if_never(lambda steps: -1)),
            Mistake("if no key is ever stale, return the number of steps; yours is the last step",
                    if_never(lambda steps: steps - 1)),
            Mistake("this is the last step at which all is well; return the one after it",
                    lambda k: first_stale(k) - 1),
        ),
    ),
    Exercise(
        name="choose",
        cases=choice_cases,
        reference=choose,
        integers=True,
        mistakes=(
            Mistake("a mean over the seeds hides the one that fails: every seed must reach the bar",
                    by_summary(lambda s, up: s.mean(-1))),
            Mistake("a mean over the seeds that there are hides the one that is missing: every "
                    "seed must reach the bar", by_summary(lambda s, up: s.nanmean(-1))),
            Mistake("a median hides the seed that fails: every seed must reach the bar",
                    by_summary(lambda s, up: s.quantile(0.5, -1))),
            Mistake("the best seed is not enough: every seed must reach the bar",
                    by_summary(best_seed)),
            Mistake("a missing number (NaN) does not reach the bar", not_failing),
            Mistake("for some needs less is better: look at `higher`",
                    lambda s, b, up, c: choose(s, b, torch.ones_like(up), c)),
            Mistake("`higher` is read the wrong way round",
                    lambda s, b, up, c: choose(s, b, ~up, c)),
            Mistake("all needs must be met, not one of them",
                    lambda s, b, up, c: cheapest(reached(s, b, up).all(2).any(1), c)),
            *(Mistake("a number on the bar reaches it",
                      lambda s, b, up, c, way=way: cheapest(strictly(s, b, up, way), c))
              for way in ("above", "below", "both")),
            Mistake("this is the dearest that fits", with_fits(
                lambda fits, cost: cheapest(fits, -cost))),
            Mistake("this is the first that fits, whatever it costs", with_fits(
                lambda fits, cost: fits.long().argmax() if fits.any() else torch.tensor(-1))),
            Mistake("where none fits, return -1", with_fits(
                lambda fits, cost: cheapest(fits, cost, none=0))),
            Mistake("this is the place among those that fit; count all methods", among_fitting),
            Mistake("this is the cheapest of all, whether it fits or not", with_fits(
                lambda fits, cost: cost.argmin())),
        ),
    ),
)  # fmt: skip
