"""What each attention layer of a model computes: its queries, keys and scores.

They are noted as they reach the product of the two and the softmax, whatever the layer's code is
called: a module of tables, complex numbers, lines inside attention. At the door of each layer every
token may be given one hidden state, so that queries and keys differ by their positions alone, and
two models may be given the same states, so that a layer answers for itself.
"""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs.explain import runs
from posdoctor.configuration import read
from posdoctor.precision import ROUNDING, cause, off_line, past_the_end, report
from posdoctor.probes import Fit, Layout, fit_of, turned
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.rules import Rule, identify
from posdoctor.subjects import InputError
from posdoctor.tolerances import LOST, rounding

TOKENS = 47  # no width of a head
SUMMED = 512  # roundings in float32 that follow one another in a whole model
READABLE = 1e-2  # radians, or shares of a pair's size: what is farther off is no rotation
UNREAD = "they move by no rotation that we can read"
SIDE = ("queries only", "keys only")
HIDDEN = -5e3  # a score below it is a mask's: some models hide by -1e4, the others by more
BY_LENGTH = {"dynamic", "longrope"}
PRODUCTS = ("matmul", "bmm", "baddbmm", "__matmul__")
Pair = tuple[Tensor, Tensor]


def bound(dtype: torch.dtype, summed: int = 64) -> float:
    """Return by how much two results of a model may differ, as a share of the largest.

    A short type rounds what is stored; sums, norms and angles are computed in float32 whatever the
    type of the weights is.

    Args:
        dtype: of the weights.
        summed: roundings in float32 that follow one another.
    """
    return rounding(dtype) + rounding(torch.float32, summed)


@dataclass
class Attended:
    """One attention: pairs of queries and keys, (H, L, d) each, and scores, (H, L, L).

    Scores are those that the softmax gets, minus infinity where a key is hidden; None where no
    softmax was seen.
    """

    pairs: list[Pair]
    scores: Tensor | None = None


@dataclass
class Watched:
    """What was seen in one call: attentions and states at the door by layer, and the answer."""

    attended: dict[str, list[Attended]] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)
    answer: Tensor = field(default_factory=lambda: torch.empty(0))


def flat(x: Tensor) -> Tensor:
    """Return x (1, H, L, n) or (H, L, n) as (H, L, n), in float64 on the processor."""
    return x.detach().double().cpu().reshape(-1, *x.shape[-2:])


class Watch(TorchFunctionMode):
    """Notes products of queries and keys, and what the softmax gets, by the running layer."""

    def __init__(self) -> None:
        """Begin before the first layer."""
        super().__init__()
        self.layer: str | None = None
        self.found: dict[str, list[Attended]] = {}
        self.products: list[Pair] = []

    def enter(self, layer: str) -> None:
        """Begin a layer."""
        self.leave()
        self.layer = layer

    def leave(self) -> None:
        """End a layer; products that no softmax followed are kept as they are."""
        if self.layer is not None and self.products and self.layer not in self.found:
            self.found[self.layer] = [Attended(self.products)]
        self.products = []

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Look at a call on its way."""
        name, words = getattr(func, "__name__", ""), kwargs or {}
        if self.layer is not None:
            tensors = [x for x in (*args, *words.values()) if isinstance(x, Tensor)]
            if name == "scaled_dot_product_attention":
                self.attention(*args, **words)
            elif name in PRODUCTS and len(tensors) > 1 and tensors[-1].shape[-1:] == (TOKENS,):
                self.product(tensors[-2], tensors[-1].transpose(-1, -2))
            elif name == "softmax" and tensors and tensors[0].ndim > 2:
                self.softmax(tensors[0])
        return func(*args, **words)

    def product(self, q: Tensor, k: Tensor) -> bool:
        """Note queries and keys if they are such."""
        fits = q.ndim > 2 < k.ndim and q.shape[-2] == k.shape[-2] == TOKENS != q.shape[-1]
        if fits and q.is_floating_point():
            self.products.append((flat(q), flat(k)))
        return fits

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
        enable_gqa: bool = False,
    ) -> None:  # fmt: skip
        """Note a call of scaled_dot_product_attention, with the scores that it computes."""
        if not self.product(q, k):
            return
        queries, keys = self.products[-1]
        shared = keys.repeat_interleave(len(queries) // len(keys), 0)  # grouped heads
        scores = queries @ shared.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            scores = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), -torch.inf)
        if attn_mask is not None:
            mask = flat(attn_mask.expand(*attn_mask.shape[:-2], TOKENS, TOKENS))
            hidden = mask == 0 if attn_mask.dtype == torch.bool else mask < HIDDEN
            scores = scores + (0 if attn_mask.dtype == torch.bool else mask)
            scores = scores.masked_fill(hidden, -torch.inf)
        self.note(scores, [self.products[-1]])

    def softmax(self, scores: Tensor) -> None:
        """Note what a softmax gets; behind the keys there may be a sink's column."""
        if scores.shape[-2] == TOKENS and TOKENS <= scores.shape[-1] <= TOKENS + 1:
            kept = flat(scores)[..., :TOKENS]
            self.note(kept.masked_fill(kept < HIDDEN, -torch.inf), self.products)

    def note(self, scores: Tensor, pairs: list[Pair]) -> None:
        """Keep an attention of the running layer."""
        assert self.layer is not None
        self.found.setdefault(self.layer, []).append(Attended(pairs, scores))
        self.products = []


