"""Fast forms: each against the plain formula, what they save, and that nothing is kept too long."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from closeness import assert_close
from torch import Tensor, nn

from lab import measure
from lab.hierarchical import WindowBias
from pe_lib import (
    ALiBi,
    Compose,
    CoPE,
    DeBERTa,
    Forgetting,
    KVCache,
    MultiHeadAttention,
    NoPosition,
    PoPE,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Run,
    Shaw,
    Sink,
    SlidingWindow,
    T5Bias,
    TransformerXL,
    transformer_xl,
)
from pe_lib import fast as forms
from pe_lib.attention import attend, attend_fused
from pe_lib.fast import (
    SPARE,
    Room,
    append_rows,
    as_complex,
    rotated,
)
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies
from pe_lib.transformer_xl import distance_codes

B, H, WIDTH = 2, 3, 6
LAYOUTS = ("interleaved", "half")


def draw(*shape: int) -> Tensor:
    """Return random numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64)


# --- attention -----------------------------------------------------------------------------------


def largest(encoding: PositionEncoding, length: int = 512) -> int:
    """Return the bytes of the largest tensor that causal attention makes outside of its kernel."""
    q, k, v = torch.randn(3, 1, 4, length, 16)
    places = Run(0, length)
    return measure.largest_tensor(
        lambda: attend_fused(q, k, v, encoding, places, places, causal=True)
    )


@pytest.mark.parametrize(
    "encoding",
    [
        ALiBi(4),
        Compose(ALiBi(4), T5Bias(4)),
        Compose(RoPE(16), Compose(ALiBi(4), SlidingWindow(4, 64)), WindowBias(4, 3)),
        Compose(SlidingWindow(4, 64), Sink(4)),
        PoPE(4, 16),
        Forgetting(64, 4),
    ],
    ids=lambda encoding: type(encoding).__name__,
)
def test_biases_of_distance_need_the_memory_of_their_distances(encoding: PositionEncoding) -> None:
    """Also sums of them, and one within a window: no number for each pair is made."""
    pairs = 4 * 4 * 512 * 512
    if isinstance(encoding, Forgetting):
        layer, x = MultiHeadAttention(64, 4, encoding, causal=True), torch.randn(1, 512, 64)
        assert measure.largest_tensor(lambda: layer(x)) < pairs / 4
    elif not encoding.uses("sink"):
        assert largest(encoding) < pairs / 4


@pytest.mark.parametrize("sink", [False, True])
@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("n_kv_heads", [1, 4])
def test_a_sink_and_forgetting_pass_through_the_kernel(
    sink: bool, forgets: bool, n_kv_heads: int
) -> None:
    """Outputs and gradients are those of the definition, with keys for several heads too."""
    torch.manual_seed(0)
    encoding = Compose(
        RoPE(8), *[Sink(4, std=1.0)] * sink, *[Forgetting(32, 4, bias=0.5)] * forgets
    )
    layer = MultiHeadAttention(32, 4, encoding, causal=True, n_kv_heads=n_kv_heads).double()
    x = draw(2, 9, 32)
    outputs = layer(x), layer.with_weights(x)[0]
    assert_close(*outputs, 1e-12)
    grads = [torch.autograd.grad(y.square().sum(), [*layer.parameters()]) for y in outputs]
    for one, other in zip(*grads, strict=True):
        assert_close(one, other, 1e-11)


def test_forgetting_is_not_forgotten_where_what_it_read_is_missing() -> None:
    """The kernel for plain causal attention is no answer."""
    q, run = torch.randn(B, H, 5, 16), Run(0, 5)
    for encoding in (Forgetting(32, H), Compose(Forgetting(32, H), Sink(H))):
        with pytest.raises(ValueError, match="reads must be given"):
            attend_fused(q, q, q, encoding, run, run, causal=True)
        with pytest.raises(ValueError, match="reads must be given"):
            attend(q, q, q, encoding, run, run)


# --- rotations -----------------------------------------------------------------------------------


def codes_of(angles: Tensor) -> Tensor:
    """Return what `rotated` wants for these angles."""
    return torch.polar(torch.ones_like(angles), angles)


