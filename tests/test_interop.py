"""Interoperation: equal to what transformers, flash-attention and FlexAttention compute."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from closeness import difference
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import pe_lib
from pe_lib import (
    FIRE,
    KERPLE,
    ALiBi,
    Compose,
    DynamicNTK,
    LongRoPE,
    MultiHeadAttention,
    NoPosition,
    PositionEncoding,
    RoPE,
    Shaw,
    SlidingWindow,
    T5Bias,
)
from pe_lib.attention import attend
from pe_lib.interop import (
    ROPE_TYPES,
    apply_rotary,
    half_to_interleaved,
    interleaved_to_half,
    position_ids_from_mask,
    position_ids_from_segments,
    score_mod,
)
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.rope_scaling import LengthRoPE
from pe_lib.sinusoidal import frequencies

# Configurations -----------------------------------------------------------------------------------

CONTEXT = 256
THETA = {"rope_theta": 10000.0}
YARN: dict[str, Any] = {
    **THETA,
    "rope_type": "yarn",
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3: dict[str, Any] = {
    **YARN,
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def longrope_parameters(n_pairs: int, **others: Any) -> dict[str, Any]:
    short, long = (torch.linspace(1, last, n_pairs).tolist() for last in (2, 40))
    lengths = {"original_max_position_embeddings": 64, **THETA}
    return {"rope_type": "longrope", "short_factor": short, "long_factor": long} | lengths | others


def llama_config(parameters: dict[str, Any], head_dim: int, context: int = CONTEXT) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        hidden_size=3 * head_dim,
        num_attention_heads=3,
        head_dim=head_dim,
        max_position_embeddings=context,
        rope_parameters=dict(parameters),
    )


def inv_freq_at(rope: RoPE, length: int) -> Tensor:
    return rope.inv_freq_at(torch.tensor(length)) if isinstance(rope, LengthRoPE) else rope.inv_freq


def require_equal(parameters: dict[str, Any], head_dim: int, length: int = 200) -> RoPE:
    """Frequencies, attention factor and rotated vectors are those of transformers."""
    from transformers.models.gpt_neox import modeling_gpt_neox as neox

    config = llama_config(parameters, head_dim)
    module = neox.GPTNeoXRotaryEmbedding(config)  # it reads partial_rotary_factor, Llama's does not
    x, positions = torch.randn(2, 3, length, head_dim), torch.arange(length)[None]
    cos, sin = module(x, positions)
    rope = RoPE.from_parameters(parameters, head_dim, max_position_embeddings=CONTEXT)
    inv_freq, rotating = inv_freq_at(rope, length), module.inv_freq > 0
    assert torch.equal(inv_freq > 0, rotating)
    gaps = (inv_freq / module.inv_freq - 1).abs()[rotating]
    # Their ramp is a float32: where a pair is all but interpolated, its error grows by the factor.
    stretch = (parameters.get("factor") or 4.0) if parameters["rope_type"] == "yarn" else 1.0
    assert gaps.max() <= max(1e-6, stretch * 2**-23)
    assert rope.attention_factor == pytest.approx(module.attention_scaling, rel=1e-12)
    expected = neox.apply_rotary_pos_emb(x, x, cos, sin)[0]
    assert difference(rope.rotate(x, x, positions, positions)[0], expected) <= 5e-5
    return rope


SETTINGS: dict[str, dict[str, Any]] = {
    "default": {**THETA, "rope_type": "default"},
    "large theta": {"rope_theta": 5e6, "rope_type": "default"},
    "linear": {**THETA, "rope_type": "linear", "factor": 3.0},
    "dynamic": {**THETA, "rope_type": "dynamic", "factor": 2.5},
    "yarn": YARN,
    "yarn with bounds": {**YARN, "beta_fast": 16, "beta_slow": 2},
    "yarn not truncated": {**YARN, "truncate": False},
    "yarn with both weights": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.3},
    "yarn with one weight": {**YARN, "mscale": 0.7},
    "yarn with a weight of zero": {**YARN, "mscale": 1.0, "mscale_all_dim": 0.0},
    "yarn with its attention factor": {**YARN, "attention_factor": 1.5, "mscale": 1.0},
    "yarn that shrinks": {**YARN, "factor": 0.5},
    "yarn without a factor": {**YARN, "factor": None},
    "yarn with nothing in between": {**YARN, "beta_fast": 1, "beta_slow": 1, "truncate": False},
    "llama3": LLAMA3,
    "llama3 with other bounds": {**LLAMA3, "low_freq_factor": 1.5, "high_freq_factor": 9.0},
    "llama4": {**LLAMA3, "low_freq_factor": 1.0, "high_freq_factor": 1.0},
    "proportional": {**THETA, "rope_type": "proportional"},
    "proportional with a factor": {**THETA, "rope_type": "proportional", "factor": 2.0},
}


def test_types_are_those_of_transformers() -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    assert {*ROPE_TYPES} == {"default", *ROPE_INIT_FUNCTIONS}


@pytest.mark.parametrize("share", [None, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("name", SETTINGS)
def test_every_type_equals_transformers(name: str, share: float | None) -> None:
    parts = {} if share is None else {"partial_rotary_factor": share}
    for head_dim in (16, 64, 96, 128):
        rope = require_equal({**SETTINGS[name], **parts}, head_dim)
        assert rope.layout == "half"
        assert isinstance(rope, DynamicNTK) == (name == "dynamic")


@pytest.mark.parametrize("length", [10, 256, 257, 600])
def test_dynamic_follows_the_length(length: int) -> None:
    require_equal(SETTINGS["dynamic"], 64, length)


@pytest.mark.parametrize("length", [10, 64, 65, 300])
@pytest.mark.parametrize("share", [0.25, 1.0])
@pytest.mark.parametrize("others", [{}, {"factor": 8.0}, {"attention_factor": 1.25}])
def test_longrope_equals_transformers_at_lengths(
    length: int, share: float, others: dict[str, Any]
) -> None:
    others = {**others, "partial_rotary_factor": share}
    rope = require_equal(longrope_parameters(int(48 * share), **others), 96, length)
    assert isinstance(rope, LongRoPE)


@pytest.mark.parametrize("name", ["default", "linear", "llama3"])
def test_an_odd_part_is_rounded_up(name: str) -> None:
    """Of 10 components 5 are meant to rotate: transformers makes three frequencies."""
    parameters = {**SETTINGS[name], "partial_rotary_factor": 0.5}
    assert len(require_equal(parameters, 10).inv_freq) == 3


def test_layers_have_entries_of_their_own() -> None:
    from transformers import Gemma3TextConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    linear = {**SETTINGS["linear"], "rope_theta": 1e6}
    nested = {"sliding_attention": SETTINGS["default"], "full_attention": linear}
    config = Gemma3TextConfig(rope_parameters=nested, head_dim=64)
    theirs, _ = ROPE_INIT_FUNCTIONS["linear"](config, layer_type="full_attention")
    full, sliding = (
        RoPE.from_parameters(config.rope_parameters, 64, layer_type=f"{kind}_attention")
        for kind in ("full", "sliding")
    )
    assert torch.allclose(full.inv_freq.float(), theirs, rtol=1e-6)
    assert torch.equal(sliding.inv_freq, frequencies(64))


def test_a_nested_truncate_is_read() -> None:
    """Transformers 5.23 looks for it beside the entries, where there is none."""
    flat = {**YARN, "truncate": False}
    nested = RoPE.from_parameters({"full_attention": flat}, 64, layer_type="full_attention")
    assert torch.equal(nested.inv_freq, RoPE.from_parameters(flat, 64).inv_freq)
    assert not torch.equal(nested.inv_freq, RoPE.from_parameters(YARN, 64).inv_freq)


def test_default_configurations_are_read() -> None:
    from transformers import GptOssConfig, LlamaConfig, Phi3Config

    for config in (GptOssConfig(), LlamaConfig(), Phi3Config()):
        require_equal(config.rope_parameters, 64)


def test_the_layout_can_be_chosen() -> None:
    x, positions = torch.randn(1, 2, 5, 16), torch.arange(5)
    rope = RoPE.from_parameters(SETTINGS["default"], 16, layout="interleaved")
    expected = RoPE(16, layout="interleaved").rotate(x, x, positions, positions)[0]
    assert torch.equal(rope.rotate(x, x, positions, positions)[0], expected)


def test_the_length_may_stand_inside() -> None:
    inside = {**SETTINGS["dynamic"], "max_position_embeddings": 77}
    rope = RoPE.from_parameters(inside, 16)
    assert isinstance(rope, DynamicNTK) and rope.trained_length == 77


NESTED = {"full_attention": SETTINGS["default"], "sliding_attention": SETTINGS["linear"]}
TYPES = "default, linear, dynamic, yarn, longrope, llama3, proportional"
WRONG: list[tuple[Any, dict[str, Any], str]] = [
    ({"rope_type": "ntk", **THETA}, {}, f"rope_type must be one of {TYPES}; got 'ntk'"),
    ({"rope_type": ["yarn"], **THETA}, {}, "rope_type must be one of .*; got"),
    ({**YARN, "type": "linear"}, {}, "rope_type must be one of .*; got 'yarn' and 'linear'"),
    ({"rope_type": "default"}, {}, "of type 'default' must have rope_theta$"),
    ({**YARN, "original_max_position_embeddings": None}, {}, "must have original_max_position"),
    ({**THETA, "rope_type": "linear"}, {}, "of type 'linear' must have factor$"),
    (SETTINGS["dynamic"], {}, "of type 'dynamic' must have max_position_embeddings$"),
    ({**YARN, "factor": None}, {}, "must have factor, or else give max_position_embeddings"),
    ({**THETA, "factor": 8.0}, {}, "of type 'default' must have only keys that it reads, got fac"),
    ({**YARN, "attn_factor": 2.0}, {}, "only keys that it reads, got attn_factor$"),
    ({**THETA, "mrope_section": [8, 12, 12]}, {}, "mrope_section, for which there is AxesRoPE"),
    ({**YARN, "llama_4_scaling_beta": 0.1}, {}, "llama_4_scaling_beta, for which there is Q"),
    ({**YARN, "beta_fast": 2, "beta_slow": 3}, {}, "yarn needs fast >= slow, got 2 and 3"),
    ({**LLAMA3, "high_freq_factor": 0.5}, {}, "high must be greater than low=1.0, got 0.5"),
    ({**THETA, "partial_rotary_factor": 1.5}, {}, "must leave 1 to 64 components, .* leaves 96"),
    ({**THETA, "partial_rotary_factor": 0.01}, {}, "got 0.01, which leaves 0$"),
    ({**YARN, "partial_rotary_factor": 5 / 64}, {}, "an even number for dynamic and yarn; .* 5$"),
    (
        {**longrope_parameters(16), "factor": 4.0},
        {"head_dim": 64},
        "factors must be 32, one for each pair, got",
    ),
    (NESTED, {}, "layer_type must be one of full_attention, sliding_attention; got None"),
    (NESTED, {"layer_type": "full"}, "layer_type must be one of full_attention, .*; got 'full'"),
    ({**NESTED, "nope": None}, {"layer_type": "nope"}, "one of full.*, sliding.*; got 'nope'"),
    (YARN, {"layer_type": "full"}, "layer_type must be None: rope_parameters is not nested; got"),
]


@pytest.mark.parametrize(("parameters", "options", "words"), WRONG, ids=[row[2] for row in WRONG])
def test_what_would_change_numbers_is_refused(
    parameters: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        RoPE.from_parameters(parameters, **{"head_dim": 64, **options})


# Tables of cosines and sines ----------------------------------------------------------------------


def tables(n_pairs: int, positions: Tensor) -> tuple[Tensor, Tensor]:
    angles = rope_angles(positions, frequencies(2 * n_pairs))
    return angles.cos().float(), angles.sin().float()


def test_rotation_equals_transformers_llama() -> None:
    from transformers.models.llama import modeling_llama as llama

    x, positions = torch.randn(2, 3, 7, 16), torch.randint(900, (2, 7))
    cos, sin = llama.LlamaRotaryEmbedding(llama_config(SETTINGS["default"], 16))(x, positions)
    expected, _ = llama.apply_rotary_pos_emb(x, x, cos, sin)
    assert torch.equal(apply_rotary(x, cos[..., :8], sin[..., :8], interleaved=False), expected)


def test_rotation_equals_transformers_gptj() -> None:
    from transformers.models.gptj import modeling_gptj as gptj

    x = torch.randn(2, 3, 7, 16)
    sin, cos = gptj.create_sinusoidal_positions(7, 16).chunk(2, dim=-1)
    expected = gptj.apply_rotary_pos_emb(x.transpose(1, 2), sin[None], cos[None]).transpose(1, 2)
    assert torch.equal(apply_rotary(x, cos, sin, interleaved=True), expected)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("n_pairs", [1, 3, 8])
def test_rotation_equals_the_matrix_per_pair(n_pairs: int, interleaved: bool) -> None:
    """The convention of flash-attention and vLLM, component by component; the rest stays."""
    x, (cos, sin) = torch.randn(2, 5, 16), tables(n_pairs, torch.arange(5) + 40)
    expected = x.clone()
    for j in range(n_pairs):
        first, second = (2 * j, 2 * j + 1) if interleaved else (j, j + n_pairs)
        expected[..., first] = cos[:, j] * x[..., first] - sin[:, j] * x[..., second]
        expected[..., second] = sin[:, j] * x[..., first] + cos[:, j] * x[..., second]
    rotated = apply_rotary(x, cos, sin, interleaved=interleaved)
    assert difference(rotated, expected) <= 1e-6
    assert torch.equal(rotated[..., 2 * n_pairs :], x[..., 2 * n_pairs :])
    layout = "interleaved" if interleaved else "half"
    angles = rope_angles(torch.arange(5) + 40, frequencies(2 * n_pairs))
    assert difference(rotated, apply_rope(x, angles, layout)) <= 1e-6


@pytest.mark.parametrize("heads", [(), (3,), (2, 2)])
def test_sequences_have_tables_of_their_own(heads: tuple[int, ...]) -> None:
    """As many sequences as groups: a table must not be taken for that of a head."""
    x, positions = torch.randn(2, *heads, 5, 8), torch.arange(5) + torch.tensor([[0], [30]])
    cos, sin = tables(4, positions)
    rotated = apply_rotary(x, cos, sin, interleaved=True)
    for i in range(2):
        alone = apply_rotary(x[i : i + 1], cos[i], sin[i], interleaved=True)
        assert torch.equal(rotated[i : i + 1], alone)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rotated_in_float32(dtype: torch.dtype) -> None:
    x, (cos, sin) = torch.randn(2, 3, 5, 8).to(dtype), tables(4, torch.arange(5))
    rotated = apply_rotary(x, cos, sin, interleaved=False)
    assert rotated.dtype == dtype
    assert torch.equal(rotated, apply_rotary(x.float(), cos, sin, interleaved=False).to(dtype))


def test_repeated_columns_are_refused() -> None:
    """Also where half of a head rotates, and their number alone would fit."""
    x = torch.randn(1, 2, 3, 16)
    for n_pairs in (8, 4, 2):
        cos, sin = (torch.cat([t, t], dim=-1) for t in tables(n_pairs, torch.arange(3)))
        words = rf"got {2 * n_pairs}: .* pass the first half, cos\[..., :{n_pairs}\]"
        with pytest.raises(ValueError, match=words):
            apply_rotary(x, cos, sin, interleaved=False)
    start = tables(8, torch.zeros(1))  # here all columns are equal, and nothing is wrong
    assert torch.equal(apply_rotary(x[:, :, :1], *start, interleaved=False), x[:, :, :1])


def test_tables_that_do_not_fit_are_refused() -> None:
    x, (cos, sin) = torch.randn(1, 2, 3, 16), tables(8, torch.arange(3))
    for wrong in (
        (x, cos[:2], sin[:2]),
        (x, cos, sin[:, :7]),
        (x, cos[:, :0], sin[:, :0]),
        (x[0, 0], cos[None], sin[None]),
    ):
        with pytest.raises((ValueError, RuntimeError)):
            apply_rotary(*wrong, interleaved=True)


def test_the_pairing_has_no_default() -> None:
    pairing = inspect.signature(apply_rotary).parameters["interleaved"]
    assert pairing.default is pairing.empty and pairing.kind is pairing.KEYWORD_ONLY


# Positions of tokens ------------------------------------------------------------------------------

MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
def test_positions_of_a_mask_equal_generation(dtype: torch.dtype) -> None:
    from transformers import GenerationMixin

    mask = MASK.to(dtype)
    prepare: Any = GenerationMixin._prepare_position_ids_for_generation
    expected = prepare(None, mask, {"attention_mask": mask})
    found = position_ids_from_mask(mask)
    assert found.dtype == torch.int64 and torch.equal(found, expected)
    assert found[0].tolist() == [0, 0, 0, 1, 2] and found[1].tolist() == [0, 1, 2, 0, 0]


def test_left_padding_changes_no_output() -> None:
    layer, x = MultiHeadAttention(16, 2, RoPE(8), causal=True), torch.randn(1, 5, 16)
    mask = MASK[:1].bool()
    padded = layer(x, q_pos=position_ids_from_mask(mask), mask=mask[:, None, None])
    assert difference(padded[:, 2:], layer(x[:, 2:])) <= 1e-6


def test_positions_of_segments_equal_packing() -> None:
    from transformers import DataCollatorWithFlattening
    from transformers.masking_utils import find_packed_sequence_indices

    texts = [{"input_ids": [*range(n)]} for n in (4, 1, 7, 2)]
    collate = DataCollatorWithFlattening(return_seq_idx=True, return_flash_attn_kwargs=True)
    batch = collate(texts, return_tensors="pt")
    found = position_ids_from_segments(batch["seq_idx"])
    assert found.dtype == torch.int64 and torch.equal(found, batch["position_ids"])
    assert torch.equal(find_packed_sequence_indices(found).int(), batch["seq_idx"])
    boundaries = batch["cu_seq_lens_q"]
    from_boundaries = torch.arange(len(texts)).repeat_interleave(boundaries.diff())
    assert torch.equal(position_ids_from_segments(from_boundaries), found[0])


def test_packed_texts_stay_apart() -> None:
    layer, x = MultiHeadAttention(16, 2, RoPE(8), causal=True), torch.randn(2, 5, 16)
    texts = torch.tensor([[7, 7, 3, 3, 3], [2, 5, 5, 5, 2]])
    mask = texts[:, None, :, None] == texts[:, None, None, :]
    packed = layer(x, q_pos=position_ids_from_segments(texts), mask=mask)
    for row, start, stop in ((0, 0, 2), (0, 2, 5), (1, 1, 4)):
        assert difference(packed[row, start:stop], layer(x[row : row + 1, start:stop])[0]) <= 1e-6


def test_masks_of_numbered_texts_are_refused() -> None:
    with pytest.raises(ValueError, match=r"take position_ids_from_segments; got \[0, 1, 2\]"):
        position_ids_from_mask(torch.tensor([[1, 1, 2, 0]]))


# FlexAttention ------------------------------------------------------------------------------------

BIASES: dict[str, PositionEncoding] = {
    "alibi": ALiBi(4),
    "alibi of 6 heads, symmetric": ALiBi(6, symmetric=True),
    "t5": T5Bias(4, max_distance=12, std=1.0),
    "t5 decoder": T5Bias(4, n_buckets=8, max_distance=12, bidirectional=False, std=1.0),
    "kerple log": KERPLE(4),
    "kerple power": KERPLE(4, variant="power"),
    "fire": FIRE(4, width=8, threshold=15.0),
    "window": SlidingWindow(4, 3),
    "none": NoPosition(),
    "window and bias": Compose(T5Bias(4, std=1.0), SlidingWindow(4, 4)),
}
quiet = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


def inputs(encoding: PositionEncoding, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Nine queries behind eleven cached keys."""
    heads = next((part.n_heads for part in encoding.parts() if hasattr(part, "n_heads")), 4)
    return [torch.randn(2, heads, length, 16, dtype=dtype) for length in (9, 20, 20)]


