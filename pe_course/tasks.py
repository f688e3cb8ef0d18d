"""Small tasks that show what a position encoding can and cannot do.

Each maker takes a generator and returns (inputs, targets); a target of IGNORE is not counted.
"""

from __future__ import annotations

from importlib.resources import files

import torch
from torch import Tensor

from pe_course import checks
from pe_course.training import IGNORE, Batch

DATA = files(__package__) / "data"
A, B = 0, 1  # the two marked tokens of `which_came_first`


def which_came_first(
    count: int, length: int, generator: torch.Generator, *, vocab: int = 16
) -> Batch:
    """One A and one B among filler tokens: which of them came first?

    Args:
        count: number of sequences.
        length: tokens per sequence L; at least 2.
        generator: source of the random numbers.
        vocab: number of tokens; A is 0, B is 1, the others are fillers.

    Returns:
        tokens (count, L) and labels (count,): 1 if A comes first, else 0.
    """
    tokens = torch.randint(2, vocab, (count, length), generator=generator)
    places = torch.rand(count, length, generator=generator).argsort(dim=1)[:, :2]  # (count, 2)
    rows = torch.arange(count)
    tokens[rows, places[:, 0]], tokens[rows, places[:, 1]] = A, B
    return tokens, (places[:, 0] < places[:, 1]).long()


def swap_closed(tokens: Tensor, labels: Tensor) -> Batch:
    """Add to each sequence its twin with A and B exchanged, whose label is the other one.

    A model whose output does not depend on order gives both twins the same answer, so it is
    right on exactly one of them.
    """
    twins = torch.where(tokens == A, B, torch.where(tokens == B, A, tokens))
    return torch.cat([tokens, twins]), torch.cat([labels, 1 - labels])


def mirror_closed(tokens: Tensor, labels: Tensor) -> Batch:
    """Add to each sequence its mirror image, whose label is the other one."""
    return torch.cat([tokens, tokens.flip(1)]), torch.cat([labels, 1 - labels])


def permutations(count: int, length: int, generator: torch.Generator) -> Tensor:
    """Return `count` random orders of the tokens 0 to length - 1, (count, length)."""
    return torch.rand(count, length, generator=generator).argsort(dim=1)


def shift(count: int, length: int, generator: torch.Generator) -> Batch:
    """Name the token to the left (for the first token, the last one)."""
    tokens = permutations(count, length, generator)
    return tokens, tokens.roll(1, dims=1)


def reverse(count: int, length: int, generator: torch.Generator) -> Batch:
    """Name the token at the mirrored place."""
    tokens = permutations(count, length, generator)
    return tokens, tokens.flip(1)


def n_back(
    count: int, length: int, generator: torch.Generator, *, n: int = 3, vocab: int = 16
) -> Batch:
    """Name the token n places back: an exact offset. The first n targets are ignored."""
    checks.integer("n", n)
    tokens = torch.randint(vocab, (count, length), generator=generator)
    targets = torch.full_like(tokens, IGNORE)
    targets[:, n:] = tokens[:, :-n]
    return tokens, targets


def marker_recall(count: int, length: int, generator: torch.Generator, *, vocab: int = 16) -> Batch:
    """Name, ever after, the token that followed the marker: retrieval at any distance.

    Tokens are 0 to vocab - 1 and the marker is `vocab`. Targets up to the token after the
    marker are ignored.
    """
    tokens = torch.randint(vocab, (count, length), generator=generator)
    place = torch.randint(length - 2, (count, 1), generator=generator)
    answer = tokens.gather(1, place + 1)  # (count, 1)
    tokens.scatter_(1, place, vocab)
    later = torch.arange(length) > place + 1  # (count, length)
    return tokens, torch.where(later, answer, IGNORE)


PLUS, EQUALS = 10, 11  # tokens of `addition`, after the ten digits


