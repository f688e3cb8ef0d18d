"""Two models beside each other: which layer differs, and in what.

The other one is whichever is given, or the model's own class, built anew from a copy of its
configuration with the same weights: then what differs is what was changed in the instance.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from posdoctor.findings import FAULT
from posdoctor.layers import (
    READABLE,
    SUMMED,
    TOKENS,
    Attended,
    Look,
    Pair,
    bound,
    judge_layer,
    rotation,
    spoken,
    turned_pair,
    turning,
)
from posdoctor.precision import ROUNDING, off_line
from posdoctor.probes import fit_of, refined, turned
from posdoctor.profile import Case
from posdoctor.tolerances import LOST

THEIRS = "transformers.models"


def built_anew(model: nn.Module) -> nn.Module | str:
    """Return a model's class built anew with its weights; or why that cannot be."""
    own = (each for each in type(model).__mro__ if each.__module__.startswith(THEIRS))
    config: Any = model.config
    try:
        from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

        cls: Any = next(own, None) or MODEL_FOR_CAUSAL_LM_MAPPING.get(type(config), None)
        if cls is None:
            return "transformers has no class for it"
        with torch.random.fork_rng(devices=[]):
            anew: nn.Module = cls(copy.deepcopy(config)).eval()
        missing = anew.load_state_dict(model.state_dict(), strict=False, assign=True).missing_keys
    except Exception as error:  # whatever a class raises, or that there is no transformers
        return f"{type(error).__name__}: {error}"
    if missing:
        return f"{cls.__name__} has weights of other names, such as {missing[0]}"
    return anew.to(next(model.parameters()).device)


def compare_looks(
    mine: Look, other: Look, dtype: torch.dtype, than: str, case: Case, unknown: str = FAULT
) -> None:
    """Say in which layers two models differ, and in what.

    Args:
        mine: what was seen of the one.
        other: of the other.
        dtype: the shorter of the types of their weights.
        than: the other one, in words.
        case: gets findings, each with the layers that it is about.
        unknown: the level of a difference for which no cause is found.
    """
    size, limit = apart(mine.plain.answer, other.plain.answer), bound(dtype, SUMMED)
    names, theirs = list(mine.plain.states), list(other.plain.states)
    if len(names) != len(theirs):
        case.unexamined.append(f"layers beside {than}: there are {len(names)} and {len(theirs)}")
    said: dict[tuple[str, str], list[str]] = {}
    sizes: dict[str, float] = {}
    first = ""
    for one, two in zip(names, theirs, strict=False):
        trial = Case()
        found = compare_layer(mine, other, one, two, dtype, trial)
        if found is not None:
            sizes[one] = found
        for each in trial.findings:
            said.setdefault((each.name, each.detail), []).append(one)
        if not first and apart(mine.plain.states[one], other.plain.states[two]) > limit:
            first = one
    accused = {one for layers in said.values() for one in layers}
    agree = {one: each for one, each in sizes.items() if one not in accused}
    words = f"logits differ by {size:.1e} of the largest"
    if agree:
        words += f"; scores agree in {spoken(agree, names)}, to {max(agree.values()):.1e}"
    if size > limit:
        words += "; the first input that differs is that of "
        words += spoken([first], names) if first else "what follows the layers"
        if first == names[0]:
            words += ": token embeddings, or codes added to them"
    case.facts[f"beside {than}"] = words
    for (name, detail), layers in said.items():
        detail = detail or f"by up to {max(sizes[one] for one in layers):.1g} of the largest"
        case.fault(name, f"{detail}; beside {than}", spoken(layers, names))
    unseen = [one for one in names if one not in sizes]
    if unseen:
        case.unexamined.append(f"scores in {spoken(unseen, names)}: no attention was seen there")
    if not size <= limit and not said:
        case.find("logits-differ", unknown, f"{words}, beside {than}")


def apart(a: Tensor, b: Tensor) -> float:
    """Return how far two tensors are apart, as a share of the largest; infinity if unlike."""
    if a.shape != b.shape:
        return torch.inf
    a, b = a.double(), b.double()
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


