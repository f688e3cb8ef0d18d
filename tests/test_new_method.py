"""A method is added by the guide in CONTRIBUTING.md, in a copy."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from test_promises import PROMISES

from copies import copy_with_environment
from tools import ROOT

GUIDE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ALONE = GUIDE.split("## Add a method")[1].split("\n## ")[0]
ARGUMENTS = re.search(r'make bakeoff ARGS="(.*?)"', ALONE)[1]
METHOD = '''"""A penalty that grows with the logarithm of the distance."""

from torch import Tensor, nn, ones

from pe_lib.relative import RelativeBias, for_each_head


class Spiral(RelativeBias):
    """Add -rate * log(1 + |distance|); each head trains its own rate."""

    def __init__(self, n_heads: int) -> None:
        """Begin with the rate 1."""
        super().__init__()
        self.n_heads, self.rates = n_heads, nn.Parameter(ones(n_heads))

    def of_distance(self, relative: Tensor) -> Tensor:
        """Return the bias of relative positions: (...) -> (H, ...)."""
        rates = for_each_head(self.rates, relative)
        return -rates * relative.abs().to(rates.dtype).log1p()
'''
LINE = """from pe_lib.spiral import Spiral

METHODS["spiral"] = Method("Spiral", "#7a3d14", lambda sizes: Spiral(sizes.n_heads))
"""
COMPARED = f"""
from dataclasses import replace

from pe_course.bakeoff.__main__ import parser
from pe_course.bakeoff.grid import grid
from pe_course.bakeoff.run import run
from benchmarks.__main__ import ours


def test_spiral_is_compared(tmp_path):
    chosen = parser().parse_args("{ARGUMENTS}".split())
    cells = grid(chosen.scale, chosen.tasks, chosen.methods, chosen.seeds)
    first = next(cell for cell in cells if cell.method == "spiral")
    rows = run([replace(first, steps=2, multiples=(1, 2))], tmp_path / "rows.csv")
    assert {{row["method"] for row in rows}} == {{"spiral"}}
    assert "pe_lib, Spiral" in ours(64)
"""


def run(command: str, folder: Path) -> str:
    """Run a line in the copy, whose own library comes first; what it says."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    words = shlex.split(command)
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return done.stdout


def test_the_guide_makes_a_method(tmp_path: Path) -> None:
    """It keeps every promise, and the comparison and the benchmarks know it."""
    copy = copy_with_environment(tmp_path)
    (copy / "pe_lib/spiral.py").write_text(METHOD, encoding="utf-8")
    with (copy / "pe_course/registry.py").open("a", encoding="utf-8") as registry:
        registry.write(LINE)
    (copy / "tests/test_spiral.py").write_text(COMPARED, encoding="utf-8")
    asked = "tests/test_promises.py tests/test_spiral.py -k spiral"
    said = run(f".venv/bin/python -m pytest -q {asked}", copy)
    assert int(re.search(r"(\d+) passed", said)[1]) > len(PROMISES)
