"""The doctor asks what a way presupposes, names what was changed in a model, and where."""

from __future__ import annotations

import copy

import published_models
import pytest
import torch
import unseen
from torch import nn

from pe_course.model import LabModel, Transformer
from pe_course.registry import METHODS, Sizes, encodings
from pe_lib.sinusoidal import frequencies
from posdoctor.doctor import InputError, compare, diagnose
from posdoctor.findings import FAULT, NOTE, UNSURE
from posdoctor.models import examine_model

SIZES = Sizes(64, 4, 128)
LAYERS = "layers 0 to 2"


def tiny(name: str, cls: str, **options: object) -> nn.Module:
    """A small model of transformers, with weights that are the same each time."""
    return published_models.tiny(name, getattr(pytest.importorskip("transformers"), cls), **options)


def unexamined(report, way):
    """Return why a way was not examined."""
    reasons = (words.partition(": ") for words in report.case.unexamined)
    (found,) = (reason for ways, _, reason in reasons if way in ways.split(", "))
    return found


def small_llama(**others: float) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 32, "num_hidden_layers": 2,
             "num_attention_heads": 4, "max_position_embeddings": 128, **others}  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


@pytest.mark.parametrize("name", unseen.MODELS)
def test_a_bug_in_a_model_is_named_with_its_layer(name):
    verdict, where, patch = unseen.MODELS[name]
    sizes = {"num_hidden_layers": 3, "num_key_value_heads": 2, "intermediate_size": 64}
    model = small_llama(max_position_embeddings=256, rope_theta=500000.0, **sizes)
    report = diagnose(patch(model))
    assert (verdict, where) in {(each.name, each.where) for each in report.faults}


def test_a_models_own_short_window_is_no_fault():
    transformers = pytest.importorskip("transformers")
    config = transformers.MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    torch.manual_seed(0)
    report = diagnose(transformers.MistralForCausalLM(config))
    assert report.healthy, str(report)
    assert "a window of 8" in unexamined(report, "packing")


ROTATES_INSIDE = {
    "GPTJForCausalLM": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_inner": 64},
    "CodeGenForCausalLM": {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8},
    "Llama4ForCausalLM": {
        "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "head_dim": 16,
        "num_key_value_heads": 2, "intermediate_size": 64, "intermediate_size_mlp": 64,
        "num_local_experts": 2, "attention_chunk_size": 64, "rope_theta": 500000.0,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ROTATES_INSIDE)
def test_a_layer_is_seen_where_its_rotation_is_written_inside_attention(name):
    transformers = pytest.importorskip("transformers")
    model_class = getattr(transformers, name)
    config_class = model_class.config_class
    torch.manual_seed(0)
    model = model_class(config_class(vocab_size=64, bos_token_id=1, eos_token_id=2, pad_token_id=0,
                                     **ROTATES_INSIDE[name]))  # fmt: skip
    report = diagnose(model)
    assert report.healthy, str(report)
    assert "agree with the configuration in layers" in report.case.facts["angles"]


def model_of(name: str, **options: object) -> Transformer:
    per_layer = encodings(METHODS[name], SIZES, 2)
    return Transformer(
        50, d_model=64, n_heads=4, encoding=per_layer, causal=True, **options
    ).double()


@pytest.mark.parametrize("name", METHODS)
def test_a_model_with_any_method_keeps_what_a_model_must_keep(name):
    report = diagnose(LabModel(model_of(name)))
    assert report.healthy, str(report)
    assert ("shift" in report.names()) == (name in ("sinusoidal", "learned", "fire", "temperature"))


def test_a_cache_without_its_offset_is_found(monkeypatch):
    """A run that begins again is refused by the library; a tensor of positions is taken."""
    from pe_lib.attention import KVCache

    monkeypatch.setattr(KVCache, "next_positions", lambda self, length: torch.arange(length))
    report = examine_model(LabModel(model_of("rope")))
    assert {"cache", "chunked-prefill"} <= set(report.names(FAULT))


class Careless(LabModel):
    """A model that ignores the positions it is given, and masks."""

    def logits(self, ids, positions, mask):
        return self.model(ids)


def test_a_model_that_ignores_mask_and_positions_is_found():
    report = examine_model(Careless(model_of("learned")))
    assert {"left-padding", "packing"} <= set(report.names(FAULT))


def test_a_published_model_is_examined():
    report = diagnose(small_llama(hidden_size=32, rope_theta=500000.0))
    assert report.healthy, str(report)
    assert "500000" in report.case.facts["layers 0, 1 (full_attention)"]
    assert "shift" not in report.names()
    assert "agree with the configuration in layers 0, 1," in report.case.facts["angles"]
    assert "scores agree in layers 0, 1" in report.case.facts["beside its class, built anew"]
    assert report.profile.rule.base == 500000 and report.profile.layout == ("half", 0, 8)


def test_a_published_model_whose_tables_were_cast_with_it_is_found():
    assert diagnose(small_llama()).healthy
    assert "frequencies-rounded" in diagnose(small_llama().bfloat16()).names(FAULT)


def test_a_published_model_that_rotates_by_another_base_than_its_configuration_is_found():
    model = small_llama()
    model.model.rotary_emb.inv_freq = frequencies(16, 500000.0).float()
    assert diagnose(model).names(FAULT) == ["base"]


def test_a_published_model_that_pairs_its_components_otherwise_is_found(monkeypatch):
    from transformers.models.llama import modeling_llama

    def neighbours(q, k, cos, sin):
        cos, sin = (x[:, None].chunk(2, -1)[0].repeat_interleave(2, -1) for x in (cos, sin))
        swap = (torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) for x in (q, k))
        return tuple(x * cos + y * sin for x, y in zip((q, k), swap, strict=True))

    neighbours.__name__ = "apply_rotary_pos_emb"
    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", neighbours)
    assert diagnose(small_llama()).names(FAULT) == ["layout"]


