"""Ask the doctor from a shell.

    posdoctor module:function            examine a function (q, k, positions) -> (q, k)
    posdoctor module:function --expect config.json    ... and hold it to a model's file
    posdoctor module:function --expect config.json,layer=full_attention    ... to one kind of layer
    posdoctor module:function --expect base=1e6,layout=half    ... to values
    posdoctor module:function --expect module:other    ... to another function
    posdoctor module:function --blhd     its queries and keys are (B, L, H, d)
    posdoctor module:function --axes 2   a position is several numbers, as in images
    posdoctor module:function --kind bias    what is added to logits; --kind absolute: a code
    posdoctor module:encoding            an encoding of pe_lib, hook by hook
    posdoctor module:model               a causal model of transformers, layer by layer
    posdoctor config.json                examine a configuration
    posdoctor config.json --explain      say what it means for the positions of every layer
    posdoctor bias.npy --kind bias --expect module:bias    a matrix (heads, Lq, Lk); also .pt
    posdoctor --factory module:make      hold make(config), or make(config, layer), to the files of
                                         published models: a line for each kind of layer
    posdoctor --factory module:make --configs folder    ... to the config.json files of a folder
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
from posdoctor.doctor import KINDS, InputError, Report, diagnose
from posdoctor.expected import loaded
from posdoctor.factory import Outcome, check_factory

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
    options.add_argument("--factory", metavar="MODULE:MAKE", help="what makes a port's rotations")
    options.add_argument("--configs", metavar="FOLDER", help="with --factory: config.json files")
    options.add_argument("--expect", help="a config.json, module:name, or base=1e6,layout=half")
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
    """Return what `--expect` says: a thing, one with the layer of a configuration, or values."""
    head, *rest = text.split(",")
    named = head.endswith((".json", ".npy", ".pt")) or ":" in head
    values: dict[str, object] = {}
    for part in rest if named else [head, *rest]:
        key, separator, value = part.partition("=")
        if not separator:
            raise InputError(f"expect must be a file NAME.json or key=value,..., got {text!r}")
        values[key.strip()] = value.strip() if named else number_or_word(value)
    if not named:
        return values
    if set(values) - {"layer"}:
        raise InputError(f"expect may have layer=... beside a file, got {text!r}")
    return {"config": found(head), **values} if values else found(head)


def number_or_word(text: str) -> float | str:
    """Return what stands behind an equals sign."""
    try:
        return float(text)
    except ValueError:
        return text


def examine(chosen: argparse.Namespace) -> Report | Outcome:
    """Return the report that the options ask for."""
    if chosen.factory:
        return check_factory(found(chosen.factory), chosen.configs, blhd=chosen.blhd)
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
    if sum(given is not None for given in (chosen.thing, chosen.compare, chosen.factory)) != 1:
        options.error("give one thing, --compare with two, or --factory")
    if chosen.configs and not chosen.factory:
        options.error("--configs goes with --factory")
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
    if isinstance(report, Outcome):
        return report.status
    return HEALTHY if report.healthy else FAULTY


if __name__ == "__main__":
    sys.exit(main())
