"""Packages of which the tests read single files, from the folder where `make test` unpacks them.

See requirements-alone.txt: the whole of timm wants torchvision, the whole of torchtune torchao.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from types import ModuleType
from typing import Any

ALONE = Path(sys.prefix) / "alone"


def folder(name: str) -> Path:
    """Return the folder of a package.

    Raises:
        FileNotFoundError: if nobody has unpacked it.
    """
    path = ALONE / name
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is missing: make test unpacks it (requirements-alone.txt)")
    return path


def version(name: str) -> str:
    """Return the version of a package."""
    (found,) = distributions(name=name, path=[str(ALONE)])
    return found.version


@cache
def timm_positions() -> Any:
    """Return timm's file of rotations; timm is not to be imported by others afterwards."""
    before, root = set(sys.modules), folder("timm")
    for name, path in (("timm", root), ("timm.layers", root / "layers")):
        package = ModuleType(name)
        package.__path__ = [str(path)]
        sys.modules[name] = package
    try:
        return importlib.import_module("timm.layers.pos_embed_sincos")
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "timm":
                del sys.modules[name]


def torchtune_file(path: str) -> Any:
    """Return a file of torchtune, as a module."""
    spec = importlib.util.spec_from_file_location(path, folder("torchtune") / path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
