"""What an argument may be: its annotation says it, and `checked` asks it at the door.

Behind the door numbers are tensors, shapes fit, settings are in range. An error names the argument,
what was given and what is allowed.
"""

import functools
import inspect
import math
import reprlib
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])
Rule: TypeAlias = Callable[[str, Any], Any]  # of a name and a value: the value, or it raises

# --- words for annotations ------------------------------------------------------------------------

Count: TypeAlias = Annotated[int, "at least 1"]
Even: TypeAlias = Annotated[int, "even"]
Positive: TypeAlias = Annotated[float, "above 0"]
NotNegative: TypeAlias = Annotated[float, "at least 0"]
Base: TypeAlias = Annotated[float, "above 1"]
Layout: TypeAlias = Annotated[str, "interleaved/half"]
# Numbers may come in any form, and are tensors behind the door.
Reals: TypeAlias = Annotated[Tensor, "real numbers"]
Integers: TypeAlias = Annotated[Tensor, "integers"]
Booleans: TypeAlias = Annotated[Tensor, "booleans"]
Rates: TypeAlias = Annotated[Tensor, "finite"]


# --- the door -------------------------------------------------------------------------------------

# A graph's tracing goes through each instruction of this: so no generators, and no dict().


def checked(**shapes: str) -> Callable[[Function], Function]:
    """Check arguments by their annotations, and by the shapes that are given here.

    A `Tensor` must be floating-point, a `bool` True or False, an object of its class; the words of
    this module say more. A word in a shape is one length in all of them; `d_model`, `n_heads` and
    `head_dim` are what `self` has under these names.
    """

    def behind(function: Function) -> Function:
        names, rules = parameters_of(function), rules_of(function)

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = by_name(function, names, args, kwargs)
            for name, rule in rules.items():
                if name in given:
                    given[name] = rule(name, given[name])
            if shapes:
                require_shapes(given, shapes, **lengths_of(given.get("self")))
            return function(*args[len(names) :], **given)

        return cast(Function, call)

    return behind


def rules_of(function: Callable[..., Any]) -> dict[str, Rule]:
    """Return what each argument has to pass; none if an annotation is for type checkers alone."""
    try:
        hints = inspect.get_annotations(inspect.unwrap(function), eval_str=True)
    except NameError:
        return {}
    return {name: rule for name, hint in hints.items() if (rule := rule_of(hint)) is not None}


def rule_of(annotation: Any) -> Rule | None:
    """Return what an argument with this annotation has to pass, or None."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, UnionType):
        rule, others = rule_of(parts[0]), tuple(get_origin(each) or each for each in parts[1:])
        return rule and (lambda name, it: it if isinstance(it, others) else rule(name, it))
    if kind is Annotated and parts[0] is str and "/" in str(parts[1]):
        return functools.partial(require_choice, allowed=tuple(parts[1].split("/")))
    if kind is Annotated:
        return RULES.get(str(parts[1]))  # what others say with annotations is their own
    if annotation in (Tensor, bool):
        return RULES[annotation]
    free = not isinstance(annotation, type) or annotation.__module__ in ("builtins", "typing")
    words = f"a {getattr(annotation, '__name__', annotation)}"
    return None if free else functools.partial(require_kind, kind=annotation, words=words)


def parameters_of(function: Callable[..., Any]) -> list[str]:
    """Return the names under which arguments may stand in order; none if there may be any."""
    parameters = inspect.signature(function).parameters.values()
    if any(each.kind == each.VAR_POSITIONAL for each in parameters):
        return []
    return [each.name for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]


def by_name(
    function: Callable[..., Any], names: list[str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return arguments by their names; one too many or given twice is Python's own error."""
    given = {**kwargs}
    given.update(zip(names, args, strict=False))
    if names and len(given) < len(args) + len(kwargs):  # one too many, or given twice
        try:  # it may have arguments of its own behind those of the interface
            return dict(inspect.signature(function).bind(*args, **kwargs).arguments)
        except TypeError:
            function(*args, **kwargs)  # Python says it with the function's name
    return given


def lengths_of(module: object) -> dict[str, int]:
    """Return the lengths that a module states."""
    stated = ("d_model", "n_heads", "head_dim")
    return {name: getattr(module, name) for name in stated if hasattr(module, name)}


# --- shapes ---------------------------------------------------------------------------------------


def require_shapes(
    given: Mapping[str, Any], shapes: Mapping[str, str], who: str = "", /, **lengths: int
) -> None:
    """Raise unless arguments have the axes that are wanted; a word is the same length everywhere.

    Args:
        given: arguments by name, tensors and positions; what has no shape is left out.
        shapes: the axes of some, such as "B H Lq d", "L | B L" or "... n".
        who: what stands before an argument's name in the message.
        lengths: what some words stand for.
    """
    for name in shapes:
        if name in given and hasattr(given[name], "shape"):
            shape, wanted = tuple(given[name].shape), shapes[name].split(" | ")
            for axes in wanted:
                if (found := matched(shape, axes.split(), lengths)) is not None:
                    lengths = found
                    break
            else:
                raise ValueError(
                    f"{who}{name} must have shape {named(wanted, lengths)}, got {shape}"
                )


def matched(
    shape: tuple[int, ...], axes: list[str], known: Mapping[str, int]
) -> dict[str, int] | None:
    """Return the known lengths and those that a shape adds, or None if it does not fit."""
    if axes[:1] == ["..."]:
        axes = axes[1:]
        shape = shape[max(0, len(shape) - len(axes)) :]
    if len(shape) != len(axes):
        return None
    lengths = {**known}
    for size, axis in zip(shape, axes, strict=True):
        if size != (int(axis) if axis.isdigit() else lengths.setdefault(axis, size)):
            return None
    return lengths


