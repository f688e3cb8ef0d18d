"""Checks of a whole language model: does a token's logit depend on how the tokens came in?

A causal model gives the same logits whether the tokens come at once, in chunks, or one by one
with a cache; behind padding, or packed behind another text. Each way is compared with the plain
one, with a tolerance from the type of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from posdoctor.configuration import examine_configuration
from posdoctor.layers import examine_layers
from posdoctor.profile import Case, Profile
from posdoctor.report import Report
from posdoctor.subjects import InputError

LENGTH, SHIFT, PADS, STEPS = 24, 37, 5, 6
# Share of the largest logit by which two ways of computing the same may differ.
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 5e-2, torch.float16: 1e-2}


@runtime_checkable
class CausalModel(Protocol):
    """What is examined: a causal language model in one form.

    Attributes:
        vocabulary: tokens are 0, ..., vocabulary - 1.
        dtype: of the weights.
    """

    vocabulary: int
    dtype: torch.dtype

    def logits(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return logits (B, L, V) of ids (B, L); mask is bool, (B, 1, L, L), True: may look."""
        ...

    def in_chunks(self, chunks: list[Tensor]) -> Tensor:
        """Return the logits of chunks of ids (B, L_i) that follow one another, with a cache."""
        ...


class PublishedModel:
    """A causal language model of transformers."""

    def __init__(self, model: nn.Module) -> None:
        """Keep the model, which must have a configuration with a vocabulary."""
        if "RotaryEmbedding" in type(model).__name__:
            raise InputError(
                f"{type(model).__name__} gives tables alone: see posdoctor.ways.of_module"
            )
        config: Any = model.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        if getattr(text, "vocab_size", None) is None:
            raise InputError(f"{type(model).__name__} has no vocabulary in its configuration")
        self.model, self.vocabulary = model.eval(), int(text.vocab_size)
        self.dtype = next((each.dtype for each in model.parameters()), torch.float32)
        spans = [getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size")]
        self.window = min((int(span) for span in spans if span), default=1 << 30)

    def logits(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return logits (B, L, V)."""
        given: dict[str, Any] = {} if positions is None else {"position_ids": positions}
        if mask is not None and mask.shape[-1] > self.window:
            raise InputError(f"a mask of its own would drop the window of {self.window}")
        if mask is not None:
            lowest = torch.finfo(self.dtype).min
            given["attention_mask"] = torch.zeros(mask.shape, dtype=self.dtype).masked_fill(
                ~mask, lowest
            )
        found: Tensor = self.model(ids, use_cache=False, **given).logits
        return found

    def in_chunks(self, chunks: list[Tensor]) -> Tensor:
        """Return the logits of chunks that follow one another."""
        cache, found = None, []
        for chunk in chunks:
            out = self.model(chunk, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            found.append(out.logits)
        return torch.cat(found, dim=1)

    def behind(self, ids: Tensor, pads: int) -> tuple[Tensor, Tensor]:
        """Return ids behind padding on the left, and the 2-D mask that hides it."""
        padding = torch.zeros_like(ids[:, :1]).expand(-1, pads)
        longer = torch.cat([padding, ids], dim=1)
        return longer, (torch.arange(longer.shape[1]) >= pads).long().expand(longer.shape)

    def masked(self, ids: Tensor) -> Tensor:
        """Return the logits of ids behind padding, with nothing but the mask."""
        longer, mask = self.behind(ids, PADS)
        found: Tensor = self.model(longer, attention_mask=mask, use_cache=False).logits
        return found[:, PADS:]

    def generated(self, ids: Tensor, pads: int) -> tuple[Tensor, Tensor]:
        """Return the tokens and logits of a greedy continuation behind padding."""
        longer, mask = self.behind(ids, pads)
        options = {"do_sample": False, "max_new_tokens": STEPS, "min_new_tokens": STEPS,
                   "num_beams": 1, "pad_token_id": 0}  # fmt: skip
        model: Any = self.model
        out = model.generate(longer, attention_mask=mask, output_logits=True,
                             return_dict_in_generate=True, **options)  # fmt: skip
        return out.sequences[:, longer.shape[1] :], torch.stack(list(out.logits), dim=1)


def as_model(model: object) -> CausalModel:
    """Return a model in the form that is examined.

    Raises:
        InputError: if it is none that can be.
    """
    if isinstance(model, CausalModel):
        return model
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        return PublishedModel(model)
    raise InputError(
        "model must be a causal model of transformers, or have what posdoctor.models.CausalModel "
        f"lists; got {type(model).__name__}"
    )


def causal(length: int, hidden: int = 0) -> Tensor:
    """Return a causal mask (1, 1, L, L) that hides the first keys, but for each from itself."""
    places = torch.arange(length)
    mask = (places[:, None] >= places) & (places >= hidden)
    return (mask | torch.eye(length, dtype=torch.bool))[None, None]


def whole(model: CausalModel, ids: Tensor) -> Tensor:
    """Compute the logits at once: the reference."""
    return model.logits(ids, None, None)


def cached(model: CausalModel, ids: Tensor) -> Tensor:
    """Half of the tokens at once, then one by one."""
    half = ids.shape[1] // 2
    return model.in_chunks([ids[:, :half], *ids[:, half:].split(1, dim=1)])


def chunked(model: CausalModel, ids: Tensor) -> Tensor:
    """Chunks of 7 tokens."""
    return model.in_chunks(list(ids.split(7, dim=1)))


def padded(model: CausalModel, ids: Tensor) -> Tensor:
    """Padding on the left, less in each row, hidden by the mask; real tokens count from 0."""
    length, pads = ids.shape[1], [PADS - 2 * row for row in range(len(ids))]
    blank = torch.zeros_like(ids[0])
    rows = [  # what fills a row up on the right is seen by nobody before it
        torch.cat([blank[:count], row, row[: PADS - count]])
        for count, row in zip(pads, ids, strict=True)
    ]
    positions = (torch.arange(length + PADS) - torch.tensor(pads)[:, None]).clamp(min=0)
    mask = torch.cat([causal(length + PADS, count) for count in pads])  # (B, 1, L, L)
    found = model.logits(torch.stack(rows), positions, mask)
    return torch.stack([row[count:][:length] for count, row in zip(pads, found, strict=True)])


def packed(model: CausalModel, ids: Tensor) -> Tensor:
    """Behind another text, with positions that start again and a mask that keeps them apart."""
    first, length = ids.flip(1)[:, :9], ids.shape[1]
    both = torch.cat([first, ids], dim=1)
    border = first.shape[1]
    positions = torch.cat([torch.arange(border), torch.arange(length)])[None]
    text = (torch.arange(border + length) >= border).long()
    mask = causal(border + length) & (text[:, None] == text)
    return model.logits(both, positions, mask)[:, border:]


def continued(model: CausalModel, ids: Tensor) -> Tensor:
    """A prompt, some tokens one by one, a longer piece into the same cache, and on."""
    return model.in_chunks(list(ids.split([9, 1, 1, 6, 1, ids.shape[1] - 18], dim=1)))


def shifted(model: CausalModel, ids: Tensor) -> Tensor:
    """All positions moved."""
    positions = torch.arange(ids.shape[1])[None] + SHIFT
    return model.logits(ids, positions, causal(ids.shape[1]))


WAYS: dict[str, Callable[[CausalModel, Tensor], Tensor]] = {
    "cache": cached,
    "chunked-prefill": chunked,
    "continued": continued,
    "left-padding": padded,
    "packing": packed,
    "shift": shifted,
}


@torch.no_grad()
def compare_ways(model: CausalModel, case: Case) -> dict[str, float]:
    """Return how far each way is from the plain one, as a share of the largest logit."""
    generator = torch.Generator().manual_seed(16)
    ids = torch.randint(1, model.vocabulary, (2, LENGTH), generator=generator)
    plain = whole(model, ids).double()
    bound, found = TOLERANCE.get(model.dtype, 1e-2), {}
    for name, way in WAYS.items():
        try:
            other = way(model, ids).double()
        except Exception as error:
            case.unexamined.append(f"{name}: the model raised {type(error).__name__}: {error}")
            continue
        found[name] = float((other - plain).abs().max() / plain.abs().max())
        case.facts[name] = f"differs by {found[name]:.1e} of the largest logit"
        if not found[name] <= bound:
            add = case.note if name == "shift" else case.fault
            add(name, f"{found[name]:.2g} of the largest logit; {bound:.0e} is rounding")
    if isinstance(model, PublishedModel):
        as_people_pad(model, ids, plain, bound, case)
    return found


def as_people_pad(
    model: PublishedModel, ids: Tensor, plain: Tensor, bound: float, case: Case
) -> None:
    """Pad on the left with a 2-D mask and no positions: in a plain call, and in `generate`."""
    try:
        size = float((model.masked(ids).double() - plain).abs().max() / plain.abs().max())
        case.facts["mask-alone"] = f"differs by {size:.1e} of the largest logit"
        if not size <= bound:
            add = case.note if case.has("shift") else case.fault
            add(
                "mask-alone" if case.has("shift") else "left-padding",
                f"{size:.2g}, with a 2-D mask",
            )
        tokens, wanted = model.generated(ids, 0)
        same, got = model.generated(ids, PADS)
    except Exception as error:
        case.unexamined.append(f"generate with padding: {type(error).__name__}: {error}")
        return
    agree = (tokens == same).cumprod(1).bool()  # after another token, logits may differ
    agree = torch.cat([torch.ones_like(agree[:, :1]), agree[:, :-1]], dim=1)
    off = (got - wanted).double().abs().amax(-1)[agree].max() / wanted.abs().max()
    case.facts["generate"] = f"behind padding, logits differ by {float(off):.1e} of the largest"
    if not float(off) <= bound:
        equal = int((tokens == same).sum())
        case.fault("generate", f"{float(off):.2g} of the largest logit; {equal} of "
                               f"{tokens.numel()} greedy tokens are the same")  # fmt: skip


def is_model(thing: object) -> bool:
    """Return whether a thing is a whole model, in one of the forms of `as_model`."""
    published = isinstance(thing, nn.Module) and hasattr(thing, "config")
    return published or isinstance(thing, CausalModel)


def examine_model(model: object) -> Report:
    """Examine a causal language model as a whole, and its configuration if it has one."""
    subject, case = as_model(model), Case()
    compare_ways(subject, case)
    case.unexamined.append("the weights: whether they were trained with these positions")
    profile: Profile | None = None
    config: Any = getattr(model, "config", None)
    given = config.to_dict() if hasattr(config, "to_dict") else None
    if isinstance(given, Mapping):
        try:
            profile = examine_configuration(given, case)
        except InputError as error:
            case.unexamined.append(f"the configuration: {error}")
    report = Report(type(model).__name__, case, profile)
    if isinstance(subject, PublishedModel) and given is not None and profile is not None:
        examine_layers(subject.model, given, subject.dtype, case)
    return report
