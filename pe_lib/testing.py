"""Ask an encoding whether it keeps what attention relies on: `check_encoding(encoding)`.

A promise is a function that takes an encoding and fails where the promise is broken. Its docstring
says what is promised, and after a dash how it is usually mended.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pe_lib.attention import MultiHeadAttention, attend
from pe_lib.cache import KVCache
from pe_lib.encoding import PositionEncoding, as_positions

Promise = Callable[[PositionEncoding], None]
BATCH, LENGTH = 2, 7


# --- an encoding in a layer -----------------------------------------------------------------------


class Layer(MultiHeadAttention):
    """Attention behind what its encoding adds to the input, as in a model of one layer."""

    def forward(
        self, x: Tensor, q_pos: Any = None, *, context: Tensor | None = None, k_pos: Any = None,
        stepwise: bool = False, **others: Any,
    ) -> Tensor:  # fmt: skip
        """(B, Lq, D) -> (B, Lq, D); `stepwise`: by way of the weights."""
        cache = others.get("cache") or KVCache()
        q_pos = cache.next_positions(x.shape[1]) if q_pos is None else q_pos
        if context is not None:
            hidden = self.encoding.embed(context, as_positions(k_pos, context))
            others |= {"context": hidden, "k_pos": k_pos}
        x = self.encoding.embed(x, as_positions(q_pos, x))
        found = super().forward(x, q_pos=q_pos, weights=stepwise, **others)
        return found[0] if stepwise else found  # type: ignore[no-any-return]


def sizes_of(encoding: PositionEncoding) -> tuple[int, int]:
    """Return the width and the number of heads of a layer that fits: what its parts state."""
    names, stated = ("d_model", "n_heads", "head_dim"), dict[str, int]()
    for module in encoding.modules():
        for name in names:
            if hasattr(module, name):
                stated.setdefault(name, getattr(module, name))  # the first one counts
    d_model, heads, width = map(stated.get, names)
    heads = heads or (d_model // width if d_model and width else 3)
    return d_model or heads * (width or 8), heads


def layer_of(encoding: PositionEncoding, *, causal: bool = True, seed: int = 3) -> Layer:
    """Return a layer in float64 with a copy of the encoding; what starts at zero is random."""
    torch.manual_seed(seed)
    encoding = copy.deepcopy(encoding)
    for parameter in encoding.parameters():
        if seed != 3 or not parameter.any():
            nn.init.normal_(parameter)
    encoding.causal_only = False  # tests look at both sides
    return Layer(*sizes_of(encoding), encoding, causal=causal, embedded=True).double()


def hidden(layer: Layer, length: int = LENGTH, seed: int = 5) -> Tensor:
    """Return hidden states (BATCH, length, D) in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, layer.d_model, dtype=torch.float64, generator=generator)


def layer_and_input(encoding: PositionEncoding) -> tuple[Layer, Tensor]:
    """Return a causal layer with an encoding, and hidden states for it."""
    layer = layer_of(encoding)
    return layer, hidden(layer)


def require(holds: bool, words: str) -> None:
    """Raise an AssertionError unless something holds; with `python -O`, too."""
    if not holds:
        raise AssertionError(words)


def difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected entry."""
    kinds = [(tuple(each.shape), each.dtype) for each in (actual, expected)]
    require(kinds[0] == kinds[1], f"{kinds[0]} != {kinds[1]}")
    largest = max(float(expected.detach().abs().max()), 1e-300)
    return float((actual.detach() - expected.detach()).abs().max()) / largest


def same(actual: Tensor, expected: Tensor, tolerance: float = 1e-12) -> None:
    """Assert that two tensors are equal but for rounding."""
    found = difference(actual, expected)
    require(found <= tolerance, f"differs by {found:.2g} of the largest entry")


def same_gradients(outputs: Sequence[Tensor], layer: Layer, *inputs: Tensor) -> None:
    """Assert that two outputs have the same gradients, to 1e-12 of the largest."""
    leaves = [*inputs, *layer.parameters()]
    target = torch.linspace(-1, 1, outputs[0].numel(), dtype=torch.float64).view_as(outputs[0])
    found = [
        torch.autograd.grad((y * target).sum(), leaves, materialize_grads=True) for y in outputs
    ]
    largest = max(float(gradient.abs().max()) for gradient in found[1])
    for one, other in zip(*found, strict=True):
        gap = float((one - other).abs().max()) / largest
        require(gap < 1e-12, f"a gradient differs by {gap:.2g} of the largest")


# --- promises -------------------------------------------------------------------------------------


def position_has_an_effect(encoding: PositionEncoding) -> None:
    """Tokens in another order do not only give outputs in another order - is a hook overridden?"""
    layer, other = layer_of(encoding, causal=False), torch.tensor([2, 0, 3, 1, 6, 5, 4])
    x = hidden(layer)
    found = difference(layer(x[:, other]), layer(x)[:, other])
    require(found > 1e-3, f"order moves nothing by more than {found:.2g}")


def a_shift_changes_nothing(encoding: PositionEncoding) -> None:
    """Scores know distances alone - a method that counts from the start cannot keep this."""
    layer, x = layer_and_input(encoding)
    for shift in (1, 1000, -13):
        for positions in (shift, torch.arange(LENGTH) + shift):
            same(layer(x, positions), layer(x), 1e-10)


def gaps_are_positions(encoding: PositionEncoding) -> None:
    """Who is left keeps its place - read q_pos and k_pos, not the lengths of q and k."""
    layer, places = layer_of(encoding, causal=False), torch.arange(LENGTH)
    x, kept = hidden(layer), torch.tensor([1, 2, 4, 6])
    mask = torch.zeros(LENGTH, dtype=torch.bool).index_fill(0, kept, True)[None, None, None]
    same(layer(x, places, context=x[:, kept], k_pos=kept), layer(x, mask=mask))
    same(layer(x[:, kept], kept, context=x, k_pos=places), layer(x)[:, kept])


def positions_come_in_any_form(encoding: PositionEncoding) -> None:
    """An int, a tensor with or without a batch axis: the same - index with [..., i]."""
    layer, places = layer_of(encoding), torch.arange(4, 4 + LENGTH)
    x = hidden(layer)
    expected = layer(x, 4)
    for form in (places, places[None], places.expand(BATCH, -1)):
        same(layer(x, form), expected)
    same(layer(x, places.to(torch.int16)), expected)


def sequences_have_their_own_positions(encoding: PositionEncoding) -> None:
    """A batch equals its sequences one by one - (B, Lq, Lk) needs an axis for the heads."""
    layer = layer_of(encoding)
    x, places = hidden(layer), torch.stack([torch.arange(LENGTH), 2 * torch.arange(LENGTH) + 3])
    output = layer(x, places)
    for i in range(BATCH):
        same(output[i : i + 1], layer(x[i : i + 1], places[i]))


def padding_changes_nothing(encoding: PositionEncoding) -> None:
    """A sequence behind masked padding gives what it gives alone - read q_pos and k_pos."""
    layer, counted = layer_of(encoding), torch.arange(LENGTH) - torch.tensor([[0], [3]])
    x = hidden(layer)
    padded = layer(x, counted.clamp(min=0), mask=(counted >= 0)[:, None, None])
    same(padded[:1], layer(x[:1]))
    same(padded[1:, 3:], layer(x[1:, 3:]))


def packed_texts_stay_apart(encoding: PositionEncoding) -> None:
    """Two texts in one row, each from position 0, give what each gives alone - as for padding."""
    layer, text = layer_of(encoding), torch.tensor([0] * 4 + [1] * 7)
    x, positions = hidden(layer, 11), torch.cat([torch.arange(4), torch.arange(7)])
    packed = layer(x, positions, mask=(text[:, None] == text)[None, None])
    same(packed, torch.cat([layer(x[:, :4]), layer(x[:, 4:])], dim=1))


def a_cache_gives_the_whole(encoding: PositionEncoding) -> None:
    """Token by token as all at once - `cacheable_rotation` is for keys that keep their angle."""
    layer, places = layer_of(encoding), torch.arange(9, 9 + LENGTH)
    x = hidden(layer)
    for steps, recorded in itertools.product(([1] * LENGTH, [4, 1, 2]), (True, False)):
        with torch.set_grad_enabled(recorded):  # without gradients a cache grows in place
            cache = KVCache()
            parts = [layer(part, cache=cache) for part in x.split(steps, dim=1)]
            same(torch.cat(parts, dim=1), layer(x))
    cache = KVCache()
    parts = [layer(x[:, i : i + 1], places[i : i + 1], cache=cache) for i in range(LENGTH)]
    same(torch.cat(parts, dim=1), layer(x, places))


def changed_weights_are_seen(encoding: PositionEncoding) -> None:
    """Decoding uses the weights as they are, however they changed - keep nothing made of them."""
    layer, x = layer_and_input(encoding)
    with torch.no_grad():
        for scale in (1.0, 1.5):
            for parameter in layer.parameters():
                parameter.data.mul_(scale)
            cache = KVCache()
            layer(x[:, :-1], cache=cache)
            same(layer(x[:, -1:], cache=cache), layer(x)[:, -1:])


def the_future_is_unseen(encoding: PositionEncoding) -> None:
    """Under a causal mask a later token changes no earlier output - take no mean over keys."""
    layer, x = layer_and_input(encoding)
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], dim=1)
    for positions, stepwise in itertools.product((None, torch.arange(LENGTH)), (False, True)):
        outputs = [layer(y, positions, stepwise=stepwise) for y in (x, changed)]
        same(outputs[1][:, :4], outputs[0][:, :4], 1e-14)


def by_definition(
    layer: Layer, x: Tensor, q_pos: Tensor, context: Tensor | None = None, k_pos: Any = None
) -> Tensor:
    """Return a layer's output by way of `attend`, with queries and keys as projected."""
    encoding, k_pos = layer.encoding, q_pos if k_pos is None else k_pos
    source = encoding.embed(x if context is None else context, k_pos)
    x = encoding.embed(x, q_pos)
    inputs = ((layer.q_proj, x), (layer.k_proj, source), (layer.v_proj, source))
    q, k, v = (layer.split_heads(project(each)) for project, each in inputs)
    hidden: Any = tuple(map(encoding.project_hidden, (x, source)))
    settings: dict[str, Any] = {"hidden": None if hidden[0] is None else hidden}
    output, _ = attend(q, k, v, encoding, q_pos, k_pos, causal=layer.causal, **settings)
    return layer.out_proj(output.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def fused_attention_equals_the_definition(encoding: PositionEncoding) -> None:
    """Outputs and gradients are those of `attend` - `cacheable_rotation` must be true of `bias`."""
    layer, places, far = layer_of(encoding), torch.arange(9), torch.tensor([0, 2, 3, 7])
    context = {"context": hidden(layer, 9, seed=6)}
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"q_pos": places[:4]}),
        ({"q_pos": far}, {"q_pos": far}),
        (context | {"q_pos": 5, "k_pos": 0}, context | {"q_pos": places[5:], "k_pos": places}),
    ]
    for causal, (starts, tensors) in itertools.product((False, True), cases):
        layer.causal = causal
        x = hidden(layer, 4).requires_grad_()
        fused, plain = layer(x, **starts), by_definition(layer, x, **tensors)
        same(fused, plain)
        same(layer(x, **starts, stepwise=True), plain)
        same_gradients([fused, plain], layer, x)


