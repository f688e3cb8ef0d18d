"""Every fast form equals the plain formula that it stands for."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from closeness import assert_close
from torch import Tensor, nn
from torch.autograd import forward_ad

from pe_lib import (
    ALiBi,
    Compose,
    DeBERTa,
    KVCache,
    MultiHeadAttention,
    PositionEncoding,
    RoPE,
    Run,
    Sinusoidal,
    T5Bias,
    TransformerXL,
    XPos,
)
from pe_lib.attention import attend, attend_fused, relative_position
from pe_lib.fast import (
    SPARE,
    CachedCodes,
    Memo,
    Room,
    RotateHalfSplit,
    append_rows,
    as_complex,
    picked_scores,
    reversed_bias,
    rotate,
    rotate_half_split,
    rotate_interleaved,
    run_codes,
    skew,
    skewed_scores,
    table_scores,
    table_sums,
)
from pe_lib.relative import RelativeBias, WindowBias
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.shaw import clipped_row
from pe_lib.sinusoidal import arrange, frequencies

B, H, WIDTH = 2, 3, 6
LAYOUTS = ("interleaved", "half")


def draw(*shape: int) -> Tensor:
    """Return random numbers in float64."""
    return torch.randn(*shape, dtype=torch.float64)


# --- attention -----------------------------------------------------------------------------------

BIASES: dict[str, Callable[[], RelativeBias]] = {
    "t5": lambda: T5Bias(H, 8, 9, std=1.0),
    "alibi": lambda: ALiBi(H),
    "window": lambda: drawn(WindowBias(H, 4)),
}


def drawn(encoding: WindowBias) -> WindowBias:
    """Return the encoding with weights that are not 0."""
    nn.init.normal_(encoding.weight)
    return encoding


ENCODINGS: dict[str, Callable[[], PositionEncoding]] = {
    "no bias": lambda: RoPE(WIDTH),
    "relative bias": BIASES["t5"],
    "relative bias in a composition": lambda: Compose(RoPE(WIDTH), BIASES["t5"]()),
    "two biases": lambda: Compose(BIASES["t5"](), BIASES["alibi"]()),
    "bias of contents": lambda: TransformerXL(H * WIDTH, H),
    "disentangled": lambda: DeBERTa(H * WIDTH, H, 3),
    "disentangled, buckets": lambda: DeBERTa(H * WIDTH, H, 6, n_buckets=4),
    "disentangled, no c2p": lambda: DeBERTa(H * WIDTH, H, 3, c2p=False),
    "disentangled, no p2c": lambda: DeBERTa(H * WIDTH, H, 3, p2c=False),
}


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("q_pos", "k_pos"),
    [
        (Run(0, 7), Run(0, 7)),
        (Run(3, 4), Run(0, 7)),
        (Run(6, 1), Run(0, 7)),
        (Run(3, 1), Run(1, 7)),  # one query, and keys on both sides
        (Run(9, 1), Run(0, 4)),  # all keys far away
        (Run(-2, 4), Run(1, 7)),  # no key is in the past of the first two queries
        (torch.tensor([5, 0, 3]), torch.tensor([1, 2, 8, 4])),
    ],
)
def test_attend_fused_gives_the_output_of_attend(
    name: str, causal: bool, masked: bool, q_pos: Run | Tensor, k_pos: Run | Tensor
) -> None:
    n_queries, n_keys = (p.length if isinstance(p, Run) else len(p) for p in (q_pos, k_pos))
    encoding = ENCODINGS[name]().double()
    q, k, v = (draw(B, H, n, WIDTH) for n in (n_queries, n_keys, n_keys))
    mask = torch.rand(B, 1, n_queries, n_keys) < 0.7 if masked else None
    expected, _ = attend(q, k, v, encoding, q_pos, k_pos, causal=causal, mask=mask)
    fused = attend_fused(q, k, v, encoding, q_pos, k_pos, causal=causal, mask=mask)
    assert_close(fused, expected, 1e-12)


JOINING = [name for name, make in ENCODINGS.items() if hasattr(make(), "join_query")]


@pytest.mark.parametrize("name", JOINING)
@pytest.mark.parametrize("place", [6, 3, 12])
def test_a_query_that_joins_terms_of_the_bias_gives_the_same_gradients(
    name: str, place: int
) -> None:
    encoding = ENCODINGS[name]().double()
    leaves = [draw(B, H, n, WIDTH).requires_grad_() for n in (1, 7, 7)]
    q, k, v = leaves
    places = Run(place, 1), Run(0, 7)
    weights = draw(B, H, 1, WIDTH)
    given = torch.autograd.grad((attend_fused(q, k, v, encoding, *places) * weights).sum(), leaves)
    wanted = torch.autograd.grad((attend(q, k, v, encoding, *places)[0] * weights).sum(), leaves)
    for one, other in zip(given, wanted, strict=True):
        assert_close(one, other, 1e-12)


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("causal", [False, True])
def test_reversed_bias_is_the_bias_with_the_queries_reversed(name: str, causal: bool) -> None:
    encoding = BIASES[name]()
    q, k = torch.randn(B, H, 5, 4), torch.randn(B, H, 7, 4)
    q_pos, k_pos = Run(3, 5), Run(1, 7)
    view = reversed_bias(encoding, q, q_pos, k_pos, causal)
    expected = encoding.bias(q, k, q_pos, k_pos, 1.0)
    if causal:
        hidden = relative_position(q_pos, k_pos) > 0
        expected = expected.masked_fill(hidden, float("-inf"))
    assert torch.equal(view.flip(-2), expected)


@pytest.mark.parametrize("name", BIASES)
@pytest.mark.parametrize("causal", [False, True])
def test_reversed_bias_is_a_view_of_one_value_per_distance(name: str, causal: bool) -> None:
    view = reversed_bias(BIASES[name](), torch.randn(B, H, 50, 4), Run(20, 50), Run(0, 70), causal)
    assert view.shape == (H, 50, 70)
    assert view.untyped_storage().nbytes() == 4 * H * (50 + 70 - 1)


# --- scores against a table of distances ---------------------------------------------------------


@pytest.mark.parametrize(("b", "n_keys"), [(1, 5), (2, 1), (4, 7), (7, 3)])
def test_skew_moves_distances_to_keys_in_place(b: int, n_keys: int) -> None:
    scores = torch.arange(2.0 * b * (n_keys + b - 1)).view(2, b, -1)
    moved = skew(scores, n_keys)
    assert moved.shape == (2, b, n_keys)
    assert moved.untyped_storage().data_ptr() == scores.untyped_storage().data_ptr()
    for i in range(b):
        for j in range(n_keys):
            assert torch.equal(moved[:, i, j], scores[:, i, b - 1 - i + j])


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 6), (5, 1), (64, 9), (130, 70)])
def test_skewed_scores_are_products_with_the_row_of_each_pair(
    n_queries: int, n_keys: int, per_head: bool, recorded: bool
) -> None:
    """Within one block of queries, exactly one, and several; with gradients and without."""
    q = draw(B, H, n_queries, WIDTH).requires_grad_(recorded)
    rows = draw(*[H] * per_head, n_queries + n_keys - 1, WIDTH)
    index = n_queries - 1 - torch.arange(n_queries)[:, None] + torch.arange(n_keys)
    pairs = rows[..., index, :]  # (..., Lq, Lk, d)
    expected = (q.unsqueeze(-2) * pairs).sum(-1)
    assert_close(skewed_scores(q, rows, n_keys), expected, 1e-12)


@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.parametrize("batched", [False, True])
def test_picked_scores_are_products_with_the_row_of_each_pair(
    per_head: bool, batched: bool
) -> None:
    q, table = draw(B, H, 4, WIDTH), draw(*[H] * per_head, 9, WIDTH)
    row = torch.randint(9, (*[B] * batched, 4, 5))
    found = picked_scores(q, table, row)
    for b in range(B):
        pairs = table[..., row[b] if batched else row, :]
        assert_close(found[b], (q[b].unsqueeze(-2) * pairs).sum(-1), 1e-12)


PLACES = [
    (Run(0, 7), Run(0, 7)),
    (Run(5, 70), Run(-2, 80)),
    (Run(9, 1), Run(0, 10)),
    (Run(0, 10), Run(9, 1)),
    (Run(0, 10), Run(3, 1)),
    (Run(0, 3), Run(20, 1)),
    (Run(20, 1), Run(0, 3)),
    (Run(4, 1), Run(2, 1)),
    (torch.tensor([3, 0, 8]), torch.tensor([1, 1, 7, 2])),
    (torch.tensor([[3, 0], [5, 6]]), torch.tensor([[0, 1, 2], [4, 9, 5]])),
]


def shaw_row(relative: Tensor) -> Tensor:
    """Return the row of a table for distances up to 4."""
    return clipped_row(relative, 4)


@pytest.mark.parametrize(("q_pos", "k_pos"), PLACES)
@pytest.mark.parametrize("per_head", [False, True])
def test_table_scores_are_products_with_the_row_of_each_distance(
    q_pos: Run | Tensor, k_pos: Run | Tensor, per_head: bool
) -> None:
    """Values and gradients, for positions of every form."""
    row = shaw_row(relative_position(q_pos, k_pos))  # (Lq, Lk) or (B, Lq, Lk)
    q = draw(B, H, row.shape[-2], WIDTH).requires_grad_()
    table = draw(*[H] * per_head, 9, WIDTH).requires_grad_()
    rows = table.expand(H, 9, WIDTH)[:, row]  # (H, ..., Lq, Lk, d)
    pairs = rows.transpose(0, 1) if row.ndim == 3 else rows
    expected = (q.unsqueeze(-2) * pairs).sum(-1)
    found = table_scores(q, table, shaw_row, q_pos, k_pos)
    assert_close(found, expected, 1e-12)
    weights = draw(*expected.shape)
    wanted = torch.autograd.grad((expected * weights).sum(), (q, table))
    given = torch.autograd.grad((found * weights).sum(), (q, table))
    for one, other in zip(given, wanted, strict=True):
        assert_close(one, other, 1e-12)


@pytest.mark.parametrize(("q_pos", "k_pos"), PLACES)
def test_table_sums_are_sums_of_the_row_of_each_distance(
    q_pos: Run | Tensor, k_pos: Run | Tensor
) -> None:
    """Values and gradients, for positions of every form."""
    row = shaw_row(relative_position(q_pos, k_pos))
    weights = draw(B, H, *row.shape[-2:]).requires_grad_()
    table = draw(9, WIDTH).requires_grad_()
    pairs = table[row] if row.ndim == 2 else table[row].unsqueeze(1)  # (..., Lq, Lk, d)
    expected = (weights.unsqueeze(-1) * pairs).sum(-2)
    found = table_sums(weights, table, shaw_row, q_pos, k_pos)
    assert_close(found, expected, 1e-12)
    direction = draw(*expected.shape)
    wanted = torch.autograd.grad((expected * direction).sum(), (weights, table))
    given = torch.autograd.grad((found * direction).sum(), (weights, table))
    for one, other in zip(given, wanted, strict=True):
        assert_close(one, other, 1e-12)


# --- rotations -----------------------------------------------------------------------------------


def codes_of(angles: Tensor, layout: str) -> Tensor:
    """Return what `rotate` wants for these angles."""
    return arrange(angles.cos(), angles.sin(), layout)


@pytest.mark.parametrize("length", [1, 5])
def test_both_rotations_equal_the_formula(length: int) -> None:
    x, angles = draw(B, H, length, WIDTH), draw(length, WIDTH // 2)
    forms = {"interleaved": rotate_interleaved, "half": rotate_half_split}
    for layout, form in forms.items():
        expected = apply_rope(x, angles, layout)
        assert_close(form(x, codes_of(angles, layout)), expected, 1e-14)
        assert_close(rotate(x, codes_of(angles, layout), layout), expected, 1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("trained", [False, True])
def test_derivatives_of_rotations_are_those_of_the_formula(layout: str, trained: bool) -> None:
    """By vectors, and by angles where they are trained; backward, forward, and twice."""
    x = draw(B, H, 3, WIDTH).requires_grad_()
    angles = draw(3, 2).requires_grad_(trained)  # four of six components rotate
    leaves, direction = (x, angles) if trained else (x,), draw(B, H, 3, WIDTH)

    def fast(x: Tensor, angles: Tensor) -> Tensor:
        return (rotate(x, codes_of(angles, layout), layout) ** 3 * direction).sum()

    def plain(x: Tensor, angles: Tensor) -> Tensor:
        return (apply_rope(x, angles, layout) ** 3 * direction).sum()

    found, expected = [], []
    for form, results in ((fast, found), (plain, expected)):
        first = torch.autograd.grad(form(x, angles), leaves, create_graph=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), leaves)
        results += [*first, *second]
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-12)
    constants, tangents = (x.detach(), angles.detach()), (draw(*x.shape), draw(*angles.shape))
    forward = [torch.func.jvp(form, constants, tangents)[1] for form in (fast, plain)]
    assert_close(forward[0], forward[1], 1e-12)


def test_rotate_half_split_has_a_backward_pass_of_its_own_that_equals_the_recorded_one() -> None:
    x, codes = draw(B, H, 3, WIDTH).requires_grad_(), codes_of(draw(3, WIDTH // 2), "half")
    direction, tangent = draw(*x.shape), draw(*x.shape)
    own, recorded = RotateHalfSplit.apply(x, codes), rotate_half_split(x, codes)
    assert torch.equal(own, recorded)
    assert type(own.grad_fn).__name__.startswith("RotateHalfSplit")
    gradients = [torch.autograd.grad(y, x, direction)[0] for y in (own, recorded)]
    assert_close(gradients[0], gradients[1], 1e-14)
    _, moved = torch.func.jvp(lambda y: RotateHalfSplit.apply(y, codes), (x.detach(),), (tangent,))
    assert_close(moved, rotate_half_split(tangent, codes), 1e-14)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("run", [Run(0, 1), Run(0, 50), Run(-7, 20), Run(100_000, 17)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-11), (torch.float32, 5e-7)])
def test_run_codes_equal_the_codes_of_each_position(
    run: Run, layout: str, dtype: torch.dtype, tolerance: float
) -> None:
    """In float64 an angle of 100,000 radians is itself rounded by up to 7e-12."""
    rates = frequencies(8, 100.0)
    codes = run_codes(run, rates, dtype, layout, gain=1.3)
    assert codes.dtype == dtype
    expected = 1.3 * codes_of(rope_angles(run.tensor(), rates), layout)
    assert_close(codes.double(), expected, tolerance)
    growth = torch.tensor([0.3, 0.1, 0.0, -0.2], dtype=torch.float64)
    grown = run_codes(run, rates, dtype, layout, growth=growth, middle=run.start + 4.5)
    sizes = (growth * (run.tensor()[:, None] - run.start - 4.5)).exp()
    expected = codes_of(rope_angles(run.tensor(), rates), layout) * arrange(sizes, sizes, layout)
    assert ((grown - expected).abs() <= tolerance * arrange(sizes, sizes, layout)).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotations_of_a_run_that_fade_equal_those_of_its_positions(layout: str) -> None:
    """xPos takes few angles for a run, and the formula for a tensor."""
    xpos = XPos(WIDTH, layout=layout, scale_base=9, gain=1.2)
    q, k = draw(1, H, 4, WIDTH), draw(1, H, 30, WIDTH)
    runs = Run(26, 4), Run(0, 30)
    found = xpos.rotate(q, k, *runs)
    expected = xpos.rotate(q, k, *(run.tensor() for run in runs))
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, 1e-12)


def memory_layouts() -> dict[str, Tensor]:
    """Return tensors (2, 3, 5, 12) that lie in memory in every way."""
    storage = torch.randn(2, 3, 5, 15)
    return {
        "contiguous": storage[..., :12].contiguous(),
        "odd offset": storage.flatten()[1:361].reshape(2, 3, 5, 12),
        "odd strides": storage[..., :12],
        "transposed": storage[..., :12].reshape(2, 5, 3, 12).transpose(1, 2),
        "components far apart": storage[..., :12].mT.contiguous().mT,
        "one for all heads": storage[:, :1, :, :12].expand(2, 3, 5, 12),
    }


@pytest.mark.parametrize("name", memory_layouts())
def test_pairs_are_complex_numbers_in_any_memory_layout(name: str) -> None:
    """A complex view needs even strides; where they are odd, a copy is taken."""
    x = memory_layouts()[name]
    assert torch.equal(as_complex(x), torch.complex(x[..., ::2], x[..., 1::2]))
    angles = rope_angles(torch.arange(5), frequencies(12))
    codes = codes_of(angles, "interleaved").float()
    assert_close(rotate(x, codes), apply_rope(x, angles), 1e-6)


# --- a cache that grows --------------------------------------------------------------------------


def add(rows: Tensor, room: Room | None, number: int = 1) -> tuple[Tensor, Room | None]:
    """Append random rows, compare with what `torch.cat` gives, and see that none has changed."""
    before, new = rows.clone(), draw(B, H, number, WIDTH)
    longer, room = append_rows(rows, new, room)
    assert torch.equal(longer, torch.cat([before, new], dim=2))
    assert torch.equal(rows, before)
    return longer, room


@torch.no_grad()
def test_rows_are_added_in_place_until_there_is_no_room() -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None, 2)
    place = rows.data_ptr()
    while rows.shape[2] < 5 + SPARE:
        rows, room = add(rows, room, 64)
        assert rows.data_ptr() == place
    rows, room = add(rows, room)
    assert rows.data_ptr() != place


@torch.no_grad()
def test_copies_of_a_cache_that_part_do_not_overwrite_each_other() -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None)
    one, one_room = add(rows, room)
    other, other_room = add(rows, room)
    kept = one.clone()
    for _ in range(3):
        other, other_room = add(other, other_room)
    assert torch.equal(one, kept)
    add(one, one_room)


FROM_OUTSIDE: dict[str, Callable[[Tensor], Tensor]] = {
    "the end is cut off": lambda rows: rows[:, :, :2],
    "the start is dropped": lambda rows: rows[:, :, 2:],
    "the batch is reordered": lambda rows: rows.flip(0),
}


@pytest.mark.parametrize("name", FROM_OUTSIDE)
@torch.no_grad()
def test_rows_that_were_changed_from_outside_are_not_forgotten(name: str) -> None:
    rows, room = add(draw(B, H, 3, WIDTH), None)
    add(FROM_OUTSIDE[name](rows), room)


def test_rows_grow_from_one_mode_of_gradients_into_another() -> None:
    rows, room = draw(B, H, 3, WIDTH), None
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad, torch.inference_mode):
        with mode():
            for _ in range(2):
                rows, room = add(rows, room)


def test_gradients_reach_every_row_of_a_cache() -> None:
    rows, new = (draw(B, H, 3, WIDTH).requires_grad_() for _ in range(2))
    longer, room = append_rows(rows, new, None)
    (longer.square().sum() / 2).backward()
    assert room is None
    assert torch.equal(rows.grad, rows.detach()) and torch.equal(new.grad, new.detach())


# --- computed once -------------------------------------------------------------------------------

CACHED: dict[str, Callable[[], CachedCodes]] = {
    "rope": lambda: RoPE(12, max_len=10),
    "rope, half": lambda: RoPE(12, layout="half", max_len=10),
    "sinusoidal": lambda: Sinusoidal(12, max_len=10),
}


@pytest.mark.parametrize("name", CACHED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("start", [0, 4, 5, -3, 900])
def test_cached_codes_equal_computed_ones(name: str, dtype: torch.dtype, start: int) -> None:
    """Within the cache, past its end, before its start, beyond; as precise as the dtype wants."""
    encoding, run = CACHED[name](), Run(start, 6)
    like = torch.zeros((), dtype=dtype)
    expected = encoding.compute(run.tensor()).to(torch.promote_types(dtype, torch.float32))
    assert expected.dtype == encoding.codes(run, like).dtype
    assert torch.equal(encoding.codes(run, like), expected)
    assert torch.equal(encoding.codes(run.tensor(), like), expected)


@pytest.mark.parametrize("name", CACHED)
def test_cached_codes_are_a_view_that_is_filled_anew_for_another_dtype_only(name: str) -> None:
    encoding, like = CACHED[name](), torch.zeros(())
    first = encoding.codes(Run(2, 3), like)
    assert first.untyped_storage().data_ptr() == encoding.cache.untyped_storage().data_ptr()
    encoding.codes(Run(2, 3), like.double())
    assert encoding.cache.dtype == torch.float64
    assert torch.equal(encoding.codes(Run(2, 3), like), first)  # not the float64 ones of before
    assert not encoding.state_dict()


class Counted:
    """A table that is memoised, and how often it was computed."""

    def __init__(self) -> None:
        self.weight, self.memo, self.times = nn.Parameter(draw(3, 3)), Memo().eval(), 0

    def get(self, settings: object = None) -> Tensor:
        def compute() -> Tensor:
            self.times += 1
            return self.weight @ self.weight

        return self.memo([self.weight], settings, compute)

    def fresh(self) -> bool:
        """Return whether what is remembered is what would be computed."""
        return torch.equal(self.get(), self.weight @ self.weight)


def change_in_place(table: Counted) -> None:
    table.weight.mul_(2)


def change_parameter(table: Counted) -> None:
    table.weight = nn.Parameter(draw(3, 3))


def change_data(table: Counted) -> None:
    table.weight.data = draw(3, 3)


def change_dtype(table: Counted) -> None:
    table.weight.data = table.weight.data.float()


def take_a_step(table: Counted) -> None:
    table.weight.grad = torch.ones_like(table.weight)
    torch.optim.Adam([table.weight]).step()


def train_with_a_fused_step(table: Counted) -> None:
    """Such a step changes no version counter."""
    table.memo.train()
    table.weight.grad = torch.ones_like(table.weight)
    torch.optim.AdamW([table.weight], lr=0.1, fused=True).step()
    table.memo.eval()


def fine_tune_with_a_fused_step(table: Counted) -> None:
    """In `eval()` mode, as where dropout is not wanted."""
    with torch.enable_grad():
        table.get().sum().backward()
    torch.optim.SGD([table.weight], lr=0.1, fused=True).step()


def load(table: Counted) -> None:
    layer = nn.Module()
    layer.weight = table.weight
    layer.load_state_dict({"weight": draw(3, 3)})


def assign(table: Counted) -> None:
    layer = nn.Module()
    layer.weight = table.weight
    layer.load_state_dict({"weight": draw(3, 3)}, assign=True)
    table.weight = layer.weight


CHANGES = [
    change_in_place,
    change_parameter,
    change_data,
    change_dtype,
    take_a_step,
    train_with_a_fused_step,
    fine_tune_with_a_fused_step,
    load,
    assign,
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_remembered_is_computed_anew_when_a_parameter_changes(
    change: Callable[[Counted], None],
) -> None:
    table = Counted()
    with torch.no_grad():
        assert table.get() is table.get()
        assert table.times == 1
        before = table.get()
        change(table)
        times = table.times
        assert table.fresh()
        assert table.times == times + 1
        assert before.dtype != table.get().dtype or not torch.equal(before, table.get())


def test_what_is_remembered_is_computed_anew_for_other_settings() -> None:
    table = Counted()
    with torch.no_grad():
        for settings, times in ((1, 1), (1, 1), (2, 2), (1, 3)):
            table.get(settings)
            assert table.times == times


def test_nothing_is_remembered_where_gradients_are_recorded() -> None:
    table = Counted()
    with torch.no_grad():
        table.get()
    assert table.get().requires_grad
    assert table.times == 2
    with torch.no_grad():
        assert not table.get().requires_grad


def test_memory_that_is_given_back_is_not_taken_for_the_same_weights() -> None:
    """A parameter that changes its memory twice may come to the address that it had first."""
    table = Counted()
    with torch.no_grad():
        table.get()
        for _ in range(2):
            table.weight.data = draw(3, 3)
        assert table.fresh()


def test_threads_that_share_a_layer_get_what_each_gets_alone() -> None:
    """Prefill and decoding in turn, where threads change as often as they can."""
    layer = MultiHeadAttention(16, 2, DeBERTa(16, 2, 8), causal=True).eval()
    x = torch.randn(1, 8, 16)

    def decode(_: int) -> Tensor:
        cache = KVCache()
        with torch.no_grad():
            layer(x[:, :7], cache=cache)
            output: Tensor = layer(x[:, 7:], cache=cache)
        return output

    expected, before = decode(0), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            for output in pool.map(decode, range(200)):
                assert_close(output, expected, 1e-6)
    finally:
        sys.setswitchinterval(before)


def test_nothing_is_remembered_in_training() -> None:
    table = Counted()
    table.memo.train()
    with torch.no_grad():
        table.get()
        assert table.get() is not table.get()


def test_what_was_computed_under_autocast_is_not_remembered_without() -> None:
    table = Counted()
    with torch.no_grad():
        with torch.autocast("cpu", torch.bfloat16):
            table.get()
        assert table.fresh()
        assert table.times == 2


def test_derivatives_by_positions_reach_both_layouts_forward_too() -> None:
    """Forward mode asks by a tangent, not by `requires_grad`."""
    places, q = torch.arange(4).double(), torch.randn(1, 1, 4, 8).double().requires_grad_()
    for layout in ("interleaved", "half"):
        rope = RoPE(8, layout=layout)

        def rotated(p: Tensor, rope: RoPE = rope) -> Tensor:
            return rope.rotate(q, q, p, p)[0]

        with forward_ad.dual_level():
            dual = forward_ad.make_dual(places, torch.ones_like(places))
            found = forward_ad.unpack_dual(rotated(dual)).tangent
        step = 1e-6
        expected = (rotated(places + step) - rotated(places - step)) / (2 * step)
        assert found is not None
        assert_close(found, expected, 1e-8)


@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_mixed_second_derivatives_by_contents_and_positions(layout: str) -> None:
    """Through `torch.func`, where what is asked for stands at another level."""
    rope, x = RoPE(8, layout=layout), torch.randn(1, 1, 3, 8).double()
    weight, places = torch.randn(1, 1, 3, 8).double(), torch.tensor([0.3, 1.1, 2.0]).double()

    def slope(p: Tensor) -> Tensor:
        def energy(z: Tensor) -> Tensor:
            return (rope.rotate(z, z, p, p)[0] * weight).sin().sum()

        found: Tensor = torch.func.grad(energy)(x).square().sum()
        return found

    steps = 1e-5 * torch.eye(3, dtype=torch.float64)
    expected = torch.stack([slope(places + s) - slope(places - s) for s in steps]) / 2e-5
    assert_close(torch.func.grad(slope)(places), expected, 1e-7)


def test_parameters_of_inference_mode_are_not_trusted_to_count_their_changes() -> None:
    with torch.inference_mode():
        table = Counted()
        table.get()
        table.weight.mul_(2)
        assert table.fresh()


def test_a_copy_remembers_nothing() -> None:
    table = Counted()
    with torch.no_grad():
        table.get()
    for twin in (copy.deepcopy(table.memo), pickle.loads(pickle.dumps(table.memo))):
        assert twin.kept is None and not twin.training
