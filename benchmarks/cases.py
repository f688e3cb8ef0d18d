"""What is timed: for each question the limit, pe_lib, and published code on the same input."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Work
from lab.registry import METHODS, Sizes
from pe_lib.alibi import ALiBi
from pe_lib.attention import (
    KVCache,
    MultiHeadAttention,
    NoPosition,
    PositionEncoding,
    Run,
    attend,
    attend_fused,
    relative_position,
)
from pe_lib.fast import bias, bias_vector, reversed_bias, rotate
from pe_lib.relative import RelativeBias
from pe_lib.rope import RoPE
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import sinusoidal
from pe_lib.t5 import T5Bias
from pe_lib.transformer_xl import TransformerXL

HEADS, WIDTH = 8, 64
MODEL = HEADS * WIDTH
STEPS = 256  # positions that are left for tokens to be decoded
LLAMA_LAYER = "transformers, Llama (RoPE, half; DynamicCache)"
LLAMA_STATIC = "transformers, Llama (RoPE, half; StaticCache)"
Works = dict[str, Work]


@dataclass
class Question:
    """One table: `works` makes the contenders for a length; the first of them is the limit."""

    title: str
    works: Callable[[int], Works]
    lengths: tuple[int, ...]
    with_gradients: bool = False
    note: str = ""  # what a reader of the table has to know


def qkv(length: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, HEADS, length, WIDTH) for _ in range(3))
    return q, k, v


def agree(one: Any, other: Any, tolerance: float = 1e-4) -> None:
    """Raise unless two contenders compute the same: fast and wrong wins nothing."""
    if one.shape != other.shape or (one - other).abs().max() > tolerance * other.abs().max():
        raise AssertionError(f"contenders do not agree: {one.shape}, {other.shape}")


def rope_of(q: Tensor, k: Tensor) -> Works:
    from rotary_embedding_torch import RotaryEmbedding
    from transformers.models.gptj import modeling_gptj as gptj
    from transformers.models.llama import modeling_llama as llama
    from x_transformers import x_transformers

    length = q.shape[2]
    positions = Run(0, length)
    pairs, half = RoPE(WIDTH), RoPE(WIDTH, layout="half")
    # Published functions get their angles, sines and cosines ready-made; pe_lib looks them up.
    angles = half.angles(positions.tensor())[None]
    cosines, sines = angles.cos().float(), angles.sin().float()  # (1, L, d / 2)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (cosines, sines))
    q_long, k_long = (x.transpose(1, 2).contiguous() for x in (q, k))  # (B, L, H, d)
    theirs = gptj.apply_rotary_pos_emb(q_long, sines, cosines).transpose(1, 2)
    agree(rotate(pairs, q, k, positions, positions)[0], theirs)
    agree(
        rotate(half, q, k, positions, positions)[1], llama.apply_rotary_pos_emb(q, k, cos, sin)[1]
    )
    lucid = RotaryEmbedding(WIDTH, cache_max_seq_len=length)
    xt_angles, _ = x_transformers.RotaryEmbedding(WIDTH)(positions.tensor())
    return {
        "copying q and k": lambda: (q.clone(), k.clone()),
        "pe_lib, interleaved": lambda: rotate(pairs, q, k, positions, positions),
        "pe_lib, half": lambda: rotate(half, q, k, positions, positions),
        "transformers, Llama (half)": lambda: llama.apply_rotary_pos_emb(q, k, cos, sin),
        "transformers, GPT-J (interleaved)": lambda: [
            gptj.apply_rotary_pos_emb(x, sines, cosines) for x in (q_long, k_long)
        ],
        "rotary-embedding-torch": lambda: [lucid.rotate_queries_or_keys(x) for x in (q, k)],
        "x-transformers": lambda: [
            x_transformers.apply_rotary_pos_emb(x, xt_angles) for x in (q, k)
        ],
    }


def rope(length: int) -> Works:
    q, k, _ = qkv(length)
    return rope_of(q, k)


def rope_training(length: int) -> Works:
    q, k, _ = (x.requires_grad_() for x in qkv(length))

    def with_backward(work: Work) -> Work:
        def run() -> object:
            rotated: Any = work()
            return torch.autograd.grad(rotated, (q, k), (q.detach(), k.detach()))

        return run

    chosen = (
        "copying q and k",
        "pe_lib, interleaved",
        "pe_lib, half",
        "transformers, Llama (half)",
    )
    return {name: with_backward(work) for name, work in rope_of(q, k).items() if name in chosen}


def t5_peer() -> Any:
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Attention

    config = T5Config(d_model=MODEL, num_heads=HEADS, d_kv=WIDTH)
    return T5Attention(config, has_relative_attention_bias=True)


def bias_of(encoding: RelativeBias, length: int) -> Works:
    q, k, _ = qkv(length)
    places, allocated = Run(0, length), torch.empty(HEADS, length, length)

    def view() -> Tensor:
        return reversed_bias(bias_vector([encoding], q, places, places), places, places, False)

    return {
        "filling an allocated (H, L, L)": lambda: allocated.fill_(1.0),
        "pe_lib, view": view,
        "pe_lib, dense": lambda: bias(encoding, q, k, places, places, 1.0),
    }


def t5(length: int) -> Works:
    from x_transformers import x_transformers

    peer, encoding = t5_peer(), T5Bias(HEADS)
    encoding.load_state_dict({"table": peer.relative_attention_bias.weight})
    other = x_transformers.RelativePositionBias(scale=1.0, heads=HEADS)
    works = bias_of(encoding, length)
    if length > 2048:  # theirs take seconds and gigabytes here
        return works
    agree(works["pe_lib, dense"](), peer.compute_bias(length, length)[0])
    return {
        **works,
        "transformers, T5": lambda: peer.compute_bias(length, length),
        "x-transformers": lambda: other(length, length),
    }


def alibi(length: int) -> Works:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from x_transformers import x_transformers

    def published() -> object:
        return x_transformers.AlibiPositionalBias(HEADS)(length, length)  # it caches: build anew

    mask, works = torch.ones(1, length), bias_of(ALiBi(HEADS, symmetric=True), length)
    works |= {
        "transformers, BLOOM (a row of keys)": lambda: build_alibi_tensor(mask, HEADS, mask.dtype),
        "transformers, MPT (a row of keys)": lambda: build_mpt_alibi_tensor(HEADS, length),
    }
    if length > 2048:
        return works
    agree(works["pe_lib, dense"](), published())
    return {**works, "x-transformers": published}


def shaw(length: int) -> Works:
    from transformers.models.wav2vec2_bert import modeling_wav2vec2_bert as wav2vec2

    (q, k, _), places, clip = qkv(length), Run(0, length), 64
    encoding = Shaw(WIDTH, clip)
    table = encoding.key_table.detach()
    module = SimpleNamespace(
        left_max_position_embeddings=clip,
        right_max_position_embeddings=clip,
        distance_embedding=torch.nn.Embedding.from_pretrained(table),
        scaling=1.0,
    )

    def gathered() -> object:
        return wav2vec2._apply_relative_key_position_encoding(module, q, k)[1]

    def picked() -> Tensor | None:
        return bias(encoding, q, k, places, places, 1.0)

    agree(picked(), gathered())
    return {
        "plain logits": lambda: q @ k.mT,
        "pe_lib": picked,
        "transformers, Wav2Vec2-BERT (gathers L, L, d)": gathered,
    }


def xlnet(length: int) -> Works:
    from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention as XLNet

    (q, k, _), run, places = qkv(length), Run(0, length), torch.arange(length)
    encoding = TransformerXL(MODEL, HEADS, std=1.0)
    u, v = encoding.u, encoding.v
    codes = encoding.r_proj(sinusoidal(torch.arange(length, -length, -1), MODEL, layout="half"))
    codes = codes.view(2 * length, 1, HEADS, WIDTH)
    q_long, k_long = (x.permute(2, 0, 1, 3).contiguous() for x in (q, k))  # (L, B, H, d)

    def published() -> Tensor:
        """Terms (b), (c) and (d), as XLNet computes them; its codes come projected, for free."""
        content = torch.einsum("bjnd,nd->bnj", k_long.transpose(0, 1), u)[:, :, None]
        position = torch.einsum("ibnd,jbnd->bnij", q_long + v, codes)
        return (content + XLNet.rel_shift_bnij(position, klen=length)) * WIDTH**-0.5

    def gathered() -> Tensor:
        """The same with a code for every pair, (L, L, H, d)."""
        index = length - places.unsqueeze(1) + places  # codes run from distance L down: L - (i - j)
        content = torch.einsum("bnjd,nd->bnj", k, u)[:, :, None]
        position = torch.einsum("bnid,ijnd->bnij", q + v[:, None], codes[:, 0][index])
        return (content + position) * WIDTH**-0.5

    works: Works = {
        "plain logits": lambda: q @ k.mT,
        "pe_lib, skew": lambda: bias(encoding, q, k, run, run, WIDTH**-0.5),
        "transformers, XLNet": published,
    }
    agree(works["pe_lib, skew"](), published())
    if length > 512:  # two gigabytes at 1024
        return works
    agree(gathered(), published())
    return {**works, "gather of (L, L, H, d)": gathered}


def computed_table(length: int) -> Works:
    from diffusers.models.embeddings import get_1d_sincos_pos_embed_from_grid
    from positional_encodings.torch_encodings import PositionalEncoding1D
    from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
    from x_transformers import x_transformers

    x, places, out = torch.randn(1, length, MODEL), torch.arange(length), torch.empty(length, MODEL)
    scaled = x_transformers.ScaledSinusoidalEmbedding(MODEL)

    def fresh() -> Any:
        return PositionalEncoding1D(MODEL)(x)  # it keeps the last table: build anew

    agree(fresh()[0], sinusoidal(places, MODEL), 1e-2)
    return {
        "filling an allocated (L, D)": lambda: out.fill_(1.0),
        "pe_lib (float64 angles)": lambda: sinusoidal(places, MODEL),
        "positional-encodings": fresh,
        "x-transformers": lambda: scaled(x),
        "transformers, M2M-100": lambda: M2M100SinusoidalPositionalEmbedding.get_embedding(
            length, MODEL
        ),
        "diffusers (float64 angles)": lambda: get_1d_sincos_pos_embed_from_grid(
            MODEL, places, output_type="pt"
        ),
    }


def consumption(length: int) -> Works:
    (q, k, v), places = qkv(length), Run(0, length)
    peer, encoding = t5_peer(), ALiBi(HEADS)
    hidden = relative_position(places, places) > 0
    lowest = torch.finfo(torch.float32).min
    ready = bias(encoding, q, k, places, places, 1.0).masked_fill(hidden, lowest)[None]

    def ours(encoding: PositionEncoding) -> Work:
        return lambda: attend_fused(q, k, v, encoding, places, places, causal=True)

    def dense(bias: Callable[[], Tensor], scale: float | None = None) -> Work:
        return lambda: F.scaled_dot_product_attention(q, k, v, attn_mask=bias(), scale=scale)

    def manual() -> Tensor:
        return attend(q, k, v, encoding, places, places, causal=True)[0]

    t5 = T5Bias(HEADS)
    t5.load_state_dict({"table": peer.relative_attention_bias.weight})
    published = dense(
        lambda: peer.compute_bias(length, length).masked_fill(hidden, lowest), scale=1.0
    )
    works: Works = {
        "SDPA, causal, no bias": lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "pe_lib, no positions": ours(NoPosition()),
        "pe_lib, RoPE": ours(RoPE(WIDTH)),
        "pe_lib, ALiBi": ours(encoding),
        "pe_lib, T5": ours(t5),
        "SDPA, dense ALiBi ready-made": dense(lambda: ready),
        "SDPA, dense ALiBi built by pe_lib": dense(
            lambda: bias(encoding, q, k, places, places, 1.0).masked_fill(hidden, lowest)[None]
        ),
        "SDPA, T5 bias built by transformers": published,
        "softmax by hand, ALiBi": manual,
    }
    agree(works["pe_lib, ALiBi"](), manual())
    agree(works["pe_lib, T5"](), published())
    return works


def layer_of(encoding: PositionEncoding) -> MultiHeadAttention:
    """Return a whole attention layer; each has the same weights."""
    torch.manual_seed(0)
    return MultiHeadAttention(MODEL, HEADS, encoding, causal=True, embedded=True)


def llama_layer(layer: MultiHeadAttention) -> Any:
    """Return transformers' attention layer of Llama with the weights of `layer`."""
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention

    config = LlamaConfig(hidden_size=MODEL, num_attention_heads=HEADS, num_key_value_heads=HEADS)
    config._attn_implementation = "sdpa"
    peer = LlamaAttention(config, layer_idx=0).eval()
    weights = {name.replace("out_", "o_"): tensor for name, tensor in layer.state_dict().items()}
    peer.load_state_dict(weights)
    return peer


