"""Build the site, its PDF, or the report on external links.

Usage: python -m tools.build [--pdf | --links]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tools import ROOT, publish, vendor

SITE = ROOT / "_build" / "html"
DOCTREES = ROOT / "_build" / ".doctrees"
STAMP = ".sources.json"  # in the site: what it was built from
LATEX = ROOT / "_build" / "latex"
LINKS = ROOT / "_build" / "linkcheck" / "output.txt"
PDF_NAME = "positional-encodings"
NOT_BUILT = {"runtimes.json", "faults.toml", "drawn.txt"}
UNREAD = re.compile(r"^(\.|_build|_generated|__pycache__)|\.egg-info$")  # folders and files
# The icons that pages and the theme's styles name; its fonts are cut to them (MAINTAINING.md).
NAMED = """
angle-down angle-left angle-right arrow-up bars bell chevron-down chevron-right chevron-up
circle-half-stroke download exclamation-circle exclamation-triangle expand external-link-alt file
file-pdf github info-circle lightbulb list magnifying-glass moon pencil pencil-alt rocket share sun
times-circle xmark
"""
ICONS = NAMED.split()


def bring_assets() -> None:
    """Vendor what pages need, or say that they will ask public addresses for it."""
    try:
        vendor.vendor()
    except (vendor.VendorError, OSError) as error:
        vendor.do_without(error)


def sphinx(builder: str, *options: str) -> int:
    """Run jupyter-book in the root; warnings are errors for every builder but the link check."""
    if builder != "html":  # it reads pages in a form of its own
        forget()
    start = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", start, "build", ".", "-q", "--builder", builder, *options]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # A second thread costs small tensors far more than it brings.
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    code = subprocess.run(command, cwd=ROOT, env=environment).returncode
    if builder != "html":
        forget()
    return code


def forget() -> None:
    """Let the next build read every page; the site that there is stays until then."""
    shutil.rmtree(DOCTREES, ignore_errors=True)
    (SITE / STAMP).unlink(missing_ok=True)


def sources() -> dict[str, str]:
    """Return a digest of the pages' files, and of all else that the site is built from.

    A file is known by its size and its time.
    """
    around = sys.version, shutil.which("node"), shutil.which("npm")
    digests = {"pages": hashlib.sha256(), "other": hashlib.sha256(repr(around).encode())}
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(name for name in folders if not UNREAD.search(name))
        names = sorted(name for name in files if not UNREAD.search(name))
        for path in filter(Path.is_file, (Path(folder, name) for name in names)):
            if (path.parent == ROOT and path.suffix == ".md") or path.name in NOT_BUILT:
                continue
            is_page = path.parent.name == "book" and path.suffix in (".ipynb", ".md")
            state = path.stat()
            known = path.relative_to(ROOT), state.st_size, state.st_mtime_ns
            digests["pages" if is_page else "other"].update(repr(known).encode())
    return {kind: digest.hexdigest() for kind, digest in digests.items()}


def build_site() -> int:
    """Build what has changed: pages alone, or all of the site if anything else did."""
    start = time.perf_counter()
    bring_assets()
    stamp, now = SITE / STAMP, sources()
    before = json.loads(stamp.read_text()) if stamp.exists() else {}
    if before == now:
        print(f"Nothing changed since it was built. Open {(SITE / 'index.html').as_uri()}")
        return 0
    if before.get("other") != now["other"]:
        forget()
        shutil.rmtree(SITE, ignore_errors=True)
    stamp.unlink(missing_ok=True)  # or a page that stopped this build would pass in the next one
    code = sphinx("html", "-W", "--keep-going", "-n")
    if code:
        print("The build failed: every warning above is an error.", file=sys.stderr)
        return code
    publish.publish(SITE)
    stamp.write_text(json.dumps(now))
    print(f"\nBuilt in {time.perf_counter() - start:.0f} s. Open {(SITE / 'index.html').as_uri()}")
    print("or serve it: make serve")
    return 0


def build_pdf() -> int:
    if not (shutil.which("xelatex") and shutil.which("latexmk")):
        print(
            "The PDF needs xelatex and latexmk, which are not installed here. On Debian, Ubuntu:\n"
            "  sudo apt-get install latexmk texlive-xetex texlive-latex-extra "
            "texlive-fonts-recommended xindy fonts-freefont-otf\nThen: make pdf",
            file=sys.stderr,
        )
        return 2
    code = sphinx("pdflatex")
    made = LATEX / f"{PDF_NAME}.pdf"
    if code or not made.exists():
        return code or 1
    print(f"\nOpen {made.as_uri()}")
    return 0


def check_links() -> int:
    LINKS.unlink(missing_ok=True)
    # jupyter-book's own name for this builder would write over the site.
    code = sphinx("custom", "--custom-builder", "linkcheck")
    if not LINKS.exists():
        return code or 1
    bad = [
        line for line in LINKS.read_text().splitlines() if re.search(r"\[(broken|timeout)\]", line)
    ]
    print("\n".join(["", *bad]))
    print(f"\n{len(bad)} links do not answer. Every link that is not plainly well: {LINKS}")
    return int(bool(bad))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--pdf", action="store_true", help="one PDF of the whole course")
    which.add_argument("--links", action="store_true", help="report on external links")
    options = parser.parse_args()
    if options.pdf:
        return build_pdf()
    return check_links() if options.links else build_site()


if __name__ == "__main__":
    sys.exit(main())
