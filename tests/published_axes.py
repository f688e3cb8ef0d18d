"""Rotary functions of published libraries whose positions have several numbers.

Most take a grid of patches and give its tables, row by row. Here such a grid is made once, and
a token at (row, column) gets the row of the tables that is its own.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import types
from collections.abc import Callable, Iterator
from typing import Any

import alone
import torch
from published import MODELS, TABLE, bare, configuration
from torch import Tensor

from posdoctor.subjects import Rotary

SIDE = 64  # of the grids
Apply = Callable[[Tensor, Tensor], Tensor]


def places_in(positions: Tensor) -> Tensor:
    """Return the number of each patch of a grid, (L, axes) -> (L,); IndexError past the grid."""
    if bool((positions >= SIDE).any()):
        raise IndexError(f"the grid has {SIDE} patches on each side")
    steps = SIDE ** torch.arange(positions.shape[-1] - 1, -1, -1)
    return (positions * steps).sum(-1)


def flat(function: Callable[[Tensor, Tensor, Tensor], Any], width: int, axes: int) -> Rotary:
    """Return a function that takes positions (L, axes) and no batches of them."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if positions.ndim == 3:
            raise ValueError(f"positions must be (L, {axes})")
        return function(q, k, positions)

    return Rotary(rotate, head_dim=width, axes=axes, reach=SIDE)


def by_table(table: Tensor, apply: Apply, width: int, axes: int) -> Rotary:
    """Return a rotation by rows of a table (patches, ...), which `apply` takes with the vectors."""

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        rows = table[places_in(positions)]
        return apply(q, rows), apply(k, rows)

    return flat(rotate, width, axes)


# --- transformers ---------------------------------------------------------------------------------


def several_axes() -> list[list[tuple[str, str]]]:
    """Return the modules and classes that carry each different text of tables with several axes."""
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        for match in TABLE.finditer(text):
            if re.search(r"mrope|recomposition|axial|[Vv]ision", match.group(0)):
                key = bare(match.group(0)).replace(match.group(1), "")
                module = f"transformers.models.{path.parent.name}.{path.stem}"
                found.setdefault(key, []).append((module, match.group(1)))
    return [sorted(carriers, key=lambda one: "qwen" not in one[0]) for carriers in found.values()]