def named(wanted: list[str], known: Mapping[str, int]) -> str:
    """Return shapes as a message has them, with the lengths that are known."""
    words = [
        [f"{axis}={known[axis]}" if axis in known else axis for axis in axes.split()]
        for axes in wanted
        if "1" not in axes.split()  # it goes without saying that a batch may be of one
    ]
    return " or ".join(f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in words)


def broadcasts(tensor: Tensor, wanted: tuple[int, ...]) -> bool:
    """Return whether a tensor broadcasts to a shape, without making that larger."""
    axes = zip(reversed(tensor.shape), reversed(wanted), strict=False)
    return tensor.ndim <= len(wanted) and all(given in (1, full) for given, full in axes)


# --- numbers and settings -------------------------------------------------------------------------


def require_kind(name: str, value: object, kind: Any, words: str) -> Any:
    """Return `value` if it is of a class; True is no number."""
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (Integral, Real)):
        raise TypeError(f"{name} must be {words}, got {reprlib.repr(value)}")
    return value


def require_positive(name: str, value: object, *, least: float = 1) -> int:
    """Return `value` as an int if it is an integer of at least 1, or of another `least`."""
    number = require_kind(name, value, Integral, "an int")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")
    return int(number)


def require_multiple(name: str, value: object, of: int, why: str) -> int:
    """Return `value` as an int if it is a positive multiple of `of`."""
    number = require_positive(name, value)
    if number % of:
        raise ValueError(f"{name} must be a multiple of {of} ({why}), got {number}")
    return number


def require_greater(name: str, value: object, than: float, *, equal: bool = False) -> float:
    """Return `value` as a float if it is a finite number greater than `than`, or `equal` to it."""
    number = float(require_kind(name, value, Real, "a number"))
    if not than < number < math.inf and not (equal and number == than):
        which = "of at least" if equal else "greater than"
        raise ValueError(f"{name} must be a finite number {which} {than:g}, got {value!r}")
    return number


def require_at_least(name: str, value: object, least: float) -> float:
    """Return `value` as a float if it is a finite number of at least `least`."""
    return require_greater(name, value, least, equal=True)


def require_choice(name: str, value: str, allowed: tuple[str, ...]) -> str:
    """Return `value` if it is one of `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def require_bool(name: str, value: object) -> Any:
    """Return `value` if it is True or False; in a graph it may be known when that runs."""
    return require_kind(name, value, bool | torch.SymBool, "True or False")


# --- tensors --------------------------------------------------------------------------------------


def require_floating(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a floating-point tensor."""
    given: Tensor = require_kind(name, tensor, Tensor, "a torch.Tensor")
    if not given.is_floating_point():
        raise TypeError(f"{name} must have a floating-point dtype, got {given.dtype}")
    return given


def require_booleans(name: str, tensor: object) -> Tensor:
    """Return `tensor` if it is a tensor of True and False."""
    given: Tensor = require_kind(name, tensor, Tensor, "a torch.Tensor")
    if given.dtype != torch.bool:
        raise TypeError(f"{name} must have dtype torch.bool, got {given.dtype}")
    return given


def require_finite(name: str, tensor: object) -> Tensor:
    """Return a floating-point tensor if it has no NaN and no infinity, as far as it may be read."""
    given = require_floating(name, tensor)
    if may_read(given) and not given.isfinite().all():
        raise ValueError(f"{name} must be finite, got {given[~given.isfinite()][0].item()}")
    return given


def numbers(
    name: str, values: Any, device: torch.device | None = None, *, integers: bool = False
) -> Tensor:
    """Return finite real numbers in any form, a `Run` too, as a tensor.

    All integers become int64: in the smaller and the unsigned types a difference of two
    positions wraps around. Half precision becomes float32, in which a difference is exact, and
    Python's floats float64.
    """
    try:  # a tensor is left where it is, whatever torch.device(...) says
        values = values.tensor(device) if hasattr(values, "tensor") else values
        tensor = values if isinstance(values, Tensor) else torch.tensor(values)
    except (TypeError, ValueError, RuntimeError) as error:
        words = "numbers or a tensor of numbers"
        raise TypeError(f"{name} must be {words}, got {reprlib.repr(values)}") from error
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{name} must be real numbers, got {tensor.dtype}")
    if not tensor.is_floating_point():
        return tensor.to(device=device, dtype=torch.int64)
    if integers:
        raise TypeError(f"{name} must be integers, got {tensor.dtype}")
    if not isinstance(values, Tensor):
        tensor = torch.tensor(values, dtype=torch.float64)
    precise = torch.promote_types(tensor.dtype, torch.float32)
    return require_finite(name, tensor.to(precise)).to(device)


def may_read(tensor: Tensor) -> bool:
    """Return whether numbers may decide what is done: not in a graph, nor if a device waits."""
    return tensor.is_cpu and not torch.compiler.is_compiling()


RULES: dict[Any, Rule] = {
    Tensor: require_floating,
    bool: require_bool,
    "at least 1": require_positive,
    "even": functools.partial(require_multiple, of=2, why="even"),
    "above 0": functools.partial(require_greater, than=0),
    "at least 0": functools.partial(require_at_least, least=0),
    "above 1": functools.partial(require_greater, than=1),
    "real numbers": numbers,
    "integers": functools.partial(numbers, integers=True),
    "booleans": require_booleans,
    "finite": require_finite,
}  # and the words of `pe_lib.positions`
