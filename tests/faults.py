"""Plant each fault of tests/faults.toml in a copy of the checkout: does a test catch it?

Usage: python tests/faults.py [NAME ...]

For each fault, or for those named, runs the tests that its entry names and prints "caught" with
the test that failed, or "survived". Without a fault the same tests must pass, which is asked first.
The exit status is 1 if they do not, if a fault survives, or if what it replaces does not stand
there exactly once.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from copies import ROOT, copy_with_environment

PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
WORDS = {0: "survived", 1: "caught"}  # by pytest's exit status; any other: it tested nothing


def run(folder: Path, command: list[str] | str) -> tuple[int, str]:
    """Run a command in the copy, with the copy's modules; its exit status and what it said."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    # Bytecode is not kept: it would outlive a change that leaves a file as long as it was.
    own = {"PATH": path, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        command, shell=isinstance(command, str), cwd=folder, env=os.environ | own,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    return done.returncode, done.stdout.strip()


def ask(folder: Path, tests: list[str]) -> str:
    """Run tests until one fails: what became of the fault, and the line that says why."""
    status, said = run(folder, [*PYTEST, *tests])
    failed = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return f"{WORDS.get(status, 'not asked')}: {[said[-300:], *failed][-1] if status else ''}"


def outcome(folder: Path, fault: dict) -> str:
    """Plant one fault, build what is built from its file, and ask its tests."""
    text = (folder / fault["file"]).read_text(encoding="utf-8")
    if (count := text.count(fault["old"])) != 1:
        return f"stale: what it replaces stands {count} times in {fault['file']}"
    changed = text.replace(fault["old"], fault["new"])
    (folder / fault["file"]).write_text(changed, encoding="utf-8")
    status, said = run(folder, fault.get("rebuild", "true"))
    found = f"not built: {said[-300:]}" if status else ask(folder, fault["tests"])
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=folder, check=True)
    return found


def main(names: list[str]) -> int:
    faults = tomllib.loads((ROOT / "tests/faults.toml").read_text(encoding="utf-8"))["fault"]
    if unknown := set(names) - {fault["name"] for fault in faults}:
        raise SystemExit(f"no such fault: {', '.join(sorted(unknown))}")
    chosen = [fault for fault in faults if fault["name"] in names or not names]
    with tempfile.TemporaryDirectory() as made:
        copy_with_environment(Path(made))
        subprocess.run("git init --quiet && git add .", cwd=made, check=True, shell=True)
        sound = ask(Path(made), sorted({test for fault in chosen for test in fault["tests"]}))
        if not sound.startswith(WORDS[0]):
            raise SystemExit(f"without a fault a test fails already; {sound}")
        left = 0
        for fault in chosen:
            found = outcome(Path(made), fault)
            left += not found.startswith(WORDS[1])
            print(f"{fault['name']}: {found}", flush=True)
    print(f"{len(chosen) - left} of {len(chosen)} caught")
    return int(left > 0)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
