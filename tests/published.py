"""Rotary functions of published libraries, as the doctor takes them: (q, k, positions) -> (q, k).

In transformers most models carry the same text; each different text is taken once.
"""

from __future__ import annotations

import contextlib
import csv
import importlib
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import alone
import torch
import transformers
from torch import Tensor
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from posdoctor.doctor import diagnose
from posdoctor.factory import published_files
from posdoctor.report import Report
from posdoctor.subjects import InputError, Rotary
from posdoctor.ways import axes_first
from tools.doctor_page import PUBLISHED

MODELS = Path(transformers.__file__).parent / "models"
SWAP = re.compile(
    r"^def (?:apply_rotary_pos_emb|rotate_half)\(.*?(?=^\S)", re.DOTALL | re.MULTILINE
)
TABLE = re.compile(r"^class (\w*RotaryEmbedding\w*)\(.*?(?=^\S)", re.DOTALL | re.MULTILINE)


class Source(NamedTuple):
    """A text of transformers: the module, the class of the tables, and how many models carry it."""

    module: str
    name: str
    models: tuple[str, ...]


def bare(text: str) -> str:
    """Return code without docstrings, comments, spaces and the names of configurations."""
    text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    text = re.sub(r"\b\w*Config\b", "Config", re.sub(r"#.*", "", text))
    return re.sub(r"\s+", "", text)


def sources() -> list[Source]:
    """Return each different rotary code of transformers once."""
    found: dict[str, Source] = {}
    for path in sorted(MODELS.glob("*/modeling_*.py")):
        text = path.read_text(encoding="utf-8")
        swaps = "".join(bare(match.group(0)) for match in SWAP.finditer(text))
        for match in TABLE.finditer(text) if "apply_rotary_pos_emb(" in swaps else ():
            key = swaps + bare(match.group(0)).replace(match.group(1), "")
            model = path.parent.name
            if key in found:
                found[key] = found[key]._replace(models=(*found[key].models, model))
            else:
                module = f"transformers.models.{model}.{path.stem}"
                found[key] = Source(module, match.group(1), (model,))
    return list(found.values())


def configuration(cls: type, module: Any) -> Any:
    """Return the configuration that the class of the tables takes, with its defaults."""
    first = list(inspect.signature(cls.__init__).parameters.values())[1]
    name = first.annotation if isinstance(first.annotation, str) else first.annotation.__name__
    config = getattr(module, name, None) or getattr(transformers, name)
    return config()


def parts_of(config: Any) -> list[Any]:
    """Return a configuration and those of its parts, of which tables may want one."""
    names = ("text_config", "audio_config", "decoder_config", "global_config", "encoder_config")
    return [config, *(part for name in names if (part := getattr(config, name, None)) is not None)]


def kinds_of(config: Any) -> list[dict[str, str]]:
    """Return what tables may want to be told of a layer: nothing, or a kind of layer."""
    by_kind = getattr(config, "rope_parameters", None) or {}
    kinds = [*(getattr(config, "layer_types", None) or ()), *by_kind]
    return [*({"layer_type": kind} for kind in sorted(set(kinds))), {}]


def from_transformers(source: Source) -> Rotary:
    """Return a text's function with the tables of its default configuration.

    Tables of one cosine for each pair, and not for each component, belong to heads twice as wide.

    Raises:
        Exception: what was raised last, of a class that wants other arguments.
    """
    module = importlib.import_module(source.module)
    cls = getattr(module, source.name)
    last: Exception = TypeError(f"{source.name} takes no configuration")
    for config in parts_of(configuration(cls, module)):
        for extra in kinds_of(config):
            try:
                tables = cls(config).eval()
                cos = tables(torch.zeros(1, 1, 4, 8), torch.arange(4)[None], **extra)[0]
            except Exception as error:
                last = error
                continue
            function = rotation(tables, module.apply_rotary_pos_emb, extra)
            for width in (cos.shape[-1], 2 * cos.shape[-1]):
                try:
                    function(*torch.zeros(2, 1, 1, 4, width), torch.arange(4)[None])
                except Exception as error:
                    last = error
                    continue
                return Rotary(function, head_dim=width)
    raise last


