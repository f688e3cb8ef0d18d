"""Checks of exercise set 16: designs of published models."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pe_course.judge.exercise import Answer, Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope
from pe_lib.sinusoidal import frequencies

# --- which layers rotate --------------------------------------------------------------------------

KINDS = ("no positions", "all rotate", "a narrower head", "p-RoPE")


def layer_kinds(
    before: Tensor, after: Tensor, changed: Callable[[Tensor], Tensor] = lambda x: (x != 0).any(1),
) -> Tensor:  # fmt: skip
    """Return the kind of each layer, and how many of its pairs move, (N, 2)."""
    n = before.shape[-1] // 2
    found = []
    for moves in changed(after - before):  # (d,)
        m = int(moves.sum()) // 2
        found.append([0 if m == 0 else 1 if m == n else 2 if moves[m] else 3, m])
    return torch.tensor(found)


def by_kind(*numbers: int) -> Answer:
    """Return a wrong answer that has another number for each kind."""

    def answer(before: Tensor, after: Tensor) -> Tensor:
        kind, moving = layer_kinds(before, after).T
        return torch.stack([torch.tensor(numbers)[kind], moving], 1)

    return answer


def counted(rule: Callable[[Tensor, int], Tensor]) -> Answer:
    """Return a wrong answer that makes something else of the number of moving pairs."""

    def answer(before: Tensor, after: Tensor) -> Tensor:
        kind, moving = layer_kinds(before, after).T
        return torch.stack([kind, rule(moving, before.shape[-1])], 1)

    return answer


def rotated_half(x: Tensor, positions: Tensor, inv_freq: Tensor, narrow: bool = False) -> Tensor:
    """Rotate x (..., L, d) in the half layout; a narrower head passes the rest through."""
    width = 2 * int((inv_freq > 0).sum()) if narrow else x.shape[-1]
    turned = apply_rope(x[..., :width], positions[:, None] * inv_freq[: width // 2], "half")
    return torch.cat([turned, x[..., width:]], -1)


def stack_cases(draw: Draw) -> list[Case]:
    """Stacks of all kinds in any order, wide heads and narrow; one pair that moves, all but one."""
    n, few, more = draw.sizes(3, 4, 9)
    found = []
    # kinds and moving pairs of the layers, pairs, base, by how much the text is moved
    for layers, pairs, base, moved in (
        ([(3, few), (0, 0), (1, n), (2, few)], n + few, 1e4, 1000),
        ([(2, 32), (3, 32), (1, 64)], 64, 1e9, 1),
        ([(3, more - 1), (2, more - 1), (1, more), (3, 1), (2, 1)], more, 5e5, 37),
        ([(0, 0)] * 2 + [(3, 12)], 16, 5e6, 4), ([(2, more), (1, 3 * more)], 3 * more, 1e6, 9),
    ):  # fmt: skip
        length, both = draw.integer(5, 9), []
        for kind, m in layers:
            m = pairs if kind == 1 else m
            inv_freq = frequencies(2 * (m if kind == 2 else pairs), base)[:m]
            inv_freq = torch.cat([inv_freq, torch.zeros(pairs - m).double()])
            keys = draw.normal(length, 2 * pairs).double()
            both.append([rotated_half(keys, torch.arange(length) + start, inv_freq, kind == 2)
                         for start in (0, moved)])  # fmt: skip
        before, after = (torch.stack(each) for each in zip(*both, strict=True))
        # A text that was moved has the same contents: only what rotates is computed anew.
        words = ", ".join(dict.fromkeys(KINDS[kind] for kind, _ in layers))
        label = f"{len(layers)} layers ({words})"
        found.append(Case(label, (before, after), drawn=f", {pairs} pairs"))
    return found


# --- latent attention -----------------------------------------------------------------------------

Narrow = tuple[Tensor, Tensor]


def scores_of(q: Tensor, k: Tensor, scale: float = -0.5) -> Tensor:
    """Return the scores (H, L, L)."""
    found: Tensor = q @ k.mT * q.shape[-1] ** scale
    return found


def freed(scores: Tensor) -> Tensor:
    """Take from each row its mean, which the softmax does not see."""
    return scores - scores.mean(-1, keepdim=True)


def narrow_scores(
    q: Tensor, k: Tensor, share: float, *, free: Callable[[Tensor], Tensor] = freed,
    scale: float = -0.5, power: int = 2, more: int = 1,
) -> Narrow:  # fmt: skip
    """Return the narrowest width that loses no more than a share, and the scores that it leaves."""
    scores = free(scores_of(q, k, scale))
    n, rows = nearest(scores.flatten(0, 1), share, power, more)
    return torch.tensor(n), rows.view_as(scores)


def freed_late(q: Tensor, k: Tensor, share: float) -> Narrow:
    """Approximate the scores with the constants of their rows, which are taken off at the end."""
    n, scores = narrow_scores(q, k, share, free=torch.clone)
    return n, freed(scores)


def nearest(x: Tensor, share: float, power: int = 2, more: int = 1) -> tuple[int, Tensor]:
    """Return the smallest rank that loses no more than a share of x, and what it leaves of it."""
    u, s, v = torch.linalg.svd(x, full_matrices=False)
    left = 1 - (s**power).cumsum(0) / (s**power).sum()
    n = int((left > share).sum()) + more
    return n, (u[:, :n] * s[:n]) @ v[:n]


def each_head(q: Tensor, k: Tensor, share: float, *, keys: bool = False, power: int = 2) -> Narrow:
    """Give each head a narrow vector of its own, of its keys or of its scores."""
    each = [nearest(x, share, power) for x in (k if keys else freed(scores_of(q, k)))]
    rows = torch.stack([row for _, row in each])
    return torch.tensor(sum(n for n, _ in each)), scores_of(q, rows) if keys else rows


def all_keys(q: Tensor, k: Tensor, share: float) -> Narrow:
    """Find the vector for the keys of all heads, whatever the queries ask."""
    n, keys = nearest(k.transpose(0, 1).flatten(1), share)
    return torch.tensor(n), freed(scores_of(q, keys.unflatten(1, k[:, 0].shape).transpose(0, 1)))


def narrow_cases(draw: Draw) -> list[Case]:
    """Heads that share what they read and heads that do not; one head; loud constants of rows."""
    h, c, few, length = draw.sizes(4, 3, 8)
    found = []
    # heads, width, numbers that the keys are made of, tokens, share, a constant of the rows
    for words, heads, width, made, tokens, share, loud in (
        ("wide heads", h, 4 * c, few, 12 + length, 1e-9, 0.0),
        ("many tokens", h, 2 * c, 9, 30, 0.1, 2.0),
        ("narrow heads", few, c, 5, 9 + length, 0.25, 0.5), ("one head", 1, 9, 9, 20, 0.05, 1.0),
        ("loud rows", 4, 4, 6, 16, 0.5, 4.0),
    ):  # fmt: skip
        read = draw.normal(tokens, made).double() @ draw.normal(heads, made, width).double()
        q = draw.normal(heads, tokens, width).double() * torch.linspace(2, 0.1, width)
        k = read + loud * draw.normal(heads, 1, width).double() * made
        sizes = f": H, L, d = {(heads, tokens, width)}"
        found.append(Case(f"{words}, a share of {share:g}", (q, k, share), drawn=sizes))
    return found


# --- sinks ----------------------------------------------------------------------------------------


def sinks_of(
    logits: Tensor, v: Tensor, out: Tensor, *, of: Callable[[Tensor], Tensor] = torch.logit,
    total: Callable[[Tensor], Tensor] = lambda x: x.logsumexp(-1),
) -> Tensor:  # fmt: skip
    """Return the sink of each head, (H,), from queries that see a key."""
    without = logits.softmax(-1).nan_to_num() @ v  # as there were no sink
    share = (without * out).sum(-1) / without.square().sum(-1)
    found = total(logits) - of(share)  # (B, H, Lq)
    seen = logits.amax(-1) > -math.inf
    sums: Tensor = found.where(seen, 0.0).sum((0, 2)) / seen.sum((0, 2))
    return sums


def sink_cases(draw: Draw) -> list[Case]:
    """Small logits, a causal mask, large ones and small, queries that see no key; one of all."""
    b, h, lq, lk, d = draw.sizes(5, 3, 9)
    past, none = torch.ones(lk, lk).triu(1).bool(), torch.arange(lq)[:, None] == lq // 2
    none_first = torch.arange(lq)[:, None] < 2

    def case(
        words: str, b: int, h: int, lq: int, lk: int, hidden: Tensor | None = None,
        level: float = 0.0,
    ) -> Case:  # fmt: skip
        sinks = (1.5 * draw.normal(h) + level + math.log(lk)).double()
        logits, v = draw.normal(b, h, lq, lk).double() + level, draw.normal(b, h, lk, d).double()
        if hidden is not None:
            logits = logits.masked_fill(hidden, -math.inf)
        column = sinks[:, None, None].expand(b, h, lq, 1)
        out = torch.cat([logits, column], -1).softmax(-1)[..., :-1] @ v
        return Case(words, (logits, v, out), drawn=f", logits of shape {(b, h, lq, lk)}")

    return [
        case("every key seen", b, h, lq, lk),
        case("a causal mask", b, h, lk, lk, past),
        case("all far above 0", b, h, lq, lk, None, 800.0),
        case("all far below 0", h, b, lq, lk, None, -800.0),
        case("a query that sees no key", b, h, lq, lk, none),
        case("the first queries see no key", h, b, lq, lk, none_first),
        case("one head, one query, many keys", 1, 1, 1, 30),
    ]


# --- forgetting -----------------------------------------------------------------------------------


def gates_of(bias: Tensor) -> Tensor:
    """Return the numbers that the gates of tokens 1, 2, ... were computed from."""
    return opened(neighbours(bias))


def neighbours(bias: Tensor) -> Tensor:
    """Return the logarithms of the gates, from all rows that see two neighbouring keys."""
    steps = -bias.diff(dim=-1)  # (B, H, Lq, Lk - 1)
    both = steps.isfinite()
    found: Tensor = steps.where(both, 0.0).sum(2) / both.sum(2)
    return found


def opened(logs: Tensor) -> Tensor:
    """Return g where log sigmoid(g) is given."""
    return logs - (-torch.expm1(logs)).log()


def by_logs(rule: Callable[[Tensor], Tensor]) -> Answer:
    """Return a wrong answer that makes something else of the logarithms of the gates."""
    return lambda bias: rule(neighbours(bias))


def bias_cases(draw: Draw) -> list[Case]:
    """Windows wide and narrow, and none; behind a cache, one query; gates as good as shut."""
    b, h, lk = draw.sizes(3, 3, 8)
    few = draw.integer(3, 4)

    def case(words: str, gates: Tensor, queries: int, window: int, moved: float) -> Case:
        sums = F.logsigmoid(gates.double()).cumsum(-1)
        bias = sums[..., -queries:, None] - sums[..., None, :]
        bias = bias + moved * draw.normal(*bias.shape[:3], 1)
        back = (number := torch.arange(gates.shape[-1]))[-queries:, None] - number
        bias = bias.masked_fill((back < 0) | (back >= window), -torch.inf)
        return Case(words, (bias,), drawn=f", bias of shape {tuple(bias.shape)}")

    shut = draw.normal(b, h, lk + 2) - 150 * (draw.normal(b, h, lk + 2) > 0)
    return [
        case("a window, a whole text", 2 * draw.normal(b, h, lk + 4), lk + 4, few, 3.0),
        case("a narrow window, rows not moved", draw.normal(h, b, lk + 3), lk + 3, 2, 0.0),
        case("a window, a step behind a cache", draw.normal(b, b, lk + 4), 4, lk + 1, 5.0),
        case("one query that sees all", draw.normal(h, b, lk + 1) + 2, 1, 99, 1.0),
        case("a window, some gates as good as shut", shut, lk + 2, 3, 3.0),
    ]


EXERCISES = (
    Exercise(
        name="layer_kinds",
        cases=stack_cases,
        reference=layer_kinds,
        integers=True,
        axes=("layer", "number"),
        mistakes=(
            Mistake("2 and 3 are exchanged: in p-RoPE the pairs are those of the whole head, and "
                    "a pair is a component of the first half and one of the second",
                    by_kind(0, 1, 3, 2)),
            Mistake("a layer that stands still in part is taken for p-RoPE, whatever stands still",
                    by_kind(0, 1, 3, 3)),
            Mistake("a layer that stands still in part is taken for a narrower head, whatever "
                    "stands still", by_kind(0, 1, 2, 2)),
            Mistake("0 is a layer in which nothing rotates, 1 one in which all does",
                    by_kind(1, 0, 2, 3)),
            Mistake("these are components, of which each pair has two",
                    counted(lambda m, d: 2 * m)),
            Mistake("these are the pairs that stand still", counted(lambda m, d: d // 2 - m)),
            Mistake("slow pairs are taken for standing ones; those do not change at all",
                    lambda a, b: layer_kinds(a, b, lambda x: (x.abs() > 1e-4).any(1))),
        ),
    ),
    Exercise(
        name="sinks_of",
        cases=sink_cases,
        reference=sinks_of,
        tolerance=1e-6,
        axes=("head",),
        mistakes=(
            Mistake("this is the logarithm of what the keys get divided by what the sink takes; "
                    "the sink itself comes from the keys' own sum",
                    lambda *a: -sinks_of(*a, total=lambda x: 0 * x[..., 0].nan_to_num())),
            Mistake("this is the logarithm of what the sink takes divided by what the keys get; "
                    "the logarithm of the keys' own sum is missing",
                    lambda *a: sinks_of(*a, total=lambda x: 0 * x[..., 0].nan_to_num())),
            Mistake("you take the mean of the logits; it is the exponentials that are summed",
                    lambda *a: sinks_of(*a, total=lambda x: x.nan_to_num(neginf=0.0).mean(-1))),
            Mistake("the largest logit stands for the sum of all exponentials",
                    lambda *a: sinks_of(*a, total=lambda x: x.amax(-1))),
            Mistake("the logarithm of the sum is taken to be that of the number of keys, as though "
                    "all logits were 0", lambda *a: sinks_of(
                        *a, total=lambda x: torch.full_like(x[..., 0], math.log(x.shape[-1])))),
            Mistake("the sign is flipped: a larger sink takes more",
                    lambda *a: -sinks_of(*a)),
            Mistake("shares are taken the wrong way round: the sink has what the keys have not",
                    lambda *a: sinks_of(*a, of=lambda x: -torch.logit(x))),
            Mistake("this is the share of the keys; the sink's own logit is asked for",
                    lambda *a: -sinks_of(*a, of=lambda x: x,
                                         total=lambda x: 0 * x[..., 0].nan_to_num())),
            Mistake("the sink's share is compared with 1; compare it with that of the keys",
                    lambda *a: sinks_of(*a, of=lambda x: -(1 - x).log())),
            Mistake("this is the share of the sink; its logit is asked for",
                    lambda *a: 1 + sinks_of(*a, of=lambda x: x,
                                            total=lambda x: 0 * x[..., 0].nan_to_num())),
        ),
    ),
    Exercise(
        name="gates_of",
        cases=bias_cases,
        reference=gates_of,
        tolerance=1e-6,
        axes=("batch", "head", "token"),
        mistakes=(
            Mistake("these are the logarithms of the gates; the numbers before the sigmoid are "
                    "asked for", neighbours),
            Mistake("these are the gates; the numbers before the sigmoid are asked for",
                    by_logs(torch.exp)),
            Mistake("the signs are flipped: these are the numbers of what is forgotten, 1 - f",
                    by_logs(lambda x: -opened(x))),
            Mistake("you take the last row alone; the window hides the first keys from it",
                    lambda b: opened(-b[:, :, -1].diff(dim=-1))),
            Mistake("you average over all rows, those too that see one of two neighbours only",
                    lambda b: opened(-b.diff(dim=-1).mean(2))),
            Mistake("a hidden key counts as a difference of 0; leave its rows out",
                    lambda b: opened(-b.diff(dim=-1).nan_to_num(0, 0, 0).mean(2))),
            Mistake("the tokens are in reverse order", lambda b: gates_of(b).flip(-1)),
            Mistake("these are sums over several tokens; subtract neighbours",
                    by_logs(lambda x: opened(x.cumsum(-1)))),
            Mistake("one token too early: the difference of keys l - 1 and l is the gate of l",
                    lambda b: gates_of(b).roll(-1, -1)),
            Mistake("all tokens get the mean: this is ALiBi, with a slope for each text",
                    lambda b: gates_of(b).mean(-1, keepdim=True).expand_as(gates_of(b))),
        ),
    ),
    Exercise(
        name="narrow_scores",
        cases=narrow_cases,
        reference=narrow_scores,
        tolerance=1e-6,
        axes=("head", "query", "key"),
        mistakes=(
            Mistake("these are width and scores of the listing: nothing is mended yet",
                    lambda q, k, share: each_head(q, k, share, keys=True, power=1)),
            Mistake("each head has a narrow vector of its own, and a token must keep them all; one "
                    "is for all heads", each_head),
            Mistake("each head keeps keys of its own, and all that they hold; one vector is for "
                    "all heads, and it need hold only what queries ask for",
                    lambda *a: each_head(*a, keys=True)),
            Mistake("you compress the keys; what queries never ask for need not be kept",
                    all_keys),
            Mistake("you free the rows of their means too late: a vector that must hold these, "
                    "which the softmax does not see, is wider, or holds less",
                    freed_late),
            Mistake("a number that is added to a whole row changes no weight, and need not be kept",
                    lambda *a: narrow_scores(*a, free=torch.clone)),
            Mistake("you free columns of their means; the softmax runs along rows",
                    lambda *a: narrow_scores(*a, free=lambda x: x - x.mean(-2, keepdim=True))),
            Mistake("all scores are freed of one mean; each row has its own",
                    lambda *a: narrow_scores(*a, free=lambda x: x - x.mean())),
            Mistake("the share is of squares; you sum the singular values themselves",
                    lambda *a: narrow_scores(*a, power=1)),
            Mistake("one number too many: with one less the loss is within the share",
                    lambda *a: narrow_scores(*a, more=2)),
            Mistake("one number too few: the loss is larger than the share",
                    lambda *a: narrow_scores(*a, more=0)),
            Mistake("the scores are not divided by the root of the width",
                    lambda *a: narrow_scores(*a, scale=0)),
            Mistake("you keep the share and lose the rest; at most the share may be lost",
                    lambda q, k, share: narrow_scores(q, k, 1 - share)),
        ),
    ),
)  # fmt: skip
