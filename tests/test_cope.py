"""CoPE: equal to loops over the equations, and to a clipped table where every gate is open."""

from __future__ import annotations

import math

import torch
from closeness import assert_close

from pe_lib import CoPE, Shaw
from pe_lib.attention import attention_logits
from pe_lib.recent.cope import gated_counts


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_logits_equal_the_papers_equations():
    q, k = drawn(2, 2, 3, 6, 4).unbind()
    encoding = CoPE(4, 3, std=1.0).double()
    logits = attention_logits(q, k, encoding, 5, 5)
    for b, h, i in ((0, 0, 0), (0, 1, 3), (1, 2, 5)):
        for j in range(i + 1):
            gates = [torch.sigmoid(q[b, h, i] @ k[b, h, m] / 2) for m in range(j, i + 1)]
            position = min(float(sum(gates)), 3.0)
            low, high = math.floor(position), math.ceil(position)
            share = position - low
            vector = (1 - share) * encoding.table[low] + share * encoding.table[high]
            assert_close(logits[b, h, i, j], q[b, h, i] @ (k[b, h, j] + vector) / 2, 1e-12)


def test_open_gates_make_a_clipped_table():
    """Equal to Shaw's without values, for a large product of every query and key."""
    q = drawn(1, 1, 6, 4)
    q[..., 0] = 100.0
    cope = CoPE(4, 3, std=1.0).double()
    shaw = Shaw(4, 2, with_values=False).double()
    with torch.no_grad():
        shaw.key_table[:3] = cope.table[[3, 2, 1]]  # counts begin at 1, for the query's own token
    past = torch.ones(6, 6, dtype=torch.bool).tril()
    found, expected = (attention_logits(q, q, each, 0, 0)[..., past] for each in (cope, shaw))
    assert_close(found, expected, 1e-9)


def test_a_key_after_the_query_is_not_counted():
    logits = torch.full((1, 1, 3, 3), 1000.0)
    past = torch.ones(3, 3, dtype=torch.bool).tril()
    expected = torch.tensor([[1.0, 0, 0], [2, 1, 0], [3, 2, 1]])
    assert torch.equal(gated_counts(logits, past)[0, 0], expected)


def test_counts_are_summed_in_float32():
    q = torch.full((1, 1, 4000, 2), 4.0, dtype=torch.float16)
    places = torch.arange(4000)
    counted = CoPE(2, 5000).counts(q[:, :, -1:], q, places[-1:], places, 1.0)
    assert counted.dtype == torch.float32
    assert_close(counted[0, 0, 0, 0], torch.tensor(4000.0), 0.1)