def decode(length: int) -> Works:
    """One new token behind `length` cached ones, or a few more, through a whole layer.

    As in use, each step adds its token to the cache: some two hundred by the end.
    """
    from transformers import Cache, DynamicCache, StaticCache
    from transformers.models.llama.modeling_llama import LlamaConfig, LlamaRotaryEmbedding

    past, x = torch.randn(1, length, MODEL), torch.randn(1, 1, MODEL)
    most = length + STEPS
    sizes = Sizes(MODEL, HEADS, most)

    def ours(encoding: PositionEncoding) -> Work:
        layer, cache = layer_of(encoding).eval(), KVCache()
        layer(encoding.embed(past, Run(0, length)), cache=cache)

        def step() -> Tensor:
            output: Tensor = layer(encoding.embed(x, Run(len(cache), 1)), cache=cache)
            return output

        return step

    peer = llama_layer(layer_of(NoPosition()))
    angles = LlamaRotaryEmbedding(LlamaConfig(hidden_size=MODEL, num_attention_heads=HEADS))
    cos, sin = angles(x, torch.arange(most)[None])  # ready-made, for free
    future = torch.full((most, most), float("-inf")).triu(1)[None, None]  # (1, 1, most, most)

    def published(cache: Cache, width: int | None) -> Work:
        """Keys beyond those that are there, up to `width`, are hidden; None: there are none."""
        tables = cos[:, :length], sin[:, :length]
        peer(past, tables, future[..., :length, : width or length], past_key_values=cache)
        places = count(length)

        def step() -> Tensor:
            place = next(places)
            newest = slice(place, place + 1)
            mask = None if width is None else future[..., newest, :width]
            tables = cos[:, newest], sin[:, newest]
            output: Tensor = peer(x, tables, mask, past_key_values=cache)[0]
            return output

        return step

    works = {f"pe_lib, {method.name}": ours(method.make(sizes)) for method in METHODS.values()}
    works |= {"pe_lib, RoPE, half": ours(RoPE(WIDTH, layout="half"))}
    works |= {LLAMA_LAYER: published(DynamicCache(), None)}
    works |= {LLAMA_STATIC: published(StaticCache(peer.config, most), most)}
    first = works["pe_lib, RoPE, half"]()
    for name in (LLAMA_LAYER, LLAMA_STATIC):
        agree(first, works[name]())
    return works


