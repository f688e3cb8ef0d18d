"""What no field of a configuration says: facts about model types, read from their published code.

tests/test_configs.py holds every line against transformers, by running the models.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


# Pairs of neighbours, (0, 1), (2, 3), ... Most of those with latent attention reorder them first.
INTERLEAVED = names(
    """
    axk1 axk2 bailing_hybrid codegen cohere cohere2 cohere2_moe deepseek_v2 deepseek_v3 deepseek_v32
    deepseek_v4 dots3_note_text ernie4_5 ernie4_5_moe ernie4_5_vl_moe_text glm glm4 glm4_moe_lite
    glm4v_text glm_moe_dsa glm_ocr_text gptj helium llama4_text longcat_flash mistral4
    mistral_large4_text openai_privacy_filter roformer youtu
    """
)

# Pairs of a component and the one half a rotary width further.
HALF = names(
    """
    afmoe apertus arcee aria_text bamba beam bitnet cohere_compass_text cosmos3_edge_text csm
    csm_depth_decoder_model cwm
    deepseek_ocr2_text diffllama diffusion_gemma_text doge dots1 embedding_gemma2_text
    emu3_text_model esmc eurobert exaone4 exaone_moe falcon falcon_h1 flex_olmo flint gemma gemma2
    gemma3_text gemma3n_text gemma4_text gemma4_unified_text glm4_moe glm4v_moe_text glm_image_text
    gpt_neox gpt_neox_japanese gpt_oss granite granite4_vision_text granite_docling_text granite_swa
    granitemoe granitemoe_swa granitemoehybrid granitemoeshared gte higgs_audio_v2 hrm_text
    hunyuan_v1_dense hunyuan_v1_moe hunyuan_vl_text hy_v3 hy_v4 hyperclovax jais2 jetmoe
    jina_embeddings_v3 kolibri1 laguna lfm2 lfm2_moe lfm3 llama mellum mimo_v2_flash minicpm3
    minimax minimax_m2 minimax_m3_vl_text ministral ministral3 mistral mixtral mllama_text_model
    modernbert modernbert-decoder molmo2_text muse_glimmer_text muse_spark_text nanochat nemotron
    neomme nomic_bert olmo olmo2 olmo3 olmo_hybrid olmoe paddleocr_vl_text persimmon phi phi3 phimoe
    qwen2 qwen2_5_omni_talker qwen2_5_omni_text qwen2_5_vl_text qwen2_moe qwen2_vl_text qwen3
    qwen3_5_moe_text qwen3_5_text qwen3_moe qwen3_next qwen3_omni_moe_text
    qwen3_omni_moe_talker_code_predictor qwen3_omni_moe_talker_text qwen3_vl_moe_text qwen3_vl_text
    qwen4_exp_text recurrent_gemma seed_oss smollm3 solar_open stablelm starcoder2 step3p5 ultrabert
    unlimited_ocr_text vaultgemma voxtral_realtime_text zamba2 zaya
    """
)

# Attention without positions in all layers: order comes from the recurrent ones.
WITHOUT = names("glm5_next_text jamba kimi_linear nemotron_h")

# Layers rotate inside windows only, and those that see everything have no positions.
WINDOWS_ONLY = names("afmoe cohere2 cohere2_moe exaone4 exaone_moe flint kolibri1")

# Rotations by the negative angle.
BACKWARDS = frozenset(["nanochat"])

# Encoders, whose window counts what is seen on each side besides the token itself.
SYMMETRIC = names("embedding_gemma2_text modernbert neomme openai_privacy_filter ultrabert")

# The width that rotates stands in `rotary_dim`; elsewhere that name is not read.
READS_ROTARY_DIM = names("codegen gptj minimax_m2")

# The base is a number in the code.
FIXED_BASE = dict.fromkeys(names("codegen gptj roformer"), 10000.0)

# Layers with two attentions each.
TWICE = frozenset(["longcat_flash"])

# Kinds of layers that repeat where a file lists none, as the configuration classes have it.
CYCLES = {
    **dict.fromkeys(names("gemma2 gpt_oss vaultgemma"), "sliding_attention full_attention"),
    **dict.fromkeys(names("cohere2 olmo3"), "sliding_attention " * 3 + "full_attention"),
    **dict.fromkeys(names("gemma3n_text kolibri1"), "sliding_attention " * 4 + "full_attention"),
    **dict.fromkeys(
        names("cwm granite_swa granitemoe_swa"), "full_attention" + " sliding_attention" * 3
    ),
    **dict.fromkeys(
        names("qwen3_next qwen3_5_text qwen3_5_moe_text"),
        "linear_attention " * 3 + "full_attention",
    ),
    "qwen4_exp_text": "linear_attention " * 3 + "indexed_attention",
    **dict.fromkeys(
        names("axk2 deepseek_v32 glm_moe_dsa hy_v4 mistral_large4_text"), "indexed_attention"
    ),
    **dict.fromkeys(names("cohere_compass_text laguna mellum"), "full_attention"),
    "minimax": "full_attention linear_attention",
    "unlimited_ocr_text": "reference_sliding_attention",
    "zaya": "hybrid",
}

# Several kinds of layers, in an order that only a list tells.
LISTED = names(
    """
    bailing_hybrid beam deepseek_v4 diffusion_gemma_text dots1 dots3_note_text embedding_gemma2_text
    flint gemma4_text gemma4_unified_text glm5_next_text granitemoehybrid kimi_linear lfm3
    mimo_v2_flash modernbert modernbert-decoder muse_glimmer_text muse_spark_text nemotron_h neomme
    olmo_hybrid ultrabert zamba2
    """
)

# Rope parameters by kind that a file may have beside those of the kinds of its layers.
FURTHER_KINDS = {
    "deepseek_v4": "main compress",
    "laguna": "sliding_attention",
    "lfm3": "sliding_attention",
    "mellum": "sliding_attention",
    "zaya": "hybrid_sliding",
}

# One layer in so many has no positions where no field says so.
NO_ROPE_EVERY = dict.fromkeys(names("llama4_text mistral_large4_text smollm3"), 4)

# Fields of a file that speak of rotation and are read, or are known to change nothing here.
ROTARY_FIELDS = names(
    """
    compress_rope_theta global_rope_theta layer_rope_theta local_rope_theta no_rope_layer_interval
    no_rope_layers partial_rotary_factor qk_rope_head_dim rope_base rope_interleave
    rope_interleaved rope_local_base_freq rope_parameters rope_scaling rope_scaling_layers
    rope_theta rotary_dim rotary_emb_base rotary_embedding_base rotary_pct use_mem_rope
    """
)

# Positions that are read in a way that this library has no class for.
REFUSED = {
    "inkling_text": "reads a bias for each distance from the hidden state",
    "inkling2_text": "reads a bias for each distance from the hidden state",
}


def layout_of(model_type: object) -> str | None:
    """Return which components this model type pairs, or None if that is not known."""
    for name in (model_type, f"{model_type}_text"):
        if name in INTERLEAVED:
            return "interleaved"
        if name in HALF:
            return "half"
    return None
