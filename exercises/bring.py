"""Bring the checks, and what they need, to a notebook that stands alone.

The first cell of an exercise notebook fetches `checks.zip` from the course's site and runs this
file, which lies in it.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import shutil
import subprocess
import sys
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("matplotlib", "numpy", "torch", "tqdm")


def unpacked(archive: bytes, cache: Path) -> Path:
    """Return a folder of the cache with the files of an archive, which is there whole or not."""
    folder = cache / hashlib.sha256(archive).hexdigest()[:16]
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=cache))
        try:
            with zipfile.ZipFile(io.BytesIO(archive)) as files:
                files.extractall(fresh)
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            if not folder.exists():  # or another notebook was quicker
                raise
    return folder


def keep(archive: bytes, kept: Path) -> Path:
    """Keep an archive for when there is no network, unpacked beside it; return that folder."""
    folder = unpacked(archive, kept.parent)
    if not kept.exists() or kept.read_bytes() != archive:
        fresh = folder.with_suffix(".zip")
        fresh.write_bytes(archive)
        fresh.replace(kept)
    return folder


def bring(archive: bytes, kept: Path) -> None:
    """Let Python import what lies in an archive; install the packages that are missing.

    Args:
        archive: the bytes of `checks.zip`.
        kept: where a copy is kept, if that can be written.
    """
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:  # PyTorch takes minutes, once
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *missing], check=True)
        importlib.invalidate_caches()
    try:
        folder = keep(archive, kept)
    except OSError:
        folder = unpacked(archive, Path(tempfile.mkdtemp()))
    for name in [name for name in sys.modules if name.split(".")[0] == "exercises"]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