def memory_layouts() -> dict[str, Tensor]:
    """Return tensors (2, 3, 5, 12) that lie in memory in every way."""
    storage = torch.randn(2, 3, 5, 15)
    return {
        "contiguous": storage[..., :12].contiguous(),
        "odd offset": storage.flatten()[1:361].reshape(2, 3, 5, 12),
        "odd strides": storage[..., :12],
        "transposed": storage[..., :12].reshape(2, 5, 3, 12).transpose(1, 2),
        "components far apart": storage[..., :12].mT.contiguous().mT,
        "one for all heads": storage[:, :1, :, :12].expand(2, 3, 5, 12),
    }


@pytest.mark.parametrize("name", memory_layouts())
def test_pairs_are_complex_numbers_in_any_memory_layout(name: str) -> None:
    """A complex view needs even strides; where they are odd, a copy is taken."""
    x = memory_layouts()[name]
    assert torch.equal(as_complex(x), torch.complex(x[..., ::2], x[..., 1::2]))
    angles = rope_angles(torch.arange(5), frequencies(12))
    codes = codes_of(angles).to(torch.complex64)
    assert_close(rotated(x, codes, "interleaved"), apply_rope(x, angles), 1e-6)


CHANGES: dict[str, Callable[[RoPE], None]] = {
    "rates": lambda rope: setattr(rope, "rates", rope.rates * 0.9),
    "a rate in place": lambda rope: rope.rates.mul_(0.9),
    "gain": lambda rope: setattr(rope, "gain", 1.5),
    "layout": lambda rope: setattr(rope, "layout", "half"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_setting_is_seen_by_the_next_call(change: str) -> None:
    torch.manual_seed(0)
    rope, x = RoPE(8), torch.randn(1, 9, 16)
    layer = MultiHeadAttention(16, 2, rope, causal=True)
    before = layer(x)
    CHANGES[change](rope)
    fresh = MultiHeadAttention(16, 2, copy.deepcopy(rope), causal=True)
    fresh.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), fresh(x)) and not torch.allclose(layer(x), before, atol=1e-4)
    with forms.off():
        assert_close(fresh(x), layer(x), 1e-5)


def test_switched_off_attention_calls_the_hooks_and_no_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    q, places = torch.randn(1, 2, 5, 8), Run(0, 5)
    expected = attend_fused(q, q, q, ALiBi(2), places, places, causal=True)
    monkeypatch.delattr(torch.nn.functional, "scaled_dot_product_attention")
    with forms.off():
        assert_close(attend_fused(q, q, q, ALiBi(2), places, places, causal=True), expected, 1e-5)


def test_the_definition_and_the_methods_stand_without_the_fast_forms() -> None:
    """Only attention chooses them; `check_encoding` asks for both."""
    line = re.compile(r"^(from pe_lib import fast|from pe_lib\.fast import)", flags=re.MULTILINE)
    files = Path(forms.__file__).parent.glob("*.py")
    assert {path.stem for path in files if line.search(path.read_text())} == {
        *("attention", "testing")
    }


class Doubled(PositionEncoding):
    """Queries and keys that rotation makes twice as wide."""

    rotates_once = True

    def rotate(self, q: Tensor, k: Tensor, q_pos: Tensor, k_pos: Tensor) -> tuple[Tensor, Tensor]:
        return torch.cat([q, q], dim=-1), torch.cat([k, k * k_pos[:, None]], dim=-1)


def test_who_makes_heads_wider_states_the_scale() -> None:
    layer, x = MultiHeadAttention(16, 2, Doubled()).double(), draw(1, 5, 16)
    with pytest.raises(ValueError, match="encoding must state its scale"):
        layer(x)
    with forms.off():  # the width before rotation is still known
        expected = layer(x)
    layer.encoding.scale = 8**-0.5
    assert_close(layer(x), expected, 1e-12)
    assert_close(layer.with_weights(x)[0], expected, 1e-12)