def training_step(length: int) -> Works:
    """Forward and backward through a whole layer, for the input and all weights; batch 4."""
    from x_transformers import x_transformers

    x = torch.randn(4, length, MODEL, requires_grad=True)
    target, sizes = torch.randn(4, length, MODEL), Sizes(MODEL, HEADS, length)

    def step(layer: torch.nn.Module, forward: Callable[[], Tensor]) -> Work:
        leaves = [x, *layer.parameters()]
        return lambda: torch.autograd.grad(forward(), leaves, target, allow_unused=True)

    def ours(encoding: PositionEncoding) -> tuple[torch.nn.Module, Callable[[], Tensor]]:
        layer = layer_of(encoding)
        return layer, lambda: layer(encoding.embed(x, Run(0, length)))

    def theirs(**positions: Any) -> tuple[torch.nn.Module, Callable[[], Tensor]]:
        peer = x_transformers.Attention(MODEL, dim_head=WIDTH, heads=HEADS, causal=True, flash=True)
        mine = layer_of(NoPosition()).state_dict()
        names = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
        peer.load_state_dict({f"{a}.weight": mine[f"{b}.weight"] for a, b in names.items()})
        return peer, lambda: peer(x, **positions)

    layers = {f"pe_lib, {method.name}": ours(method.make(sizes)) for method in METHODS.values()}
    angles = x_transformers.RotaryEmbedding(WIDTH).forward_from_seq_len(length)
    t5 = x_transformers.RelativePositionBias(scale=WIDTH**0.5, causal=True, heads=HEADS)
    layers |= {
        "x-transformers, no positions": theirs(),
        "x-transformers, RoPE": theirs(rotary_pos_emb=angles),
        "x-transformers, ALiBi": theirs(rel_pos=x_transformers.AlibiPositionalBias(HEADS)),
        "x-transformers, T5 bias": theirs(rel_pos=t5),
    }
    for name in ("no positions", "RoPE", "ALiBi"):
        agree(*(layers[f"{who}, {name}"][1]() for who in ("pe_lib", "x-transformers")), 1e-3)
    return {name: step(*layer) for name, layer in layers.items()}


QUESTIONS = {
    "rope": Question("RoPE on queries and keys", rope, (512, 2048, 8192)),
    "rope-training": Question("RoPE, forward and backward", rope_training, (2048,), True),
    "t5": Question("T5 bias", t5, (512, 2048, 8192)),
    "alibi": Question("ALiBi bias", alibi, (512, 2048, 8192)),
    "shaw": Question("Shaw's term of the logits", shaw, (512, 1024, 2048)),
    "xlnet": Question("XLNet's terms of the logits", xlnet, (512, 1024, 2048)),
    "table": Question("Sinusoidal table, computed", computed_table, (512, 2048, 8192)),
    "sdpa": Question("Causal attention with its bias", consumption, (512, 2048)),
    "decode": Question(
        "One step of decoding, a whole layer",
        decode,
        (4096,),
        note="DynamicCache, which transformers' models use unless told otherwise, copies all keys "
        "and values at each step. Its StaticCache reserves room for all that may come, and "
        "pe_lib's cache for some at a time, so that they copy none.",
    ),
    "training-step": Question(
        "A training step of a whole layer, batch 4", training_step, (1024,), True
    ),
}
