"""Checks of a whole language model: does a token's logit depend on how the tokens came in?

A causal model gives the same logits whether the tokens come at once, in chunks, or one by one
with a cache; behind padding, or packed behind another text. What a way presupposes is asked first:
that later tokens change nothing before them, that a mask hides what it should. Where the answer is
no, the way is not examined.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from posdoctor.configuration import examine_configuration
from posdoctor.findings import UNSURE
from posdoctor.layers import (
    SUMMED,
    TOKENS,
    Look,
    bound,
    examine_angles,
    look,
    moving,
    rotation,
    spoken,
    turning,
    unmoved,
)
from posdoctor.profile import Case, Profile
from posdoctor.reference import apart, built_anew, compare_looks
from posdoctor.report import Report
from posdoctor.subjects import InputError
from posdoctor.tolerances import rounding

LENGTH, SHIFT, PADS, STEPS = 24, 37, 5, 6
FEW = 0.1  # of all logits
HOW = (
    "A model of your own needs what posdoctor.models.CausalModel lists, a few lines around your "
    "code: vocabulary, dtype, logits(ids, positions, mask) and in_chunks(chunks)"
)


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
    """A model of transformers that takes tokens: a decoder, an encoder, or both.

    Of an encoder with a decoder, the decoder gets the tokens; what the encoder gets stays the same.
    Of a model without a head, hidden states stand for logits.
    """

    def __init__(self, model: nn.Module) -> None:
        """Keep the model, which must have a configuration with a vocabulary.

        Raises:
            InputError: if it has none, or is a part that works only within a whole.
        """
        name = type(model).__name__
        if "RotaryEmbedding" in name:
            raise InputError(f"{name} gives tables alone: see posdoctor.ways.of_module")
        config: Any = model.config
        text = (
            config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        )
        vocabulary = getattr(text, "vocab_size", None)
        if not vocabulary:
            raise InputError(f"{name} has no vocabulary in its configuration. {HOW}")
        self.model, self.config, self.vocabulary = model.eval(), text, int(vocabulary)
        weight = next(model.parameters(), torch.empty(0))
        self.dtype, self.device = weight.dtype, weight.device
        self.words = {  # a class may take its base's by *args, **kwargs
            word
            for each in type(model).__mro__
            if "forward" in vars(each)
            for word in inspect.signature(vars(each)["forward"]).parameters
        }
        decodes = "decoder_input_ids" in self.words
        self.tokens_word = "decoder_input_ids" if decodes else "input_ids"
        self.mask_word = "decoder_attention_mask" if decodes else "attention_mask"
        special = {
            each
            for key, value in getattr(text, "to_dict", dict)().items()
            if key.endswith(("token_id", "token_index"))
            for each in (value if isinstance(value, list) else [value])
        }
        self.ordinary = [each for each in range(1, self.vocabulary) if each not in special]
        pad = getattr(text, "pad_token_id", None)
        self.pad = pad if isinstance(pad, int) and 0 <= pad < self.vocabulary else 0

    def call(self, ids: Tensor, **given: Any) -> Any:
        """Return what the model answers to ids (B, L)."""
        words = {self.tokens_word: ids} | given
        if self.tokens_word != "input_ids":
            words["input_ids"] = torch.tensor(self.ordinary[:TOKENS]).expand(len(ids), -1)
        if "use_cache" not in self.words:
            words.pop("use_cache", None)
        moved = {k: v.to(self.device) if isinstance(v, Tensor) else v for k, v in words.items()}
        return self.model(**moved)

    def read(self, out: Any) -> Tensor:
        """Return the logits of an answer, (B, L, V), or hidden states where it has none.

        Raises:
            InputError: if it has neither.
        """
        found = getattr(out, "logits", getattr(out, "last_hidden_state", None))
        if not isinstance(found, Tensor) or found.ndim != 3:
            raise InputError(
                f"{type(self.model).__name__} gives neither logits nor hidden states of each "
                f"token: give it without its head (model.base_model). {HOW}"
            )
        return found.cpu()

    def logits(self, ids: Tensor, positions: Tensor | None, mask: Tensor | None) -> Tensor:
        """Return logits (B, L, V)."""
        given: dict[str, Any] = {}
        if positions is not None:
            given["position_ids"] = positions.expand(len(ids), -1)
        if mask is not None:
            lowest = torch.finfo(self.dtype).min
            given[self.mask_word] = torch.zeros(mask.shape, dtype=self.dtype).masked_fill(
                ~mask, lowest
            )
        return self.read(self.call(ids, use_cache=False, **given))

    def in_chunks(self, chunks: list[Tensor]) -> Tensor:
        """Return the logits of chunks that follow one another."""
        cache, found = None, []
        for chunk in chunks:
            out = self.call(chunk, past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            found.append(self.read(out))
        return torch.cat(found, dim=1)

    def masked(self, ids: Tensor, positions: bool, even: bool, fill: int) -> Tensor:
        """Return the logits of ids behind padding that a 2-D mask hides.

        Args:
            ids: (B, L).
            positions: give those of the real tokens, too, from 0.
            even: as much padding in each row, so that none is filled up on the right, where a
                bidirectional model would see it.
            fill: the token of the padding.
        """
        longer, places, pads = behind(ids, fill, even)
        real = (places >= 0) & (places < ids.shape[1])
        given: dict[str, Any] = {self.mask_word: real.long()}
        if positions:
            given["position_ids"] = places.clamp(0, ids.shape[1] - 1)
        return cut(self.read(self.call(longer, use_cache=False, **given)), pads, ids.shape[1])

    def generated(self, ids: Tensor, pads: int) -> tuple[Tensor, Tensor]:
        """Return the tokens and logits of a greedy continuation behind padding."""
        longer = torch.cat([torch.full_like(ids[:, :pads], self.pad), ids], dim=1)
        mask = (torch.arange(longer.shape[1]) >= pads).long().expand(longer.shape)
        options: dict[str, Any] = {"do_sample": False, "max_new_tokens": STEPS,
                                   "min_new_tokens": STEPS, "num_beams": 1,
                                   "pad_token_id": self.pad}  # fmt: skip
        model: Any = self.model
        options |= {"output_logits": True, "return_dict_in_generate": True}
        given = {"attention_mask": mask.to(self.device), **options}
        out = model.generate(longer.to(self.device), **given)
        logits = torch.stack(list(out.logits), dim=1)
        return out.sequences[:, longer.shape[1] :].cpu(), logits.cpu()


def is_model(thing: object) -> bool:
    """Return whether a thing is a whole model: in a form of `as_model`, or one of tokens."""
    if not isinstance(thing, nn.Module):
        return isinstance(thing, CausalModel)
    words = inspect.signature(thing.forward).parameters.values()
    needed = [
        each for each in words if each.default is each.empty and each.kind < each.VAR_POSITIONAL
    ]
    embeds = any(isinstance(each, nn.Embedding) for each in thing.children())
    return hasattr(thing, "config") or (len(needed) == 1 and embeds)


def as_model(model: object) -> CausalModel:
    """Return a model in the form that is examined.

    Raises:
        InputError: if it is none that can be.
    """
    if isinstance(model, CausalModel):
        return model
    if isinstance(model, nn.Module) and hasattr(model, "config"):
        return PublishedModel(model)
    raise InputError(f"a model must be one of transformers; got {type(model).__name__}. {HOW}")


def causal(length: int, hidden: int = 0) -> Tensor:
    """Return a causal mask (1, 1, L, L) that hides the first keys, but for each from itself."""
    places = torch.arange(length)
    mask = (places[:, None] >= places) & (places >= hidden)
    return (mask | torch.eye(length, dtype=torch.bool))[None, None]


def drawn(model: CausalModel, rows: int, length: int) -> Tensor:
    """Draw ids (B, L): the same for the same vocabulary, and no special ones."""
    generator = torch.Generator().manual_seed(16)
    choice = torch.tensor(getattr(model, "ordinary", range(1, model.vocabulary)))
    return choice[torch.randint(len(choice), (rows, length), generator=generator)]


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


def continued(model: CausalModel, ids: Tensor) -> Tensor:
    """A prompt, some tokens one by one, a longer piece into the same cache, and on."""
    return model.in_chunks(list(ids.split([9, 1, 1, 6, 1, ids.shape[1] - 18], dim=1)))


def behind(ids: Tensor, pad: int, even: bool = False) -> tuple[Tensor, Tensor, list[int]]:
    """Put ids (B, L) behind padding, less in each row, or as much in each.

    Returns:
        ids of one width; places (B, width), negative for padding on the left; how much each has.
    """
    length, pads = ids.shape[1], [PADS - 2 * row for row in range(len(ids))]
    pads = [PADS] * len(ids) if even else pads
    blank = torch.full_like(ids[0], pad)
    rows = [  # what fills a row up on the right is seen by nobody before it
        torch.cat([blank[:count], row, row[: PADS - count]])
        for count, row in zip(pads, ids, strict=True)
    ]
    return torch.stack(rows), torch.arange(length + PADS) - torch.tensor(pads)[:, None], pads


def cut(found: Tensor, pads: list[int], length: int) -> Tensor:
    """Return the part of logits that stands behind padding."""
    return torch.stack([row[count:][:length] for count, row in zip(pads, found, strict=True)])


def padded(model: CausalModel, ids: Tensor) -> Tensor:
    """Padding on the left, less in each row, hidden by the mask; real tokens count from 0."""
    longer, places, pads = behind(ids, 0)
    mask = torch.cat([causal(longer.shape[1], count) for count in pads])  # (B, 1, L, L)
    return cut(model.logits(longer, places.clamp(min=0), mask), pads, ids.shape[1])


def packed(model: CausalModel, ids: Tensor) -> Tensor:
    """Behind another text, with positions that start again and a mask that keeps them apart."""
    first, length = ids.flip(1)[:, :9], ids.shape[1]
    both = torch.cat([first, ids], dim=1)
    border = first.shape[1]
    positions = torch.cat([torch.arange(border), torch.arange(length)])[None]
    text = (torch.arange(border + length) >= border).long()
    mask = causal(border + length) & (text[:, None] == text)
    return model.logits(both, positions, mask)[:, border:]


def shifted(model: CausalModel, ids: Tensor) -> Tensor:
    """All positions moved."""
    return model.logits(ids, torch.arange(ids.shape[1])[None] + SHIFT, None)


Way = Callable[[CausalModel, Tensor], Tensor]
WAYS: dict[str, tuple[Way, tuple[str, ...]]] = {  # and what each presupposes
    "cache": (cached, ("causal", "cache")),
    "chunked-prefill": (chunked, ("causal", "cache")),
    "continued": (continued, ("causal", "cache")),
    "left-padding": (padded, ("causal", "positions", "mask")),
    "packing": (packed, ("causal", "positions", "mask")),
    "shift": (shifted, ("positions",)),
}


def lacking(model: CausalModel, ids: Tensor, plain: Tensor, case: Case) -> dict[str, str]:
    """Return which presuppositions of ways do not hold, and why; facts say what was measured."""
    limit, lacks = bound(model.dtype, SUMMED), {}
    size = apart(whole(model, ids), plain)
    if not size <= limit:
        reason = f"two equal calls differ by {size:.1e} of the largest logit"
        return dict.fromkeys(("causal", "positions", "mask", "cache", "padding"), reason)
    half = ids.shape[1] // 2
    later = torch.cat([ids[:, :half], ids[:, half:].flip(1)], dim=1)
    both = whole(model, later)[:, :half], plain[:, :half]
    size, moved = apart(*both), float((both[0] != both[1]).double().mean())
    # What nothing enters keeps its sums; in a short type, few of them may be rounded otherwise.
    still = size <= rounding(torch.float32, 4) or (size <= limit and moved < FEW)
    words = f"other tokens behind a token change its logits by {size:.1e} of the largest"
    case.facts["direction"] = f"{'causal' if still else 'bidirectional'}: {words}"
    if not still:
        lacks["causal"] = f"the model is bidirectional: {words}"
    if isinstance(model, PublishedModel):
        lacks |= unpublished(model, ids, plain, limit, "causal" in lacks)
    return lacks


def unpublished(
    model: PublishedModel, ids: Tensor, plain: Tensor, limit: float, bidirectional: bool
) -> dict[str, str]:
    """Return which presuppositions a model of transformers does not promise, and why.

    A cache, positions and masks are part of the form in which own models are given.
    """
    lacks, name, length = {}, type(model.model).__name__, ids.shape[1]
    if "past_key_values" not in model.words:
        lacks["cache"] = f"{name} takes no past_key_values"
    elif getattr(model.call(ids, use_cache=True), "past_key_values", None) is None:
        lacks["cache"] = f"{name} gives no past_key_values"
    if model.mask_word not in model.words:
        lacks["mask"] = lacks["padding"] = f"{name} takes no {model.mask_word}"
    if "position_ids" not in model.words:
        lacks["positions"] = f"{name} takes no position_ids"
    else:
        counted = torch.arange(length)[None]
        size = tried(lambda: apart(model.logits(ids, counted, None), plain))
        if isinstance(size, str) or not size <= limit:
            lacks["positions"] = (
                f"given 0, 1, 2, ..., logits differ from those without: {spell(size)}"
            )
    if "mask" in lacks or bidirectional:
        return lacks
    size = tried(lambda: apart(model.logits(ids, None, causal(length)), plain))
    if isinstance(size, str) or not size <= limit:
        window = getattr(model.config, "sliding_window", None)
        why = f"; it has a window of {window}" if window else ""
        lacks["mask"] = (
            f"given a causal 4-D mask, logits differ from those without: {spell(size)}{why}"
        )
        return lacks
    seen = 1 + PADS
    other = torch.cat([ids[:, :seen].roll(1, 1), ids[:, seen:]], dim=1)
    size = apart(*(model.logits(x, None, causal(length, seen))[:, seen:] for x in (ids, other)))
    if not size <= limit:
        lacks["mask"] = (
            f"tokens that a 4-D mask hides change logits by {size:.1e}: layers that recur or "
            "convolve read no such mask"
        )
    return lacks


def spell(size: float | str) -> str:
    """Return how far logits are apart, or what was raised, in words."""
    return size if isinstance(size, str) else f"by {size:.1e} of the largest"


def tried(call: Callable[[], Any]) -> Any:
    """Return what a call gives, or in words what it raised."""
    try:
        return call()
    except Exception as error:  # whatever a model raises
        return f"the model raised {type(error).__name__}: {error}"


@torch.no_grad()
def compare_ways(
    model: CausalModel, case: Case, known: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Return how far each way is from the plain one, as a share of the largest logit.

    Args:
        model: what is examined.
        case: gets facts and findings.
        known: presuppositions that do not hold, and why, as far as that is known before.
    """
    ids = drawn(model, 2, LENGTH)
    plain = answered(model, ids)
    limit, found = bound(model.dtype, SUMMED), {}
    lacks = lacking(model, ids, plain, case) | dict(known or {})
    missed: dict[str, list[str]] = {}
    for name, (way, needs) in WAYS.items():
        reason = next((lacks[need] for need in needs if need in lacks), None)
        if reason is None:
            size = tried(partial(way, model, ids))
            size = size if isinstance(size, str) else apart(size, plain)
            reason = size if isinstance(size, str) else None
        if reason is not None:
            missed.setdefault(reason, []).append(name)
            continue
        found[name] = size
        case.facts[name] = f"differs by {size:.1e} of the largest logit"
        if not size <= limit:
            add = case.note if name == "shift" else case.fault
            add(name, f"{size:.2g} of the largest logit; {limit:.0e} is rounding")
    if isinstance(model, PublishedModel):
        as_people_pad(model, ids, plain, lacks, missed, case)
    case.unexamined += [f"{', '.join(names)}: {reason}" for reason, names in missed.items()]
    return found