class ReadingBias(ALiBi):
    """A bias of distance that reads hidden states besides."""

    def read(self, x: Tensor) -> Tensor:
        return x.unsqueeze(1).expand(-1, self.n_heads, -1, -1)

    def read_bias(self, q_read: Tensor, k_read: Tensor, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return q_read @ k_read.mT


def test_a_bias_of_distance_keeps_its_bias_of_what_it_reads() -> None:
    layer, x = MultiHeadAttention(16, 2, ReadingBias(2), causal=True).double(), draw(2, 6, 16)
    assert_close(layer(x), layer.with_weights(x)[0], 1e-12)


# --- decoding -------------------------------------------------------------------------------------


def decoded(layer: nn.Module, x: Tensor) -> Tensor:
    """Return the last output of x, token by token, without gradients."""
    cache = KVCache()
    with torch.no_grad():
        for part in x.split(1, dim=1):
            output: Tensor = layer(part, cache=cache)
    return output


def test_settings_and_weights_that_change_between_two_decodings_are_seen() -> None:
    """The clamp, a weight through `.data`, an adapter that is switched off, a module's hook."""
    xl, adapter = TransformerXL(32, 4, std=1.0), nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32))
    deberta = DeBERTa(32, 4, 8, projections=(nn.Linear(32, 32), adapter))
    x = draw(1, 9, 32)
    layers = [
        MultiHeadAttention(32, 4, each, causal=True).double().eval() for each in (xl, deberta)
    ]
    changes: list[Callable[[], object]] = [
        lambda: setattr(xl, "clamp", 2),
        lambda: [p.data.mul_(1.5) for layer in layers for p in layer.encoding.parameters()],
        lambda: adapter.__setitem__(1, nn.Identity()),
        lambda: deberta.query_proj.register_forward_hook(lambda *args: 2 * args[2]),
    ]
    for change in changes:
        for layer in layers:
            decoded(layer, x)
        change()
        for layer in layers:
            assert_close(decoded(layer, x), layer(x)[:, -1:], 1e-12)


