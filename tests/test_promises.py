"""What every method keeps: methods x promises, with a table of honest exceptions.

A promise is a function that takes a maker of encodings and fails where the promise is broken. A
method that stands in `lab.registry.METHODS` is asked all of them. What it cannot keep stands in
`EXCEPTIONS` with the reason, and is asserted to fail: an exception that no longer holds is a
failure too.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from closeness import assert_close, difference
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lab.registry import METHODS as REGISTRY
from lab.registry import Sizes
from pe_lib import (
    ALiBi,
    AxesRoPE,
    AxialRoPE,
    Compose,
    DeBERTa,
    DynamicNTK,
    Forgetting,
    Hierarchical,
    HierarchicalLearned,
    Kerple,
    KVCache,
    LongRoPE,
    MultiHeadAttention,
    PositionEncoding,
    RoPE,
    RotaryValues,
    Run,
    Shaw,
    Sink,
    Sinusoidal,
    SlidingWindow,
    T5Bias,
    TransformerXL,
    WindowBias,
    XPos,
)
from pe_lib.axes import section_directions
from pe_lib.sinusoidal import frequencies

BATCH, LENGTH, HEADS, WIDTH = 2, 7, 3, 8
D_MODEL = HEADS * WIDTH
SIZES = Sizes(D_MODEL, HEADS, length=32, cached=16)

Make = Callable[[], PositionEncoding]
Promise = Callable[[Make], None]

# --- methods: all of the registry, and variants that differ in kind -------------------------------

METHODS: dict[str, Make] = {
    **{key: lambda method=method: method.make(SIZES) for key, method in REGISTRY.items()},
    "transformer_xl clamped": lambda: TransformerXL(D_MODEL, HEADS, clamp=3),
    "t5 both sides": lambda: T5Bias(HEADS, 8, 9, std=1.0),
    "alibi symmetric": lambda: ALiBi(HEADS, symmetric=True),
    "kerple power": lambda: Kerple(HEADS, variant="power"),
    "window": lambda: WindowBias(HEADS, 3),
    "rope in a sliding window": lambda: Compose(RoPE(WIDTH), SlidingWindow(HEADS, 3)),
    "shaw keys": lambda: Shaw(WIDTH, 3, with_values=False),
    "deberta buckets": lambda: DeBERTa(D_MODEL, HEADS, 16, n_buckets=8),
    "rope half": lambda: RoPE(WIDTH, layout="half", max_len=16),
    "rope partial": lambda: RoPE(WIDTH, rotary_dim=4, max_len=16),
    "rope trained": lambda: RoPE(WIDTH, rates=nn.Parameter(torch.tensor([1.0, 0.3, 0.1, 0.03]))),
    "axes of sections": lambda: AxesRoPE(
        WIDTH, section_directions(frequencies(WIDTH), [2, 1, 1], "interleaved"), layout="half"
    ),
    "axes trained": lambda: AxesRoPE(
        WIDTH, nn.Parameter(torch.tensor([[1.0, 0.0], [0.2, 0.3], [-0.1, 0.2], [0.0, 0.1]]))
    ),
    "rope axial": lambda: AxialRoPE(WIDTH, 4, max_len=16),
    "xpos half": lambda: XPos(WIDTH, layout="half", scale_base=8, max_len=16),
    "dynamic ntk": lambda: DynamicNTK(WIDTH, 2.0, 6, max_len=16),
    "longrope": lambda: LongRoPE(
        WIDTH, torch.ones(4, device="cpu"), torch.full((4,), 4.0, device="cpu"), 6, 4.0
    ),
    "hierarchical": lambda: Hierarchical(
        D_MODEL, HEADS, torch.tensor([0, 3, 10], device="cpu"), window=2
    ),
    "hierarchical table": lambda: HierarchicalLearned(6, D_MODEL, std=0.3),
    "rotary values": lambda: RotaryValues(RoPE(WIDTH, rotary_dim=4, max_len=16)),
    "rope and sink": lambda: Compose(RoPE(WIDTH, max_len=16), Sink(HEADS, std=1.0)),
    "forgetting, sink, rotary values": lambda: Compose(
        Forgetting(D_MODEL, HEADS, 0.0), Sink(HEADS), RotaryValues(RoPE(WIDTH, max_len=16))
    ),
    "rope and alibi": lambda: Compose(RoPE(WIDTH), ALiBi(HEADS)),
    "sinusoidal and t5": lambda: Compose(Sinusoidal(D_MODEL), T5Bias(HEADS, 8, 9, std=1.0)),
    "four together": lambda: Compose(RoPE(WIDTH), Shaw(WIDTH, 4), ALiBi(HEADS), T5Bias(HEADS)),
    "nested": lambda: Compose(Compose(Shaw(WIDTH, 3), ALiBi(HEADS)), T5Bias(HEADS, 8, 9, std=1.0)),
}


class Layer(nn.Module):
    """Attention behind what its encoding adds to the input, as in a model of one layer."""

    def __init__(self, encoding: PositionEncoding, causal: bool) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(D_MODEL, HEADS, encoding, causal=causal, embedded=True)

    def forward(
        self,
        x: Tensor,
        q_pos: Any = None,
        *,
        context: Tensor | None = None,
        k_pos: Any = None,
        stepwise: bool = False,
        **others: Any,
    ) -> Tensor:
        """(B, Lq, D) -> (B, Lq, D); `stepwise`: by way of the weights."""
        if q_pos is None:
            cache = others.get("cache") or KVCache()
            q_pos = cache.next_positions(x.shape[1])
        embed = self.attention.encoding.embed
        x = embed(x, q_pos)
        if context is not None:
            others |= {"context": embed(context, k_pos), "k_pos": k_pos}
        if stepwise:
            return self.attention.with_weights(x, q_pos=q_pos, **others)[0]
        output: Tensor = self.attention(x, q_pos=q_pos, **others)
        return output


def layer_of(make: Make, *, causal: bool = True, seed: int = 3) -> Layer:
    """Return a layer in float64; trained numbers that start at zero are drawn."""
    torch.manual_seed(seed)
    encoding = make()
    for parameter in encoding.parameters():
        if not parameter.is_meta and not parameter.any():
            nn.init.normal_(parameter)
    return Layer(encoding, causal).double()


def hidden(length: int = LENGTH, seed: int = 5) -> Tensor:
    """Return hidden states (BATCH, length, D_MODEL) in float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(BATCH, length, D_MODEL, dtype=torch.float64, generator=generator)


