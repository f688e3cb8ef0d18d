"""Draw what an answer gives, below its check. Nothing here is judged."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pe_course.judge.exercise import Answer, Draw, words_of
from pe_lib.rope import apply_rope, layout_permutation, rope_angles
from pe_lib.sinusoidal import frequencies
from pe_lib.t5 import t5_bucket

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PALE = "0.75"  # what should come out, behind what does


def times_of(answer: Answer, axes: Axes) -> None:
    """Draw the words of a sentence, mixed, over the places that an answer gives them."""
    words = ["a", "mask", "alone", "gives", "away", "the", "order", "of", "all", "words"]
    draw = Draw(0)
    v, weights = draw.normal(len(words), 12).double(), draw.normal(len(words)).exp().double()
    out = (weights[:, None] * v).cumsum(0) / weights.cumsum(0)[:, None]
    order = draw.order(len(words))
    times = torch.as_tensor(answer(v[order], out[order]))
    axes.plot(order, color=PALE, linewidth=5, label="its place in the text")
    axes.plot(times, "o", label="as you read it")
    axes.set_xticks(range(len(words)), [words[i] for i in order])
    axes.set(xlabel="token", ylabel="place")


def bias_of(answer: Answer, axes: Axes) -> None:
    """Draw what a head adds for each distance, and what is read of its attention in two ways."""
    n = torch.arange(-15, 16)
    bias = -0.25 * n.abs() + 2.0 * (n == -4)  # nearer is better, and four back is best
    places = torch.arange(16)
    words = 0.3 * Draw(0).normal(8, 16, 16).double()
    weights = (bias[places - places[:, None] + 15] + words).softmax(-1)
    axes.plot(n, bias, color=PALE, linewidth=5, label="what the head adds")
    means = torch.stack([weights.log().mean(0).diagonal(int(each)).mean() for each in n])
    axes.plot(n, means - means[15], label="mean over each diagonal")
    axes.plot(n, torch.as_tensor(answer(weights)[0]), label="yours")
    axes.set(xlabel="distance j - i", ylabel="logit")


def tables_of(answer: Answer, axes: Axes) -> None:
    """Draw the numbers per distance of two methods whose mean score at each distance is one."""
    draw, n, places = Draw(0), torch.arange(-7, 8), torch.arange(8)
    line = places - places[:, None] + 7
    bias, m = -0.3 * n.abs().double(), torch.tensor([1.0, 0.5, 0, 0]).double()
    q, k = draw.normal(2, 60, 8, 4).double()
    q = q - q.mean((0, 1)) + m
    meets = (bias[:, None] * m / m.square().sum())[line]  # (L, L, d): it meets the part m
    axes.plot(n, bias, color=PALE, linewidth=5, label="mean of both, less the words' own")
    for name, more in (("a number", bias[line]), ("a vector", (q[:, :, None] * meets).sum(-1))):
        axes.plot(n, torch.as_tensor(answer(q, k, q @ k.mT + more)[2]), label=f"b, of {name}")
    axes.set(xlabel="distance j - i", ylabel="number per distance")


def recached(answer: Answer, axes: Axes) -> None:
    """Draw by how much the scores of a query are off, with a cache as it was and mended."""
    draw, places = Draw(0), torch.arange(64)
    slower = (2 * places.clamp(min=15) / 15.0 - 1).double()[:, None]  # dynamic NTK, trained on 16
    written = frequencies(16) * slower ** -torch.linspace(0, 1, 8).double()
    query, plain = draw.normal(16).double(), draw.normal(64, 16).double()

    def rotated(inv_freq: Tensor) -> Tensor:
        return apply_rope(plain, places[:, None] * inv_freq, layout="half")

    right, cache = rotated(written[-1:]), rotated(written)
    mended = torch.as_tensor(answer(cache[None], places, written, written[-1]))[0]
    for name, keys in (("as it was", cache), ("mended", mended)):
        axes.plot(((keys - right) @ query).abs(), label=f"cache {name}")
    axes.set(xlabel="position of the key", ylabel="error of its score")


def by_chance(answer: Answer, axes: Axes) -> None:
    """Draw how often chance does as well, alone and as the best of twenty, by the seeds."""
    gain = Draw(0).normal(40, 20, 10).double()
    gain[:, 0] += 1  # the first comparison is ahead; the others are chance
    shares = [[[float(part[0]) for part in answer(each[:, :seeds], 0 * each[:, :seeds])]
               for each in gain] for seeds in range(2, 11)]  # fmt: skip
    alone, best = torch.tensor(shares).median(1).values.T
    seeds = torch.arange(2, 11)
    axes.plot(seeds, 2.0 ** (1 - seeds), color=PALE, linewidth=5, label="the least there can be")
    axes.plot(seeds, alone, "o-", label="alone")
    axes.plot(seeds, best, "o-", label="as one of twenty")
    axes.set(xlabel="seeds", ylabel="share of the patterns", yscale="log")


def continued(answer: Answer, axes: Axes) -> None:
    """Draw a column of a table without a formula, and a hundred rows past its end."""
    angles = torch.arange(140)[:, None] * torch.tensor([1.3, 0.31, 0.07]).double()  # (140, 3)
    mixture = Draw(0).normal(6, 6).double()
    whole = torch.cat([angles.sin(), angles.cos()], dim=1) @ mixture
    later = torch.stack([torch.as_tensor(answer(whole[:40], n + 1)) for n in range(100)])
    axes.plot(whole[:, 0], color=PALE, linewidth=5, label="as it was made")
    axes.plot(whole[:40, 0], label="the table")
    axes.plot(range(40, 140), later[:, 0], label="your rows")
    axes.set(xlabel="position", ylabel="column 0")


def best_edges(answer: Answer, axes: Axes) -> None:
    """Draw a curve over distances, and the steps that T5's buckets and the best ones make of it."""
    n = torch.arange(128).double()
    curve = -(1 + n).log() + 3 * (-((n - 24) ** 2) / 20).exp()  # it looks for something at 24
    axes.plot(curve, color=PALE, linewidth=5, label="wanted")
    bucket = t5_bucket(-torch.arange(128), 8, 128, bidirectional=False)
    own = [0, *bucket.diff().nonzero().flatten() + 1]
    for name, edges in (("T5", own), ("yours", answer(curve, 8))):
        starts = [int(edge) for edge in edges]
        ends = [*starts[1:], len(n)]
        steps = torch.cat([curve[a:b].mean().expand(b - a)
                           for a, b in zip(starts, ends, strict=True)])  # fmt: skip
        error = (curve - steps).square().sum()
        axes.plot(steps, label=f"{name}: squared error {error:.1f}")
    axes.set(xlabel="distance", ylabel="number of the bucket")


