"""60 faults in positional encodings, each with a corrected twin, from 60 public threads.

They were written from the threads alone, before anything was examined. Each of CASES has
  id, kind, thread, date  of the thread (YYYY-MM; "~" = inferred from its number)
  what, part              what was wrong, in a sentence and in a word
  config                  what a model's file would say, or None
  make_faulty, make_twin  functions without arguments that return what is examined
  signature               how it is called
  make_inputs             its arguments (a dictionary for models)
  run                     of models: (model, inputs) -> tensor; None for logits or last_hidden_state
torch only, except for the models (transformers 5.x, tiny, random weights).
"""

import copy
import math

import torch
import torch.nn as nn

CASES = []


def case(
    id,
    kind,
    thread,
    date,
    what,
    part,
    config,
    make_faulty,
    make_twin,
    make_inputs,
    signature,
    notes="",
    run=None,
):
    CASES.append(
        {
            "id": id,
            "kind": kind,
            "thread": thread,
            "date": date,
            "what": what,
            "part": part,
            "config": config,
            "make_faulty": make_faulty,
            "make_twin": make_twin,
            "make_inputs": make_inputs,
            "signature": signature,
            "notes": notes,
            "run": run,
        }
    )


# ------------------------------------------------------------------ small tools shared by the functions
def ladder(dim, base):
    """1 / base^(2i/dim), i = 0..dim/2-1"""
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim))


def turn_halves(x, cos, sin):
    """pairs (i, i + d/2); cos, sin of width d/2, broadcastable"""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def turn_pairs(x, cos, sin):
    """pairs (2i, 2i + 1); cos, sin of width d/2, broadcastable"""
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)


def qk(L, D, H=4, KV=2, B=2, start=0, Lq=None):
    g = torch.Generator().manual_seed(0)
    q = torch.randn(B, H, Lq or L, D, generator=g)
    k = torch.randn(B, KV, L, D, generator=g)
    return q, k, (torch.arange(L) + start).expand(B, L).clone()


def one(L, D, H=4, B=2, start=0):
    g = torch.Generator().manual_seed(0)
    return torch.randn(B, H, L, D, generator=g), (torch.arange(L) + start).expand(B, L).clone()


def flat(T, D, H=4, start=0):
    g = torch.Generator().manual_seed(0)
    return torch.randn(T, H * D, generator=g), torch.arange(T) + start


def yarn_ladder(dim, base, factor, original, beta_fast=32.0, beta_slow=1.0, truncate=True):
    def where(turns):
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = where(beta_fast), where(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    inv = ladder(dim, base)
    ramp = ((torch.arange(dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return inv / factor * ramp + inv * (1 - ramp)


def mscale(s, m=1.0):
    return 1.0 if s <= 1 else 0.1 * m * math.log(s) + 1.0


# =================================================================================== FUNCTIONS
# ---- f01 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "gpt",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 10000.0,
    "rope_interleaved": True,
    "max_position_embeddings": 1024,
}


def _f01(right):
    def apply(q, k, position_ids):
        freqs = position_ids[..., None].float() * ladder(64, 10000.0)
        emb = freqs.repeat_interleave(2, dim=-1)  # [t0, t0, t1, t1, ...]
        cos, sin = emb.cos()[:, None], emb.sin()[:, None]

        def rotate_half(x):
            if right:
                return torch.stack((-x[..., 1::2], x[..., 0::2]), dim=-1).flatten(-2)
            a, b = x.chunk(2, dim=-1)
            return torch.cat((-b, a), dim=-1)

        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    return apply


case(
    "f01",
    "function",
    "https://github.com/raiyanyahya/how-to-train-your-gpt/pull/7",
    "2026-06",
    "rotate_half splits the head in halves while the angles are repeated for adjacent pairs (t0, t0, t1, t1)",
    "layout",
    CFG,
    lambda: _f01(False),
    lambda: _f01(True),
    lambda: qk(24, 64),
    "apply(q, k, position_ids)",
    "Neither convention: what is turned together has two different angles, so scores are not relative and norms change.",
)

# ---- f02 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "gptj",
    "n_embd": 256,
    "n_head": 4,
    "rotary_dim": 32,
    "n_positions": 2048,
    "rope_theta": 10000.0,
}


def _f02(right):
    def f(x, positions):
        T = x.shape[0]
        y = x.view(T, 4, 64)
        ang = positions[:, None].float() * ladder(32, 10000.0)
        cos, sin = ang.cos()[:, None], ang.sin()[:, None]
        rot, rest = y[..., :32], y[..., 32:]
        rot = turn_pairs(rot, cos, sin) if right else turn_halves(rot, cos, sin)
        return torch.cat((rot, rest), dim=-1).reshape(T, 256)

    return f


case(
    "f02",
    "flat",
    "https://github.com/vllm-project/vllm/pull/941",
    "2023-09",
    "GPT-J is served with the NeoX kernel: the rotary part is paired (i, i + rotary_dim/2) in place of (2i, 2i+1)",
    "layout",
    CFG,
    lambda: _f02(False),
    lambda: _f02(True),
    lambda: flat(40, 64),
    "f(x, positions), x (T, H*D)",
    "head_dim 64, 4 heads, rotary_dim 32. Twin checked against transformers' GPT-J.",
)

# ---- f03 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "nomic_bert",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "rope_theta": 1000.0,
    "max_position_embeddings": 64,
    "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
}


def _f03(right):
    def f(x, positions):
        T, factor, trained, D = x.shape[0], 2.0, 64, 64
        if right:
            L = max(int(positions.max()) + 1, trained)
            base = 1000.0 * (factor * L / trained - (factor - 1)) ** (D / (D - 2))
        else:
            max_len = trained * factor
            base = 1000.0 * (factor * max_len / trained - (factor - 1)) ** (D / (D - 2))
        ang = positions[:, None].float() * ladder(D, base)
        return turn_halves(x.view(T, 4, D), ang.cos()[:, None], ang.sin()[:, None]).reshape(T, 256)

    return f


case(
    "f03",
    "flat",
    "https://github.com/vllm-project/vllm/issues/41236",
    "2026-04",
    "dynamic NTK puts factor * max_position in for the length, so the base is a constant (a*a - a + 1) at every length",
    "factor",
    CFG,
    lambda: _f03(False),
    lambda: _f03(True),
    lambda: flat(48, 64),
    "f(x, positions), x (T, H*D)",
    "At the full factor*max length both agree; below, and inside the trained length, the faulty one is stretched. "
    "Twin checked against transformers' _compute_dynamic_ntk_parameters at several lengths.",
)

# ---- f04 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "ministral3",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 262144,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000.0,
        "factor": 16.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 16384,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
    },
}


def _f04(right):
    gain = mscale(16.0, 1.0) / mscale(16.0, 1.0) if right else mscale(16.0)
    inv = yarn_ladder(64, 1e6, 16.0, 16384)

    def f(x, positions):
        T = x.shape[0]
        ang = positions[:, None].float() * inv
        return turn_halves(
            x.view(T, 4, 64), ang.cos()[:, None] * gain, ang.sin()[:, None] * gain
        ).reshape(T, 256)

    return f


case(
    "f04",
    "flat",
    "https://github.com/vllm-project/vllm/issues/48621",
    "2026-07",
    "the YaRN cache multiplier is 0.1 ln(16) + 1 = 1.277 whatever mscale and mscale_all_dim say (the config gives 1.0)",
    "gain",
    CFG,
    lambda: _f04(False),
    lambda: _f04(True),
    lambda: flat(40, 64),
    "f(x, positions), x (T, H*D)",
    "Frequencies agree. Twin checked against transformers' _compute_yarn_parameters.",
)

# ---- f05 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "gpt_oss",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rope_theta": 150000.0,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
}


def _f05(right):
    inv = yarn_ladder(64, 150000.0, 32.0, 4096, truncate=not right)
    gain = mscale(32.0)

    def f(x, positions):
        T = x.shape[0]
        ang = positions[:, None].float() * inv
        return turn_halves(
            x.view(T, 4, 64), ang.cos()[:, None] * gain, ang.sin()[:, None] * gain
        ).reshape(T, 256)

    return f


case(
    "f05",
    "flat",
    "https://github.com/vllm-project/vllm/issues/27722",
    "2025-10",
    "the YaRN correction range is rounded to whole pairs (8..18) although the config says truncate: false (8.09..17.40)",
    "factor",
    CFG,
    lambda: _f05(False),
    lambda: _f05(True),
    lambda: flat(40, 64, start=3000),
    "f(x, positions), x (T, H*D)",
    "Only the pairs inside the ramp differ. Twin checked against transformers' _compute_yarn_parameters.",
)

# ---- f06 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "qwen3_5_text",
    "hidden_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
    },
}


