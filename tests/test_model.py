"""The tiny transformer: shapes, caches, padding, pooling, weights, and its errors."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from closeness import assert_close, difference
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pe_course import measure
from pe_course.model import Transformer
from pe_course.page.doors import DOORS
from pe_course.registry import METHODS, Sizes
from pe_course.training import generator
from pe_lib import KVCache, Learned, NoPosition, Sinusoidal

SIZES = Sizes(d_model=12, n_heads=3, length=64)
# The model hands caches, masks and positions on: one method for each door that they go through is
# enough here. What each method makes of them, test_promises.py asks.
through_every_door = pytest.mark.parametrize("name", [method for method, *_ in DOORS.values()])


def model(encoding: str = "sinusoidal", **options: object) -> Transformer:
    torch.manual_seed(0)
    settings = {"d_model": 12, "n_heads": 3, "causal": True, **options}
    return Transformer(9, encoding=METHODS[encoding].make(SIZES), **settings).double()  # type: ignore[arg-type]


def tokens(batch: int, length: int, seed: int = 1) -> Tensor:
    return torch.randint(9, (batch, length), generator=generator(seed))


# The definition -----------------------------------------------------------------------------------


def twin(network: Transformer, ids: Tensor) -> Tensor:
    """The pre-norm transformer without positions, written out head by head."""
    x = network.inputs.weight[ids]  # type: ignore[union-attr, index]
    for block in network.blocks:
        attention, heads = block.attention, []
        y = F.layer_norm(x, x.shape[-1:], block.norm_1.weight, block.norm_1.bias)
        q, k, v = (y @ part.weight.T for part in attention_parts(attention))
        width = q.shape[-1] // attention.n_heads
        for h in range(attention.n_heads):
            own = slice(h * width, (h + 1) * width)
            logits = q[..., own] @ k[..., own].mT / width**0.5
            hidden = torch.ones(logits.shape[-2:], dtype=torch.bool).triu(1)
            heads.append(logits.masked_fill(hidden, -torch.inf).softmax(-1) @ v[..., own])
        x = x + torch.cat(heads, dim=-1) @ attention.out_proj.weight.T
        y = F.layer_norm(x, x.shape[-1:], block.norm_2.weight, block.norm_2.bias)
        first, _, second = block.mlp
        x = x + F.linear(F.gelu(F.linear(y, first.weight, first.bias)), second.weight, second.bias)
    x = F.layer_norm(x, x.shape[-1:], network.norm.weight, network.norm.bias)
    return F.linear(x, network.outputs.weight, network.outputs.bias)


def attention_parts(attention: nn.Module) -> list[nn.Linear]:
    return [attention.q_proj, attention.k_proj, attention.v_proj]  # type: ignore[list-item]


def test_the_model_is_the_pre_norm_transformer() -> None:
    network = model("none")
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)  # biases and norms that do something
    assert_close(network(tokens(3, 5)), twin(network, tokens(3, 5)), 1e-12)


def test_weights_and_outputs_are_the_recorded_ones() -> None:
    network = model("rope")
    output = network(torch.arange(6)[None])
    state = {name: value for name, value in network.state_dict().items() if "encoding" not in name}
    assert sum(map(torch.numel, state.values())) == 3921
    assert float(sum(weight.abs().sum() for weight in state.values())) == pytest.approx(
        497.87374463308515, rel=1e-14
    )
    assert float(output.detach().sum()) == pytest.approx(1.773184800864029, rel=1e-12)


# Cache, padding, mask -----------------------------------------------------------------------------


@through_every_door
@pytest.mark.parametrize("pieces", [(1,) * 8, (3, 5), (5, 1, 2)])
def test_a_cache_changes_nothing(name: str, pieces: tuple[int, ...]) -> None:
    network, inputs = model(name), tokens(2, 8)
    caches = [KVCache() for _ in network.blocks]
    outputs = [network(piece, caches=caches) for piece in inputs.split(pieces, dim=1)]
    assert_close(torch.cat(outputs, dim=1), network(inputs), 1e-12)
    assert all(len(cache) == 8 for cache in caches)


@through_every_door
def test_left_padding_changes_nothing(name: str) -> None:
    network, inputs = model(name), tokens(2, 8)
    pads = torch.tensor([0, 3])
    positions = (torch.arange(8) - pads[:, None]).clamp(min=0)
    mask = (torch.arange(8) >= pads[:, None])[:, None, None, :]
    padded = network(inputs, positions=positions, mask=mask)
    assert_close(padded[:1], network(inputs[:1]), 1e-12)
    assert_close(padded[1:, 3:], network(inputs[1:, 3:]), 1e-12)


@through_every_door
def test_positions_reach_every_encoding(name: str) -> None:
    network, inputs = model(name, causal="alibi" in name), tokens(2, 6)
    stretched = network(inputs, positions=torch.arange(6) * 3)
    assert difference(stretched, network(inputs)) > 1e-4


def test_without_positions_an_encoder_is_equivariant_and_its_mean_invariant() -> None:
    order = torch.tensor([3, 0, 2, 1, 4])
    network, inputs = model("none", causal=False), tokens(3, 5)
    assert measure.equivariance_error(network, inputs, order) < 1e-12
    pooled = model("none", causal=False, pool="mean")
    assert_close(pooled(inputs[:, order]), pooled(inputs), 1e-12)


# Pooling, layers, weights -------------------------------------------------------------------------


def test_pooling_is_the_mean_or_the_first_of_what_there_is_before_the_output() -> None:
    inputs = tokens(3, 5)
    every = model(causal=False)
    for pool, take in (("mean", lambda y: y.mean(dim=1)), ("first", lambda y: y[:, 0])):
        pooled = model(causal=False, pool=pool)
        pooled.load_state_dict(every.state_dict())
        assert_close(pooled(inputs), take(every(inputs)), 1e-12)  # the output layer is linear


def test_one_encoding_is_shared_and_several_are_used_in_order() -> None:
    shared = Learned(8, 12)
    network = Transformer(9, d_model=12, n_heads=4, n_layers=3, encoding=shared)
    assert all(block.attention.encoding is shared for block in network.blocks)
    assert network.encoding is shared
    bare = Transformer(9, d_model=12, n_heads=4, n_layers=3)
    extra = measure.parameter_count(network) - measure.parameter_count(bare)
    assert extra == measure.parameter_count(shared)
    own = [Learned(8, 12), NoPosition(), NoPosition()]
    several = Transformer(9, d_model=12, n_heads=4, n_layers=3, encoding=own)
    assert [block.attention.encoding for block in several.blocks] == own
    assert several.encoding is own[0]


def test_another_encoding_can_be_put_in_without_touching_a_weight() -> None:
    network, inputs = model("learned"), tokens(2, 6)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    first, wave = network(inputs), Sinusoidal(12).double()
    network.use_encoding(wave)
    assert network.encoding is wave
    assert all(block.attention.encoding is wave for block in network.blocks)
    assert difference(network(inputs), first) > 1e-3
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


def test_an_encoding_that_another_model_holds_stays_as_it_is_there() -> None:
    single = Transformer(9, d_model=12, n_heads=3, encoding=Learned(8, 12))
    double, inputs = model("none"), tokens(2, 6)
    before = single(inputs)
    double.use_encoding(single.encoding)
    assert double(inputs).dtype == torch.float64
    assert double.encoding is double.blocks[1].attention.encoding is not single.encoding
    assert torch.equal(single(inputs), before)


def test_another_encoding_follows_the_model_to_its_device() -> None:
    network = model("none").to("meta")
    network.use_encoding(Learned(8, 12))
    kinds = {(parameter.device.type, parameter.dtype) for parameter in network.parameters()}
    assert kinds == {("meta", torch.float64)}


def test_initial_weights_have_their_scales_and_encodings_keep_theirs() -> None:
    torch.manual_seed(0)
    table = Learned(50, 64, std=0.7)
    rows = table.table.detach().clone()
    network = Transformer(500, d_model=64, encoding=table, embed_std=0.2)
    assert torch.equal(table.table, rows)
    assert isinstance(network.inputs, nn.Embedding)
    assert float(network.inputs.weight.detach().std()) == pytest.approx(0.2, rel=0.03)
    for name, weight in network.blocks.named_parameters():
        if "encoding" in name or "norm" in name:
            continue
        if name.endswith("bias"):
            assert not weight.any()
        else:
            assert float(weight.detach().std()) == pytest.approx(0.5 / 8, rel=0.1)


def test_a_shared_table_is_saved_once_and_loaded_into_all_layers(tmp_path: Path) -> None:
    network, inputs = model("t5"), tokens(2, 6)
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)  # no longer those of a fresh model
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    state = load_file(tmp_path / "weights.safetensors")
    assert [name for name in state if "table" in name] == ["blocks.0.attention.encoding.table"]
    whole = nn.ModuleDict({"model": copy.deepcopy(model("t5"))})  # as a part of something larger
    whole.load_state_dict({f"model.{name}": weight for name, weight in state.items()})
    assert torch.equal(whole["model"](inputs), network(inputs))
    old = state | {"blocks.1.attention.encoding.table": network.encoding.table}
    fresh = model("t5")
    fresh.load_state_dict(old)  # saved when a shared table stood there once per layer
    assert torch.equal(fresh(inputs), network(inputs))