def trained(layer: nn.Module) -> tuple[nn.Parameter, ...]:
    """Return what a backward pass through `layer` has gradients for."""
    return tuple(layer.parameters())


def assert_gradients_close(got: Sequence[Tensor], expected: Sequence[Tensor]) -> None:
    """Assert that all are equal, to 1e-12 of the largest: one may be zero but for rounding."""
    largest = max(float(gradient.abs().max()) for gradient in expected)
    assert largest > 1e-2
    for one, other in zip(got, expected, strict=True):
        found = float((one - other).abs().max()) / largest
        assert found < 1e-12, f"a gradient differs by {found:.2g} of the largest"


# --- positions ------------------------------------------------------------------------------------


def order_matters(make: Make) -> None:
    """The same tokens in another order do not only give the same outputs in another order."""
    layer, x, other = layer_of(make, causal=False), hidden(), torch.tensor([2, 0, 3, 1, 6, 5, 4])
    found = difference(layer(x[:, other]), layer(x)[:, other])
    assert found > 1e-3, f"order moves nothing by more than {found:.2g}"


def a_shift_of_all_positions_changes_nothing(make: Make) -> None:
    """Scores know distances alone."""
    layer, x, positions = layer_of(make), hidden(), torch.arange(LENGTH)
    for shift in (1, 1000, -13):
        assert_close(layer(x, positions + shift), layer(x), 1e-10)
        assert_close(layer(x, Run(shift, LENGTH)), layer(x), 1e-10)


def keys_left_out_equal_keys_hidden(make: Make) -> None:
    """Positions may have gaps: who is left keeps its place."""
    layer, x = layer_of(make, causal=False), hidden()
    kept = torch.tensor([1, 2, 4, 6])
    mask = torch.zeros(LENGTH, dtype=torch.bool).index_fill(0, kept, True)[None, None, None]
    places = torch.arange(LENGTH)
    gaps = layer(x, places, context=x[:, kept], k_pos=kept)
    assert_close(gaps, layer(x, mask=mask), 1e-12)
    fewer = layer(x[:, kept], kept, context=x, k_pos=places)
    assert_close(fewer, layer(x)[:, kept], 1e-12)


