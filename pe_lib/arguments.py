"""What an argument may be: its annotation says it, and `checked` asks it at the door.

Behind the door numbers are tensors, shapes fit, settings are in range.
"""

import functools
import inspect
import math
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, TypeAlias, TypeVar, Union, cast, get_args, get_origin

import torch
from torch import Tensor

from pe_lib import errors
from pe_lib.errors import require_shapes

Function = TypeVar("Function", bound=Callable[..., Any])
Rule: TypeAlias = Callable[[str, Any], Any]  # of a name and a value: the value, or it raises

Count: TypeAlias = Annotated[int, "at least 1"]
Even: TypeAlias = Annotated[int, "even"]
Positive: TypeAlias = Annotated[float, "above 0"]
NotNegative: TypeAlias = Annotated[float, "at least 0"]
Number: TypeAlias = Annotated[float, "finite number"]
Base: TypeAlias = Annotated[float, "above 1"]
Layout: TypeAlias = Annotated[str, "interleaved/half"]
Precision: TypeAlias = Annotated[torch.dtype, "floating-point"]
# Numbers may come in any form, and are tensors behind the door.
Reals: TypeAlias = Annotated[Tensor, "real numbers"]
Integers: TypeAlias = Annotated[Tensor, "integers"]
Booleans: TypeAlias = Annotated[Tensor, "booleans"]
Rates: TypeAlias = Annotated[Tensor, "finite"]

RULES: dict[str, Rule] = {
    "at least 1": errors.require_positive,
    "even": functools.partial(errors.require_multiple, of=2, why="even"),
    "above 0": functools.partial(errors.require_greater, than=0),
    "at least 0": functools.partial(errors.require_at_least, least=0),
    "above 1": functools.partial(errors.require_greater, than=1),
    "finite number": functools.partial(errors.require_greater, than=-math.inf),
    "floating-point": errors.require_precision,
    "real numbers": errors.numbers,
    "integers": functools.partial(errors.numbers, integers=True),
    "booleans": errors.require_booleans,
    "finite": errors.require_finite,
}  # and the words of `pe_lib.positions`


def one_of(name: str, value: object, *, rule: Rule, others: tuple[type, ...]) -> Any:
    """Return `value` if it is of one of the other kinds, or else what the rule says."""
    return value if isinstance(value, others) else rule(name, value)


def rule_of(annotation: Any) -> Rule | None:
    """Return what an argument with this annotation has to pass, or None."""
    kind, parts = get_origin(annotation), get_args(annotation)
    if kind in (Union, UnionType):
        rule, others = rule_of(parts[0]), tuple(get_origin(each) or each for each in parts[1:])
        return rule and functools.partial(one_of, rule=rule, others=others)
    if kind is Annotated and parts[0] is str and "/" in str(parts[1]):
        return functools.partial(errors.require_choice, allowed=tuple(parts[1].split("/")))
    if kind is Annotated:
        return RULES.get(str(parts[1]))  # what others say with annotations is their own
    if annotation in (Tensor, bool):
        return errors.require_floating if annotation is Tensor else errors.require_bool
    free = not isinstance(annotation, type) or annotation.__module__ in ("builtins", "typing")
    words = f"a {getattr(annotation, '__name__', annotation)}"
    return None if free else functools.partial(errors.require_kind, kind=annotation, words=words)


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
    if 0 < len(names) < len(args) or any(name in kwargs for name in names[: len(args)]):
        function(*args, **kwargs)  # it cannot be called so, and Python says why
    return dict(zip(names, args, strict=False)) | kwargs


def lengths_of(module: object) -> dict[str, int]:
    """Return the lengths that a module states."""
    stated = ("d_model", "n_heads", "head_dim")
    return {name: getattr(module, name) for name in stated if hasattr(module, name)}


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
            require_shapes(given, shapes, lengths_of(given.get("self")))
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
