"""Reading heads: averages are exact, parts add up, and the recorded model is what is said of it."""

from __future__ import annotations

import math

import pytest
import torch

from lab import heads, tasks
from lab.model import Transformer
from lab.training import IGNORE, generator
from pe_lib.attention import attention_logits
from pe_lib.rope import RoPE, apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies

RATES = frequencies(16)


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def small_model() -> Transformer:
    torch.manual_seed(0)
    return Transformer(24, d_model=32, n_heads=2, encoding=RoPE(16), causal=True).double()


def test_the_pairs_add_up_to_the_score_at_each_distance():
    q, k, relative = drawn(3, 16), drawn(3, 16, seed=1), torch.tensor([-7, -1, 0, 4])
    found = heads.by_frequency(q, k, RATES, relative).sum(1)  # (3, 4)
    for n, distance in enumerate(relative.tolist()):
        at = [torch.tensor([50]), torch.tensor([50 + distance])]
        logits = attention_logits(q[:, None, None], k[:, None, None], RoPE(16).double(), *at)
        assert torch.allclose(found[:, n], logits.flatten(), atol=1e-12)


def test_the_mean_of_all_scores_is_the_score_of_the_means():
    q, k = drawn(40, 16), drawn(30, 16, seed=1)
    far = apply_rope(k[:, None], rope_angles(torch.tensor([-5]), RATES))[:, 0]
    means = heads.by_frequency(q.mean(0), k.mean(0), RATES, torch.tensor([-5])).sum()
    assert math.isclose((q @ far.T).mean() / 4, means, rel_tol=1e-12)


def test_words_alone_have_no_share_and_places_alone_all_of_it():
    common, words = drawn(2, 1, 1, 16), drawn(2, 6, 9, 16, seed=1)
    words = words - words.mean((1, 2), keepdim=True)
    assert heads.share_of_places(*common.expand(-1, 6, 9, -1), RATES) == pytest.approx(1)
    assert heads.share_of_places(*words, RATES) == pytest.approx(0)
    assert 0.1 < heads.share_of_places(*(common + 0.5 * words), RATES) < 0.95


def test_what_is_looked_at_are_the_heads_of_the_model():
    model, tokens = small_model(), heads.repeated(3, generator(0))[0]
    before = model(tokens)
    for layer in heads.look(model, tokens):
        scores = attention_logits(layer.q, layer.k, RoPE(16).double(), range(24), range(24))
        hidden = scores.masked_fill(~torch.ones(24, 24).tril().bool(), -torch.inf)
        assert torch.allclose(layer.weights, hidden.softmax(-1), atol=1e-12)
    assert torch.equal(model(tokens), before)


def test_the_second_half_repeats_the_first_and_says_what_followed():
    tokens, targets = heads.repeated(50, generator(3))
    for row, wanted in zip(tokens.tolist(), targets.tolist(), strict=True):
        first, second = row[:12], row[12:]
        start = first.index(second[0])
        assert len(set(first)) == 12 and second == first[start:] + first[:start]
        asked = [i for i, each in enumerate(wanted) if each != IGNORE]
        assert all(wanted[i] == first[first.index(row[i]) + 1] for i in asked)
        assert len(asked) == (11 if start == 0 else 10) and min(asked) >= 12


def test_perfect_heads_have_all_the_weight_that_is_asked_for():
    tokens, _ = heads.repeated(4, generator(1))
    weights = torch.zeros(4, 1, 24, 24)
    for b, row in enumerate(tokens.tolist()):
        for i in range(12, 23):
            weights[b, 0, i, row.index(row[i]) + 1] = 1
    assert heads.answers(tokens, weights).tolist() == pytest.approx([1])
    assert heads.along(torch.eye(24).roll(-1, 1), 1).item() == 1


def test_a_change_of_one_layer_is_undone_and_leaves_the_other_alone():
    model, batch = small_model(), heads.repeated(20, generator(2))
    held = [block.attention.encoding for block in model.blocks]
    logits = model(batch[0])
    heads.answered_with(model, 0, RATES / 4, batch)
    assert [block.attention.encoding for block in model.blocks] == held
    assert torch.equal(model(batch[0]), logits)
    heads.with_rates(model, 1, RATES / 4)
    assert model.blocks[0].attention.encoding is held[0]
    assert not torch.equal(model(batch[0]), logits)


def test_changes_touch_what_they_name():
    found = heads.changes(RATES)
    assert torch.equal(found["as trained"], RATES) and torch.equal(found["slow"], RATES / 4)
    assert [(found[f"stop {r}"] != RATES).nonzero().tolist() for r in range(8)] == [
        [[r]] for r in range(8)
    ]
    assert found["exchange 0, 1"].tolist() == [RATES[1], RATES[0], *RATES[2:].tolist()]


def test_the_recorded_heads_have_their_shapes_and_begin_with_the_shipped_text():
    held = heads.minilm()
    assert {
        name: tuple(held[name].shape) for name in ("q", "k", "q_mean", "k_mean")
    } == dict.fromkeys(("q", "k", "q_mean", "k_mean"), (12, 64, 32))
    said = "".join(piece.removeprefix("##") for piece in held["pieces"][1:40])
    assert "".join(tasks.load_text().lower().split()).startswith(said)


def test_eliminating_answers_pays_the_mean_of_one_over_what_is_left():
    assert heads.by_elimination() == pytest.approx(sum(1 / n for n in range(1, 12)) / 11)
