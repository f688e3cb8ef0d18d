"""A port's factory held against configuration files: which of them it misreads, in which layers."""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs import Layer
from posdoctor.configs.explain import Reading, read
from posdoctor.configuration import for_text, profile_of
from posdoctor.doctor import diagnose
from posdoctor.expected import compare_with, loaded
from posdoctor.findings import FAULT
from posdoctor.probes import call
from posdoctor.profile import Case, Profile
from posdoctor.rules import identify
from posdoctor.subjects import InputError
from posdoctor.tolerances import rounding
from posdoctor.ways import of_blhd

AGREES, DIFFERS, NOT_READ = "agrees", "differs", "not read"
ORDER = (DIFFERS, NOT_READ, AGREES)
PUBLISHED = Path(__file__).parent / "configs/published.json"
NEAR = (0, 1, 2, 7, 63, 500)
FAR = (0, 1, 700, 4000)  # besides the last position before and after the trained length


@dataclass(frozen=True)
class Line:
    """What came of one kind of layer of one file.

    Attributes:
        verdict: "agrees", "differs" or "not read".
        file: its name, and the layers where it has several kinds.
        words: which part differs and by how much, or why it was not read.
    """

    verdict: str
    file: str
    words: str = ""

    def __str__(self) -> str:
        """Return the line in words."""
        return f"{self.verdict:8}  {self.file}{': ' if self.words else ''}{self.words}"


@dataclass(frozen=True)
class Outcome:
    """What came of all files: lines, differences first."""

    lines: list[Line]

    def count(self, verdict: str) -> int:
        """Return how many lines have a verdict."""
        return sum(line.verdict == verdict for line in self.lines)

    @property
    def status(self) -> int:
        """0 if nothing differs, 1 if something does, 2 if nothing could be compared."""
        if self.count(DIFFERS):
            return 1
        return 0 if self.count(AGREES) else 2

    def as_dict(self) -> dict[str, Any]:
        """Return the lines as plain values."""
        return {"lines": [asdict(line) for line in self.lines], "status": self.status}

    def __str__(self) -> str:
        """Return all lines and their numbers."""
        numbers = ", ".join(f"{self.count(verdict)} {verdict}" for verdict in ORDER)
        return "\n".join([*map(str, self.lines), f"{len(self.lines)} lines: {numbers}"])


def published_files() -> list[dict[str, Any]]:
    """Return configuration files of published models: name, source, configuration.

    What does not concern positions is left out: tokens, images, experts.
    """
    files: list[dict[str, Any]] = json.loads(PUBLISHED.read_text(encoding="utf-8"))
    return files


def files_in(folder: str | Path) -> dict[str, object]:
    """Return what the JSON files in a folder and below hold, by their paths in it.

    One that cannot be read is an `InputError` instead of its contents.

    Raises:
        InputError: if there is none.
    """
    found: dict[str, object] = {}
    for path in sorted(Path(folder).rglob("*.json")):
        name = str(path.relative_to(folder))
        try:
            found[name] = loaded(path)
        except InputError as error:
            found[name] = error
    if not found:
        raise InputError(f"configs must be a folder with JSON files, got {str(folder)!r}")
    return found


def check_factory(
    make: object,
    files: Mapping[str, object] | str | Path | None = None,
    *,
    blhd: bool = False,
) -> Outcome:
    """Hold a factory against configuration files, each kind of layer by itself.

    Args:
        make: (config) or (config, layer's index) -> what its layers rotate with: a function
            (q, k, positions) -> (q, k), the frequencies inv_freq, or (inv_freq, attention_factor);
            None where a layer does not rotate. Functions get whole heads, or, where they take no
            such, what rotates of them.
        files: configurations by name, or a folder of them; None for the published ones that come
            along.
        blhd: its functions take queries and keys (B, L, H, d).

    Raises:
        InputError: if there is no file, or `make` is no function.
    """
    if not callable(make):
        raise InputError(f"factory must be a function of a configuration, got {type(make)}")
    if isinstance(files, str | Path):
        files = files_in(files)
    if files is None:
        files = {each["name"]: each["config"] for each in published_files()}
    lines = [line for name, config in files.items() for line in lines_of(name, config, make, blhd)]
    return Outcome(sorted(lines, key=lambda line: ORDER.index(line.verdict)))


def takes_layer(make: Callable[..., object]) -> bool:
    """Return whether a factory takes the layer's index besides the configuration."""
    try:
        inspect.signature(make).bind({}, 0)
    except TypeError:
        return False
    return True


def lines_of(
    name: str, config: object, make: Callable[..., object], blhd: bool = False
) -> Iterator[Line]:
    """Yield a line for each kind of layer of a file that has attention."""
    try:
        if isinstance(config, InputError):
            raise config
        reading = read(config)
    except (TypeError, ValueError) as error:
        yield Line(NOT_READ, name, str(error))
        return
    by_layer = takes_layer(make)
    firsts = {kind: indices[0] for kind, indices in reading.groups.items()}
    asked = {
        kind: index for kind, index in firsts.items()
        if reading.layers[index].encoding is not None
        and (by_layer or reading.layers[index].rope is not None)
    }  # fmt: skip
    for kind, index in asked.items():
        layer = reading.layers[index]
        label = f"{name}, {kind}" if len(asked) > 1 else name
        given = (copy.deepcopy(config), index) if by_layer else (copy.deepcopy(config),)
        try:
            made = make(*given)
            made = of_blhd(made) if blhd and callable(made) else made
        except Exception as error:  # whatever it raises, it does not read the file
            words = f"the factory raised {type(error).__name__}: {error}"
            yield Line(NOT_READ, label, words)
            continue
        try:
            words = difference(made, layer, reading)
        except InputError as error:
            yield Line(NOT_READ, label, str(error))
        else:
            yield Line(DIFFERS if words else AGREES, label, words)