def compare_layer(
    mine: Look, other: Look, one: str, two: str, dtype: torch.dtype, case: Case
) -> float | None:
    """Compare the attentions of a layer; return how far scores are apart, None if none was seen."""
    near = torch.arange(TOKENS)
    looks = [(mine.mixed, other.mixed, near), (mine.near, other.near, near)]
    if mine.far and other.far and torch.equal(mine.places, other.places):
        looks.append((mine.far, other.far, mine.places))
    worst: float | None = None
    found = [zip(ours.attended.get(one, []), theirs.attended.get(two, []), strict=False)
             for ours, theirs, _ in looks]  # fmt: skip
    for both in zip(*found, strict=False):  # an attention of the layer, in each of the looks
        if any(each.scores is None for pair in both for each in pair):
            continue
        sizes = [differ(a, b, at, dtype) for (a, b), (_, _, at) in zip(both, looks, strict=True)]
        off = max(sizes) if max(sizes) > 1 else sizes[0]
        worst = max(worst or 0.0, off * bound(dtype))
        if max(sizes) > 1:
            name_cause(both[0], both[1:], mine.places, dtype, case)
            if not case.findings:
                case.fault("scores-differ")
    return worst


def differ(a: Attended, b: Attended, places: Tensor, dtype: torch.dtype) -> float:
    """Return how far scores are apart, in units of what rounding explains; infinity if unlike.

    An angle's rounding grows with its position.
    """
    x, y = a.scores, b.scores
    if x is None or y is None or x.shape != y.shape or not torch.equal(x.isinf(), y.isinf()):
        return torch.inf
    x, y = (each.masked_fill(y.isinf(), 0) for each in (x, y))
    far = torch.maximum(places[:, None], places).double()
    allowed = (bound(dtype) + ROUNDING * far) * y.abs().max().clamp(min=1e-30)
    return float(((x - y).abs() / allowed).max())


def name_cause(
    mixed: tuple[Attended, Attended],
    levelled: Sequence[tuple[Attended, Attended]],
    places: Tensor,
    dtype: torch.dtype,
    case: Case,
) -> None:
    """Name in what two attentions differ: what is seen, queries and keys, or the scores alone.

    Args:
        mixed: mine and the other one, with random states.
        levelled: with one state at all tokens, near, and far where that was tried.
        places: positions of the far ones.
        dtype: of the weights.
        case: gets the findings.
    """
    a, b = mixed
    assert a.scores is not None and b.scores is not None
    if a.scores.shape != b.scores.shape:
        case.fault("scores-differ", f"{len(a.scores)} heads, expected {len(b.scores)}")
        return
    hidden = [each.isinf() for each in (a.scores, b.scores)]
    if not torch.equal(*hidden):
        case.fault("window", window_words(~hidden[0], ~hidden[1]))
    pairs = [pair for both in levelled for each in both if (pair := turned_pair(each))]
    alike = len(pairs) < 2 * len(levelled) or name_pairs(pairs, places, dtype, case)
    name_scores(a, b, ~(hidden[0] | hidden[1]), alike, bound(dtype), case)


def window_words(mine: Tensor, other: Tensor) -> str:
    """Return in words how the keys (H, L, L) that two models see differ."""
    steps = torch.arange(TOKENS) - torch.arange(TOKENS)[:, None]
    reach = [(-int(steps[each.any(0)].min()), int(steps[each.any(0)].max()))
             for each in (mine, other)]  # fmt: skip
    words = [f"{back} positions back" + f", {ahead} ahead" * (ahead > 0) for back, ahead in reach]
    if words[0] != words[1]:
        return f"a query sees keys up to {words[0]}, expected {words[1]}"
    return f"{int((mine != other).sum())} pairs of a query and a key are seen by one model alone"


def name_pairs(pairs: list[Pair], places: Tensor, dtype: torch.dtype, case: Case) -> bool:
    """Name in what queries and keys differ; return whether they are alike near position 0."""
    mine, other = pairs[:2]
    far, distant = pairs[2:] or (None, None)
    if any(x.shape != y.shape for x, y in zip(mine, other, strict=True)):
        return False
    if all(apart(x, y) <= bound(dtype) for x, y in zip(mine, other, strict=True)):
        alike = True
    else:
        alike = False
        name_gain(mine, other, dtype, case)
    expected = None
    if any(turning(x) for x in other):
        expected = rotation(other[0], distant and distant[0])
        if expected is None or expected.layout is None:
            return alike
        if distant is not None:
            z, w = (turned(x, x[:, :1], expected.layout)[0] for x in (other[0], distant[0]))
            line = refined(fit_of(z, torch.arange(TOKENS).double()), w, places.clamp(min=1))
            expected.inv_freq = line.inv_freq.abs()[:, None]
            if not bool((off_line(w, line, places.double()) < LOST + ROUNDING * places).all()):
                far = None  # their far angles follow no line: near ones must do
    judge_layer(mine, far, places, expected, dtype, case)
    return alike


