"""The package that others install is `pe_lib` alone, and needs what it says."""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tools import ROOT

ROOMS = ("pe_lib", "lab", "pages", "clinic", "configs", "exercises")
USE = """
import importlib, pkgutil, sys

import pe_lib

names = [module.name for module in pkgutil.walk_packages(pe_lib.__path__, "pe_lib.")]
for name in names:
    importlib.import_module(name)
loaded = {name.partition(".")[0] for name in sys.modules}
print(pe_lib.__file__, len(names), *{"IPython", "clinic", "configs", "lab",
    "matplotlib", "pages"} & loaded)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Build the wheel, without a network."""
    copy = tmp_path_factory.mktemp("copy")  # setuptools writes beside what it builds
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for room in ROOMS:
        shutil.copytree(ROOT / room, copy / room, ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", "--no-index", f"--wheel-dir={copy / 'made'}"]
    done = subprocess.run([*pip, *options, str(copy)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return next((copy / "made").glob("*.whl"))


@pytest.fixture(scope="module")
def metadata(wheel):
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith("/METADATA"))
        return email.message_from_bytes(files.read(name))


def test_the_wheel_holds_the_library_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as files:
        names = {name for name in files.namelist() if ".dist-info/" not in name}
    assert names == {
        f"pe_lib/{path.name}" for path in (ROOT / "pe_lib").iterdir() if path.is_file()
    }
    assert "pe_lib/py.typed" in names


def test_every_module_works_with_nothing_of_the_course_on_the_path(wheel, tmp_path):
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as files:
        files.extractall(target)
    places = [target, sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    path = os.pathsep.join(map(str, dict.fromkeys(places)))
    done = subprocess.run(
        [sys.executable, "-S", "-c", USE], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    count = len(list((ROOT / "pe_lib").glob("*.py"))) - 1
    assert done.stdout.split() == [str(target / "pe_lib/__init__.py"), str(count)]


def test_the_wheel_asks_for_the_versions_that_are_tested(metadata):
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for bound in metadata.get_all("Requires-Dist"):
        name, version = bound.split(">=")
        assert re.search(rf"^{name}=={re.escape(version)}\.\d+$", pins, re.MULTILINE), bound
    flows = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    tested = sorted(set(re.findall(r'python-version: "(3\.\d+)"', flows)))
    assert metadata["Requires-Python"] == f">={tested[0]}"
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata.get_all("Classifier")))
    assert sorted(named) == tested


def test_the_changelog_says_what_this_version_brought(metadata):
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(metadata['Version'])}\b", changes, re.MULTILINE)


def test_an_environment_of_the_course_has_the_rest_too(tmp_path):
    """As `make` installs it: notebooks import it wherever they lie."""
    rest = "import bakeoff, clinic, configs, exercises, lab, pages, pe_lib; print(lab.__path__[0])"
    done = subprocess.run(
        [sys.executable, "-c", rest], cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.stdout.strip() == str(ROOT / "lab"), done.stderr
