"""The first rung: a chapter's own formula, to be written before its other exercises.

A cell of the chapter asks for it, and `practice.sinusoids(sinusoids)` in the next says in words
what is not right yet. These exercises give no points, and nobody grades them: an answer may be
pasted, and the references are the library's own functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from pe_course.judge.compare import ANY
from pe_course.judge.exercise import Answer, Case, Exercise, Mistake
from pe_lib.alibi import alibi as bias_of
from pe_lib.alibi import alibi_slopes
from pe_lib.encoding import relative_position
from pe_lib.recent.axes import grid_positions
from pe_lib.recent.resizing import sample_table
from pe_lib.rope import apply_rope, rope_angles
from pe_lib.rope_scaling import ntk_aware, position_interpolation
from pe_lib.shaw import clipped_row
from pe_lib.sinusoidal import arrange, frequencies, sinusoidal
from pe_lib.t5 import t5_bucket

# --- chapter 2: sinusoids ------------------------------------------------------------------------


def waves(position_ids: Tensor, inv_freq: Tensor) -> Tensor:
    """Return sine and cosine of each angle, side by side, (L, 2n)."""
    angles = position_ids[:, None] * inv_freq
    return arrange(angles.sin(), angles.cos(), "interleaved")


def told_surely(position_ids: Tensor, inv_freq: Tensor) -> Tensor:
    """Return waves, and ANY where float32 no longer tells an angle to four decimals."""
    angles = (position_ids[:, None] * inv_freq).repeat_interleave(2, -1)
    return waves(position_ids, inv_freq).masked_fill(angles > 400, ANY)


def even_columns(dim: int) -> Tensor:
    """Return the number of the first column of each pair, (dim / 2,): 0, 2, 4, ..."""
    return torch.arange(0, dim, 2).double()


sinusoids = Exercise(
    "sinusoids",
    lambda draw: [
        Case("positions from 0 on", (torch.arange(5), 8)),
        Case("positions in any order", (draw.places(7), 10)),
        Case("one position", (torch.tensor([40]), 6)),
    ],
    sinusoidal,
    (
        Mistake(
            "this is the other layout, `half`: all sines, then all cosines; put the sine and the "
            "cosine of each frequency side by side",
            lambda p, dim: sinusoidal(p, dim, layout="half"),
        ),
        Mistake(
            "sine and cosine have changed places: the sine is in columns 0, 2, 4, ...",
            lambda p, dim: sinusoidal(p, dim).unflatten(-1, (-1, 2)).flip(-1).flatten(-2),
        ),
        Mistake(
            "the exponent is half of what it should be: pair r has 10000 ** (-2 * r / dim)",
            lambda p, dim: waves(p, 10000 ** (-even_columns(dim) / (2 * dim))),
        ),
        Mistake(
            "the exponent is twice what it should be: 2 * r is already the number of the column",
            lambda p, dim: waves(p, 10000 ** (-2 * even_columns(dim) / dim)),
        ),
        Mistake(
            "`exp` has the base e: an exponent for it needs the factor log(10000)",
            lambda p, dim: waves(p, (-even_columns(dim) / dim).exp()),
        ),
        Mistake(
            "the exponent is positive, so each hand is faster than the one before; it is negative: "
            "10000 ** (-2 * r / dim)",
            lambda p, dim: told_surely(p, 10000 ** (even_columns(dim) / dim)),
        ),
        Mistake(
            "your code counts from 0; the positions are those in `position_ids`",
            lambda p, dim: sinusoidal(torch.arange(len(p)), dim),
        ),
    ),
    axes=("position", "column"),
)

# --- chapter 3: a learned table ------------------------------------------------------------------


table_rows = Exercise(
    "table_rows",
    lambda draw: [
        Case("positions (L,)", (draw.normal(9, 4), torch.tensor([3, 4, 5, 6, 7, 8]))),
        Case("positions (B, L)", (draw.normal(7, 5), torch.tensor([[0, 1, 2, 3], [2, 6, 4, 5]]))),
        Case(
            "positions past the end",
            (draw.normal(6, 3), torch.tensor([[4, 5, 6, 7, 8], [0, 5, 13, 6, 2]])),
        ),
    ],
    sample_table,
    (
        Mistake(
            "this takes rows 0, 1, 2, ...; the rows wanted are those of `position_ids`",
            lambda table, p: table[torch.arange(p.shape[-1]).clamp(max=len(table) - 1)].expand(
                *p.shape, -1
            ),
        ),
        Mistake(
            "past the end this begins again at row 0; the last row is wanted there",
            lambda table, p: table[p % len(table)],
        ),
        Mistake(
            "past the end this gives zeros; the last row is wanted there",
            lambda table, p: sample_table(table, p) * (p < len(table))[..., None],
        ),
        Mistake(
            "every text gets the rows of the first one; each row of `position_ids` is a text of "
            "its own",
            lambda table, p: sample_table(table, p[:1] if p.ndim > 1 else p).expand(*p.shape, -1),
        ),
    ),
    axes=("position", "column"),
)

# --- chapter 5: Shaw -----------------------------------------------------------------------------


def of_pairs(function: Answer) -> Answer:
    """Return a function of the positions of queries and keys from one of the relative position."""
    return lambda first, q_pos, k_pos: function(first, relative_position(q_pos, k_pos))


def vectors(table: Tensor, relative: Tensor) -> Tensor:
    """Return the vector of each relative position, clipped: (...) -> (..., d)."""
    return table[clipped_row(relative, len(table) // 2)]


shaw_vectors = Exercise(
    "shaw_vectors",
    lambda draw: [
        Case("a clip of 2", (draw.normal(5, 3), torch.arange(4), torch.arange(6))),
        Case("positions in any order", (draw.normal(7, 4), draw.places(5), draw.places(8))),
        Case("one query after its keys", (draw.normal(9, 2), torch.tensor([6]), torch.arange(7))),
    ],
    of_pairs(vectors),
    (
        Mistake(
            "this is query minus key; relative position is key minus query",
            of_pairs(lambda table, relative: vectors(table, -relative)),
        ),
        Mistake(
            "the clip is not added, so a negative number counts rows from the end of the table: "
            "row 0 is that of the distance -clip",
            of_pairs(lambda table, relative: table[relative.clamp(-(n := len(table) // 2), n)]),
        ),
        Mistake(
            "your code counts from 0; the positions are those in `q_pos` and `k_pos`",
            lambda table, q_pos, k_pos: vectors(
                table, relative_position(*(torch.arange(len(p)) for p in (q_pos, k_pos)))
            ),
        ),
        Mistake(
            "this has the distance without its sign: a key to the left and one to the right have "
            "vectors of their own",
            of_pairs(lambda table, relative: vectors(table, relative.abs())),
        ),
    ),
    axes=("query", "key", "column"),
)

# --- chapter 7: T5 -------------------------------------------------------------------------------


NEAR = relative_position(torch.tensor([3, 9, 17]), torch.arange(20))
FAR = -torch.tensor([0, 6, 7, 14, 21, 27, 35, 49, 50, 51, 300])  # none falls on an edge


def causal_bucket(relative: Tensor, n_buckets: int, max_distance: int) -> Tensor:
    """Return T5's bucket where all are for keys to the left; arguments as in `t5_bucket`."""
    return t5_bucket(relative, n_buckets, max_distance, bidirectional=False)


