"""Take a census of positions in published models: read the code of the installed libraries.

`python -m tools.census` writes `lab/data/census.csv`; `--check` compares it with what is
installed and says what appeared, what went and what changed. Nothing is imported but Python's own
parser: a finding is a shape of code (a pair swapped with one sign, a logit joined before the
softmax), and every finding names its file and line.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from lab.census import TABLE

ALONE = Path(sys.prefix) / "alone"  # where `make test` unpacks timm, without what it asks for
COLUMNS = (
    "layout",
    "base",
    "context",
    "part",
    "rope_types",
    "axes",
    "window",
    "layer_kinds",
    "no_position_layers",
    "sink",
    "temperature",
    "latent",
    "rotated_back",
    "learned_rates",
    "t5",
    "alibi",
    "relative",
    "content_bias",
    "gated",
    "learned",
    "sinusoidal",
    "recurrence",
    "parts",
)
HEADER = ("library", "model", "year", "method", *COLUMNS, "evidence")


MANY = re.DOTALL | re.MULTILINE


class Found(NamedTuple):
    """A value and where it stands: `file.py:line`."""

    value: str
    where: str


@dataclass(frozen=True)
class Unit:
    """A function, with the class that it stands in and its file; parsed when it is looked into."""

    file: str
    owner: str
    name: str
    line: int
    text: str

    @cached_property
    def node(self) -> ast.AST:
        """Return the function's tree; its lines count from the function's own first line."""
        indent = len(self.text) - len(self.text.lstrip(" "))
        return ast.parse(re.sub(rf"^ {{{indent}}}", "", self.text, flags=re.MULTILINE))

    @cached_property
    def words(self) -> set[str]:
        """Return the words of the code, less those of comments and of what is said in strings."""
        return set(re.findall(r"\w+", re.sub(r'''r?""".*?"""|#.*?$''', "", self.text, flags=MANY)))

    @cached_property
    def arguments(self) -> list[tuple[ast.arg, ast.expr]]:
        """Return the arguments that have a default, with it."""
        spec = next(n for n in walk(self.node) if isinstance(n, ast.FunctionDef)).args
        defaults = spec.defaults
        positional = spec.args[len(spec.args) - len(defaults) :]
        return list(zip(positional, defaults, strict=True))

    def where(self, node: ast.AST | None = None) -> str:
        """Return the file and the line of a node of the function, or of its first line."""
        return f"{self.file}:{self.line + getattr(node, 'lineno', 1) - 1}"

    def at(self, match: re.Match[str]) -> str:
        """Return the file and the line of a match in the function's text."""
        return f"{self.file}:{self.line + self.text[: match.start()].count(chr(10))}"


class Source(NamedTuple):
    """A file; `classes` are the texts of the classes at its top, with their first lines."""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        """Return the file's tree."""
        return parsed(self)


@cache
def parsed(source: Source) -> ast.Module:
    """Return a file's tree, kept."""
    return ast.parse(source.text)


class Model(NamedTuple):
    """The code of one model: its configurations, its modules and their functions."""

    library: str
    name: str
    configurations: list[Source]
    modules: list[Source]
    units: list[Unit]
    layers: frozenset[str] = frozenset()  # files of the units that it shares with other models


# Small readers of syntax


@cache
def read(path: Path) -> Source:
    """Return a file's text."""
    return Source(path.name, path.read_text(encoding="utf-8"))


def blocks(text: str, head: re.Pattern[str]) -> Iterator[tuple[int, re.Match[str], str]]:
    """Yield the indented blocks of a text that `head` starts: first line, match, text.

    The files are formatted: a block ends before the next line that is not indented further than
    its head, but for the bracket that closes a signature.
    """
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = head.match(line)
        if match:
            indent = len(line) - len(line.lstrip())
            end = number + 1
            while end < len(lines) and (
                not lines[end].strip()
                or len(lines[end]) - len(lines[end].lstrip()) > indent
                or lines[end].lstrip().startswith((")", "]"))
                or lines[end - 1].endswith("\\")
            ):
                end += 1
            yield number + 1, match, "\n".join(lines[number:end])


CLASS = re.compile(r"class (\w+)(.*)")
METHOD = re.compile(r"    def (\w+)\(")
FUNCTION = re.compile(r"def (\w+)\(")


@cache
def classes_of(source: Source) -> list[tuple[int, str, str, str]]:
    """Return the classes at a file's top: first line, name, what it derives from, text."""
    return [(at, m[1], m[2], text) for at, m, text in blocks(source.text, CLASS)]


def units_of(source: Source) -> Iterator[Unit]:
    """Yield the functions of a file: those at its top and those of its classes."""
    for at, match, text in blocks(source.text, FUNCTION):
        yield Unit(source.name, "", match[1], at, text)
    for first, name, _, body in classes_of(source):
        for at, match, text in blocks(body, METHOD):
            yield Unit(source.name, name, match[1], first + at - 1, text)


def walk(node: ast.AST) -> list[ast.AST]:
    """Return all nodes inside one, kept: many readers walk the same function."""
    kept: list[ast.AST] | None = getattr(node, "walked", None)
    if kept is None:
        kept = list(ast.walk(node))
        node.walked = kept  # type: ignore[attr-defined]
    return kept


def called(node: ast.AST | None) -> str:
    """Return the last name of what a call calls: `cat` of torch.cat(...)."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of those names inside a node, in the order of the tree."""
    return [n for n in walk(node) if isinstance(n, ast.Call) and called(n) in names]