def from_tables(file: str, name: str) -> Rotary:
    """Return the rotation of a class of tables that takes a number for each axis.

    Raises:
        Exception: whatever a class raises that wants other arguments.
    """
    module = importlib.import_module(file)
    cls = getattr(module, name)
    config = configuration(cls, module)
    if "Vision" not in name and not hasattr(config, "max_position_embeddings"):
        config = config.get_text_config()
    if name.startswith("Glm4v") and "Text" in name:  # its sections are those of half a head
        config.rope_parameters["partial_rotary_factor"] = 0.5
    tables = cls(config).eval()
    x = torch.zeros(1, 1, 4, 8)
    if "Vision" not in name:
        width = tables(x, torch.zeros(3, 1, 4).long())[0].shape[-1]
        apply = module.apply_rotary_pos_emb

        def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            return tuple(apply(q, k, *tables(q, positions.movedim(-1, 0))))

        return Rotary(rotate, head_dim=width, axes=3)
    width = tables(x, torch.zeros(4, 2).long())[0].shape[-1]

    def patches(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        cos, sin = tables(q, positions)  # (L, d)
        if not hasattr(module, "apply_rotary_pos_emb_vision"):
            return tuple(module.apply_rotary_pos_emb(q, k, cos[None], sin[None]))
        vectors = (each[0].transpose(0, 1) for each in (q, k))  # (L, heads, d)
        rotated = module.apply_rotary_pos_emb_vision(*vectors, cos, sin)
        return tuple(each.transpose(0, 1)[None] for each in rotated)

    return flat(patches, width, 2)


def transformers_tables() -> Iterator[tuple[str, int, Rotary | str]]:
    """Return each text with several axes, or why no model that carries it can be called so."""
    for carriers in several_axes():
        why = ""
        for file, name in carriers:
            try:
                found = from_tables(file, name)
                found.function(*torch.zeros(2, 1, 3, 5, found.head_dim),
                               torch.zeros(5, 2).long() if found.axes == 2
                               else torch.zeros(1, 5, 3).long())  # fmt: skip
            except Exception as error:
                why = why or f"{type(error).__name__}: {error}"
            else:
                yield f"transformers {name}", len(carriers), found
                break
        else:
            yield f"transformers {carriers[0][1]}", len(carriers), why


def transformers_grids() -> dict[str, Rotary]:
    """Return DINOv3, whose tables come from the size of a picture."""
    from transformers import DINOv3ViTConfig
    from transformers.models.dinov3_vit import modeling_dinov3_vit as dino

    config = DINOv3ViTConfig(hidden_size=64, num_attention_heads=2, patch_size=1)
    cos, sin = dino.DINOv3ViTRopePositionEmbedding(config).eval()(torch.zeros(1, 3, SIDE, SIDE))

    def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        rows = places_in(positions)
        return dino.apply_rotary_pos_emb(q, k, cos[rows], sin[rows])

    return {"transformers DINOv3": flat(rotate, 32, 2)}


# --- diffusers ------------------------------------------------------------------------------------


def diffusers_grids() -> dict[str, Rotary]:
    """Return the rotations of models of pictures and video."""
    from diffusers.models.embeddings import (
        apply_rotary_emb,
        get_2d_rotary_pos_embed,
        get_3d_rotary_pos_embed,
    )
    from diffusers.models.transformers import transformer_wan as wan
    from diffusers.models.transformers.transformer_hunyuan_video import HunyuanVideoRotaryPosEmbed

    video = torch.zeros(1, 1, SIDE, SIDE, SIDE)
    inner = next(code for code in wan.WanAttnProcessor.__call__.__code__.co_consts
                 if getattr(code, "co_name", "") == "apply_rotary_emb")  # fmt: skip
    rotate_wan = types.FunctionType(inner, vars(wan))
    tables = wan.WanRotaryPosEmbed(16, (1, 1, 1), SIDE)(video)
    both = torch.stack([each[0, :, 0] for each in tables], 1)  # (patches, 2, d)

    def apply_wan(x: Tensor, rows: Tensor) -> Tensor:
        cos, sin = rows[None, :, None].unbind(-2)  # (1, L, 1, d)
        return rotate_wan(x.transpose(1, 2), cos, sin).transpose(1, 2)

    def apply(x: Tensor, rows: Tensor) -> Tensor:
        return apply_rotary_emb(x, rows.unbind(1))

    cog = get_3d_rotary_pos_embed(16, ((0, 0), (SIDE, SIDE)), (SIDE, SIDE), SIDE)
    hunyuan = HunyuanVideoRotaryPosEmbed(1, 1, [4, 6, 6])(video)
    dit = get_2d_rotary_pos_embed(32, ((0, 0), (SIDE, SIDE)), (SIDE, SIDE))
    return {
        "diffusers Wan": by_table(both, apply_wan, 16, 3),
        "diffusers CogVideoX": by_table(torch.stack(cog, 1), apply, 16, 3),
        "diffusers HunyuanVideo": by_table(torch.stack(hunyuan, 1), apply, 16, 3),
        "diffusers Hunyuan-DiT": by_table(torch.stack(dit, 1), apply, 32, 2),
    }


# --- timm -----------------------------------------------------------------------------------------


def timm_grids() -> dict[str, Rotary]:
    """Return axial, mixed and DINOv3 rotations, and M-RoPE for pictures."""
    timm = alone.timm_positions()
    shape = [SIDE, SIDE]

    def apply(x: Tensor, rows: Tensor) -> Tensor:
        return timm.apply_rot_embed_cat(x, rows)

    def apply_half(x: Tensor, rows: Tensor) -> Tensor:
        return timm.apply_rot_embed_cat(x, rows, half=True)

    def pair(x: Tensor, rows: Tensor) -> Tensor:
        return timm.apply_rot_embed(x, *rows.unbind(1))

    def cat(**options: Any) -> Tensor:
        return timm.RotaryEmbeddingCat(32, in_pixels=False, **options).get_embed(shape)

    sin_cos = timm.RotaryEmbedding(32, in_pixels=False).get_embed(shape)
    torch.manual_seed(0)
    mixed = timm.RotaryEmbeddingMixed(96, depth=1, num_heads=3, temperature=10.0)
    by_head = mixed.get_embed(shape)[0]  # (heads, patches, 2 d)
    return {
        "timm RotaryEmbedding": by_table(torch.stack(sin_cos, 1), pair, 32, 2),
        "timm RotaryEmbeddingCat": by_table(cat(), apply, 32, 2),
        "timm RotaryEmbeddingCat, columns first": by_table(cat(grid_indexing="xy"), apply, 32, 2),
        "timm RotaryEmbeddingCat, half": by_table(cat(rotate_half=True), apply_half, 32, 2),
        "timm RotaryEmbeddingMixed, a head": by_table(by_head[0].detach(), apply, 32, 2),
        "timm RotaryEmbeddingMRope": by_table(
            timm.RotaryEmbeddingMRope(36, (6, 6, 6)).get_embed(shape), apply_half, 36, 2
        ),
        "timm RotaryEmbeddingDinoV3": by_table(
            timm.RotaryEmbeddingDinoV3(32).get_embed(shape), apply_half, 32, 2
        ),
    }


# --- torchtune ------------------------------------------------------------------------------------


def torchtune_functions() -> dict[str, Rotary]:
    """Return RoPE in one axis, that of Llama 3.1, Phi-3's, and the axial one."""
    plain = alone.torchtune_file("modules/position_embeddings.py")
    scaled = alone.torchtune_file("models/llama3_1/_position_embeddings.py")
    phi = alone.torchtune_file("models/phi3/_position_embeddings.py")

    def one_axis(module: Any) -> Rotary:
        def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
            rotated = (module(x.transpose(1, 2), input_pos=positions) for x in (q, k))
            return tuple(x.transpose(1, 2) for x in rotated)

        return Rotary(rotate, head_dim=64)

    axial = plain.VisionRotaryPositionalEmbeddings(1, SIDE, 1, 16, append_cls_token=True)

    def on_grid(x: Tensor, rows: Tensor) -> Tensor:
        whole = torch.zeros(len(x), SIDE**2 + 1, *x.shape[1::2], dtype=x.dtype)
        whole[:, rows] = x.transpose(1, 2)  # the last token is the class's
        return axial(whole)[:, rows].transpose(1, 2)

    def patches(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        rows = places_in(positions)
        return on_grid(q, rows), on_grid(k, rows)

    return {
        "torchtune RoPE": one_axis(plain.RotaryPositionalEmbeddings(64, 4096)),
        "torchtune Llama 3.1": one_axis(scaled.Llama3ScaledRoPE(64, 4096)),
        "torchtune Phi-3": one_axis(phi.Phi3RotaryPositionalEmbeddings(64, 4096)),
        "torchtune axial": flat(patches, 32, 2),
    }


PARTS = (transformers_grids, diffusers_grids, timm_grids, torchtune_functions)


def all_axes() -> Iterator[tuple[str, int, Rotary | str]]:
    """Return every function by name with how many models carry it, or why it cannot be called."""
    yield from transformers_tables()
    for part in PARTS:
        yield from ((name, 1, found) for name, found in part().items())