def _f06(right):
    head, rotary = 128, 32

    def f(x, positions):
        n = rotary // 2
        width = rotary if right else head
        inv = 1.0 / (1e7 ** (2 * torch.arange(n, dtype=torch.float32) / width))
        ang = positions[:, None, :, None].float() * inv
        cos, sin = ang.cos(), ang.sin()
        out = x.clone()
        a, b = x[..., :n], x[..., width // 2 : width // 2 + n]
        out[..., :n] = a * cos - b * sin
        out[..., width // 2 : width // 2 + n] = b * cos + a * sin
        return out

    return f


case(
    "f06",
    "one",
    "https://github.com/pie-project/pie/pull/603",
    "2026-09",
    "partial RoPE takes the head width, not the rotary width: exponents 2i/head_dim and partners i + head_dim/2",
    "base",
    CFG,
    lambda: _f06(False),
    lambda: _f06(True),
    lambda: one(40, 128),
    "f(x, positions)",
    "Both the ladder and the partner lane are off (layout too); equal at position 0.",
)

# ---- f07 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "rope_theta": 500000.0,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32768,
}


def _f07(right):
    def f(x, positions):
        inv = ladder(64, 500000.0)
        if not right:
            inv = inv.to(torch.bfloat16)
        ang = torch.einsum("bn,d->bnd", positions.float(), inv.float())
        return turn_halves(x.float(), ang.cos()[:, None], ang.sin()[:, None]).to(x.dtype)

    return f


case(
    "f07",
    "one",
    "https://github.com/sgl-project/sglang-jax/issues/1472",
    "2026-07",
    "the inverse frequencies are rounded to bfloat16 before the phase is built, so the angle error grows with the position",
    "precision",
    CFG,
    lambda: _f07(False),
    lambda: _f07(True),
    lambda: one(32, 64, start=4064),
    "f(x, positions)",
    "Positions and products are float32; only the ladder is rounded (relative error up to 2^-9).",
)

# ---- f08 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "deepseek_v32",
    "index_n_heads": 4,
    "index_head_dim": 64,
    "qk_rope_head_dim": 64,
    "rope_theta": 10000.0,
    "rope_interleave": True,
    "index_rope_interleave": False,
    "num_attention_heads": 4,
    "head_dim": 64,
}


def _f08(right):
    def f(x, positions):
        ang = (positions[..., None].float() * ladder(64, 10000.0))[:, None]
        turn = turn_halves if right else turn_pairs
        return turn(x, ang.cos(), ang.sin())

    return f


case(
    "f08",
    "one",
    "https://github.com/ml-explore/mlx-lm/pull/512",
    "2025-12",
    "the lightning indexer's queries and keys are turned in adjacent pairs (traditional=True) like the main MLA part; "
    "the indexer wants half-split pairs",
    "layout",
    CFG,
    lambda: _f08(False),
    lambda: _f08(True),
    lambda: one(40, 64),
    "f(x, positions)",
    "A valid RoPE by itself: only the config / checkpoint says which one is meant. 'index_rope_interleave' is my name for it.",
)

# ---- f09 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "pixtral",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "image_size": 512,
    "patch_size": 16,
    "rope_theta": 10000.0,
}


def _f09(right):
    inv = ladder(64, 10000.0)  # 32 frequencies
    fh, fw = (inv[0::2], inv[1::2]) if right else (inv[0::2], inv[0::2])

    def f(x, positions):
        h, w = positions[..., 0:1].float(), positions[..., 1:2].float()
        ang = torch.cat((h * fh, w * fw), dim=-1)[:, None]
        return turn_halves(x, ang.cos(), ang.sin())

    return f


def _f09_in():
    x, _ = one(35, 64)
    h, w = torch.meshgrid(torch.arange(5), torch.arange(7), indexing="ij")
    return x, torch.stack((h.flatten(), w.flatten()), -1).expand(2, 35, 2).clone()


case(
    "f09",
    "one",
    "https://github.com/ServiceNow/Fast-LLM/pull/401",
    "2025-12",
    "2-D RoPE gives rows and columns the same frequencies; Pixtral deals them out (even ones to rows, odd ones to columns)",
    "axes",
    CFG,
    lambda: _f09(False),
    lambda: _f09(True),
    _f09_in,
    "f(x, positions), positions (B, L, 2) = (row, column)",
    "The thread only says 'frequencies were slightly different from Pixtral'; that the former code used one ladder for both "
    "axes is my reading. Twin checked against transformers' PixtralVisionRotaryEmbedding.",
)

# ---- f10 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "internlm3",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 50000000.0,
    "rope_scaling": None,
    "max_position_embeddings": 32768,
}


def _f10(right):
    def apply(q, k, position_ids):
        rope_scaling = None
        scale = (
            1.0
            if right
            else (
                1 / rope_scaling["factor"]
                if rope_scaling and rope_scaling["type"] == "linear"
                else 2.0
            )
        )
        ang = (position_ids[..., None].float() * scale * ladder(64, 5e7))[:, None]
        return turn_halves(q, ang.cos(), ang.sin()), turn_halves(k, ang.cos(), ang.sin())

    return apply


case(
    "f10",
    "function",
    "https://github.com/ml-explore/mlx-lm/pull/1553",
    "2026-07",
    "the position scale falls to 2.0 whenever scaling is not 'linear', so without rope_scaling every position counts double",
    "factor",
    CFG,
    lambda: _f10(False),
    lambda: _f10(True),
    lambda: qk(24, 64),
    "apply(q, k, position_ids)",
    "Still relative; faulty(p) = twin(2p). Twin checked against transformers' Llama rotary functions.",
)

# ---- f11 ------------------------------------------------------------------------------------
L3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
CFG = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 500000.0,
    "rope_scaling": L3,
    "max_position_embeddings": 131072,
}


def _f11(right):
    D, base, s, lo, hi, old = 64, 500000.0, 8.0, 1.0, 4.0, 8192
    if right:
        inv = ladder(D, base)
        turns = old * inv / (2 * math.pi)  # turns inside the old context
        smooth = ((turns - lo) / (hi - lo)).clamp(0, 1)
        inv = (1 - smooth) * inv / s + smooth * inv
    else:  # one base: the mean of the rescaled wavelengths
        freqs = base ** (torch.arange(0, D, 2, dtype=torch.float32) / D)
        wave = 2 * math.pi * freqs
        smooth = ((wave - old / hi) / (old / lo - old / hi)).clamp(0, 1)
        inv = ladder(D, float((freqs * ((1 - smooth) * s + smooth)).mean()))

    def apply(q, k, position_ids):
        ang = (position_ids[..., None].float() * inv)[:, None]
        return turn_halves(q, ang.cos(), ang.sin()), turn_halves(k, ang.cos(), ang.sin())

    return apply


case(
    "f11",
    "function",
    "https://github.com/ml-explore/mlx-swift-examples/issues/152",
    "2024-11",
    "the llama3 bands are collapsed to one new base, the mean of the rescaled wavelengths, in place of a frequency per pair",
    "factor",
    CFG,
    lambda: _f11(False),
    lambda: _f11(True),
    lambda: qk(24, 64, start=1000),
    "apply(q, k, position_ids)",
    "The old Swift code also had the smooth factor the wrong way round; both are kept. Twin checked against transformers' "
    "_compute_llama3_parameters.",
)

# ---- f12 ------------------------------------------------------------------------------------
SHORT = [1.0 + 0.01 * i for i in range(32)]
LONG = [1.0 + 0.02 * i * i for i in range(32)]
CFG = {
    "model_type": "phi3",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 10000.0,
    "max_position_embeddings": 512,
    "original_max_position_embeddings": 64,
    "rope_scaling": {"type": "longrope", "short_factor": SHORT, "long_factor": LONG},
}


def _f12(right):
    gain = math.sqrt(1 + math.log(512 / 64) / math.log(64))

    def apply(q, k, position_ids, seqlen_offset=0):
        seen = int(position_ids.max()) + 1 if right else seqlen_offset
        ext = torch.tensor(LONG if seen > 64 else SHORT)
        ang = (position_ids[..., None].float() * (ladder(64, 10000.0) / ext))[:, None]
        cos, sin = ang.cos() * gain, ang.sin() * gain
        return turn_halves(q, cos, sin), turn_halves(k, cos, sin)

    return apply


case(
    "f12",
    "function",
    "https://github.com/ggml-org/llama.cpp/issues/6849",
    "2024-04",
    "LongRoPE chooses its factors by the cache offset, not by the positions, so a long first prompt gets the short factors",
    "factor",
    CFG,
    lambda: _f12(False),
    lambda: _f12(True),
    lambda: qk(100, 64),
    "apply(q, k, position_ids)",
    "The mistral.rs fault told of in that thread. A prompt of up to 64 tokens is right in both. Twin checked against "
    "transformers' _compute_longrope_parameters on both sides of the switch.",
)

# ---- f13 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "qwen2",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 1000000.0,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 32768,
}


def _f13(right):
    dtype = torch.float32 if right else torch.bfloat16

    def apply(q, k, position_ids):
        t = position_ids.to(dtype)
        inv = ladder(64, 1e6).to(dtype)
        ang = t[..., None] * inv
        cos, sin = ang.cos()[:, None].float(), ang.sin()[:, None].float()
        return turn_halves(q, cos, sin), turn_halves(k, cos, sin)

    return apply


case(
    "f13",
    "function",
    "https://github.com/huggingface/candle/pull/3520",
    "2026-05",
    "positions, ladder and angles are bfloat16 when the table is built, so positions above 256 are no longer told apart",
    "precision",
    CFG,
    lambda: _f13(False),
    lambda: _f13(True),
    lambda: qk(24, 64, start=15950),
    "apply(q, k, position_ids)",
    "15962 becomes 15936 or 15968 in the fastest pair; neighbours get one and the same angle.",
)

# ---- f14 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "qwen3_vl_text",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5000000.0,
        "mrope_section": [12, 10, 10],
        "mrope_interleaved": True,
    },
}


def _deal_thw(ang, section):
    """ang (3, B, L, d/2): T H W T H W ... then T for the rest"""
    out = ang[0].clone()
    for axis in (1, 2):
        out[..., axis : section[axis] * 3 : 3] = ang[axis][..., axis : section[axis] * 3 : 3]
    return out


def _f14(right):
    def apply(q, k, position_ids):
        ang = _deal_thw(position_ids[..., None].float() * ladder(64, 5e6), [12, 10, 10])[:, None]
        turn = turn_halves if right else turn_pairs
        return turn(q, ang.cos(), ang.sin()), turn(k, ang.cos(), ang.sin())

    return apply