def without_exact(relative: Tensor, n_buckets: int, max_distance: int) -> Tensor:
    """Return a bucket that counts from 0 again where the logarithm begins."""
    bucket = causal_bucket(relative, n_buckets, max_distance)
    return bucket - n_buckets // 2 * (bucket >= n_buckets // 2)


relative_position_bucket = Exercise(
    "relative_position_bucket",
    lambda draw: [
        Case("20 keys, 32 buckets up to 128", (NEAR, 32, 128)),
        Case("far keys, 12 buckets up to 50", (FAR, 12, 50)),
        Case("far keys, 32 buckets up to 128", (3 * FAR, 32, 128)),
    ],
    causal_bucket,
    (
        Mistake(
            "this reads query minus key: keys to the left have a negative relative position",
            lambda p, n_buckets, max_distance: causal_bucket(-p, n_buckets, max_distance),
        ),
        Mistake(
            "keys to the right get buckets by their distance; in a decoder they all get bucket 0",
            lambda p, n_buckets, max_distance: causal_bucket(-p.abs(), n_buckets, max_distance),
        ),
        Mistake(
            "these are the buckets of an encoder, half of them for keys to the right; in a decoder "
            "all are for keys to the left",
            t5_bucket,
        ),
        Mistake(
            "the logarithmic buckets begin at 0 again; they come after the n_buckets // 2 exact "
            "ones",
            without_exact,
        ),
        Mistake(
            "every distance has a bucket of its own up to the last one; only the first half of the "
            "buckets is exact",
            lambda p, n_buckets, max_distance: (-p).clamp(0, n_buckets - 1),
        ),
    ),
    integers=True,
    axes=("query", "key"),
)

