"""The table of the four terms says what the methods do, and would notice if they did not."""

import math

import pytest
import torch
from torch import nn

from pe_course import four_terms
from pe_course.registry import METHODS, TAUGHT
from pe_lib import Learned, MultiHeadAttention, PositionEncoding, Sinusoidal
from pe_lib.alibi import ALiBi
from pe_lib.attention import attention_logits
from pe_lib.compose import Compose
from pe_lib.encoding import relative_position
from pe_lib.rope import RoPE
from pe_lib.shaw import Shaw
from pe_lib.transformer_xl import TransformerXL

KEPT = ["keeps", "keeps: $j$", "keeps: $i$", "keeps: $i, j$", "keeps: $j$"]
DISTANCE = "replaces: $j - i$"
# What each paper's formula says about the five pieces and the scale.
EXPECTED = {
    "none": ["keeps", *["deletes"] * 4, r"$1/\sqrt{d}$"],
    "sinusoidal": [*KEPT, r"$1/\sqrt{d}$"],
    "learned": [*KEPT, r"$1/\sqrt{d}$"],
    "shaw": ["keeps", DISTANCE, "deletes", "deletes", DISTANCE, r"$1/\sqrt{d}$"],
    "transformer_xl": [
        *("keeps", DISTANCE, "replaces: no position", DISTANCE, "deletes", r"$1/\sqrt{d}$")
    ],
    "t5": ["keeps", "deletes", "deletes", DISTANCE, "deletes", "$1$"],
    "deberta": ["keeps", DISTANCE, DISTANCE, "deletes", "deletes", r"$1/\sqrt{3d}$"],
    "alibi": ["keeps", "deletes", "deletes", DISTANCE, "deletes", r"$1/\sqrt{d}$"],
    "kerple": ["keeps", "deletes", "deletes", DISTANCE, "deletes", r"$1/\sqrt{d}$"],
    "fire": ["keeps", "deletes", "deletes", "replaces: $i, j$", "deletes", r"$1/\sqrt{d}$"],
    "rope": ["combines: $j - i$", *["deletes"] * 4, r"$1/\sqrt{d}$"],
    "xpos": ["combines: $j - i$", *["deletes"] * 4, r"$1/\sqrt{d}$"],
}


def probe(encoding, *, batch=3, length=7, width=12, heads=2):
    torch.manual_seed(1)
    layer = MultiHeadAttention(width, heads, encoding).double()
    return layer, torch.randn(batch, length, width, dtype=torch.float64)


@pytest.mark.parametrize("method", TAUGHT)
def test_each_row_is_what_the_papers_formula_says(method):
    name, *cells = four_terms.row(method)
    assert cells == EXPECTED[method]
    assert name == METHODS[method].name
    assert len(cells) + 1 == len(four_terms.HEADER)


@pytest.mark.parametrize(("batch", "length", "width", "inner"), [(1, 2, 3, 5), (4, 6, 5, 2)])
def test_expand_agrees_with_loops_over_pairs(batch, length, width, inner):
    torch.manual_seed(length)
    x, p = torch.randn(2, batch, length, width, dtype=torch.float64)
    w_q, w_k = torch.randn(2, width, inner, dtype=torch.float64)
    terms = four_terms.expand(x, p, w_q, w_k)
    for b in range(batch):
        for i in range(length):
            for j in range(length):
                sides = [(x[b, i], x[b, j]), (x[b, i], p[b, j]), (p[b, i], x[b, j])]
                for term, (left, right) in zip(terms, [*sides, (p[b, i], p[b, j])], strict=True):
                    assert term.shape == (batch, length, length)
                    assert torch.isclose(term[b, i, j], (left @ w_q) @ (right @ w_k))


def test_switching_off_finds_the_terms_of_the_expansion():
    layer, x = probe(Learned(20, 12, std=1.0), heads=1)
    positions = torch.arange(4, 11)
    found = four_terms.split(layer, x, positions, positions)
    p = layer.encoding.table[positions].expand_as(x)
    w_q, w_k = layer.q_proj.weight.T, layer.k_proj.weight.T
    for got, algebra in zip(found, four_terms.expand(x, p, w_q, w_k), strict=True):
        assert torch.allclose(got[:, 0], algebra / math.sqrt(12), atol=1e-12)


@pytest.mark.parametrize("method", TAUGHT)
def test_the_terms_sum_to_the_logits_and_are_linear_in_each_content(method):
    """Without linearity in the contents, switching one off would not isolate a term."""
    torch.manual_seed(2)
    encoding = METHODS[method].make(four_terms.PROBE)
    layer = MultiHeadAttention(four_terms.WIDTH, four_terms.HEADS, encoding).double()
    x = torch.randn(2, 6, four_terms.WIDTH, dtype=torch.float64)
    positions = torch.arange(3, 9)
    once = four_terms.split(layer, x, positions, positions)
    twice = four_terms.split(layer, 2 * x, positions, positions)
    for n, factor in enumerate((4, 2, 2, 1)):
        assert torch.allclose(twice[n], factor * once[n], atol=1e-9)
    tokens = encoding.embed(x, positions)
    q, k = (layer.split_heads(projection(tokens)) for projection in (layer.q_proj, layer.k_proj))
    logits = attention_logits(q, k, encoding, positions, positions)
    assert torch.allclose(once.total(), logits, atol=1e-12)