def _grid_positions(text=4, h=3, w=4, tail=5, B=2):
    t = torch.arange(text).expand(3, text)
    hh, ww = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    img = torch.stack((torch.zeros(h * w, dtype=torch.long), hh.flatten(), ww.flatten())) + text
    rest = torch.arange(tail).expand(3, tail) + text + max(h, w)
    p = torch.cat((t, img, rest), dim=1)
    return p[:, None].expand(3, B, p.shape[1]).clone()


def _f14_in():
    p = _grid_positions()
    q, k, _ = qk(p.shape[-1], 64)
    return q, k, p


case(
    "f14",
    "function",
    "https://github.com/xLLM-AI/xllm/pull/2120",
    "2026-08",
    "mrope_interleaved (which deals the frequencies out to T, H and W) is passed on as the rotation mode, "
    "so q and k are turned in adjacent pairs in place of halves",
    "layout",
    CFG,
    lambda: _f14(False),
    lambda: _f14(True),
    _f14_in,
    "apply(q, k, position_ids), position_ids (3, B, L)",
    "Twin checked against transformers' Qwen3VLTextRotaryEmbedding.",
)

# ---- f15 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "glm4v_text",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 500000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [4, 6, 6],
    },
}


def _f15(right):
    def apply(q, k, position_ids):
        ang = position_ids[..., None].float() * ladder(32, 500000.0)
        ang = torch.cat(
            [part[i % 3] for i, part in enumerate(ang.split([4, 6, 6], dim=-1))], dim=-1
        )[:, None]
        turn = turn_pairs if right else turn_halves

        def go(x):
            return torch.cat((turn(x[..., :32], ang.cos(), ang.sin()), x[..., 32:]), dim=-1)

        return go(q), go(k)

    return apply


case(
    "f15",
    "function",
    "https://github.com/vllm-project/vllm/pull/49323",
    "~2026-07",
    "the M-RoPE kernel hardcodes NeoX pairing, though GLM-4V / GLM-OCR set is_neox_style=False (adjacent pairs)",
    "layout",
    CFG,
    lambda: _f15(False),
    lambda: _f15(True),
    _f14_in,
    "apply(q, k, position_ids), position_ids (3, B, L)",
    "Twin checked against transformers' Glm4vTextRotaryEmbedding and its apply function.",
)

# ---- f16 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "gemma4_text",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "layer_types": ["full_attention"],
    "rope_parameters": {
        "full_attention": {
            "rope_type": "proportional",
            "rope_theta": 1000000.0,
            "partial_rotary_factor": 0.25,
        }
    },
}


def _f16(right):
    n = int(0.25 * 64 // 2)  # 8 angles
    inv = 1.0 / (1e6 ** (2 * torch.arange(n, dtype=torch.float32) / 64))
    if right:
        inv = torch.cat((inv, torch.zeros(32 - n)))  # pairs (i, i + 32), the rest stands still

    def apply(q, k, position_ids):
        ang = (position_ids[..., None].float() * inv)[:, None]
        w = 2 * inv.numel()

        def go(x):
            return torch.cat((turn_halves(x[..., :w], ang.cos(), ang.sin()), x[..., w:]), dim=-1)

        return go(q), go(k)

    return apply


case(
    "f16",
    "function",
    "https://github.com/NVIDIA-NeMo/Megatron-Bridge/issues/4195",
    "2026-06",
    "proportional RoPE without the zero padding of inv_freq: lanes pair inside the first 16 dims in place of (i, i + head_dim/2)",
    "layout",
    CFG,
    lambda: _f16(False),
    lambda: _f16(True),
    lambda: qk(40, 64),
    "apply(q, k, position_ids)",
    "The eight frequencies agree bit for bit; only the partner lanes differ. Twin checked against transformers' "
    "_compute_proportional_rope_parameters.",
)

# ---- f17 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "qwen3",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 1000000.0,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}


def _f17(right):
    inv, gain = yarn_ladder(64, 1e6, 4.0, 32768), mscale(4.0)

    def apply(q, k, position_ids):
        ang = (position_ids[..., None].float() * inv)[:, None]
        cos, sin = ang.cos() * gain, ang.sin() * gain
        q, k = turn_halves(q, cos, sin), turn_halves(k, cos, sin)
        if not right:
            q = q * gain * gain  # the attention scale is multiplied by mscale^2 as well
        return q, k

    return apply


case(
    "f17",
    "function",
    "https://github.com/guoqingbao/xinfer/pull/329",
    "2026-04",
    "YaRN's mscale^2 is multiplied into the softmax scale of plain (non-MLA) attention, on top of the factor in cos and sin",
    "scale",
    CFG,
    lambda: _f17(False),
    lambda: _f17(True),
    lambda: qk(24, 64),
    "apply(q, k, position_ids)",
    "The PR's change (closed, not merged) is the fault here. The wrong softmax scale is written as a factor on the returned q, "
    "scores being scaled by 1/sqrt(head_dim) afterwards. YaRN counted twice: scores x mscale^4.",
)

# ---- f18 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "moeut",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_theta": 10000.0,
}


def _f18(right):
    def apply(q, k, position_ids):
        """k holds cached and new keys, position_ids are those of the keys; q the new tokens only"""
        n = q.shape[2]
        qpos = position_ids[:, -n:] if right else torch.arange(n).expand(q.shape[0], n)
        inv = ladder(64, 10000.0)
        qa, ka = (
            (qpos[..., None].float() * inv)[:, None],
            (position_ids[..., None].float() * inv)[:, None],
        )
        return turn_halves(q, qa.cos(), qa.sin()), turn_halves(k, ka.cos(), ka.sin())

    return apply


case(
    "f18",
    "function",
    "https://github.com/RobertCsordas/moeut/pull/6",
    "2026-04",
    "the query's RoPE offset is taken before the cached keys are joined on, so a decoded token is turned as if it were at 0",
    "cache",
    CFG,
    lambda: _f18(False),
    lambda: _f18(True),
    lambda: qk(24, 64, Lq=1),
    "apply(q, k, position_ids of the keys)",
    "Prefill (as many queries as keys) is right in both.",
)

# ---- b01 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "mpt",
    "d_model": 384,
    "n_heads": 6,
    "attn_config": {"alibi": True, "alibi_bias_max": 8},
}


def _b01(right):
    def slopes(n):
        m = 2 ** math.ceil(math.log2(n)) if right else n
        s = 2.0 ** -(torch.arange(1, m + 1, dtype=torch.float32) * 8 / m)
        return torch.cat((s[1::2], s[0::2]))[:n] if right and m != n else s

    def bias(n_q, n_k):
        dist = torch.arange(n_k)[None, :] - (torch.arange(n_q)[:, None] + n_k - n_q)
        return slopes(6)[:, None, None] * dist.float()

    return bias


case(
    "b01",
    "bias",
    "https://github.com/mosaicml/examples/pull/307",
    "2023-04",
    "ALiBi slopes for 6 heads are one geometric row 2^(-8h/6); HF / FasterTransformer take the row for 8 heads, "
    "odd entries first, then the even ones, cut to 6",
    "bias",
    CFG,
    lambda: _b01(False),
    lambda: _b01(True),
    lambda: (20, 20),
    "bias(n_q, n_k) -> (H, n_q, n_k)",
    "Head order matters: the slopes are not monotone over the heads. Bias above the diagonal is for the causal mask to hide. "
    "The former code is not quoted in the thread: one geometric row for n heads is inferred from what the PR adds. "
    "Twin checked against transformers' build_mpt_alibi_tensor.",
)

# ---- b02 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "falcon",
    "hidden_size": 512,
    "num_attention_heads": 8,
    "head_dim": 64,
    "alibi": True,
    "rotary": False,
}


def _b02(right):
    def bias(n_q, n_k):
        """what is added to q.k / sqrt(head_dim)"""
        slopes = 2.0 ** -torch.arange(1, 9, dtype=torch.float32)
        dist = torch.arange(n_k)[None, :] - (torch.arange(n_q)[:, None] + n_k - n_q)
        b = slopes[:, None, None] * dist.float()
        return b / math.sqrt(64) if right else b

    return bias


case(
    "b02",
    "bias",
    "https://github.com/NVIDIA/TensorRT-Model-Connect/pull/32",
    "2026-05",
    "Falcon adds ALiBi before the division by sqrt(head_dim); here it is added to already scaled scores, 8 times too strong",
    "scale",
    CFG,
    lambda: _b02(False),
    lambda: _b02(True),
    lambda: (20, 20),
    "bias(n_q, n_k) -> (H, n_q, n_k)",
    "Right for BLOOM, wrong for Falcon-RW. Twin checked (differences along the keys) against transformers' Falcon "
    "build_alibi_tensor / sqrt(head_dim).",
)

# ---- b03 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "t5",
    "num_heads": 4,
    "d_kv": 64,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "is_decoder": False,
}


def _b03(right):
    table = torch.randn(32, 4, generator=torch.Generator().manual_seed(7))

    def bias(q_pos, k_pos):
        rel = k_pos[None, :] - q_pos[:, None] if right else q_pos[:, None] - k_pos[None, :]
        side = (rel > 0).long() * 16
        d = rel.abs()
        far = 8 + (torch.log(d.clamp(min=1).float() / 8) / math.log(128 / 8) * 8).long()
        bucket = side + torch.where(d < 8, d, far.clamp(max=15))
        return table[bucket].permute(2, 0, 1)

    return bias


case(
    "b03",
    "bias",
    "https://github.com/dmlc/gluon-nlp/pull/1470",
    "2021-01",
    "the T5 encoder's relative position is query minus memory, so buckets of what lies ahead and what lies behind are swapped",
    "bias",
    CFG,
    lambda: _b03(False),
    lambda: _b03(True),
    lambda: (torch.arange(60), torch.arange(60)),
    "bias(q_pos, k_pos) -> (H, Lq, Lk)",
    "faulty = twin transposed in (q, k). The PR turns query_i - mem_j into mem_i - query_j, as mesh-tensorflow and T5 have it. Twin checked against transformers' T5Attention._relative_position_bucket.",
)

