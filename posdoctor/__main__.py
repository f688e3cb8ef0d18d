"""Ask the doctor from a shell.

    posdoctor module:function            examine a function (q, k, positions) -> (q, k)
    posdoctor module:function --expect config.json    ... and hold it to a model's file
    posdoctor module:function --blhd     its queries and keys are (B, L, H, d)
    posdoctor module:model               a causal model of transformers, layer by layer
    posdoctor config.json                examine a configuration
    posdoctor config.json --explain      say what it means for the positions of every layer
    posdoctor bias.npy --kind bias --expect module:bias    a matrix (heads, Lq, Lk); also .pt
    posdoctor --compare port original    examine a port, and say how it differs

A function (q, k, cos, sin) with its module, one of NumPy's arrays, queries dumped before and
after, a line for pytest: three lines of Python each, in `posdoctor.ways`.

Exit status: 0 if no fault was found, 1 if one was, 2 if the input cannot be examined.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from posdoctor.configs.explain import explain
from posdoctor.doctor import KINDS, InputError, Report, diagnose, loaded

HEALTHY, FAULTY, BAD_INPUT = 0, 1, 2


def parser() -> argparse.ArgumentParser:
    """Return the command's options."""
    options = argparse.ArgumentParser(
        prog="posdoctor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("thing", nargs="?", help="module:name, or the path of a config.json")
    options.add_argument("--compare", nargs=2, metavar=("PORT", "ORIGINAL"))
    options.add_argument("--expect", help="a config.json, module:name, or base=500000,layout=half")
    options.add_argument("--kind", choices=tuple(KINDS), help="of a function; default: rotary")
    options.add_argument("--head-dim", type=int, help="width of a head, default 64")
    options.add_argument("--heads", type=int, help="number of heads, default 3")
    options.add_argument("--axes", type=int, help="numbers in a position, default 1")
    options.add_argument("--blhd", action="store_true", help="q and k are (B, L, H, d)")
    options.add_argument("--thorough", action="store_true", help="minutes instead of a second")
    options.add_argument("--json", action="store_true", help="print the report as JSON")
    options.add_argument("--explain", action="store_true", help="say what a configuration means")
    options.add_argument("--layout", help="with --explain: where the file does not tell")
    options.add_argument("--base", type=float, help="with --explain: where the file does not tell")
    return options


def found(name: str) -> object:
    """Return what `module:name` names, or the path of a JSON file as it is."""
    if name.endswith((".json", ".npy", ".pt")):
        return Path(name)
    module, separator, attribute = name.partition(":")
    if not separator:
        raise InputError(
            f"thing must be module:name or a file NAME.json, .npy or .pt, got {name!r}"
        )
    sys.path.insert(0, str(Path.cwd()))
    try:
        thing: object = importlib.import_module(module)
        for part in attribute.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"{name} cannot be imported: {error}") from error
    finally:
        sys.path.pop(0)
    return thing


def expected(text: str) -> object:
    """Return what `--expect` says: a JSON file's path, or a mapping of values."""
    if text.endswith((".json", ".npy", ".pt")) or ":" in text:
        return found(text)
    values: dict[str, object] = {}
    for part in text.split(","):
        key, separator, value = part.partition("=")
        if not separator:
            raise InputError(f"expect must be a file NAME.json or key=value,..., got {text!r}")
        values[key.strip()] = float(value) if value.replace(".", "").isdigit() else value.strip()
    return values


def examine(chosen: argparse.Namespace) -> Report:
    """Return the report that the options ask for."""
    given = {"head_dim": chosen.head_dim, "heads": chosen.heads, "axes": chosen.axes}
    options = {name: value for name, value in given.items() if value is not None}
    options |= {name: True for name in ("blhd", "thorough") if getattr(chosen, name)}
    if chosen.compare:
        port, original = (found(name) for name in chosen.compare)
        return diagnose(port, kind=chosen.kind, expect=original, **options)
    expect = None if chosen.expect is None else expected(chosen.expect)
    return diagnose(found(chosen.thing), kind=chosen.kind, expect=expect, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    """Examine, print, and return the exit status."""
    options = parser()
    chosen = options.parse_args(arguments)
    if (chosen.thing is None) == (chosen.compare is None):
        options.error("give one thing, or --compare with two")
    try:
        if chosen.explain:
            given = loaded(found(chosen.thing))
            print(explain(given, layout=chosen.layout, base=chosen.base))
            return HEALTHY
        report = examine(chosen)
    except (TypeError, ValueError) as error:
        print(f"posdoctor: {error}", file=sys.stderr)
        return BAD_INPUT
    except Exception as error:  # a crash is no verdict
        words = f"the examination broke off, {type(error).__name__}: {error}"
        print(f"posdoctor: {words}", file=sys.stderr)
        return BAD_INPUT
    print(json.dumps(report.as_dict(), indent=2) if chosen.json else report)
    return HEALTHY if report.healthy else FAULTY


if __name__ == "__main__":
    sys.exit(main())
