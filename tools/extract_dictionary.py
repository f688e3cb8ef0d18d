"""Extract The Devil's Dictionary into lab/data/devils_dictionary.txt.

    apt-get download dict-devil && dpkg -x dict-devil_*.deb devil
    python -m tools.extract_dictionary devil/usr/share/dictd/devil.dict.dz

The dictionary database's own headers and the preface are left out: the text begins at the
first entry.
"""

from __future__ import annotations

import gzip
import sys

from tools import ROOT

TARGET = ROOT / "lab/data/devils_dictionary.txt"


def main(source: str) -> None:
    """Write the text, and print its length."""
    with gzip.open(source) as packed:
        text = packed.read().decode("ascii").replace("\r\n", "\n")
    # From the first entry to the last; the alphabet that follows belongs to the database.
    text = text[text.index("ABASEMENT, n.") : text.rindex(" abcdefghij")].rstrip() + "\n"
    TARGET.write_text(text, encoding="utf-8")
    print(f"{TARGET.name}: {len(text)} characters, {len(set(text))} different ones")


if __name__ == "__main__":
    main(*sys.argv[1:])