def addition(count: int, digits: int, generator: torch.Generator) -> Batch:
    """Add two numbers, digit by digit from the last: a + b = c, all written in reverse.

    In reverse each digit of the sum needs two digits and one carry, however long the numbers are.

    Args:
        count: number of sums.
        digits: of each number n; the sum has one more.
        generator: source of the random numbers.

    Returns:
        tokens (count, 3n + 2): n digits, PLUS, n digits, EQUALS, n digits of the sum; targets
        of the same shape: the digit of the sum that comes next, IGNORE before EQUALS.
    """
    numbers = torch.randint(10, (count, 2, digits), generator=generator)
    carry, total = torch.zeros(count, dtype=torch.long), []
    for column in numbers.sum(dim=1).T:  # (count,), the last digits first
        total.append((column + carry) % 10)
        carry = (column + carry) // 10
    total.append(carry)
    sums = torch.stack(total, dim=1)  # (count, n + 1)
    plus, equals = (torch.full((count, 1), token) for token in (PLUS, EQUALS))
    tokens = torch.cat([numbers[:, 0], plus, numbers[:, 1], equals, sums[:, :-1]], dim=1)
    targets = torch.full_like(tokens, IGNORE)
    targets[:, -digits - 1 :] = sums
    return tokens, targets


def coupled_positions(digits: int) -> Tensor:
    """Return positions for `addition` in which digits that belong together share one.

    Digit i of both numbers has position i, and so has the token from which digit i of the sum is
    to be told, which is the sum's digit before it. Attention that hides greater positions then
    hides just what is not known yet.

    Args:
        digits: of each number n.

    Returns:
        (3n + 2,): 0 ... n - 1, 0, 0 ... n - 1, 0 ... n.

    Source: Cho et al. 2024, section 3, for digits in the order in which they are told.
    """
    column = torch.arange(digits)
    return torch.cat([column, column[:1], column, torch.arange(digits + 1)])


def load_text() -> str:
    """Return the course's English text: Ambrose Bierce, The Devil's Dictionary (1911)."""
    return (DATA / "devils_dictionary.txt").read_text(encoding="utf-8")


def encode_characters(text: str) -> tuple[Tensor, str]:
    """Number the characters of a text: ids (len(text),) and the alphabet they index."""
    alphabet = "".join(sorted(set(text)))
    number = {character: i for i, character in enumerate(alphabet)}
    return torch.tensor([number[character] for character in text]), alphabet


def text_windows(ids: Tensor, count: int, length: int, generator: torch.Generator) -> Batch:
    """Cut random windows: inputs and next characters, (count, length) each."""
    starts = torch.randint(len(ids) - length, (count, 1), generator=generator)
    window = ids[starts + torch.arange(length + 1)]  # (count, length + 1)
    return window[:, :-1], window[:, 1:]


def load_digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scikit-learn's 8 x 8 digits, split 70 / 30 with equal shares of each digit.

    Returns:
        training images (N, 8, 8) in [0, 1], training labels (N,), and the same for testing.
    """
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    images, labels = load(return_X_y=True)
    parts = train_test_split(images / 16, labels, test_size=0.3, random_state=0, stratify=labels)
    train_x, test_x, train_y, test_y = (torch.from_numpy(part) for part in parts)
    as_images = [x.float().reshape(-1, 8, 8) for x in (train_x, test_x)]
    return as_images[0], train_y.long(), as_images[1], test_y.long()


def patches(images: Tensor, size: int) -> Tensor:
    """Cut images into square patches, row by row: (B, H, W) -> (B, H W / size^2, size^2).

    Raises:
        ValueError: if `size` does not divide the height and the width.
    """
    if images.ndim != 3 or images.shape[1] % size or images.shape[2] % size:
        raise ValueError(
            f"images must have shape (batch, height, width), both multiples of {size}, "
            f"got {tuple(images.shape)}"
        )
    tiles = images.unflatten(2, (-1, size)).unflatten(1, (-1, size))  # (B, h, size, w, size)
    cut: Tensor = tiles.transpose(2, 3).flatten(3).flatten(1, 2)  # (B, h w, size^2)
    return cut


def on_canvas(images: Tensor, offsets: Tensor, size: int) -> Tensor:
    """Put each image on an empty square canvas: (B, H, W) -> (B, size, size).

    Args:
        images: (B, H, W).
        offsets: row and column of each image's first corner, (B, 2).
        size: height and width of the canvas.
    """
    canvas = images.new_zeros(len(images), size, size)
    rows = offsets[:, :1] + torch.arange(images.shape[1])  # (B, H)
    columns = offsets[:, 1:] + torch.arange(images.shape[2])  # (B, W)
    canvas[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]] = images
    return canvas
