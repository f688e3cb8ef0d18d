"""What the interface promises beside the promises of every method: graphs, caches, weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_promises import D_MODEL, HEADS, METHODS
from torch import Tensor, nn

from pe_lib import (
    ALiBi,
    AxesRoPE,
    Compose,
    KVCache,
    MultiHeadAttention,
    Run,
    ScalableSoftmax,
    Trailing,
    XPos,
)

B, H, L, D, WIDTH = 2, HEADS, 12, D_MODEL, D_MODEL // HEADS


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
def test_a_layer_that_shows_its_weights_compiles_into_one_graph(name: str) -> None:
    """`forward` is asked of every method in test_promises.py."""
    torch._dynamo.reset()
    layer, x = layer_of(name), torch.randn(B, L, D)
    compiled = torch.compile(layer.with_weights, fullgraph=True, backend="aot_eager")
    expected = outputs_and_gradients(layer.with_weights, layer, x)
    for one, other in zip(outputs_and_gradients(compiled, layer, x), expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["alibi", "rope", "shaw", "deberta"])
def test_decoding_compiles_into_a_few_graphs_whatever_the_length(name: str) -> None:
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
def test_a_cache_keeps_keys_rotated_only_where_their_rotation_is_final(
    name: str, kept: bool
) -> None:
    layer, x, cache = layer_of(name), torch.randn(B, 5, D), KVCache()
    layer(x, cache=cache)
    k = layer.split_heads(layer.k_proj(x))
    assert layer.encoding.rotates_once is kept
    rotated = layer.encoding.rotate(k, k, Run(0, 5), Run(0, 5))[1]
    assert torch.allclose(cache.keys, rotated, atol=1e-6) is kept
    assert torch.equal(cache.keys, k) is not kept


# --- classes of classes --------------------------------------------------------------------------


class Turning(ALiBi):
    """A bias of distance that also rotates, by the number of keys."""

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return q, k * k_pos.shape[-1]


def test_a_hook_of_a_subclass_is_not_taken_for_one_that_rotates_once() -> None:
    assert ALiBi(2).rotates_once and not Turning(2).rotates_once
    layer, x = MultiHeadAttention(D, H, Turning(H), causal=True), torch.randn(B, 6, D)
    cache = KVCache()
    layer(x[:, :-1], cache=cache)
    expected = layer(x)[:, -1:]
    torch.testing.assert_close(layer(x[:, -1:], cache=cache), expected)


def test_what_is_wrapped_says_what_it_needs() -> None:
    assert Trailing(XPos(4), 4).past_only and not Trailing(XPos(4), 4).rotates_once
    assert Trailing(ScalableSoftmax(4, 16), 4).n_heads == 4
    with pytest.raises(ValueError, match="Trailing is for keys of the past"):
        MultiHeadAttention(D, H, Trailing(XPos(4), 4))(torch.randn(B, 5, D))


def test_composed_rotations_of_axes_are_those_of_their_members() -> None:
    q, numbers = torch.randn(B, H, 5, WIDTH), torch.randn(5, 2)
    axes = AxesRoPE(WIDTH, torch.randn(4, 2))
    found = Compose(axes, ALiBi(H)).rotate_axes(q, q, numbers, numbers)
    assert torch.equal(found[0], axes.rotate_axes(q, q, numbers, numbers)[0])
