"""Checks of exercise set 16: designs of published models."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from exercises.checks.spec import Answer, Case, Draw, Exercise, Mistake
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

# --- p-RoPE ---------------------------------------------------------------------------------------


def partial_kind(rates: Tensor, base: float) -> tuple[Tensor, Tensor]:
    """Return which design leaves a part of a head without rotation, and the share that moves."""
    n, moving = len(rates), int((rates > 0).sum())
    steps = math.log(base) / math.log(float(rates[0] / rates[1]))
    narrower = abs(steps - moving) < abs(steps - n)
    kind, share = torch.tensor([0 if moving == n else 1 if narrower else 2, moving / n])
    return kind, share


def by_number(rates: Tensor, base: float, *numbers: float) -> tuple[Tensor, Tensor]:
    """Return another number for each design, and the right share."""
    kind, share = partial_kind(rates, base)
    return torch.tensor(numbers[int(kind)]), share


def rate_cases(draw: Draw) -> list[Case]:
    """Both designs and neither, wide heads and narrow; few pairs that move, and all but one."""
    n, more, odd = draw.sizes(3, 9, 30)
    calls = (
        ("head A", 64, 32, 10000.0, True), ("head B", 128, 32, 1e6, False),
        ("head C", n, n, 500.0, False), ("head D", more, 2, 500_000.0, True),
        ("head E", more, 2, 10000.0, False), ("head F", odd, odd - 1, 10000.0, False),
        ("head G", odd, odd - 1, 5e5, True), ("head H", 128, 96, 1e6, True),
        ("head I", 128, 96, 1e6, False),
    )  # fmt: skip
    return [
        Case(f"{words}, {pairs} pairs, base {base:g}",
             (torch.cat([frequencies(2 * (moving if narrow else pairs), base)[:moving],
                         torch.zeros(pairs - moving).double()]), base))
        for words, pairs, moving, base, narrow in calls
    ]  # fmt: skip


# --- latent attention -----------------------------------------------------------------------------

FAR = 1e-2  # as in set 10: a cosine written as a shifted sine is rounded


Parts = tuple[Tensor, Tensor]


def latent_parts(
    q: Tensor, latent: Tensor, shared: Tensor, up: Tensor, q_pos: Tensor, k_pos: Tensor
) -> Parts:
    """Return queries and a cache whose products are the scores; no head has keys of its own."""
    return latent_otherwise(q, latent, shared, up, q_pos, k_pos)


def latent_otherwise(
    q: Tensor, latent: Tensor, shared: Tensor, up: Tensor, q_pos: Tensor, k_pos: Tensor, *,
    rotary_first: bool = False, content: float = 1.0, rotary: float = 1.0,
    size: Callable[[int, int], float] = lambda c, r: c + r, on_cache: float = 0.0,
) -> Parts:  # fmt: skip
    """Return the parts with one thing done in another way; a share of the scale on the cache."""
    r = shared.shape[-1]
    c = q.shape[-1] - r
    q_rotary, q_content = (q[..., :r], q[..., r:]) if rotary_first else (q[..., c:], q[..., :c])
    queries = torch.cat([content * q_content @ up, rotary * rotate(q_rotary, q_pos)], -1)
    cache = torch.cat([latent, rotate(shared, k_pos)], -1)
    scale = size(c, r) ** -0.5
    return queries * scale ** (1 - on_cache), cache * scale**on_cache


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate x (..., L, r) in the half layout, with base 10000."""
    return apply_rope(x, rope_angles(positions, frequencies(x.shape[-1])), "half")