def doors(model: nn.Module) -> dict[str, nn.Module]:
    """Return the layers of a model by name: what its outermost lists of modules hold."""
    lists: dict[str, nn.ModuleList] = {}
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{each}.") for each in lists)
        if isinstance(module, nn.ModuleList) and not inside:
            lists[name] = module
    return {f"{name}.{i}": each for name, one in lists.items() for i, each in enumerate(one)}


def level(x: Any, name: str, same: bool) -> Any:
    """Return random states in the place of hidden states x, the same ones for a layer's name.

    Args:
        x: (..., L, ...) of any rank: (B, L, D), or several streams, (B, L, 4, D) or (4, B, L, D).
        name: of the layer.
        same: give all tokens one state.
    """
    if not (isinstance(x, Tensor) and x.is_floating_point() and TOKENS in x.shape[:-1]):
        return x
    generator = torch.Generator().manual_seed(zlib.crc32(name.rpartition(".")[2].encode()))
    axis = x.shape.index(TOKENS)
    shape = [1 if same and i == axis else size for i, size in enumerate(x.shape)]
    return torch.randn(shape, generator=generator).to(x).expand(x.shape).contiguous()


@torch.no_grad()
def watch(model: nn.Module, call: Callable[[], Tensor], same: bool | None = None) -> Watched:
    """Return what a call of a model computes in each layer.

    Args:
        model: whose layers are watched.
        call: what is called, with TOKENS tokens.
        same: True gives all tokens of a layer one random state, False each its own; None leaves
            them as they come.
    """
    seen, noted, handles = Watched(), Watch(), []

    def enter(name: str, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        noted.enter(name)
        x = args[0] if args else words.get("hidden_states")
        if same is not None:
            x = level(x, name, same)
        elif isinstance(x, Tensor):
            seen.states.setdefault(name, x.detach().double().cpu())
        return ((x, *args[1:]), words) if args else (args, words | {"hidden_states": x})

    for name, layer in doors(model).items():
        handles.append(
            layer.register_forward_pre_hook(
                lambda _, args, words, name=name: enter(name, args, words), with_kwargs=True
            )
        )
    try:
        with noted:
            seen.answer = call().double().cpu()
        noted.leave()
    finally:
        for handle in handles:
            handle.remove()
    seen.attended = noted.found
    return seen


def measured(x: Tensor, expected: Profile, since: Tensor | None = None) -> Profile | None:
    """Return what is done to queries or keys (H, L, d), as far as that can be said.

    Positions are consecutive ones.

    Args:
        x: after it.
        expected: whose layout is tried first.
        since: (H, L, d) before it; without, all tokens were as the first one is now.
    """
    known = expected.layout
    assert known is not None
    wide, since = Layout(known.name, 0, x.shape[-1]), x[:, :1] if since is None else since
    tried = [each._replace(name=name) for each in (known, wide) for name in (known.name, *LAYOUTS)]
    layout = min(tried, key=lambda each: round(turned(x, since, each)[1], 3))
    turn, apart = turned(x, since, layout)
    fit = fit_of(turn, torch.arange(x.shape[1]).double())
    if apart > READABLE or fit.error > 5 * READABLE:
        return None
    return Profile(
        "rotary",
        expected.dim,
        layout,
        fit.inv_freq.abs()[:, None],
        rule=identify(fit.inv_freq.abs(), 1e-2)
        if bool((fit.inv_freq != 0).any())
        else Rule("unknown"),
        backwards=bool((fit.inv_freq < 1e-9).all()),
    )


def spread_places(reach: int) -> Tensor:
    """Return TOKENS positions below a reach: the first ones, and pairs of neighbours far out."""
    far = [place for k in range(6, 21) for place in (2**k, 2**k + 1) if place < reach]
    return torch.cat([torch.arange(TOKENS - len(far)), torch.tensor(far, dtype=torch.long)])


@dataclass
class Look:
    """What was seen of a model's layers.

    Attributes:
        plain: states and answer for some tokens, as they come.
        mixed: every token of every layer has a random state of its own.
        near: all tokens of a layer have one state, and positions 0, 1, 2, ...
        far: the same at `places`; None where the model takes no such positions.
        places: (L,).
    """

    plain: Watched
    mixed: Watched
    near: Watched
    far: Watched | None
    places: Tensor


def look(
    model: nn.Module,
    call: Callable[[Tensor, Tensor | None], Tensor],
    ids: Tensor,
    reaches: tuple[int, ...],
) -> Look:
    """Look at the layers of a model.

    Args:
        model: whose layers are watched.
        call: ids (1, L), positions (1, L) or None -> answer.
        ids: (1, TOKENS).
        reaches: how far positions may go, the farthest first; none where it takes none.
    """
    plain, mixed, near = (
        watch(model, partial(call, ids, None), same) for same in (None, False, True)
    )
    for reach in reaches:
        places = spread_places(reach)
        with contextlib.suppress(Exception):  # whatever a model says of positions past its table
            far = watch(model, partial(call, ids, places[None]), True)
            return Look(plain, mixed, near, far, places)
    return Look(plain, mixed, near, None, torch.arange(0))


def moving(x: Tensor) -> Tensor:
    """Return which components of queries or keys (H, L, d) at one state change with the place."""
    return (x - x[:, :1]).abs().amax((0, 1)) > 1e-3 * x.abs().max()


def turning(x: Tensor) -> bool:
    """Return whether queries or keys (H, L, d) change direction, not size alone."""
    unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-30)
    return float((unit - unit[:, :1]).abs().max()) > 1e-3


