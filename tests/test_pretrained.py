"""The published RoPE model, rebuilt from this library's parts, computes what the package does."""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

import glassllm
import numpy as np
import pytest
import torch

from pe_course import pretrained
from pe_course.tasks import load_text
from pe_lib.encoding import NoPosition
from pe_lib.rope import RoPE

TRAINED_LENGTH = 128
FILES = {
    "en.npz": "261ae219ab98caa1f3641e23deb3d9d91b7b7a276f991cbd494f67cfa5abce4d",
    "en.tokenizer.json": "4cf0830157c45cf7f8c70a8fdcb8378c33330b9ba0c9a312e772d7d6485ca4df",
}  # with their sha256
ODD_TEXTS = [
    "",
    " ",
    "   three spaces, and  two ",
    "\n\nlines\r\n\tand tabs\x0b\x0c",
    "aaaaaaa ooooo llll eeeeee ------",
    "e\u0301 decomposed and \u00e9 composed, \ufb01 a ligature",
    "▁ marks ▁▁a space▁",
    "<pad><unk><bos><eos>",
    "日本語 \U0001f600 \u2029 \x85 \x00 \ud800",
]


@pytest.fixture(scope="module")
def model() -> pretrained.GlassLM:
    return pretrained.load_glass()


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_those_of_the_package(name):
    ours = (pretrained.DATA / name).read_bytes()
    assert hashlib.sha256(ours).hexdigest() == FILES[name]
    assert ours == (resources.files("glassllm") / "weights" / name).read_bytes()
    assert "Permission is hereby granted" in (pretrained.DATA / "LICENSE").read_text("utf-8")


def book_texts() -> list[str]:
    """Return the pages in Markdown, and the code of the library."""
    root = Path(__file__).parents[1]
    paths = sorted([*root.glob("book/*.md"), *root.glob("pe_lib/*.py"), *root.glob("*.md")])
    return [path.read_text(encoding="utf-8") for path in paths]


def test_tokens_equal_those_of_the_package():
    _, tokenizer = glassllm.load_pretrained("en")
    mixed = torch.randint(32, 127, (20_000,)).tolist()
    random_text = "".join(map(chr, mixed))
    for text in [load_text(), *book_texts(), random_text, *ODD_TEXTS]:
        ids = pretrained.encode(text)
        assert ids.dtype == torch.int64
        assert ids.tolist() == tokenizer.encode(text)


@pytest.mark.parametrize("start", [0, 700])
def test_its_logits_equal_those_of_the_package(model, start):
    package, tokenizer = glassllm.load_pretrained("en")
    ids = torch.tensor(tokenizer.encode(load_text()[:4000]))[start : start + TRAINED_LENGTH]
    with glassllm.no_grad():
        theirs = package.forward(ids.numpy()).data
    with torch.no_grad():
        ours = model(ids[None]).numpy()
    assert ours.shape == theirs.shape == (1, TRAINED_LENGTH, 1024)
    assert np.abs(ours - theirs).max() < 1e-4


def test_it_runs_past_its_trained_length_where_the_package_refuses(model):
    ids = pretrained.encode(load_text()[:2000])[None, : TRAINED_LENGTH + 1]
    with pytest.raises(ValueError, match="do not fit"):
        glassllm.load_pretrained("en")[0].forward(ids.numpy())
    assert model(ids).shape == (1, TRAINED_LENGTH + 1, 1024)


def test_another_encoding_changes_the_logits_and_the_own_one_restores_them(model):
    ids = pretrained.encode(load_text()[:500])[None, :64]
    with torch.no_grad():
        before = model(ids)
        model.use_encoding(NoPosition())
        without = model(ids)
        model.use_encoding(RoPE(pretrained.HEAD_DIM))
        after = model(ids)
    assert (before - without).abs().max() > 1
    assert torch.equal(before, after)