def flex(encoding: PositionEncoding, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Any:
    settings: dict[str, Any] = {"scale": encoding.scale}
    if causal:
        sizes = (None, None, q.shape[2], k.shape[2])
        mask = create_block_mask(lambda b, h, i, j: i + 11 >= j, *sizes, device="cpu")
        settings["block_mask"] = mask
    return flex_attention(q, k, v, score_mod=score_mod(encoding, q_offset=11), **settings)


@quiet
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", BIASES)
def test_flex_attention_equals_the_definition(name: str, causal: bool) -> None:
    encoding = BIASES[name]
    q, k, v = inputs(encoding)
    expected, _ = attend(q, k, v, encoding, range(11, 20), range(20), causal=causal)
    found = flex(encoding, q, k, v, causal)
    assert difference(found, expected) <= 2e-6
    if not (trained := list(encoding.parameters())):
        return
    gradients = [torch.autograd.grad(y.square().sum(), trained) for y in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@quiet
def test_heads_of_keys_may_be_shared() -> None:
    encoding = BIASES["alibi"]
    q, k, v = inputs(encoding)
    k, v = k[:, :2], v[:, :2]
    expected, _ = attend(q, k, v, encoding, range(9), range(20))
    found = flex_attention(q, k, v, score_mod=score_mod(encoding), enable_gqa=True)
    assert difference(found, expected) <= 2e-6


@quiet
@pytest.mark.parametrize("name", BIASES)
def test_scores_keep_half_precision(name: str) -> None:
    encoding = BIASES[name]
    q, k, v = inputs(encoding, torch.bfloat16)
    expected, _ = attend(*(x.float() for x in (q, k, v)), encoding, range(11, 20), range(20))
    found = flex(encoding, q, k, v, causal=False)
    assert found.dtype == torch.bfloat16
    assert difference(found.float(), expected) <= 4e-2


def test_a_new_function_sees_new_numbers() -> None:
    kerple, place, score = KERPLE(2), torch.tensor(1), torch.tensor(0.0)
    before = score_mod(kerple)(score, place, place, place, place + 3)
    with torch.no_grad():
        kerple.free_r1.add_(1)
    after = score_mod(kerple)(score, place, place, place, place + 3)
    assert torch.allclose(after, before * torch.e)


class Own(ALiBi):
    """A subclass, which may have another formula."""

    def of_distance(self, relative: Tensor) -> Tensor:
        return 0 * super().of_distance(relative)


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        (RoPE(8), "got RoPE, which rotates queries and keys before there is a score"),
        (Compose(RoPE(8), ALiBi(2)), "got RoPE, which rotates queries and keys"),
        (pe_lib.XPos(8), "got XPos, which rotates"),
        (pe_lib.Sinusoidal(8), "got Sinusoidal, which adds to the input of a model"),
        (Shaw(8, 4), "got Shaw, which "),
        (pe_lib.Sink(2), "got Sink, which adds a logit to each query"),
        (pe_lib.Forgetting(16, 2), "got Forgetting, which reads the hidden states"),
        (pe_lib.TransformerXL(16, 2), "got TransformerXL, which may read vectors of queries"),
        (pe_lib.CoPE(8, 4), "got CoPE, which may read vectors of queries and keys"),
        (Own(2), "got Own, which may read vectors"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_no_score_shows_is_refused(encoding: PositionEncoding, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        score_mod(encoding)


# Weights ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
@pytest.mark.parametrize("rotary_dim", [None, 6])
def test_converted_layers_give_equal_outputs(n_kv_heads: int, rotary_dim: int | None) -> None:
    layers = [
        MultiHeadAttention(
            48, 4, RoPE(12, layout=layout, rotary_dim=rotary_dim), n_kv_heads=n_kv_heads
        ).double()
        for layout in ("half", "interleaved")
    ]
    weights = layers[0].state_dict()
    for name, heads in (("q_proj.weight", 4), ("k_proj.weight", n_kv_heads)):
        converted = half_to_interleaved(weights[name], heads, rotary_dim=rotary_dim)
        assert not torch.equal(converted, weights[name])
        back = interleaved_to_half(converted, heads, rotary_dim=rotary_dim)
        assert torch.equal(back, weights[name])
        weights[name] = converted
    layers[1].load_state_dict(weights)
    x = torch.randn(2, 7, 48, dtype=torch.float64)
    assert difference(layers[1](x), layers[0](x)) <= 1e-12


@pytest.mark.parametrize("shape", [(32, 5), (32,)])
def test_permutation_equals_transformers_conversion(shape: tuple[int, ...]) -> None:
    from transformers.core_model_loading import PermuteForRope

    config, weight = llama_config(SETTINGS["default"], 8), torch.randn(shape)
    config.num_attention_heads = 4
    for convert, inverse in ((interleaved_to_half, False), (half_to_interleaved, True)):
        expected = PermuteForRope(inverse=inverse)._permute_for_rope(weight, config)
        assert torch.equal(convert(weight, 4), expected)


def test_weights_that_do_not_fit_are_refused() -> None:
    weight = torch.randn(24, 5)
    for options, words in (
        ({"n_heads": 5}, "5 heads of at least 4 rows, got 24"),
        ({"n_heads": 4, "rotary_dim": 8}, "4 heads of at least 8 rows, got 24"),
    ):
        with pytest.raises(ValueError, match=words):
            half_to_interleaved(weight, **options)