def a_run_equals_its_positions_in_a_tensor(make: Make) -> None:
    """A run, a range, a tensor, a tensor with a batch axis, integers of every type: the same."""
    layer, x = layer_of(make), hidden()
    expected, places = layer(x, Run(4, LENGTH)), torch.arange(4, 4 + LENGTH)
    assert_close(layer(x, range(4, 4 + LENGTH)), expected, 1e-12)
    for same in (places, places[None], places.expand(BATCH, -1)):
        assert_close(layer(x, same), expected, 1e-12)
    for dtype in (torch.int32, torch.int16, torch.int8, torch.uint8):
        assert_close(layer(x, places.to(dtype)), expected, 1e-12)
        assert_close(layer(x, places.expand(BATCH, -1).to(dtype)), expected, 1e-12)


def a_batch_of_positions_equals_one_by_one(make: Make) -> None:
    """Each sequence of a batch has its own positions."""
    layer, x = layer_of(make), hidden()
    positions = torch.stack([torch.arange(LENGTH), 2 * torch.arange(LENGTH) + 3])
    output = layer(x, positions)
    for i in range(BATCH):
        assert_close(output[i : i + 1], layer(x[i : i + 1], positions[i]), 1e-12)


def padding_on_the_left_changes_nothing(make: Make) -> None:
    """A sequence behind masked padding gives what it gives alone."""
    layer, x = layer_of(make), hidden()
    counted = torch.arange(LENGTH) - torch.tensor([[0], [3]])  # (B, L), negative for the padding
    padded = layer(x, counted.clamp(min=0), mask=(counted >= 0)[:, None, None])
    assert_close(padded[:1], layer(x[:1]), 1e-12)
    assert_close(padded[1:, 3:], layer(x[1:, 3:]), 1e-12)


def packed_sequences_give_what_each_gives_alone(make: Make) -> None:
    """Two sequences in one row, each from position 0, see nothing of each other."""
    layer, x = layer_of(make), hidden(11)
    positions = torch.cat([torch.arange(4), torch.arange(7)])
    text = torch.tensor([0] * 4 + [1] * 7)
    packed = layer(x, positions, mask=text[:, None] == text)
    assert_close(packed, torch.cat([layer(x[:, :4]), layer(x[:, 4:])], dim=1), 1e-12)


# --- decoding -------------------------------------------------------------------------------------


def a_cache_gives_what_the_whole_gives(make: Make) -> None:
    """Token by token, in chunks, from another start, with positions as a run and as a tensor."""
    layer, x = layer_of(make), hidden()
    for steps, recorded in itertools.product(([1] * LENGTH, [4, 1, 2]), (True, False)):
        with torch.set_grad_enabled(recorded):  # without gradients a cache grows in place
            cache = KVCache()
            parts = [layer(part, cache=cache) for part in x.split(steps, dim=1)]
            assert_close(torch.cat(parts, dim=1), layer(x), 1e-12)
    places, cache = torch.arange(9, 9 + LENGTH), KVCache()
    parts = [layer(x[:, i : i + 1], places[i : i + 1], cache=cache) for i in range(LENGTH)]
    assert_close(torch.cat(parts, dim=1), layer(x, places), 1e-12)


def the_last_token_behind_a_cache_equals_the_whole(make: Make) -> None:
    """One step of decoding without gradients, where what depends on weights alone is kept."""
    layer, x = layer_of(make), hidden()
    with torch.no_grad():
        for scale in (1.0, 1.5):  # weights that change are seen
            for parameter in layer.parameters():
                parameter.mul_(scale)
            cache = KVCache()
            layer(x[:, :-1], cache=cache)
            assert_close(layer(x[:, -1:], cache=cache), layer(x)[:, -1:], 1e-12)


def the_future_does_not_reach_the_past(make: Make) -> None:
    """Under a causal mask a later token changes no earlier output, by not a bit."""
    layer, x = layer_of(make), hidden()
    changed = torch.cat([x[:, :4], x[:, 4:] + 1], dim=1)
    for positions in (None, torch.arange(LENGTH)):
        for stepwise in (False, True):
            outputs = [layer(y, positions, stepwise=stepwise) for y in (x, changed)]
            assert_close(outputs[1][:, :4], outputs[0][:, :4], 1e-14)
            assert difference(outputs[1][:, 4:], outputs[0][:, 4:]) > 1e-3


# --- the two forms --------------------------------------------------------------------------------