def grouped_heads_equal_repeated_ones(encoding: PositionEncoding) -> None:
    """One head of keys for all queries equals its copies - set `n_heads` where heads differ."""
    layer, x = layer_and_input(encoding)
    grouped: Layer = copy.deepcopy(layer)
    grouped.n_kv_heads = 1
    for name in ("k_proj", "v_proj"):
        rows = getattr(layer, name).weight.detach()[: layer.head_dim]
        getattr(grouped, name).weight = nn.Parameter(rows)
        getattr(layer, name).weight.data = rows.repeat(layer.n_heads, 1)
    for stepwise in (False, True):
        same(grouped(x, stepwise=stepwise), layer(x, stepwise=stepwise))
    caches = KVCache(), KVCache()
    for part in x.split([4, 1, 2], dim=1):
        same(grouped(part, cache=caches[0]), layer(part, cache=caches[1]))


def a_query_without_a_key_is_no_error(encoding: PositionEncoding) -> None:
    """It gets zeros, in both forms - hide with -inf, never with NaN."""
    mask = (torch.arange(LENGTH) != 2)[None, None, :, None]
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
        layer = layer_of(encoding).to(dtype)
        x = hidden(layer).to(dtype)
        fused, steps = (layer(x, mask=mask, stepwise=stepwise) for stepwise in (False, True))
        require(bool(fused.isfinite().all()), "the output is not finite")
        require(not fused[:, 2].any(), "the output is not zero")
        same(fused, steps, tolerance)


