"""The page of published configurations: which of them `from_config` reads as their models do.

`python tests/equality.py` writes the table, book/data/configs.csv, from models that run;
tests/test_published.py finds each of its rows anew. Here it becomes the page book/configs.md.
"""

from __future__ import annotations

import csv
import re
from typing import Any

from pe_lib.compose import Compose
from pe_lib.encoding import PositionEncoding
from pe_lib.recent.mla import DecoupledRotation
from pe_lib.recent.rotary_values import RotaryValues
from pe_lib.rope import RoPE
from posdoctor.configs import from_config
from posdoctor.factory import published_files
from tools import ROOT

TABLE = ROOT / "book/data/configs.csv"
COLUMNS = ("model type", "result", "rotates", "pairs", "layers without positions", "windows")
TOLERANCE = 1e-6  # to which tests/equality.py compares, of the largest entry


def rope_of(encoding: PositionEncoding | None) -> tuple[RoPE, bool] | None:
    """Return the rotation in an encoding, and whether it acts on the last components."""
    if isinstance(encoding, RoPE):
        return encoding, False
    if isinstance(encoding, RotaryValues):
        return encoding.rope, False
    if isinstance(encoding, DecoupledRotation):
        inside = rope_of(encoding.encoding)
        return None if inside is None else (inside[0], True)
    if isinstance(encoding, Compose):
        return next((rope for part in encoding.members() if (rope := rope_of(part))), None)
    return None


def read() -> list[dict[str, str]]:
    """Return the rows of the table."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def outcome(config: dict[str, Any]) -> str:
    """Return how a file is read, or why it is refused."""
    try:
        layers = from_config(config)
    except ValueError as error:
        return str(error).split("; ")[-1]
    rotating = sum(rope_of(layer.encoding) is not None for layer in layers)
    return f"{rotating} of {len(layers)} layers rotate"


def source_as_code(source: str) -> str:
    """Return where a file was read, with its path as code: no typography changes a "--" in it."""
    return re.sub(r"(?<=^read: )(\S+) (\S+)", r"\1 `\2`", source)


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
        *(f"| {each['name']} | {told} | {source_as_code(each['source'])} |"
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
