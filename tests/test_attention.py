"""Attention: the definition, the fused form, the hooks, masks, shared heads, memory."""

from __future__ import annotations

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

from pe_course import measure
from pe_course.hierarchical import WindowBias
from pe_lib import (
    ALiBi,
    Compose,
    CoPE,
    DeBERTa,
    Forgetting,
    KVCache,
    Learned,
    MultiHeadAttention,
    NoPosition,
    PoPE,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Shaw,
    Sink,
    SlidingWindow,
    T5Bias,
    TransformerXL,
)
from pe_lib.attention import attend, attend_fused, attention_logits
from pe_lib.encoding import per_head

B, H, LQ, LK, D = 2, 3, 5, 7, 4
Places = tuple[Tensor | int, Tensor | int]


class Rotating(PositionEncoding):
    """A method that only rotates, with a scale of its own.

    Its factors stay below 2: large logits would show the rounding of float32, not the forms.
    """

    scale = 0.7

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        def rotate_one(x: Tensor, positions: Tensor) -> Tensor:
            return x * per_head(1 + positions.to(x).sin().unsqueeze(-1))

        return rotate_one(q, q_pos), rotate_one(k, k_pos)


class RotatingALiBi(Rotating, ALiBi):
    """A method that rotates and has a bias of distance."""


class FromLast(Rotating):
    """Counts from the query that stands last."""

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return super().rotate(q, k, q_pos - q_pos[..., -1:], k_pos - q_pos[..., -1:])