# ---- b04 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "mistral",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "head_dim": 64,
    "sliding_window": 8,
}


def _b04(right):
    left = 8 - 1 if right else 8  # window_size = (left, 0), both ends inclusive

    def bias(q_pos, k_pos):
        d = q_pos[:, None] - k_pos[None, :]
        seen = (d >= 0) & (d <= left)
        m = torch.zeros(d.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
        return m.expand(4, *d.shape)

    return bias


case(
    "b04",
    "bias",
    "https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/2656",
    "2026-03",
    "sliding_window is passed on as the inclusive left bound of the kernel's window, so 9 keys are seen in place of 8",
    "window",
    CFG,
    lambda: _b04(False),
    lambda: _b04(True),
    lambda: (torch.arange(24), torch.arange(24)),
    "bias(q_pos, k_pos) -> (H, Lq, Lk), 0 or finfo.min",
    "Twin checked against transformers.masking_utils.sliding_window_causal_mask_function.",
)

# ---- c01 ------------------------------------------------------------------------------------
CFG = {"d_model": 64, "attention_type": "RelPosMHAXL", "causal": False}


def _c01(right):
    def code(ids):
        """ids: signed distances query - key"""
        p = ids.float()[:, None]
        inv = torch.exp(torch.arange(0, 64, 2).float() * -(math.log(10000.0) / 64))
        pe = torch.zeros(ids.numel(), 64)
        pe[:, 0::2] = torch.sin(p * inv) if right else torch.sin(p.abs() * inv)
        pe[:, 1::2] = torch.cos(p * inv)
        return pe

    return code


case(
    "c01",
    "code",
    "https://github.com/speechbrain/speechbrain/issues/3070",
    "2026-07",
    "the relative encodings of negative distances carry sin(+p) like the positive ones, so a key ahead cannot be told from one behind",
    "bias",
    CFG,
    lambda: _c01(False),
    lambda: _c01(True),
    lambda: (torch.arange(-12, 13),),
    "code(ids) -> (L, D)",
    "cos is even, sin is odd; the rows of -d and +d come out the same.",
)

# ---- c02 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "rt_detr",
    "encoder_hidden_dim": 64,
    "positional_encoding_temperature": 10000,
    "grid_height": 3,
    "grid_width": 4,
}