def test_layers_of_two_kinds_are_held_to_frequencies_of_their_own():
    transformers = pytest.importorskip("transformers")
    config = transformers.Gemma3TextConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=6, head_dim=16,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=128,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Gemma3ForCausalLM(config)
    report = diagnose(model)
    assert report.healthy, str(report)
    assert "agree with the configuration in layers 0 to 5," in report.case.facts["angles"]
    model.model.rotary_emb.sliding_attention_inv_freq = frequencies(16, 1e6).float()
    (wrong,) = diagnose(model).faults
    assert (wrong.name, wrong.where) == ("base", "layers 0 to 4")


def test_what_a_published_model_does_not_show_is_said():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=99)
    report = diagnose(transformers.GPT2LMHeadModel(config))
    assert report.healthy and "shift" in report.names()
    told = "\n".join(report.case.unexamined)
    for part in ("adds a learned table", "weights", "windows wider than", "gain and softmax scale"):
        assert part in told


def test_a_model_that_a_mask_alone_does_not_move_differs_from_one_that_it_moves():
    transformers = pytest.importorskip("transformers")

    class Counting(transformers.GPT2LMHeadModel):
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **others):
            if position_ids is None and attention_mask is not None and attention_mask.ndim == 2:
                position_ids = (attention_mask.long().cumsum(1) - 1).clamp(min=0)
                position_ids = position_ids[:, -input_ids.shape[1] :]
            others |= {"attention_mask": attention_mask, "position_ids": position_ids}
            return super().forward(input_ids, **others)

    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=99)
    config.initializer_range = 0.2
    plain, counting = transformers.GPT2LMHeadModel(config).eval(), Counting(config).eval()
    counting.load_state_dict(plain.state_dict())
    assert "mask-alone" in diagnose(plain).names(NOTE)
    assert compare(plain, counting).names(FAULT) == ["mask-alone"]
    assert "mask-alone" not in compare(counting, plain).names()
    assert compare(plain, plain).healthy


@pytest.mark.parametrize("name", ["qwen3_next", "bamba", "nemotron_h", "jamba"])
def test_layers_that_recur_are_not_accused_of_a_mask_that_they_do_not_read(name):
    (cls,) = (cls for each, cls in published_models.classes() if each == name)
    report = diagnose(published_models.tiny(name, cls))
    assert not {"packing", "left-padding"} & set(report.names(FAULT)), str(report)
    assert "layers that recur" in unexamined(report, "packing")


