"""Builders of position ids: each trap names what falls into it, and right builders do not."""

from __future__ import annotations

import pytest
import torch

from posdoctor.doctor import InputError, PositionIds, diagnose
from posdoctor.findings import FAULT


def of_mask(mask):
    """As transformers' `generate` does."""
    ids = mask.long().cumsum(-1) - 1
    return ids.masked_fill(mask == 0, 1)


def of_segments(texts):
    return (texts[:, :, None] == texts[:, None]).tril().sum(-1) - 1


def of_step(mask, past):
    return of_mask(mask)[:, past:]


def of_grids(types, grids, after=1, exchanged=False):
    parts, at, left, start = [], 0, grids.tolist(), 0
    while at < len(types):
        if types[at] == 0:
            part = torch.full((3, 1), start)
        else:
            part = torch.cartesian_prod(*map(torch.arange, left.pop(0))).T + start
            part = part[[0, 2, 1]] if exchanged else part
        parts.append(part)
        start = int(part.max()) + (1 if types[at] == 0 else after)
        at += part.shape[1]
    return torch.cat(parts, 1)


RIGHT = {"mask": of_mask, "segments": of_segments, "step": of_step, "grids": of_grids}


@pytest.mark.parametrize("takes", RIGHT)
def test_a_right_builder_is_not_accused(takes):
    report = diagnose(RIGHT[takes], kind="position_ids", takes=takes)
    assert not report.findings, str(report)
    assert (
        diagnose(RIGHT[takes], kind="position_ids", takes=takes, expect=RIGHT[takes])
        .case.facts["tried"]
        .count(",")
    )


def test_ids_that_start_behind_the_paddings_own_are_a_note():
    """RoBERTa's are counted from 2."""
    report = diagnose(lambda mask: of_mask(mask) + 2, kind="position_ids")
    assert report.healthy and report.names() == ["ids-start"]


def test_four_axes_are_taken_and_the_first_is_not_looked_at():
    def four(types, grids):
        return torch.cat([torch.arange(len(types))[None], of_grids(types, grids)])

    assert not diagnose(four, kind="position_ids", takes="grids").findings


def first_row(mask, past):
    return of_step(mask, past)[:1].expand(len(mask), -1)


# name: (form, builder, what must be found, in which trap)
WRONG = {
    "padding is counted": (
        "mask", lambda m: torch.arange(m.shape[1]).expand(m.shape), "padding-counted",
        "left padding"),
    "counted from the right end": (
        "mask", lambda m: m.flip(1).cumsum(1).flip(1) - 1, "ids-not-counted", "no padding"),
    "texts run on": (
        "segments", lambda s: torch.arange(s.shape[1]).expand(s.shape), "segments-run-on",
        "two texts"),
    "a text of one token is missed": (
        "segments",
        lambda s: of_segments(torch.where((s == s.roll(1, 1)) | (s == s.roll(-1, 1)), s, s - 1)),
        "segments-run-on", "a text of one token"),
    "new tokens count from the length": (
        "step", lambda m, past: torch.arange(past, m.shape[1]).expand(len(m), -1) if past else
        of_mask(m), "step-elsewhere", "one new token behind left padding"),
    "all rows continue the first": (
        "step", first_row, "step-elsewhere", "one new token behind left padding"),
    "rows and columns exchanged": (
        "grids", lambda t, g: of_grids(t, g, exchanged=True), "grid-ids", "image first"),
    "text follows a gap": (
        "grids", lambda t, g: of_grids(t, g, after=3), "after-image", "image between"),
    "text counts tokens": (
        "grids", lambda t, g: torch.where(t == 0, torch.arange(len(t)), of_grids(t, g)),
        "after-image", "image first"),
    "all images have the first one's grid": (
        "grids",
        lambda t, g: of_grids(t, torch.stack([g[0], torch.stack([g[1, 0], g[1, 2], g[1, 1]])])
                              if len(g) == 2 else g),
        "grid-ids", "two images of unequal grids"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_a_builder_does_wrong_is_named_with_the_trap(name):
    takes, builder, verdict, trap = WRONG[name]
    report = diagnose(builder, kind="position_ids", takes=takes)
    assert (verdict, trap) in {(each.name, each.where) for each in report.faults}, str(report)
    held = diagnose(builder, kind="position_ids", takes=takes, expect=RIGHT[takes])
    assert "ids-differ" in held.names(FAULT)


def test_what_a_reference_does_too_is_no_fault():
    def plain(mask):
        return torch.arange(mask.shape[1]).expand(mask.shape)

    report = diagnose(plain, kind="position_ids", expect=plain)
    assert report.healthy and "padding-counted" in report.names()


def test_the_published_builder_of_m_rope_is_not_accused():
    modeling = pytest.importorskip("transformers.models.qwen2_vl.modeling_qwen2_vl")
    config = modeling.Qwen2VLConfig()
    model = modeling.Qwen2VLModel.__new__(modeling.Qwen2VLModel)
    torch.nn.Module.__init__(model)
    model.config = config
    merge = config.vision_config.spatial_merge_size

    def build(types, grids):
        patches = grids * torch.tensor([1, merge, merge])
        video = bool((grids[:, 0] > 1).any())
        seen = {"video_grid_thw" if video else "image_grid_thw": patches if len(grids) else None}
        kinds = (types * (2 if video else 1))[None]
        return model.get_rope_index(torch.ones_like(kinds), kinds, **seen)[0]

    report = diagnose(PositionIds(build, "grids"))
    assert not report.findings, str(report)


def test_a_builder_of_another_form_is_refused_in_words():
    with pytest.raises(InputError, match="takes must be one of mask, segments, step, grids"):
        diagnose(of_mask, kind="position_ids", takes="image")
    with pytest.raises(InputError, match=r"it must take attention_mask \(B, L\)"):
        diagnose(of_step, kind="position_ids")
    with pytest.raises(InputError, match="must return"):
        diagnose(lambda mask: mask[0], kind="position_ids")