def rotation(x: Tensor, far: Tensor | None = None) -> Profile | None:
    """Return the rotation of queries or keys (H, L, d) at one state, whatever components it has.

    Args:
        x: at positions 0, 1, 2, ...
        far: at others, where slow pairs have moved too.
    """
    which = moving(x if far is None else far).nonzero().flatten()
    if not len(which):
        return None
    start, end = int(which.min()), int(which.max()) + 1
    width = end - start + (end - start) % 2
    return measured(x, Profile("rotary", x.shape[-1], Layout("half", start, width)))


def unmoved(seen: Look, how: Callable[[Tensor], object]) -> list[str]:
    """Return the layers whose queries or keys change along the sequence alike at any positions.

    Args:
        seen: what was seen of the layers.
        how: queries or keys (H, L, d) at one state -> whether they change in the way that is meant.
    """
    both = {
        name: (one[0].pairs, seen.far.attended[name][0].pairs)
        for name, one in seen.near.attended.items()
        if seen.far is not None and name in seen.far.attended
    }
    return [
        name
        for name, (near, far) in both.items()
        if any(how(x) for pair in near for x in pair)
        and all(torch.equal(x, y) for one, two in zip(near, far, strict=True)
                for x, y in zip(one, two, strict=True))
    ]  # fmt: skip


def spoken(names: Iterable[str], among: Iterable[str]) -> str:
    """Return layers in words: by number, or by name where there are several lists of them."""
    chosen = list(names)
    if len({name.rpartition(".")[0] for name in among}) > 1:
        return ", ".join(chosen)
    numbers = sorted(int(name.rpartition(".")[2]) for name in chosen)
    return f"layer{'s' * (len(numbers) > 1)} {runs(numbers)}"


def examine_angles(
    model: nn.Module, seen: Look, config: Mapping[str, Any], dtype: torch.dtype, case: Case
) -> None:
    """Compare the angles of each layer's queries and keys with those that its file asks for.

    Args:
        model: of transformers.
        seen: what its layers did.
        config: its configuration.
        dtype: of its weights.
        case: gets findings, each with the layers that it is about.
    """
    try:
        _, _, wanted = read(config, Case())
    except (InputError, ValueError) as error:
        case.unexamined.append(f"angles of the layers: {error}")
        return
    lists: dict[str, list[str]] = {}
    for name in doors(model):
        lists.setdefault(name.rpartition(".")[0], []).append(name)
    names = next((each for each in lists.values() if len(each) == len(wanted)), [])
    if not names:
        case.unexamined.append(f"angles of the layers: no list of {len(wanted)} layers was found")
    said: dict[tuple[str, str], list[str]] = {}
    missed: dict[str, list[str]] = {}
    sound: dict[str, float] = {}
    near_only: list[str] = []
    for name, expected in zip(names, wanted, strict=False):
        trial = Case()
        near, far = (turned_pair(*each.attended.get(name, [])[:1]) if each else None
                     for each in (seen.near, seen.far))  # fmt: skip
        by_length = expected and expected.rule and expected.rule.name in BY_LENGTH
        if far and by_length and expected and expected.inv_freq is not None:
            far = None
            near_only.append(name)
        found: float | str | None = "no product of queries and keys was seen" if expected else None
        if near is not None:
            found = judge_layer(near, far, seen.places, expected, dtype, trial)
        for finding in trial.findings:
            said.setdefault((finding.name, finding.detail), []).append(name)
        if isinstance(found, float):
            sound[name] = found
        elif found is not None:
            missed.setdefault(found, []).append(name)
    if sound:
        reach = TOKENS - 1 if near_only or not seen.far else int(seen.places.max())
        case.facts["angles"] = (
            f"those of queries and keys agree with the configuration in {spoken(sound, names)}, "
            f"largest difference {max(sound.values()):.1g} radians up to position {reach}"
        )
    if near_only:
        where = spoken(near_only, names)
        case.unexamined.append(f"far positions of {where}: the frequencies depend on the length")
    for reason, layers in missed.items():
        case.unexamined.append(f"angles in {spoken(layers, names)}: {reason}")
    for (name, detail), layers in said.items():
        case.fault(name, detail, spoken(layers, names))


