"""The bench trains what PyTorch trains, keeps its words, and lets everybody in."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lab.model import Transformer
from lab.training import IGNORE, Batch, learning_rate, loss_of, train
from pe_lib.alibi import ALiBi
from pe_lib.attention import NoPosition, PositionEncoding
from pe_lib.relative import RelativeBias
from pe_lib.rope import RoPE
from pe_lib.shaw import Shaw
from pe_lib.sinusoidal import Sinusoidal
from pe_lib.t5 import T5Bias, t5_bucket
from tools import ROOT, bench
from tools import live as workshop

Setting = dict[str, Any]

PAGE = (ROOT / "book/bench.md").read_text(encoding="utf-8")
MARKS = [0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32]
CURVE = [0.5, 1, -1, 4, 0.25, -2, -2.5, -3, -3, -4, -6, -8]
UPDATES = 50
SETTINGS: dict[str, Setting] = {
    "none": {"method": "none"},
    "alibi": {"method": "alibi", "steep": 1},
    "alibi, twice as steep": {"method": "alibi", "steep": 2},
    "t5": {"method": "t5", "buckets": 16, "reach": 16},
    "t5, wide": {"method": "t5", "buckets": 32, "reach": 128},
    "shaw": {"method": "shaw", "clip": 16},
    "shaw, near": {"method": "shaw", "clip": 3},
    "rope": {"method": "rope", "base": 1e4},
    "rope, fast": {"method": "rope", "base": 100},
    "sinusoidal": {"method": "sinusoidal", "base": 1e4, "gain": 1},
    "sinusoidal, loud": {"method": "sinusoidal", "base": 500, "gain": 2},
    "own": {"method": "own", "curve": CURVE, "beyond": "stays", "heads": "alike"},
    "own, going on": {"method": "own", "curve": CURVE, "beyond": "goes", "heads": "halved"},
}


class Given(RelativeBias):
    """A bias that is given for each head and distance, (4, 512)."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def of_distance(self, relative: Tensor) -> Tensor:
        return self.table[:, (-relative).clamp(min=0).long()]


def drawn(setting: Setting) -> Tensor:
    """Return the drawn curve at 512 distances, times each head's share."""
    distances = np.arange(512.0)
    values = np.interp(distances, MARKS, setting["curve"])
    if setting["beyond"] == "goes":
        slope = (CURVE[-1] - CURVE[-2]) / (MARKS[-1] - MARKS[-2])
        values += np.clip(distances - MARKS[-1], 0, None) * slope
    shares = 2.0 ** -np.arange(4) if setting["heads"] == "halved" else np.ones(4)
    return torch.tensor(shares[:, None] * values, dtype=torch.float32)


def encoding(setting: Setting) -> PositionEncoding | list[PositionEncoding]:
    """Return pe_lib's own for what the page calls by the same name."""
    return {
        "none": NoPosition,
        "alibi": lambda: (
            ALiBi(4)
            if setting["steep"] == 1
            else Given(setting["steep"] * ALiBi(4).of_distance(-torch.arange(512.0)))
        ),
        "t5": lambda: T5Bias(4, setting["buckets"], setting["reach"], bidirectional=False),
        "shaw": lambda: [Shaw(8, setting["clip"], with_values=False) for _ in range(2)],
        "rope": lambda: RoPE(8, setting["base"]),
        "sinusoidal": lambda: Sinusoidal(
            32, setting["base"], gain=0.3 * 2**0.5 * setting["gain"]
        ),
        "own": lambda: Given(drawn(setting)),
    }[setting["method"]]()


IN_LAYER = {
    "qkv": [f"attention.{each}_proj.weight" for each in "qkv"],
    "out": ["attention.out_proj.weight"],
    "up": ["mlp.0.weight"],
    "up.bias": ["mlp.0.bias"],
    "down": ["mlp.2.weight"],
    "down.bias": ["mlp.2.bias"],
    "table": ["attention.encoding.key_table"],
}
IN_MODEL = {
    "inputs": "inputs.weight",
    "outputs": "outputs.weight",
    "encoding.table": "blocks.0.attention.encoding.table",
}
TURNED = ("qkv", "out", "up", "down", "outputs")  # of linear layers: (in, out) on the page


