"""Queries and keys of the rotary text models of transformers, recorded as the models run.

A small model of each type is built from its own configuration class and run twice: with all
positions zero, where a rotation does nothing but multiply by the gain, and with some. Instead of
attention a recorder is called, which keeps queries and keys and answers zero. The input of a layer
is then the same in both runs, so that what differs is what position did.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

POSITIONS = [0, 1, 6, 40, 300, 20001]
MOST = 45_000_000  # parameters of a small model

# Sizes that position does not depend on. Of attention, heads are reduced and their width is kept.
SMALL: dict[str, Any] = {
    "num_hidden_layers": 4, "n_layer": 2, "num_layers": 2, "vocab_size": 64, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "intermediate_size": 32, "ffn_hidden_size": 32,
    "n_inner": 32, "moe_intermediate_size": 16, "expert_ffn_hidden_size": 16,
    "shared_expert_intermediate_size": 16, "shared_intermediate_size": 16,
    "intermediate_size_mlp": 32, "dense_intermediate_size": 32, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2,
    "moe_topk": 2, "moe_k": 2, "num_experts_per_token": 2, "n_group": 1, "topk_group": 1,
    "num_expert_group": 1, "n_shared_experts": 1, "q_lora_rank": 16, "kv_lora_rank": 16,
    "o_lora_rank": 16, "vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8,
    "first_k_dense_replace": 1, "num_hash_layers": 1, "mamba_chunk_size": 8, "index_n_heads": 2,
    "num_kv_heads": 2, "mamba_num_heads": 8, "moe_shared_expert_intermediate_size": 16,
    "linear_num_key_heads": 2, "linear_num_value_heads": 2, "linear_num_heads": 2,
}  # fmt: skip

# Options of single model types beyond these.
OPTIONS: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_suffix(".json").read_text(encoding="utf-8")
)

# Options that a published file keeps.
KEPT_OPTIONS = {
    "num_hidden_layers", "n_layer", "num_layers", "layer_types", "rope_parameters", "head_dim",
    "sliding_window", "use_mem_rope", "attn_layer_period", "attn_layer_offset", "block_types",
}  # fmt: skip

HEADS = 2

# Models that number their tokens by themselves: the part that gets the positions instead.
OWN_POSITIONS = {"csm_depth_decoder_model": "rotary_emb", "roformer": "encoder.embed_positions"}

# Models that take another model's vectors, not tokens.
EMBEDS_ONLY = {"qwen3_omni_moe_talker_text", "qwen3_omni_moe_talker_code_predictor"}


@dataclass(frozen=True)
class RecordedLayer:
    """What one layer gave to attention.

    Attributes:
        layer: its number.
        at_zero: queries and keys, (B, H, L, d) each, when all positions are zero.
        at_positions: the same at the positions of the run.
        window, scale: as attention got them.
    """

    layer: int
    at_zero: tuple[Tensor, Tensor]
    at_positions: tuple[Tensor, Tensor]
    window: int | None
    scale: float | None


def rotary_text_models() -> dict[str, type]:
    """Return the class of every model that takes tokens and whose code speaks of rotations.

    They are found by walking the configurations of the package. A configuration that has others
    inside (text beside images) is left to the one of its text, which has a type of its own.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    folder = Path(transformers.__file__).parent / "models"
    rotary = {
        path.parent.name
        for path in folder.glob("*/modeling_*.py")
        if re.search(r"rotary|(?<![a-z])rope", path.read_text(encoding="utf-8"), re.IGNORECASE)
    }
    found = {}
    for name in sorted(CONFIG_MAPPING_NAMES):
        configuration = CONFIG_MAPPING[name]
        if configuration.__module__.split(".")[-2] in rotary and not configuration.sub_configs:
            model = text_model(configuration)
            if model is not None:
                found[name] = model
    return found


def text_model(configuration: type) -> type | None:
    """Return the model without a head that has this configuration and takes tokens."""
    from transformers import PreTrainedModel

    module = configuration.__module__.replace("configuration_", "modeling_")
    try:
        classes = vars(importlib.import_module(module)).values()
    except ModuleNotFoundError:  # it has no code of its own
        return None
    fitting = [
        each
        for each in classes
        if isinstance(each, type)
        and issubclass(each, PreTrainedModel)
        and each.config_class is configuration
        and each.__name__.endswith("Model")
        and "input_ids" in inspect.signature(each.forward).parameters
    ]
    return min(fitting, key=lambda each: len(each.__name__), default=None)