def constant(node: ast.AST | None) -> object:
    """Return the literal that a node stands for (2 * 8 and 64 / 512 too), or None."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult):
        left, right = constant(node.left), constant(node.right)
        if isinstance(left, int | float) and isinstance(right, int | float):
            return left / right if isinstance(node.op, ast.Div) else left * right
    if isinstance(node, ast.Call) and called(node) == "interval":
        return None
    try:
        return ast.literal_eval(node) if node is not None else None
    except (ValueError, TypeError):
        return None


def say(value: object) -> str:
    """Write a literal as the table shows it: 500000, 0.25, 16-24-24."""
    if isinstance(value, dict):
        return " ".join(f"{key}={say(one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return "-".join(say(one) for one in value)
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)


def first_per_value(found: Iterable[Found]) -> list[Found]:
    """Keep the first place of each value."""
    seen: dict[str, Found] = {}
    for one in found:
        seen.setdefault(one.value, one)
    return list(seen.values())


# Rotations


NEGATED = re.compile(r"(cat|stack|concat\w*)\(\s*[\[(][^\])]*-")


def is_negated(node: ast.AST) -> bool:
    """Return whether an expression carries a minus sign of its own."""
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)


def joined_sequences(unit: Unit) -> Iterator[tuple[ast.Call, list[ast.expr]]]:
    """Yield the calls that put a written-out list of tensors together, with the list."""
    if NEGATED.search(unit.text):
        for call in calls(unit.node, "cat", "stack", "concat", "concatenate"):
            if call.args and isinstance(call.args[0], ast.Tuple | ast.List):
                yield call, call.args[0].elts


def swapped_pairs(unit: Unit) -> list[Found]:
    """Find (-b, a) put together: by `cat` it is the half layout, by `stack` the interleaved.

    With (b, -a) the rotation goes the other way round. Four numbers (cos, -sin, sin, cos) are the
    matrix of a rotation, which acts on neighbours.
    """
    found = []
    for call, parts in joined_sequences(unit):
        signs = [is_negated(part) for part in parts]
        dim = [constant(k.value) for k in call.keywords if k.arg in ("dim", "axis")]
        layout = "interleaved" if called(call) == "stack" and dim != [-2] else "half"
        if signs in ([True, False], [False, True]):
            if ast.unparse(parts[0]).lstrip("-") == ast.unparse(parts[1]).lstrip("-"):
                continue
            direction = "" if signs[0] else " reversed"
            found.append(Found(layout + direction, unit.where(call)))
        elif signs == [False, True, False, False] and "sin" in ast.unparse(parts[1]):
            found.append(Found("interleaved", unit.where(call)))
    return found


def products(node: ast.AST) -> frozenset[str] | None:
    """Return the four factors of a*b + c*d or a*b - c*d, or None."""
    if not isinstance(node, ast.BinOp):
        return None
    factors: set[str] = set()
    for side in (node.left, node.right):
        if not (isinstance(side, ast.BinOp) and isinstance(side.op, ast.Mult)):
            return None
        factors |= {ast.unparse(side.left), ast.unparse(side.right)}
    return frozenset(factors) if len(factors) == 4 else None


def rotated_products(unit: Unit) -> Found | None:
    """Find a*c - b*s beside b*c + a*s: a rotation written as products."""
    minus, plus = {}, set()
    sums = walk(unit.node) if "cos" in unit.text and "sin" in unit.text else ()
    for node in sums:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Add):
            factors = products(node)
            if factors and isinstance(node.op, ast.Sub):
                minus[factors] = node
            elif factors:
                plus.add(factors)
    for factors, node in minus.items():
        if factors in plus:
            pairs = re.search(r"::\s*2\]|, 2\)|unbind\(-1\)", unit.text)
            return Found("interleaved" if pairs else "half", unit.where(node))
    return None


def complex_product(unit: Unit) -> Found | None:
    """Find neighbours read as complex numbers, multiplied and read back."""
    if "view_as_real" in unit.text:
        for call in calls(unit.node, "view_as_complex"):
            return Found("interleaved", unit.where(call))
    return None


def reorders_neighbours(unit: Unit) -> bool:
    """Return whether neighbours are first moved to two halves: view(..., 2), then transpose."""
    for call in calls(unit.node, "transpose"):
        inner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if (
            called(inner) in ("view", "reshape")
            and isinstance(inner, ast.Call)
            and inner.args
            and constant(inner.args[-1]) == 2
        ):
            return True
    return False


class Rotations(NamedTuple):
    """Where a model rotates: the layouts, and the functions that do it."""

    layouts: list[Found]
    functions: set[str]


def rotating(unit: Unit) -> list[Found]:
    """Find the layouts in which a function rotates pairs by itself."""
    one = complex_product(unit) or rotated_products(unit)
    return swapped_pairs(unit) or ([one] if one else [])


def chosen(unit: Unit, call: ast.Call, found: list[Found]) -> list[Found]:
    """Keep the layout that a call asks for, where the function offers both by an argument."""
    if len(found) < 2 or "unbind_dim" not in unit.text:
        return found
    wanted = [constant(k.value) for k in call.keywords if k.arg and k.arg.endswith("unbind_dim")]
    return [f for f in found if f.value == ("half" if wanted == [-2] else "interleaved")][:1]


def by_flag(model: Model, found: list[Found]) -> list[Found]:
    """Keep the layout that a model of timm asks for by a flag; both if the flag is a setting."""
    own = "\n".join(source.text for source in model.modules)
    others = "\n".join(unit.text for unit in model.units if unit.file not in model.layers)
    asking = re.compile(r"rotate_half(?:: bool)? ?= ?(\w+)")
    asked = asking.findall(own) or asking.findall(others)
    if model.library != "timm":
        return found
    flags = re.findall(r"\b(use_ro\w+): bool = False", own)
    if flags and all(never_set(model, flag) for flag in flags):
        return []
    if len(found) < 2 or set(asked) - {"True"}:
        return found
    return [one for one in found if one.value == ("half" if asked else "interleaved")]


def rotations(model: Model) -> Rotations:
    """Find every function that rotates pairs, and the layout that its callers give it.

    A function that no other one calls rotates nothing, unless it is a method.
    """
    leaves = {unit.name: (unit, found) for unit in model.units if (found := rotating(unit))}
    calling: dict[str, list[tuple[Unit, ast.Call]]] = {name: [] for name in leaves}
    words = {name: re.compile(rf"(?<!def )\b{name}\(") for name in leaves}
    for unit in model.units:
        for name in leaves:
            if name != unit.name and words[name].search(unit.text):
                calling[name] += [(unit, call) for call in calls(unit.node, name)]
    layouts, functions = [], set()
    for name, (leaf, found) in leaves.items():
        if leaf.owner and not calling[name]:
            layouts += found
        for unit, call in calling[name]:
            plain = not unit.owner and "forward" not in unit.name
            if plain and not any(
                re.search(rf"(?<!def )\b{unit.name}\(", u.text) for u in model.units
            ):
                continue
            functions |= {name} | ({unit.name} if unit.name != "forward" else set())
            moved = found[0].value == "half" and reorders_neighbours(unit)
            layouts += [Found("interleaved", unit.where())] if moved else chosen(leaf, call, found)
    return Rotations(by_flag(model, first_per_value(layouts)), functions)


def rotated_back(model: Model, functions: set[str]) -> list[Found]:
    """Find a rotation that is called with the sine negated."""
    return [
        Found("yes", unit.where(call))
        for unit in model.units
        if "-sin" in unit.text
        for call in calls(unit.node, *functions)
        if any(isinstance(a, ast.UnaryOp) and "sin" in ast.unparse(a) for a in call.args)
    ]


def learned_rates(model: Model) -> list[Found]:
    """Find rates that are multiplied by something the checkpoint holds."""
    for unit in model.units:
        match = re.search(r"self\.freqs = nn\.Parameter", unit.text)
        if match:
            return [Found("yes", unit.at(match))]
    for source in model.modules:
        for first, _, _, text in classes_of(source):
            match = re.search(
                r"self\.inv_freq(?! =)[^\n]*\s+\* self\.(?!attention_scaling|\w*factor)", text
            )
            if match:
                line = first + text[: match.start()].count("\n")
                return [Found("yes", f"{source.name}:{line}")]
    return []


# Configurations


class Fields(NamedTuple):
    """A configuration class: its file, its fields with defaults, and its node."""

    file: str
    node: ast.ClassDef
    values: dict[str, tuple[ast.AST | None, str]]


def fields_of(
    node: ast.ClassDef, file: str, find: Callable[[str], tuple[ast.ClassDef, str] | None]
) -> Fields:
    """Return the fields of a configuration class, those that it inherits included."""
    values: dict[str, tuple[ast.AST | None, str]] = {}
    for base in node.bases:
        known = find(base.id) if isinstance(base, ast.Name) else None
        if known and known[0] is not node:
            values |= fields_of(*known, find).values
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
            values[line.target.id] = (line.value, f"{file}:{line.lineno}")
        elif isinstance(line, ast.Assign) and isinstance(line.targets[0], ast.Name):
            values[line.targets[0].id] = (line.value, f"{file}:{line.lineno}")
        elif isinstance(line, ast.FunctionDef) and line.name == "__init__":
            args = line.args.args[-len(line.args.defaults) :] if line.args.defaults else []
            for arg, default in zip(args, line.args.defaults, strict=True):
                values[arg.arg] = (default, f"{file}:{arg.lineno}")
    return Fields(file, node, values)


def keyed(fields: Fields, key: str) -> list[Found]:
    """Find the literals that a configuration gives a key: in dictionaries, `get`, `setdefault`."""
    found = []
    for node in walk(fields.node):
        if isinstance(node, ast.Dict):
            for name, value in zip(node.keys, node.values, strict=True):
                if constant(name) == key and constant(value) is not None:
                    found.append(Found(say(constant(value)), f"{fields.file}:{value.lineno}"))
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            if constant(node.targets[0].slice) == key and constant(node.value) is not None:
                found.append(Found(say(constant(node.value)), f"{fields.file}:{node.lineno}"))
        elif (
            called(node) in ("setdefault", "get", "pop")
            and isinstance(node, ast.Call)
            and len(node.args) == 2
            and constant(node.args[0]) == key
        ):
            inner = node.args[1]
            if isinstance(inner, ast.Call) and len(inner.args) == 2:
                inner = inner.args[1]
            if constant(inner) is not None:
                found.append(Found(say(constant(inner)), f"{fields.file}:{node.lineno}"))
    return found


def field(fields: Fields, *names: str) -> list[Found]:
    """Find the literal defaults of fields."""
    return [
        Found(say(constant(value)), where)
        for name in names
        for value, where in [fields.values.get(name, (None, ""))]
        if constant(value) is not None
    ]


ROTARY_FIELDS = ("rope_parameters", "default_theta", "rope_theta", "rotary_embedding_base")
TRANSFORMERS_DEFAULT = "modeling_rope_utils.py"


def bases(fields: Fields, mixin: Found) -> list[Found]:
    """Find a configuration's default bases; without one of its own it inherits the library's."""
    own = field(
        fields, "default_theta", "rope_theta", "rotary_embedding_base", "compress_rope_theta"
    )
    own += keyed(fields, "rope_theta")
    return first_per_value(own) or [mixin]


RATES = ("theta", "rope_theta", "rope_temperature")


def bases_in_code(model: Model) -> list[Found]:
    """Find a base written into the code: 10000 ** x, or a `theta` given to a call or by default.

    What stands in the model's own file comes before what it imports.
    """
    found = []
    for unit in model.units:
        if not re.search(r"\*\*|pow\(|base|theta|rope_temperature", unit.text):
            continue
        for node in walk(unit.node):
            value = None
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                rates = re.search(r"sin|cos|freq", unit.text)
                value = constant(node.left) if rates else None
            elif isinstance(node, ast.keyword) and node.arg in RATES:
                value = constant(node.value)
            if isinstance(value, int | float) and value >= 100:
                found.append(Found(say(value), unit.where(node)))
        for arg, default in unit.arguments:
            value = constant(default)
            if arg.arg in ("base", *RATES) and isinstance(value, int | float):
                found.append(Found(say(value), unit.where(arg)))
    own = [f for f in found if f.where.split(":")[0] in {m.name for m in model.modules}]
    return first_per_value(own or found)


def part_rotated(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find which part of the head a model rotates by default, where that is not all of it."""
    found = []
    for fields in configurations:
        found += field(fields, "partial_rotary_factor", "default_partial_rotary_factor")
        found += keyed(fields, "partial_rotary_factor") + keyed(fields, "rotary_pct")
        rotary, plain = (field(fields, n) for n in ("qk_rope_head_dim", "qk_nope_head_dim"))
        if rotary and plain and int(rotary[0].value):
            width = int(rotary[0].value) + int(plain[0].value)
            found.append(Found(f"{rotary[0].value}/{width}", rotary[0].where))
        wide = field(fields, "rotary_dim")
        if wide:
            found.append(Found(f"{wide[0].value} wide", wide[0].where))
    for unit in model.units:
        if "partial_rotary_factor" in unit.text:
            for call in calls(unit.node, "get", "getattr"):
                if "partial_rotary_factor" in ast.unparse(call) and call.args:
                    value = constant(call.args[-1])
                    if isinstance(value, float):
                        found.append(Found(say(value), unit.where(call)))
    return [f for f in first_per_value(found) if f.value not in ("1", "1.0", "None")]


