"""Which published models `from_config` reads rightly: the table behind the page of the book.

`python -m tools.equality` builds a small model of every rotary text model in the installed
transformers, runs it, and writes book/data/configs.csv; tests/test_configs.py asks for each line
anew. The build of the site makes book/configs.md of the table, without transformers.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from typing import Any

import torch
from torch import Tensor

from pe_lib.compose import Compose
from pe_lib.encoding import PositionEncoding
from pe_lib.rope import RoPE, layout_permutation
from pe_lib.rotary_values import RotaryValues
from pe_lib.trailing import Trailing
from posdoctor.configs import Layer, from_config
from tools import ROOT

TABLE = ROOT / "book/data/configs.csv"
FILES = ROOT / "book/data/published_configs.json"
COLUMNS = ("model type", "result", "rotates", "pairs", "layers without positions", "windows")
TOLERANCE = 1e-6

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
    """Ours and the model's differ."""


def row(name: str, model: type) -> dict[str, str]:
    """Return the line of a model type.

    Raises:
        NotEqual: if it differs.
    """
    from tools import published

    configuration = published.small_configuration(name)
    seen = published.record(model, configuration, published.POSITIONS)
    layers = from_config(configuration)
    compare(layers, seen, published.POSITIONS)
    return dict(zip(COLUMNS, (name, "equal", *facts(layers)), strict=True))


def compare(layers: list[Layer], seen: list[Any], positions: list[int]) -> None:
    """Raise unless every layer that was seen did what its encoding does."""
    attending = [layer for layer in layers if layer.encoding is not None]
    if not seen:
        raise NotEqual("no attention was seen")
    for call, each in enumerate(seen):
        known = 0 <= each.layer < len(layers) and layers[each.layer].encoding is not None
        layer = layers[each.layer] if known else attending[call % len(attending)]
        assert layer.encoding is not None
        error = difference(layer.encoding, each, positions, False)
        if not error <= TOLERANCE:
            error = min(error, difference(layer.encoding, each, positions, True))
        if not error <= TOLERANCE:
            raise NotEqual(f"layer {each.layer} differs by {error:.2g}")
        if each.window is not None and each.window != layer.window:
            raise NotEqual(f"layer {each.layer} has the window {each.window}, not {layer.window}")
        scale = layer.encoding.scale
        if scale is not None and abs(each.scale - scale) > TOLERANCE:
            raise NotEqual(f"layer {each.layer} has the scale {each.scale}, not {scale}")


def difference(
    encoding: PositionEncoding, seen: Any, positions: list[int], reordered: bool
) -> float:
    """Return how far rotated queries and keys are from the model's, of the largest entry."""
    places = torch.tensor(positions)
    still = tuple(x[:, :, : len(positions)] for x in seen.still)  # compressed keys come after
    order = reordering(encoding, still[0].shape[-1], reordered)
    inverse = order.argsort()
    q, k = (x[..., inverse] for x in still)
    nowhere = torch.zeros_like(places)
    at_zero = encoding.rotate(q, k, nowhere, nowhere)  # what position 0 multiplies by: the gain
    gains = [ratio(moved, x) for moved, x in zip(at_zero, (q, k), strict=True)]
    ours = encoding.rotate(q / gains[0], k / gains[1], places, places)
    theirs = (x[:, :, : len(positions)] for x in seen.moved)
    return max(
        float((mine[..., order] - other).abs().max() / other.abs().max().clamp(min=1e-30))
        for mine, other in zip(ours, theirs, strict=True)
    )


def ratio(larger: Tensor, x: Tensor) -> float:
    """Return by what x was multiplied; 1 if all of it is zero."""
    return float(larger.norm() / x.norm()) if x.norm() > 0 else 1.0


def reordering(encoding: PositionEncoding, width: int, wanted: bool) -> Tensor:
    """Return an order of components: as they are, or as latent attention may leave them.

    The code of some models puts the first components of interleaved pairs before the second ones,
    in queries and keys alike, so that no score changes; what it does to pairs is tested alone.
    """
    order, found = torch.arange(width), rope_of(encoding)
    if wanted and found is not None and found[1] and found[0].layout == "interleaved":
        start = width - found[0].head_dim
        order[start:] = start + layout_permutation(found[0].head_dim)
    return order