@pytest.mark.parametrize(
    "encoding", [Compose(RoPE(8), Sink(4)), RotaryValues(RoPE(8)), PoPE(4, 8), RoPE(8), ALiBi(4)]
)
def test_a_step_of_decoding_copies_nothing_that_is_cached(encoding: PositionEncoding) -> None:
    """Not for a sink, nor for rotated values, nor for keys that are wider than values."""
    layer, cache = MultiHeadAttention(32, 4, encoding, causal=True), KVCache()
    with torch.no_grad():
        layer(torch.randn(1, 400, 32), cache=cache)
        layer(torch.randn(1, 1, 32), cache=cache)  # which makes room
        cached = cache.values.untyped_storage()
        made: list[int] = []

        class Watch(torch.utils._python_dispatch.TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                out = func(*args, **(kwargs or {}))
                rooms = [room.memory.data_ptr() for room in cache.rooms if room is not None]
                for each in out if isinstance(out, (tuple, list)) else [out]:
                    if isinstance(each, Tensor) and each.untyped_storage().data_ptr() not in rooms:
                        made.append(each.untyped_storage().nbytes())
                return out

        with Watch():
            layer(torch.randn(1, 1, 32), cache=cache)
    assert max(made) < cached.nbytes() / 4


def test_a_cache_goes_on_where_fast_forms_are_switched_on_or_off() -> None:
    """It remembers whether its keys were kept rotated."""
    layer, x = (
        MultiHeadAttention(32, 4, RotaryValues(RoPE(8)), causal=True).double(),
        draw(1, 8, 32),
    )
    for first in (True, False):
        cache, parts = KVCache(), []
        for i, part in enumerate(x.split(2, dim=1)):
            with nullcontext() if first == (i < 2) else forms.off():
                parts.append(layer(part, cache=cache))
        assert_close(torch.cat(parts, dim=1), layer(x), 1e-12)


def test_a_llama_layer_with_shared_keys_equals_transformers() -> None:
    """Whole, with padding, and token by token; the cache holds the shared heads alone."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    torch.manual_seed(0)
    config = LlamaConfig(hidden_size=48, num_attention_heads=6, num_key_value_heads=2)
    config._attn_implementation = "eager"
    theirs = LlamaAttention(config, layer_idx=0).double().eval()
    rope = RoPE(8, layout="half")
    ours = MultiHeadAttention(48, 6, rope, causal=True, n_kv_heads=2).double()
    weights = theirs.state_dict()
    ours.load_state_dict({name.replace("o_proj", "out_proj"): w for name, w in weights.items()})
    x, places = draw(2, 7, 48), torch.arange(7)
    cos, sin = (each.double() for each in LlamaRotaryEmbedding(config)(x.float(), places[None]))
    hidden = torch.full((7, 7), -torch.inf, dtype=torch.float64).triu(1)
    expected = theirs(x, (cos, sin), hidden[None, None])[0]
    assert_close(ours(x), expected, 1e-6)  # their angles are in float32
    cache = KVCache()
    with torch.no_grad():
        parts = [ours(part, cache=cache) for part in x.split([3, 1, 1, 2], dim=1)]
    assert_close(torch.cat(parts, dim=1), ours(x), 1e-12)
    assert cache.keys.shape == (2, 2, 7, 8)
    with forms.off():
        assert_close(ours(x), ours.with_weights(x)[0], 1e-12)


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
def test_shared_keys_equal_keys_that_are_repeated(make: Callable[[], PositionEncoding]) -> None:
    """With every kind of encoding: whole, by the weights, behind a cache."""
    torch.manual_seed(0)
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


# --- a cache that grows --------------------------------------------------------------------------


def add(rows: Tensor, room: Room | None, number: int = 1) -> tuple[Tensor, Room | None]:
    """Append random rows, compare with what `torch.cat` gives, and see that none has changed."""
    before, new = rows.clone(), draw(B, H, number, WIDTH)
    longer, room = append_rows(rows, new, room)
    assert torch.equal(longer, torch.cat([before, new], dim=2))
    assert torch.equal(rows, before)
    return longer, room


@torch.no_grad()
def test_rows_are_added_in_place_until_there_is_no_room() -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None, 2)
    place = rows.data_ptr()
    while rows.shape[2] < 5 + SPARE:
        rows, room = add(rows, room, 64)
        assert rows.data_ptr() == place
    rows, room = add(rows, room)
    assert rows.data_ptr() != place


@torch.no_grad()
def test_copies_of_a_cache_that_part_do_not_overwrite_each_other() -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None)
    one, one_room = add(rows, room)
    other, other_room = add(rows, room)
    kept = one.clone()
    for _ in range(3):
        other, other_room = add(other, other_room)
    assert torch.equal(one, kept)
    add(one, one_room)


FROM_OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "the end is cut off": lambda rows: rows[:, :, :2],
    "the start is dropped": lambda rows: rows[:, :, 2:],
    "the batch is reordered": lambda rows: rows.flip(0),
}


@pytest.mark.parametrize("name", FROM_OUTSIDE)
@torch.no_grad()
def test_rows_that_were_changed_from_outside_are_not_forgotten(name: str) -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None)
    add(FROM_OUTSIDE[name](rows), room)


def test_rows_grow_from_one_mode_of_gradients_into_another() -> None:
    rows, room = draw(B, H, 3, WIDTH), None
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            for _ in range(2):
                rows, room = add(rows, room)


@torch.no_grad()
def test_rows_of_another_dtype_are_not_cast_to_that_of_the_cache() -> None:
    rows, room = add(draw(B, H, 3, WIDTH).float(), None)
    assert rows.dtype == torch.float64 and room is None


def test_decoding_computes_rows_of_distances_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They come from a table, which is made anew when it is too short, and follows the weights."""
    made: list[int] = []

    def counted(relative: Tensor, *given: Any) -> Tensor:
        made.append(len(relative))
        return distance_codes(relative, *given)

    monkeypatch.setattr(transformer_xl, "distance_codes", counted)
    layer = MultiHeadAttention(32, 4, TransformerXL(32, 4), causal=True).double()
    decoded(layer, draw(1, 300, 32))
    assert made == [256, 512]


def test_decoding_follows_what_becomes_of_the_projection_of_distances() -> None:
    """A hook, another module and a subclass that projects otherwise."""

    class Doubled(TransformerXL):
        factor = 2.0

        def rows(self, relative: Tensor) -> Tensor:
            return self.factor * super().rows(relative)

    x = draw(1, 9, 32)
    for make in (TransformerXL, Doubled):
        xl = make(32, 4, std=1.0)
        layer = MultiHeadAttention(32, 4, xl, causal=True).double()
        changes: list[Callable[[], object]] = [
            lambda xl=xl: xl.r_proj.register_forward_hook(lambda *args: 2 * args[2]),
            lambda xl=xl: setattr(xl, "factor", 3.0),
            lambda xl=xl: setattr(xl, "r_proj", Adapted(xl.r_proj)),
            lambda xl=xl: xl.r_proj.added.add_(1.0),
        ]
        for change in changes:
            assert_close(decoded(layer, x), layer(x)[:, -1:], 1e-12)
            change()
            assert_close(decoded(layer, x), layer(x)[:, -1:], 1e-12)


class Adapted(nn.Module):
    """A projection with an addition, and the weight of the old one."""

    def __init__(self, projection: nn.Linear) -> None:
        super().__init__()
        self.projection, self.weight = projection, projection.weight
        self.added = torch.zeros(32, 32, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.projection(x) + x @ self.added.mT
