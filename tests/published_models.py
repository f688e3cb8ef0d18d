"""What the doctor says of every kind of language model that transformers has, as a tiny one.

`python tests/published_models.py` writes tests/published_models.csv; with the names of types it
prints what the doctor says of them.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import recorded_models
import torch
from torch import nn

from posdoctor.findings import FAULT
from posdoctor.models import examine_model
from posdoctor.subjects import InputError

TABLE = Path(__file__).with_suffix(".csv")

# What is true of the class, and why.
EXPLAINED = {
    "bamba": "without position_ids, a token behind a cache gets its place in the call as position",
    "convbert": "it convolves across the border to the padding",
    "deepseek_v4": "keys are compressed in blocks of the tensor, padding included",
    "fsmt": "with a cache, a prompt of several tokens gets no causal mask",
    "jamba": "several tokens behind a cache begin the recurrent state anew",
    "nystromformer": "landmarks are means over all tokens, padding included",
    "prophetnet": "with a cache, a prompt of several tokens gets other distances",
    "reformer": "tokens are hashed into chunks of the tensor, padding included",
    "rwkv": "it takes a mask and does not read it",
    "yoso": "tokens are hashed together with the padding",
}

# Sizes beyond those of tests/recorded_models.py: of encoders with decoders, then of single types.
MORE: dict[str, Any] = {
    "d_model": 32, "d_ff": 32, "d_kv": 16, "encoder_layers": 2, "decoder_layers": 2,
    "num_decoder_layers": 2, "num_encoder_layers": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32,
    "encoder_attention_heads": 2, "decoder_attention_heads": 2, "num_heads": 2, "n_heads": 2,
    "num_encoder_attention_heads": 2, "num_decoder_attention_heads": 2, "embedding_size": 32,
    "decoder_start_token_id": 0, "ffn_dim": 32,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "bloom": {"n_embd": 64},
    "flaubert": {"emb_dim": 64, "n_layers": 2, "n_heads": 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2, "num_heads": 2,
                "hidden_size": 64},
    "luke": {"entity_vocab_size": 16, "entity_emb_size": 16},
    "mamba2": {"num_heads": 8, "head_dim": 16, "hidden_size": 64},
    "mpnet": {"pad_token_id": 1},  # which the class knows without being told
    "mpt": {"d_model": 64, "n_heads": 2, "n_layers": 2},
    "reformer": {"is_decoder": True, "axial_pos_embds": False, "hidden_size": 64},
    "rwkv": {"hidden_size": 64, "attention_hidden_size": 64},
    "squeezebert": {"embedding_size": 64, "hidden_size": 64, "num_attention_heads": 2},
    "xlm": {"emb_dim": 64, "n_layers": 2, "n_heads": 2},
    "xlstm": {"hidden_size": 64, "num_heads": 2, "embedding_dim": 64},
}  # fmt: skip


def classes() -> Iterator[tuple[str, type]]:
    """Give each model type with its class: a decoder, a masked model or one that translates."""
    from transformers.models.auto import modeling_auto as auto
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    seen: set[tuple[str, type]] = set()
    for mapping in (
        auto.MODEL_FOR_CAUSAL_LM_MAPPING,
        auto.MODEL_FOR_MASKED_LM_MAPPING,
        auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING,
    ):
        for name in sorted(mapping._model_mapping):
            config = CONFIG_MAPPING[name]
            cls = mapping.get(config, None)
            text = not config.sub_configs  # beside images or sound, text has a type of its own
            if text and cls is not None and (name, cls) not in seen:
                seen.add((name, cls))
                yield name, cls


def tiny(name: str, cls: type, **options: Any) -> nn.Module:
    """Return a small model of a type, with random weights and some options of its own."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    defaults = CONFIG_MAPPING[name]().to_dict()
    more = {key: value for key, value in MORE.items() if key in defaults} | SIZES.get(name, {})
    more |= options
    config = recorded_models.small_configuration(name, **more)
    config._experts_implementation = "eager"
    torch.manual_seed(0)
    with torch.device("meta"):
        size = sum(each.numel() for each in cls(config).parameters())
    if size > recorded_models.MOST:
        raise MemoryError(f"{size} parameters")
    torch.manual_seed(0)
    model: nn.Module = cls(config)
    return model.eval()


def line(name: str, cls: type) -> tuple[str, str, str, float, str]:
    """Return type, class, what was found, seconds, and the report in words."""
    try:
        model = tiny(name, cls)
    except Exception as error:  # whatever a class raises with small sizes
        return name, cls.__name__, "not built", 0.0, f"{type(error).__name__}: {error}"
    start = time.time()
    try:
        report = examine_model(model)
    except InputError as error:
        return name, cls.__name__, "refused", time.time() - start, str(error)
    found = [each.name for each in report.findings
             if each.level == FAULT or each.name == "logits-differ"]  # fmt: skip
    return name, cls.__name__, ", ".join(found) or "clean", time.time() - start, str(report)


def stored() -> list[tuple[str, str, str]]:
    """Return the table: type, class, what was found."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return [(row[0], row[1], row[2]) for row in csv.reader(file)]


def main() -> None:
    """Write the table of all types; or print the reports of some."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = []
    for name, cls in classes():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        *row, seconds, words = line(name, cls)
        rows.append(row)
        print(f"{name} {cls.__name__} {seconds:.1f} s: {row[2]}", flush=True)
        if sys.argv[1:] or row[2] != "clean":
            print("    " + words.replace("\n", "\n    "))
    print(dict(Counter(row[2] for row in rows)))
    if not sys.argv[1:]:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
