"""A memory of the last segment: against XLNet, one pass, and how far it reaches."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close, difference
from test_transformer_xl import copy_xlnet, xlnet
from torch import Tensor, nn

from pe_course.segments import SegmentMemory, run_segments
from pe_lib.attention import MultiHeadAttention
from pe_lib.transformer_xl import TransformerXL


class XLNetBlock(nn.Module):
    """An XLNet layer with our attention in it."""

    def __init__(self, peer: nn.Module) -> None:
        super().__init__()
        self.attention, self.peer = copy_xlnet(peer.rel_attn, causal=True), peer

    def forward(self, x: Tensor, **places: Tensor) -> Tensor:
        return self.peer.ff(self.peer.rel_attn.layer_norm(self.attention(x, **places) + x))


@pytest.mark.parametrize("memory_length", [2, 4, 7])
def test_segments_equal_xlnet_with_memory(memory_length: int) -> None:
    torch.manual_seed(memory_length)
    model = xlnet(3, attn_type="uni", mem_len=memory_length).double()
    x, memory, outputs = torch.randn(2, 14, 20, dtype=torch.float64), None, []
    for segment in x.split(4, dim=1):
        result = model(inputs_embeds=segment, mems=memory, use_mems=True)
        memory = result.mems
        outputs.append(result.last_hidden_state)
    own = run_segments([XLNetBlock(layer) for layer in model.layer], x, 4, memory_length)
    assert_close(own, torch.cat(outputs, dim=1), 1e-6)  # its codes are float32 even so


def stack(n_layers: int) -> list[MultiHeadAttention]:
    """Return causal layers in float64."""
    torch.manual_seed(0)
    encodings = [TransformerXL(12, 3, std=0.5) for _ in range(n_layers)]
    return [MultiHeadAttention(12, 3, encoding, causal=True).double() for encoding in encodings]


def test_a_memory_of_everything_equals_one_pass() -> None:
    layers, x = stack(2), torch.randn(2, 11, 12).double()
    whole = x
    for layer in layers:
        whole = layer(whole)
    assert_close(run_segments(layers, x, 3, 11), whole, 1e-12)
    assert_close(run_segments(layers, x, 11, 1), whole, 1e-12)
    assert difference(run_segments(layers, x, 3, 2), whole) > 1e-3


@pytest.mark.parametrize(("n_layers", "memory_length"), [(1, 3), (2, 3), (3, 2)])
def test_reach_grows_with_the_layers(n_layers: int, memory_length: int) -> None:
    layers, x = stack(n_layers), torch.randn(1, 12, 12).double()
    changed = x.clone()
    changed[:, 0] += 1
    outputs = run_segments(layers, changed, 1, memory_length)
    moved = (outputs - run_segments(layers, x, 1, memory_length)).abs().amax((0, 2)) > 1e-12
    assert moved.nonzero().max() == n_layers * memory_length


def test_no_gradient_passes_to_an_earlier_segment() -> None:
    layers, x = stack(2), torch.randn(1, 6, 12).double().requires_grad_()
    run_segments(layers, x, 3, 3)[:, 3:].sum().backward()
    assert x.grad[:, :3].abs().max() == 0
    assert x.grad[:, 3:].abs().min() > 0


def test_memory_keeps_the_last_states_and_counts_on() -> None:
    memory, x = SegmentMemory(3), torch.arange(10.0).view(1, 10, 1)
    for start, stop, first in ((0, 2, 0), (2, 4, 0), (4, 9, 1), (9, 10, 6)):
        context, q_pos, k_pos = memory.extend(x[:, start:stop])
        assert context.flatten().tolist() == list(range(first, stop))
        assert (q_pos, k_pos) == (start, first)
