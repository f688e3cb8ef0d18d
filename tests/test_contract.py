"""What the interface promises beside the promises of every method: graphs, and what is cached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_promises import D_MODEL, HEADS, METHODS
from torch import Tensor, nn

from pe_lib import KVCache, MultiHeadAttention

B, H, D = 2, HEADS, D_MODEL


def layer_of(name: str, *, causal: bool = True) -> MultiHeadAttention:
    torch.manual_seed(0)
    return MultiHeadAttention(D, H, METHODS[name](), causal=causal, embedded=True)


def outputs_and_gradients(call: Callable[..., Any], layer: nn.Module, x: Tensor) -> list[Tensor]:
    """Return what `call` gives for x, and the gradients of x and of all that is trained."""
    x = x.clone().requires_grad_()
    found = call(x)
    output: Tensor = found if isinstance(found, Tensor) else found[0]
    direction = torch.linspace(-1, 1, output.numel()).view_as(output)
    leaves = [x, *layer.parameters()]
    gradients = torch.autograd.grad((output * direction).sum(), leaves, allow_unused=True)
    return [output.detach(), *(gradient for gradient in gradients if gradient is not None)]


# --- compiled ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["none", "t5", "rope", "shaw"])
def test_weights_compile_into_one_graph(name: str) -> None:
    """`forward` is asked of every method in test_promises.py."""
    torch._dynamo.reset()
    layer, x = layer_of(name), torch.randn(B, 12, D)
    compiled = torch.compile(layer.with_weights, fullgraph=True, backend="aot_eager")
    expected = outputs_and_gradients(layer.with_weights, layer, x)
    for one, other in zip(outputs_and_gradients(compiled, layer, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["alibi", "rope", "shaw", "deberta"])
def test_decoding_compiles_into_few_graphs(name: str) -> None:
    """Whatever the length."""
    torch._dynamo.reset()
    layer, x, graphs = layer_of(name).requires_grad_(False), torch.randn(B, 14, D), []

    def count(graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    def step(part: Tensor, cache: KVCache) -> Tensor:
        return layer(part, cache=cache)

    compiled, cache = torch.compile(step, fullgraph=True, backend=count), KVCache()
    parts = [compiled(part, cache) for part in x.split([2, *[1] * 12], dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x), rtol=1e-4, atol=1e-5)
    assert len(graphs) <= 4


# --- caches of keys ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("rope", True),
        ("rope half", True),
        ("rope axial", True),
        ("rope and alibi", True),
        ("xpos", False),
        ("dynamic ntk", False),
        ("longrope", False),
        ("four together", False),
    ],
)
def test_only_final_rotations_are_cached(name: str, kept: bool) -> None:
    layer, x, cache = layer_of(name), torch.randn(B, 5, D), KVCache()
    layer(x, cache=cache)
    k = layer.split_heads(layer.k_proj(x))
    assert layer.encoding.cacheable_rotation is kept
    rotated = layer.encoding.rotate(k, k, torch.arange(5), torch.arange(5))[1]
    assert torch.allclose(cache.keys, rotated, atol=1e-6) is kept
    assert torch.equal(cache.keys, k) is not kept
