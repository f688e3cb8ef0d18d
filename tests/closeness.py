"""How near two tensors are, the positions that a test draws and their forms, a default dtype."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from hypothesis import strategies as st
from torch import Tensor


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry; shapes must agree."""
    assert actual.shape == expected.shape, f"{tuple(actual.shape)} != {tuple(expected.shape)}"
    assert expected.numel() > 0, "nothing to compare"
    largest = expected.detach().abs().max()
    assert largest > 0, "all that is expected is zero"
    return float((actual.detach() - expected.detach()).abs().max() / largest)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-6) -> None:
    """Assert equal shapes, and values equal to `tolerance` of the largest one."""
    found = difference(actual, expected)
    assert found <= tolerance, f"differs by {found:.2g} of the largest entry"


def drawn_places(draw: st.DrawFn, batch: int, n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    """Draw positions (B, L) of queries and keys of every kind that the hooks allow."""
    q_start, k_start = torch.randint(-9, 9, (2, batch, 1))
    kind = draw(st.sampled_from(["runs", "own offsets", "gaps"]))
    if kind == "runs":
        q_start = q_start[:1].expand(batch, 1)
        k_start = q_start + draw(st.integers(-4, 4))
    q_pos, k_pos = q_start + torch.arange(n_queries), k_start + torch.arange(n_keys)
    if kind == "gaps":
        q_pos, k_pos = torch.randint(-5, 5, q_pos.shape), torch.randint(-5, 5, k_pos.shape)
    return q_pos, k_pos


def forms(q_pos: Tensor, k_pos: Tensor) -> list[tuple[Tensor | int, Tensor | int]]:
    """Return positions (B, L) as they are, and as two ints if each sequence has that run."""
    starts = int(q_pos[0, 0]), int(k_pos[0, 0])
    runs = [
        start + torch.arange(p.shape[1]) for start, p in zip(starts, (q_pos, k_pos), strict=True)
    ]
    as_runs = all((run == p).all() for run, p in zip(runs, (q_pos, k_pos), strict=True))
    return [(q_pos, k_pos), starts] if as_runs else [(q_pos, k_pos)]


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Let PyTorch make its tensors in another dtype for a while."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
