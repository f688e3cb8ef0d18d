"""Which rotary text models of transformers `from_config` reads as they compute.

`python tests/equality.py` builds a small model of every rotary text model in the installed
transformers, runs it, and writes book/data/configs.csv; test_published.py finds each row anew.
The build of the site renders the table (tools/configs_page.py), without transformers.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter

import recorded_models
import torch
from recorded_models import RecordedLayer
from torch import Tensor

from pe_lib.encoding import PositionEncoding
from pe_lib.rope import layout_permutation
from posdoctor.configs import Layer, from_config
from tools.configs_page import COLUMNS, TABLE, TOLERANCE, rope_of

# Every model that is not equal, and why. A model that is neither equal nor here fails the tests.
EXCEPTED = {
    "clvp_decoder": "has a learned table; what rotates in its file are the encoders of text and of "
    "speech",
    "inkling2_text": "reads a bias for each distance from the hidden state; what rotates in its "
    "file is the encoder of images",
    "seamless_m4t": "adds sinusoids to text; only its speech encoder may rotate, and by default "
    "has relative terms instead",
}


class NotEqual(AssertionError):
    """An encoding and its model differ."""


def row(name: str, model: type) -> dict[str, str]:
    """Return the row of a model type.

    Raises:
        NotEqual: if it differs.
    """
    configuration = recorded_models.small_configuration(name)
    recorded = recorded_models.record(model, configuration, recorded_models.POSITIONS)
    layers = from_config(configuration)
    compare(layers, recorded, recorded_models.POSITIONS)
    return dict(zip(COLUMNS, (name, "equal", *facts(layers)), strict=True))


def compare(layers: list[Layer], recorded: list[RecordedLayer], positions: list[int]) -> None:
    """Raise unless each recorded layer rotated as its encoding does, with its window and scale."""
    attending = [layer for layer in layers if layer.encoding is not None]
    if not recorded:
        raise NotEqual("no attention was recorded")
    for call, record in enumerate(recorded):
        index = record.layer
        known = 0 <= index < len(layers) and layers[index].encoding is not None
        layer = layers[index] if known else attending[call % len(attending)]
        assert layer.encoding is not None
        error = difference(layer.encoding, record, positions)
        if not error <= TOLERANCE:
            error = min(error, difference(layer.encoding, record, positions, reordered=True))
        if not error <= TOLERANCE:
            raise NotEqual(f"layer {index} differs by {error:.2g}")
        if record.window is not None and record.window != layer.window:
            raise NotEqual(f"layer {index} has the window {record.window}, not {layer.window}")
        scale = layer.encoding.scale
        if scale is not None and abs(record.scale - scale) > TOLERANCE:
            raise NotEqual(f"layer {index} has the scale {record.scale}, not {scale}")


def difference(
    encoding: PositionEncoding,
    record: RecordedLayer,
    positions: list[int],
    *,
    reordered: bool = False,
) -> float:
    """Return the largest difference of rotated queries and keys, relative to the largest entry."""
    position_ids = torch.tensor(positions)
    # Compressed keys come after those of the positions.
    at_zero = [x[:, :, : len(positions)] for x in record.at_zero]
    order = component_order(encoding, at_zero[0].shape[-1], reordered)
    inverse = order.argsort()
    q, k = (x[..., inverse] for x in at_zero)
    zeros = torch.zeros_like(position_ids)
    rotated_at_zero = encoding.rotate(q, k, zeros, zeros)  # multiplied by the gain alone
    gains = [ratio(rotated, x) for rotated, x in zip(rotated_at_zero, (q, k), strict=True)]
    ours = encoding.rotate(q / gains[0], k / gains[1], position_ids, position_ids)
    theirs = (x[:, :, : len(positions)] for x in record.at_positions)
    return max(
        float((our[..., order] - their).abs().max() / their.abs().max().clamp(min=1e-30))
        for our, their in zip(ours, theirs, strict=True)
    )


def ratio(scaled: Tensor, x: Tensor) -> float:
    """Return the factor by which x was multiplied; 1 if x is zero."""
    return float(scaled.norm() / x.norm()) if x.norm() > 0 else 1.0


def component_order(encoding: PositionEncoding, width: int, reordered: bool) -> Tensor:
    """Return an order of components: as they are, or as latent attention may leave them.

    The code of some models puts the first components of interleaved pairs before the second ones,
    in queries and keys alike, so that no score changes; what it does to pairs is tested alone.
    """
    order, found = torch.arange(width), rope_of(encoding)
    if reordered and found is not None and found[1] and found[0].layout == "interleaved":
        start = width - found[0].head_dim
        order[start:] = start + layout_permutation(found[0].head_dim)
    return order


def facts(layers: list[Layer]) -> tuple[str, str, str, str]:
    """Return what the table says of a model: what rotates, pairs, layers without, windows."""
    ropes = [found for layer in layers if (found := rope_of(layer.encoding)) is not None]
    parts = Counter(
        f"{'last ' if last else ''}{int((rope.inv_freq != 0).sum()) * 2}" for rope, last in ropes
    )
    layouts = sorted({rope.layout for rope, _ in ropes})
    attending = [layer for layer in layers if layer.encoding is not None]
    without = sum(rope_of(layer.encoding) is None for layer in attending)
    windows = sorted({layer.window for layer in attending if layer.window is not None})
    return (
        ", ".join(sorted(parts)) or "nothing",
        ", ".join(layouts) or "–",
        f"{without} of {len(attending)}",
        ", ".join(map(str, windows)) or "–",
    )


def main() -> int:
    """Write the table; say what is neither equal nor excepted."""
    wrong = 0
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name, model in recorded_models.rotary_text_models().items():
            line = dict.fromkeys(COLUMNS, "–") | {"model type": name}
            try:
                line |= {"result": EXCEPTED[name]} if name in EXCEPTED else row(name, model)
            except Exception as error:  # whatever a model raises, its name must be told
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
                wrong += 1
            else:
                writer.writerow(line)
                file.flush()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
