"""What the API's page shows runs as it stands there."""

from __future__ import annotations

import re
import sys
import types

import pytest
import torch

from pe_lib import ALiBi, KVCache
from pe_lib.attention import attend
from tools import ROOT

PAGE = (ROOT / "book" / "api.md").read_text(encoding="utf-8")


def examples(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)


def run(code: str) -> dict[str, object]:
    """Run code as in an empty session; the names that it defines."""
    torch.manual_seed(0)
    page = sys.modules["page"] = types.ModuleType("page")  # where pickle finds classes
    exec(code, vars(page))
    return vars(page)


pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.fixture(scope="module")
def shown() -> dict[str, object]:
    """What the examples of the API's page define, each pasted alone."""
    return {name: each for code in examples(PAGE) for name, each in run(code).items()}


def test_the_decoder_generates_with_its_cache_what_it_does_without(shown) -> None:
    model = shown["GPT"](50, 32, 4, 2).double()
    ids = torch.randint(50, (2, 9))
    caches = [KVCache() for _ in model.layers]
    parts = torch.cat([model(part, caches) for part in ids.split(1, dim=1)], dim=1)
    assert torch.allclose(parts, model(ids), atol=1e-12)
    longer = model.generate(ids, 3)
    assert torch.equal(longer[:, 9:], model(longer)[:, 8:-1].argmax(-1))


def test_a_model_of_transformers_decodes_with_the_bias(shown) -> None:
    model, ids = shown["model"].eval(), torch.randint(100, (1, 8))
    with torch.no_grad():
        whole = model(ids).logits
        past = model(ids[:, :5], use_cache=True)
        rest = model(ids[:, 5:], past_key_values=past.past_key_values).logits
    assert torch.allclose(rest, whole[:, 5:], atol=1e-5)
    model.config._attn_implementation = "eager"
    assert not torch.allclose(model(ids).logits, whole, atol=1e-3)


def test_x_transformers_takes_the_bias(shown) -> None:
    relative = torch.arange(7) - torch.arange(3, 7)[:, None]
    bias = shown["Bias"](4)
    assert torch.equal(bias(4, 7), bias.of_distance(relative))


def test_flex_attention_takes_the_bias(shown) -> None:
    expected, _ = attend(shown["q"], shown["k"], shown["v"], ALiBi(4), 0, 0)
    assert torch.allclose(shown["output"], expected, atol=1e-5)


def test_the_examples_of_the_readme_run() -> None:
    names = run("".join(examples((ROOT / "README.md").read_text(encoding="utf-8"))))
    assert names["layer"](names["x"]).shape == (2, 10, 64)


def test_the_page_names_methods_that_there_are(shown) -> None:
    import pe_lib

    for name in re.findall(r"`(\w+)\(", PAGE):
        assert hasattr(pe_lib, name), name
    assert isinstance(pe_lib.ALiBi(4), ALiBi)