def the_fused_form_equals_the_steps(make: Make) -> None:
    """Outputs and gradients are those of the definition; causal and not, to itself and others."""
    x, context = hidden(4), hidden(9, seed=6)
    cases: list[dict[str, Any]] = [
        {},
        {"q_pos": torch.tensor([0, 2, 3, 7])},
        {"context": context, "q_pos": Run(5, 4), "k_pos": Run(0, 9)},
        {"context": context, "q_pos": torch.arange(4) + 5, "k_pos": torch.arange(9)},
    ]
    for causal in (False, True):
        layer, target = layer_of(make, causal=causal), hidden(4, seed=7)
        for case in cases:
            outputs = [layer(x, **case, stepwise=stepwise) for stepwise in (False, True)]
            assert_close(outputs[0], outputs[1], 1e-12)
            fused, steps = (
                torch.autograd.grad((y * target).sum(), trained(layer), materialize_grads=True)
                for y in outputs
            )
            assert_gradients_close(fused, steps)


def a_query_without_a_key_gets_the_mean_of_the_values(make: Make) -> None:
    """Finite and equal in both forms, in half precision too; the other queries see nothing."""
    mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool)
    mask[2] = False
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float16, 5e-3), (torch.bfloat16, 4e-2)):
        layer, x = layer_of(make).to(dtype), hidden().to(dtype)
        fused, steps = (layer(x, mask=mask, stepwise=stepwise) for stepwise in (False, True))
        assert fused.isfinite().all()
        assert_close(fused, steps, tolerance)
        others = [0, 1, 3, 4, 5, 6]
        assert_close(fused[:, others], layer(x)[:, others], tolerance)


# --- gradients and transformations ----------------------------------------------------------------


def gradients_equal_numerical_ones(make: Make) -> None:
    """First derivatives by x and by all that is trained."""
    layer, x = layer_of(make), hidden(4)[:1].requires_grad_()
    for positions in (Run(1, 4), torch.tensor([1, 2, 4, 7])):

        def output(*_: Tensor, positions: Any = positions) -> Tensor:
            return layer(x, positions, stepwise=True)  # gradcheck changes them in place

        assert torch.autograd.gradcheck(output, (x, *trained(layer)), fast_mode=True)


def second_derivatives_equal_numerical_ones(make: Make) -> None:
    """Through `attend`; the fused kernel of the processor has none."""
    layer, x = layer_of(make), hidden(4)[:1].requires_grad_()

    def output(*_: Tensor) -> Tensor:
        return layer(x, stepwise=True)

    assert torch.autograd.gradgradcheck(output, (x, *trained(layer)), fast_mode=True)


def vmap_equals_a_batch(make: Make) -> None:
    """A function of one sequence, mapped over a batch; its gradient too."""
    layer, x = layer_of(make).requires_grad_(False), hidden()

    def one(sequence: Tensor) -> Tensor:
        return layer(sequence[None], stepwise=True)[0]

    def energy(sequence: Tensor) -> Tensor:
        return one(sequence).square().sum()

    assert_close(torch.func.vmap(lambda sequence: layer(sequence[None])[0])(x), layer(x), 1e-12)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(layer(x).square().sum(), x)
    assert_close(torch.func.vmap(torch.func.grad(energy))(x.detach()), expected, 1e-10)


def one_token_can_be_transformed(make: Make) -> None:
    """What is fast for one query stays out of the way of `torch.func`."""
    layer, x = layer_of(make).requires_grad_(False), hidden()
    cache = KVCache()
    layer(x[:, :-1], cache=cache)

    def energy(token: Tensor) -> Tensor:
        return layer(token, cache=copy.copy(cache)).square().sum()

    token = x[:, -1:].clone().requires_grad_()
    (expected,) = torch.autograd.grad(energy(token), token)
    assert_close(torch.func.grad(energy)(x[:, -1:]), expected, 1e-10)


def an_ensemble_gives_what_its_members_give(make: Make) -> None:
    """`torch.func.vmap` over the weights of several layers, or of their encodings alone."""
    members, x = [layer_of(make, seed=seed).eval() for seed in (3, 4)], hidden()
    for shared in (False, True):
        if shared:
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                setattr(members[1].attention, name, getattr(members[0].attention, name))
        weights, _ = torch.func.stack_module_state(members)  # type: ignore[arg-type]
        if shared:
            weights = {name: each for name, each in weights.items() if "encoding" in name}
        for tokens in (x[:, :1], x):

            def one(state: dict[str, Tensor], tokens: Tensor = tokens) -> Tensor:
                output: Tensor = torch.func.functional_call(members[0], state, (tokens,))
                return output

            with torch.no_grad():
                found = torch.func.vmap(one)(weights) if weights else [one({}), one({})]
                for each, member in zip(found, members, strict=True):
                    assert_close(each, member(tokens), 1e-12)


