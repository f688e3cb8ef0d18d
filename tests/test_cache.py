"""A cache: decoding equals the whole, whatever becomes of it between two calls."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from closeness import assert_close
from test_attention import decoded, draw
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from pe_lib import (
    ALiBi,
    AxesRoPE,
    Compose,
    DeBERTa,
    KVCache,
    MultiHeadAttention,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Sink,
    TransformerXL,
)
from pe_lib.cache import SPARE, Buffer, extended, joined
from pe_lib.encoding import order_of

B, H, WIDTH = 2, 3, 6


def layer_of(encoding: PositionEncoding, n_heads: int = 2) -> MultiHeadAttention:
    return MultiHeadAttention(16, n_heads, encoding, causal=True).double()


# --- positions -----------------------------------------------------------------------------------


def test_left_padding_goes_on_by_positions() -> None:
    attention = layer_of(ALiBi(2))
    x, cache = draw(2, 6, 16), KVCache()
    positions = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    mask[0, ..., :2] = False
    attention(x[:, :5], q_pos=positions[:, :5], mask=mask[..., :5], cache=cache)
    with pytest.raises(ValueError, match="with all keys of a cache"):  # it would show all padding
        attention(x[:, 5:], mask=mask[..., 5:], cache=cache)
    last = attention(x[:, 5:], mask=mask, cache=cache)
    assert_close(last[:1], attention(x[:1, 2:])[:, -1:], 1e-12)
    assert_close(last[1:], attention(x[1:])[:, -1:], 1e-12)


def test_integers_and_fractions_are_joined_exactly() -> None:
    far = 2**24 + 1  # the first integer that float32 does not have
    found = joined(torch.tensor([far - 1, far]), torch.tensor([0.5]))
    assert found.tolist() == [far - 1, far, 0.5]


def test_an_int_goes_on_where_it_ends() -> None:
    attention, cache = layer_of(ALiBi(2)), KVCache()
    for length, start in ((3, 7), (2, None), (1, 12)):
        attention(draw(B, length, 16), q_pos=start, cache=cache)
    assert cache.at == 7 and cache.next_positions(1) == 13
    assert cache.positions.tolist() == [*range(7, 13)]
    attention(draw(B, 1, 16), q_pos=20, cache=cache)
    assert cache.positions.tolist() == [*range(7, 13), 20]


FORMS: dict[str, Callable[[int, int], Tensor | int | None]] = {
    "tensor": lambda start, length: torch.arange(start, start + length),
    "one row": lambda start, length: torch.arange(start, start + length)[None],
    "row per sequence": lambda start, length: torch.arange(start, start + length).expand(B, -1),
    "fractions": lambda start, length: torch.arange(start, start + length).double(),
    "int": lambda start, length: start,
    "none": lambda start, length: None,
}


@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize("second", FORMS)
def test_positions_of_every_form_join(first: str, second: str) -> None:
    attention, x = layer_of(ALiBi(2)), draw(B, 6, 16)
    cache = KVCache()
    assert cache  # `if cache` asks whether there is one
    attention(x[:, :4], q_pos=FORMS[first](0, 4), cache=cache)
    last = attention(x[:, 4:], q_pos=FORMS[second](4, 2), cache=cache)
    assert_close(last, attention(x)[:, 4:], 1e-12)


@pytest.mark.parametrize("axes", [False, True])
def test_the_callers_tensor_may_change(axes: bool) -> None:
    """A loop may add one to the same tensor at each step."""
    x, cache = draw(1, 6, 16), KVCache()
    place = torch.zeros(2, 1, 1, dtype=torch.long) if axes else torch.zeros(1, dtype=torch.long)
    layer = layer_of(AxesRoPE(8, torch.ones(4, 1)) if axes else ALiBi(2))
    for step in x.split(1, dim=1):
        layer(step, q_pos=place, cache=cache)
        place += 1
    assert order_of(cache.positions).flatten().tolist() == list(range(6))
    assert not axes or cache.positions[1, 0].tolist() == list(range(6))


# --- layers, copies and calls that fail ----------------------------------------------------------


@torch.no_grad()
def test_a_cache_belongs_to_one_layer() -> None:
    """In another layer the keys of the first would be seen; a copy may go on in a copy."""
    one, other = layer_of(RoPE(8)), layer_of(RoPE(8))
    x, cache = draw(1, 5, 16), KVCache()
    one(x[:, :4], cache=cache)
    for where in (None, 4):
        with pytest.raises(ValueError, match="cache must be one that no other layer uses"):
            other(x[:, 4:], cache=cache, q_pos=where)
    twin, copied = copy.deepcopy((one, cache))
    stored = pickle.loads(pickle.dumps(cache))
    for each, held in ((twin, copied), (one, stored), (one, cache), (twin, copied)):
        length = len(held)
        again = one(torch.cat([x, x], dim=1)[:, : length + 1])[:, -1:]
        assert_close(each(torch.cat([x, x], dim=1)[:, length : length + 1], cache=held), again)


def test_a_context_is_not_cached() -> None:
    """Each step would add its keys again, and a sink then lose weight."""
    layer, x, context = layer_of(Compose(RoPE(8), Sink(2))), draw(1, 1, 16), draw(1, 9, 16)
    for at in (torch.tensor([0]), 0):
        with pytest.raises(ValueError, match="and no cache: it would be added again"):
            layer(x, context=context, q_pos=at, k_pos=torch.arange(9), cache=KVCache())


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_refused_call_adds_nothing(begun: bool, recorded: bool) -> None:
    """The call that follows, which is right, gives what it would have given at once."""
    x, cache = draw(1, 6, 16), KVCache()
    layer = layer_of(ALiBi(2))
    with torch.set_grad_enabled(recorded):
        if begun:
            layer(x[:, :3], cache=cache)
        held = len(cache)
        wrong = torch.ones(1, 1, 7, 7, dtype=torch.bool)
        again = [{"q_pos": held - 1}] * begun
        for settings in ({"mask": wrong}, {"q_pos": torch.arange(2)}, *again):
            with pytest.raises(ValueError, match=r"mask must|positions must|q_pos must"):
                layer(x[:, held : held + 1], cache=cache, **settings)
        assert len(cache) == held
        assert_close(layer(x[:, held:], cache=cache), layer(x)[:, held:], 1e-12)


def test_an_interrupted_call_adds_nothing() -> None:
    """Whatever ended it, and wherever: here the last projection."""
    layer, x, cache = layer_of(RoPE(8)), draw(1, 6, 16), KVCache()
    layer(x[:, :5], cache=cache)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with layer.out_proj.register_forward_pre_hook(stop), pytest.raises(KeyboardInterrupt):
        layer(x[:, 5:], cache=cache)
    assert len(cache) == 5
    assert_close(layer(x[:, 5:], cache=cache), layer(x)[:, 5:], 1e-12)


# --- weights and settings that change ------------------------------------------------------------


CHANGES: list[Callable[[Any, Any], object]] = [
    lambda xl, deberta: setattr(xl, "clamp", 2),
    lambda xl, deberta: [p.data.mul_(1.5) for p in (*xl.parameters(), *deberta.parameters())],
    lambda xl, deberta: deberta.key_proj.__setitem__(1, nn.Identity()),
    lambda xl, deberta: deberta.query_proj.register_forward_hook(lambda *args: 2 * args[2]),
    lambda xl, deberta: xl.r_proj.register_forward_hook(lambda *args: 2 * args[2]),
    lambda xl, deberta: prune.random_unstructured(xl.r_proj, "weight", 0.5),
    lambda xl, deberta: xl.r_proj.weight_orig.data.mul_(30),
    lambda xl, deberta: setattr(xl, "r_proj", parametrizations.weight_norm(nn.Linear(32, 32))),
    lambda xl, deberta: xl.double().r_proj.parametrizations.weight.original0.data.mul_(3),
]


def test_changes_between_decodings_are_seen() -> None:
    """The clamp, weights through `.data`, adapters, hooks, pruning, a weight norm."""
    xl, adapter = TransformerXL(32, 4, std=1.0), nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    deberta = DeBERTa(32, 4, 8, projections=(nn.Linear(32, 32), adapter))
    x = draw(1, 9, 32)
    layers = [MultiHeadAttention(32, 4, each, causal=True).double() for each in (xl, deberta)]
    for i, change in enumerate(CHANGES):
        before = [decoded(layer, x) for layer in layers]
        change(xl, deberta)
        after = [layer(x)[:, -1:] for layer in layers]
        assert any(not torch.allclose(*each) for each in zip(before, after, strict=True)), i
        for layer, expected in zip(layers, after, strict=True):
            assert_close(decoded(layer, x), expected, 1e-12)


@pytest.mark.parametrize("make", [lambda: TransformerXL(64, 4), lambda: RoPE(16), lambda: ALiBi(4)])
def test_decoding_in_bfloat16_leaves_no_trace(make: Callable[[], PositionEncoding]) -> None:
    layer, x = MultiHeadAttention(64, 4, make(), causal=True).bfloat16(), torch.randn(1, 40, 64)
    decoded(layer, x.bfloat16())
    layer.float()
    assert_close(decoded(layer, x), layer(x)[:, -1:], 1e-5)


# --- cut, reordered, forked ----------------------------------------------------------------------


MODES = torch.no_grad, torch.enable_grad, torch.inference_mode


def cut(cache: KVCache, rows: slice) -> None:
    """Keep some of the keys, their values, and then their positions."""
    cache.keys, cache.values = cache.keys[:, :, rows], cache.values[:, :, rows]
    cache.positions = cache.positions[..., rows]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("start", [None, torch.arange(4)])
def test_keys_may_be_cut(mode: Callable[[], Any], start: Tensor | None) -> None:
    """At either end: what goes on sees those that are left, at the positions that they had."""
    layer, x = layer_of(RoPE(8)), draw(2, 6, 16)
    with mode():
        for rows, left in ((slice(2, None), [2, 3]), (slice(-3, None), [1, 2, 3])):
            cache = KVCache()
            layer(x[:, :4], q_pos=start, cache=cache)
            cut(cache, rows)
            both = torch.tensor([*left, 4, 5])
            expected = layer(x[:, both], q_pos=both)[:, -2:]
            assert_close(layer(x[:, 4:], cache=cache), expected, 1e-12)
        cache = KVCache()
        layer(x, cache=cache)
        cut(cache, slice(4))  # two tokens were wrong: they are given anew
        assert_close(layer(x[:, 4:], cache=cache), layer(x)[:, 4:], 1e-12)


@torch.no_grad()
def test_keys_without_their_positions_are_refused() -> None:
    layer, x = layer_of(RoPE(8)), draw(1, 6, 16)
    for start in (None, torch.arange(5)):
        cache = KVCache()
        layer(x[:, :5], q_pos=start, cache=cache)
        cache.keys, cache.values = cache.keys[:, :, 1:], cache.values[:, :, 1:]
        for where in (None, 5, torch.tensor([5])):
            with pytest.raises(ValueError, match="positions must be"):
                layer(x[:, 5:], q_pos=where, cache=cache)


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_may_be_reordered(mode: Callable[[], Any]) -> None:
    """As a search with beams does, between two steps of decoding."""
    layer, x, cache = layer_of(RoPE(8)), draw(3, 6, 16), KVCache()
    order = torch.tensor([2, 0, 0])
    with mode():
        layer(x[:, :4], cache=cache)
        layer(x[:, 4:5], cache=cache)
        cache.keys, cache.values = cache.keys[order], cache.values[order]
        expected = layer(torch.cat([x[order, :5], x[:, 5:]], dim=1))[:, 5:]
        assert_close(layer(x[:, 5:], cache=cache), expected, 1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("fork", [copy.copy, copy.deepcopy])
def test_forks_go_on_apart(mode: Callable[[], Any], fork: Callable[[KVCache], KVCache]) -> None:
    layer, x, cache = layer_of(RoPE(8)), draw(1, 8, 16), KVCache()
    with mode():
        layer(x[:, :4], cache=cache)
        layer(x[:, 4:5], cache=cache)
        if fork is copy.deepcopy:  # what has gradients is copied by no one
            cache.keys, cache.values = cache.keys.detach(), cache.values.detach()
        other = fork(cache)
        one, two = x[:, 5:], x[:, 5:] + 1
        for i in range(3):
            for way, held in ((one, cache), (two, other)):
                whole = layer(torch.cat([x[:, :5], way], dim=1))[:, 5 + i : 6 + i]
                assert_close(layer(way[:, i : i + 1], cache=held), whole, 1e-12)


# --- memory that grows ---------------------------------------------------------------------------


def add(rows: Tensor, buffer: Buffer | None, number: int = 1) -> tuple[Tensor, Buffer | None]:
    """Append random rows, compare with what `torch.cat` gives, and see that none has changed."""
    before, new = rows.clone(), draw(B, H, number, WIDTH)
    longer, buffer = extended(rows, new, buffer)
    assert longer is not None
    assert torch.equal(longer, torch.cat([before, new], dim=2))
    assert torch.equal(rows, before)
    return longer, buffer


@torch.no_grad()
def test_rows_are_added_in_place() -> None:
    rows, buffer = add(draw(B, H, 3, WIDTH), None, 2)
    place = rows.data_ptr()
    while rows.shape[2] < 5 + SPARE:
        rows, buffer = add(rows, buffer, 64)
        assert rows.data_ptr() == place
    rows, buffer = add(rows, buffer)
    assert rows.data_ptr() != place


def test_rows_grow_in_every_mode() -> None:
    rows, buffer = draw(B, H, 3, WIDTH), None
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            for _ in range(2):
                rows, buffer = add(rows, buffer)


@torch.no_grad()
def test_rows_of_another_dtype_stay_exact() -> None:
    rows, buffer = add(draw(B, H, 3, WIDTH).float(), None)
    assert rows.dtype == torch.float64 and buffer is None


@torch.no_grad()
def test_one_sequence_is_not_written_to_all() -> None:
    layer, cache = layer_of(RoPE(8)), KVCache()
    layer(draw(2, 3, 16), cache=cache)
    with pytest.raises(ValueError, match="keys must have the batch of the cached ones, 2"):
        layer(draw(1, 1, 16), cache=cache)


def test_decoding_passes_gradients_to_the_start() -> None:
    layer, x = layer_of(RoPE(8)), draw(1, 5, 16).requires_grad_()
    cache = KVCache()
    steps = torch.cat([layer(part, cache=cache) for part in x.split(1, dim=1)], dim=1)
    found = [torch.autograd.grad(y.square().sum(), x)[0] for y in (steps, layer(x))]
    assert_close(*found, 1e-12)


@pytest.mark.parametrize(
    "encoding", [Compose(RoPE(8), Sink(4)), RotaryValues(RoPE(8)), RoPE(8), ALiBi(4)]
)
def test_a_step_copies_no_cached_key(encoding: PositionEncoding) -> None:
    layer, cache = MultiHeadAttention(32, 4, encoding, causal=True), KVCache()
    with torch.no_grad():
        layer(torch.randn(1, 400, 32), cache=cache)
        layer(torch.randn(1, 1, 32), cache=cache)  # which makes room
        cached = cache.values.untyped_storage()
        made: list[int] = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                out = func(*args, **(kwargs or {}))
                held = [each.memory.data_ptr() for each in cache.buffers if each is not None]
                for each in out if isinstance(out, (tuple, list)) else [out]:
                    if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in held:
                        made.append(each.untyped_storage().nbytes())
                return out

        with Watch():
            layer(torch.randn(1, 1, 32), cache=cache)
    assert max(made) < cached.nbytes() / 4
