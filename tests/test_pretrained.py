"""The published RoPE model, rebuilt from this library's parts, computes what the package does."""

from __future__ import annotations

import glassllm
import numpy as np
import pytest
import torch

from lab import pretrained
from lab.tasks import load_text
from pe_lib.attention import NoPosition
from pe_lib.rope import RoPE

TRAINED_LENGTH = 128


@pytest.fixture(scope="module")
def model() -> pretrained.GlassLM:
    return pretrained.load_glass()


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
