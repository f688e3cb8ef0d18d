"""The examination of a builder of position ids: what gives each token its position.

Builders are tried on a few batches, each with one trap: padding on either side, a text of one
token, an image at the start. Only the ids of real tokens are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from posdoctor.profile import Case, Profile
from posdoctor.subjects import InputError, PositionIds


class Trap(NamedTuple):
    """One call: what is given, and which tokens are real, (B, L) or (L,)."""

    name: str
    given: tuple[Tensor | int, ...]
    real: Tensor


def rows(*texts: str) -> Tensor:
    """Return digits as a tensor, (B, L)."""
    return torch.tensor([[int(digit) for digit in text] for text in texts])


def masks() -> Iterator[Trap]:
    """Yield attention masks, (B, L) of 0 and 1."""
    for name, mask in {
        "no padding": rows("1111111"),
        "left padding": rows("0001111", "1111111", "0111111"),
        "right padding": rows("1111000", "1111111", "1111110"),
        "one real token": rows("0000001", "1000000"),
    }.items():
        yield Trap(name, (mask,), mask.bool())


def segments() -> Iterator[Trap]:
    """Yield numbers of the texts that tokens belong to, (B, L); 0 is padding."""
    for name, texts in {
        "one text": rows("1111111"),
        "two texts": rows("1112222"),
        "a text of one token": rows("1112333", "1222223"),
        "padding behind": rows("1122200", "1222222"),
    }.items():
        yield Trap(name, (texts,), texts > 0)


def steps() -> Iterator[Trap]:
    """Yield attention masks, (B, L), with how many of the tokens are in the cache."""
    for name, mask, past in (
        ("the prompt", rows("1111111", "0011111"), 0),
        ("one new token", rows("1111111"), 6),
        ("one new token behind left padding", rows("0001111", "1111111"), 6),
        ("three new tokens behind left padding", rows("0001111", "1111111"), 4),
    ):
        yield Trap(name, (mask, past), mask[:, past:].bool())


def grids() -> Iterator[Trap]:
    """Yield kinds of tokens, (L,) of 0 for text and 1 for what is seen, and grids (n, 3)."""
    drawn: dict[str, list[Any]] = {
        "text alone": [5],
        "image between": [3, (1, 2, 4), 3],
        "image first": [(1, 3, 2), 4],
        "image last": [2, (1, 4, 3)],
        "two images of unequal grids": [2, (1, 2, 5), 3, (1, 4, 2), 2],
        "video": [2, (3, 2, 4), 3],
    }
    for name, parts in drawn.items():
        seen = torch.tensor([p for p in parts if isinstance(p, tuple)]).reshape(-1, 3)
        types = [torch.full((int(torch.tensor(p).prod()),), int(isinstance(p, tuple)))
                 for p in parts]  # fmt: skip
        yield Trap(name, (torch.cat(types), seen), torch.cat(types) >= 0)


def examine_position_ids(subject: PositionIds, case: Case) -> Profile:
    """Try a builder on each trap; keep what it gives to real tokens.

    Raises:
        InputError: if it raises, or returns another shape.
    """
    draw, judge = FORMS[subject.takes]
    found: dict[str, Tensor] = {}
    starts = set()
    for trap in draw():
        ids = called(subject, trap)
        found[trap.name] = ids.masked_fill(~trap.real, 0)
        start = judge(ids, trap, case)
        starts |= set() if start is None else {start}
    if len(starts) > 1:
        case.fault("ids-not-counted", f"texts start at {', '.join(map(str, sorted(starts)))}")
    elif starts - {0}:
        case.note("ids-start", f"at {starts.pop()}")
    case.facts["tried"] = ", ".join(found)
    return Profile("position_ids", ids=found)


def called(subject: PositionIds, trap: Trap) -> Tensor:
    """Return the ids of a trap, int64: (B, L), or (3, L) without a first row that counts text."""
    given = [x.clone() if isinstance(x, Tensor) else x for x in trap.given]
    try:
        ids = subject.function(*given)
    except Exception as error:  # whatever the function under examination raises
        raise InputError(f"{trap.name}: the builder raised {type(error).__name__}: {error}; it "
                         f"must take {subject.form}") from error  # fmt: skip
    wanted = tuple(trap.real.shape) if trap.real.ndim == 2 else (3, len(trap.real))
    if isinstance(ids, Tensor) and trap.real.ndim == 1:
        ids = (ids[:, 0] if ids.ndim == 3 else ids)[-3:]
    if not isinstance(ids, Tensor) or tuple(ids.shape) != wanted:
        got = tuple(ids.shape) if isinstance(ids, Tensor) else type(ids).__name__
        raise InputError(f"{trap.name}: a builder must return {wanted}, got {got}")
    return ids.long()


def judge_masks(ids: Tensor, trap: Trap, case: Case) -> int | None:
    """Check that real tokens are counted; return the first one's id."""
    texts = [row[real] for row, real in zip(ids, trap.real, strict=True)]
    return counted(texts, trap, "padding-counted" if "padding" in trap.name else "", case)