def _c02(right):
    H, W, D = 3, 4, 64

    def code(ids):
        """ids: index of a patch in the flattened (row-major) feature map"""
        if right:
            gh, gw = torch.meshgrid(
                torch.arange(H).double(), torch.arange(W).double(), indexing="ij"
            )
        else:
            gw, gh = torch.meshgrid(
                torch.arange(W).double(), torch.arange(H).double(), indexing="ij"
            )
        omega = 1.0 / 10000.0 ** (torch.arange(D // 4).double() / (D // 4))
        h, w = gh.flatten()[:, None] * omega, gw.flatten()[:, None] * omega
        return torch.cat((h.sin(), h.cos(), w.sin(), w.cos()), dim=1).float()[ids]

    return code


case(
    "c02",
    "code",
    "https://github.com/huggingface/transformers/pull/41380",
    "2025-10",
    "the 2-D sine code is flattened column by column while the feature map is flattened row by row; wrong for non-square images",
    "axes",
    CFG,
    lambda: _c02(False),
    lambda: _c02(True),
    lambda: (torch.arange(12),),
    "code(ids) -> (L, D)",
    "On a square grid the two axes are merely swapped. Twin checked against transformers' RTDetrSinePositionEmbedding.",
)

# ---- c03 ------------------------------------------------------------------------------------
CFG = {"model_type": "bart", "d_model": 64, "max_position_embeddings": 48, "position_offset": 2}


def _c03(right):
    table = torch.randn(48 + 2, 64, generator=torch.Generator().manual_seed(3))

    def code(ids):
        return table[ids + 2] if right else table[ids]

    return code


case(
    "c03",
    "code",
    "https://github.com/NVIDIA/TensorRT-LLM/pull/13919",
    "2026-05",
    "BART's position table is looked up without its offset of 2: the first two tokens read the reserved rows, all others the row of p-2",
    "positions",
    CFG,
    lambda: _c03(False),
    lambda: _c03(True),
    lambda: (torch.arange(48),),
    "code(ids) -> (L, D)",
    "Table of 48 + 2 rows. Twin checked against transformers' BartLearnedPositionalEmbedding. 'position_offset' is not a "
    "key of BART's config, only said here.",
)

# ---- i01 ------------------------------------------------------------------------------------
CFG = {"padding_free": True, "task_type": "embedding"}


def _i01(right):
    def segments(position_ids):
        """packed position ids (T,) -> number of the sequence every token belongs to (T,)"""
        first = torch.zeros_like(position_ids, dtype=torch.bool)
        first[0] = True
        first[1:] = (position_ids[1:] == 0) if right else (position_ids[1:] < position_ids[:-1])
        return first.long().cumsum(0) - 1

    return segments


case(
    "i01",
    "ids",
    "https://github.com/modelscope/ms-swift/pull/9904",
    "2026-08",
    "sequence boundaries are seen only where the position id falls, so a one-token sequence (0 -> 0) is merged with the next one",
    "packing",
    CFG,
    lambda: _i01(False),
    lambda: _i01(True),
    lambda: (torch.tensor([0, 1, 2, 3, 0, 0, 1, 2, 0, 0, 1]),),
    "segments(position_ids (T,)) -> (T,)",
    "Right as long as no sequence of length one is followed by another.",
)

# ---- i02 ------------------------------------------------------------------------------------
CFG = {"model_type": "qwen2", "padding_side": "left"}


def _i02(right):
    def position_ids(attention_mask, cache_position):
        """2-D mask (B, S) and the slots of the new tokens (n,) -> (B, n)"""
        if right:
            p = attention_mask.long().cumsum(-1) - 1
            p = p.masked_fill(attention_mask == 0, 1)
            return p[:, cache_position]
        return cache_position.expand(attention_mask.shape[0], -1)

    return position_ids


def _i02_in():
    m = torch.ones(3, 12, dtype=torch.long)
    m[0, :5] = 0
    m[1, :2] = 0
    return m, torch.arange(9, 12)


case(
    "i02",
    "ids",
    "https://github.com/unslothai/unsloth/pull/4078",
    "2026-02",
    "in batched generation with left padding the shared cache_position is used as the position ids of every row",
    "padding",
    CFG,
    lambda: _i02(False),
    lambda: _i02(True),
    _i02_in,
    "position_ids(attention_mask, cache_position)",
    "With RoPE the shift is the same for all tokens of a row, so a single forward pass may look right; with other rows' or "
    "unpadded caches, or learned positions, it is not.",
)

# ---- i03 ------------------------------------------------------------------------------------
CFG = {
    "model_type": "hunyuan_vl",
    "rope_scaling": {"type": "xdrope", "xdrope_section": [16, 16, 16, 16]},
    "image_token_id": 9,
    "row_newline": True,
}


def _i03(right):
    def xd_positions(token_types, grid):
        """token_types (L,) with 1 = image token, grid (h, w) -> (4, L): p, w, h, t. A row of the image ends in a newline token"""
        L = token_types.numel()
        p = torch.arange(L)
        out = p.expand(4, L).clone()
        where = torch.nonzero(token_types == 1).flatten()
        h, w = grid
        out[1, where] = torch.arange(w + 1).repeat(h)
        out[2, where] = torch.arange(h).repeat_interleave(w + 1)
        out[3 if right else 2, where] = 0
        return out

    return xd_positions


case(
    "i03",
    "ids",
    "https://github.com/vllm-project/vllm/pull/29425",
    "2025-11",
    "XD-RoPE ids of image tokens: the height row is set to zero after it was computed, in place of the time row",
    "axes",
    CFG,
    lambda: _i03(False),
    lambda: _i03(True),
    lambda: (torch.tensor([0] * 4 + [1] * 15 + [0] * 5), (3, 4)),
    "xd_positions(token_types, grid) -> (4, L)",
    "All rows of the image look alike; time keeps the running index.",
)

# ---- i04 ------------------------------------------------------------------------------------
CFG = {"model_type": "qwen2_5_vl", "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}


def _i04(right):
    def decode_positions(cache_lengths, rope_deltas):
        """one new token for each running request: (B,), (B,) -> (3, B, 1)"""
        kept = (
            rope_deltas if right else rope_deltas[-1].expand_as(rope_deltas)
        )  # what the newest prefill left on the model
        return (cache_lengths + kept)[None, :, None].expand(3, -1, 1).clone()

    return decode_positions


case(
    "i04",
    "ids",
    "https://github.com/Blaizzy/mlx-vlm/pull/1143",
    "2026-05",
    "decode steps read the rope delta stored on the model, which a newer request's prefill has overwritten, not their own",
    "cache",
    CFG,
    lambda: _i04(False),
    lambda: _i04(True),
    lambda: (torch.tensor([40, 85, 31]), torch.tensor([-12, -60, 0])),
    "decode_positions(cache_lengths, rope_deltas)",
    "The newest request itself is right.",
)

# ---- i05 ------------------------------------------------------------------------------------
CFG = {"model_type": "qwen3", "prefill_step_size": 8}


def _i05(right):
    def prefill_positions(n, start, step=8):
        """positions a prompt of n tokens gets when it is prefilled in chunks behind `start` cached tokens"""
        out, cache_idx, offset = [], start, 0
        while offset < n:
            m = min(step, n - offset)
            first = cache_idx if right else cache_idx + offset
            out.append(first + torch.arange(m))
            cache_idx += m  # the forward pass moves this on
            offset += m
        return torch.cat(out)

    return prefill_positions


case(
    "i05",
    "ids",
    "https://github.com/mlx-node/mlx-node/pull/33",
    "2026-03",
    "chunked prefill adds the chunk's offset to a cache index that the forward pass has already moved on, so chunks drift apart",
    "cache",
    CFG,
    lambda: _i05(False),
    lambda: _i05(True),
    lambda: (29, 3),
    "prefill_positions(n, start, step=8) -> (n,)",
    "The first chunk is right; chunk c starts c*step too late.",
)

# ---- i06 ------------------------------------------------------------------------------------
CFG = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3}


def _i06(right):
    def draft_positions(seq_lens, steps):
        """seq_lens (B,) tokens held -> (steps, B) positions of the draft's decode steps"""
        out, positions = [], seq_lens.clone()
        for _ in range(steps):
            if not right:
                positions.add_(1)
            out.append(positions.clone())
            if right:
                positions.add_(1)
        return torch.stack(out)

    return draft_positions


case(
    "i06",
    "ids",
    "https://github.com/sgl-project/sglang/pull/25015",
    "2026-05",
    "the EAGLE draft raises its positions before each decode step, not after it: the draft runs at 8, 9 where 7, 8 are right",
    "positions",
    CFG,
    lambda: _i06(False),
    lambda: _i06(True),
    lambda: (torch.tensor([7, 4]), 3),
    "draft_positions(seq_lens, steps) -> (steps, B)",
    "Never wrong in the text, only in the accept rate.",
)


# =================================================================================== MODELS
def _no_decay_seed(build, sharpen=()):
    """same weights for faulty and twin; query and key weights made large enough for positions to count"""
    torch.manual_seed(0)
    m = build().eval()
    with torch.no_grad():
        for name, p in m.named_parameters():
            if any(s in name for s in sharpen):
                p.mul_(8.0)
    return m


QK = ("q_proj.weight", "k_proj.weight")


def _ids(L=24, B=2, vocab=96):
    return torch.randint(3, vocab, (B, L), generator=torch.Generator().manual_seed(1))


def _lm_in(L=24):
    return lambda: {"input_ids": _ids(L)}


# ---- m01 hybrid: convolutions and attention -----------------------------------------------------
CFG = {
    "model_type": "lfm2",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "layer_types": ["conv", "full_attention", "conv", "full_attention"],
    "block_auto_adjust_ff_dim": False,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 10000.0,
        "factor": 8.0,
        "original_max_position_embeddings": 32,
    },
}


def _m01(right):
    from transformers.models.lfm2 import modeling_lfm2 as M

    c = M.Lfm2Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m01"].items() if k != "model_type"})
    )

    class Lfm2(M.Lfm2ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            if not right:  # rope_scaling is looked for; it is in rope_parameters
                scaling = getattr(config, "rope_scaling_v4", None)
                d = copy.deepcopy(config)
                d.rope_parameters = scaling or {
                    "rope_type": "default",
                    "rope_theta": config.rope_parameters["rope_theta"],
                }
                self.model.rotary_emb = M.Lfm2RotaryEmbedding(d)

    return _no_decay_seed(lambda: Lfm2(c), QK)


CASES_BY = {}


def model_case(id, config, **kw):
    CASES_BY[id] = config
    case(id, "model", config=config, signature=kw.pop("signature", "model(input_ids)"), **kw)


model_case(
    "m01",
    CFG,
    thread="https://github.com/sgl-project/sglang/pull/26187",
    date="2026-05",
    what="the YaRN entry under rope_parameters is not read (rope_scaling is asked for), so LFM2 runs with plain RoPE",
    part="factor",
    make_faulty=lambda: _m01(False),
    make_twin=lambda: _m01(True),
    make_inputs=_lm_in(64),
    notes="Hybrid: short convolutions and attention. Twin is transformers' Lfm2ForCausalLM.",
)

# ---- m02 hybrid: mamba and attention ------------------------------------------------------------
CFG = {
    "model_type": "granitemoehybrid",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "layer_types": ["linear_attention", "full_attention", "full_attention"],
    "position_embedding_type": "rope",
    "num_local_experts": 0,
    "num_experts_per_tok": 0,
    "shared_intermediate_size": 96,
    "mamba_n_heads": 8,
    "mamba_d_head": 16,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 16,
    "attention_multiplier": 0.25,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


def _m02(right):
    from transformers.models.granitemoehybrid import modeling_granitemoehybrid as M

    c = M.GraniteMoeHybridConfig(
        **copy.deepcopy({k: v for k, v in CASES_BY["m02"].items() if k != "model_type"})
    )

    class Granite(M.GraniteMoeHybridForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            if not right:
                self.model.rotary_emb = None  # position_embeddings stay None in every layer

    return _no_decay_seed(lambda: Granite(c), QK)


model_case(
    "m02",
    CFG,
    thread="https://github.com/huggingface/transformers/pull/42872",
    date="2025-12",
    what="position_embedding_type 'rope' is not looked at any more: no rotary tables are made and attention runs without positions",
    part="positions",
    make_faulty=lambda: _m02(False),
    make_twin=lambda: _m02(True),
    make_inputs=_lm_in(),
    notes="Class with Mamba-2 and attention layers (the thread: granite-4 variants that say 'rope', seen on non-hybrid ones). Twin is transformers' GraniteMoeHybridForCausalLM.",
)

# ---- m03 hybrid: mamba and attention without positions -----------------------------------------
CFG = {
    "model_type": "nemotron_h",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "layers_block_type": ["mamba", "attention", "mlp", "attention"],
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "ssm_state_size": 16,
    "mamba_num_heads": 8,
    "mamba_head_dim": 16,
    "n_groups": 1,
    "chunk_size": 16,
    "max_position_embeddings": 256,
    "use_mamba_kernels": False,
}


def _m03(right):
    from transformers.models.nemotron_h import modeling_nemotron_h as M

    c = M.NemotronHConfig(
        **copy.deepcopy({k: v for k, v in CASES_BY["m03"].items() if k != "model_type"})
    )

    class Rotated(M.NemotronHAttention):
        def forward(self, hidden_states, attention_mask=None, past_key_values=None, **kwargs):
            B, L, _ = hidden_states.shape
            past = (
                past_key_values.get_seq_length(self.layer_idx) if past_key_values is not None else 0
            )
            ang = (torch.arange(past, past + L)[:, None].float() * ladder(self.head_dim, 10000.0))[
                None, None
            ]

            def heads(lin):
                return lin(hidden_states).view(B, L, -1, self.head_dim).transpose(1, 2)

            q, k, v = (
                turn_halves(heads(self.q_proj), ang.cos(), ang.sin()),
                turn_halves(heads(self.k_proj), ang.cos(), ang.sin()),
                heads(self.v_proj),
            )
            if past_key_values is not None:
                k, v = past_key_values.update(k, v, self.layer_idx)
            out, w = M.eager_attention_forward(
                self, q, k, v, attention_mask, scaling=self.scaling, dropout=0.0
            )
            return self.o_proj(out.reshape(B, L, -1)), w

    def build():
        c._attn_implementation = "eager"
        m = M.NemotronHForCausalLM(c)
        if not right:
            for mod in m.modules():
                if isinstance(mod, M.NemotronHAttention):
                    mod.__class__ = Rotated
        return m

    return _no_decay_seed(build, QK)


model_case(
    "m03",
    CFG,
    thread="https://github.com/vllm-project/vllm/pull/30406",
    date="2025-12",
    what="RoPE is put into the attention layers of Nemotron-H as 'missing', though the model has none (order comes from the Mamba layers)",
    part="positions",
    make_faulty=lambda: _m03(False),
    make_twin=lambda: _m03(True),
    make_inputs=_lm_in(),
    notes="The PR (closed, not merged) is the fault. Twin is transformers' NemotronHForCausalLM. With the Mamba layers the "
    "twin still depends on order.",
)

# ---- m04 hybrid: gated delta net and attention -------------------------------------------------
CFG = {
    "model_type": "qwen3_next",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "num_experts": 0,
    "mlp_only_layers": [0, 1, 2, 3],
    "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000000.0,
        "partial_rotary_factor": 0.25,
    },
}


def _m04(right):
    from transformers.models.qwen3_next import modeling_qwen3_next as M

    c = M.Qwen3NextConfig(
        **copy.deepcopy({k: v for k, v in CASES_BY["m04"].items() if k != "model_type"})
    )

    def build():
        m = M.Qwen3NextForCausalLM(c)
        if not right:
            d = copy.deepcopy(c)
            d.rope_parameters = dict(
                c.rope_parameters,
                partial_rotary_factor=getattr(c, "partial_rotary_factor_top", 1.0),
            )
            m.model.rotary_emb = M.Qwen3NextRotaryEmbedding(d)
        return m

    return _no_decay_seed(build)


model_case(
    "m04",
    CFG,
    thread="https://github.com/chrishayuk/larql/pull/404",
    date="2026-09",
    what="partial_rotary_factor is looked for at the top level only, so the one inside rope_parameters is lost and whole heads are turned",
    part="layout",
    make_faulty=lambda: _m04(False),
    make_twin=lambda: _m04(True),
    make_inputs=_lm_in(),
    notes="Hybrid: gated delta net and gated attention; the thread is about Qwen3.5, built here as its sister Qwen3-Next. "
    "Twin is transformers' Qwen3NextForCausalLM.",
)

# ---- m05 encoder ------------------------------------------------------------------------------
CFG = {
    "model_type": "roberta",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 66,
    "pad_token_id": 1,
    "type_vocab_size": 1,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
}


def _m05(right):
    from transformers import RobertaConfig, RobertaModel

    class Flattened(nn.Module):
        """all sentences in one row, attention kept inside each; forward(input_ids (1, T), lengths)"""

        def __init__(self):
            super().__init__()
            c = RobertaConfig(
                **{k: v for k, v in CASES_BY["m05"].items() if k != "model_type"},
                attn_implementation="eager",
            )
            self.config = c
            self.encoder = RobertaModel(c, add_pooling_layer=False)

        def forward(self, input_ids, lengths):
            ids = torch.cat([torch.arange(n) for n in lengths])[None]
            if right:
                ids = ids + self.config.pad_token_id + 1
            seg = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)])
            mask = torch.zeros(len(seg), len(seg)).masked_fill(
                seg[:, None] != seg[None, :], torch.finfo(torch.float32).min
            )
            return self.encoder(
                input_ids=input_ids, position_ids=ids, attention_mask=mask[None, None]
            ).last_hidden_state

    return _no_decay_seed(Flattened)