# --- chapter 9: ALiBi ----------------------------------------------------------------------------


def with_slopes(slopes: Callable[[int], Tensor], *, symmetric: bool = False) -> Answer:
    """Return the bias by the slopes that a function gives for a number of heads."""
    return of_pairs(
        lambda n_heads, relative: bias_of(relative, slopes(n_heads), symmetric=symmetric)
    )


alibi = Exercise(
    "alibi",
    lambda draw: [
        Case("8 heads", (8, torch.arange(4), torch.arange(6))),
        Case("4 heads", (4, draw.places(3), draw.places(7))),
        Case("16 heads, one query", (16, torch.tensor([9]), torch.arange(5))),
    ],
    with_slopes(alibi_slopes),
    (
        Mistake(
            "this is query minus key, which rewards far keys; relative position is key minus query",
            with_slopes(lambda n_heads: -alibi_slopes(n_heads)),
        ),
        Mistake(
            "this adds slope times distance, which rewards far keys on both sides; a bias is a "
            "penalty for keys to the left",
            with_slopes(lambda n_heads: -alibi_slopes(n_heads), symmetric=True),
        ),
        Mistake(
            "keys to the right get a penalty, too; (9.1) has i - j without an absolute value, and "
            "the causal mask hides these keys",
            with_slopes(alibi_slopes, symmetric=True),
        ),
        Mistake(
            "the slopes are in the opposite order: the first head is the steepest",
            with_slopes(lambda n_heads: alibi_slopes(n_heads).flip(0)),
        ),
        Mistake(
            "the first slope is 1; h counts from 1, so that it is 2 ** (-8 / n_heads)",
            with_slopes(lambda n_heads: 2 ** (-8 * torch.arange(n_heads) / n_heads)),
        ),
        Mistake(
            "the slopes are 1/2, 1/4, 1/8, ... for every number of heads; that is so for 8 heads "
            "only, since the last slope is always 2 ** -8",
            with_slopes(lambda n_heads: 0.5 ** torch.arange(1, n_heads + 1)),
        ),
        Mistake(
            "the slopes are 1, 1/2, 1/4, ... for every number of heads; h counts from 1, and the "
            "exponent is -8 * h / n_heads",
            with_slopes(lambda n_heads: 0.5 ** torch.arange(n_heads)),
        ),
        Mistake(
            "the slopes are powers of e; they are powers of 2",
            with_slopes(lambda n_heads: alibi_slopes(n_heads) ** (1 / math.log(2))),
        ),
    ),
    axes=("head", "query", "key"),
)

# --- chapter 10: RoPE ----------------------------------------------------------------------------