AXIAL = ("compute_axial_rope_parameters", "build_rotary_pos_embed", "apply_multidimensional_rope")


def rope_types(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find which scalings a model names or computes, and whether it takes the library's table."""
    found = []
    for fields in configurations:
        axial = any(unit.name == AXIAL[0] for unit in model.units)  # some only inherit the word
        found += field(fields, "default_rope_type") if axial else []
        found += [f for f in keyed(fields, "rope_type") if f.value not in ("default", "")]
        found += [
            f for f in keyed(fields, "type") if f.value in ("linear", "dynamic", "yarn", "su")
        ]
    for unit in model.units:
        match = re.fullmatch(r"compute_(\w+)_rope_parameters", unit.name)
        if match and match[1] != "default":
            found.append(Found(match[1], unit.where()))
        if "ROPE_INIT_FUNCTIONS[" in unit.text:
            match = re.search(r"ROPE_INIT_FUNCTIONS\[", unit.text)
            found.append(Found("any", unit.at(match) if match else unit.where()))
    return first_per_value(found)


def axes(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find heads that are split among axes: sections, and axial rates."""
    found = []
    for unit in model.units:
        if "mrope_section" in unit.text:
            for call in calls(unit.node, "get"):
                if (
                    len(call.args) == 2
                    and constant(call.args[0]) == "mrope_section"
                    and constant(call.args[1])
                ):
                    found.append(Found(say(constant(call.args[1])), unit.where(call)))
            if "slice(" in unit.text or "::3" in unit.text:
                found.append(Found("interleaved", unit.where()))
            elif "split(" in unit.text:
                found.append(Found("chunks", unit.where()))
        if unit.name in AXIAL:
            found.append(Found("axial", unit.where()))
        for arg, default in (
            unit.arguments if re.search(r"axes_dim|rope_dim_list", unit.text) else ()
        ):
            if re.fullmatch(
                r"axes_dims?(_rope)?|rope_axes_dim|rope_dim_list", arg.arg
            ) and constant(default):
                found.append(Found(say(constant(default)), unit.where(arg)))
        match = re.search(r"self\.freqs = nn\.Parameter", unit.text)
        if match:
            found.append(Found("mixed", unit.at(match)))
    for fields in configurations:
        found += [f for f in keyed(fields, "mrope_section") if f.value]
    return first_per_value(found)


WIDTHS = (
    "sliding_window",
    "sliding_window_size",
    "attention_window",
    "attention_window_size",
    "local_attention",
    "local_attention_window_len",
)


def has_window(fields: Fields) -> bool:
    """Return whether some layers of a configuration have its window by default."""
    given = {name: constant(value) for name, (value, _) in fields.values.items()}
    first = given.get("max_window_layers", 0)  # layers before it see everything
    if given.get("use_sliding_window") is False or first == given.get("num_hidden_layers"):
        return False
    kinds = [
        set(re.findall(r"'(\w+)'", ast.unparse(node.value)))
        for node in walk(fields.node)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "self.layer_types"
    ]
    return kinds[:1] != [{"full_attention"}]


def windows(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find sliding windows: the width by default, or `given` where the code can take one."""
    used = [
        unit.where(call)
        for unit in model.units
        if "sliding_window" in unit.text
        for call in calls(
            unit.node,
            "create_sliding_window_causal_mask",
            "create_bidirectional_sliding_window_mask",
            "sliding_window_bidirectional_overlay",
            "attention_interface",
        )
        if "sliding_window" in ast.unparse(call)
    ]
    used += [  # a mask's maker that is chosen before it is called
        unit.where(node)
        for unit in model.units
        for node in walk(unit.node)
        if isinstance(node, ast.Name) and node.id == "create_sliding_window_causal_mask"
    ]
    halves = "self.sliding_window = self.local_attention // 2"  # a decoder has the left one
    widths = [
        Found(say(int(f.value) // 2), f.where) if halves in ast.unparse(fields.node) else f
        for fields in filter(has_window, configurations)
        for f in field(fields, *WIDTHS) + keyed(fields, "sliding_window_size")
        if f.value != "None"
    ]
    if used and widths:
        return first_per_value(widths)
    if used:
        return [Found("given", used[0])]
    return [f for f in first_per_value(widths) if not model.modules]


def layer_kinds(configurations: list[Fields]) -> list[Found]:
    """Find the kinds of layers that a configuration's default list holds."""
    found = []
    for fields in configurations:
        for node in walk(fields.node):
            if isinstance(node, ast.Assign):
                target, value = node.targets[0], node.value
                kinds = [
                    n.value
                    for n in walk(value)
                    if isinstance(n, ast.Constant)
                    and isinstance(n.value, str)
                    and re.search(r"attention|mamba|conv|recurrent|hybrid", n.value)
                ]
                names = ("layer_types", "layers_block_type", "_layers")
                if ast.unparse(target).endswith(names) and kinds:
                    where = f"{fields.file}:{node.lineno}"
                    found += [Found(kind, where) for kind in kinds if " " not in kind]
    return first_per_value(found)


# Layers without positions


def depends_on_layer(unit_class: list[Unit], attribute: str) -> bool:
    """Return whether a class sets self.attribute from the index or the kind of its layer."""
    for unit in unit_class:
        if unit.name == "__init__" and attribute in unit.text:
            for node in walk(unit.node):
                if (
                    isinstance(node, ast.Assign)
                    and ast.unparse(node.targets[0]) == f"self.{attribute}"
                ):
                    text = ast.unparse(node.value)
                    if "layer_idx" in text or "layer_type" in text or "is_sliding" in text:
                        return True
    return False


def guarded_calls(
    node: ast.AST, functions: set[str], tests: tuple[ast.AST, ...] = ()
) -> Iterator[tuple[ast.Call, tuple[ast.AST, ...]]]:
    """Yield the calls of functions with the tests of the `if`s around them."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Call) and called(child) in functions:
            yield child, tests
        if isinstance(child, ast.IfExp):
            yield from guarded_calls(
                ast.Module([ast.Expr(child.body)], []), functions, (*tests, child.test)
            )
            yield from guarded_calls(ast.Module([ast.Expr(child.orelse)], []), functions, tests)
        elif isinstance(child, ast.If):
            for part in child.body:
                yield from guarded_calls(ast.Module([part], []), functions, (*tests, child.test))
            yield from guarded_calls(ast.Module(child.orelse, []), functions, tests)
        else:
            yield from guarded_calls(child, functions, tests)


def gives_none_by_layer(model: Model, name: str) -> Found | None:
    """Find a layer that is called with name=None, by its kind or number."""
    for unit in model.units:
        if name not in unit.text or not re.search(r"None if|else None|\] = None", unit.text):
            continue
        for node in walk(unit.node):
            if isinstance(node, ast.IfExp) and "None" in (
                ast.unparse(node.orelse),
                ast.unparse(node.body),
            ):
                text = ast.unparse(node)
                if name in text and re.search(r"layer_rope_theta|layer_types|theta", text):
                    return Found("by layer", unit.where(node))
            if (
                isinstance(node, ast.Assign)
                and constant(node.value) is None
                and isinstance(node.value, ast.Constant)
                and isinstance(node.targets[0], ast.Subscript)
                and name in ast.unparse(node.targets[0])
                and "layer" in ast.unparse(node.targets[0])
            ):
                return Found("by layer", unit.where(node))
    return None


def no_position_layers(model: Model, functions: set[str]) -> list[Found]:
    """Find rotations that some layers skip, by their number or their kind."""
    by_class: dict[str, list[Unit]] = {}
    for unit in model.units:
        by_class.setdefault(unit.owner, []).append(unit)
    for unit in model.units:
        if not unit.owner or not any(f"{name}(" in unit.text for name in functions):
            continue
        for call, tests in guarded_calls(unit.node, functions):
            for test in tests:
                text = ast.unparse(test)
                attributes = re.findall(r"self\.(\w+)", text)
                if any(depends_on_layer(by_class[unit.owner], name) for name in attributes):
                    return [Found("by layer", unit.where(call))]
                match = re.fullmatch(r"(\w+) is not None", text)
                if match:
                    found = gives_none_by_layer(model, match[1])
                    if found:
                        return [found]
    return []


# The denominator, the query, the cache


def sinks(model: Model) -> list[Found]:
    """Find a logit joined to the others before the softmax and dropped after it."""
    found = []
    for unit in model.units:
        if "softmax" in unit.text and ":-1]" in unit.text.replace(" ", ""):
            for call in calls(unit.node, "cat"):
                if (
                    ("sink" in ast.unparse(call) or "[..., :-1]" in ast.unparse(unit.node))
                    and call.args
                    and isinstance(call.args[0], ast.List | ast.Tuple)
                    and len(call.args[0].elts) == 2
                    and re.search(r"weight|logit|score", ast.unparse(call.args[0].elts[0]))
                ):
                    found.append(Found("logit", unit.where(call)))
        if "lse" in unit.text and "sigmoid" in unit.text:
            for call in calls(unit.node, "sigmoid"):
                if "lse" in ast.unparse(call):
                    found.append(Found("logit", unit.where(call)))
    return found[:1]


def is_query(node: ast.AST) -> bool:
    """Return whether an expression is a query: query, query_states, q."""
    return bool(re.match(r"\(?(query|q)(_states|_layer)?\b", ast.unparse(node)))


def temperatures(model: Model) -> list[Found]:
    """Find queries multiplied by a logarithm of their position."""
    positional = re.compile(r"position|effective_n|cache_position|seq_len|log_pos")
    logs: set[str] = set()
    for unit in model.units:
        if re.search(r"torch\.log(1p)?\(|\.log(1p)?\(", unit.text) and positional.search(unit.text):
            for call in calls(unit.node, "log", "log1p"):
                if (
                    positional.search(ast.unparse(call))
                    and "math" not in ast.unparse(call.func)
                    and not re.search(r"bucket|max_exact", unit.text)
                ):
                    logs.add(unit.name)
    if not logs:
        return []
    for unit in model.units:
        if re.search(r"\b(q|query\w*)( |\.float\(\) )\* |query_states\.float\(\) \*", unit.text):
            for node in walk(unit.node):
                if (
                    isinstance(node, ast.BinOp)
                    and isinstance(node.op, ast.Mult)
                    and is_query(node.left)
                    and re.search(r"tau|scal|temperature", ast.unparse(node.right))
                    and not re.fullmatch(
                        r"self\.(scaling|scale|softmax_scale|qk_scale_factor)",
                        ast.unparse(node.right),
                    )
                ):
                    return [Found("log of position", unit.where(node))]
    return []


def latent(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find keys and values that pass a narrow projection which the cache keeps."""
    for unit in model.units:
        if "kv_lora_rank" in unit.text and unit.name == "__init__":
            for call in calls(unit.node, "Linear"):
                if "kv_lora_rank" in ast.unparse(call):
                    ranks = [f for c in configurations for f in field(c, "kv_lora_rank")]
                    return ranks[:1] or [Found("yes", unit.where(call))]
    return []


# Biases


def t5_biases(model: Model) -> list[Found]:
    """Find distances in logarithmic buckets (log over log) and a table with a column per head."""
    heads = any(
        re.search(r"Embedding\([^)]*(heads|nhead)", unit.text)
        or re.search(r"Linear\(self\.rel_pos_bins", unit.text)
        or re.search(r"Parameter\([^)]*(heads)[^)]*bucket|bucket[^)]*heads", unit.text)
        for unit in model.units
        if unit.name == "__init__"
    )
    if not heads:
        return []
    for unit in model.units:
        match = re.search(r"torch\.log\(", unit.text)
        if match and "bucket" in unit.text and "math.log(" in unit.text:
            return [Found("yes", unit.at(match))]
    return []


def alibis(model: Model) -> list[Found]:
    """Find slopes that are a geometric series in the number of heads, times a distance."""
    for unit in model.units:
        if "log2(" in unit.text and "head" in unit.text:
            for node in walk(unit.node):
                powers = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow)
                if powers or called(node) == "pow":
                    for call in calls(unit.node, "log2"):
                        if "head" in ast.unparse(call):
                            return [Found("yes", unit.where(call))]
    return []


# A pattern that starts with letters, and not with a border of a word, is looked for much faster.
RELATIVE = (
    ("Shaw", r"bhld,lrd->bhlr|b h c d, c r d -> b h c r"),
    ("Transformer-XL", r"self\.(r_w_bias|r_r_bias|pos_bias_u|bias_u) = nn\.Parameter"),
    ("DeBERTa", r"c2p_pos\b|c2p_att\b"),
    (
        "table of 2-D offsets",
        r"self\.relative_position_bias_table\b|self\.attention_biases = .*Parameter"
        r"|self\.rel_pos_indices\[0\]",
    ),
    ("per-axis table", r"rel_pos_h\b|self\.height_rel\b"),
    (
        "continuous 2-D offsets",
        r"continuous_position_bias_mlp|cpb_mlp\(|self\.meta_mlp\(|self\.mlp\(self\.rel_coords_log",
    ),
    ("projected 2-D offsets", r"self\.rel_indices\.expand"),
    ("offset table", r"emb_rel_k\b|rel_pos_k\b"),
    ("convolution", r"pos_conv_embed|num_conv_pos_embeddings"),
)


def relatives(model: Model) -> list[Found]:
    """Find the older relative terms by the products that they compute."""
    found, whole = [], "\n".join(unit.text for unit in model.units)
    for name, pattern in RELATIVE:
        for unit in model.units if re.search(pattern, whole) else ():
            match = re.search(pattern, unit.text)
            if match:
                found.append(Found(name, unit.at(match)))
                break
    return found or convolutions(model)


def convolutions(model: Model) -> list[Found]:
    """Find the classes on positions whose whole content is a convolution of each channel alone."""
    for unit in model.units:
        named = re.search(r"Pos(?!t)|CPE|osition", unit.owner)
        if unit.name == "__init__" and named and re.search(r"Conv\w*\(", unit.text):
            match = re.search(r"groups=", unit.text)
            if match:
                return [Found("convolution", unit.at(match))]
    return []


def content_biases(model: Model) -> list[Found]:
    """Find a bias gathered by distance from a product of states with a learned profile."""
    for unit in model.units:
        if "gather(" in unit.text and "distance" in unit.text and " @ self." in unit.text:
            for call in calls(unit.node, "gather"):
                return [Found("yes", unit.where(call))]
    return []


def forgetting(model: Model) -> list[Found]:
    """Find a gate that is summed along the sequence and added to the logits of a softmax."""
    for unit in model.units:
        if "softmax" in unit.text and "cumsum" in unit.text and "logsigmoid" in unit.text:
            return [Found("yes", unit.where(calls(unit.node, "cumsum")[0]))]
    return []


# Positions added to the input


def never_set(model: Model, flag: str) -> bool:
    """Return whether a flag of a model of timm is False in all the variants of its file."""
    own = "\n".join(source.text for source in model.modules)
    if re.search(rf"\b{flag}: bool = True", own):  # every variant may say False
        return len(re.findall(rf"\b{flag}=False", own)) >= own.count("@register_model")
    given = re.search(rf"\b{flag}: bool = False", own)
    return bool(given) and not re.search(rf"\b{flag}['\"]?(=|: )True", own)


def switched_off(model: Model, unit: Unit, configurations: list[Fields]) -> set[int]:
    """Return the lines of a function where tables are made that no default or variant has."""
    if not re.search(r"\bif\b", unit.text):
        return set()
    return {
        call.lineno
        for call, tests in guarded_calls(unit.node, {"Embedding", "Parameter"})
        for test in tests
        if unlike_default(test, configurations)
        or (
            model.library == "timm"
            and isinstance(test, ast.Attribute | ast.Name)
            and never_set(model, test.attr if isinstance(test, ast.Attribute) else test.id)
        )
    }


def unlike_default(test: ast.AST, configurations: list[Fields]) -> bool:
    """Return whether a test asks a field for a word, and the configurations have another."""
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Attribute)):
        return False
    word, name = constant(test.comparators[0]), test.left.attr
    if not isinstance(word, str) or not isinstance(test.ops[0], ast.Eq):
        return False
    given = {found.value for fields in configurations for found in field(fields, name)}
    return bool(given) and word not in given


def learned_tables(model: Model, configurations: list[Fields]) -> list[Found]:
    """Find tables of positions with parameters: nn.Embedding or nn.Parameter."""
    found = []
    for unit in model.units:
        if unit.name != "__init__" or "pos" not in unit.text.lower():
            continue
        if not re.search(r"Embedding\(|Parameter\(|setattr\(", unit.text):
            continue
        off = switched_off(model, unit, configurations)
        for node in walk(unit.node):
            if called(node) == "setattr" and isinstance(node, ast.Call) and len(node.args) == 3:
                named = "pos_embed" in ast.unparse(node.args[1])
                if named and called(node.args[2]) == "Parameter":
                    found.append(Found("yes", unit.where(node)))
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and node.lineno not in off:
                target, value = ast.unparse(node.targets[0]), node.value
                if model.library == "timm" and isinstance(value, ast.IfExp):
                    value = value.body
                made = called(value)
                if made in ("Embedding", "Parameter", "QuantEmbedding"):
                    text = ast.unparse(value)
                    if (
                        re.search(
                            r"relative|distance|rel_pos|bias|slope|scale|alpha|\(-1|inv_freq",
                            target,
                        )
                        or "rel_size" in text
                    ):
                        continue
                    if re.search(r"bucket|2 \* |head", text) and not target.endswith("embeddings"):
                        continue
                    if re.search(r"zeros\(1, \w+\)", text):  # one vector is no table
                        continue
                    if re.search(r"pos(?!t)|wpe", target) and "proj" not in target:
                        frozen = f"{target}.requires_grad_(False)" in unit.text
                        frozen = frozen or "requires_grad=False" in text
                        found.append(Found("frozen" if frozen else "yes", unit.where(node)))
                    elif made == "Embedding" and re.search(
                        r"max_position|n_positions|num_pos|max_seq", text
                    ):
                        found.append(Found("yes", unit.where(node)))
        if re.search(r"class \w*Position\w*\(nn\.Embedding", unit.text):
            found.append(Found("yes", unit.where()))
    for source in model.modules:
        for first, _, derived, text in classes_of(source):
            if (
                derived.startswith("(nn.Embedding)")
                and "osition" in text
                and "sin" not in text.lower()
            ):
                found.append(Found("yes", f"{source.name}:{first}"))
    return first_per_value(found)


def sinusoids(model: Model, rotary: set[str]) -> list[Found]:
    """Find sines and cosines put together into one vector, and not taken apart for a rotation."""
    if any(re.search(r"sin\w*, cos\w* = .*(chunk|split)\(", unit.text) for unit in model.units):
        return []
    code = "".join(source.text for source in model.modules)
    for unit in model.units:
        low = unit.text.lower()
        if "sin" not in low or "cos" not in low or unit.name in rotary:
            continue
        made = code.count(f"{unit.owner}(") - code.count(f"class {unit.owner}(")
        if "Position" in unit.owner and not made:
            continue  # a class that nobody makes
        if "timestep" in low or ("time" in low and "position" not in low):
            continue
        if re.search(r"return \(?cos\w*.*, ?sin|rotary|\brope|inv_freq", low):
            continue
        for call in calls(unit.node, "cat", "stack", "concatenate", "concat"):
            text = ast.unparse(call)
            if re.search(r"\bsin(es?)?\b|_sin\b|sin_", text) and re.search(
                r"\b(?:cos|cosines?)\b|_cos\b|cos_", text
            ):
                return [Found("yes", unit.where(call))]
        for node in walk(unit.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
                paired = "2" in ast.unparse(node.targets[0]) or "cos(" in unit.text
                if calls(node.value, "sin") and paired:
                    return [Found("yes", unit.where(node))]
    return []


def recurrences(model: Model) -> list[Found]:
    """Find layers that carry a state along the sequence: scans and delta rules."""
    pattern = r"selective_scan|chunk_gated_delta|ssm_state|recurrent_gated|mamba_chunk_scan|kda_"
    for unit in model.units:
        match = re.search(pattern, unit.text)
        if match:
            return [Found("yes", unit.at(match))]
    for unit in model.units:
        if re.search(r"recurrent_state|conv_state|recurrent_states|\.linear_attn", unit.text):
            return [Found("yes", unit.where())]
    return []


def parts(model: Model) -> list[Found]:
    """Find the models that a model is made of: those that its configuration makes by default."""
    found = []
    for source in model.configurations:
        for node in walk(source.tree):
            if called(node) == "SubConfigSpec" and isinstance(node, ast.Call):
                for key in node.keywords:
                    if key.arg == "model_type" and isinstance(constant(key.value), str):
                        found.append(
                            Found(str(constant(key.value)), f"{source.name}:{node.lineno}")
                        )
            if (
                isinstance(node, ast.Subscript)
                and ast.unparse(node.value) == "CONFIG_MAPPING"
                and isinstance(constant(node.slice), str)
            ):
                found.append(Found(str(constant(node.slice)), f"{source.name}:{node.lineno}"))
    return first_per_value(found)


# The table


def method(values: dict[str, str], model: Model) -> str:
    """Return the methods of one row, in words."""
    if not model.modules:
        return "no modules of its own"
    attends = model.library == "timm" or any(
        re.search(r"softmax\(|scaled_dot_product|ALL_ATTENTION|dispatch_attention", unit.text)
        for unit in model.units
    )
    named = {
        "rotary": values["layout"],
        "T5": values["t5"],
        "ALiBi": values["alibi"],
        "content-read": values["content_bias"],
        "learned": "yes" in values["learned"],
        "frozen table": "frozen" in values["learned"],
        "sinusoidal": values["sinusoidal"],
    }
    words = [word for word, value in named.items() if value]
    words += values["relative"].split(" | ") if values["relative"] else []
    if not words:
        if values["parts"]:
            return "its parts'"
        return "none" if attends else "no attention"
    return " | ".join(words)


def year(model: Model) -> Found:
    """Return the year that the copyright line of a model's first file states.

    Files of timm that have none name a paper.
    """
    for source in [*model.configurations, *model.modules]:
        head = source.text.splitlines()[:40]
        for number, line in enumerate(head, start=1):
            match = re.search(r"[Cc]opyright\D*(20(?:1[7-9]|[2-9]\d))", line)  # none is older
            if match:
                return Found(match[1], f"{source.name}:{number}")
    if model.library == "timm":  # the first paper that the file names
        for number, line in enumerate(model.modules[0].text.splitlines()[:60], start=1):
            match = re.search(r"arxiv\.org/\w+/(\d\d)\d\d\.\d", line)
            if match:
                return Found(f"20{match[1]}", f"{model.modules[0].name}:{number}")
    return Found("", "")


def configuration_classes(
    models: Iterable[Model],
) -> dict[str, tuple[ast.ClassDef, str]]:
    """Return every configuration class by its name, for those that inherit."""
    return {
        node.name: (node, source.name)
        for model in models
        for source in model.configurations
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
    }


def row(model: Model, known: dict[str, tuple[ast.ClassDef, str]], mixin: Found) -> dict[str, str]:
    """Return the table's row of one model."""
    configurations = [
        fields_of(node, source.name, known.get)
        for source in model.configurations
        for node in source.tree.body
        if isinstance(node, ast.ClassDef)
    ]
    rotated = rotations(model)
    rotary = [c for c in configurations if any(name in c.values for name in ROTARY_FIELDS)]
    text = [c for c in rotary if "vocab_size" in c.values] or rotary
    found: dict[str, list[Found]] = {
        "layout": rotated.layouts,
        "base": [],
        "context": [],
        "rotated_back": rotated_back(model, rotated.functions),
        "learned_rates": learned_rates(model),
        "window": windows(model, configurations),
        "layer_kinds": layer_kinds(configurations),
        "no_position_layers": [],
        "sink": sinks(model),
        "temperature": temperatures(model),
        "latent": latent(model, configurations),
        "t5": t5_biases(model),
        "alibi": alibis(model),
        "relative": relatives(model),
        "content_bias": content_biases(model),
        "gated": forgetting(model),
        "learned": learned_tables(model, configurations),
        "sinusoidal": sinusoids(model, rotated.functions),
        "recurrence": recurrences(model),
        "parts": parts(model),
        "part": [],
        "rope_types": [],
        "axes": [],
    }
    if rotated.layouts:
        named = {model.name, f"{model.name}_text"}  # before those of its parts
        text.sort(key=lambda fields: not named & {f.value for f in field(fields, "model_type")})
        found["base"] = (bases(text[0], mixin) if text else []) or bases_in_code(model)
        found["context"] = field(text[0], "max_position_embeddings") if text else []
        found["part"] = part_rotated(model, configurations)
        found["rope_types"] = rope_types(model, configurations)
        found["axes"] = axes(model, configurations)
        found["no_position_layers"] = no_position_layers(model, rotated.functions)
    values = {name: " | ".join(f.value for f in found[name]) for name in COLUMNS}
    born = year(model)
    evidence = [f"{name} {f.where}" for name in COLUMNS for f in found[name]]
    return {
        "library": model.library,
        "model": model.name,
        "year": born.value,
        "method": method(values, model),
        **values,
        "evidence": "; ".join([f"year {born.where}"] * bool(born.where) + evidence),
    }


def folder(library: str) -> Path | None:
    """Return where an installed library lies, without importing it."""
    spec = importlib.util.find_spec(library)
    if spec and spec.origin:
        return Path(spec.origin).parent
    return ALONE / library if (ALONE / library).is_dir() else None


def transformers_models(root: Path) -> Iterator[Model]:
    """Yield the models of transformers: one a folder."""
    for path in sorted((root / "models").iterdir()):
        named = path.name not in ("auto", "deprecated", "__pycache__")
        if path.is_dir() and named:
            configurations = [read(p) for p in sorted(path.glob("configuration_*.py"))]
            modules = [
                read(p)
                for p in sorted(path.glob("modeling_*.py"))
                if not re.match(r"modeling_(tf|flax)_", p.name)
            ]
            units = [unit for source in modules for unit in units_of(source)]
            yield Model("transformers", path.name, configurations, modules, units)


def single_files(library: str, paths: Iterable[Path], shared: list[Path]) -> Iterator[Model]:
    """Yield models that are one file each; what they import of shared files counts as theirs."""
    pool: dict[str, list[Unit]] = {}
    for path in shared:
        for unit in units_of(read(path)):
            pool.setdefault(unit.owner or unit.name, []).append(unit)
    paths = sorted(paths)
    files: dict[str, dict[str, list[Unit]]] = {}
    used = {
        name: {w for u in units for w in re.findall(r"\b(\w+)\(", u.text) if w in pool}
        for name, units in pool.items()
    }
    for path in paths:
        for unit in units_of(read(path)):
            files.setdefault(path.stem, {}).setdefault(unit.owner or unit.name, []).append(unit)
    for path in paths:
        source = read(path)
        waiting = set(re.findall(r"\b\w+\b", source.text)) & set(pool)
        names: set[str] = set()
        while waiting:
            names |= waiting
            waiting = {name for one in waiting for name in used[one]} - names
        units = [*units_of(source), *(u for name in sorted(names) for u in pool[name])]
        for file, imported in re.findall(r"from \.(\w+) import \(?([\w, \n]+)", source.text):
            for name in re.findall(r"\w+", imported):
                units += files.get(file, {}).get(name, [])
        if units:
            yield Model(library, path.stem.removeprefix("transformer_"), [], [source], units)


# Classes that a file of timm asks for by a word: what the word looks like, and the class.
BY_WORD = (
    (r"['\"]m[hq]a_r\d", "MobileAttention"),
    (r"attn_layer='bottleneck'", "BottleneckAttn"),
    (r"attn_layer='halo'", "HaloAttn"),
    (r"attn_layer='lambda'", "LambdaLayer"),
)


def imported(source: Source) -> dict[str, tuple[str, str]]:
    """Return the names that a file imports of its package: the file's name, and the name there.

    Models are imported at a file's top; what a function imports of them is another way to load.
    """
    found = {}
    pattern = re.compile(r"^( *)from ([\w.]+) import (\([^)]*\)|.*)", re.MULTILINE)
    for indent, module, names in pattern.findall(source.text):
        if "layers" in module or (not indent and (module[0] == "." or "models" in module)):
            for name, _, other in re.findall(r"(\w+)( as (\w+))?", names):
                found[other or name] = (f"{module.split('.')[-1]}.py", name)
    return found


def by_owner(source: Source) -> dict[str, list[Unit]]:
    """Return the functions of a file by their class, or by their own name."""
    found: dict[str, list[Unit]] = {name: [] for _, name, _, _ in classes_of(source)}
    for unit in units_of(source):
        found.setdefault(unit.owner or unit.name, []).append(unit)
    return found


def with_imports(library: str, paths: Iterable[Path], shared: Iterable[Path]) -> Iterator[Model]:
    """Yield models that are one file each, with the classes that they import, and theirs in turn.

    Args:
        library: the name.
        paths: files of models, which may import from one another.
        shared: files of layers.
    """
    paths = sorted(paths)
    sources = {path.name: read(path) for path in [*paths, *sorted(shared)]}
    inside = {name: by_owner(source) for name, source in sources.items()}
    outside = {name: imported(source) for name, source in sources.items()}
    bases = {
        (file, name): set(re.findall(r"\w+", derived))
        for file, source in sources.items()
        for _, name, derived, _ in classes_of(source)
    }
    models = {path.name for path in paths}
    layers = {name: file for file in inside if file not in models for name in inside[file]}

    @cache
    def needed(file: str, name: str) -> list[tuple[str, str]]:
        words = set(bases.get((file, name), ()))
        words = words.union(*(unit.words for unit in inside[file][name]))
        found = [(file, word) for word in words if word in inside[file]]
        for word in words & set(outside[file]):
            home, own = outside[file][word]
            home = home if home in inside else layers.get(own, "")
            if own in inside.get(home, ()):
                found.append((home, own))
        return sorted(found)

    for path in paths:
        waiting = [(path.name, name) for name in inside[path.name]]
        waiting += [
            (layers[name], name)
            for pattern, name in BY_WORD
            if re.search(pattern, sources[path.name].text)
        ]
        reached: dict[tuple[str, str], None] = {}
        while waiting:
            one = waiting.pop()
            if one not in reached:
                reached[one] = None
                waiting += needed(*one)
        units = [unit for own in inside[path.name].values() for unit in own]
        for file, name in sorted(reached):
            units += inside[file][name] if file != path.name else []
        yield Model(library, path.stem, [], [sources[path.name]], units, frozenset(layers.values()))


def projects_queries(model: Model) -> bool:
    """Return whether a model makes queries of its input: what every attention does."""
    return any(
        unit.owner
        and re.search(
            r"\bq, k, v = |self\.(\w*qkv\w*|q|query\w*|to_q\w*|wq|qk?_proj|qk)\s*=", unit.text
        )
        for unit in model.units
    )


def installed() -> Iterator[Model]:
    """Yield every model of the libraries that are installed; of timm, those with attention."""
    if (root := folder("transformers")) is not None:
        yield from transformers_models(root)
    if (root := folder("diffusers")) is not None:
        paths = [p for p in (root / "models" / "transformers").glob("*.py") if p.stem != "__init__"]
        shared = [root / "models" / name for name in ("embeddings.py", "attention_processor.py")]
        yield from single_files("diffusers", paths, shared)
    if (root := folder("timm")) is not None:
        layers = [*(root / "layers").glob("pos_embed*.py"), *(root / "layers").glob("*att*.py")]
        layers += [root / "layers/lambda_layer.py", root / "models/_efficientnet_blocks.py"]
        # How a model ends is not what it is.
        ends = ("attention_pool", "attention_pool2d", "create_attn")
        layers = [path for path in layers if path.stem not in ends]
        paths = [p for p in (root / "models").glob("*.py") if not p.stem.startswith("_")]
        yield from filter(projects_queries, with_imports("timm", paths, layers))


def mixin_default() -> Found:
    """Return the base that a configuration of transformers has without one of its own."""
    root = folder("transformers")
    if root is None:
        return Found("", "")
    source = read(root / TRANSFORMERS_DEFAULT)
    for node in walk(source.tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "default_theta":
            return Found(say(constant(node.value)), f"{source.name}:{node.lineno}")
    return Found("", "")


def census() -> list[dict[str, str]]:
    """Return the table: one row a model, in the order of the libraries and of their names."""
    models = list(installed())
    known, mixin = configuration_classes(models), mixin_default()
    return [row(model, known, mixin) for model in models]


def stored(path: Path = TABLE) -> list[dict[str, str]]:
    """Read the table that is kept."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(rows: list[dict[str, str]], path: Path = TABLE) -> None:
    """Write the table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def changes(old: list[dict[str, str]], new: list[dict[str, str]]) -> list[str]:
    """Say what appeared, what went and what changed; new lines or another order are no change."""
    before = {(r["library"], r["model"]): r for r in old}
    after = {(r["library"], r["model"]): r for r in new}
    said = [f"new: {' '.join(key)} ({after[key]['method']})" for key in after if key not in before]
    said += [f"gone: {' '.join(key)}" for key in before if key not in after]
    for key in after:
        for name in ("method", *COLUMNS) if key in before else ():
            if set(before[key][name].split(" | ")) != set(after[key][name].split(" | ")):
                was, now = before[key][name] or "nothing", after[key][name] or "nothing"
                said.append(f"changed: {' '.join(key)}, {name}: {was} -> {now}")
    types = {t for r in new for t in r["rope_types"].split(" | ")}
    types -= {t for r in old for t in r["rope_types"].split(" | ")}
    return said + [f"new kind of rates: {name}" for name in sorted(types)]


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or compare it with what is installed."""
    parser = argparse.ArgumentParser(description="census of positions in published models")
    parser.add_argument("--check", action="store_true", help="compare; write nothing")
    options = parser.parse_args(arguments)
    rows = census()
    said = changes(stored(TABLE), rows) if TABLE.exists() else []
    for line in said:
        print(line)
    if not options.check:
        write(rows, TABLE)
    print(f"{len(rows)} models, {len(said)} changes")
    return bool(options.check and said)


if __name__ == "__main__":
    sys.exit(main())
