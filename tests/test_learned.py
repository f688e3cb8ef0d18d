"""Learned tables: against a loop and GPT-2, and past their end."""

from __future__ import annotations

import pytest
import torch
from closeness import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pe_lib.learned import Learned

sizes = st.integers(1, 6)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def learned(max_len: int, d_model: int) -> Learned:
    torch.manual_seed(1)
    return Learned(max_len, d_model, std=1.0)


# Loops from the definitions -----------------------------------------------------------------------


def twin_embed(x: Tensor, table: Tensor, positions: Tensor) -> Tensor:
    """Add one number at a time: x[b, i, c] + row(positions[b, i])[c]."""
    batch, length, width = x.shape
    places, out = positions.expand(batch, length), x.clone()
    for b in range(batch):
        for i in range(length):
            for c in range(width):
                out[b, i, c] += table[int(places[b, i]), c]
    return out


@settings(max_examples=30, deadline=None)
@given(sizes, sizes, sizes, st.integers(0, 9), st.booleans())
def test_embed_equals_the_loop(
    batch: int, length: int, width: int, start: int, batched: bool
) -> None:
    encoding = learned(start + length, width).double()
    x = torch.randn(batch, length, width, dtype=torch.float64, generator=generator(2))
    positions = start + torch.arange(length)
    if batched:
        positions = torch.stack([positions.roll(b) for b in range(batch)])
    expected = twin_embed(x, encoding.table.detach(), positions)
    assert_close(encoding.embed(x, positions), expected, 1e-12)


# Published models ---------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 5])
def test_equal_to_the_embeddings_of_gpt2(offset: int) -> None:
    """A GPT-2 of zero layers is its two tables and a LayerNorm."""
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(offset)
    config = GPT2Config(
        vocab_size=13, n_positions=20, n_embd=8, n_head=2, n_layer=0, embd_pdrop=0.0
    )
    theirs = GPT2Model(config).eval()
    ours = Learned(20, 8)
    ours.load_state_dict({"table": theirs.wpe.weight.detach()})
    tokens = torch.randint(13, (3, 7), generator=generator(offset))
    positions = torch.arange(offset, offset + 7)
    with torch.no_grad():
        expected = theirs(input_ids=tokens, position_ids=positions[None]).last_hidden_state
        assert_close(theirs.ln_f(ours.embed(theirs.wte(tokens), positions)), expected)


# Its end ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [-1, 8, 10**7])
def test_a_position_without_a_row_is_refused(place: int) -> None:
    with pytest.raises(ValueError, match=f"below max_len=8, got {place}; a table has no row for"):
        learned(8, 4).embed(torch.zeros(1, 2, 4), torch.tensor([3, place]))


def test_roberta_needs_514_rows_for_512_tokens() -> None:
    from transformers.models.roberta.modeling_roberta import RobertaEmbeddings

    ids = torch.full((1, 512), 7)
    rows = RobertaEmbeddings.create_position_ids_from_input_ids(ids, padding_idx=1)
    assert rows.min() == 2 and rows.max() == 513
