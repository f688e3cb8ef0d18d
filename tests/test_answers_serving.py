"""Answers on serving: what the page's cells define equals published code, and its numbers stand."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from answers import answer_names, answer_output, answer_text
from closeness import difference
from torch import Tensor

from pe_lib import KVCache, Learned, RoPE
from posdoctor import diagnose
from tools import ROOT

# Positions in serving -----------------------------------------------------------------------------

PADDING, PACKING, DRAFTS = "Left padding", "Packing documents", "Speculative decoding"
DOCTOR, NOPE = "Is my RoPE implementation", "Why does a decoder without"


def cells_of_page(page: str) -> list[dict[str, Any]]:
    return list(json.loads((ROOT / f"book/{page}.ipynb").read_text(encoding="utf-8"))["cells"])


def serving_answer(heading: str, n: int = 0) -> tuple[dict[str, Any], str]:
    """What cell n below a heading defines in an empty session, and what the page shows of it."""
    return answer_names(heading, n), answer_output(heading, n)


def serving_model(name: str, **options: Any) -> Any:
    """A small model of transformers with random weights, in float64."""
    import transformers

    torch.manual_seed(1)
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 50}
    more: dict[str, Any] = {
        "Llama": {"num_key_value_heads": 2, "intermediate_size": 48},
        "SmolLM3": {"num_key_value_heads": 2, "intermediate_size": 48, "pad_token_id": 0},
        "OPT": {"ffn_dim": 48, "word_embed_proj_dim": 32},
        "GPT2": {},
    }[name]
    config = getattr(transformers, f"{name}Config")(**sizes, **more, **options)
    return getattr(transformers, f"{name}Model")(config).double().eval()


def serving_outputs(model: Any, ids: Tensor, **inputs: Any) -> Tensor:
    with torch.no_grad():
        return model(ids, **inputs).last_hidden_state


def left_padded(*padding: int, length: int) -> Tensor:
    return (torch.arange(length) >= torch.tensor(padding)[:, None]).long()


@pytest.mark.parametrize("padding", [(0, 3), (2, 0, 5, 1), (4,)])
def test_left_padded_positions_are_those_that_generate_counts(padding: tuple[int, ...]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_outputs import CausalLMOutputWithPast
    from transformers.models.opt.modeling_opt import OPTLearnedPositionalEmbedding

    page, shown = serving_answer(PADDING)
    assert shown == "[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]] [[3], [5]]\nTrue\n"
    mask = left_padded(*padding, length=7)
    model = LlamaForCausalLM(LlamaConfig(hidden_size=8, num_attention_heads=1, vocab_size=5,
                                         intermediate_size=8, num_hidden_layers=1))  # fmt: skip
    inputs = {"input_ids": torch.ones_like(mask), "attention_mask": mask}
    first = model._prepare_position_ids_for_generation(inputs["input_ids"], inputs)
    assert torch.equal(page["position_ids_from_mask"](mask), first)
    (line,) = re.findall(r"`(\(attention_mask.*?\))`", answer_text(PADDING))
    assert torch.equal(eval(line, {"attention_mask": mask}), first)
    later = model._update_model_kwargs_for_generation(
        CausalLMOutputWithPast(), inputs | {"position_ids": first}
    )
    new = page["next_position_ids"](mask)
    assert torch.equal(new, later["position_ids"][:, -1:])
    table = OPTLearnedPositionalEmbedding(16, 3)
    assert torch.equal(table(later["attention_mask"], 7), table.weight[new + table.offset])


@pytest.mark.parametrize("name", ["Llama", "GPT2", "OPT"])
def test_a_padded_row_is_decoded_as_if_it_were_alone(name: str) -> None:
    page, _ = serving_answer(PADDING)
    model, ids = serving_model(name), torch.randint(50, (2, 8))
    mask = left_padded(3, 0, length=7)
    prompt, new = page["position_ids_from_mask"](mask), page["next_position_ids"](mask)
    seen = torch.cat([mask, torch.ones(2, 1).long()], -1)
    alone = serving_outputs(model, ids[:1, 3:])[:, -1]

    def decoded(new: Tensor, prompt_mask: Tensor = mask, seen: Tensor = seen) -> Tensor:
        with torch.no_grad():
            first = model(ids[:, :7], attention_mask=prompt_mask, position_ids=prompt)
            cache = first.past_key_values
            return model(
                ids[:, 7:], attention_mask=seen, position_ids=new, past_key_values=cache
            ).last_hidden_state[:1, 0]

    assert difference(decoded(new), alone) < 1e-5
    slots = torch.full((2, 1), 7)  # cache_position: the length of the cache
    assert difference(decoded(slots), alone) > 1e-4
    assert difference(decoded(new, torch.ones_like(mask), torch.ones_like(seen)), alone) > 1e-4


@pytest.mark.parametrize(
    ("name", "encoding", "kept"), [("Llama", RoPE(8), True), ("GPT2", Learned(64, 16), False)]
)
@pytest.mark.parametrize(("length", "shift"), [(6, 5), (9, 1), (12, 40)])
def test_a_shift_of_all_positions_changes_a_table_and_a_gap_changes_rope_too(
    name: str, encoding: Any, kept: bool, length: int, shift: int
) -> None:
    page, shown = serving_answer(PADDING, 1)
    assert shown.split("\n")[:2] == [
        "RoPE all moved by 5: True  gap of 5: False",
        "Learned all moved by 5: False  gap of 5: False",
    ]
    model, ids = serving_model(name), torch.randint(50, (1, length))
    x, at = torch.randn(1, length, 16).double(), torch.arange(length)[None]
    gap = torch.where(at < length // 2, at, at + shift)
    whole = torch.ones_like(ids)  # or a jump would be taken for the start of a document
    here = serving_outputs(model, ids, position_ids=at, attention_mask=whole)
    for moved, same in ((at + shift, kept), (gap, False)):
        there = serving_outputs(model, ids, position_ids=moved, attention_mask=whole)
        assert (difference(there, here) < 1e-5) == same
        assert page["unchanged"](encoding, x, at, moved) == same


@pytest.mark.parametrize("lengths", [(3, 4), (1, 5, 2), (2, 1, 1, 6)])
def test_the_mask_of_packed_documents_is_that_of_transformers(lengths: tuple[int, ...]) -> None:
    from transformers.masking_utils import create_causal_mask

    page, shown = serving_answer(PACKING)
    assert shown == "with both True\nwith mask True\nwith restart False\n"
    documents = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))[None]
    restart = page["position_ids_from_segments"](documents)
    expected = create_causal_mask(
        config=serving_model("Llama").config,
        inputs_embeds=torch.zeros(*documents.shape, 32),
        attention_mask=None,
        past_key_values=None,
        position_ids=restart,
    )
    assert torch.equal(page["packed_mask"](documents), expected)


@pytest.mark.parametrize("lengths", [[3, 4], [1, 5, 2], [2, 1, 1, 6]])
def test_cu_seqlens_are_what_transformers_gives_flash_attention(lengths: list[int]) -> None:
    from transformers import modeling_flash_attention_utils as flash

    page, shown = serving_answer(PACKING, 1)
    assert shown == "[0, 3, 7] [[0, 1, 2, 0, 1, 2, 3]]\n"
    ours, restart = page["packed_row"](lengths)
    (theirs, _), (longest, _) = flash.prepare_fa_kwargs_from_position_ids(restart)
    assert torch.equal(ours, theirs) and ours.dtype == theirs.dtype == torch.int32
    assert int(longest) == max(lengths)
    assert flash._is_packed_sequence(restart, batch_size=1)
    assert not flash._is_packed_sequence(restart.expand(2, -1), batch_size=2)
    assert not flash._is_packed_sequence(torch.arange(7)[None], batch_size=1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_documents_need_the_mask_and_a_table_needs_the_restart_too(attention: str) -> None:
    page, _ = serving_answer(PACKING)
    documents, ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]]), torch.randint(50, (1, 8))
    restart, row = page["position_ids_from_segments"](documents), torch.arange(8)[None]
    allowed = page["packed_mask"](documents)
    mask = torch.zeros(allowed.shape).double().masked_fill(~allowed, -torch.inf)
    for name, without_restart in (("Llama", True), ("GPT2", False)):
        model = serving_model(name, attn_implementation=attention)
        alone = serving_outputs(model, ids[:, 3:])

        def apart(model: Any = model, alone: Tensor = alone, **inputs: Any) -> bool:
            return difference(serving_outputs(model, ids, **inputs)[:, 3:], alone) < 1e-5

        ones = torch.ones_like(ids)
        assert apart(position_ids=restart, attention_mask=mask)
        assert apart(position_ids=row, attention_mask=mask) == without_restart
        assert not apart(position_ids=restart, attention_mask=ones)
        # transformers makes the mask itself, under two conditions
        assert apart(position_ids=restart, use_cache=False)
        assert not apart(position_ids=restart)
        assert not apart(position_ids=restart, attention_mask=ones, use_cache=False)


@pytest.mark.parametrize(("length", "kept"), [(8, 6), (5, 1), (9, 8)])
def test_a_cropped_cache_is_that_of_transformers(length: int, kept: int) -> None:
    from transformers import DynamicCache

    page, shown = serving_answer(DRAFTS)
    assert shown == "6 True\n8 False\n"
    k, v = torch.randn(2, 2, 3, length, 4)
    theirs, ours = DynamicCache(), KVCache().append(k, v, 0)
    theirs.update(k, v, 0)
    theirs.crop(kept - length)
    page["crop"](ours, kept)
    assert torch.equal(ours.keys, theirs.layers[0].keys)
    assert torch.equal(ours.values, theirs.layers[0].values)
    assert ours.positions.tolist() == list(range(kept))
    step = ours.next_positions(1)
    assert int(step) == theirs.get_seq_length() == kept


@pytest.mark.parametrize("name", ["Llama", "GPT2"])
@pytest.mark.parametrize("rejected", [1, 4])
def test_decoding_goes_on_at_the_number_of_kept_tokens(name: str, rejected: int) -> None:
    model, ids = serving_model(name), torch.randint(50, (1, 9))
    whole = serving_outputs(model, ids)[:, 6:]
    for counter, right in ((6, True), (6 + rejected, False)):
        with torch.no_grad():
            draft = torch.cat([ids[:, :6], torch.randint(50, (1, rejected))], -1)
            cache = model(draft).past_key_values
            cache.crop(-rejected)
            places = torch.arange(counter, counter + 3)[None]
            step = model(ids[:, 6:], position_ids=places, past_key_values=cache)
        assert (difference(step.last_hidden_state, whole) < 1e-5) == right


@pytest.mark.parametrize("width", [8, 64, 128])
def test_the_mended_rope_is_llamas_and_the_other_is_not(width: int) -> None:
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama as llama

    bug, mended = serving_answer(DOCTOR)[0], serving_answer(DOCTOR, 1)[0]
    config = LlamaConfig(hidden_size=2 * width, num_attention_heads=2, head_dim=width)
    q, k = torch.randn(2, 3, 2, 5, width)
    places = torch.randint(0, 200, (3, 5))
    expected = llama.apply_rotary_pos_emb(q, k, *llama.LlamaRotaryEmbedding(config)(q, places))
    assert torch.equal(bug["rotate_half"](q), llama.rotate_half(q))
    for i in range(2):
        assert difference(mended["my_rope"](q, k, places)[i], expected[i]) < 1e-4
        assert difference(bug["my_rope"](q, k, places)[i], expected[i]) > 0.1


def test_the_doctor_names_the_mixture_and_the_layout_of_other_weights() -> None:
    from transformers import CohereConfig, LlamaConfig
    from transformers.models.cohere import modeling_cohere as cohere
    from transformers.models.llama import modeling_llama as llama

    page, shown = serving_answer(DOCTOR)
    assert shown == f"{diagnose(page['my_rope'], head_dim=64)}\n"
    assert "FAULT: mixed-layouts (queries and keys)." in shown and ": 1 fault\n" in shown
    _, shown = serving_answer(DOCTOR, 1)
    assert shown == "for half weights: no fault\nfor interleaved weights: ['layout']\n"
    sizes: dict[str, Any] = {"hidden_size": 128, "num_attention_heads": 2}
    for module, tables, layout in (
        (llama, llama.LlamaRotaryEmbedding(LlamaConfig(**sizes)), "half"),
        (cohere, cohere.CohereRotaryEmbedding(CohereConfig(**sizes)), "interleaved"),
    ):

        def published(q: Tensor, k: Tensor, p: Tensor, m: Any = module, t: Any = tables) -> Any:
            return m.apply_rotary_pos_emb(q, k, *t(q, p))

        for expected in ("half", "interleaved"):
            report = diagnose(published, head_dim=64, expect={"layout": expected})
            assert report.names("fault") == ([] if expected == layout else ["layout"])


@pytest.mark.parametrize("length", [1, 6, 40])
def test_a_layer_without_positions_reads_the_position_off_a_marker(length: int) -> None:
    from transformers import SmolLM3Config
    from transformers.models.smollm3.modeling_smollm3 import SmolLM3Attention

    page, shown = serving_answer(NOPE)
    assert shown == "with a marker: [1, 2, 3, 4, 5, 6]\nall alike: [1, 1, 1, 1, 1, 1]\n"
    config = SmolLM3Config(hidden_size=4, num_attention_heads=1, num_key_value_heads=1,
                           num_hidden_layers=1, no_rope_layers=[0])  # fmt: skip
    layer = SmolLM3Attention(config, 0).double()
    with torch.no_grad():
        layer.q_proj.weight.zero_()  # all scores are equal
        layer.v_proj.weight.copy_(torch.eye(4))
        layer.o_proj.weight.copy_(torch.eye(4))
        x = torch.zeros(1, length, 4).double()
        x[:, 0, 0] = 1
        config._attn_implementation = "sdpa"
        mean = layer(x, position_embeddings=None, attention_mask=None)[0][0, :, 0]
    assert difference(page["read_positions"](x[0, :, 0]), 1 / mean) < 1e-9
    assert difference(1 / mean, torch.arange(1, length + 1).double()) < 1e-9
    assert difference(page["read_positions"](torch.ones(length)), torch.ones(length)) < 1e-6


@pytest.mark.parametrize("order", [[1, 0], [2, 0, 3, 1], [0, 1, 2, 3, 5, 4]])
def test_two_causal_layers_see_the_order_of_earlier_tokens_and_one_does_not(
    order: list[int],
) -> None:
    page, shown = serving_answer(NOPE, 1)
    assert shown == "layers: 1  order seen: False\nlayers: 2  order seen: True\n"
    ids = torch.randperm(50)[None, : len(order) + 1]
    x = torch.randn(1, len(order) + 1, 16).double()
    for n in (1, 2):
        model = serving_model("SmolLM3", no_rope_layers=[0, 0])
        model.layers = model.layers[:n]
        here, there = (serving_outputs(model, each)[:, -1] for each in (ids, ids[:, [*order, -1]]))
        assert (difference(there, here) > 1e-9) == (n == 2)
        assert page["sees_order"](page["layers"][:n], x, order) == (n == 2)


def test_numbers_that_answers_quote_stand_in_the_chapters() -> None:
    def shown(page: str, cell: str) -> str:
        (found,) = (each for each in cells_of_page(page) if each["id"] == cell)
        texts = [each.get("data", {}).get("text/markdown", "") for each in found["outputs"]]
        return "\n".join("".join(text) for text in texts).replace("\xa0", " ")

    words = "".join("".join(cell["source"]) for cell in cells_of_page("answers"))
    gap = "Moving the second half by 40, which leaves a gap, costs 0.006 nats per token."
    assert gap in shown("18_clinic", "padding-claim") and "cost [0.006 nats per token]" in words
    (third,) = (x for x in shown("18_clinic", "port-table").split("\n") if x.startswith("| 3 |"))
    assert third.split(" | ")[3] == "0.22" and "accuracy of 0.22 on 3-back" in words
    first = shown("01_attention", "rows-no-positions-blind-sinusoidal")
    assert "| no positions | 0.50 | 0.50 | 0.50 |" in first
    assert "| no positions, causal mask | 1.00 | 1.00 | 1.00 |" in first
    assert "was 0.50 without a mask and 1.00 with a causal mask" in words
    table = shown("17_bakeoff", "lesson-method-table")
    (none,) = (x for x in table.split("\n") if x.startswith("| no positions |"))
    assert none.split(" | ")[2] == "0.17"
    assert "the worst of five seeds had an accuracy of 0.17" in words