def answered(model: CausalModel, ids: Tensor) -> Tensor:
    """Return the logits of a plain call.

    Raises:
        InputError: if the model does not answer tokens alone.
    """
    try:
        return whole(model, ids)
    except InputError:
        raise
    except Exception as error:  # whatever a model raises
        raise InputError(
            f"the model, called with tokens alone, raised {type(error).__name__}: {error}. {HOW}"
        ) from error


def as_people_pad(
    model: PublishedModel,
    ids: Tensor,
    plain: Tensor,
    lacks: Mapping[str, str],
    missed: dict[str, list[str]],
    case: Case,
) -> None:
    """Pad on the left with a 2-D mask: with positions and without, and in `generate`."""
    limit = bound(model.dtype, SUMMED)
    if "padding" in lacks:
        missed.setdefault(lacks["padding"], []).append("padding with a 2-D mask")
        return
    even, given = "causal" in lacks, "positions" not in lacks
    padding = tried(lambda: [
        model.masked(ids, *how) for how in (
            (False, even, model.pad), (given, even, model.pad), (given, even, model.ordinary[-1]))
    ])  # fmt: skip
    fixed = False  # whether tokens keep their places in the tensor, whatever is masked
    if isinstance(padding, str):
        missed.setdefault(padding, []).append("padding with a 2-D mask")
    else:
        alone, best = apart(padding[0], plain), apart(padding[1], plain)
        shows = apart(padding[2], padding[1])
        case.facts["mask-alone"] = f"differs by {alone:.1e} of the largest logit"
        fixed = not given and not alone <= limit and shows <= limit
        if not best <= limit and not fixed:
            case.fault("left-padding", f"{best:.2g} of the largest logit, with a 2-D mask; "
                       f"another token in the padding changes {shows:.1e}")  # fmt: skip
        elif not alone <= limit:
            words = "the model takes no positions" if fixed else f"with positions {best:.1e}"
            case.note("mask-alone", f"{alone:.2g}, with a 2-D mask; {words}")
    able: Any = getattr(model.model, "can_generate", None)
    if "causal" in lacks or model.tokens_word != "input_ids" or able is None or not able():
        return
    both = tried(lambda: [model.generated(ids, pads) for pads in (0, PADS)])
    if isinstance(both, str):
        missed.setdefault(both, []).append("generate with padding")
        return
    (tokens, wanted), (same, got) = both
    agree = (tokens == same).cumprod(1).bool()  # after another token, logits may differ
    agree = torch.cat([torch.ones_like(agree[:, :1]), agree[:, :-1]], dim=1)
    off = float((got - wanted).double().abs().amax(-1)[agree].max() / wanted.abs().max())
    case.facts["generate"] = f"behind padding, logits differ by {off:.1e} of the largest"
    if not off <= limit:
        equal = f"{int((tokens == same).sum())} of {tokens.numel()}"
        add = case.note if fixed else case.fault
        add("generate", f"{off:.2g} of the largest logit; {equal} greedy tokens are the same")