def gradients_equal_numerical_ones(encoding: PositionEncoding) -> None:
    """First and second derivatives, by x and all that is trained - `.item()`, `.data` stop them."""
    layer = layer_of(encoding)
    generator = torch.Generator().manual_seed(7)
    for parameter in layer.parameters():  # away from round numbers, where a maximum has a kink
        noise = torch.rand(parameter.shape, dtype=parameter.dtype, generator=generator)
        parameter.data.mul_(1 + 0.01 * noise)
    x = hidden(layer, 4)[:1].requires_grad_()
    leaves = x, *layer.parameters()
    places = 1, torch.tensor([1, 2, 4, 7])
    checks = torch.autograd.gradcheck, torch.autograd.gradgradcheck  # they change leaves in place
    for positions, check in itertools.product(places, checks):
        check(lambda *_, at=positions: layer(x, at, stepwise=True), leaves, fast_mode=True)


def it_compiles_into_one_graph(encoding: PositionEncoding) -> None:
    """`torch.compile(fullgraph=True)`, outputs and gradients too - read no tensor in a graph."""
    layer = layer_of(encoding)
    x = hidden(layer).requires_grad_()
    torch.compiler.reset()
    outputs = [torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x)]
    same(outputs[0], outputs[1])
    same_gradients(outputs, layer, x)


def it_exports_for_any_length(encoding: PositionEncoding) -> None:
    """`torch.export` with a dynamic batch and length - take lengths from shapes, not from len()."""
    layer = layer_of(encoding).requires_grad_(False)
    dim = torch.export.Dim
    shapes = {"x": {0: dim("batch", min=2, max=9), 1: dim("length", min=LENGTH, max=16)}}
    program = torch.export.export(layer, (hidden(layer),), dynamic_shapes=shapes).module()
    for x in (hidden(layer, 12), hidden(layer, 12).repeat(2, 1, 1)):
        same(program(x), layer(x))


def an_evaluation_stops_no_training(encoding: PositionEncoding) -> None:
    """A call in `inference_mode`, then one with gradients - keep no tensor made in the first."""
    layer, x = layer_and_input(encoding)
    fresh = copy.deepcopy(layer)
    with torch.inference_mode():
        layer(x, cache=KVCache())
    for each in (layer, fresh):
        each(x).square().sum().backward()
    for one, other in zip(layer.parameters(), fresh.parameters(), strict=True):
        if one.grad is not other.grad:  # both may be None
            same(one.grad, other.grad, 0.0)  # type: ignore[arg-type]