def tensors(model: Transformer, name: str) -> list[Tensor]:
    """Return the weights that the page has under a name, side by side."""
    held = dict(model.named_parameters())
    layer, _, rest = name.partition(".")
    if layer.isdigit():
        return [held[f"blocks.{layer}.{each}"] for each in IN_LAYER.get(rest, [rest])]
    return [held[IN_MODEL.get(name, name)]]


def as_on_page(parts: list[Tensor], name: str) -> np.ndarray:
    """Return such weights, or their gradients, in the page's layout: one row of numbers."""
    turned = name.split(".")[-1] in TURNED
    return torch.cat([each.T if turned else each for each in parts], dim=-1).detach().flatten().numpy()


def built(setting: Setting, found: dict[str, Any], when: str) -> Transformer:
    """Return the course's model in float64 with the page's weights."""
    model = Transformer(16, encoding=encoding(setting), causal=True).double()
    for each in found["parameters"]:
        parts = tensors(model, each["name"])
        values = torch.tensor(found[when][each["at"] : each["at"] + each["size"]])
        columns = values.double().reshape(each["rows"], each["columns"]).tensor_split(len(parts), dim=1)
        for part, column in zip(parts, columns, strict=True):
            turned = column.T if each["name"].split(".")[-1] in TURNED else column
            part.data.copy_(turned.reshape(part.shape))
    return model


def differences(model: Transformer, found: dict[str, Any], when: str) -> float:
    """Return the largest difference from the page over the largest value, of all tensors."""
    worst = 0.0
    for each in found["parameters"]:
        parts = tensors(model, each["name"])
        parts = [part.grad for part in parts] if when == "gradients" else parts
        want = as_on_page(parts, each["name"])
        got = np.array(found[when][each["at"] : each["at"] + each["size"]])
        worst = max(worst, np.abs(got - want).max() / np.abs(want).max())
    return worst


@functools.cache
def unseen(length: int = 512) -> Tensor:
    return torch.randint(16, (2, length), generator=torch.Generator().manual_seed(7))


@functools.cache
def page_steps(key: str, vectors: bool = True) -> dict[str, Any]:
    setting = SETTINGS[key] | {"seed": 3, "steps": UPDATES}
    read = unseen().flatten().tolist()
    found: dict[str, Any] = bench.run(
        "steps", setting=setting, count=UPDATES, vectors=vectors, texts=2, read=read
    )
    return found


@pytest.mark.parametrize(
    ("key", "vectors"), [*((key, True) for key in SETTINGS), ("t5", False), ("shaw", False)]
)
def test_the_page_trains_what_pytorch_trains(key, vectors):
    """In float32, where PyTorch has float64."""
    found = page_steps(key, vectors)
    batches = [
        tuple(torch.tensor(each).reshape(32, 32) for each in pair) for pair in found["batches"]
    ]
    given: list[Batch] = [(tokens, torch.where(want < 0, IGNORE, want)) for tokens, want in batches]
    model = built(SETTINGS[key], found, "start")
    loss_of(model(given[0][0]), given[0][1]).backward()
    queue = iter(given)
    gradients = differences(model, found, "gradients")
    losses = train(model, lambda _: next(queue), steps=UPDATES)
    apart = np.abs(np.array(losses) - found["losses"]).max() / max(losses)
    weights = differences(model, found, "end")
    print(f"{key}: gradients {gradients:.1e}, losses {apart:.1e}, weights {weights:.1e}")
    assert gradients < 1e-5 and apart < 1e-5 and weights < 5e-4
    with torch.no_grad():
        logits = built(SETTINGS[key], found, "end")(unseen())
    best = logits.topk(2).values
    clear = (best[..., 0] - best[..., 1] > 1e-3).flatten()
    same = logits.argmax(-1).flatten() == torch.tensor(found["guesses"])
    assert clear.double().mean() > 0.9 and same[clear].all()


# In the browser ---------------------------------------------------------------------------------


def html(scheme: str = "light") -> str:
    """Return a page that holds nothing but the bench, as the site has it."""
    head = workshop.page(scheme=scheme).partition("<main>")[0]
    place = re.search(r'<div id="bench".*', PAGE)[0]
    style, script = bench.STYLE.read_text("utf-8"), bench.SCRIPT.read_text("utf-8")
    return f"{head}<style>{style}</style><main>{place}</main><script>{script}</script>"