def a_compiled_layer_is_one_graph(make: Make) -> None:
    """No break; outputs and gradients are those of the layer as written."""
    layer, x = layer_of(make), hidden().requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    target, leaves = hidden(seed=7), (x, *trained(layer))
    outputs = [compiled(x), layer(x)]
    assert_close(outputs[0], outputs[1], 1e-12)
    got, expected = (
        torch.autograd.grad((y * target).sum(), leaves, materialize_grads=True) for y in outputs
    )
    assert_gradients_close(got, expected)


def an_exported_layer_takes_another_length_and_batch(make: Make) -> None:
    """`torch.export` with dynamic shapes: what was traced at some runs at others."""
    layer = layer_of(make).requires_grad_(False)
    batch = torch.export.Dim("batch", min=2, max=9)
    length = torch.export.Dim("length", min=LENGTH, max=16)
    shapes = {"x": {0: batch, 1: length}}
    program = torch.export.export(layer, (hidden(),), dynamic_shapes=shapes).module()
    for x in (hidden(), hidden(12), hidden(12).repeat(2, 1, 1)):
        assert_close(program(x), layer(x), 1e-12)


def an_evaluation_leaves_nothing_that_stops_a_training(make: Make) -> None:
    """A first call, and a step of decoding, in `inference_mode`; then a call with gradients."""
    layer, fresh, x = layer_of(make).eval(), layer_of(make), hidden()
    for each in (layer, fresh):
        for name, parameter in each.named_parameters():
            parameter.requires_grad_("attention.encoding" not in name)  # as in fine-tuning
    with torch.inference_mode():
        cache = KVCache()
        layer(x[:, :-1], cache=cache)
        layer(x[:, -1:], cache=cache)
    for tokens in (x, x[:, :1]):
        for each in (layer, fresh):
            each.zero_grad()
            each(tokens).square().sum().backward()
        found, expected = (
            [p.grad for p in each.parameters() if p.grad is not None] for each in (layer, fresh)
        )
        assert_gradients_close(found, expected)


# --- precision ------------------------------------------------------------------------------------


def a_cast_there_and_back_leaves_no_trace(make: Make) -> None:
    """What is no weight keeps its precision, whatever the module is cast to between."""
    x = hidden().float()
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        layer = layer_of(make).to(torch.float32)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(parameter.to(dtype))  # weights that the cast does not round
        expected = layer(x)
        layer.to(dtype)(x.to(dtype))
        assert torch.equal(layer.to(torch.float32)(x), expected)


def outputs_have_the_dtype_and_are_near_the_exact_ones(make: Make) -> None:
    """In float32, bfloat16 and float16."""
    layer, x = layer_of(make), hidden()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 0.1), (torch.float16, 0.02)):
        for stepwise in (False, True):
            output = copy.deepcopy(layer).to(dtype)(x.to(dtype), stepwise=stepwise)
            assert output.dtype == dtype
            assert_close(output.double(), layer(x), tolerance)


# --- state and devices ----------------------------------------------------------------------------


def a_saved_state_loads(make: Make) -> None:
    """Into a fresh layer, which was another one before."""
    layer, other, x = layer_of(make), layer_of(make, seed=99), hidden()
    assert difference(other(x), layer(x)) > 1e-2
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), layer(x))


def a_copy_is_the_same(make: Make) -> None:
    """`copy.deepcopy` and `pickle`, after a step that may have kept something."""
    layer, x = layer_of(make), hidden()
    with torch.no_grad():
        layer(x[:, :1])
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))
        assert all(
            one is not other for one, other in zip(trained(twin), trained(layer), strict=True)
        )


def a_layer_made_on_meta_comes_to_life(make: Make) -> None:
    """Made without memory, it gives shapes; with memory and a state it is the layer itself."""
    layer, x = layer_of(make), hidden()
    with torch.device("meta"):
        empty = layer_of(make)
        assert empty(hidden_on_meta()).shape == x.shape
    assert all(parameter.is_meta for parameter in empty.parameters())
    alive = empty.to_empty(device="cpu")
    alive.load_state_dict(layer.state_dict())
    assert torch.equal(alive(x), layer(x))


