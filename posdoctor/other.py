"""The examination of what acts on queries and keys, and is no rotation of them.

Two kinds are known: queries that are scaled by their positions (scalable softmax, the temperature
of Llama 4), and polar coordinates, where contents give lengths and positions give angles (PoPE).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from posdoctor.probes import SIDES, fit_of, refined, spread
from posdoctor.profile import Case, Profile
from posdoctor.rotary import NEAR, ORDER, alike
from posdoctor.rules import identify
from posdoctor.subjects import Rotary

WIDE, REACH = 1009, 4097  # a step between positions that a slow growth shows; a far position
Answer = Callable[[Tensor], Tensor]  # positions (B, L) -> queries and keys (2, B, H, L, w)


@torch.no_grad()
def kind_of(subject: Rotary) -> str:
    """Return "scaled", "polar" or, for all that may be a rotation, nothing."""
    random = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, subject.heads, 5, subject.head_dim, generator=random).unbind()
    try:
        answer = subject.function(q.clone(), k.clone(), WIDE * 100 * torch.arange(1, 6)[None])
        new_q, new_k = answer
        wide = new_q.shape == new_k.shape == (*q.shape[:3], 2 * q.shape[3])
    except Exception:  # whatever it raises, the examination of rotations says it in words
        return ""
    if wide:
        return "polar"
    if new_q.shape != q.shape:
        return ""
    factors = new_q / q  # (1, H, L, d)
    same = torch.allclose(factors, factors[..., :1].expand_as(factors), rtol=1e-3)
    return "scaled" if torch.equal(new_k, k) and same and not torch.equal(new_q, q) else ""


def answer_of(subject: Rotary) -> Answer:
    """Return the function of positions alone: one vector stands at every token."""
    vector = torch.randn(subject.head_dim, generator=torch.Generator().manual_seed(16))

    def answer(positions: Tensor) -> Tensor:
        x = spread(vector, len(positions), subject.heads, positions.shape[1])
        with torch.no_grad():
            return torch.stack(list(subject.function(x.clone(), x.clone(), positions))).double()

    return answer


def use_of_positions(answer: Answer, step: int, case: Case) -> None:
    """Find out whether each token gets the position that is given for it."""
    places, order = step * torch.arange(11), step * torch.tensor(ORDER)
    here, shifted, mixed = (answer(p[None]) for p in (places, places + 17 * step, order))
    for name, one, other in zip(SIDES, here, shifted, strict=True):
        moves = not alike(one, one[:, :, :1].expand_as(one), 1e-5)
        if moves and alike(one, other, 1e-5):
            case.fault("offset-ignored", "near and far positions give the same", name)
    if case.has("offset-ignored"):
        return
    if not alike(mixed, here[:, :, :, torch.tensor(ORDER)]):
        same = alike(mixed, answer((places + order[0])[None]))
        case.fault("first-position-only" if same else "positions-misread")
        return
    two = torch.stack([places + 3 * step, order + 3 * step])
    both, first, second = (answer(p) for p in (two, two[:1], two[1:]))
    if not (alike(both[:, :1], first) and alike(both[:, 1:], second)):
        case.fault("rows-share-positions" if alike(both[:, 1:], first) else "rows-interfere")


def examine_scaling(subject: Rotary, case: Case) -> Profile:
    """Examine a function that multiplies queries by a number for each position."""
    answer = answer_of(subject)
    case.facts["acts on"] = "queries alone: each is multiplied by a number of its position"
    use_of_positions(answer, WIDE, case)
    places = torch.cat([torch.arange(1, NEAR), 2 ** torch.arange(6, 21)])
    out = answer(places[None])[0, 0]  # (H, L, d)
    vector = answer(places[None])[1, 0]
    factor = (out * vector).sum(-1) / (vector * vector).sum(-1)  # (H, L)
    case.facts["factor"] = "; ".join(
        f"{float(each):.4g} at position {int(place)}"
        for place, each in zip(places[[0, 62, -1]], factor[0, [0, 62, -1]], strict=True)
    )
    case.facts["rule"] = growth(factor[0], places.double())
    if not bool(factor.isfinite().all()):
        case.fault("not-finite")
    elif bool((factor.diff(dim=1) < -1e-6 * factor.abs().max()).any()):
        case.unsure("factor-falls", "queries far from the start have smaller scores")
    return Profile("scaling", subject.head_dim)


def growth(factor: Tensor, places: Tensor) -> str:
    """Return in words how a factor (L,) grows with the position."""
    share = factor / (places + 1).log()
    if alike(share, share[:1].expand_as(share), 1e-3):
        return f"{float(share[0]):.4g} log(n) for a query that sees n keys (scalable softmax)"
    flat = (factor - factor[0]).abs() < 1e-6
    if bool(flat.all()):
        return "one number for all positions"
    if bool(flat[1]):
        last = int(places[flat.nonzero().max()])
        return f"{float(factor[0]):.4g} up to position {last} at least, then it grows"
    return "it grows, by no rule that we know"


def examine_polar(subject: Rotary, case: Case) -> Profile | None:
    """Examine a function that gives each component a length and an angle, in twice the width."""
    answer = answer_of(subject)
    case.facts["acts on"] = "queries and keys, which come back twice as wide"
    use_of_positions(answer, 1, case)
    if case.has("offset-ignored", "first-position-only", "positions-misread"):
        case.unexamined.append("angles: tokens do not get their own positions")
        return None
    near = torch.arange(NEAR)
    far = torch.tensor([128, 129, 512, 513, 2048, 2049, REACH - 1, REACH])
    forms: dict[str, Answer] = {
        "cosines, then sines": lambda x: torch.complex(*x.chunk(2, -1)),
        "cosines and sines in turn": lambda x: torch.complex(x[..., ::2], x[..., 1::2]),
    }
    out = answer(near[None])[:, 0, 0]  # (2, L, 2d)
    steady = {}
    for name, read in forms.items():
        size = read(out).abs()
        steady[name] = float((size / size[:, :1].clamp(min=1e-9) - 1).abs().max())
    form = min(steady, key=lambda name: steady[name])
    if steady[form] > 1e-3:
        case.fault("not-a-rotation", "lengths change with the position")
        return None
    case.facts["form"] = f"{form}; lengths do not depend on the position"
    z, more = forms[form](out), forms[form](answer(far[None])[:, 0, 0])
    fits = [fit_of(one, near.double()) for one in z]
    fits = [refined(fit, one, far.double()) for fit, one in zip(fits, more, strict=True)]
    q, k = fits
    if not alike(q.rates.abs(), k.rates.abs(), 1e-3):
        case.fault("sides-differ")
    elif not alike(q.rates, k.rates, 1e-3):
        case.fault("opposite-directions")
    profile = Profile("polar", subject.head_dim, rates=q.rates.abs()[:, None])
    profile.rule = identify(q.rates.abs())
    case.facts["frequencies"] = f"{len(q.rates)}, one for each component: {profile.rule}"
    case.facts["phase"] = f"up to {float((k.phases - q.phases).abs().max()):.2g} radians on keys"
    if case.has("sides-differ", "opposite-directions"):
        return profile
    scores = torch.stack([pair_score(answer, start) for start in (0, 100, REACH - 64)])
    moved = float((scores - scores[:1]).abs().max() / scores.abs().max())
    case.facts["relativity"] = f"scores move by {moved:.1e} of the largest"
    if moved > 1e-2:
        case.fault("precision-lost", f"scores of pairs at one distance move by {moved:.2g}")
    return profile


def pair_score(answer: Answer, start: int) -> Tensor:
    """Return the scores of pairs at the distances 0, 1, 8 and 31 from a start."""
    q, k = answer(start + torch.tensor([[0, 1, 8, 31]]))[:, 0, 0]
    found: Tensor = q @ k[0]
    return found
