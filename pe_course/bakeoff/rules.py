"""The protocol for RoPE's rules beside a rolling cache, committed before its first row.

The question is what a finished RoPE model is to do beyond its training length. The plainest answer
needs no rule: keep its frequencies, and of its keys only the last ones, as many as the training
length (a *rolling cache*). Every rule is measured beside it, and the rules are the library's:
"YaRN" is `pe_lib.rope_scaling.yarn` with its own defaults and its attention factor.

Rules of the protocol:

- Models are the long comparison's RoPE (`pe_course.bakeoff.protocol`): its steps, its chosen rates,
  the seeds 0 to 4. No weights were kept, so each is trained once more; everything below is measured
  on these same fifteen models and on the published one of chapter 13 (one model, no seeds).
- A rolling cache is a causal sliding window in each layer: a query sees itself and the keys before
  it, as many in all as the window. Nothing is computed anew when an old key goes.
- Orderings are judged as there: all five seeds of one side better than all five of the other. At
  most twelve are asked of a task.
- Added once the rows had been read: rules are compared on the same five models. Where all five
  differ in one direction this may be said ("on each of the five models"); chance alone does that
  once in sixteen, so it decides no ordering.
- Of the published model a difference counts from 0.1 nats on, the bar of chapter 13.
- The directions are no discovery: two models of other seeds had shown most of them before.

What is asked, and the sentences that each outcome allows (nothing else is said of these rows):

1. *Text, rolling cache against a rule.* Holds at 2, 4 and 16 times for all rules asked: "on text no
   rule was ahead of keeping the last keys". Holds at some: the same, with these multiples. The
   other way round for one rule: this rule is named as ahead, and the advice stays "a rule".
2. *3-back.* The rolling cache keeps it if each seed has more than 0.9 at 16 times.
3. *Recall, rule against rolling cache.* Holds: "the price is far recall", with both ranges. Open or
   the other way round: "we saw no price on recall" at that multiple. With answers split by whether
   the cache still holds the answer's token: each seed above 0.9 of those held and below 0.2 of the
   others allows "it finds what it holds, and nothing else".
4. *YaRN against Llama 3.1's rule on text.* Holds: YaRN is ahead there. Open: they overlap. The
   other way round: Llama 3.1's rule is ahead.
5. *The attention factor.* Each rule with and without it. If it decides 3-back or recall for both
   rules, the difference between the rules there is credited to the factor; if for one of them, to
   the pair; if for none, to the frequencies. RoPE with the factor alone says if it needs a rule.
6. *The window on recall*, and on the published model: from a quarter of the training length to
   twice it, at every length: a curve. "A larger window recalls more" where the ordering holds,
   "less" if reversed.
7. *Trained further, at 4 and 8 times the length* (200 steps at a constant rate of 0.001, as in the
   short comparison; as many tokens a step as before). A way *is back* if each seed is within 0.1
   nats of RoPE's worst at the training length, or above 0.9 of a task. "Which rule no longer
   matters" is allowed if the medians of all ways are within 0.1 nats of one another.
8. *RoPE dropped* (DroPE) and recalibrated at the training length, for a twentieth, an eighth and a
   fifth of the training's steps, with the training's own rate and schedule (the short comparison
   took a constant 0.001). It is *back* by the bars of 7 at the training length. Back: "so many
   steps gave back what RoPE had taught", and its scores at 16 times stand beside those of the long
   comparison's hybrid. Not back after a fifth: "a fifth of the training did not give it back".
9. *The window hybrid, too, over a rolling cache* of the training length (and any other method that
   is named to the command), by the bars of 2 and 3: whether recall of what the cache has dropped is
   lost by the cache, whatever the method, or by RoPE.

The study is finished; `data/README.md` says where the program stands that made its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pe_course.bakeoff import protocol
from pe_course.bakeoff.grid import grid
from pe_course.bakeoff.protocol import Ordering
from pe_course.bakeoff.rows import Curve, Row

HELD, GONE = 0.9, 0.2  # of answers whose token a rolling cache still holds, and of the others

ORDERINGS: dict[str, dict[str, Ordering]] = {
    "text": {
        "cache-dynamic": Ordering("rope+cache", "rope+dynamic-ntk", 2),
        "cache-yarn-2": Ordering("rope+cache", "rope+yarn", 2),
        "cache-llama-2": Ordering("rope+cache", "rope+llama3", 2),
        "cache-yarn-4": Ordering("rope+cache", "rope+yarn", 4),
        "cache-llama-4": Ordering("rope+cache", "rope+llama3", 4),
        "cache-yarn-16": Ordering("rope+cache", "rope+yarn", 16),
        "cache-hybrid": Ordering("rope+cache", "hybrid", 16),
        "yarn-llama-2": Ordering("rope+yarn", "rope+llama3", 2),
        "yarn-llama-4": Ordering("rope+yarn", "rope+llama3", 4),
        "yarn-llama-16": Ordering("rope+yarn", "rope+llama3", 16),
        "yarn-factor": Ordering("rope+yarn", "rope+yarn-no-factor", 4),
        "llama-factor": Ordering("rope+llama3-factor", "rope+llama3", 4),
    },
    "marker": {
        "yarn-cache-4": Ordering("rope+yarn", "rope+cache", 4),
        "llama-cache-4": Ordering("rope+llama3", "rope+cache", 4),
        "yarn-cache-16": Ordering("rope+yarn", "rope+cache", 16),
        "llama-cache-16": Ordering("rope+llama3", "rope+cache", 16),
        "cache-untouched": Ordering("rope+cache", "rope", 4),
        "yarn-factor-4": Ordering("rope+yarn", "rope+yarn-no-factor", 4),
        "yarn-factor-16": Ordering("rope+yarn", "rope+yarn-no-factor", 16),
        "llama-factor-4": Ordering("rope+llama3-factor", "rope+llama3", 4),
        "llama-factor-16": Ordering("rope+llama3-factor", "rope+llama3", 16),
        "wider-4": Ordering("rope+cache-2", "rope+cache", 4),
        "wider-16": Ordering("rope+cache-2", "rope+cache", 16),
    },
    "n-back": {
        "cache-yarn": Ordering("rope+cache", "rope+yarn", 16),
        "cache-llama": Ordering("rope+cache", "rope+llama3", 16),
        "yarn-llama": Ordering("rope+yarn", "rope+llama3", 16),
        "yarn-factor": Ordering("rope+yarn", "rope+yarn-no-factor", 16),
        "llama-factor": Ordering("rope+llama3-factor", "rope+llama3", 16),
        "factor-alone": Ordering("rope+factor", "rope", 2),
    },
}
assert all(len(asked) * protocol.BY_CHANCE < 0.05 for asked in ORDERINGS.values())


def measured(rows: Sequence[Row], task: str) -> dict[str, Curve]:
    """Return the seeds' values by variant and length, with the long comparison's other methods."""
    others = {v: curve for v, curve in protocol.measured(rows, task).items() if v[:4] != "rope"}
    return others | protocol.measured(rows, task, scale="rules")


def verdict(rows: Sequence[Row], task: str, asked: Ordering) -> str | None:
    """Return "holds", "the other way round" or "open"; None while rows are missing."""
    found = measured(rows, task)
    (cell,) = grid("long", [task], ["rope"], [0])  # whose models these are
    length = round(asked.multiple * cell.train_length)
    better, worse = (found.get(variant, {}).get(length) for variant in asked[:2])
    return protocol.judge(better, worse, task) if better and worse else None