def test_codes_at_the_input_reach_the_values_and_can_be_left_out():
    layer, x = probe(Learned(20, 12, std=1.0))
    positions = torch.arange(7)
    weights = torch.rand(3, 2, 7, 7, dtype=torch.float64)
    found = four_terms.in_values(layer, weights, positions, positions)
    codes = layer.encoding.table[:7].expand_as(x)
    assert torch.allclose(found, weights @ layer.split_heads(layer.v_proj(codes)))
    none = four_terms.in_values(layer, weights, positions, positions, at_input=False)
    assert found.shape == none.shape == (3, 2, 7, 6)
    assert not none.any()


def test_codes_and_a_bias_together_are_told_apart():
    encoding = Compose(Sinusoidal(16), ALiBi(2, symmetric=True))
    both = four_terms.row("both", encoding)
    assert both[:4] == ["both", *KEPT[:3]]
    assert both[4] == "keeps: $i, j$, adds: $j - i$"


def test_shaw_without_values_deletes_the_values():
    assert four_terms.row("keys only", Shaw(8, 4, with_values=False))[5] == "deletes"


class FlippedKeys(RoPE):
    """RoPE whose keys rotate the wrong way: i + j instead of j - i."""

    def rotate(self, q, k, q_pos, k_pos):
        return super().rotate(q, k, q_pos, -k_pos)


class ForgottenV(TransformerXL):
    """Transformer-XL that leaves out the global query of positions."""

    def bias(self, q, k, q_pos, k_pos, scale):
        nothing = self.v.detach().clone()
        self.v.data.zero_()
        found = super().bias(q, k, q_pos, k_pos, scale)
        self.v.data.copy_(nothing)
        return found


class KeyOnly(ALiBi):
    """ALiBi as slope times key position: the same for the softmax, not for a logit."""

    def bias(self, q, k, q_pos, k_pos, scale):
        return super().bias(q, k, torch.zeros_like(q_pos), k_pos, scale)


class Halved(PositionEncoding):
    """No position at all, with a scale that is none of the known ones."""

    scale = 0.5


@pytest.mark.parametrize(
    ("encoding", "column", "cell"),
    [
        (FlippedKeys(8), 1, "combines: $i, j$"),
        (ForgottenV(16, 2), 4, "deletes"),
        (KeyOnly(2), 4, "replaces: $j$"),
        (Halved(), 6, "0.5"),
    ],
)
def test_a_changed_method_gets_another_row(encoding, column, cell):
    assert four_terms.row("changed", encoding)[column] == cell


class Untied(PositionEncoding):
    """Position-position with projections of its own (TUPE)."""

    def __init__(self):
        super().__init__()
        self.codes = nn.Parameter(torch.randn(30, 5))

    def bias(self, q, k, q_pos, k_pos, scale):
        return self.codes[q_pos] @ self.codes.T[:, k_pos] + 0 * relative_position(q_pos, k_pos)


def test_an_absolute_bias_replaces_and_does_not_keep():
    torch.manual_seed(3)
    row = four_terms.row("untied", Untied())
    assert row[1:6] == ["keeps", "deletes", "deletes", "replaces: $i, j$", "deletes"]


def test_with_everything_on_a_switched_head_is_plain_attention_over_sums():
    torch.manual_seed(0)
    model = four_terms.Switched(5, 9, width=6).double()
    tokens = torch.randint(5, (3, 7))
    sums = model.content[tokens] + model.position[:7]
    weights = ((sums @ model.w_q) @ (sums @ model.w_k).mT / math.sqrt(6)).softmax(-1)
    assert torch.allclose(model(tokens), model.read(weights @ sums), atol=1e-12)


@pytest.mark.parametrize("number", range(4))
def test_a_switch_takes_one_term_out_of_the_scores(number):
    torch.manual_seed(number)
    model = four_terms.Switched(5, 7, width=6).double()
    x, p = model.content[torch.randint(5, (3, 7))], model.position
    terms = four_terms.expand(x, p, model.w_q, model.w_k)
    rest = sum(term for n, term in enumerate(terms) if n != number) / math.sqrt(6)
    found = model.weights(x, p, {four_terms.NAMES[number]})
    assert torch.allclose(found, rest.softmax(-1), atol=1e-12)


def test_what_is_never_on_is_off_at_every_call_and_in_the_values_too():
    torch.manual_seed(1)
    whole = four_terms.Switched(5, 7, width=6)
    never = four_terms.Switched(5, 7, width=6, never=("values", four_terms.NAMES[1]))
    never.load_state_dict(whole.state_dict())
    tokens = torch.randint(5, (3, 7))
    assert torch.equal(never(tokens), whole(tokens, never.never))
    x = whole.content[tokens]
    weights = whole.weights(x, whole.position, ())
    assert torch.allclose(whole(tokens, ["values"]), whole.read(weights @ x))
    assert whole(tokens, four_terms.NAMES).shape == (3, 7, 5)
