"""The examination of what scales queries by their positions, and is no rotation of them.

Scalable softmax does it, and the temperature of Llama 4.
"""

from __future__ import annotations

import torch
from torch import Tensor

from posdoctor.probes import Probe, call
from posdoctor.profile import Case, Profile
from posdoctor.rotary import NEAR, alike, use_of_positions
from posdoctor.subjects import Rotary

WIDE = 1009  # a step between positions that a slow growth shows


@torch.no_grad()
def is_scaling(subject: Rotary) -> bool:
    """Return whether a function multiplies queries by numbers, and leaves keys alone."""
    random = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, subject.heads, 5, subject.head_dim, generator=random).unbind()
    try:
        new_q, new_k = call(subject.function, q, k, WIDE * 100 * torch.arange(1, 6)[None])
        factors = new_q / q  # (1, H, L, d)
    except Exception:  # whatever it raises, the examination of rotations says it in words
        return False
    same = torch.allclose(factors, factors[..., :1].expand_as(factors), rtol=1e-3)
    return torch.equal(new_k, k) and same and not torch.equal(new_q, q)


def examine_scaling(subject: Rotary, case: Case) -> Profile:
    """Examine a function that multiplies queries by a number for each position."""
    probe = Probe(subject)
    case.facts["acts on"] = "queries alone: each is multiplied by a number of its position"
    use_of_positions(probe, case, WIDE)
    case.drop("one-side-only")
    places = torch.cat([torch.arange(1, NEAR), 2 ** torch.arange(6, 21)])
    out, vector = probe.same(probe.random(), places[None]).double()[:, 0]  # (H, L, d) each
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
