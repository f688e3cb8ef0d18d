"""Attention: the fused form, the definition, the hooks, the cache and the errors."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from pe_lib import fast
from pe_lib.alibi import ALiBi
from pe_lib.attention import (
    KVCache,
    MultiHeadAttention,
    NoPosition,
    PositionEncoding,
    attend,
    attend_fused,
    attention_logits,
)
from pe_lib.compose import Compose
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import order_of
from pe_lib.positions import Axes, Positions, Run, as_tensor, joined
from pe_lib.recent.axes import AxesRoPE
from pe_lib.rope import RoPE
from pe_lib.t5 import T5Bias
from pe_lib.transformer_xl import TransformerXL

B, H, LQ, LK, D = 2, 3, 5, 7, 4


class Rotating(PositionEncoding):
    """A method that only rotates, with a scale of its own.

    Its factors stay below 2: large logits would show the rounding of float32, not the forms.
    """

    scale = 0.7

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        def rotate_one(x: Tensor, positions: Positions) -> Tensor:
            positions = as_tensor(positions, x.device)
            factors = 1 + positions.to(x).sin().unsqueeze(-1)  # (..., L, 1)
            return x * factors.unsqueeze(-3 if positions.ndim == 2 else 0)

        return rotate_one(q, q_pos), rotate_one(k, k_pos)


class RotatingALiBi(Rotating, ALiBi):
    """A method that rotates and has a short bias."""


class ContentBias(PositionEncoding):
    """A bias that depends on queries and keys: (B, H, Lq, Lk)."""

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        return q.sum(-1).unsqueeze(-1) - k.cos().sum(-1).unsqueeze(-2)


class FlatBias(PositionEncoding):
    """A bias shared by all heads, with two axes only: (Lq, Lk)."""

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor:
        return torch.linspace(-1, 1, q.shape[2] * k.shape[2]).view(q.shape[2], k.shape[2]).to(q)


ENCODINGS: dict[str, Callable[[], PositionEncoding]] = {
    "no position": NoPosition,
    "rotation": Rotating,
    "content bias": ContentBias,
    "bias without heads": FlatBias,
    "alibi": lambda: ALiBi(H, symmetric=True),
    "t5": lambda: T5Bias(H, 8, 9, std=1.0),
    "rotation and alibi": lambda: RotatingALiBi(H, symmetric=True),
}
SCATTERED_Q = torch.tensor([[4, 0, 7, 7, 2], [8, 1, 3, 0, 5]])  # (B, LQ)
SCATTERED_K = torch.tensor([[1, 6, 0, 3, 3, 8, 2], [5, 2, 7, 0, 4, 1, 8]])  # (B, LK)
POSITIONS: dict[str, tuple[Positions, Positions]] = {
    "from zero": (torch.arange(LQ), torch.arange(LK)),
    "runs": (Run(0, LQ), Run(0, LK)),
    "run of last queries": (Run(LK - LQ, LQ), Run(0, LK)),
    "runs of which some keys are later": (Run(100, LQ), Run(98, LK)),
    "runs that leave queries without a key": (Run(0, LQ), Run(2, LK)),
    "last queries": (torch.arange(LK - LQ, LK), torch.arange(LK)),
    "offset": (torch.arange(100, 100 + LQ), torch.arange(98, 98 + LK)),
    "keys all later": (torch.arange(LQ), torch.arange(20, 20 + LK)),
    "gaps": (torch.tensor([0, 2, 3, 7, 9]), torch.tensor([0, 1, 2, 3, 5, 8, 9])),
    "backwards": (torch.arange(LQ).flip(0), torch.arange(LK)),
    "per sequence": (SCATTERED_Q, SCATTERED_K),
    "keys per sequence": (torch.arange(LQ), SCATTERED_K),
}
MASKS: dict[str, Tensor | None] = {
    "no mask": None,
    "hidden keys": torch.tensor([[True] * 5 + [False] * 2, [False] * 3 + [True] * 4])[
        :, None, None
    ],
    "per pair": torch.rand(LQ, LK, generator=torch.Generator().manual_seed(0)) > 0.4,
    "per head": torch.rand(B, H, LQ, LK, generator=torch.Generator().manual_seed(1)) > 0.4,
    "no key left": torch.zeros(1, 1, LQ, LK, dtype=torch.bool),
}


def make_qkv(n_queries: int = LQ, n_keys: int = LK, seed: int = 0) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    return tuple(torch.randn(B, H, length, D) for length in (n_queries, n_keys, n_keys))


# --- the definition ------------------------------------------------------------------------------


def loop_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Vaswani et al. 2017, equation 1: softmax(q k / sqrt(d)) v, one query at a time."""
    output = torch.zeros(q.shape)
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                keys = range(min(i + 1, k.shape[2])) if causal else range(k.shape[2])
                scores = [(q[b, h, i] @ k[b, h, j]).item() / math.sqrt(q.shape[3]) for j in keys]
                total = sum(math.exp(score) for score in scores)
                for j, score in zip(keys, scores, strict=True):
                    output[b, h, i] += math.exp(score) / total * v[b, h, j]
    return output


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.integers(1, 6), st.booleans())
def test_both_forms_equal_the_formula(
    batch: int, n_heads: int, n_queries: int, n_keys: int, causal: bool
) -> None:
    q, k, v = (torch.randn(batch, n_heads, n, 3) for n in (n_queries, n_keys, n_keys))
    q_pos, k_pos = torch.arange(n_queries), torch.arange(n_keys)
    expected = loop_attention(q, k, v, causal)
    stepwise, _ = attend(q, k, v, NoPosition(), q_pos, k_pos, causal=causal)
    assert_close(stepwise, expected)
    assert_close(attend_fused(q, k, v, NoPosition(), q_pos, k_pos, causal=causal), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_module_equals_the_one_of_pytorch(causal: bool, seed: int) -> None:
    torch.manual_seed(seed)
    theirs = nn.MultiheadAttention(12, 3, bias=False, batch_first=True)
    ours = MultiHeadAttention(12, 3, causal=causal)
    parts = theirs.in_proj_weight.chunk(3)
    for mine, weight in zip((ours.q_proj, ours.k_proj, ours.v_proj), parts, strict=True):
        mine.load_state_dict({"weight": weight})
    ours.out_proj.load_state_dict({"weight": theirs.out_proj.weight})
    x = torch.randn(2, 9, 12)
    hidden = torch.ones(9, 9).triu(1).bool() if causal else None
    output, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    assert_close(ours(x), output)
    got, got_weights = ours.with_weights(x)
    assert_close(got, output)
    assert_close(got_weights, weights)


def test_the_scale_is_the_encodings_own_or_one_over_the_root_of_the_width() -> None:
    q, k, _ = make_qkv()
    q_pos, k_pos = POSITIONS["from zero"]
    plain = q @ k.transpose(-2, -1)
    assert_close(attention_logits(q, k, NoPosition(), q_pos, k_pos), plain / 2)
    scaled = NoPosition()
    scaled.scale = 3.0
    assert_close(attention_logits(q, k, scaled, q_pos, k_pos), plain * 3)


# --- fused and stepwise --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("where", POSITIONS)
@pytest.mark.parametrize("hidden", MASKS)
@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_form_equals_the_stepwise_form(
    name: str, where: str, hidden: str, causal: bool
) -> None:
    q, k, v = make_qkv()
    encoding, (q_pos, k_pos) = ENCODINGS[name](), POSITIONS[where]
    arguments = {"causal": causal, "mask": MASKS[hidden]}
    expected, weights = attend(q, k, v, encoding, q_pos, k_pos, **arguments)
    assert weights.shape == (B, H, LQ, LK)
    sees = weights.any(-1).to(weights)
    torch.testing.assert_close(weights.sum(-1), sees)  # zero where no key is seen
    fused = attend_fused(q, k, v, encoding, q_pos, k_pos, **arguments)
    if sees.any():
        assert_close(fused, expected)
    assert not fused[sees == 0].any() and not expected[sees == 0].any()


def test_a_query_without_a_key_sees_no_future() -> None:
    """Whole, by the weights, token by token and without the fast forms: all the same."""
    layer, x = MultiHeadAttention(16, 2, RoPE(8), causal=True), torch.randn(1, 6, 16)
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    whole, cache = layer(x, mask=mask), KVCache()
    steps = [layer(x[:, i : i + 1], mask=mask[i : i + 1, : i + 1], cache=cache) for i in range(6)]
    with fast.off():
        plain = layer(x, mask=mask)
    for each in (torch.cat(steps, dim=1), layer(x, mask=mask, weights=True)[0], plain):
        assert_close(each, whole, 1e-6)
    x[:, 5] += 1
    assert torch.equal(layer(x, mask=mask)[:, :5], whole[:, :5])


def test_a_query_without_a_key_has_finite_gradients() -> None:
    inputs = [x.requires_grad_() for x in make_qkv()]
    q_pos, k_pos = POSITIONS["runs that leave queries without a key"]
    attend_fused(*inputs, NoPosition(), q_pos, k_pos, causal=True).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs)


