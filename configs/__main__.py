"""The command: `python -m configs config.json`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from configs.explain import explain


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what the file means; 2 and one line on the error stream if it cannot be read."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if len(arguments) != 1:
        print("usage: python -m configs config.json", file=sys.stderr)
        return 2
    try:
        print(explain(json.loads(Path(arguments[0]).read_text(encoding="utf-8"))))
    except (OSError, TypeError, ValueError) as error:  # json's own error is a ValueError
        print(f"{arguments[0]}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
