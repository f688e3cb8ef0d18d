"""The same numbers everywhere: instruction sets as settings, and a training under two of them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from typing import Any

import pytest
import trainer

from browsing import left_out
from tools import ROOT, environment

X86 = platform.machine().lower() in {"x86_64", "amd64"}
x86_alone = pytest.mark.skipif(not X86, reason="other processors have no setting")


def test_native_chooses_no_instructions_whatever_the_host_has_set(monkeypatch):
    for name in environment.CHOOSERS:
        monkeypatch.setenv(name, "of the host")
    child = environment.child("native")
    assert not environment.CHOOSERS & set(child)


@x86_alone
def test_a_setting_leaves_nothing_that_chooses_instructions_to_the_host(monkeypatch):
    for variable in environment.CHOOSERS:
        monkeypatch.setenv(variable, "of the host")
    child = environment.child("oldest")
    assert "of the host" not in child.values()
    assert child | environment.INSTRUCTION_SETS["oldest"] == child


@x86_alone
def test_a_kernel_of_openblas_that_the_host_needs_comes_back_with_native(monkeypatch):
    monkeypatch.setenv(environment.CORE, "Zen")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "512")
    monkeypatch.delenv(environment.HOST_CORE, raising=False)
    below = environment.child("oldest")
    assert below[environment.CORE] == "Nehalem" and below["OPENBLAS_L2_SIZE"] == "512"
    for variable, value in below.items():
        monkeypatch.setenv(variable, value)
    assert environment.child("native")[environment.CORE] == "Zen"


@x86_alone
def test_a_process_runs_with_the_instructions_of_the_one_that_started_it(monkeypatch):
    monkeypatch.setenv(environment.CHOICE, "oldest")
    assert environment.settings()["ATEN_CPU_CAPABILITY"] == "default"
    assert environment.settings("native")["ATEN_CPU_CAPABILITY"] is None


def test_locale_time_zone_and_style_of_a_person_are_left_outside(monkeypatch):
    for name, value in {"LC_ALL": "tr_TR.UTF-8", "TZ": "Asia/Tokyo", "LANGUAGE": "tr"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MPLBACKEND", "pdf")
    child = environment.child("native")
    assert (child["LC_ALL"], child["TZ"]) == ("C.UTF-8", "UTC")
    assert not {"LANGUAGE", "MPLBACKEND"} & set(child)
    assert os.path.exists(os.path.join(child["MATPLOTLIBRC"], "matplotlibrc"))


@pytest.fixture(scope="module")
def trained() -> dict[str, dict[str, Any]]:
    """What tests/trainer.py gives here and in a fresh process, by instruction set."""
    if not X86:
        left_out("only x86-64 has several instruction sets to choose from")
    here = os.environ[environment.CHOICE]
    (other,) = {"oldest", "native"} - {here}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "trainer.py")],
        env=environment.child(other) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = {here: trainer.results(), other: json.loads(done.stdout)}
    assert found["oldest"]["kernels"] == "DEFAULT"
    return found


def ten_digits(losses: list[float]) -> list[str]:
    return [f"{loss:.10g}" for loss in losses]


def test_every_method_starts_from_the_same_weights_with_the_oldest_instructions(trained):
    assert trained["oldest"]["starts"] == trained["native"]["starts"]


def test_a_training_prints_the_same_digits_with_the_oldest_instructions(trained):
    oldest, native = trained["oldest"], trained["native"]
    assert ten_digits(oldest["float64"]) == ten_digits(native["float64"])
    if native["kernels"] != oldest["kernels"]:  # the comparison can fail: in float32 it does
        assert ten_digits(oldest["float32"]) != ten_digits(native["float32"])