# --- which kernel is called ----------------------------------------------------------------------


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    calls: list[dict[str, object]] = []
    original = F.scaled_dot_product_attention

    def record(*args: Tensor, **kwargs: object) -> Tensor:
        calls.append(kwargs)
        output: Tensor = original(*args, **kwargs)
        return output

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    return calls


def test_the_causal_kernel_is_used_where_nothing_else_is_added(
    kernel_calls: list[dict[str, object]],
) -> None:
    q, k, v = make_qkv(6, 6)
    same, seen = Run(4, 6), torch.ones(6, 6, dtype=torch.bool)
    for encoding in (NoPosition(), Rotating()):
        attend_fused(q, k, v, encoding, same, same, causal=True)
        assert kernel_calls[-1]["is_causal"] is True
        assert "attn_mask" not in kernel_calls[-1]
        attend_fused(q, k, v, encoding, same, same)
        assert kernel_calls[-1]["attn_mask"] is None
    shifted, biased = (NoPosition(), Run(5, 6), None), (ALiBi(H), same, None)
    # Queries that come after every key hide none.
    attend_fused(q, k, v, NoPosition(), Run(9, 6), same, causal=True)
    assert kernel_calls[-1]["attn_mask"] is None
    for encoding, q_pos, mask in (shifted, biased, (NoPosition(), same, seen)):
        attend_fused(q, k, v, encoding, q_pos, same, causal=True, mask=mask)
        assert "is_causal" not in kernel_calls[-1]
        assert isinstance(kernel_calls[-1]["attn_mask"], Tensor)