def look_at(model: PublishedModel) -> Look:
    """Look at the layers of a model."""
    context = getattr(model.config, "max_position_embeddings", None) or 0
    reach = (2**21, context) if "position_ids" in model.words else ()
    ids = drawn(model, 1, TOKENS)
    return look(model.model, lambda ids, places: model.logits(ids, places, None), ids, reach)


def examine_model(model: object, other: object = None) -> Report:
    """Examine a language model as a whole, its layers, and its configuration if it has one.

    Args:
        model: a model of transformers, or a `CausalModel`.
        other: a model that it should be equal to, its original.

    Raises:
        InputError: if either cannot be examined.
    """
    subject, case = as_model(model), Case()
    original = None if other is None else as_model(other)
    seen = tried(partial(look_at, subject)) if isinstance(subject, PublishedModel) else ""
    compare_ways(subject, case, {} if isinstance(seen, str) else by_place(seen))
    if isinstance(original, PublishedModel) and case.has("mask-alone"):
        theirs = Case()
        compare_ways(original, theirs)
        if "mask-alone" in theirs.facts and not theirs.has("mask-alone", "left-padding"):
            case.drop("mask-alone")
            case.fault(
                "mask-alone", "the other model gives the logits that it gives without padding"
            )
    case.unexamined.append("the weights: whether they were trained with these positions")
    profile: Profile | None = None
    config: Any = getattr(model, "config", None)
    given = config.to_dict() if hasattr(config, "to_dict") else None
    if isinstance(given, Mapping):
        try:
            profile = examine_configuration(given, case)
        except InputError as error:
            case.unexamined.append(f"the configuration: {error}")
    if isinstance(subject, PublishedModel):
        if isinstance(seen, str):
            case.unexamined.append(f"layers by themselves: {seen}")
        else:
            examine_layers(subject, seen, given if profile else None, original, case)
    elif original is not None:
        size = apart(*(whole(each, drawn(subject, 1, TOKENS)) for each in (subject, original)))
        case.facts["beside the other model"] = f"logits differ by {size:.1e} of the largest"
        if not size <= bound(subject.dtype, SUMMED):
            case.fault("logits-differ", f"by {size:.2g} of the largest")
    return Report(type(model).__name__, case, profile)


