"""The course can be installed as a package: no part reads files that are not shipped with it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from tools import ROOT

USE = """
import importlib
from pathlib import Path

import bakeoff.run
import clinic.doctor
import clinic.proofs
import lab.census
import lab.claims
import lab.live
import lab.tasks
import pe_lib
from exercises import checks

site = Path(pe_lib.__file__).parents[1]
assert not site.is_relative_to(ROOT), site
modules = [path.relative_to(site).with_suffix("") for path in site.glob("*/**/*.py")]
assert len(modules) > 100, len(modules)
for module in modules:
    if module.name != "nbgrader_config":  # which nbgrader executes, with a name of its own
        importlib.import_module(".".join(module.parts).removesuffix(".__init__"))
assert len(lab.census.read()) > 400
assert len(clinic.proofs.published()) > 20
assert all(lab.live.bundle(name)["image/png"] for name in lab.live.starts())
assert len(lab.tasks.load_text()) > 300_000
assert len(lab.claims.load()) > 90
assert len(bakeoff.run.read_rows(bakeoff.run.SHIPPED / "small.csv")) > 1000
assert clinic.doctor.diagnose(pe_lib.RoPE(16), head_dim=16).healthy
checks.alibi_slopes(lambda n_heads: pe_lib.alibi.alibi_slopes(n_heads))
"""


def test_an_installed_copy_works_away_from_the_repository(tmp_path):
    """As `pip install .` makes it, without --editable: every module and every file is there."""
    copy, target = tmp_path / "copy", tmp_path / "site"  # pip writes beside what it builds
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, copy)
    for room in ("pe_lib", "lab", "bakeoff", "clinic", "configs", "exercises"):
        shutil.copytree(ROOT / room, copy / room)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-compile", "--target", str(target)]
    subprocess.run([*pip, *options, str(copy)], check=True, capture_output=True, text=True)
    environment = os.environ | {"PYTHONPATH": str(target)}
    command = [sys.executable, "-c", f"ROOT = {str(ROOT)!r}\n{USE}"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "alibi_slopes: right.\n"