rotate = Exercise(
    "rotate",
    lambda draw: [
        Case("positions from 0 on", (draw.normal(3, 5, 8), torch.arange(5), frequencies(8))),
        Case("positions in any order", (draw.normal(2, 7, 6), draw.places(7), frequencies(6))),
        Case("one position", (draw.normal(4, 1, 10), torch.tensor([12]), frequencies(10))),
    ],
    lambda x, p, inv_freq: apply_rope(x, rope_angles(p, inv_freq)),
    (
        Mistake(
            "this is the other layout, `half`: it pairs component r with component r + d/2; here "
            "neighbours are a pair",
            lambda x, p, inv_freq: apply_rope(x, rope_angles(p, inv_freq), "half"),
        ),
        Mistake(
            "the angle has the wrong sign: (a, b) becomes (a cos - b sin, a sin + b cos)",
            lambda x, p, inv_freq: apply_rope(x, -rope_angles(p, inv_freq)),
        ),
        Mistake(
            "the rotated pairs are in halves: all first components, then all second ones; put the "
            "two of a pair side by side again",
            lambda x, p, inv_freq: (
                apply_rope(x, rope_angles(p, inv_freq)).unflatten(-1, (-1, 2)).mT.flatten(-2)
            ),
        ),
        Mistake(
            "your code counts from 0; the positions are those in `position_ids`",
            lambda x, p, inv_freq: apply_rope(x, rope_angles(torch.arange(len(p)), inv_freq)),
        ),
    ),
    axes=("position", "component"),
)

# --- chapter 13: NTK-aware scaling ---------------------------------------------------------------


ntk_frequencies = Exercise(
    "ntk_frequencies",
    lambda draw: [
        Case("8 pairs, four times as long", (frequencies(16), 4.0)),
        Case("3 pairs, one and a half times as long", (frequencies(6, 500.0), 1.5)),
        Case("two pairs", (frequencies(4), 8.0)),
    ],
    ntk_aware,
    (
        Mistake(
            "this is position interpolation, which slows every pair by the factor; here the first "
            "pair stays what it was",
            position_interpolation,
        ),
        Mistake(
            "the last pair is slowed by less than the factor: the exponent is r / (n - 1), which "
            "is 1 at r = n - 1",
            lambda inv_freq, factor: inv_freq * factor ** -(torch.arange(n := len(inv_freq)) / n),
        ),
        Mistake(
            "this makes the pairs faster; a longer text needs slower ones",
            lambda inv_freq, factor: ntk_aware(inv_freq, 1 / factor),
        ),
        Mistake(
            "the first pair is slowed by the factor and the last one not at all; it is the other "
            "way round",
            lambda inv_freq, factor: ntk_aware(inv_freq, 1 / factor) / factor,
        ),
    ),
    axes=("pair",),
)

# --- chapter 14: two axes ------------------------------------------------------------------------


def by_place(place: Callable[[int, int], Tensor]) -> Answer:
    """Return the angles by a function that gives row and column of each patch, (L, 2)."""
    return lambda rows, columns, inv_freq: torch.cat(
        [rope_angles(axis, inv_freq) for axis in place(rows, columns).T], -1
    )


grid_angles = Exercise(
    "grid_angles",
    lambda draw: [
        Case("3 rows of 5 patches", (3, 5, frequencies(8, 100.0))),
        Case("6 rows of 2 patches", (6, 2, frequencies(6, 100.0))),
        Case("one row of 4 patches", (1, 4, frequencies(10, 100.0))),
    ],
    by_place(grid_positions),
    (
        Mistake(
            "the columns have the first n pairs; here the rows have them",
            by_place(lambda rows, columns: grid_positions(rows, columns).flip(-1)),
        ),
        Mistake(
            "the patches are read column by column; patch 1 is to the right of patch 0",
            by_place(lambda rows, columns: grid_positions(columns, rows).flip(-1)),
        ),
        Mistake(
            "a row of the image has `columns` patches: divide the number of a patch by `columns`, "
            "not by `rows`",
            by_place(
                lambda rows, columns: torch.stack(
                    [(p := torch.arange(rows * columns)) // rows, p % rows], -1
                )
            ),
        ),
        Mistake(
            "both halves have the number of the patch, which is one axis; the two axes are its row "
            "and its column",
            by_place(lambda rows, columns: torch.arange(rows * columns)[:, None].expand(-1, 2)),
        ),
    ),
    axes=("patch", "pair"),
)

# -------------------------------------------------------------------------------------------------

RUNGS = {  # chapter -> what it asks for first
    "02_sinusoidal": sinusoids,
    "03_learned": table_rows,
    "05_shaw": shaw_vectors,
    "07_t5": relative_position_bucket,
    "09_alibi": alibi,
    "10_rope": rotate,
    "13_context_extension": ntk_frequencies,
    "14_axes": grid_angles,
}