def small_configuration(name: str, file: Mapping[str, Any] | None = None, **changes: Any) -> Any:
    """Return a configuration of a model type with small layers.

    Args:
        name: the model type.
        file: a published file, whose options are kept except such sizes; without it there are
            few layers, too.
        changes: options that replace others.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    configuration = CONFIG_MAPPING[name]
    # Classes write into the dictionaries that they are given.
    contents = copy.deepcopy(dict(file or {}))
    from_file = {key: value for key, value in contents.items() if key != "model_type"}
    defaults = configuration(**copy.deepcopy(from_file)).to_dict()
    options = {
        key: value
        for key, value in SMALL.items()
        if key in defaults and (defaults[key] is not None or key.endswith("token_id"))
    }
    heads = defaults.get("num_attention_heads") or defaults.get("n_head")
    width = defaults.get("hidden_size") or defaults.get("n_embd")
    if heads and width:
        old = "num_attention_heads" not in defaults
        names = ("n_head", "n_embd") if old else ("num_attention_heads", "hidden_size")
        narrow = from_file and defaults.get("head_dim")
        from_file |= {"head_dim": defaults["head_dim"]} if narrow else {}
        n_heads = OPTIONS.get(name, {}).get("n_head", HEADS)
        d_model = n_heads * (32 if narrow else width // heads)
        options |= dict(zip(names, (n_heads, d_model), strict=True))
        kv_heads = defaults.get("num_key_value_heads")
        if kv_heads is not None:
            options["num_key_value_heads"] = HEADS if kv_heads == heads else min(kv_heads, 2)
    options |= OPTIONS.get(name, {})
    if from_file:
        options = {key: value for key, value in options.items() if key not in KEPT_OPTIONS}
    return configuration(**from_file | options | changes)


class Recorder(TorchFunctionMode):
    """Stands for attention: as an attention function, and for products that models write out."""

    def __init__(self, length: int) -> None:
        """Know the length, by which a matrix of weights is told."""
        super().__init__()
        self.length = length
        self.calls: list[tuple[int | None, Tensor, Tensor, int | None, float | None]] = []

    def attention(
        self, module: Any, query: Tensor, key: Tensor, value: Tensor, *rest: Any, **options: Any
    ) -> tuple[Tensor, None]:
        """Keep queries and keys; answer zeros (B, L, H, width of the values)."""
        layer, window = getattr(module, "layer_idx", None), options.get("sliding_window")
        self.calls.append((layer, query, key, window, options.get("scaling")))
        heads, length = query.shape[1:3]
        return query.new_zeros(len(query), length, heads, value.shape[-1]), None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Keep the factors of a product of queries and keys; empty one of weights and values."""
        result = func(*args, **(kwargs or {}))
        name, tensors = getattr(func, "__name__", ""), [x for x in args if isinstance(x, Tensor)]
        if name not in ("matmul", "__matmul__", "baddbmm") or len(tensors) < 2:
            return result
        left, right = tensors[-2:]
        square = (self.length, self.length)
        if left.ndim < 3 or right.ndim != left.ndim:
            return result
        if result.shape[-2:] == square and left.shape[-1] != self.length:
            folded = left.ndim == 3  # heads and batch in one axis
            keep = (left[None], right.mT[None]) if folded else (left, right.mT)
            self.calls.append((None, *keep, None, None))
        return result * 0 if left.shape[-2:] == square else result


@contextmanager
def in_float64() -> Iterator[None]:
    """Make float32 mean float64: models ask for it by name where they compute angles."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with (
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
            mock.patch.multiple(torch, float=torch.float64, float32=torch.float64),
        ):
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def at_positions(built: Any, configuration: Any, positions: list[int]) -> Iterator[None]:
    """Give positions to the part of a model that numbers the tokens, by its own argument."""
    name = OWN_POSITIONS.get(configuration.model_type)
    if name is None:
        yield
        return
    part = built.get_submodule(name)
    forward = part.forward

    def with_positions(*args: Any, position_ids: Tensor | None = None, **options: Any) -> Any:
        shape = (-1,) if position_ids is None else position_ids.shape
        return forward(*args, position_ids=torch.tensor(positions).reshape(shape), **options)

    with mock.patch.object(part, "forward", with_positions):
        yield


def uniform(tensor: Tensor, mean: float = 0.0, std: float = 1.0, **_: Any) -> Tensor:
    """Draw uniform numbers of this mean and deviation, four times as fast as normal ones."""
    half = 3**0.5 * std
    return tensor.uniform_(mean - half, mean + half)


def record(model: Any, configuration: Any, positions: list[int]) -> list[RecordedLayer]:
    """Return what the layers of a model of this configuration give to attention."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_MASK_ATTENTION_FUNCTIONS.register("recorder", eager_mask)
    tokens = torch.arange(3, 3 + len(positions)).unsqueeze(0)
    runs = []
    with in_float64(), torch.no_grad():
        module = sys.modules[model.__module__]
        writes_out = not hasattr(module, "ALL_ATTENTION_FUNCTIONS")  # its attention
        ALL_ATTENTION_FUNCTIONS.register("recorder", Recorder(len(positions)).attention)
        configuration._attn_implementation = "eager" if writes_out else "recorder"
        configuration._experts_implementation = "eager"  # the others know no float64
        torch.manual_seed(0)
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in model(configuration).parameters())
        if size > MOST:
            raise MemoryError(f"{size} parameters")
        # Qwen3-Omni's talker leaves its experts' weights as it finds them in memory.
        zeros = mock.patch.object(torch, "empty", torch.zeros)
        with zeros, mock.patch.object(Tensor, "normal_", uniform):
            built = model(configuration).double().eval()
        inputs: dict[str, Tensor] = {"input_ids": tokens}
        if configuration.model_type == "voxtral_realtime_text":  # how long a sound is delayed
            inputs["t_cond"] = torch.ones(1, 1, configuration.hidden_size)
        if configuration.model_type in EMBEDS_ONLY:
            inputs = {"inputs_embeds": torch.randn(*tokens.shape, configuration.hidden_size)}
        for position_ids in ([0] * len(positions), positions):
            recorder = Recorder(len(positions))
            ALL_ATTENTION_FUNCTIONS.register("recorder", recorder.attention)
            numbered = at_positions(built, configuration, position_ids)
            with recorder if writes_out else nullcontext(), numbered:
                built(**inputs, position_ids=torch.tensor([position_ids]), use_cache=False)
            runs.append(recorder.calls)
    assert len(runs[0]) == len(runs[1])
    return [
        RecordedLayer(
            layer if layer is not None else index, (q, k), (moved_q, moved_k), window, scale
        )
        for index, ((layer, q, k, window, scale), (_, moved_q, moved_k, _, _)) in enumerate(
            zip(*runs, strict=True)
        )
    ]
