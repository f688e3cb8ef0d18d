"""The engine that stands beside the old one gives the same numbers, until it takes its place."""

import itertools

import pytest
import torch

import pe_lib
from pe_lib import _next

D, H, WIDTH, LENGTH = 32, 4, 8, 11
METHODS = {
    "none": lambda m: m.NoPosition(),
    "sinusoidal": lambda m: m.Sinusoidal(D),
    "learned": lambda m: m.Learned(64, D),
    "shaw": lambda m: m.Shaw(WIDTH, 3),
    "shaw, keys": lambda m: m.Shaw(WIDTH, 3, with_values=False),
    "transformer-xl": lambda m: m.TransformerXL(D, H, clamp=4),
    "t5": lambda m: m.T5Bias(H, 8, 16, bidirectional=False),
    "deberta": lambda m: m.DeBERTa(D, H, 5),
    "deberta 2": lambda m: m.DeBERTa(D, H, 16, n_buckets=8, p2c=False),
    "alibi": lambda m: m.ALiBi(H),
    "kerple": lambda m: m.Kerple(H),
    "kerple, power": lambda m: m.Kerple(H, variant="power"),
    "fire": lambda m: m.Fire(H, threshold=4.5),
    "rope": lambda m: m.RoPE(WIDTH),
    "rope, half": lambda m: m.RoPE(WIDTH, layout="half", gain=1.2),
    "rope, partial": lambda m: m.RoPE(WIDTH, rotary_dim=4),
    "dynamic": lambda m: m.DynamicNTK(WIDTH, 2.0, 6),
    "longrope": lambda m: m.LongRoPE(WIDTH, 1.5 * torch.ones(4), 3 * torch.ones(4), 8, 4.0),
    "xpos": lambda m: m.XPos(WIDTH),
    "pope": lambda m: m.PoPE(H, WIDTH),
    "cope": lambda m: m.CoPE(WIDTH, 8, std=0.5),
    "forgetting": lambda m: m.Forgetting(D, H),
    "scalable softmax": lambda m: m.ScalableSoftmax(H, 32),
    "temperature": lambda m: m.QueryTemperature(0.5, 4.0),
    "trailing": lambda m: m.Trailing(m.RoPE(4), 4),
    "rotary values": lambda m: m.RotaryValues(m.RoPE(WIDTH)),
    "axial": lambda m: m.AxialRoPE(WIDTH, 4),
    "rope, window, sink": lambda m: m.Compose(m.RoPE(WIDTH), m.SlidingWindow(H, 4), m.Sink(H)),
    "rope, shaw": lambda m: m.Compose(m.RoPE(WIDTH), m.Shaw(WIDTH, 3)),
    "alibi, kerple": lambda m: m.Compose(m.ALiBi(H), m.Kerple(H)),
}


def outputs(library, name, kv_heads, causal):
    """Outputs, weights, gradients and decoded outputs of a layer, in float64."""
    torch.manual_seed(1)
    encoding = METHODS[name](library)
    encoding.past_only = encoding.past_only and causal
    layer = library.MultiHeadAttention(
        D, H, encoding, causal=causal, embedded=True, n_kv_heads=kv_heads
    ).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in layer.parameters():  # what starts at zero shows nothing
        noise = torch.randn(parameter.shape, dtype=torch.float64, generator=generator)
        parameter.data.add_(0.1 * noise)
    x = torch.randn(2, LENGTH, D, dtype=torch.float64, generator=generator).requires_grad_()
    places = torch.arange(LENGTH)
    mask = torch.rand(2, 1, LENGTH, LENGTH, generator=generator) > 0.3
    found = []
    for q_pos, hidden in itertools.product((None, places + 3), (None, mask)):
        embedded = encoding.embed(x, places if q_pos is None else q_pos)
        found += layer.with_weights(embedded, q_pos=q_pos, mask=hidden)
        found.append(layer(embedded, q_pos=q_pos, mask=hidden))
        leaves = [x, *layer.parameters()]
        found += torch.autograd.grad(found[-1].square().sum(), leaves, materialize_grads=True)
    if causal:
        for recorded, steps in itertools.product((True, False), ([1] * LENGTH, [4, 1, 6])):
            with torch.set_grad_enabled(recorded):
                cache = library.KVCache()
                parts = zip(x.split(steps, 1), places.split(steps), strict=True)
                found.append(
                    torch.cat([layer(encoding.embed(*part), cache=cache) for part in parts], 1)
                )
    return found


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2])
@pytest.mark.parametrize("name", METHODS)
def test_both_engines_give_the_same_numbers(name, kv_heads, causal):
    pairs = zip(*(outputs(lib, name, kv_heads, causal) for lib in (_next, pe_lib)), strict=True)
    for new, old in pairs:
        assert (new - old).abs().max() <= 1e-12 * old.abs().max().clamp(min=1.0)