model_case(
    "m05",
    CFG,
    thread="https://github.com/huggingface/sentence-transformers/pull/3879",
    date="2026-07",
    what="sentences flattened into one row get position ids from 0; RoBERTa counts from padding_idx + 1 = 2, so every token reads a wrong row",
    part="packing",
    make_faulty=lambda: _m05(False),
    make_twin=lambda: _m05(True),
    make_inputs=lambda: {"input_ids": _ids(20, 1), "lengths": [9, 4, 7]},
    signature="model(input_ids (1, T), lengths)",
    notes="Encoder with learned positions. The twin gives each sentence what RobertaModel gives it alone (checked).",
)

# ---- m06 encoder with a relative bias ------------------------------------------------------------
CFG = {
    "model_type": "deberta-v2",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "relative_attention": True,
    "position_buckets": 8,
    "max_relative_positions": -1,
    "pos_att_type": ["c2p", "p2c"],
    "position_biased_input": False,
    "norm_rel_ebd": "none",
    "share_att_key": True,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "initializer_range": 0.2,
    "type_vocab_size": 0,
}


def _m06(right):
    from transformers.models.deberta_v2 import modeling_deberta_v2 as M

    c = M.DebertaV2Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m06"].items() if k != "model_type"})
    )

    class Ported(M.DisentangledSelfAttention):
        def disentangled_attention_bias(
            self, query_layer, key_layer, relative_pos, rel_embeddings, scale_factor
        ):
            """score[q, k] = Q_q . PK[r(q,k) + span] + K_k . PQ[index], written without the transpose"""
            r = relative_pos.reshape(relative_pos.shape[-2:]).long()
            span, heads = self.pos_ebd_size, self.num_attention_heads
            rel = rel_embeddings[: span * 2].unsqueeze(0)
            n = query_layer.size(0) // heads
            pk = self.transpose_for_scores(self.key_proj(rel), heads).repeat(n, 1, 1)
            pq = self.transpose_for_scores(self.query_proj(rel), heads).repeat(n, 1, 1)
            scale = math.sqrt(query_layer.size(-1) * scale_factor)
            c2p = (r + span).clamp(0, 2 * span - 1)
            p2c = ((r if right else -r) + span).clamp(0, 2 * span - 1)
            q_pk = torch.gather(
                query_layer @ pk.transpose(1, 2), 2, c2p.expand(query_layer.size(0), -1, -1)
            )
            k_pq = key_layer @ pq.transpose(1, 2)  # (heads, key, 2 span)
            k_pq = torch.gather(k_pq, 2, p2c.T.expand(key_layer.size(0), -1, -1)).transpose(1, 2)
            return (q_pk + k_pq) / scale

    def build():
        m = M.DebertaV2Model(c)
        for layer in m.encoder.layer:
            layer.attention.self.__class__ = Ported
        return m

    return _no_decay_seed(build)


model_case(
    "m06",
    CFG,
    thread="https://github.com/nntrainer/nntrainer/pull/3982",
    date="2026-06",
    what="the position-to-content term is indexed with -bucket(q-k) as in HF's code before its transpose, so its direction is flipped",
    part="bias",
    make_faulty=lambda: _m06(False),
    make_twin=lambda: _m06(True),
    make_inputs=_lm_in(20),
    notes="Encoder with disentangled relative attention. Twin equals transformers' own DebertaV2Model (checked).",
)

# ---- m07 encoder-decoder ------------------------------------------------------------------------
CFG = {
    "model_type": "t5",
    "vocab_size": 96,
    "d_model": 64,
    "d_kv": 16,
    "d_ff": 96,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "relative_attention_num_buckets": 8,
    "relative_attention_max_distance": 32,
    "dropout_rate": 0.0,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "is_encoder_decoder": True,
}


def _m07(right):
    from transformers.models.t5 import modeling_t5 as M

    c = M.T5Config(**copy.deepcopy({k: v for k, v in CASES_BY["m07"].items() if k != "model_type"}))

    class Cached(M.T5Attention):
        def compute_bias(self, query_length, key_length, device=None, past_seen_tokens=0):
            b = super().compute_bias(
                query_length, key_length, device=device, past_seen_tokens=past_seen_tokens
            )
            return torch.zeros_like(b) if int(past_seen_tokens) > 0 else b

    def build():
        m = M.T5ForConditionalGeneration(c)
        if not right:
            m.decoder.block[0].layer[0].SelfAttention.__class__ = Cached
        return m

    return _no_decay_seed(build, ("relative_attention_bias.weight",))


def run_t5(model, inputs):
    """decode token by token with the cache -> (B, L, vocab)"""
    with torch.no_grad():
        enc = model.get_encoder()(input_ids=inputs["input_ids"])
        past, out = None, []
        for t in range(inputs["decoder_input_ids"].shape[1]):
            o = model(
                encoder_outputs=enc,
                decoder_input_ids=inputs["decoder_input_ids"][:, t : t + 1],
                past_key_values=past,
                use_cache=True,
            )
            past = o.past_key_values
            out.append(o.logits)
    return torch.cat(out, 1)


model_case(
    "m07",
    CFG,
    thread="https://github.com/NVIDIA/TensorRT-LLM/pull/13870",
    date="2026-05",
    what="as soon as a KV cache is present the T5 decoder's relative position bias is left out",
    part="cache",
    make_faulty=lambda: _m07(False),
    make_twin=lambda: _m07(True),
    make_inputs=lambda: {"input_ids": _ids(12), "decoder_input_ids": _ids(10)},
    run=run_t5,
    signature="stepwise: model(encoder_outputs, decoder_input_ids (B, 1), past_key_values, use_cache=True)",
    notes="Right without a cache and at the first step. Twin: stepwise equals one pass over all tokens (checked). "
    "Found in review, before merging.",
)

# ---- m08 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "gemma3_text",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "sliding_window": 12,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
    "max_position_embeddings": 256,
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1000000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    },
}


def _m08(right):
    from transformers.models.gemma3 import modeling_gemma3 as M

    c = M.Gemma3TextConfig(
        **copy.deepcopy({k: v for k, v in CASES_BY["m08"].items() if k != "model_type"})
    )

    class Gemma3(M.Gemma3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            if not right:  # base per layer, scaling for the whole model
                r = self.model.rotary_emb
                f = config.rope_parameters["full_attention"]["factor"]
                r.sliding_attention_inv_freq = r.sliding_attention_inv_freq / f

    return _no_decay_seed(lambda: Gemma3(c))


model_case(
    "m08",
    CFG,
    thread="https://github.com/antonellof/ferrox/issues/39",
    date="2026-09",
    what="Gemma 3's linear factor 8 is kept once for the whole model, so the sliding layers, which are unscaled, are slowed down 8 times",
    part="factor",
    make_faulty=lambda: _m08(False),
    make_twin=lambda: _m08(True),
    make_inputs=_lm_in(32),
    notes="The base is per layer and right. Twin is transformers' Gemma3ForCausalLM.",
)

# ---- m09 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "gemma2",
    "vocab_size": 96,
    "hidden_size": 96,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "query_pre_attn_scalar": 24,
    "sliding_window": 12,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


def _m09(right):
    from transformers.models.gemma2 import modeling_gemma2 as M

    c = M.Gemma2Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m09"].items() if k != "model_type"})
    )

    def build():
        m = M.Gemma2ForCausalLM(c)
        if not right:
            for layer in m.model.layers:
                layer.self_attn.scaling = layer.self_attn.head_dim**-0.5
        return m

    return _no_decay_seed(build, QK)


model_case(
    "m09",
    CFG,
    thread="https://github.com/antonellof/ferrox/pull/65",
    date="2026-09",
    what="scores are scaled by 1/sqrt(head_dim) although the 27B-like config says query_pre_attn_scalar = hidden / heads (24, not 16)",
    part="scale",
    make_faulty=lambda: _m09(False),
    make_twin=lambda: _m09(True),
    make_inputs=_lm_in(),
    notes="Softmax too sharp by sqrt(24/16). Twin is transformers' Gemma2ForCausalLM.",
)

# ---- m10 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "exaone4",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "sliding_window": 12,
    "sliding_window_pattern": "LLLG",
    "layer_types": [
        "sliding_attention",
        "sliding_attention",
        "sliding_attention",
        "full_attention",
    ],
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}


def _m10(right):
    from transformers.models.exaone4 import modeling_exaone4 as M

    c = M.Exaone4Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m10"].items() if k != "model_type"})
    )

    def build():
        m = M.Exaone4ForCausalLM(c)
        if not right:
            for layer in m.model.layers:  # apply_all_layers came out true
                if not layer.self_attn.is_sliding:
                    layer.self_attn.sliding_window = None
        return m

    return _no_decay_seed(build)