# --- hooks ---------------------------------------------------------------------------------------


class Spy(PositionEncoding):
    """Writes down which hook is called with what."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.seen: dict[str, tuple[object, ...]] = {}

    def note(self, hook: str, *arguments: object) -> None:
        self.calls.append(hook)
        self.seen[hook] = arguments

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.note("embed", x, positions)
        return x

    def rotate(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions
    ) -> tuple[Tensor, Tensor]:
        self.note("rotate", q, k, q_pos, k_pos)
        return q * 2, k * 3

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Positions, k_pos: Positions, scale: float
    ) -> Tensor | None:
        self.note("bias", q, k, q_pos, k_pos, scale)
        return None

    def values(self, weights: Tensor, q_pos: Positions, k_pos: Positions) -> Tensor | None:
        self.note("values", weights, q_pos, k_pos)
        return None


def test_hooks_get_queries_and_keys_as_projected_and_the_positions_given() -> None:
    spy = Spy()
    attention = MultiHeadAttention(12, H, spy, embedded=True)
    x, context = torch.randn(B, LQ, 12), torch.randn(B, LK, 12)
    q_pos, k_pos = torch.arange(30, 30 + LQ), torch.randint(0, 9, (B, LK))
    _, weights = attention.with_weights(x, context=context, q_pos=q_pos, k_pos=k_pos)
    assert sorted(spy.calls) == ["bias", "rotate", "values"]
    q = attention.split_heads(attention.q_proj(x))
    k = attention.split_heads(attention.k_proj(context))
    assert q.shape == (B, H, LQ, 4)
    assert k.shape == (B, H, LK, 4)
    for hook, first in (("rotate", (q, k)), ("bias", (q, k)), ("values", (weights,))):
        n_tensors = len(first) + 2
        for got, expected in zip(spy.seen[hook][:n_tensors], (*first, q_pos, k_pos), strict=True):
            assert isinstance(got, Tensor)
            assert torch.equal(got, expected), hook
    assert spy.seen["bias"][-1] == 0.5  # 1 / sqrt(4)
    assert_close(weights, (q * 2 @ (k * 3).mT / 2).softmax(-1))


class Silent(Spy):
    """Writes down its calls, and has nothing to say about values."""

    values = PositionEncoding.values


@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_form_calls_each_hook_once_with_tensors(masked: bool) -> None:
    spy = Silent()
    attention = MultiHeadAttention(12, H, spy, causal=True, embedded=True)
    mask = torch.ones(LQ, LQ, dtype=torch.bool) if masked else None
    attention(torch.randn(B, LQ, 12), mask=mask)
    assert sorted(spy.calls) == ["bias", "rotate"]
    assert spy.seen["bias"][0] is spy.seen["rotate"][0]
    for hook in ("bias", "rotate"):
        assert [p.tolist() for p in spy.seen[hook][2:4]] == [[*range(LQ)]] * 2


# --- cache ---------------------------------------------------------------------------------------


def test_a_cache_goes_on_after_left_padding_when_positions_are_given() -> None:
    attention = MultiHeadAttention(12, H, ALiBi(H), causal=True)
    x, cache = torch.randn(2, 6, 12), KVCache()
    positions = torch.tensor([[0, 0, 0, 1, 2, 3], [0, 1, 2, 3, 4, 5]])
    mask = torch.ones(2, 1, 1, 6, dtype=torch.bool)
    mask[0, ..., :2] = False
    attention(x[:, :5], q_pos=positions[:, :5], mask=mask[..., :5], cache=cache)
    last = attention(x[:, 5:], q_pos=positions[:, 5:], mask=mask, cache=cache)
    assert_close(last[:1], attention(x[:1, 2:])[:, -1:], 1e-5)
    assert_close(last[1:], attention(x[1:])[:, -1:], 1e-5)


def test_a_cache_of_integers_goes_on_with_float32_and_rounds_none() -> None:
    far = 2**24 + 1  # the first integer that float32 does not have
    found = joined(torch.tensor([far - 1, far]), torch.tensor([0.5]), torch.device("cpu"))
    assert as_tensor(found).tolist() == [far - 1, far, 0.5]


def test_a_cache_knows_a_run_and_goes_on_where_it_ends() -> None:
    attention, cache = MultiHeadAttention(12, H, ALiBi(H), causal=True), KVCache()
    for length, positions in ((3, Run(7, 3)), (2, None), (1, range(12, 13))):
        attention(torch.randn(B, length, 12), q_pos=positions, cache=cache)
    assert cache.positions == Run(7, 6)
    attention(torch.randn(B, 1, 12), q_pos=Run(20, 1), cache=cache)
    assert isinstance(cache.positions, Tensor)
    assert cache.positions.tolist() == [7, 8, 9, 10, 11, 12, 20]


@pytest.mark.parametrize("first", ["one row", "row per sequence", "run"])
@pytest.mark.parametrize("second", ["one row", "row per sequence", "run", "none"])
def test_a_cache_joins_positions_of_every_legal_shape(first: str, second: str) -> None:
    attention, x = MultiHeadAttention(12, H, ALiBi(H), causal=True), torch.randn(B, 6, 12)
    forms = {
        "one row": lambda run: run.tensor()[None],
        "row per sequence": lambda run: run.tensor().expand(B, -1),
        "run": lambda run: run,
        "none": lambda run: None,
    }
    cache = KVCache()
    assert cache  # `if cache` asks whether there is one
    attention(x[:, :4], q_pos=forms[first](Run(0, 4)), cache=cache)
    last = attention(x[:, 4:], q_pos=forms[second](Run(4, 2)), cache=cache)
    assert_close(last, attention(x)[:, 4:], 1e-5)


@pytest.mark.parametrize("axes", [False, True])
def test_a_cache_keeps_its_positions_when_the_callers_tensor_changes(axes: bool) -> None:
    """A loop may add one to the same tensor at each step."""
    x, cache, place = torch.randn(1, 6, 16), KVCache(), torch.zeros(1, dtype=torch.long)
    encoding = AxesRoPE(8, torch.ones(4, 1)) if axes else ALiBi(2)
    layer = MultiHeadAttention(16, 2, encoding, causal=True)
    for step in x.split(1, dim=1):
        layer(step, q_pos=Axes(place, place[:, None]) if axes else place, cache=cache)
        place += 1
    held = cache.positions
    assert order_of(held).tolist() == list(range(6))
    assert not isinstance(held, Axes) or held.numbers[:, 0].tolist() == list(range(6))


@torch.no_grad()
def test_a_cache_belongs_to_one_layer_with_positions_and_without() -> None:
    """In another layer the keys of the first would be seen; a copy may go on in a copy."""
    one, other = (MultiHeadAttention(16, 2, RoPE(8), causal=True) for _ in range(2))
    x, cache = torch.randn(1, 5, 16), KVCache()
    one(x[:, :4], cache=cache)
    for where in (None, Run(4, 1)):
        with pytest.raises(ValueError, match="cache must be one that no other layer uses"):
            other(x[:, 4:], cache=cache, q_pos=where)
    twin, copied = copy.deepcopy((one, cache))
    assert_close(twin(x[:, 4:], cache=copied), one(x[:, 4:], cache=cache))
    assert_close(twin(x[:, :1], cache=copied), one(x[:, :1], cache=cache))


@pytest.mark.parametrize("begun", [False, True])
def test_a_refused_call_adds_nothing_to_a_cache(begun: bool) -> None:
    """The call that follows, which is right, gives what it would have given at once."""
    x, cache = torch.randn(1, 6, 16), KVCache()
    layer = MultiHeadAttention(16, 2, ALiBi(2), causal=True)
    with torch.no_grad():
        if begun:
            layer(x[:, :3], cache=cache)
        held = len(cache)
        with pytest.raises(ValueError, match="mask must have shape"):
            layer(x[:, held : held + 1], cache=cache, mask=torch.ones(7, 7, dtype=torch.bool))
        assert len(cache) == held
        assert_close(layer(x[:, held:], cache=cache), layer(x)[:, held:], 1e-5)


def test_a_call_that_ends_early_adds_nothing_to_a_cache() -> None:
    """Whatever ended it, and wherever: here the last projection."""
    layer, x, cache = (
        MultiHeadAttention(16, 2, RoPE(8), causal=True),
        torch.randn(1, 6, 16),
        KVCache(),
    )
    layer(x[:, :5], cache=cache)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with layer.out_proj.register_forward_pre_hook(stop), pytest.raises(KeyboardInterrupt):
        layer(x[:, 5:], cache=cache)
    assert len(cache) == 5
    assert_close(layer(x[:, 5:], cache=cache), layer(x)[:, 5:], 1e-5)


def test_a_bias_of_its_own_is_not_passed_over_for_a_fast_form() -> None:
    """A subclass may change `bias`; what is fast for its base stands for another one."""

    def halved(base: type[PositionEncoding]) -> type[PositionEncoding]:
        def bias(
            self: Any, q: Tensor, k: Tensor, q_pos: Any, k_pos: Any, scale: float
        ) -> Tensor | None:
            whole = base.bias(self, q, k, q_pos, k_pos, scale)
            return None if whole is None else whole / 2

        return type(f"Halved{base.__name__}", (base,), {"bias": bias})

    class Both(Compose):
        bias = halved(Compose).bias

    nested = Compose(RoPE(8), Both(ALiBi(2)))
    encodings = [halved(DeBERTa)(16, 2, 8), halved(TransformerXL)(16, 2, std=1.0), halved(ALiBi)(2)]
    q, k, v = torch.randn(3, 1, 2, 7, 8)
    for encoding in (*encodings, Both(ALiBi(2)), nested):
        for length in (1, 7):
            where = Run(7 - length, length), Run(0, 7)
            last = q[:, :, -length:]
            fused = attend_fused(last, k, v, encoding, *where, causal=True)
            assert_close(fused, attend(last, k, v, encoding, *where, causal=True)[0], 1e-5)


# --- what could be taken for something else is refused --------------------------------------------


def test_a_mask_of_two_axes_is_of_queries_and_keys_whatever_the_batch() -> None:
    layer, x = MultiHeadAttention(8, 2), torch.randn(4, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool).tril()
    for batch in (1, 2, 4):
        assert_close(layer(x[:batch], mask=mask), layer(x, mask=mask[None, None])[:batch])
    for axes in (mask[None], mask[0]):
        with pytest.raises(
            ValueError, match=r"mask must have shape \(Lq, Lk\) or \(B, H, Lq, Lk\)"
        ):
            layer(x, mask=axes)


def test_a_mask_must_hide_the_future_from_what_is_for_the_past() -> None:
    """A mask of padding alone does not; ALiBi would reward each step into the future."""
    layer, x = MultiHeadAttention(8, 2, ALiBi(2)), torch.randn(2, 4, 8)
    padding = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="a mask that hides what comes later"):
        layer(x, mask=padding)
    causal = MultiHeadAttention(8, 2, ALiBi(2), causal=True)
    causal.load_state_dict(layer.state_dict())
    past = torch.ones(4, 4, dtype=torch.bool).tril()
    assert_close(layer(x, mask=padding & past), causal(x))


def test_an_argument_given_twice_is_refused_by_constructors_and_hooks() -> None:
    q, run = torch.randn(1, 2, 3, 8), Run(0, 3)
    with pytest.raises(TypeError, match="multiple values for argument 'base'"):
        RoPE(8, 100.0, base=1e4)  # type: ignore[misc]
    with pytest.raises(TypeError, match="multiple values for argument 'q_pos'"):
        RoPE(8).rotate(q, q, run, run, q_pos=run)  # type: ignore[misc]
    with pytest.raises(TypeError, match="takes from 2 to 3 positional arguments"):
        RoPE(8, 100.0, 3)  # type: ignore[misc]


class Shifted(RoPE):
    """Has one more argument behind those of the interface, and counts its calls."""

    calls = 0

    def rotate(self, q, k, q_pos, k_pos, shift=0):  # type: ignore[no-untyped-def]
        self.calls += 1
        return super().rotate(q, k, q_pos + shift, k_pos)


def test_a_hook_may_have_an_argument_of_its_own_and_runs_once() -> None:
    encoding, q, run = Shifted(8), torch.randn(1, 2, 3, 8), Run(0, 3)
    moved, _ = encoding.rotate(q, q, run, run, 2)
    assert encoding.calls == 1
    assert torch.equal(moved, RoPE(8).rotate(q, q, Run(2, 3), run)[0])


class Distant:
    """A bias that is mixed in: it is no encoding itself."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return -(k_pos[..., None, :] - q_pos[..., :, None]).abs().unsqueeze(-3)

    def angles(self, positions: Tensor) -> Tensor:
        return super().angles(positions - positions.double().mean())  # type: ignore[misc]