def converted(answer: Answer, axes: Axes) -> None:
    """Draw by how much scores of a group change, by distance, as the listing has it and mended."""
    draw, d, r, places = Draw(0), 16, 5, torch.arange(64)
    turns = torch.arange(d // 2) < r
    x, angles = draw.normal(64, d), rope_angles(places, frequencies(d).float() * turns)
    turned = 6.28 * torch.rand(4, d // 2, generator=draw.generator) * turns
    first = torch.linalg.qr(draw.normal(d, d)).Q * d**0.5
    keys = apply_rope(first.expand(4, d, d), turned[:, None].expand(-1, d, -1)).mT
    for head in keys:  # components that stand still, in an order and with signs of its own
        head[2 * r :] = head[2 * r + draw.order(d - 2 * r)] * draw.normal(d - 2 * r, 1).sign()
    w_q, order = draw.normal(4, d, d), layout_permutation(d)
    listed = w_q[:, order].flatten(0, 1), keys.mean(0)[order]

    def scores(w_q: Tensor, w_k: Tensor, layout: str) -> Tensor:
        q, k = (apply_rope(x @ w.mT, angles, layout=layout) for w in (w_q, w_k))
        return q @ k.mT

    before = scores(w_q, keys, "interleaved")
    mended = answer(w_q.flatten(0, 1), keys.flatten(0, 1), d, 1, r)
    for name, w in (("of the listing", listed), ("mended", mended)):
        queries, shared = (torch.as_tensor(each).unflatten(0, (-1, d)) for each in w)
        change = (scores(queries, shared, "half") - before).abs().mean(0)
        axes.plot([change.diagonal(-n).mean() for n in places], label=f"weights {name}")
    axes.set(xlabel="distance", ylabel="mean change of a score")


def positions_used(answer: Answer, axes: Axes) -> None:
    """Draw where tokens were put by a cache that forgets its offset."""
    own = torch.tensor([[1000], [1500], [2979]]) + torch.arange(20)
    given = torch.cat([own[:, :12], own[:, :1].expand(-1, 8)], 1)  # twelve at once, then one by one
    x = 1 + Draw(0).normal(3, 20, 16).abs().double()
    y = apply_rope(x[:, None], rope_angles(given, 0.03 * frequencies(16)).double())
    axes.plot(range(20), own[0], color=PALE, linewidth=5, label="its own position")
    axes.plot(torch.as_tensor(answer(x, y[:, 0], own[:, 0]))[0], "o", label="as you read it")
    axes.set(xlabel="token", ylabel="position")


def heads_of(answer: Answer, axes: Axes) -> None:
    """Draw what a layer answers to a token so far back, and the heads that it is made of."""
    n = torch.arange(16).double()
    response = (-0.2 * n).exp() - (-0.5 * n).exp()  # nothing at 0 back, most at 3
    axes.plot(n, response, color=PALE, linewidth=5, label="the layer")
    slopes, factors = (torch.as_tensor(each) for each in answer(response, 2))
    for m, a in zip(slopes, factors, strict=True):
        axes.plot(n, a * (1 - (-m).exp()) * (-m * n).exp(), label=f"slope {m:.2f}")
    axes.set(xlabel="tokens back", ylabel="answer")


def places_of(answer: Answer, axes: Axes) -> None:
    """Draw the dark patches of a drawing as they were sent, and where an answer puts them."""
    drawing = "..##....##..\n..##....##..\n............\n##........##\n..########.."
    dark = torch.tensor([mark == "#" for mark in drawing.replace("\n", "")])
    draw, place = Draw(0), torch.arange(60)
    order = draw.order(60)
    turn = draw.normal(2, 8).double()
    angles = torch.stack([place // 12, place % 12], 1)[order].double() @ turn
    between = (angles - angles[:, None])[..., None, :] + draw.normal(8).double()
    rows, columns = map(torch.as_tensor, answer(between.cos().sum((-1, -2)), int(order.argmin())))
    seen = place[dark[order]]
    axes.plot(seen % 12, -(seen // 12), "s", color=PALE, label="as it was sent")
    axes.plot(columns[seen], -rows[seen], "o", label="as you place it")
    axes.set(xlabel="column", ylabel="row")


def axis_and_rate(answer: Answer, axes: Axes) -> None:
    """Draw the wavelengths of each axis in a head of chunks, read from its tables."""
    words = torch.tensor([0, 2, 5, 7, 10])[:, None].expand(-1, 3)
    numbers = torch.cat([words, 14 + 2 * torch.cartesian_prod(*[torch.arange(4)] * 3)])
    angles = numbers[:, torch.tensor([0] * 16 + [1] * 24 + [2] * 24)] * frequencies(128, 1e6)
    found, rate = map(torch.as_tensor, answer(numbers, angles.cos(), angles.sin()))
    for axis, name in enumerate(("frame", "row", "column")):
        waves = 2 * torch.pi / rate[found == axis]
        axes.plot(waves, torch.full_like(waves, axis), "|", markersize=20, label=name)
    axes.set(xlabel="wavelength, in positions", ylabel="axis", xscale="log", yticks=range(3))


def seconds_between(answer: Answer, axes: Axes) -> None:
    """Draw how far apart the bounds on the time between frames lie, by the number of frames."""
    numbers = (3.3 + 0.37 * torch.arange(300)).floor().long()[:, None] * torch.tensor([1, 0, 0])
    counts = torch.tensor([3, 5, 8, 12, 20, 30, 50, 80, 120, 200, 300])
    low, high = zip(*(map(float, answer(numbers[:n], 2)) for n in counts), strict=True)
    for power, name in ((1, "ten times nearer"), (2, "a hundred times")):
        axes.plot(counts, (3.0 / counts) ** power, color=PALE, linewidth=5 * power, label=name)
    axes.plot(counts, [b - a for a, b in zip(low, high, strict=True)], "o-", label="yours")
    axes.set(xlabel="frames", ylabel="seconds apart", xscale="log", yscale="log")


def narrow_scores(answer: Answer, axes: Axes) -> None:
    """Draw how wide a cache must be for all heads, for keys as they are and for rotated ones."""
    draw, places = Draw(0), torch.arange(48)
    made = draw.normal(48, 8).double()  # all heads read the same few things
    q, k = draw.normal(4, 48, 16).double(), made @ draw.normal(4, 8, 16).double()
    turned = (apply_rope(x, rope_angles(places, frequencies(16))) for x in (q, k))
    shares = torch.logspace(-4, -0.3, 20).tolist()
    for name, both in (("not rotated", (q, k)), ("rotated", turned)):
        q, k = both
        axes.plot(shares, [int(answer(q, k, each)[0]) for each in shares], label=name)
    axes.set(xlabel="share that is lost", ylabel="width of the cache", xscale="log")


def apart(answer: Answer, axes: Axes) -> None:
    """Draw what positions add to the scores of a query, tokens as they came and in order."""
    draw, clip = Draw(0), 4
    order = draw.order(32)
    row = (order - order[:, None]).clamp(-clip, clip) + clip
    scores = (draw.normal(32, 8) @ draw.normal(8, 2 * clip + 1)).gather(1, row)
    place = torch.as_tensor(answer(scores))[int(order.argmin())]  # counted from one end
    query = int(order.eq(16).nonzero())
    axes.plot(scores[query], color=PALE, label="as the tokens came")
    axes.plot(scores[query, place.argsort()], label="as you put them")
    axes.set(xlabel="key", ylabel="score")


PICTURES = {
    each.__name__: each
    for each in (apart, times_of, continued, bias_of, best_edges, heads_of, converted, tables_of,
                 recached, places_of, by_chance, positions_used, axis_and_rate, seconds_between,
                 narrow_scores)
}  # fmt: skip


def see(name: str) -> None:
    """Draw what the answer of that name gives, which the notebook that calls this has defined."""
    from matplotlib import pyplot as plt

    answer = sys._getframe(1).f_globals.get(name)
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    try:
        if answer is None:
            raise NotImplementedError
        PICTURES[name](answer, axes)
    except NotImplementedError:
        print(f"{name} is not answered yet; then there is something to see here.")
        plt.close(figure)
        return
    except Exception as error:  # of a wrong answer; the cells below run all the same
        print(f"Nothing to see yet: {words_of(error)}")
        plt.close(figure)
        return
    axes.legend()
    plt.show()
