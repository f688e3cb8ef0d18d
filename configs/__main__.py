"""The command: `python -m configs config.json`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.explain import explain


def parser() -> argparse.ArgumentParser:
    """Return the command's arguments."""
    options = argparse.ArgumentParser(
        prog="python -m configs",
        description="Say what a published configuration means for the positions of every layer: "
        "frequencies, layout, stretching, windows, layers without positions.",
        epilog="Exit status: 0, or 2 if the file cannot be read as a configuration.",
    )
    options.add_argument("config", metavar="config.json", type=Path, help="the file of a model")
    options.add_argument("--layout", help="interleaved or half, where the file does not tell")
    options.add_argument("--base", type=float, help="where the file does not tell")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the file means; 2 and one line on the error stream if it cannot be read."""
    chosen = parser().parse_args(arguments)
    file: Path = chosen.config
    try:
        given = json.loads(file.read_text(encoding="utf-8"))
        print(explain(given, layout=chosen.layout, base=chosen.base))
    except (OSError, TypeError, ValueError) as error:  # json's own error is a ValueError
        print(f"{file}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