class MixedIn(Distant, RoPE):
    """Rotates by angles, and has a bias, that are mixed in."""


def test_hooks_that_are_mixed_in_are_checked_as_those_of_the_class() -> None:
    layer, x = MultiHeadAttention(16, 2, MixedIn(8), causal=True), torch.randn(1, 5, 16)
    assert not MixedIn.rotates_once
    assert_close(layer(x), layer(x, q_pos=torch.arange(5)), 1e-5)
    with pytest.raises(ValueError, match=r"MixedIn: k_pos must have shape \(Lk=5,\)"):
        MixedIn(8).bias(*torch.randn(2, 1, 2, 5, 8), Run(0, 5), Run(0, 4), 1.0)


def returning(bias: Tensor) -> PositionEncoding:
    """Return an encoding with this bias."""

    class Constant(PositionEncoding):
        def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
            return bias

    return Constant()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float16, torch.bool])
def test_a_bias_may_have_any_dtype_in_every_form(dtype: torch.dtype) -> None:
    distance = torch.arange(4) - torch.arange(4)[:, None]
    layer = MultiHeadAttention(16, 2, returning(distance.to(dtype)))
    x = torch.randn(1, 4, 16)
    assert_close(layer(x), layer(x, weights=True)[0], 1e-6)


def test_a_bias_that_does_not_fit_is_refused_by_name() -> None:
    x = torch.randn(2, 4, 16)
    for wrong, words in (
        (torch.zeros(3, 4, 4), r"bias must broadcast to \(B, H, Lq, Lk\) = \(2, 2, 4, 4\)"),
        (torch.zeros(2, 4, 4), "bias .* have four axes where positions have a batch"),
    ):
        for shown in (False, True):
            with pytest.raises(ValueError, match="Constant: " + words):
                MultiHeadAttention(16, 2, returning(wrong))(
                    x, q_pos=torch.arange(4).expand(2, 4), weights=shown
                )


def test_who_rotates_by_other_angles_says_whether_a_cache_may_keep_them() -> None:
    class Stretched(RoPE):
        def angles(self, positions: Tensor) -> Tensor:
            return super().angles(positions) / positions.numel()

    assert RoPE(8).rotates_once and not Stretched(8).rotates_once


def test_annotations_of_others_are_no_rules() -> None:
    from typing import Annotated

    from pe_lib.arguments import rule_of

    assert rule_of(Annotated[float, "radians"]) is None
    assert rule_of(Annotated[str, "a label"]) is None