def by_place(seen: Look) -> dict[str, str]:
    """Return why padding and packing cannot be asked, where queries grow by their own count."""
    layers = unmoved(seen, lambda x: bool(moving(x).any()) and not turning(x))
    if not layers:
        return {}
    where = spoken(layers, seen.plain.states)
    reason = f"queries in {where} grow with their place in the tensor, whatever positions are given"
    return {"mask": reason, "padding": reason}


def examine_layers(
    model: PublishedModel,
    seen: Look,
    config: Mapping[str, Any] | None,
    original: CausalModel | None,
    case: Case,
) -> None:
    """Look at the layers, and hold them to the configuration, the class and another model."""
    names = list(seen.plain.states)
    ignored = unmoved(seen, lambda x: turning(x) and rotation(x) is not None)
    if seen.far is None and "position_ids" in model.words:
        case.unexamined.append("far positions of the layers: the model refuses them")
    if ignored:
        words = "queries and keys rotate along the sequence, alike whatever positions are given"
        case.fault("positions-ignored", words, spoken(ignored, names))
        case.unexamined.append("far positions of the layers: those that are given are ignored")
        seen = replace(seen, far=None)
    if config is not None:
        examine_angles(model.model, seen, config, model.dtype, case)
    case.unexamined.append(f"windows wider than {TOKENS} tokens, which are run at once")
    if isinstance(original, PublishedModel):
        dtype = max(model.dtype, original.dtype, key=lambda each: torch.finfo(each).eps)
        compare_looks(seen, look_at(original), dtype, "the other model", case)
        return
    anew = built_anew(model.model)
    if isinstance(anew, str):
        case.unexamined.append(f"gain and softmax scale beside its class, built anew: {anew}")
        return
    if type(anew) is type(model.model):
        case.unexamined.append(
            "gain and softmax scale in the class's code: built anew, the class has the same code"
        )
    theirs = look_at(PublishedModel(anew))
    compare_looks(seen, theirs, model.dtype, "its class, built anew", case, UNSURE)