class ContentBias(PositionEncoding):
    """A bias that depends on queries and keys: (B, H, Lq, Lk)."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return q.sum(-1).unsqueeze(-1) - k.cos().sum(-1).unsqueeze(-2)


class FlatBias(PositionEncoding):
    """A bias shared by all heads, with two axes only: (Lq, Lk)."""

    def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
        return torch.linspace(-1, 1, q.shape[2] * k.shape[2]).view(q.shape[2], k.shape[2]).to(q)


ENCODINGS: dict[str, Callable[[], PositionEncoding]] = {
    "no position": NoPosition,
    "rotation": Rotating,
    "content bias": ContentBias,
    "bias without heads": FlatBias,
    "alibi": lambda: ALiBi(H, symmetric=True),
    "t5": lambda: T5Bias(H, 8, 9, std=1.0),
    "rotation and alibi": lambda: RotatingALiBi(H, symmetric=True),
    "from the last query": lambda: Compose(FromLast(), ALiBi(H)),
}
SCATTERED_Q = torch.tensor([[4, 0, 7, 7, 2], [8, 1, 3, 0, 5]])  # (B, LQ)
SCATTERED_K = torch.tensor([[1, 6, 0, 3, 3, 8, 2], [5, 2, 7, 0, 4, 1, 8]])  # (B, LK)
POSITIONS: dict[str, Places] = {
    "from zero": (torch.arange(LQ), torch.arange(LK)),
    "ints": (0, 0),
    "ints of last queries": (LK - LQ, 0),
    "ints, some keys later": (100, 98),
    "ints, queries without a key": (0, 2),
    "an int and a tensor": (LK - LQ, torch.arange(LK)),
    "keys all later": (torch.arange(LQ), torch.arange(20, 20 + LK)),
    "gaps": (torch.tensor([0, 2, 3, 7, 9]), torch.tensor([0, 1, 2, 3, 5, 8, 9])),
    "backwards": (torch.arange(LQ).flip(0), torch.arange(LK)),
    "per sequence": (SCATTERED_Q, SCATTERED_K),
    "keys per sequence": (torch.arange(LQ), SCATTERED_K),
}
MASKS: dict[str, Tensor | None] = {
    "no mask": None,
    "padding": torch.tensor([[True] * 5 + [False] * 2, [False] * 3 + [True] * 4])[:, None, None],
    "per pair": torch.rand(1, 1, LQ, LK, generator=torch.Generator().manual_seed(0)) > 0.4,
    "per head": torch.rand(B, H, LQ, LK, generator=torch.Generator().manual_seed(1)) > 0.4,
    "no key left": torch.zeros(1, 1, LQ, LK, dtype=torch.bool),
}


def make_qkv(n_queries: int = LQ, n_keys: int = LK, seed: int = 0) -> tuple[Tensor, ...]:
    torch.manual_seed(seed)
    return tuple(torch.randn(B, H, length, D) for length in (n_queries, n_keys, n_keys))


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


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
    expected = loop_attention(q, k, v, causal)
    assert_close(attend(q, k, v, NoPosition(), 0, 0, causal=causal)[0], expected)
    assert_close(attend_fused(q, k, v, NoPosition(), 0, 0, causal=causal), expected)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_module_equals_that_of_pytorch(causal: bool, seed: int) -> None:
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


def test_the_scale_is_the_encodings_own() -> None:
    """Or one over the root of the width."""
    q, k, _ = make_qkv()
    plain = q @ k.mT
    assert_close(attention_logits(q, k, NoPosition(), 0, 0), plain / 2)
    scaled = NoPosition()
    scaled.scale = 3.0
    assert_close(attention_logits(q, k, scaled, 0, 0), plain * 3)


# --- fused and stepwise --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("where", POSITIONS)
def test_fused_attention_equals_the_definition(name: str, where: str) -> None:
    q, k, v = make_qkv()
    encoding, (q_pos, k_pos) = ENCODINGS[name](), POSITIONS[where]
    for mask in MASKS.values():
        for causal in (False, True):
            arguments = {"causal": causal, "mask": mask}
            expected, weights = attend(q, k, v, encoding, q_pos, k_pos, **arguments)
            assert weights.shape == (B, H, LQ, LK)
            sees = weights.any(-1).to(weights)
            torch.testing.assert_close(weights.sum(-1), sees)  # zero where no key is seen
            fused = attend_fused(q, k, v, encoding, q_pos, k_pos, **arguments)
            if sees.any():
                assert_close(fused, expected)
            assert not fused[sees == 0].any() and not expected[sees == 0].any()


def test_a_blind_query_sees_no_future() -> None:
    """Whole, by the weights and token by token: all the same."""
    layer, x = MultiHeadAttention(16, 2, RoPE(8), causal=True), torch.randn(1, 6, 16)
    mask = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    mask[..., 2, :] = False
    whole, cache = layer(x, mask=mask), KVCache()
    parts = [mask[..., i : i + 1, : i + 1] for i in range(6)]
    parts[2] = torch.zeros(1, 1, 1, 3, dtype=torch.bool)
    steps = [layer(x[:, i : i + 1], mask=parts[i], cache=cache) for i in range(6)]
    for each in (torch.cat(steps, dim=1), layer(x, mask=mask, weights=True)[0]):
        assert_close(each, whole, 1e-6)
    x[:, 5] += 1
    assert torch.equal(layer(x, mask=mask)[:, :5], whole[:, :5])


def test_a_blind_query_has_finite_gradients() -> None:
    inputs = [x.requires_grad_() for x in make_qkv()]
    attend_fused(*inputs, NoPosition(), 0, 2, causal=True).sum().backward()
    assert all(x.grad is not None and x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("name", ["rope", "alibi", "transformer_xl", "t5"])
def test_autocast_is_near(name: str) -> None:
    """Decoding that begins inside and goes on outside, too."""
    encodings = {"rope": RoPE(8), "alibi": ALiBi(4), "t5": T5Bias(4)}
    encoding = encodings.get(name, TransformerXL(32, 4))
    layer, x = MultiHeadAttention(32, 4, encoding, causal=True), torch.randn(2, 6, 32)
    expected = layer(x)
    for inside in (True, False):
        cache, parts = KVCache(), []
        for part, on in ((x[:, :4], inside), (x[:, 4:], not inside)):
            with torch.autocast("cpu", torch.bfloat16, enabled=on), torch.no_grad():
                parts.append(layer(part, cache=cache).float())
        assert_close(torch.cat(parts, dim=1), expected, 0.05)


# --- which kernel is called, and with which memory -----------------------------------------------


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    calls: list[dict[str, Any]] = []
    original = F.scaled_dot_product_attention

    def record(*args: Tensor, **kwargs: Any) -> Tensor:
        calls.append(kwargs)
        output: Tensor = original(*args, **kwargs)
        return output

    monkeypatch.setattr(F, "scaled_dot_product_attention", record)
    return calls


def test_plain_attention_is_causal_without_a_mask(kernel_calls: list[dict[str, Any]]) -> None:
    q, k, v = make_qkv(6, 6)
    for encoding in (NoPosition(), Rotating()):
        attend_fused(q, k, v, encoding, 4, 4, causal=True)
        assert kernel_calls[-1]["is_causal"] and kernel_calls[-1]["attn_mask"] is None
        attend_fused(q, k, v, encoding, 4, 4)
        assert not kernel_calls[-1]["is_causal"] and kernel_calls[-1]["attn_mask"] is None
    attend_fused(q, k, v, NoPosition(), 9, 4, causal=True)  # after every key: none is hidden
    assert not kernel_calls[-1]["is_causal"] and kernel_calls[-1]["attn_mask"] is None
    seen = torch.ones(1, 1, 6, 6, dtype=torch.bool)
    for encoding, start, mask in (
        (NoPosition(), 5, None),
        (ALiBi(H), 4, None),
        (Rotating(), 4, seen),
    ):
        attend_fused(q, k, v, encoding, start, 4, causal=True, mask=mask)
        assert not kernel_calls[-1]["is_causal"]
        assert isinstance(kernel_calls[-1]["attn_mask"], Tensor)


@pytest.mark.parametrize(
    "encoding",
    [
        RoPE(16),
        ALiBi(4),
        Compose(ALiBi(4), T5Bias(4)),
        Compose(RoPE(16), Compose(ALiBi(4), SlidingWindow(4, 64)), WindowBias(4, 3)),
    ],
    ids=["rope", "alibi", "sum", "nested sum"],
)
def test_distances_need_memory_linear_in_length(encoding: PositionEncoding) -> None:
    """Also sums of biases, and one within a window: no number for each pair is made."""
    layer = MultiHeadAttention(64, 4, encoding, causal=True)
    inputs = [torch.randn(1, length, 64) for length in (512, 1024)]
    largest = [measure.largest_tensor(lambda x=x: layer(x)) for x in inputs]
    assert largest[1] < 4 * 4 * 1024 * 1024 / 4 and largest[1] < 2.1 * largest[0]


def test_one_far_query_needs_little_memory() -> None:
    """Not a row for every distance down to zero."""
    layer = MultiHeadAttention(64, 4, TransformerXL(64, 4), causal=True)
    x = torch.randn(1, 6, 64)
    for far in (10**6, torch.tensor([10**6])):
        largest = measure.largest_tensor(
            lambda at=far: layer(x[:, :1], context=x, q_pos=at, k_pos=0)
        )
        assert largest < 10**5


# --- hooks ---------------------------------------------------------------------------------------


class Spy(PositionEncoding):
    """Writes down which hook is called with what."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.seen: dict[str, tuple[Any, ...]] = {}

    def note(self, hook: str, *arguments: Any) -> None:
        self.calls.append(hook)
        self.seen[hook] = arguments

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        self.note("embed", x, positions)
        return x

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        self.note("rotate", q, k, q_pos, k_pos)
        return q * 2, k * 3

    def bias(
        self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float
    ) -> Tensor | None:
        self.note("bias", q, k, q_pos, k_pos, scale)
        return None

    def values(self, weights: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        self.note("values", weights, q_pos, k_pos)
        return None


def test_hooks_get_what_was_projected() -> None:
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
            assert torch.equal(got, expected), hook
    assert spy.seen["bias"][-1] == 0.5  # 1 / sqrt(4)
    assert_close(weights, (q * 2 @ (k * 3).mT / 2).softmax(-1))


class Silent(Spy):
    """Writes down its calls, and has nothing to say about values."""

    values = PositionEncoding.values


@pytest.mark.parametrize("masked", [False, True])
def test_the_fused_form_calls_hooks_once(masked: bool) -> None:
    spy = Silent()
    attention = MultiHeadAttention(12, H, spy, causal=True, embedded=True)
    mask = torch.ones(1, 1, LQ, LQ, dtype=torch.bool) if masked else None
    attention(torch.randn(B, LQ, 12), mask=mask)
    assert sorted(spy.calls) == ["bias", "rotate"]
    assert spy.seen["bias"][0] is spy.seen["rotate"][0]
    for hook in ("bias", "rotate"):
        assert [p.tolist() for p in spy.seen[hook][2:4]] == [[*range(LQ)]] * 2


class ReadingBias(ALiBi):
    """A bias of distance that reads hidden states besides."""

    def project_hidden(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1).expand(-1, self.n_heads, -1, -1)

    def hidden_bias(
        self, q_hidden: Tensor, k_hidden: Tensor, q_pos: Tensor, k_pos: Tensor
    ) -> Tensor:
        return q_hidden @ k_hidden.mT


def test_what_is_read_adds_to_distance() -> None:
    layer, x = MultiHeadAttention(16, 2, ReadingBias(2), causal=True).double(), draw(2, 6, 16)
    q, k, v = (layer.split_heads(p(x)) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    logits = attention_logits(q, k, ALiBi(2), 0, 0) + (x @ x.mT).unsqueeze(1)
    hidden = torch.ones(6, 6).triu(1).bool()
    output = logits.masked_fill(hidden, -math.inf).softmax(-1) @ v
    assert_close(layer(x), layer.out_proj(output.transpose(1, 2).flatten(2)), 1e-12)


def test_forgetting_needs_what_it_read() -> None:
    """The kernel for plain causal attention is no answer."""
    q = torch.randn(B, H, 5, 16)
    for encoding in (Forgetting(32, H), Compose(Forgetting(32, H), Sink(H))):
        for form in (attend, attend_fused):
            with pytest.raises(ValueError, match="hidden must be given"):
                form(q, q, q, encoding, 0, 0, causal=True)


class Doubled(PositionEncoding):
    """Queries and keys that rotation makes twice as wide."""

    cacheable_rotation = True

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([q, q], dim=-1), torch.cat([k, k * k_pos[:, None]], dim=-1)


def test_wider_heads_state_their_scale() -> None:
    layer, x = MultiHeadAttention(16, 2, Doubled()).double(), draw(1, 5, 16)
    with pytest.raises(ValueError, match="encoding must state its scale"):
        layer(x)
    Doubled.cacheable_rotation = False  # the width before rotation is still known
    expected = layer(x)
    Doubled.cacheable_rotation, layer.encoding.scale = True, 8**-0.5
    assert_close(layer(x), expected, 1e-12)
    assert_close(layer.with_weights(x)[0], expected, 1e-12)


CHANGES: dict[str, Callable[[RoPE], None]] = {
    "inv_freq": lambda rope: setattr(rope, "inv_freq", rope.inv_freq * 0.9),
    "a rate in place": lambda rope: rope.inv_freq.mul_(0.9),
    "attention_factor": lambda rope: setattr(rope, "attention_factor", 1.5),
    "layout": lambda rope: setattr(rope, "layout", "half"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_seen_next(change: str) -> None:
    rope, x = RoPE(8), torch.randn(1, 9, 16)
    layer = MultiHeadAttention(16, 2, rope, causal=True)
    before = layer(x)
    CHANGES[change](rope)
    assert not torch.allclose(layer(x), before, atol=1e-4)
    assert_close(layer(x), layer.with_weights(x)[0], 1e-5)


# --- what could be taken for something else ------------------------------------------------------


def test_padding_has_four_axes() -> None:
    """Of two it could be padding or pairs, where there are as many sequences as tokens."""
    layer, x = MultiHeadAttention(8, 2, RoPE(4)), torch.randn(4, 4, 8)
    padding = torch.ones(4, 4, dtype=torch.bool)
    padding[2, :3] = False
    for mask in (padding, padding[None], padding[0]):
        with pytest.raises(ValueError, match=r"padding as mask\[:, None, None\]"):
            layer(x, mask=mask)
    masked = layer(x, mask=padding[:, None, None])
    assert_close(masked[2, 3:], layer(x[2:3, 3:])[0])
    assert_close(masked[:2], layer(x[:2]))


def test_a_mask_hides_what_comes_later() -> None:
    """A mask of padding alone does not; ALiBi would reward each step into the future."""
    layer, x = MultiHeadAttention(8, 2, ALiBi(2)), torch.randn(2, 4, 8)
    padding = torch.ones(2, 1, 1, 4, dtype=torch.bool)
    with pytest.raises(ValueError, match="a mask that hides what comes later"):
        layer(x, mask=padding)
    causal = MultiHeadAttention(8, 2, ALiBi(2), causal=True)
    causal.load_state_dict(layer.state_dict())
    past = torch.ones(1, 1, 4, 4, dtype=torch.bool).tril()
    assert_close(layer(x, mask=padding & past), causal(x))


def test_graphs_do_not_look_at_positions() -> None:
    """The docstrings say so: a graph shows the future, and counts -1 from a table's end."""
    assert "in a graph" in " ".join((PositionEncoding.__doc__ or "").split())
    assert "in a graph" in " ".join((Learned.__doc__ or "").split())
    layer, x = MultiHeadAttention(16, 2, ALiBi(2)), torch.randn(1, 3, 16)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    assert compiled(x).shape == x.shape
    table = torch.compile(Learned(8, 16).embed, backend="eager", fullgraph=True)
    assert table(x, torch.arange(3) - 1).shape == x.shape


def returning(bias: Tensor) -> PositionEncoding:
    """Return an encoding with this bias."""

    class Constant(PositionEncoding):
        def bias(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor, scale: float) -> Tensor:
            return bias

    return Constant()


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64, torch.float16, torch.bool])
def test_a_bias_may_have_any_dtype(dtype: torch.dtype) -> None:
    distance = torch.arange(4) - torch.arange(4)[:, None]
    layer = MultiHeadAttention(16, 2, returning(distance.to(dtype)))
    x = torch.randn(1, 4, 16)
    assert_close(layer(x), layer(x, weights=True)[0], 1e-6)


def test_a_batch_is_not_taken_for_heads() -> None:
    """A bias (B, Lq, Lk) would broadcast where there are as many heads."""
    layer, x = MultiHeadAttention(16, 2, returning(torch.zeros(2, 4, 4))), torch.randn(2, 4, 16)
    assert layer(x).shape == x.shape
    for shown in (False, True):
        with pytest.raises(ValueError, match="bias must have four axes"):
            layer(x, q_pos=torch.arange(4).expand(2, 4), weights=shown)


# --- keys for several heads ----------------------------------------------------------------------


def decoded(layer: nn.Module, x: Tensor) -> Tensor:
    """Return the last output of x, token by token, without gradients."""
    cache = KVCache()
    with torch.no_grad():
        for part in x.split(1, dim=1):
            output: Tensor = layer(part, cache=cache)
    return output


@pytest.mark.parametrize(
    "make",
    [
        NoPosition,
        lambda: ALiBi(4),
        lambda: Shaw(8, 3),
        lambda: TransformerXL(32, 4, std=1.0),
        lambda: DeBERTa(32, 4, 8),
        lambda: PoPE(4, 8),
        lambda: CoPE(8, 4, std=1.0),
        lambda: RotaryValues(RoPE(8)),
        lambda: Compose(RoPE(8), Sink(4), Forgetting(32, 4)),
    ],
)
def test_shared_keys_equal_repeated_ones(make: Callable[[], PositionEncoding]) -> None:
    """With every kind of encoding: whole, by the weights, behind a cache."""
    shared = MultiHeadAttention(32, 4, make(), causal=True, n_kv_heads=2).double()
    for parameter in shared.encoding.parameters():
        nn.init.normal_(parameter)
    repeated = MultiHeadAttention(32, 4, shared.encoding, causal=True).double()
    state = shared.state_dict()
    for name in ("k_proj.weight", "v_proj.weight"):
        state[name] = state[name].unflatten(0, (2, 8)).repeat_interleave(2, dim=0).flatten(0, 1)
    repeated.load_state_dict(state)
    x = draw(2, 9, 32)
    assert_close(shared(x), repeated(x), 1e-12)
    assert_close(shared.with_weights(x)[1], repeated.with_weights(x)[1], 1e-12)
    assert_close(decoded(shared, x), repeated(x)[:, -1:], 1e-12)


def test_a_llama_layer_equals_transformers() -> None:
    """Whole and token by token; the cache holds the shared heads alone."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=48, num_attention_heads=6, num_key_value_heads=2)
    config._attn_implementation = "eager"
    theirs = LlamaAttention(config, layer_idx=0).double().eval()
    ours = MultiHeadAttention(48, 6, RoPE(8, layout="half"), causal=True, n_kv_heads=2).double()
    weights = theirs.state_dict()
    ours.load_state_dict({name.replace("o_proj", "out_proj"): w for name, w in weights.items()})
    x, places = draw(2, 7, 48), torch.arange(7)
    cos, sin = (each.double() for each in LlamaRotaryEmbedding(config)(x.float(), places[None]))
    hidden = torch.full((7, 7), -torch.inf, dtype=torch.float64).triu(1)
    assert_close(ours(x), theirs(x, (cos, sin), hidden[None, None])[0], 1e-6)  # angles in float32
    cache = KVCache()
    with torch.no_grad():
        parts = [ours(part, cache=cache) for part in x.split([3, 1, 1, 2], dim=1)]
    assert_close(torch.cat(parts, dim=1), ours(x), 1e-12)
    assert cache.keys.shape == (2, 2, 7, 8)
