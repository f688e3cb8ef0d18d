"""Every attention layer of a model by itself, held against its configuration.

All tokens get one hidden state at the door of each layer, so that queries and keys differ by
their positions alone. What reaches the product of queries and keys then shows the layer's
rotation, whatever its code is called: a module of tables, complex numbers, lines inside attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs.explain import runs
from posdoctor.configuration import read
from posdoctor.probes import Layout, fit_of, turned
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.rules import Rule, identify
from posdoctor.subjects import InputError

TOKENS = 47  # no width of a head
CLOSE = 1e-2
PRODUCTS = ("matmul", "bmm", "baddbmm", "__matmul__")


class Products(TorchFunctionMode):
    """Notes the queries and keys of each product of the two, by the layer that is running."""

    def __init__(self) -> None:
        """Begin before the first layer."""
        super().__init__()
        self.layer = -1
        self.found: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Look at a call on its way."""
        name = getattr(func, "__name__", "")
        tensors = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, Tensor)]
        if self.layer >= 0 and self.layer not in self.found:
            if name == "scaled_dot_product_attention":
                self.note(*tensors[:2])
            elif name in PRODUCTS and len(tensors) > 1 and tensors[-1].shape[-1:] == (TOKENS,):
                self.note(tensors[-2], tensors[-1].transpose(-1, -2))
        return func(*args, **(kwargs or {}))

    def note(self, q: Tensor, k: Tensor) -> None:
        """Keep the queries and keys, (H, L, d), of the first sequence."""
        if min(q.ndim, k.ndim) < 3 or not q.shape[-2] == k.shape[-2] == TOKENS != q.shape[-1]:
            return
        q, k = (x.detach().double().reshape(-1, *x.shape[-2:]) for x in (q, k))
        self.found[self.layer] = q, k


def layers_in(model: nn.Module, count: int) -> nn.ModuleList | None:
    """Return a model's list of layers."""
    lists = (each for each in model.modules() if isinstance(each, nn.ModuleList))
    return next((each for each in lists if len(each) == count), None)


@torch.no_grad()
def seen_by_layer(model: nn.Module, layers: nn.ModuleList) -> dict[int, tuple[Tensor, Tensor]]:
    """Return queries and keys, (H, L, d) each, of the layers that multiply the two."""
    products, handles = Products(), []

    def enter(number: int, args: tuple[Any, ...], words: dict[str, Any]) -> Any:
        products.layer = number

        def level(x: Any) -> Any:
            if isinstance(x, Tensor) and x.ndim == 3 and x.is_floating_point():
                return x[:1, :1].expand(x.shape).contiguous()
            return x

        if args:
            return (level(args[0]), *args[1:]), words
        return args, words | {"hidden_states": level(words.get("hidden_states"))}

    for number, layer in enumerate(layers):
        handles.append(
            layer.register_forward_pre_hook(
                lambda _, args, words, number=number: enter(number, args, words), with_kwargs=True
            )
        )
    try:
        with products:
            model(torch.ones(1, TOKENS, dtype=torch.long), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    return products.found


def measured(x: Tensor, expected: Profile, since: Tensor | None = None) -> Profile | None:
    """Return what is done to queries or keys (H, L, d), as far as that can be said.

    Positions are consecutive ones.

    Args:
        x: after it.
        expected: whose layout is tried first.
        since: (H, L, d) before it; without, all tokens were as the first one is now.
    """
    known = expected.layout
    assert known is not None
    wide, since = Layout(known.name, 0, x.shape[-1]), x[:, :1] if since is None else since
    tried = [each._replace(name=name) for each in (known, wide) for name in (known.name, *LAYOUTS)]
    layout = min(tried, key=lambda each: round(turned(x, since, each)[1], 3))
    turn, apart = turned(x, since, layout)
    fit = fit_of(turn, torch.arange(x.shape[1]).double())
    if apart > CLOSE or fit.error > 0.05:
        return None
    return Profile(
        "rotary",
        expected.dim,
        layout,
        fit.rates.abs()[:, None],
        rule=identify(fit.rates.abs(), CLOSE) if bool((fit.rates != 0).any()) else Rule("unknown"),
        backwards=bool((fit.rates < 1e-9).all()),
    )


def fits(x: Tensor, expected: Profile, either: bool) -> bool:
    """Return whether queries or keys (H, L, d) are rotated as a profile says."""
    known = expected.layout
    assert known is not None and expected.rates is not None
    if known.start + known.width > x.shape[-1]:
        return False
    full = torch.zeros(known.width // 2, dtype=torch.float64)
    full[: len(expected.rates)] = expected.rates.sum(1) * (-1 if expected.backwards else 1)
    wanted = torch.polar(torch.ones(1).double(), torch.arange(TOKENS)[:, None] * full)
    for name in LAYOUTS if either else (known.name,):
        turn, apart = turned(x, x[:, :1], known._replace(name=name))
        if apart < CLOSE and float((turn - wanted).abs().max()) < CLOSE:
            return True
    return False


def examine_layers(
    model: nn.Module,
    config: Mapping[str, Any],
    named: set[str] | None,
    bound: float,
    case: Case,
) -> None:
    """Compare each layer's queries and keys with what the configuration asks of it.

    Args:
        model: of transformers.
        config: its configuration.
        named: what the function that rotates was found to do, None if it was not seen. Where it
            was, a layer may write in either layout.
        bound: rounding of the weights' type.
        case: gets findings, each with the layers that it is about.
    """
    try:
        _, _, wanted = read(config, Case())
        layers = layers_in(model, len(wanted))
        found = {} if layers is None else seen_by_layer(model, layers)
    except (InputError, RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        case.unexamined.append(f"layers by themselves: {type(error).__name__}: {error}")
        return
    said: dict[tuple[str, str], list[int]] = {}
    sound = []
    for number, both in found.items():
        trial = Case()
        judge_layer(both, wanted[number], named is not None, bound, trial)
        for finding in trial.findings:
            said.setdefault((finding.name, finding.detail), []).append(number)
        if not trial.findings:
            sound.append(number)
    if sound:
        case.facts["layers that do as configured"] = runs(sound)
    silent = [number for number in range(len(wanted)) if number not in found and wanted[number]]
    if silent:
        case.unexamined.append(
            f"rotation inside layers {runs(silent)}: no product of queries and keys was seen"
        )
    for (name, detail), numbers in said.items():
        if len(numbers) == len(found) and named and name in named:
            continue  # said of their function already
        word = "layers" if len(numbers) > 1 else "layer"
        case.fault(name, detail, f"{word} {runs(numbers)}")


def judge_layer(
    both: tuple[Tensor, Tensor], expected: Profile | None, seen: bool, bound: float, case: Case
) -> None:
    """Compare queries and keys of one layer with what is expected of it."""
    still = [
        float((x - x[:, :1]).abs().max()) < max(bound, 1e-3) * float(x.abs().max()) for x in both
    ]
    if expected is None:
        if not all(still):
            case.fault("layer-rotates")
        return
    if expected.rates is None or expected.layout is None or bound > CLOSE:
        return  # frequencies that depend on the length, weights in a short float
    if any(still):
        case.fault("layer-unrotated", "" if all(still) else SIDE[still.index(True)])
        return
    for x in both:
        if not fits(x, expected, seen):
            own = measured(x, expected)
            if own is not None:
                before = len(case.findings)
                compare_profiles(own, expected, case)
                if len(case.findings) > before:
                    return
            case.fault("layer-otherwise")
            return


SIDE = ("queries only", "keys only")