ENCODERS = {"modernbert": "ModernBertForMaskedLM", "bert": "BertForMaskedLM",
            "roberta": "RobertaForCausalLM"}  # fmt: skip


@pytest.mark.parametrize("name", ENCODERS)
def test_a_bidirectional_model_is_said_to_be_one_and_asked_for_padding_alone(name):
    report = diagnose(tiny(name, ENCODERS[name]))
    assert report.healthy, str(report)
    assert report.case.facts["direction"].startswith("bidirectional")
    assert "bidirectional" in unexamined(report, "cache")
    assert "mask-alone" in report.case.facts


def test_hidden_states_of_any_rank_are_levelled():
    report = diagnose(tiny("hy_v4", "HYV4ForCausalLM"))
    assert report.healthy, str(report)
    assert "layers 0 to 3" in report.case.facts["angles"]


@pytest.mark.parametrize("name", ["llama4_text", "beam"])
def test_a_layer_that_scales_its_queries_and_does_not_rotate_is_not_accused(name):
    (cls,) = (cls for each, cls in published_models.classes() if each == name)
    scaled = {"attn_temperature_tuning": True, "floor_scale": 8} if name == "llama4_text" else {}
    report = diagnose(published_models.tiny(name, cls, **scaled))
    assert report.healthy, str(report)
    if scaled:
        assert "layer 3 grow with their place in the tensor" in unexamined(report, "packing")


def test_a_gain_that_was_lost_is_found_with_its_layers():
    model = tiny("gpt_oss", "GptOssForCausalLM")
    assert diagnose(model).healthy
    model.model.rotary_emb.attention_scaling = 1.0
    (fault,) = diagnose(model).faults
    assert (fault.name, fault.where) == ("gain", "layers 0 to 3")
    assert "scores times 0.5515" in fault.detail


def three_layers(**others: object) -> nn.Module:
    return small_llama(num_hidden_layers=3, num_key_value_heads=2, **others)


def without_scale(model):
    for layer in model.model.layers:
        layer.self_attn.scaling = 1.0
    return model


def louder(model):
    model.model.layers[1].self_attn.scaling *= 1.2
    return model


def deaf(model):
    """torchtitan#2559: positions are taken and dropped."""
    forward = model.model.forward
    model.model.forward = lambda *args, **words: forward(*args, **{**words, "position_ids": None})
    return model


def rounded(model):
    rotary = model.model.rotary_emb
    rotary.inv_freq = rotary.inv_freq.bfloat16().float()
    return model