model_case(
    "m10",
    CFG,
    thread="https://github.com/vllm-project/vllm/pull/23918",
    date="2025-08",
    what="after a clean-up RoPE is applied in every layer of EXAONE-4 32B; its full-attention layers have none",
    part="positions",
    make_faulty=lambda: _m10(False),
    make_twin=lambda: _m10(True),
    make_inputs=_lm_in(32),
    notes="Twin is transformers' Exaone4ForCausalLM.",
)

# ---- m11 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "smollm3",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "no_rope_layers": [1, 1, 1, 0],
    "use_sliding_window": False,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "rope_theta": 5000000.0},
}


def _m11(right):
    from transformers.models.smollm3 import modeling_smollm3 as M

    c = M.SmolLM3Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m11"].items() if k != "model_type"})
    )

    def build():
        m = M.SmolLM3ForCausalLM(c)
        if not right:
            for layer in m.model.layers:
                layer.self_attn.use_rope = 1
        return m

    return _no_decay_seed(build, QK)


model_case(
    "m11",
    CFG,
    thread="https://github.com/timtoole02/Camelid/pull/535",
    date="2026-07",
    what="SmolLM3 is loaded as a Llama: every layer is turned, although each fourth layer (no_rope_layers 0) has no RoPE",
    part="positions",
    make_faulty=lambda: _m11(False),
    make_twin=lambda: _m11(True),
    make_inputs=_lm_in(),
    notes="Only the last of four layers is wrong. Twin is transformers' SmolLM3ForCausalLM.",
)

# ---- m12 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "llama",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
}


def _m12(right):
    from transformers.models.llama import modeling_llama as M

    c = M.LlamaConfig(
        **copy.deepcopy({k: v for k, v in CASES_BY["m12"].items() if k != "model_type"})
    )

    class Llama(M.LlamaForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            if not right:
                d = copy.deepcopy(config)
                d.rope_parameters = {
                    "rope_type": "default",
                    "rope_theta": getattr(config, "rope_theta", 10000.0),
                }
                self.model.rotary_emb = M.LlamaRotaryEmbedding(d)

    return _no_decay_seed(lambda: Llama(c), QK)


model_case(
    "m12",
    CFG,
    thread="https://github.com/deepspeedai/DeepSpeed/pull/8345",
    date="2026-09",
    what="getattr(config, 'rope_theta', 10000) gets the default since transformers 5 keeps the base in rope_parameters (500000)",
    part="base",
    make_faulty=lambda: _m12(False),
    make_twin=lambda: _m12(True),
    make_inputs=_lm_in(48),
    notes="Twin is transformers' LlamaForCausalLM.",
)

# ---- m13 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "gpt2",
    "vocab_size": 96,
    "n_embd": 64,
    "n_layer": 2,
    "n_head": 4,
    "n_positions": 64,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "initializer_range": 0.2,
    "padding_side": "left",
}


def _m13(right):
    from transformers import GPT2Config, GPT2LMHeadModel

    c = GPT2Config(
        **{k: v for k, v in CASES_BY["m13"].items() if k not in ("model_type", "padding_side")}
    )

    class Batched(GPT2LMHeadModel):
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **kw):
            if right and position_ids is None and attention_mask is not None:
                position_ids = (attention_mask.long().cumsum(-1) - 1).clamp(min=0)
                position_ids = position_ids[:, -input_ids.shape[1] :]
            return super().forward(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, **kw
            )

    return _no_decay_seed(lambda: Batched(c))


def _m13_in():
    ids, m = _ids(12), torch.ones(2, 12, dtype=torch.long)
    m[0, :4], ids[0, :4] = 0, 0
    return {"input_ids": ids, "attention_mask": m}


model_case(
    "m13",
    CFG,
    thread="https://github.com/ndif-team/nnsight/pull/673",
    date="2026-06",
    what="batches are padded on the left but no position ids are given, so GPT-2 reads learned positions moved by the padding",
    part="padding",
    make_faulty=lambda: _m13(False),
    make_twin=lambda: _m13(True),
    make_inputs=_m13_in,
    signature="model(input_ids, attention_mask)",
    notes="Twin: a padded row gives at its tokens what it gives alone (checked).",
)

# ---- m14 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "deepseek_v2",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 96,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 16,
    "v_head_dim": 16,
    "kv_lora_rank": 24,
    "rope_theta": 10000.0,
    "max_position_embeddings": 2560,
    "rope_scaling": {
        "type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 0.707,
    },
}


def _m14(right):
    s = CASES_BY["m14"]["rope_scaling"]

    class MLA(nn.Module):
        def __init__(self):
            super().__init__()
            self.q_proj = nn.Linear(64, 4 * 32, bias=False)
            self.kv_a = nn.Linear(64, 24 + 16, bias=False)
            self.kv_b = nn.Linear(24, 4 * 32, bias=False)
            self.o_proj = nn.Linear(64, 64, bias=False)
            m = mscale(s["factor"], s["mscale_all_dim"] if right else s["mscale"])
            self.softmax_scale = m * m / math.sqrt(32)
            self.gain = mscale(s["factor"], s["mscale"]) / mscale(s["factor"], s["mscale_all_dim"])
            self.register_buffer(
                "inv_freq", yarn_ladder(16, 10000.0, s["factor"], 64), persistent=False
            )

        def forward(self, x, position_ids):
            B, L, _ = x.shape
            ang = (position_ids[..., None].float() * self.inv_freq)[:, None]
            cos, sin = ang.cos() * self.gain, ang.sin() * self.gain
            q = self.q_proj(x).view(B, L, 4, 32).transpose(1, 2)
            q = torch.cat((q[..., :16], turn_pairs(q[..., 16:], cos, sin)), -1)
            lat, kpe = self.kv_a(x).split((24, 16), -1)
            kv = self.kv_b(lat).view(B, L, 4, 32).transpose(1, 2)
            k = torch.cat(
                (kv[..., :16], turn_pairs(kpe[:, None], cos, sin).expand(B, 4, L, 16)), -1
            )
            w = (q @ k.transpose(-1, -2)) * self.softmax_scale
            w = w.masked_fill(torch.ones(L, L, dtype=torch.bool).triu(1), float("-inf")).softmax(-1)
            return self.o_proj((w @ kv[..., 16:]).transpose(1, 2).reshape(B, L, 64))

    class Tiny(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(96, 64)
            self.layers = nn.ModuleList(MLA() for _ in range(2))
            self.head = nn.Linear(64, 96, bias=False)

        def forward(self, input_ids, position_ids=None):
            if position_ids is None:
                position_ids = torch.arange(input_ids.shape[1]).expand_as(input_ids)
            x = self.embed(input_ids)
            for layer in self.layers:
                x = x + layer(nn.functional.layer_norm(x, (64,)), position_ids)
            return self.head(x)

    return _no_decay_seed(Tiny, ("q_proj.weight",))


model_case(
    "m14",
    CFG,
    thread="https://github.com/NVIDIA/Megatron-LM/issues/1429",
    date="2025-02",
    what="MLA's softmax scale takes mscale^2 with `mscale` in place of `mscale_all_dim`",
    part="scale",
    make_faulty=lambda: _m14(False),
    make_twin=lambda: _m14(True),
    make_inputs=_lm_in(),
    signature="model(input_ids, position_ids=None)",
    notes="Own small nn.Module, DeepSeek style. Shows only where the two fields differ; DeepSeek's own files have them equal.",
)

# ---- m15 ----------------------------------------------------------------------------------------
CFG = {
    "model_type": "qwen3",
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}


def _m15(right):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    c = Qwen3Config(
        **copy.deepcopy({k: v for k, v in CASES_BY["m15"].items() if k != "model_type"})
    )

    class Thinker(Qwen3ForCausalLM):
        def forward(self, input_ids=None, past_key_values=None, position_ids=None, **kw):
            if position_ids is None:
                L = input_ids.shape[1]
                past = (
                    past_key_values.get_seq_length() if past_key_values is not None and right else 0
                )
                position_ids = torch.arange(past, past + L).expand(input_ids.shape[0], L)
            return super().forward(
                input_ids=input_ids,
                past_key_values=past_key_values,
                position_ids=position_ids,
                **kw,
            )

    return _no_decay_seed(lambda: Thinker(c))


def run_cached(model, inputs):
    """prefill 8 tokens, then one at a time -> (B, L, vocab)"""
    ids = inputs["input_ids"]
    with torch.no_grad():
        o = model(input_ids=ids[:, :8], use_cache=True)
        out, past = [o.logits], o.past_key_values
        for t in range(8, ids.shape[1]):
            o = model(input_ids=ids[:, t : t + 1], past_key_values=past, use_cache=True)
            past = o.past_key_values
            out.append(o.logits)
    return torch.cat(out, 1)


model_case(
    "m15",
    CFG,
    thread="https://github.com/Blaizzy/mlx-vlm/issues/1983",
    date="2026-08",
    what="position ids are arange(length of the input) with no look at the cache, so each decoded token is at position 0",
    part="cache",
    make_faulty=lambda: _m15(False),
    make_twin=lambda: _m15(True),
    make_inputs=_lm_in(20),
    run=run_cached,
    signature="prefill, then model(input_ids (B, 1), past_key_values, use_cache=True)",
    notes="The thread is about Qwen3-Omni's text path. Prefill is right. Twin: cached equals uncached (checked).",
)


# =================================================================================== CONFIGURATION FILES
def config_case(id, faulty, twin, **kw):
    case(
        id,
        "config",
        config=faulty,
        make_faulty=lambda: copy.deepcopy(faulty),
        make_twin=lambda: copy.deepcopy(twin),
        make_inputs=tuple,
        signature="dict",
        **kw,
    )


def but(d, drop=(), **kw):
    d = copy.deepcopy(d)
    for k in drop:
        d.pop(k, None)
    d.update(kw)
    return d


# g01
T = {
    "architectures": ["Qwen2MoeForCausalLM"],
    "model_type": "qwen2_moe",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "max_position_embeddings": 32768,
    "max_window_layers": 28,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "use_sliding_window": False,
}
config_case(
    "g01",
    but(T, max_position_embeddings=131072, sliding_window=131072),
    T,
    thread="https://github.com/QwenLM/Qwen/issues/1287",
    date="2024-06",
    what="max_position_embeddings and sliding_window say 131072 where the model has 32k and there is no rope_scaling to reach further",
    part="config",
    notes="Base model Qwen2-57B-A14B; the Instruct file says 32768.",
)

# g02
T = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 1,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "rope_scaling": None,
    "draft_vocab_size": 32000,
    "vocab_size": 151936,
}
config_case(
    "g02",
    but(T, max_position_embeddings=2048),
    T,
    thread="https://github.com/sgl-project/SpecForge/issues/249",
    date="2025-10",
    what="the EAGLE-3 draft of Qwen3-8B says max_position_embeddings 2048 while its target has 40960: tables end, or stretch, too soon",
    part="config",
    notes="Reported: accept length very low until set to 40960.",
)

