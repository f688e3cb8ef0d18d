"""Every attention layer of a model by itself, held against its configuration.

All tokens get one hidden state at the door of each layer, so that queries and keys differ by
their positions alone. What reaches the product of queries and keys then shows the layer's
rotation, whatever its code is called: a module of tables, complex numbers, lines inside attention.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from pe_lib.sinusoidal import LAYOUTS
from posdoctor.configs.explain import runs
from posdoctor.configuration import read
from posdoctor.precision import ROUNDING, cause, off_line, past_the_end, report
from posdoctor.probes import Fit, Layout, fit_of, turned
from posdoctor.profile import Case, Profile, compare_profiles
from posdoctor.rules import Rule, identify
from posdoctor.subjects import InputError
from posdoctor.tolerances import LOST

TOKENS = 47  # no width of a head
CLOSE = {torch.float64: 1e-2, torch.float32: 1e-2, torch.bfloat16: 0.06, torch.float16: 0.06}
BY_LENGTH = {"dynamic", "longrope"}
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
def seen_by_layer(
    model: nn.Module, layers: nn.ModuleList, places: Tensor | None = None
) -> dict[int, tuple[Tensor, Tensor]]:
    """Return queries and keys, (H, L, d) each, of the layers that multiply the two."""
    given = {} if places is None else {"position_ids": places[None]}
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
            model(torch.ones(1, TOKENS, dtype=torch.long), use_cache=False, **given)
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
    if apart > CLOSE[torch.float32] or fit.error > 0.05:
        return None
    return Profile(
        "rotary",
        expected.dim,
        layout,
        fit.inv_freq.abs()[:, None],
        rule=identify(fit.inv_freq.abs(), 1e-2)
        if bool((fit.inv_freq != 0).any())
        else Rule("unknown"),
        backwards=bool((fit.inv_freq < 1e-9).all()),
    )


def far_places(reach: int) -> Tensor:
    """Return TOKENS positions below a reach: the first ones, and pairs of neighbours far out."""
    far = [place for k in range(6, 21) for place in (2**k, 2**k + 1) if place < reach]
    return torch.cat([torch.arange(TOKENS - len(far)), torch.tensor(far, dtype=torch.long)])


def far_queries(
    model: nn.Module, layers: nn.ModuleList, context: int
) -> tuple[dict[int, tuple[Tensor, Tensor]], Tensor]:
    """Return queries and keys at far positions, and these; none where a model takes none."""
    for reach in (2**21, context):
        places = far_places(reach)
        with contextlib.suppress(Exception):  # whatever a model says of positions past its table
            return seen_by_layer(model, layers, places), places
    return {}, torch.arange(0)


def examine_layers(
    model: nn.Module, config: Mapping[str, Any], dtype: torch.dtype, case: Case
) -> None:
    """Compare each layer's queries and keys with what the configuration asks of it.

    Args:
        model: of transformers.
        config: its configuration.
        dtype: of its weights.
        case: gets findings, each with the layers that it is about.
    """
    try:
        fields, _, wanted = read(config, Case())
        layers = layers_in(model, len(wanted))
        found = {} if layers is None else seen_by_layer(model, layers)
    except (InputError, RuntimeError, TypeError, ValueError, AttributeError, IndexError) as error:
        case.unexamined.append(f"layers by themselves: {type(error).__name__}: {error}")
        return
    distant: dict[int, tuple[Tensor, Tensor]] = {}
    places = torch.arange(0)
    rules = {each.rule.name for each in wanted if each is not None and each.rule is not None}
    if layers is not None and not rules & BY_LENGTH:
        distant, places = far_queries(model, layers, fields.get("max_position_embeddings") or 0)
    if all(torch.equal(distant[number][0], found[number][0]) for number in distant):
        distant = {}  # it counts by itself, whatever positions it is given
        case.unexamined.append("far positions of the layers")
    said: dict[tuple[str, str], list[int]] = {}
    sound = []
    for number, both in found.items():
        trial = Case()
        judge_layer(both, distant.get(number), places, wanted[number], dtype, trial)
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
        case.fault(name, detail, f"{'layers' if len(numbers) > 1 else 'layer'} {runs(numbers)}")


def judge_layer(
    both: tuple[Tensor, Tensor],
    distant: tuple[Tensor, Tensor] | None,
    places: Tensor,
    expected: Profile | None,
    dtype: torch.dtype,
    case: Case,
) -> None:
    """Compare queries and keys of one layer, near and at far places, with what is expected."""
    still = [float((x - x[:, :1]).abs().max()) < 1e-3 * float(x.abs().max()) for x in both]
    if expected is None:
        if not all(still):
            case.fault("layer-rotates")
        return
    known = expected.layout
    if expected.inv_freq is None or known is None:
        return  # frequencies that depend on the length
    if any(still):
        case.fault("layer-unrotated", "" if all(still) else SIDE[still.index(True)])
        return
    inv_freq = torch.zeros(known.width // 2, dtype=torch.float64)
    inv_freq[: len(expected.inv_freq)] = expected.inv_freq.sum(1) * (
        -1 if expected.backwards else 1
    )
    line = Fit(
        inv_freq,
        torch.zeros_like(inv_freq),
        0.0,
        torch.ones_like(inv_freq),
        torch.zeros_like(inv_freq),
    )
    for side, x in enumerate(both):
        far = None if distant is None else distant[side]
        layout = fitting(x, expected, dtype)
        if layout is None or not judge_line(x, far, places, layout, line, dtype, case):
            own = measured(x, expected)
            if own is not None:
                compare_profiles(own, expected, case)
            if not case.findings:
                case.fault("layer-otherwise")
        if case.findings:
            return


def fitting(x: Tensor, expected: Profile, dtype: torch.dtype) -> Layout | None:
    """Return the layout in which pairs of x (H, L, d) are rotated, if it is one to be expected.

    Latent attention may leave the interleaved pairs of its last components in halves.
    """
    known = expected.layout
    assert known is not None
    names = LAYOUTS if known.start else (known.name,)
    for layout in (known._replace(name=name) for name in names):
        if (
            layout.start + layout.width <= x.shape[-1]
            and turned(x, x[:, :1], layout)[1] < CLOSE[dtype]
        ):
            return layout
    return None


def judge_line(
    x: Tensor,
    far: Tensor | None,
    places: Tensor,
    layout: Layout,
    line: Fit,
    dtype: torch.dtype,
    case: Case,
) -> bool:
    """Return whether angles near position 0 are on the lines; name what happens far out."""
    near = off_line(turned(x, x[:, :1], layout)[0], line, torch.arange(TOKENS).double())
    sound, name = bool(near.max() < CLOSE[dtype]), None
    if far is None:
        return sound
    z = turned(far, far[:, :1], layout)[0]
    error = off_line(z, line, places.double())
    if bool((error > LOST + ROUNDING * places).any()):
        name = cause(z, places, line.inv_freq, lambda: None)
        if name is None and sound:
            name = past_the_end(z, places, line) or "precision-lost"
    if name is not None:
        report(name, places, error, str(dtype).removeprefix("torch."), case)
    return sound or name is not None


SIDE = ("queries only", "keys only")