def turned_pair(attended: Attended | None = None) -> Pair | None:
    """Return queries and keys of an attention: of several products, those of the one that turns."""
    pairs = [] if attended is None else attended.pairs
    last = pairs[-1] if pairs else None
    return next((pair for pair in pairs if any(turning(x) for x in pair)), last)


def judge_layer(
    near: Pair,
    far: Pair | None,
    places: Tensor,
    expected: Profile | None,
    dtype: torch.dtype,
    case: Case,
) -> float | str | None:
    """Compare queries and keys of one layer, near and at far places, with what is expected.

    Returns:
        the largest difference of an angle, if all agree; why nothing can be said; or None, where a
        fault was found or nothing rotates and nothing should.
    """
    turns = [turning(x) for x in near]
    if not all(bool(x.any()) for x in near):
        return "queries or keys are zero"
    if expected is None:
        if all(turns) and all(rotation(x) for x in near):
            case.fault("layer-rotates")
            return None
        return UNREAD if any(turns) else None
    if expected.inv_freq is None or expected.layout is None:
        return "the frequencies depend on the length, or the configuration does not tell the layout"
    if not all(turns):
        case.fault("layer-unrotated", "" if not any(turns) else SIDE[turns.index(False)])
        return None
    width = expected.layout.width // 2
    inv_freq = torch.zeros(width, dtype=torch.float64)
    inv_freq[: len(expected.inv_freq)] = expected.inv_freq.sum(1)
    zero = torch.zeros_like(inv_freq)
    line = Fit(inv_freq * (-1 if expected.backwards else 1), zero, 0.0, zero + 1, zero)
    worst = 0.0
    for side, x in enumerate(near):
        layout, error = fitting(x, expected, dtype), None
        if layout is not None:
            error = judge_line(x, far and far[side], places, layout, line, dtype, case)
        if error is None and not case.findings:
            own = measured(x, expected)
            if own is not None:
                compare_profiles(own, expected, case)
            if not case.findings:
                return UNREAD
        worst = max(worst, error or 0.0)
    return None if case.findings else worst


def fitting(x: Tensor, expected: Profile, dtype: torch.dtype) -> Layout | None:
    """Return the layout in which pairs of x (H, L, d) are rotated, if it is one to be expected.

    Latent attention may leave the interleaved pairs of its last components in halves.
    """
    known = expected.layout
    assert known is not None
    names = LAYOUTS if known.start else (known.name,)
    allowed = READABLE + bound(dtype)
    for layout in (known._replace(name=name) for name in names):
        fits = layout.start + layout.width <= x.shape[-1]
        if fits and turned(x, x[:, :1], layout)[1] < allowed:
            return layout
    return None


def judge_line(
    x: Tensor,
    far: Tensor | None,
    places: Tensor,
    layout: Layout,
    line: Fit,
    dtype: torch.dtype,
    case: Case,
) -> float | None:
    """Return how far angles are from the lines, if they follow them; name what happens far out."""
    near = off_line(turned(x, x[:, :1], layout)[0], line, torch.arange(TOKENS).double())
    sound, name = float(near.max()) < READABLE + bound(dtype), None
    worst = float(near.max())
    if far is not None:
        z = turned(far, far[:, :1], layout)[0]
        error = off_line(z, line, places.double())
        worst = max(worst, float(error.max()))
        if bool((error > LOST + ROUNDING * places).any()):
            name = cause(z, places, line.inv_freq, lambda: None)
            if name is None and sound:
                name = past_the_end(z, places, line) or "precision-lost"
        if name is not None:
            report(name, places, error, str(dtype).removeprefix("torch."), case)
    return worst if sound and name is None else None