def rope_of(encoding: PositionEncoding | None) -> tuple[RoPE, bool] | None:
    """Return the rotation in an encoding, and whether it acts on the last components."""
    if isinstance(encoding, RoPE):
        return encoding, False
    if isinstance(encoding, RotaryValues):
        return encoding.rope, False
    if isinstance(encoding, Trailing):
        inside = rope_of(encoding.encoding)
        return None if inside is None else (inside[0], True)
    if isinstance(encoding, Compose):
        return next((found for part in encoding.members() if (found := rope_of(part))), None)
    return None


def facts(layers: list[Layer]) -> tuple[str, str, str, str]:
    """Return what the table says of a model: what rotates, pairs, layers without, windows."""
    ropes = [found for layer in layers if (found := rope_of(layer.encoding)) is not None]
    parts = Counter(
        f"{'last ' if last else ''}{int((rope.rates != 0).sum()) * 2}" for rope, last in ropes
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


def read() -> list[dict[str, str]]:
    """Return the lines of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def published_files() -> list[dict[str, Any]]:
    """Return files of models as people have them: name, source, configuration.

    What does not concern positions is left out: tokens, images, experts.
    """
    found: list[dict[str, Any]] = json.loads(FILES.read_text(encoding="utf-8"))
    return found


def outcome(config: dict[str, Any]) -> str:
    """Return how a file is read, or why it is refused."""
    try:
        layers = from_config(config)
    except ValueError as error:
        return str(error).split("; ")[-1]
    rotating = sum(rope_of(layer.encoding) is not None for layer in layers)
    return f"{rotating} of {len(layers)} layers rotate"


def files_told() -> list[str]:
    """Return the page's part on published files."""
    files = published_files()
    outcomes = [outcome(each["config"]) for each in files]
    rotating = sum("layers rotate" in each for each in outcomes)
    return [
        "## Published files",
        "",
        f"**{len(files)} files: {rotating} equal, {len(files) - rotating} refused with what their "
        "models do instead.** Small models of these files are run in the same way, with all their "
        "layers. A file is *read* in a public repository, or *reconstructed*; what does not "
        "concern positions is left out.",
        "",
        "| model | read as | source |",
        "|---|---|---|",
        *(f"| {each['name']} | {told} | {each['source']} |"
          for each, told in zip(files, outcomes, strict=True)),
    ]  # fmt: skip


def page() -> str:
    """Return the page of the book."""
    lines = read()
    equal = [line for line in lines if line["result"] == "equal"]
    excepted = [line for line in lines if line["result"] != "equal"]
    without = [line for line in equal if not line["layers without positions"].startswith("0 ")]
    interleaved = [line for line in equal if line["pairs"] == "interleaved"]
    half = [line for line in equal if line["pairs"] == "half"]
    last = [line for line in equal if line["rotates"].startswith("last")]
    windows = [line for line in equal if line["windows"] != "–"]
    header = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    return "\n".join(
        [
            "# Published configurations, read and held against their models",
            "",
            "{py:func}`from_config <posdoctor.configs.layers.from_config>` gives the "
            "position encoding of every layer of a published model. The tests build a small model "
            "of every type in transformers that takes tokens and whose code speaks of rotations, "
            "let it run, and compare the queries and keys that reach attention with those of the "
            f"encoding, in float64, to {TOLERANCE:g} of the largest entry, at positions up to "
            "20,001. Models that number their tokens by themselves are told these positions in the "
            "part that makes angles of them.",
            "",
            f"**{len(lines)} model types tried, {len(equal)} equal, {len(excepted)} excepted.** Of "
            f"those that are equal, {len(interleaved)} pair neighbours and {len(half)} components "
            f"half a width apart, {len(without)} have layers without positions, {len(windows)} "
            f"have windows, and in {len(last)} the last components of a head rotate.",
            "",
            "The small models have few layers, so that the counts of layers below are theirs. "
            "Sizes of heads and windows are those that each type has where a file says nothing.",
            "",
            *files_told(),
            "",
            "## Excepted",
            "",
            "| model type | why |",
            "|---|---|",
            *(f"| `{line['model type']}` | {line['result']} |" for line in excepted),
            "",
            "## Equal",
            "",
            *header,
            *(f"| `{line[COLUMNS[0]]}` | {' | '.join(line[c] for c in COLUMNS[1:])} |"
              for line in equal),
            "",
        ]
    )  # fmt: skip


def main() -> int:
    """Write the table; say what is neither equal nor excepted."""
    from tools import published

    wrong = 0
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for name, model in published.rotary_text_models().items():
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
