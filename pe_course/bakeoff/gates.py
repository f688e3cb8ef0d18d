"""The protocol for a gate after attention beside an attention sink, committed before its first row.

A softmax must spend all of its weight, and a head with nothing to find spends it on some token,
often the first. Chapter 16 offers a sink for it: one more trained logit in the denominator
(`pe_lib.recent.sinks.Sink`). Newer models multiply what each head has read by a gate of the query's
token instead, sigmoid(x Wg), each component by its own, before the output projection (Qiu et al.
2025, "attention-sink-free"). Both are measured here on RoPE, small.

Rules of the protocol:

- Models, tasks, steps and seeds are those of the long comparison (`pe_course.bakeoff.protocol`):
  two layers of four heads, on text (64 characters, width 64, 3,000 steps) and on recall (32 tokens,
  width 32, 2,000 steps), seeds 0 to 4. "RoPE" is trained once more, at its chosen rate. "RoPE with
  a sink" has a sink of its own in each layer, "RoPE with a gate" a gate in each layer; each takes
  the best of the three rates by the rule there (seed 11).
- A gate has weights: a twelfth of those of a layer. "RoPE (wider)" has as many more in its
  two-layer networks and is trained, on text alone, at RoPE's rate.
- What a head *gives the first token* is the mean of its weight on the first key, over test texts of
  the training length and over the queries from position 16 on. (Of recall only texts that do not
  begin with the marker count.) A head that looks at all keys alike gives 0.03 on text and 0.04 on
  recall. It *has a sink on the first token* if it gives more than 0.3, the bar of Gu et al. 2025.
  A model's share is the mean of its eight heads.
- Over a *rolling cache* a query sees itself and the keys before it, as many in all as the training
  length; the first token is then gone. On text the *rise* is the loss at a multiple of the training
  length minus that at the training length, of the same model.
- Orderings are judged as there: all five seeds of one side better than all five of the other. At
  most twelve are asked of a task.
- Added while rows came in: RoPE was not trained again, since the weights of the models of
  `pe_course.bakeoff.rules` had been kept; their rows are the same to the last digit. The wider
  RoPE, of which question 1 speaks only if the gate is ahead, comes last.

What is asked, and the sentences that each outcome allows (nothing else is said of these rows; what
sinks take and how far gates are open is printed beside them and decides nothing):

1. *Text at the training length.* Gate, or sink, ahead of RoPE: "is ahead of RoPE". Open: "we saw
   no difference that all seeds share". The other way round: RoPE is ahead. If the gate is ahead of
   RoPE, it is also said whether it is ahead of the wider RoPE. If that is open or the other way
   round: "the further weights may be the reason".
2. *The first token*, on each task. If in each of five seeds of RoPE some head has a sink on the
   first token: "RoPE has one". If in some of them only, or in none, this is said, and that there
   was little, or nothing, to do away with. Gate, or sink, with a lower share than RoPE: "takes
   weight off the first token". It *does away with the sink* if, besides, RoPE has one in each seed
   and no head of any of its own five seeds has one. The other way round: "puts more weight on it".
   Open: "no difference that all seeds share".
3. *A rolling cache at 4 and 16 times the length*: on text the rise, on recall the accuracy. Gate,
   or sink, better than RoPE: "suffers less than RoPE", at this multiple. Open or the other way
   round: said so. If RoPE's own rise is below 0.1 nats in each seed, this is said first: then there
   was nothing to mend.
4. *Left alone at twice the length*: the score itself. Gate, or sink, better than RoPE: "is ahead of
   RoPE there"; it does not cure RoPE unless its own rise is below 0.2 nats in each seed (on recall:
   each seed above 0.9).

The study is finished; `data/README.md` says where the program stands that made its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pe_course.bakeoff import protocol
from pe_course.bakeoff.grid import grid
from pe_course.bakeoff.protocol import SEEDS
from pe_course.bakeoff.rows import Row

SINK = 0.3  # of a head's weight on the first token, from which on it has a sink there
SCALE = "gates"  # as it stands in rows


class Asked(NamedTuple):
    """Two methods, and of what the first is expected to be better than the second.

    Attributes:
        better: a method, as in the rows.
        worse: another.
        kind: "score", "rise" (of a loss above that at the training length), or "share" (see above).
        multiple: of the training length.
        cache: whether both are over a rolling cache.
    """

    better: str
    worse: str
    kind: str = "score"
    multiple: float = 1
    cache: bool = False


def both(key: str, **asked: object) -> dict[str, Asked]:
    """Return the question whether the gate, and whether the sink, is better than RoPE."""
    return {
        f"{method.removeprefix('rope_')}-{key}": Asked(method, "rope", **asked)  # type: ignore[arg-type]
        for method in ("rope_gate", "rope_sink")
    }


ORDERINGS: dict[str, dict[str, Asked]] = {
    "text": {
        **both("near"),
        "gate-sink": Asked("rope_gate", "rope_sink"),
        "gate-wider": Asked("rope_gate", "rope_wider"),
        **both("first", kind="share"),
        **both("cache-4", kind="rise", multiple=4, cache=True),
        **both("cache-16", kind="rise", multiple=16, cache=True),
        **both("alone", multiple=2),
    },
    "marker": {
        **both("first", kind="share"),
        **both("cache-4", multiple=4, cache=True),
        **both("cache-16", multiple=16, cache=True),
        **both("alone", multiple=2),
    },
}
assert all(len(asked) * protocol.BY_CHANCE < 0.05 for asked in ORDERINGS.values())


def of_heads(rows: Sequence[Row], task: str, method: str, kind: str = "first") -> list[list[float]]:
    """Return for each seed of a method what was measured of its heads, see the protocol."""
    (cell,) = grid("long", [task], ["rope"], [0])
    names = [f"{kind}-{layer}.{head}" for layer in (1, 2) for head in range(1, cell.n_heads + 1)]
    found = [protocol.complete(rows, task, name, SCALE) for name in names]
    by_head = [curves[method][cell.train_length] for curves in found if method in curves]
    return [list(of_seed) for of_seed in zip(*by_head, strict=True)] if by_head else []


def shares(rows: Sequence[Row], task: str, method: str, kind: str = "first") -> list[float]:
    """Return for each seed of a method the mean of its heads."""
    return [sum(heads) / len(heads) for heads in of_heads(rows, task, method, kind)]


def with_sinks(rows: Sequence[Row], task: str, method: str) -> list[int]:
    """Return for each seed of a method how many heads have a sink on the first token."""
    return [sum(share > SINK for share in heads) for heads in of_heads(rows, task, method)]


def values(rows: Sequence[Row], task: str, method: str, asked: Asked) -> list[float]:
    """Return the five values of a method that a question compares; none while rows are missing."""
    if asked.kind == "share":
        return shares(rows, task, method)
    (cell,) = grid("long", [task], ["rope"], [0])
    found = protocol.measured(rows, task, scale=SCALE)
    far = found.get(method + "+cache" * asked.cache, {})
    there = far.get(round(asked.multiple * cell.train_length), [])
    if asked.kind == "score":
        return there
    near = found.get(method, {}).get(cell.train_length, [])
    pairs = zip(there, near, strict=True) if there and near else ()
    return [end - start for end, start in pairs]


def verdict(rows: Sequence[Row], task: str, asked: Asked) -> str | None:
    """Return "holds", "the other way round" or "open"; None while rows are missing."""
    sides = [values(rows, task, method, asked) for method in (asked.better, asked.worse)]
    if any(len(side) != len(SEEDS) for side in sides):
        return None
    return protocol.judge(sides[0], sides[1], "text" if asked.kind == "share" else task)