def hidden_on_meta() -> Tensor:
    """Return the shape of hidden states."""
    return torch.empty(BATCH, LENGTH, D_MODEL, dtype=torch.float64, device="meta")


def the_default_device_does_not_matter(make: Make) -> None:
    """A layer computes where its input is, also in code that makes new tensors elsewhere."""
    layer, x = layer_of(make), hidden()
    places = torch.arange(20, 20 + LENGTH)
    expected = layer(x), layer(x, Run(20, LENGTH)), layer(x, places)
    fresh = copy.deepcopy(layer)
    with torch.device("meta"):
        found = fresh(x), fresh(x, Run(20, LENGTH)), fresh(x, places)
    for one, other in zip(found, expected, strict=True):
        assert torch.equal(one, other)


class Waits(TorchDispatchMode):
    """Note each operation for which the program has to wait for a device."""

    reading = ("_local_scalar_dense", "equal", "nonzero", "masked_select", "_unique2", "is_nonzero")

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        output = func(*args, **kwargs)
        if name in self.reading and not args[0].is_cpu:
            self.found.append(name)
        sent = name == "_to_copy" and args[0].device != output.device
        if sent and not kwargs.get("non_blocking"):
            self.found.append(f"{name} from {args[0].device} to {output.device}")
        return output


def no_device_is_waited_for(make: Make) -> None:
    """With default positions nothing is read from the device, nor sent to it after a first call.

    The device is "meta", whose tensors hold nothing to read: what needs a number fails there.
    """
    layer, x = layer_of(make).to("meta"), hidden_on_meta()

    def decode() -> None:
        cache = KVCache()
        for part in x.split([3, 1, 1, 2], dim=1):
            layer(part, cache=cache)

    calls = (lambda: layer(x), lambda: layer(x, stepwise=True), decode)
    for recorded, call in itertools.product((True, False), calls):
        with torch.set_grad_enabled(recorded):
            call()
            with Waits() as waits:
                call()
        assert not waits.found, f"waits for {waits.found}"


class WithoutFloat64(TorchDispatchMode):
    """Let "meta" stand for a device that has no float64; what is brought from it is zeros."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.overloadpacket.__name__, kwargs or {}
        if name == "_to_copy" and args[0].is_meta and kwargs.get("device") == torch.device("cpu"):
            return torch.zeros(args[0].shape, dtype=kwargs.get("dtype") or args[0].dtype)
        output = func(*args, **kwargs)
        for tensor in tree_leaves(output):
            wide = isinstance(tensor, Tensor) and tensor.dtype in (torch.float64, torch.complex128)
            assert not (wide and tensor.is_meta), f"{name} makes {tensor.dtype} there"
        return output


def a_device_without_float64_serves(make: Make) -> None:
    """As Apple's GPUs are: what needs float64 is computed on the processor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pe_lib.positions.has_float64", lambda device: device.type != "meta")
        layer, x = layer_of(make).float().to("meta"), hidden_on_meta().float()
        places = torch.empty(LENGTH, dtype=torch.long, device="meta")
        for recorded in (False, True):
            with WithoutFloat64(), torch.set_grad_enabled(recorded):
                assert layer(x).shape == layer(x, places).shape == x.shape
                cache = KVCache()
                layer(x, cache=cache)
                layer(x[:, :1], cache=cache)


def an_empty_batch_is_legal(make: Make) -> None:
    """No sequence in, no sequence out."""
    layer, x = layer_of(make), hidden()[:0]
    for positions in (None, torch.arange(LENGTH), torch.zeros(0, LENGTH, dtype=torch.long)):
        for stepwise in (False, True):
            assert layer(x, positions, stepwise=stepwise).shape == (0, LENGTH, D_MODEL)
    cache = KVCache()
    layer(x, cache=cache)
    assert layer(x[:, :1], cache=cache).shape == (0, 1, D_MODEL)


