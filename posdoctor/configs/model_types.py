"""What no field of a configuration says: facts about model types, read from their published code.

tests/test_published.py holds every line against transformers, by running the models. What their
configuration classes take where a file says nothing, and which fields they read, is in
defaults.json, which `python tests/defaults.py` writes.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


LISTS: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("model_types.json").read_text(encoding="utf-8")
)

# Pairs of neighbours, (0, 1), (2, 3), ... Most of those with latent attention reorder them first.
INTERLEAVED = frozenset(LISTS["interleaved"])

# Pairs of a component and the one half a rotary width further.
HALF = frozenset(LISTS["half"])

# Attention without positions in all layers: order comes from the recurrent ones.
WITHOUT = names("glm5_next_text jamba kimi_linear nemotron_h")

ROTATING = HALF | INTERLEAVED | WITHOUT  # all that is known

# Layers rotate inside windows only, and those that see everything have no positions.
WINDOWS_ONLY = names("afmoe cohere2 cohere2_moe exaone4 exaone_moe flint kolibri1")

# Several kinds of layers, in an order that only a list tells.
LISTED = names("zamba2")

# Of these the last layer, and each fourth before it, has no positions.
NONE_BEFORE_THE_END = names("muse_glimmer_text muse_spark_text")

# One layer in so many has no positions where no field says so: a default in the code.
NO_ROPE_EVERY = {"mistral_large4_text": 4}

# Rotations by the negative angle.
BACKWARDS = frozenset(["nanochat"])

# Encoders, whose window counts what is seen on each side besides the token itself.
SYMMETRIC = names("embedding_gemma2_text modernbert neomme openai_privacy_filter ultrabert")

# The width that rotates stands in `rotary_dim`; elsewhere that name is not read.
READS_ROTARY_DIM = names("codegen gptj minimax_m2")

# Bases that stand in the code, and that no field of a file changes.
FIXED_BASE = dict.fromkeys(names("codegen gptj roformer"), 10000.0)

# Types whose files say "absolute", which nothing reads.
ABSOLUTE_UNREAD = names("modernbert modernbert-decoder")

# Layers with two attentions each.
TWICE = frozenset(["longcat_flash"])

# Names that a type had before its class was published.
FORMER = {"exaone4_5_text": "exaone4", "kimi_k2": "deepseek_v3"}

# Models of several parts that take no notice of the type that their text names.
OWN_TEXT = names("step3p7")

# Names that files have for the same field.
SAME = {
    **dict.fromkeys(names("n_embd n_embed"), "hidden_size"),
    "n_head": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    **dict.fromkeys(names("n_layer num_layers n_layers"), "num_hidden_layers"),
    "n_positions": "max_position_embeddings",
    "rotary_pct": "partial_rotary_factor",
    **dict.fromkeys(names("rotary_emb_base global_rope_theta rope_base"), "rope_theta"),
    "local_rope_theta": "rope_local_base_freq",
}

# Fields of a file that speak of rotation and are read, or are known to change nothing here.
ROTARY_FIELDS = frozenset(LISTS["rotary_fields"])

# Fields that say whether anything rotates; files of types that always rotate have them too.
SWITCHES = names("rope rotary use_rope use_rotary use_rotary_embedding use_rotary_embeddings")

# What models that do not rotate do instead.
TABLE = "adds a learned table to its input: use pe_lib.Learned"
SINUSOIDS = "adds sinusoids to its input: use pe_lib.Sinusoidal"
ALIBI = "adds biases that grow with distance to its logits: use pe_lib.ALiBi"
BUCKETS = "adds learned biases by buckets of distance to its logits: use pe_lib.T5Bias"
DISENTANGLED = "scores contents and distances apart: use pe_lib.DeBERTa"
FOUR_TERMS = "scores contents and distances in four terms: use pe_lib.TransformerXL"
NEITHER = "has no attention"
BY_HIDDEN = "reads a bias for each distance from the hidden state: no class of pe_lib"
TWO_NUMBERS = "rotates one half by a place and the other by another: use pe_lib.AxialRoPE"
REFUSED = {
    name: reason
    for reason, group in {
        TABLE: """albert bart bert biogpt blenderbot camembert distilbert electra ernie gpt2
            gpt_bigcode gpt_neo imagegpt led longformer mbart megatron-bert mobilebert opt roberta
            xlm-roberta""",
        SINUSOIDS: "ctrl fsmt m2m_100 marian pegasus speech_to_text xglm",
        ALIBI: "bloom mpt",
        BUCKETS: "longt5 mt5 pop2piano switch_transformers t5 udop umt5",
        DISENTANGLED: "deberta deberta-v2 sew-d",
        FOUR_TERMS: "xlnet",
        NEITHER: "falcon_mamba mamba mamba2 rwkv",
        BY_HIDDEN: "inkling_text inkling2_text",
        "adds sinusoids in its encoder and a learned table in its decoder": "whisper",
    }.items()
    for name in names(group)
}


@cache
def defaults() -> dict[str, Any]:
    """Return the table: the version of transformers, the texts of other models, the types."""
    text = Path(__file__).with_name("defaults.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def known(model_type: object) -> bool:
    """Return whether the class of a model type is known here."""
    return model_type in ROTATING or model_type in REFUSED


def text_type(model_type: object, whole: object = None) -> object:
    """Return the model type that a class reads a text's fields as, in a model of type `whole`.

    A text that names no type, or that of the whole, has the type that the whole's class gives it.
    """
    if model_type in (None, whole) or whole in OWN_TEXT:
        model_type = defaults()["texts"].get(whole, model_type or whole)
    found = FORMER.get(f"{model_type}", model_type)
    return f"{found}_text" if not known(found) and known(f"{found}_text") else found


def defaults_of(model_type: object) -> dict[str, Any]:
    """Return the row of a model type; empty if it is not known."""
    found: dict[str, Any] = defaults()["types"].get(f"{model_type}", {})
    return found


def layout_of(model_type: object) -> str | None:
    """Return which components this model type pairs, or None if that is not known."""
    if model_type in INTERLEAVED:
        return "interleaved"
    return "half" if model_type in HALF else None