def latent_cases(draw: Draw) -> list[Case]:
    """A step of decoding after a cache, a whole sequence, gaps, and far positions.

    Once there are as many contents as numbers in a cached vector, and as many heads as sequences.
    """
    b, h, lq, lk, c, rank = draw.sizes(6, 3, 9)
    r = 2 * draw.integer(1, 2) + 4 * (c == 4)  # another width than the contents'
    start = draw.integer(11, 40)
    whole, cached = torch.arange(lk), torch.arange(start, start + lk)

    def parts(
        lq: int, lk: int, b: int = b, h: int = h, c: int = c, r: int = r, n: int = rank
    ) -> tuple[Tensor, ...]:
        return (
            draw.normal(b, h, lq, c + r), draw.normal(b, lk, n), draw.normal(b, lk, r),
            draw.normal(h, c, n),
        )  # fmt: skip

    wide, far = 50 - draw.places(lq) * 7, draw.places(lk) * 9
    return [
        Case(f"queries from position {start + lk}, keys from {start}",
             (*parts(lq, lk), torch.arange(start + lk, start + lk + lq), cached)),
        Case("all positions from 0", (*parts(lk, lk), whole, whole)),
        Case("as many contents as numbers in a cached vector, positions from 0",
             (*parts(lk, lk, h, h, 6, 4, 6), whole, whole)),
        Case(f"queries at {wide.tolist()}, keys at {far.tolist()}", (*parts(lq, lk), wide, far)),
        Case("far apart, a rotary part of 2", (*parts(3, 4, 1, 2, 3, 2),
             torch.tensor([9001, 70_001, 5]), torch.tensor([3, 35_001, 70_000, 8192])), FAR),
        Case("one head, 1 query and 20 keys, a rotary part of 64",
             (*parts(1, 20, 1, 1, 128, 64), cached[-1:], torch.arange(20))),
    ]  # fmt: skip


def at(**changes: Callable[[Tensor], Tensor]) -> Answer:
    """Return a wrong answer that changes arguments before it uses them."""
    names = ("q", "latent", "shared", "up", "q_pos", "k_pos")

    def answer(*given: Tensor) -> Parts:
        return latent_parts(*(
            changes.get(name, same)(value) for name, value in zip(names, given, strict=True)
        ))  # fmt: skip

    return answer


def same(x: Tensor) -> Tensor:
    """Return what is given."""
    return x


def counted(positions: Tensor) -> Tensor:
    """Return 0, 1, 2, ..., as many as there are positions."""
    return torch.arange(len(positions))


def the_listing(
    q: Tensor, latent: Tensor, shared: Tensor, up: Tensor, q_pos: Tensor, k_pos: Tensor
) -> Parts:
    """Return the parts of what the listing returns."""
    return latent_otherwise(
        q, latent, shared, up, q_pos, counted(k_pos), rotary_first=True, size=lambda c, r: c
    )


# --- sinks ----------------------------------------------------------------------------------------