def rotation(tables: Any, apply: Callable[..., Any], extra: dict[str, str]) -> Callable[..., Any]:
    """Return the rotation by a module's tables and its function."""
    one = "x" in inspect.signature(apply).parameters

    def function(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = tables(q, positions, **extra)
        if one:
            return apply(q, cos, sin), apply(k, cos, sin)
        return tuple(apply(q, k, cos, sin))

    return function


def all_from_transformers() -> Iterator[tuple[Source, Rotary | str]]:
    """Return each text with its function, or with why it cannot be called so."""
    for source in sources():
        try:
            yield source, from_transformers(source)
        except Exception as error:
            yield source, f"{type(error).__name__}: {error}"


def held_to_files() -> Iterator[tuple[str, Report | str]]:
    """Return what the doctor says of each published file's own class, held to that file.

    Layers of several kinds are one report each. A file whose class cannot be called so comes with
    the reason.
    """
    for each in published_files():
        config = each["config"]
        try:
            whole = CONFIG_MAPPING[config["model_type"]](**deepcopy(config))  # it writes into them
            part = whole.get_text_config()
            module = importlib.import_module(
                type(part).__module__.replace("configuration_", "modeling_")
            )
            apply = module.apply_rotary_pos_emb
            if getattr(part, "rope_interleave", False):
                apply = module.apply_rotary_pos_emb_interleave
            classes = [one for name, one in vars(module).items()
                       if re.search("^(?!.*Vision).*RotaryEmbedding$", name)]  # fmt: skip
            tables = max(classes, key=lambda cls: "Text" in cls.__name__)(part).eval()
            for extra in kinds_that_fit(tables, part):
                yield each["name"], held(tables, apply, extra, config)
        except Exception as error:  # whatever a class raises that wants other arguments
            yield each["name"], f"{type(error).__name__}: {error}"


def kinds_that_fit(tables: Any, config: Any) -> list[dict[str, str]]:
    """Return the kinds of layers that a module's tables take; one that says nothing if none."""
    found = []
    for extra in kinds_of(config)[:-1]:
        with contextlib.suppress(Exception):  # whatever a class raises at another word
            tables(torch.zeros(1, 1, 4, 8), torch.zeros(1, 4).long(), **extra)
            found.append(extra)
    return found or [{}]


def held(tables: Any, apply: Callable[..., Any], extra: dict[str, str], config: Any) -> Report:
    """Return the report on a module's tables and its function, held to a configuration."""
    x, axes = torch.zeros(1, 1, 4, 8), 3 if "mrope_section" in str(config) else 1
    places = torch.zeros(3, 1, 4).long() if axes == 3 else torch.zeros(1, 4).long()
    width = tables(x, places, **extra)[0].shape[-1]
    function = rotation(tables, apply, extra)
    if axes == 3:
        function = axes_first(function)
    try:
        return diagnose(function, head_dim=width, axes=axes, expect=config, dtypes=())
    except InputError:  # tables of one cosine for each pair belong to heads twice as wide
        return diagnose(function, head_dim=2 * width, axes=axes, expect=config, dtypes=())


def others() -> dict[str, object]:
    """Return rotary functions and biases of other libraries, by name."""
    from diffusers.models.embeddings import apply_rotary_emb, get_1d_rotary_pos_embed
    from diffusers.models.transformers.transformer_flux import FluxPosEmbed
    from rotary_embedding_torch import RotaryEmbedding as Lucid
    from rotary_embedding_torch import apply_rotary_emb as lucid_apply
    from transformers import T5Config
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor
    from transformers.models.t5.modeling_t5 import T5Attention
    from x_transformers.x_transformers import (
        AlibiPositionalBias,
        RelativePositionBias,
        RotaryEmbedding,
        apply_rotary_pos_emb,
    )

    from posdoctor.subjects import Bias

    torch.manual_seed(0)
    t5_table = T5Attention(T5Config(num_heads=6), has_relative_attention_bias=True, layer_idx=0)
    lucid = Lucid(dim=64)
    x_plain, x_xpos = RotaryEmbedding(64), RotaryEmbedding(64, use_xpos=True)
    flux = FluxPosEmbed(theta=10000, axes_dim=[16, 24, 24])
    alibi, t5 = AlibiPositionalBias(12), RelativePositionBias(8.0, causal=True)

    def lucid_free(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = lucid(positions.float())[:, None]
        return lucid_apply(angles, q), lucid_apply(angles, k)

    def lucid_run(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        start = int(positions[0, 0])
        return tuple(lucid.rotate_queries_or_keys(x, offset=start) for x in (q, k))

    def x_rope(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        freqs, scale = x_plain(positions)
        return apply_rotary_pos_emb(q, freqs, scale), apply_rotary_pos_emb(k, freqs, scale)

    def x_faded(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        freqs, scale = x_xpos(positions)
        return apply_rotary_pos_emb(q, freqs, scale), apply_rotary_pos_emb(k, freqs, scale**-1)

    def diffusion(twins: bool, axis: int) -> Callable[..., tuple[Tensor, Tensor]]:
        def rotate(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
            table = get_1d_rotary_pos_embed(
                q.shape[-1], positions, use_real=True, repeat_interleave_real=twins
            )
            options = {"use_real_unbind_dim": axis}
            return apply_rotary_emb(q, table, **options), apply_rotary_emb(k, table, **options)

        return rotate

    def flux_axes(q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        table = flux(positions[0].float())
        return apply_rotary_emb(q, table), apply_rotary_emb(k, table)

    def once(function: Callable[..., Any]) -> Callable[..., Any]:
        def rotate(q: Tensor, k: Tensor, positions: Tensor) -> Any:
            if positions.ndim == 2:
                raise ValueError("positions must be (L,)")
            return function(q, k, positions)

        return rotate

    def flux_once(q: Tensor, k: Tensor, positions: Tensor) -> Any:
        if positions.ndim == 3:
            raise ValueError("positions must be (L, 3)")
        return flux_axes(q, k, positions[None])

    def of_lengths(bias_of: Callable[[int], Tensor]) -> Bias:
        def bias(q_pos: Tensor, k_pos: Tensor) -> Tensor:  # (H, L, L) of a length alone
            return bias_of(len(k_pos))[:, q_pos - k_pos[0]]

        return Bias(bias)

    def bloom(length: int) -> Tensor:
        mask = torch.ones(1, length)
        return build_alibi_tensor(mask, 12, torch.float32).expand(12, length, length)

    def mpt(length: int) -> Tensor:
        return build_mpt_alibi_tensor(12, length).reshape(12, 1, -1).expand(12, length, length)

    def buckets(q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return t5(len(q_pos), len(k_pos))  # it knows lengths only

    return {
        "rotary-embedding-torch, free positions": Rotary(lucid_free),
        "rotary-embedding-torch, offset": Rotary(lucid_run, runs=True),
        "x-transformers rotary": Rotary(x_rope),
        "x-transformers xPos": Rotary(x_faded, reach=2048),
        "transformers T5": of_lengths(lambda length: t5_table.compute_bias(length, length)[0]),
        "transformers BLOOM, ALiBi": of_lengths(bloom),
        "transformers MPT, ALiBi": of_lengths(mpt),
        "x-transformers ALiBi": Bias(alibi.forward_custom_pos),
        "x-transformers T5": Bias(buckets),
        "diffusers 1-D, interleaved": Rotary(once(diffusion(True, -1))),
        "diffusers 1-D, half": Rotary(once(diffusion(False, -2))),
        "diffusers FLUX": Rotary(flux_once, axes=3),
    }


# --- what the doctor says of them, as a table -----------------------------------------------------

HEADER = ("library", "function", "models", "axes", "verdict", "named as")


def row(name: str, models: int, thing: object) -> tuple[str, ...]:
    """Put a function before the doctor, and return its line of the table."""
    library, _, function = name.replace(",", "", 1).partition(" ")
    if (alone.ALONE / library).is_dir():
        library += f" {alone.version(library)}"
    if isinstance(thing, str):
        why = thing.split("\n")[0][:90].rstrip()
        return library, function, str(models), "", "not called", why
    try:
        report = diagnose(thing)
    except InputError:
        why = "wants other positions than one number for each token"
        return library, function, str(models), "", "not called", why
    verdict = "no fault" if report.healthy else ", ".join(report.names("fault"))
    facts = report.case.facts
    topics = [
        topic for topic in ("layout", "axes", "frequencies", "rule", "past") if topic in facts
    ]
    words = [facts[each].split(": ")[0] if each == "layout" else facts[each] for each in topics]
    axes = str(getattr(thing, "axes", 1))
    return library, function, str(models), axes, verdict, "; ".join(words)


def rows() -> list[tuple[str, ...]]:
    """Return the line of every function, of those that can be called here and the others.

    Who is called in one form is not listed as one who is not in another.
    """
    from published_axes import all_axes

    warnings.simplefilter("ignore")
    found = [row(f"transformers {source.name}", len(source.models), subject)
             for source, subject in all_from_transformers()]  # fmt: skip
    found += [row(name, 1, subject) for name, subject in others().items()]
    found += [row(name, models, subject) for name, models, subject in all_axes()]
    called = {line[1] for line in found if line[4] != "not called"}
    return list(dict.fromkeys(
        line for line in found if line[4] != "not called" or line[1] not in called
    ))  # fmt: skip


def stored() -> list[tuple[str, ...]]:
    """Return the lines of the table that is kept for the page."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        return [tuple(line) for line in csv.reader(file)][1:]


if __name__ == "__main__":  # python tests/published.py, with every library at hand
    found = rows()
    with PUBLISHED.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([HEADER, *found])
    print(f"{len(found)} lines in {PUBLISHED.name}")