def name_gain(mine: Pair, other: Pair, dtype: torch.dtype, case: Case) -> None:
    """Name by how much queries and keys at position 0 are larger, where nothing is turned."""
    found = [gain(x[:, 0], y[:, 0], dtype) for x, y in zip(mine, other, strict=True)]
    if found[0] is None or found[1] is None:
        ordered = [[x[:, 0].abs().sort(-1).values for x in pair] for pair in (mine, other)]
        if all(apart(x, y) < READABLE for x, y in zip(*ordered, strict=True)):
            case.fault("layout", "components of queries and keys stand in another order")
        return
    (q, whole), (k, _) = found[0], found[1]
    if abs(q / k - 1) > READABLE / 10:
        folded = whole and abs(k - 1) < READABLE / 10  # a factor of the scores, in the queries
        case.fault("softmax-scale" if folded else "gain-on-one-side",
                   f"queries times {q:.4g}, keys times {k:.4g}")  # fmt: skip
    elif abs(q - 1) > READABLE / 10:
        case.fault("gain", f"queries and keys are {q:.4f} times as large: scores times {q * k:.4g}")


def gain(x: Tensor, y: Tensor, dtype: torch.dtype) -> tuple[float, bool] | None:
    """Return the factor between vectors x and y (H, d) and whether all components have it.

    Some components may have one factor, as those have that rotate, and the rest be equal.
    """
    near = READABLE / 10 + bound(dtype)
    ratio = (x / y)[y.abs() > 0.05 * y.abs().max()]  # of small ones, rounding is large
    scaled = ratio[(ratio - 1).abs() > near]
    factor = float(scaled.median()) if len(scaled) else 1.0
    if bool(((ratio - factor).abs().minimum((ratio - 1).abs()) > near * max(1, factor)).any()):
        return None
    return factor, len(scaled) == len(ratio)


def name_scores(
    a: Attended, b: Attended, seen: Tensor, alike: bool, limit: float, case: Case
) -> None:
    """Name in what scores differ beyond their queries and keys: their factor, or a bias."""
    assert a.scores is not None and b.scores is not None
    x, y = (each.scores.masked_fill(~seen, 0) for each in (a, b) if each.scores is not None)
    if a.pairs and b.pairs:
        (mine, off), (other, rest) = factor(a.pairs[-1], x, seen), factor(b.pairs[-1], y, seen)
        if max(off, rest) < limit:
            if abs(mine / other - 1) > limit:
                words = f"scores are {mine:.4g} times q.k, expected {other:.4g}"
                case.fault("softmax-scale", f"{words}: scores times {mine / other:.4g}")
            return
    if a.pairs and not alike:
        return  # the difference of queries and keys stands in the scores
    difference, allowed = x - y, limit * float(y.abs().max())
    along = (difference[:, 1:, 1:] - difference[:, :-1, :-1])[seen[:, 1:, 1:] & seen[:, :-1, :-1]]
    if float(difference.abs().max()) > allowed and float(along.abs().max()) <= 4 * allowed:
        _, i, j = (difference.abs() == difference.abs().max()).nonzero()[0].tolist()
        size = float(difference.abs().max())
        case.fault("bias-values", f"the largest difference is {size:.3g}, at relative position "
                   f"{j - i:+d}")  # fmt: skip


def factor(pair: Pair, scores: Tensor, seen: Tensor) -> tuple[float, float]:
    """Return what scores (H, L, L) are times the product of queries and keys, and how far off."""
    q, k = pair
    product = (q @ k.repeat_interleave(len(q) // len(k), 0).mT).masked_fill(~seen, 0)
    slope = (scores * product).sum() / (product * product).sum()
    return float(slope), apart(slope * product, scores)