def attend_with_sink(logits: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
    """Return weighted values, with one more logit in the denominator."""
    return weights_with(logits, column(logits, sinks)) @ v


def column(logits: Tensor, sinks: Tensor) -> Tensor:
    """Return the sinks as one more key: (H,) -> (B, H, Lq, 1)."""
    return sinks[:, None, None].expand(*logits.shape[:-1], 1)


def weights_with(logits: Tensor, sink: Tensor) -> Tensor:
    """Return the weights of the keys beside a sink (B, H, Lq, 1)."""
    return torch.cat([logits, sink], dim=-1).softmax(-1)[..., :-1]


def sink_cases(draw: Draw) -> list[Case]:
    """Small logits, a causal mask, large logits, and queries that see no key; one head, one query.

    The exponential of 800 is past all numbers, that of -800 is 0 in all.
    """
    b, h, lq, lk, d = draw.sizes(5, 3, 9)

    def parts(
        b: int, h: int, lq: int, lk: int, size: float = 1.0, level: float = 0.0
    ) -> tuple[Tensor, ...]:
        sinks = torch.linspace(-2, 3, h)[torch.randperm(h, generator=draw.generator)]
        logits = size * draw.normal(b, h, lq, lk) + level
        if level:  # a hidden key, which must not count more than those that are seen
            logits[..., -1] = -math.inf
        return logits, draw.normal(b, h, lk, d), size * sinks + level

    masked, blind = parts(b, h, lk, lk), parts(h, b, lq, lk)
    past = torch.ones(lk, lk).triu(1).bool()
    none = torch.arange(lq)[:, None] == draw.integer(0, lq - 1)
    return [
        Case(f"logits of shape {(b, h, lq, lk)}", parts(b, h, lq, lk)),
        Case("a causal mask", (masked[0].masked_fill(past, -math.inf), *masked[1:])),
        Case("logits and sinks about 60 times as large", parts(b, h, lq, lk, 60.0)),
        *(Case(f"logits and sinks {words}, about {level}, a hidden key",
               parts(b, h, lq, lk, 1.0, level))
          for words, level in (("far above 0", 800), ("far below 0", -800))),
        Case("as many heads as queries", parts(b, h, h, lk)),
        Case("one head, one query, many keys", parts(1, 1, 1, 30)),
        Case("a query that sees no key", (blind[0].masked_fill(none, -math.inf), *blind[1:])),
    ]  # fmt: skip


def by_sink(rule: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Answer:
    """Return a wrong answer whose weights another rule gives: (logits, sink column, values)."""

    def answer(logits: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
        return rule(logits, column(logits, sinks), v) @ v

    return answer


def not_exponentiated(logits: Tensor, sink: Tensor, _: Tensor) -> Tensor:
    """Add the sink itself to the sum of exponentials."""
    exponentials = logits.double().exp()
    result: Tensor = (exponentials / (exponentials.sum(-1, keepdim=True) + sink)).float()
    return result


def unshifted(logits: Tensor, sink: Tensor) -> Tensor:
    """Take exponentials of the logits as they are."""
    of_keys, of_sink = logits.exp(), sink.to(logits.dtype).exp()
    return (of_keys / (of_keys.sum(-1, keepdim=True) + of_sink)).float()


def with_a_value(logits: Tensor, v: Tensor, sinks: Tensor) -> Tensor:
    """Give the sink the value of the first key."""
    weights = weights_with(logits, column(logits, sinks))
    return weights @ v + (1 - weights.sum(-1, keepdim=True)) * v[:, :, :1]


# --- forgetting -----------------------------------------------------------------------------------


def gates_of(bias: Tensor) -> Tensor:
    """Return the numbers that the gates of tokens 1, 2, ... were computed from."""
    return opened(-bias[:, :, -1].diff(dim=-1))


def opened(logs: Tensor) -> Tensor:
    """Return g where log sigmoid(g) is given."""
    return logs - (-torch.expm1(logs)).log()


def bias_cases(draw: Draw) -> list[Case]:
    """A step behind a cache, a whole text, one query; gates as good as shut; rows moved."""
    b, h, lk = draw.sizes(3, 3, 8)
    few = draw.integer(2, lk - 1)

    def case(words: str, gates: Tensor, queries: int, moved: float) -> Case:
        sums = F.logsigmoid(gates.double()).cumsum(-1)
        bias = sums[..., -queries:, None] - sums[..., None, :]
        bias = bias + moved * draw.normal(*bias.shape[:3], 1)
        number = torch.arange(gates.shape[-1])
        bias = bias.masked_fill(number > number[-queries:, None], -torch.inf)
        return Case(f"{words}, bias of shape {tuple(bias.shape)}", (bias,))

    shut = draw.normal(b, h, lk) - 150 * (draw.normal(b, h, lk) > 0)
    return [
        case("a step behind a cache", 2 * draw.normal(b, h, lk), few, 3.0),
        case("a whole text, rows not moved", draw.normal(h, b, lk + 4), lk + 4, 0.0),
        case("a whole text", 1 + draw.normal(b, b, lk), lk, 5.0),
        case("one query", draw.normal(h, b, lk + 1) + 2, 1, 1.0),
        case("some gates as good as shut", shut, few, 3.0),
    ]


EXERCISES = (
    Exercise(
        name="partial_kind",
        cases=rate_cases,
        reference=partial_kind,
        tolerance=1e-6,
        mistakes=(
            Mistake("1 and 2 are exchanged: in p-RoPE the rates are those of the whole head",
                    lambda r, b: by_number(r, b, 0, 2, 1)),
            Mistake("a head all of whose pairs move is 0", lambda r, b: by_number(r, b, 2, 1, 2)),
            Mistake("a head that stands still in part is taken for p-RoPE, whatever its rates are",
                    lambda r, b: by_number(r, b, 0, 2, 2)),
            Mistake("a head that stands still in part is taken for a narrower one, whatever its "
                    "rates are", lambda r, b: by_number(r, b, 0, 1, 1)),
            Mistake("this is the share of pairs that stand still",
                    lambda r, b: (partial_kind(r, b)[0], 1 - partial_kind(r, b)[1])),
            Mistake("this is a number of pairs; a share is asked for",
                    lambda r, b: (partial_kind(r, b)[0], partial_kind(r, b)[1] * len(r))),
            Mistake("the share is of components, of which each pair has two: n is the number of "
                    "pairs", lambda r, b: (partial_kind(r, b)[0], partial_kind(r, b)[1] / 2)),
            Mistake("the base is an argument; you use 10000 always",
                    lambda r, b: partial_kind(r, 10000.0)),
            Mistake("slow pairs are taken for standing ones; those have the rate 0 exactly",
                    lambda r, b: partial_kind(torch.where(r < 1e-3, 0.0, r), b)),
        ),
    ),
    Exercise(
        name="latent_parts",
        cases=latent_cases,
        reference=latent_parts,
        axes=("component",),
        mistakes=(
            Mistake("these are the parts of what the listing returns: nothing is mended yet",
                    the_listing),
            Mistake("the scale belongs to the queries; the cache holds the vectors as they are",
                    lambda *a: latent_otherwise(*a, on_cache=1.0)),
            Mistake("the scale belongs to the queries; you share it out between the two",
                    lambda *a: latent_otherwise(*a, on_cache=0.5)),
            Mistake("the cache is returned first; the queries come first",
                    lambda *a: latent_parts(*a)[::-1]),
            Mistake("the first components of a query are taken for the rotary part; they are its "
                    "contents, and the last are rotated",
                    lambda *a: latent_otherwise(*a, rotary_first=True)),
            Mistake("the offset of the cache is ignored: keys are counted from 0",
                    at(k_pos=counted)),
            Mistake("the offset of the cache is ignored: queries are counted from 0",
                    at(q_pos=counted)),
            Mistake("queries and keys are both counted from 0; use q_pos and k_pos",
                    at(q_pos=counted, k_pos=counted)),
            Mistake("queries and keys are each counted from their own first position; what "
                    "matters is the difference between the two",
                    at(q_pos=lambda p: p - p[0], k_pos=lambda p: p - p[0])),
            Mistake("the shared parts of the keys are not rotated", at(k_pos=torch.zeros_like)),
            Mistake("the rotary parts of the queries are not rotated",
                    at(q_pos=torch.zeros_like)),
            Mistake("nothing is rotated", at(q_pos=torch.zeros_like, k_pos=torch.zeros_like)),
            Mistake("the keys rotate the other way, so the score depends on the sum of the "
                    "positions", at(k_pos=torch.neg)),
            Mistake("the queries rotate the other way, so the score depends on the sum of the "
                    "positions", at(q_pos=torch.neg)),
            Mistake("queries and keys both rotate backwards: the scores depend on the difference, "
                    "but on its negative", at(q_pos=torch.neg, k_pos=torch.neg)),
            Mistake("the scale knows the width of the contents alone; a query has the rotary part "
                    "besides", lambda *a: latent_otherwise(*a, size=lambda c, r: c)),
            Mistake("the scale knows the width of the rotary part alone",
                    lambda *a: latent_otherwise(*a, size=lambda c, r: r)),
            Mistake("the scores are not scaled",
                    lambda *a: latent_otherwise(*a, size=lambda c, r: 1)),
            Mistake("each part is scaled by the root of its own width; the sum is scaled once",
                    lambda *a: latent_otherwise(
                        *a, content=(a[0].shape[-1] - a[2].shape[-1]) ** -0.5,
                        rotary=a[2].shape[-1] ** -0.5, size=lambda c, r: 1)),
            Mistake("the rotary part of the scores is missing",
                    lambda *a: latent_otherwise(*a, rotary=0.0)),
            Mistake("the contents' part of the scores is missing",
                    lambda *a: latent_otherwise(*a, content=0.0)),
            Mistake("`up` is (H, c, n), also where c and n are equal; yours is transposed",
                    at(up=lambda u: u.mT if u.shape[1] == u.shape[2] else u)),
            Mistake("negative positions are taken as 0", at(q_pos=lambda p: p.clamp(min=0))),
            Mistake("all heads make their keys with the matrix of head 0; each has its own",
                    at(up=lambda u: u[:1].expand_as(u))),
            Mistake("all sequences read the shared part of the first one",
                    at(shared=lambda x: x[:1].expand_as(x))),
        ),
    ),
    Exercise(
        name="attend_with_sink",
        cases=sink_cases,
        reference=attend_with_sink,
        axes=("batch", "head", "query", "component"),
        mistakes=(
            Mistake("the weights of the keys sum to 1, so the sink takes nothing: it is left out, "
                    "or added to every logit, or the weights are normalised again without it",
                    by_sink(lambda x, s, _: x.softmax(-1))),
            Mistake("you drop the last key and keep the sink as the first: drop the column that "
                    "you joined", by_sink(lambda x, s, _: torch.cat([s, x], -1).softmax(-1)
                                          [..., :-1])),
            Mistake("logits may be large: take the largest off before the exponential, for float64 "
                    "ends, too", by_sink(lambda x, s, _: unshifted(x.double(), s))),
            Mistake("logits may be large: take the largest off before the exponential",
                    by_sink(lambda x, s, _: unshifted(x, s))),
            Mistake("the sink stands in the denominator as it is; it is a logit, like the others",
                    by_sink(not_exponentiated)),
            Mistake("the sign of the sink is flipped",
                    lambda x, v, s: attend_with_sink(x, v, -s)),
            Mistake("the sink is 0 for all heads: a 1 is added to the denominator",
                    lambda x, v, s: attend_with_sink(x, v, 0 * s)),
            Mistake("all heads have the sink of head 0",
                    lambda x, v, s: attend_with_sink(x, v, s[:1].expand_as(s))),
            Mistake("all heads have the mean of the sinks",
                    lambda x, v, s: attend_with_sink(x, v, s.mean().expand_as(s))),
            Mistake("the sinks stand in the wrong order: head 0 has the last",
                    lambda x, v, s: attend_with_sink(x, v, s.flip(0))),
            Mistake("the sink takes the same share of every query, whatever its logits are",
                    by_sink(lambda x, s, _: x.softmax(-1) * torch.sigmoid(-s))),
            Mistake("the sink has the value of the first key; it has none",
                    with_a_value),
            Mistake("the sink has the mean of the values; it has none",
                    lambda x, v, s: attend_with_sink(x, v, s) + (
                        1 - weights_with(x, column(x, s)).sum(-1, keepdim=True))
                    * v.mean(2, keepdim=True)),
            Mistake("these are the weights; multiply them with the values",
                    lambda x, v, s: weights_with(x, column(x, s))),
            Mistake("these are all weights, that of the sink included, and no output",
                    lambda x, v, s: torch.cat([x, column(x, s)], -1).softmax(-1)),
            Mistake("the softmax runs over the queries; it must run over the keys",
                    lambda x, v, s: torch.cat([x, s[:, None, None].expand(
                        len(x), -1, 1, x.shape[3])], 2).softmax(2)[:, :, :-1] @ v),
            Mistake("the sink is scaled by 1/sqrt(d); it is a logit already",
                    lambda x, v, s: attend_with_sink(x, v, s * v.shape[-1] ** -0.5)),
            Mistake("logits below the sink are raised to it; it stands beside them",
                    by_sink(lambda x, s, _: x.maximum(s).softmax(-1))),
            Mistake("the weight of the sink is taken off every key's; the softmax has taken it "
                    "already", by_sink(lambda x, s, _: weights_with(x, s) - (
                        1 - weights_with(x, s).sum(-1, keepdim=True)))),
            Mistake("there is a sink for every key; a head has one",
                    by_sink(lambda x, s, _: weights_with(x, s + math.log(x.shape[-1])))),
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
                    "asked for", lambda b: -b[:, :, -1].diff(dim=-1)),
            Mistake("these are the gates; the numbers before the sigmoid are asked for",
                    lambda b: (-b[:, :, -1].diff(dim=-1)).exp()),
            Mistake("the signs are flipped: these are the numbers of what is forgotten, 1 - f",
                    lambda b: -gates_of(b)),
            Mistake("the row's constant is taken for 0; only differences within a row do not know "
                    "it", lambda b: opened(-torch.cat(
                        [b[:, :, -1, 1:], 0 * b[:, :, -1, :1]], -1).diff(
                            dim=-1, prepend=b[:, :, -1, :1]))),
            Mistake("the tokens are in reverse order", lambda b: gates_of(b).flip(-1)),
            Mistake("these are sums over several tokens; subtract neighbours",
                    lambda b: opened(-(b[:, :, -1, 1:] - b[:, :, -1, :1]))),
            Mistake("one token too early: the difference of keys l - 1 and l is the gate of l",
                    lambda b: gates_of(b).roll(-1, -1)),
            Mistake("all tokens get the mean: this is ALiBi, with a slope for each text",
                    lambda b: gates_of(b).mean(-1, keepdim=True).expand_as(gates_of(b))),
        ),
    ),
)  # fmt: skip
