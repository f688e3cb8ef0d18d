"""Reading heads: averages are exact, parts add up, and the recorded model is what is said of it."""

from __future__ import annotations

import math

import pytest
import torch

from pe_course import heads
from pe_course.model import Transformer
from pe_course.training import IGNORE, accuracy, generator
from pe_lib.attention import attention_logits
from pe_lib.learned import Learned
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
    assert heads.position_share(*common.expand(-1, 6, 9, -1), RATES) == pytest.approx(1)
    assert heads.position_share(*words, RATES) == pytest.approx(0)
    assert 0.1 < heads.position_share(*(common + 0.5 * words), RATES) < 0.95


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
    heads.with_inv_freq(model, 1, RATES / 4)
    assert model.blocks[0].attention.encoding is held[0]
    assert not torch.equal(model(batch[0]), logits)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(heads, "STEPS", 5)


def test_a_training_repeats_and_leaves_the_random_numbers_alone(few_steps):
    state = torch.get_rng_state()
    (first, said), (again, same) = (heads.train_on_repeated("learned", 3, 0.003) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert said == same and len(said["right"]) == 5
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.parametrize("method", ["rope", "t5", "alibi"])
def test_a_slowed_layer_takes_four_back_for_one_back_and_a_stopped_one_for_none(method, few_steps):
    model, _ = heads.train_on_repeated(method, 0, 0.003)
    q, k = drawn(1, 2, 1, 16), drawn(1, 2, 1, 16, seed=1)

    def score(back: int) -> torch.Tensor:
        return attention_logits(q, k, heads.attention_of(model, 1).encoding, [back], [0])

    one, none, held = score(1), score(0), heads.attention_of(model, 1).encoding
    with heads.slowed(model, 1, 0.25):
        assert torch.allclose(score(4), one) and not torch.allclose(score(1), one)
    with heads.slowed(model, 1, 0.0):
        assert torch.allclose(score(4), none)
        assert heads.attention_of(model, 0).encoding is not heads.attention_of(model, 1).encoding
    assert heads.attention_of(model, 1).encoding is held and torch.equal(score(1), one)


def test_a_slowed_table_is_read_between_its_rows_and_a_stopped_one_is_the_same_everywhere(
    few_steps,
):
    model, _ = heads.train_on_repeated("learned", 0, 0.003)
    table = model.encoding.table
    rows = table.detach().clone()
    with heads.slowed(model, 0, 0.25):
        assert torch.allclose(table[[0, 4, 20]], rows[[0, 1, 5]])
        assert torch.allclose(table[2], (rows[0] + rows[1]) / 2)
    with heads.slowed(model, 1, 0.0):
        assert torch.allclose(table, rows.mean(0).expand_as(rows))
    assert torch.equal(table, rows)


def test_the_place_has_all_of_a_head_where_all_texts_are_one_and_little_where_words_rule():
    model, tokens = small_model(), heads.repeated(40, generator(0))[0]
    layer = heads.attention_of(model, 0)
    (one, _), (many, _) = (heads.look(model, x) for x in (tokens[:1].expand(5, -1), tokens))
    assert torch.allclose(heads.position_shares(layer, one), torch.ones(2).double())
    assert heads.position_shares(layer, many).max() < 0.3


def test_a_place_that_is_added_can_be_read_and_one_that_nobody_tells_is_seen_in_the_length():
    torch.manual_seed(0)
    tokens = heads.repeated(200, generator(0))[0]
    told = Transformer(24, d_model=32, encoding=Learned(24, 32, std=2.0), causal=True).double()
    nobody = Transformer(24, d_model=32, n_heads=2, causal=True).double()
    assert heads.place_readable(told, tokens)[0] > 0.9
    found, lengths = heads.place_readable(nobody, tokens)
    assert found < 0.9 and len(lengths) == 12 and lengths[0] > 2 * lengths[-1]


def test_the_recorded_trainings_are_whole_and_have_the_rate_that_the_rule_chooses():
    rows = heads.runs()
    known = {(row["method"], row["seed"], row["rate"]) for row in rows if "steps" not in row}
    grid = {(m, heads.RATE_SEED, rate) for m in heads.COMPARED for rate in heads.RATES}
    seeds = {(m, s, heads.chosen_rate(rows, m)) for m in heads.COMPARED for s in heads.SEEDS}
    beside = {("t5", s, rate) for s in heads.SEEDS for rate in (0.002, 0.005)}
    longer = [row for row in rows if "steps" in row]
    assert known == grid | seeds | beside and len(rows) == len(known) + len(longer)
    assert {row["method"] for row in longer} == {"t5", "alibi", "none"}


def test_the_kept_model_is_one_that_its_recipe_gives():
    batch = heads.repeated(300, generator(98))
    for model in (heads.trained(), heads.train_on_repeated("rope", 0, 1e-2)[0]):
        assert accuracy(model, *batch) > 0.99
        first, second = heads.look(model, batch[0])
        assert float(heads.along(first.weights, 1).mean(0).max()) > 0.5
        assert float(heads.answers(batch[0], second.weights).max()) > 0.8