# g03
T = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 36,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}
config_case(
    "g03",
    but(T, max_position_embeddings=40960),
    T,
    thread="https://github.com/huggingface/transformers/issues/38224",
    date="2025-05",
    what="two factors in one file: factor 4.0 against max/original = 40960/32768 = 1.25; transformers then took 1.25",
    part="config",
    notes="The thread asks that factor wins. The twin makes the two agree.",
)

# g04
T = {
    "recipe": "GPTOSSConfig120B",
    "position_embedding_type": "yarn",
    "rotary_base": 150000,
    "yarn_rotary_scaling_factor": 32.0,
    "yarn_original_max_position_embeddings": 4096,
    "yarn_beta_fast": 32.0,
    "yarn_beta_slow": 1.0,
    "yarn_correction_range_round_to_int": False,
    "kv_channels": 64,
    "num_attention_heads": 64,
    "num_query_groups": 8,
    "seq_length": 131072,
}
config_case(
    "g04",
    but(T, yarn_original_max_position_embeddings=131072),
    T,
    thread="https://github.com/NVIDIA-NeMo/Speech/issues/14686",
    date="2025-09",
    what="yarn_original_max_position_embeddings is the extended length 131072; the original is 4096 (factor 32), so the ramp is moved",
    part="factor",
    notes="NeMo's field names. 4096 * 32 = 131072.",
)

# g05
T = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
        "attention_factor": 1.0,
    },
}
config_case(
    "g05",
    but(
        T,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 4.0,
            "original_max_position_embeddings": 32768,
            "attn_factor": 0.8782488562869419,
        },
    ),
    T,
    thread="https://github.com/deepseek-ai/DeepSeek-R1/issues/684",
    date="2025-06",
    what="the key is attn_factor, which transformers does not know (attention_factor), so the gain silently becomes 0.1 ln 4 + 1",
    part="gain",
    notes="0.8782 = 1/1.1386: where attn_factor multiplies mscale (vLLM, llama.cpp) the net gain is 1.0, hence "
    "attention_factor 1.0 in the twin. The thread does not settle which gain is better.",
)

# g06
T = {
    "hf_overrides": True,
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 1000000,
        "factor": 4,
        "original_max_position_embeddings": 32768,
    },
}
config_case(
    "g06",
    but(T, rope_parameters=dict(T["rope_parameters"], rope_theta=1000)),
    T,
    thread="https://github.com/vllm-project/vllm-ascend/issues/5201",
    date="2025-12",
    what="the override printed in the tutorial has rope_theta 1000 for a model with 1000000",
    part="base",
    notes="Output of the override: digits and scraps of words.",
)

# g07
T = {
    "architectures": ["MiniMaxM2ForCausalLM"],
    "model_type": "minimax_m2",
    "hidden_size": 3072,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 62,
    "max_position_embeddings": 196608,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 5000000,
        "partial_rotary_factor": 0.5,
    },
}
config_case(
    "g07",
    but(T, drop=("rope_parameters",), rope_theta=5000000, rotary_dim=64),
    T,
    thread="https://github.com/huggingface/transformers/issues/48241",
    date="2026-08",
    what="the rotary width is given as the old rotary_dim 64, which was kept but not read: all 128 dims were turned",
    part="layout",
    notes="transformers 5.23 maps it; readers that know only partial_rotary_factor do not.",
)

# g08
T = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_hidden_layers": 5,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "sliding_window": 2048,
    "use_sliding_window": True,
    "max_window_layers": 0,
}
config_case(
    "g08",
    but(T, drop=("use_sliding_window", "max_window_layers")),
    T,
    thread="https://github.com/Blackwellboy/model-serving-minefield/issues/107",
    date="2026-09",
    what="sliding_window 2048 is declared, but use_sliding_window (default false) and max_window_layers (default 28 of 5) "
    "both switch it off: every layer is full attention",
    part="window",
    notes="A five-layer draft. Checked with transformers' Qwen3Config.layer_types.",
)

# g09
T = {
    "architectures": ["Glm4vMoeForConditionalGeneration"],
    "model_type": "glm4v_moe_text",
    "hidden_size": 4096,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 500000,
        "partial_rotary_factor": 0.5,
        "mrope_section": [8, 12, 12],
    },
}
config_case(
    "g09",
    but(T, rope_theta=10000),
    T,
    thread="https://github.com/THUDM/slime/pull/1720",
    date="2026-03",
    what="two bases: a stale top-level rope_theta 10000 beside rope_parameters.rope_theta 500000; readers of the first are wrong",
    part="config",
    notes="In the thread the stale one is a class default that shows through.",
)

# g10
T = {
    "model_type": "glm5",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "kv_channels": 128,
    "rope_theta": 500000,
    "max_sequence_length": 131072,
    "position_embedding_type": "rope",
}
config_case(
    "g10",
    but(T, rope_theta=10000.0, rotary_base=500000),
    T,
    thread="https://github.com/PaddlePaddle/PaddleFleet/pull/2026",
    date="2026-09",
    what="the base stands under two names, rotary_base 500000 and rope_theta 10000, and different modules read different ones",
    part="config",
    notes="PaddleFleet now refuses such a file; the twin carries the migrated field.",
)

# g11
T = {
    "architectures": ["Phi3ForCausalLM"],
    "model_type": "phi3",
    "hidden_size": 3072,
    "num_attention_heads": 24,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "partial_rotary_factor": 0.75,
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "longrope",
        "short_factor": [1.0] * 48,
        "long_factor": [1.0 + 0.5 * i for i in range(48)],
    },
}
config_case(
    "g11",
    but(
        T,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0] * 64,
            "long_factor": [1.0 + 0.5 * i for i in range(64)],
        },
    ),
    T,
    thread="https://github.com/mlc-ai/mlc-llm/pull/3268",
    date="2025-06",
    what="the LongRoPE lists have head_dim/2 = 64 entries; with partial_rotary_factor 0.75 there are rotary_dim/2 = 48 pairs",
    part="config",
    notes="The thread is about the buffer's length in the converter; factors here are made up.",
)

# g12
T = {
    "architectures": ["SmolLM3ForCausalLM"],
    "model_type": "smollm3",
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "no_rope_layer_interval": 4,
    "no_rope_layers": [1, 1, 1, 0, 1, 1, 1, 0],
    "max_position_embeddings": 65536,
    "rope_theta": 5000000.0,
    "use_sliding_window": False,
}
config_case(
    "g12",
    but(T, no_rope_layers=[0, 0, 0, 1, 0, 0, 0, 1]),
    T,
    thread="https://github.com/huggingface/transformers/issues/43756",
    date="2026-02",
    what="no_rope_layers is written as its name reads (1 = no RoPE), while 1 is read as 'use RoPE': 3 of 4 layers lose their positions",
    part="config",
    notes="Contradicts no_rope_layer_interval 4 in the same file. Whether a published file was ever so is disputed there.",
)

# g13
T = {
    "architecture": "DeepseekV4ForCausalLM",
    "multi_latent_attention": True,
    "kv_channels": 512,
    "qk_head_dim": 448,
    "qk_pos_emb_head_dim": 64,
    "num_attention_heads": 64,
    "rotary_base": 10000,
    "rotary_percent": 1.0,
    "rope_type": "yarn",
}
config_case(
    "g13",
    but(T, rotary_percent=0.125),
    T,
    thread="https://github.com/NVIDIA-NeMo/Megatron-Bridge/pull/4271",
    date="2026-06",
    what="the partial factor 0.125 (of the 512-wide head) is set again on top of qk_pos_emb_head_dim 64: 8 dims turn in place of 64",
    part="layout",
    notes="Megatron's field names; 0.125 * 512 = 64.",
)

# g14
T = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "max_position_embeddings": 16384,
    "rope_theta": 40000.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "train": {"max_prompt_length": 1024, "max_response_length": 8192},
}
config_case(
    "g14",
    but(T, max_position_embeddings=4096, rope_theta=10000.0),
    T,
    thread="https://github.com/TsinghuaC3I/Unify-Post-Training/issues/5",
    date="2025-10",
    what="responses of 8192 tokens are asked of Qwen2.5-Math with max_position_embeddings 4096 and base 10000",
    part="config",
    notes="The authors' file has base 40000 and 16384. The 'train' entry stands for the training script's flags.",
)
