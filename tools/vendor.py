"""Bring the packages that the site and its tests need from npm, pinned, and check their digests.

The site then asks no other host for anything. Where npm is missing, or the registry does not
answer, the book still builds: its pages load the same version from a public address instead.
"""

from __future__ import annotations

import base64
import hashlib
import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools import ROOT

SITE_ASSETS = ROOT / "book" / "_vendor"
TEST_ASSETS = ROOT / "_build" / "vendor"


@dataclass(frozen=True)
class Package:
    """One npm package, its digest, and which of its files are kept."""

    name: str
    version: str
    sha512: str  # base64, as npm's own lock files write it
    keep: tuple[str, ...]  # patterns of files, or folders, inside the package
    folder: str  # where they go


SITE = (
    Package(
        "mathjax",
        "3.2.2",
        "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
        (
            "es5/node-main.js",
            "es5/adaptors/liteDOM.js",
            "es5/input/tex.js",
            "es5/input/tex/extensions",
            "es5/output/chtml.js",
            "es5/output/chtml",
            "es5/a11y/assistive-mml.js",
            "LICENSE",
        ),
        "mathjax",
    ),
)
TEST = (
    Package(
        "axe-core",
        "4.14.1",
        "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        ("axe.min.js", "LICENSE"),
        "axe-core",
    ),
)


class VendorError(Exception):
    """A package could not be had, or is not the one that was pinned."""


def digest(data: bytes) -> str:
    return base64.b64encode(hashlib.sha512(data).digest()).decode()


def fetch(package: Package, folder: Path) -> bytes:
    """Return the package's archive, as npm gives it, once its digest is right."""
    npm = shutil.which("npm")
    if npm is None:
        raise VendorError("npm is not installed")
    # A cache of its own: a home may be missing, or not to be written to.
    command = [npm, "pack", "--loglevel=error", f"--cache={folder / 'cache'}"]
    command += [f"{package.name}@{package.version}"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        raise VendorError(f"npm did not answer in time for {package.name}") from None
    archives = list(folder.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        raise VendorError(f"npm pack {package.name} failed: {done.stderr.strip()[-300:]}")
    data = archives[0].read_bytes()
    if digest(data) != package.sha512:
        raise VendorError(f"{package.name} {package.version} is not the file that was pinned")
    return data


def stamp(package: Package) -> str:
    """Return what tells a package, and which of its files are kept, from every other."""
    return "\n".join([f"{package.name} {package.version}", package.sha512, *package.keep, ""])


def unpack(package: Package, data: bytes, base: Path) -> None:
    """Write the kept files of an archive below `base`, at once, even if another does the same."""
    with tempfile.TemporaryDirectory(dir=base) as folder:
        partial = Path(folder) / "partial"
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            for member in archive:
                inside = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                wanted = any(
                    inside.match(kept) or PurePosixPath(kept) in inside.parents
                    for kept in package.keep
                )
                if member.isfile() and wanted and ".." not in inside.parts:
                    path = partial / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(archive.extractfile(member).read())
        (partial / "VERSION").write_text(stamp(package))
        target = base / package.folder
        shutil.rmtree(target, ignore_errors=True)
        try:
            partial.rename(target)
        except OSError:
            if not present(package, base):
                raise


def present(package: Package, base: Path) -> bool:
    """Return True if this very package already lies there."""
    version = base / package.folder / "VERSION"
    return version.exists() and version.read_text() == stamp(package)


def vendor(packages: tuple[Package, ...] = SITE, base: Path = SITE_ASSETS) -> None:
    """Make the packages' files lie under `base`; raise a VendorError if one cannot be had."""
    for package in packages:
        if present(package, base):
            continue
        base.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            data = fetch(package, Path(folder))
        unpack(package, data, base)
        print(f"brought {package.name} {package.version}")


def do_without(error: Exception) -> None:
    """Say why formulas are not set here, and what pages do instead."""
    print(
        f"Note: {error}. Pages will load MathJax from cdn.jsdelivr.net, so reading needs a "
        "network; where npm and node work, formulas are set here."
    )


def main() -> int:
    try:
        vendor()
        vendor(TEST, TEST_ASSETS)
    except VendorError as error:
        print(f"{error}.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