def judge_segments(ids: Tensor, trap: Trap, case: Case) -> int | None:
    """Check that each text starts again."""
    (numbers,) = trap.given
    assert isinstance(numbers, Tensor)
    texts = [row[own == number] for row, own in zip(ids, numbers, strict=True)
             for number in own.unique() if number]  # fmt: skip
    return counted(texts, trap, "segments-run-on", case)


def judge_steps(ids: Tensor, trap: Trap, case: Case) -> int | None:
    """Check that new tokens continue where their own row ended."""
    mask, past = trap.given
    assert isinstance(mask, Tensor)
    want = (mask.cumsum(1) - 1)[:, past:]
    off = (ids - want)[trap.real]
    if len(off.unique()) > 1:
        row = int((ids - want != off.mode().values).any(1).nonzero()[0])
        case.fault("step-elsewhere", f"{told(ids[row])}, {told(want[row])} would continue it",
                   trap.name)  # fmt: skip
        return None
    return int(off[0])


def judge_grids(ids: Tensor, trap: Trap, case: Case) -> int | None:
    """Check text, rows and columns, and what follows an image."""
    types, sizes = trap.given
    assert isinstance(types, Tensor)
    assert isinstance(sizes, Tensor)
    start, at, left = int(ids[:, 0].min()), 0, sizes.tolist()
    following = start
    while at < len(types):
        if types[at] == 0:
            if len(ids[:, at].unique()) > 1:
                case.fault("text-axes", f"token {at} gets {told(ids[:, at])}", trap.name)
            if int(ids[:, at].max()) != following:
                name = "after-image" if at and types[at - 1] else "ids-not-counted"
                case.fault(name, f"token {at} gets {told(ids[:, at])}, expected {following}",
                           trap.name)  # fmt: skip
            following, at = int(ids[:, at].max()) + 1, at + 1
            continue
        frames, height, width = left.pop(0)
        part = ids[:, at : at + frames * height * width].reshape(3, frames, height, width)
        want = torch.stack(torch.meshgrid(*map(torch.arange, (frames, height, width)),
                                          indexing="ij"))  # fmt: skip
        time, rest = part[0, :, 0, 0], (part - part[:, :1, :1, :1])[1:]
        steady = bool((part[0] == time[:, None, None]).all()) and len(time.diff().unique()) < 2
        if not steady or not torch.equal(rest, want[1:]):
            axis = "time" if not steady else "rows" if (rest[0] != want[1]).any() else "columns"
            first = told(part[:, 0].flatten(1)[("time", "rows", "columns").index(axis)])
            case.fault("grid-ids", f"{axis} of the first frame get {first}", trap.name)
        elif int(part[:, 0, 0, 0].min()) != following:
            case.fault("grid-ids", f"an image starts at {int(part[0, 0, 0, 0])}, expected "
                                   f"{following}", trap.name)  # fmt: skip
        following, at = int(part.max()) + 1, at + frames * height * width
    return start


def counted(texts: list[Tensor], trap: Trap, name: str, case: Case) -> int | None:
    """Check that the ids of each text go up one by one from the same start; return the start."""
    for text in texts:
        if not torch.equal(text - text[0], torch.arange(len(text))):
            case.fault("ids-not-counted", f"a text gets {told(text)}", trap.name)
            return None
    starts = sorted({int(text[0]) for text in texts})
    if len(starts) > 1 or (name == "segments-run-on" and starts[0] > 2):
        words = f"texts start at {', '.join(map(str, starts))}"
        case.fault(name or "ids-not-counted", words, trap.name)
        return None
    return starts[0]


def told(ids: Tensor) -> str:
    """Return ids in words."""
    return ", ".join(map(str, ids.tolist()[:12]))


Judge = Callable[[Tensor, Trap, Case], int | None]
FORMS: dict[str, tuple[Callable[[], Iterator[Trap]], Judge]] = {
    "mask": (masks, judge_masks),
    "segments": (segments, judge_segments),
    "step": (steps, judge_steps),
    "grids": (grids, judge_grids),
}
