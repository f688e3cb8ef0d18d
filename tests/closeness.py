"""How near two tensors are."""

from __future__ import annotations

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