PROMISES: list[Promise] = [
    order_matters,
    a_shift_of_all_positions_changes_nothing,
    keys_left_out_equal_keys_hidden,
    a_run_equals_its_positions_in_a_tensor,
    a_batch_of_positions_equals_one_by_one,
    padding_on_the_left_changes_nothing,
    packed_sequences_give_what_each_gives_alone,
    a_cache_gives_what_the_whole_gives,
    the_last_token_behind_a_cache_equals_the_whole,
    the_future_does_not_reach_the_past,
    the_fused_form_equals_the_steps,
    a_query_without_a_key_gets_the_mean_of_the_values,
    gradients_equal_numerical_ones,
    second_derivatives_equal_numerical_ones,
    vmap_equals_a_batch,
    one_token_can_be_transformed,
    an_ensemble_gives_what_its_members_give,
    a_compiled_layer_is_one_graph,
    an_exported_layer_takes_another_length_and_batch,
    an_evaluation_leaves_nothing_that_stops_a_training,
    a_cast_there_and_back_leaves_no_trace,
    outputs_have_the_dtype_and_are_near_the_exact_ones,
    a_saved_state_loads,
    a_copy_is_the_same,
    a_layer_made_on_meta_comes_to_life,
    the_default_device_does_not_matter,
    no_device_is_waited_for,
    a_device_without_float64_serves,
    an_empty_batch_is_legal,
]


# --- exceptions -----------------------------------------------------------------------------------

START = "positions count from the start of the sequence"
LONGEST = "the longest sequence of the batch decides the frequencies of all, as in published code"
GROWING = "earlier tokens were rotated for a shorter sequence, as in published code"

EVERY_TOKEN = "the gates of all tokens from the key to the query count, hidden or not"

EXCEPTIONS: dict[tuple[Promise, str], str] = {
    (order_matters, "none"): "no positions: chapter 1 measures that attention is blind to order",
    (a_shift_of_all_positions_changes_nothing, "sinusoidal"): START,
    (a_shift_of_all_positions_changes_nothing, "learned"): START,
    (a_shift_of_all_positions_changes_nothing, "hierarchical"): START,
    (a_shift_of_all_positions_changes_nothing, "hierarchical table"): START,
    (a_shift_of_all_positions_changes_nothing, "sinusoidal and t5"): START,
    (a_shift_of_all_positions_changes_nothing, "temperature"): START,
    (a_shift_of_all_positions_changes_nothing, "fire"): "past the threshold a distance is measured "
    "as a share of the query's position",
    (a_shift_of_all_positions_changes_nothing, "rope axial"): "a shift within the rows of an image "
    "moves patches to other rows",
    (a_shift_of_all_positions_changes_nothing, "dynamic ntk"): LONGEST,
    (a_shift_of_all_positions_changes_nothing, "longrope"): LONGEST,
    (keys_left_out_equal_keys_hidden, "forgetting"): EVERY_TOKEN,
    (keys_left_out_equal_keys_hidden, "forgetting, sink, rotary values"): EVERY_TOKEN,
    (keys_left_out_equal_keys_hidden, "cope"): EVERY_TOKEN,
    (a_batch_of_positions_equals_one_by_one, "dynamic ntk"): LONGEST,
    (padding_on_the_left_changes_nothing, "dynamic ntk"): LONGEST,
    (padding_on_the_left_changes_nothing, "longrope"): LONGEST,
    (packed_sequences_give_what_each_gives_alone, "cope"): EVERY_TOKEN,
    (packed_sequences_give_what_each_gives_alone, "dynamic ntk"): LONGEST,
    (packed_sequences_give_what_each_gives_alone, "longrope"): LONGEST,
    (a_cache_gives_what_the_whole_gives, "dynamic ntk"): GROWING,
    (a_cache_gives_what_the_whole_gives, "longrope"): GROWING,
}


def name_of(value: object) -> str | None:
    """Return what stands in a test's name."""
    return getattr(value, "__name__", None)


KEPT = [pair for pair in itertools.product(PROMISES, METHODS) if pair not in EXCEPTIONS]


@pytest.mark.parametrize(("promise", "method"), KEPT, ids=name_of)
def test_every_method_keeps_it(promise: Promise, method: str) -> None:
    promise(METHODS[method])


@pytest.mark.parametrize(("promise", "method"), EXCEPTIONS, ids=name_of)
def test_an_exception_is_one(promise: Promise, method: str) -> None:
    """A difference, or a position that a table refuses; any other failure is none of these."""
    with pytest.raises((AssertionError, ValueError), match=r"differs by|moves nothing|positions"):
        promise(METHODS[method])