def difference(made: object, layer: Layer, reading: Reading) -> str:
    """Return in words how what a factory made differs from what a layer asks for; none if not.

    Raises:
        InputError: if it cannot be examined.
    """
    wanted = profile_of(layer, reading.layout_known)
    if wanted is None:
        still = made is None or moves_nothing(made, layer)
        return "" if still else "it rotates, and this layer does not"
    wanted = for_text(wanted)
    if made is None:
        return "nothing rotates"
    if callable(made) and not isinstance(made, Tensor):
        return difference_of_function(made, layer, wanted)
    inv_freq, gain = made if isinstance(made, tuple | list) and len(made) == 2 else (made, None)
    if not isinstance(inv_freq, Tensor) or inv_freq.ndim != 1:
        raise InputError(
            "the factory must return a function, inv_freq (pairs,) or (inv_freq, "
            f"attention_factor), got {type(made).__name__}"
        )
    numbers = inv_freq.detach().double().cpu().abs()
    numbers = numbers[numbers != 0]
    mine = Profile("rotary", inv_freq=numbers[:, None], rule=identify(numbers))
    mine.attention_factor = None if gain is None else float(gain)
    case = Case()
    wanted = replace(wanted, layout=None, backwards=False, long_from=None, inv_freq_long=None)
    compare_with(mine, wanted, case)
    return named(case)


def named(case: Case) -> str:
    """Return the faults of a case in a line."""
    faults = [each for each in case.findings if each.level == FAULT]
    return "; ".join(f"{each.name}, {each.detail}" if each.detail else each.name for each in faults)


def moves_nothing(made: object, layer: Layer) -> bool:
    """Return whether a function or frequencies leave queries and keys as they are."""
    if isinstance(made, Tensor):
        return not bool(made.any())
    if not callable(made) or layer.width is None:
        return False
    q, k, positions = inputs(layer.width, NEAR)
    return all(torch.equal(*pair) for pair in zip(call(made, q, k, positions), (q, k), strict=True))


def inputs(width: int, places: Iterable[int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries and keys (1, 2, L, width) of random numbers, and their positions (1, L)."""
    positions = torch.tensor([list(places)])
    random = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 2, positions.shape[1], width, generator=random).unbind()
    return q, k, positions


def difference_of_function(made: Callable[..., Any], layer: Layer, wanted: Profile) -> str:
    """Return how a rotary function differs in what it returns, in words of the doctor."""
    rope = layer.rope
    assert rope is not None and layer.width is not None
    rotating = 2 * len(rope.inv_freq)
    last = wanted.long_from
    places = [NEAR, (*FAR, *((last - 1, last) if last else ()))]
    failures: list[str] = []
    for width in dict.fromkeys((rotating, layer.width) if layer.last else (layer.width, rotating)):
        try:
            off = min(
                max(furthest(made, layer, width, each, layout) for each in places)
                for layout in (LAYOUTS if wanted.layout is None else [wanted.layout.name])
            )
        except Exception as error:  # a width that it does not take
            failures.append(f"{type(error).__name__}: {error}")
            continue
        if off <= 1:
            return ""
        report = diagnose(made, head_dim=width, dtypes=())
        if report.profile is None:
            return named(report.case) or "the examination broke off"
        if width != layer.width and wanted.layout is not None:
            wanted = replace(wanted, dim=width, layout=wanted.layout._replace(start=0))
        compare_with(report.profile, wanted, report.case)
        told = named(report.case)
        reordered = report.case.has("writes-other-layout") and not told
        far = f"what comes back is {off:.2g} times as far off as rounding allows"
        return "" if reordered else told or far
    return f"its function takes no heads of this width: {failures[0]}"


def furthest(
    made: Callable[..., Any], layer: Layer, width: int, places: Iterable[int], layout: str
) -> float:
    """Return by how much of what rounding allows a function differs at the worst position."""
    rope = copy.copy(layer.rope)
    assert rope is not None
    rope.layout = layout
    q, k, positions = inputs(width, places)
    found = call(made, q, k, positions)
    missing = rope.head_dim - width  # of what rotates alone the rest stands for itself
    if missing < 0:  # the last components rotate
        own = [x[..., width - rope.head_dim :] for x in (q, k)]
    else:
        own = [torch.nn.functional.pad(x, (0, missing)) for x in (q, k)]
    turned = rope.rotate(own[0].double(), own[1].double(), positions, positions)
    wanted = [
        torch.cat([x[..., : width - rope.head_dim].double(), y], -1) if missing < 0
        else y[..., :width]
        for x, y in zip((q, k), turned, strict=True)
    ]  # fmt: skip
    allowed = rounding(torch.float32) * (1 + positions[0].double())
    pairs = zip(found, wanted, strict=True)
    off = [(x.double() - y).norm(dim=-1) / y.norm(dim=-1) for x, y in pairs]
    return float((torch.stack(off) / allowed).max())