CHANGED = {
    "softmax scale lost": (without_scale, "softmax-scale", LAYERS, "scores times 4"),
    "softmax scale of one layer": (louder, "softmax-scale", "layer 1", "scores times 1.2"),
    "positions dropped": (deaf, "positions-ignored", LAYERS, "whatever positions are given"),
    "frequencies rounded": (rounded, "frequencies-rounded", LAYERS, "bfloat16"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_what_was_changed_in_an_instance_is_named_with_its_layers(name):
    change, finding, where, detail = CHANGED[name]
    (fault,) = diagnose(change(three_layers())).faults
    assert (fault.name, fault.where) == (finding, where)
    assert detail in fault.detail


def test_a_change_whose_cause_is_not_found_is_a_doubt():
    transformers = pytest.importorskip("transformers")

    class Capped(transformers.LlamaForCausalLM):
        def forward(self, *args, **words):
            out = super().forward(*args, **words)
            out.logits = out.logits.tanh()
            return out

    model = three_layers()
    model.__class__ = Capped
    report = diagnose(model)
    assert report.healthy and "logits-differ" in report.names(UNSURE), str(report)


def permuted(model):
    """The rows of its projections in the order of the other layout."""
    with torch.no_grad():
        for layer in model.model.layers:
            for part in (layer.self_attn.q_proj, layer.self_attn.k_proj):
                rows = part.weight.reshape(-1, 2, 8, 64)
                part.weight.copy_(rows.transpose(1, 2).reshape(-1, 64))
    return model


def mistral(window: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, sliding_window=window,
    ))  # fmt: skip


def yarn(model):
    model.model.rotary_emb.attention_scaling = 1.2
    return model


def shifted_table(model):
    with torch.no_grad():
        table = model.transformer.wpe.weight
        table.copy_(table.roll(1, 0))
    return model


def other_buckets(model):
    for stack in (model.encoder, model.decoder):
        stack.block[0].layer[0].SelfAttention.relative_attention_max_distance = 64
    return model


def gpt2() -> nn.Module:
    return tiny("gpt2", "GPT2LMHeadModel")


def t5() -> nn.Module:
    return tiny("t5", "T5ForConditionalGeneration")


PAIRS = {
    "window": (lambda: mistral(9), lambda: mistral(8), "window", LAYERS,
               "8 positions back, expected 7"),
    "base": (lambda: three_layers(rope_theta=5e5), three_layers, "base", LAYERS, "base 500000"),
    "layout": (lambda: permuted(three_layers()), three_layers, "layout", LAYERS, "another order"),
    "gain": (lambda: yarn(three_layers()), three_layers, "gain", LAYERS, "scores times 1.44"),
    "softmax scale": (lambda: louder(three_layers()), three_layers, "softmax-scale", "layer 1",
                      "scores times 1.2"),
    "bias": (lambda: other_buckets(t5()), t5, "bias-values", "encoder.block.0, encoder.block.1, "
             "decoder.block.0, decoder.block.1", "largest difference"),
    "table": (lambda: shifted_table(gpt2()), gpt2, "logits-differ", "", "that of layer 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
def test_two_models_are_told_apart_with_the_layer_and_the_cause(name):
    mine, other, finding, where, detail = PAIRS[name]
    found = [each for each in compare(mine(), other()).faults if "the other model" in each.detail]
    assert {each.name for each in found} == {finding}, str(found)
    assert ", ".join(each.where for each in found) == where
    assert detail in found[0].detail
    same = compare(other(), other())
    assert same.healthy and "differ by 0.0e+00" in same.case.facts["beside the other model"]


def test_a_port_with_weights_of_its_own_dtype_is_equal():
    model = three_layers()
    report = compare(copy.deepcopy(model).double(), model)
    assert report.healthy, str(report)


def test_a_model_without_a_head_is_examined_by_its_hidden_states():
    report = diagnose(three_layers().model)
    assert report.healthy, str(report)
    assert "packing" in report.case.facts


def test_a_decoder_whose_bias_counts_from_zero_with_a_cache_is_found():
    model = t5()
    assert diagnose(model).healthy
    attention = model.decoder.block[0].layer[0].SelfAttention
    compute = attention.compute_bias

    def from_zero(*args, **words):
        return compute(*args, **{**words, "past_seen_tokens": 0})

    attention.compute_bias = from_zero
    assert "cache" in diagnose(model).names(FAULT)


class Own(nn.Module):
    """A model of tokens as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.outputs = nn.Embedding(10, 8), nn.Linear(8, 10)

    def forward(self, ids):
        return self.outputs(self.inputs(ids))


def classifier() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    model = three_layers()
    model.config.pad_token_id = 0
    return transformers.LlamaForSequenceClassification(model.config)


REFUSED = {
    "an own model": (Own, "posdoctor.models.CausalModel lists"),
    "a classifier": (classifier, "without its head"),
    "tables alone": (lambda: three_layers().model.rotary_emb, "posdoctor.ways.of_module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_cannot_be_examined_is_refused_with_what_to_do(name):
    make, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        diagnose(make())


SUBSET = ("llama", "gemma3_text", "deepseek_v3", "qwen3_next", "lfm2", "mamba", "gpt2", "bloom",
          "opt", "bert", "eurobert", "roformer", "xlnet", "t5", "jamba")  # fmt: skip


@pytest.mark.parametrize("name", SUBSET)
def test_a_published_model_of_each_kind_is_told_as_the_table_has_it(name):
    for each, cls in published_models.classes():
        if each == name:
            said = published_models.line(each, cls)[:3]
            assert said in published_models.stored()


def test_no_published_model_is_accused_without_a_reason():
    rows = published_models.stored()
    accused = {row[0] for row in rows if row[2] not in ("clean", "refused", "not built")}
    assert accused == set(published_models.EXPLAINED)
    assert sum(row[2] == "clean" for row in rows) >= 200