def other_dtypes_are_near(encoding: PositionEncoding) -> None:
    """Outputs have the dtype of x, and casts leave no trace - angles in float64, no buffers."""
    layer, x = layer_and_input(encoding)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)):
        for stepwise in (False, True):
            output = copy.deepcopy(layer).to(dtype)(x.to(dtype), stepwise=stepwise)
            same(output, layer(x).to(dtype), tolerance)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(parameter.half())  # weights that no cast rounds
    expected = layer.float()(x.float())
    layer.half()(x.half())
    same(layer.float()(x.float()), expected, 0.0)  # a cast and back leaves no trace


def it_is_saved_and_copied(encoding: PositionEncoding) -> None:
    """`state_dict`, `copy.deepcopy` and `pickle` - keep what is trained in parameters."""
    layer, other = layer_of(encoding), layer_of(encoding, seed=99)
    x = hidden(layer)
    other.load_state_dict(layer.state_dict())
    for twin in (other, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        same(twin(x), layer(x), 0.0)


def an_empty_batch_is_legal(encoding: PositionEncoding) -> None:
    """No sequence in, no sequence out - no maximum over all of a batch."""
    layer, x = layer_and_input(encoding)
    for positions in (None, torch.arange(LENGTH), torch.zeros(0, LENGTH, dtype=torch.long)):
        for stepwise in (False, True):
            shape = layer(x[:0], positions, stepwise=stepwise).shape
            require(shape == x[:0].shape, f"the output has the shape {tuple(shape)}")


PROMISES: dict[str, Promise] = {
    promise.__name__: promise
    for promise in (
        *(position_has_an_effect, a_shift_changes_nothing, gaps_are_positions),
        *(positions_come_in_any_form, sequences_have_their_own_positions, padding_changes_nothing),
        *(packed_texts_stay_apart, a_cache_gives_the_whole, changed_weights_are_seen),
        *(the_future_is_unseen, fused_attention_equals_the_definition),
        *(grouped_heads_equal_repeated_ones, a_query_without_a_key_is_no_error),
        *(gradients_equal_numerical_ones,),
        *(it_compiles_into_one_graph, it_exports_for_any_length, an_evaluation_stops_no_training),
        *(other_dtypes_are_near, it_is_saved_and_copied, an_empty_batch_is_legal),
    )
}


def broken_promises(
    encoding: PositionEncoding, asked: Iterable[str] = PROMISES, **sizes: int
) -> dict[str, str]:
    """Return what is seen and how it is mended, for each promise that an encoding does not keep.

    Args:
        encoding: the method.
        asked: names of promises, see `PROMISES`.
        sizes: d_model and n_heads of the layers that it is made for, unless it states them.
    """
    encoding = copy.deepcopy(encoding)
    vars(encoding).update(sizes)
    found = {}
    for name in asked:
        try:
            PROMISES[name](encoding)
        except Exception as error:
            promised, _, mend = (PROMISES[name].__doc__ or "").partition(" - ")
            seen = f"{type(error).__name__}: {error}".splitlines()[0]
            found[name] = f"{promised}.\n  seen: {seen}\n  mend: {mend}"
    return found


def check_encoding(
    encoding: PositionEncoding, *, except_for: Collection[str] = (), **sizes: int
) -> list[str]:
    """Ask an encoding every promise, and say in words which it does not keep.

    Args:
        encoding: the method; its attributes `d_model`, `n_heads` and `head_dim` say for which
            layers it is made, where that matters.
        except_for: names of promises that it need not keep, see `PROMISES`.
        sizes: d_model and n_heads, if the encoding does not state them.

    Returns:
        The names of the promises that it keeps.

    Raises:
        AssertionError: with each promise that is not kept, what was seen, and the usual mend.
    """
    asked = [name for name in PROMISES if name not in except_for]
    if broken := broken_promises(encoding, asked, **sizes):
        words = "\n".join(f"- {name}: {what}" for name, what in broken.items())
        who = type(encoding).__name__
        raise AssertionError(f"{who} does not keep {len(broken)} of {len(asked)} promises\n{words}")
    return asked
