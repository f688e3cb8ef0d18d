"""Properties of attention and of position codes, as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pe_course.registry import Sizes
from pe_lib.attention import MultiHeadAttention, attention_logits
from pe_lib.encoding import PositionEncoding


@torch.no_grad()
def equivariance_error(layer: nn.Module, x: Tensor, order: Tensor) -> float:
    """Return how far f(x in another order) is from f(x) in that order.

    Args:
        layer: maps (B, L, D) to (B, L, D').
        x: (B, L, D).
        order: a permutation of 0, ..., L - 1.

    Returns:
        The largest absolute difference; 0 up to rounding if the layer is equivariant.
    """
    return float((layer(x[:, order]) - layer(x)[:, order]).abs().max())


@torch.no_grad()
def translation_error(encoding: PositionEncoding, q: Tensor, k: Tensor, shift: int) -> float:
    """Return how much the logits change when every position moves by `shift`.

    Args:
        encoding: the method. Its `embed` plays no part: queries and keys are given.
        q: (B, H, L, d).
        k: (B, H, L, d).
        shift: added to all positions.

    Returns:
        The largest absolute difference, divided by the largest logit.
    """
    q_pos, k_pos = torch.arange(q.shape[-2]), torch.arange(k.shape[-2])
    here = attention_logits(q, k, encoding, q_pos, k_pos)
    there = attention_logits(q, k, encoding, q_pos + shift, k_pos + shift)
    size = here.abs().max()
    return float((here - there).abs().max() / size) if size > 0 else 0.0


def similarity_by_distance(codes: Tensor) -> Tensor:
    """Return the mean inner product of codes 0, 1, ..., L - 1 places apart: (L, D) -> (L,)."""
    gram = codes @ codes.T  # (L, L)
    return torch.stack([gram.diagonal(offset).mean() for offset in range(len(codes))])


def rank_correlation(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two sequences; ties get their mean rank."""
    ranks = []
    for values in (a, b):
        _, inverse, counts = values.flatten().unique(return_inverse=True, return_counts=True)
        mean_rank = counts.cumsum(0).double() - (counts.double() - 1) / 2
        ranks.append(mean_rank[inverse])
    return float(torch.corrcoef(torch.stack(ranks))[0, 1])


def linear_map_error(source: Tensor, target: Tensor) -> float:
    """Return the error of the best linear map from one set of codes to another.

    Args:
        source: (L, D).
        target: (L, D).

    Returns:
        Root mean square of target - source @ M over that of target, for the best M.
    """
    # "gelsd" solves by singular values. PyTorch's default is wrong, and not the same from call
    # to call, where columns are nearly dependent, as the slow ones of a sinusoidal code are.
    best = torch.linalg.lstsq(source.double(), target.double(), driver="gelsd").solution
    left = target.double() - source.double() @ best
    return float(left.square().mean().sqrt() / target.double().square().mean().sqrt())


def parameter_count(module: nn.Module) -> int:
    """Return the number of trained numbers."""
    return sum(parameter.numel() for parameter in module.parameters())


def share_moving_less(codes: Tensor, span: float) -> float:
    """Return the share of columns of (L, D) whose values stay within `span`."""
    return float(((codes.amax(0) - codes.amin(0)) < span).double().mean())


def unit_rows(codes: Tensor) -> Tensor:
    """Take the mean row from all rows of (L, D) and bring each to length 1.

    Inner products of the result are the cosine similarities of centred codes.
    """
    return torch.nn.functional.normalize(codes - codes.mean(dim=0), dim=1)


def explained_by_distance(codes: Tensor) -> float:
    """Return how much of the similarity of two different codes their distance alone explains.

    Args:
        codes: (L, D), L at least 3. Similarity is the inner product.

    Returns:
        Share of the variance over all pairs of different positions. It is 1 for a relative
        code, whose inner products depend on the distance only.
    """
    gram, places = codes @ codes.T, torch.arange(len(codes))
    distance = (places[:, None] - places).abs()  # (L, L)
    pairs = distance > 0
    left = gram - similarity_by_distance(codes)[distance]
    return float(1 - left[pairs].square().mean() / gram[pairs].var(correction=0))


def grid_similarity(codes: Tensor, grid: tuple[int, int]) -> tuple[float, float, float, float]:
    """Return the mean similarity of patches, by how they lie on a grid to each other.

    Args:
        codes: (rows * columns, D), row by row.
        grid: (rows, columns).

    Returns:
        mean inner product of direct neighbours, of patches of one row and of one column that
        are no neighbours, and of patches at least two rows and two columns apart.
    """
    places = torch.arange(grid[0] * grid[1])
    if len(codes) != len(places):
        raise ValueError(f"codes must have {len(places)} rows for grid {grid}, got {len(codes)}")
    rows, columns = places // grid[1], places % grid[1]
    down, across = (rows[:, None] - rows).abs(), (columns[:, None] - columns).abs()
    gram = codes @ codes.T
    return (
        float(gram[down + across == 1].mean()),
        float(gram[(down == 0) & (across > 1)].mean()),
        float(gram[(across == 0) & (down > 1)].mean()),
        float(gram[(down > 1) & (across > 1)].mean()),
    )


class StorageWatch(TorchDispatchMode):
    """Notes the largest storage that any operation returns; a view has that of its source."""

    largest: int = 0  # bytes

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and look at what it returns."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self.largest = max(self.largest, tensor.untyped_storage().nbytes())
        return result


@torch.no_grad()
def largest_tensor(run: Callable[[], object]) -> int:
    """Return the bytes of the largest tensor that a call makes or looks at, without gradients.

    What a fused kernel keeps to itself is not seen.
    """
    watch = StorageWatch()  # type: ignore[no-untyped-call]
    with watch:
        run()
    return int(watch.largest)


@torch.no_grad()
def largest_in_layer(encoding: PositionEncoding, sizes: Sizes) -> int:
    """Return the bytes of the largest tensor of a layer's forward pass with a method, in float32.

    Args:
        encoding: the method, made for `sizes`. What it adds to the input is made, too.
        sizes: of the model; `length` tokens are read.

    Returns:
        That of the layer's own weights, where everything else is smaller.
    """
    layer = MultiHeadAttention(
        sizes.d_model, sizes.n_heads, encoding, causal=sizes.causal, embedded=True
    )
    x, positions = torch.ones(1, sizes.length, sizes.d_model), torch.arange(sizes.length)
    return largest_tensor(lambda: layer(encoding.embed(x, positions)))
