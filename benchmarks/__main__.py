"""Run the comparison: `python -m benchmarks`, or some of it: `python -m benchmarks rope decode`."""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from pe_course.registry import METHODS, Sizes
from pe_lib.attention import MultiHeadAttention
from pe_lib.cache import KVCache
from pe_lib.encoding import NoPosition, PositionEncoding
from pe_lib.rope import RoPE, apply_rope, rope_angles
from pe_lib.sinusoidal import frequencies
from tools import ROOT

RESULTS, PAGE = ROOT / "pe_course/data/timings.json", ROOT / "book/benchmarks.md"
READERS = ("11_one_table", "lab_book")
LIBRARIES = ("torch", "transformers", "rotary-embedding-torch", "x-transformers")
HEADS, WIDTH, BATCH = 8, 64, 4
MODEL = HEADS * WIDTH
STEPS = 256  # positions that are left for tokens to be decoded
SHORTEST = 2e-3  # seconds per sample: below, the clock and the caches are what is measured

Work = Callable[[], object]
Works = dict[str, Work]


# --- what is timed --------------------------------------------------------------------------------


def agree(one: Any, other: Any, tolerance: float = 1e-4) -> None:
    """Raise unless two contenders compute the same: fast and wrong wins nothing."""
    if one.shape != other.shape or (one - other).abs().max() > tolerance * other.abs().max():
        raise AssertionError(f"contenders do not agree: {one.shape}, {other.shape}")


def layer_of(encoding: PositionEncoding) -> MultiHeadAttention:
    """Return a whole attention layer; each has the same weights."""
    torch.manual_seed(0)
    return MultiHeadAttention(MODEL, HEADS, encoding, causal=True, embedded=True)


def ours(length: int) -> dict[str, PositionEncoding]:
    """Return every method of the comparison, by name; "no positions" is the first."""
    sizes = Sizes(MODEL, HEADS, length)
    return {f"pe_lib, {method.name}": method.make(sizes) for method in METHODS.values()}


def rope(length: int) -> Works:
    """Rotate queries and keys by angles that are ready-made."""
    from rotary_embedding_torch import RotaryEmbedding
    from transformers.models.gptj import modeling_gptj as gptj
    from transformers.models.llama import modeling_llama as llama
    from x_transformers import x_transformers

    torch.manual_seed(0)
    q, k = torch.randn(2, 1, HEADS, length, WIDTH)
    angles = rope_angles(torch.arange(length), frequencies(WIDTH))
    cosines, sines = angles.cos().float()[None], angles.sin().float()[None]  # (1, L, d / 2)
    cos, sin = (torch.cat([part, part], dim=-1) for part in (cosines, sines))
    q_long, k_long = (x.transpose(1, 2).contiguous() for x in (q, k))  # (B, L, H, d)
    lucid = RotaryEmbedding(WIDTH, cache_max_seq_len=length)
    others, _ = x_transformers.RotaryEmbedding(WIDTH)(torch.arange(length))
    theirs = gptj.apply_rotary_pos_emb(q_long, sines, cosines).transpose(1, 2)
    agree(apply_rope(q, angles), theirs)
    agree(apply_rope(k, angles, layout="half"), llama.apply_rotary_pos_emb(q, k, cos, sin)[1])
    return {
        "copying q and k": lambda: (q.clone(), k.clone()),
        "pe_lib, interleaved": lambda: [apply_rope(x, angles) for x in (q, k)],
        "pe_lib, half": lambda: [apply_rope(x, angles, layout="half") for x in (q, k)],
        "transformers, Llama (half)": lambda: llama.apply_rotary_pos_emb(q, k, cos, sin),
        "transformers, GPT-J (interleaved)": lambda: [
            gptj.apply_rotary_pos_emb(x, sines, cosines) for x in (q_long, k_long)
        ],
        "rotary-embedding-torch": lambda: [lucid.rotate_queries_or_keys(x) for x in (q, k)],
        "x-transformers": lambda: [x_transformers.apply_rotary_pos_emb(x, others) for x in (q, k)],
    }


def forward(length: int) -> Works:
    """A whole layer's forward pass with each method, causal."""
    x, positions = torch.randn(1, length, MODEL), torch.arange(length)

    def work(encoding: PositionEncoding) -> Work:
        layer = layer_of(encoding).eval()
        return lambda: layer(encoding.embed(x, positions))

    return {name: work(encoding) for name, encoding in ours(length).items()}


def decode(length: int) -> Works:
    """One new token behind `length` cached ones through a whole layer.

    As in use, each step adds its token to the cache: some two hundred by the end.
    """
    from transformers import DynamicCache, LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaAttention, LlamaRotaryEmbedding

    past, x = torch.randn(1, length, MODEL), torch.randn(1, 1, MODEL)

    def work(encoding: PositionEncoding) -> Work:
        layer, cache = layer_of(encoding).eval(), KVCache()
        layer(encoding.embed(past, torch.arange(length)), cache=cache)

        def step() -> Tensor:
            output: Tensor = layer(encoding.embed(x, torch.tensor([len(cache)])), cache=cache)
            return output

        return step

    works = {name: work(encoding) for name, encoding in ours(length + STEPS).items()}
    works["pe_lib, RoPE, half"] = work(RoPE(WIDTH, layout="half"))
    config = LlamaConfig(hidden_size=MODEL, num_attention_heads=HEADS, num_key_value_heads=HEADS)
    config._attn_implementation = "sdpa"
    peer, theirs = LlamaAttention(config, layer_idx=0).eval(), DynamicCache()
    weights = layer_of(NoPosition()).state_dict()
    peer.load_state_dict({name.replace("out_", "o_"): each for name, each in weights.items()})
    cos, sin = LlamaRotaryEmbedding(config)(x, torch.arange(length + STEPS)[None])
    peer(past, (cos[:, :length], sin[:, :length]), None, past_key_values=theirs)

    def published() -> Tensor:
        newest = slice(theirs.get_seq_length(), theirs.get_seq_length() + 1)
        output: Tensor = peer(x, (cos[:, newest], sin[:, newest]), None, past_key_values=theirs)[0]
        return output

    agree(works["pe_lib, RoPE, half"](), published())
    return works | {"transformers, Llama (RoPE, half; DynamicCache)": published}


def training(length: int) -> Works:
    """Forward and backward through a whole layer, for the input and all weights."""
    from x_transformers import x_transformers

    x = torch.randn(BATCH, length, MODEL, requires_grad=True)
    target, positions = torch.randn(BATCH, length, MODEL), torch.arange(length)

    def step(layer: torch.nn.Module, forward: Callable[[], Tensor]) -> Work:
        leaves = [x, *layer.parameters()]
        return lambda: torch.autograd.grad(forward(), leaves, target, allow_unused=True)

    def mine(encoding: PositionEncoding) -> tuple[torch.nn.Module, Callable[[], Tensor]]:
        layer = layer_of(encoding)
        return layer, lambda: layer(encoding.embed(x, positions))

    def theirs(**positions: Any) -> tuple[torch.nn.Module, Callable[[], Tensor]]:
        peer = x_transformers.Attention(MODEL, dim_head=WIDTH, heads=HEADS, causal=True, flash=True)
        weights = layer_of(NoPosition()).state_dict()
        names = {"to_q": "q_proj", "to_k": "k_proj", "to_v": "v_proj", "to_out": "out_proj"}
        peer.load_state_dict({f"{a}.weight": weights[f"{b}.weight"] for a, b in names.items()})
        return peer, lambda: peer(x, **positions)

    layers = {name: mine(encoding) for name, encoding in ours(length).items()}
    angles = x_transformers.RotaryEmbedding(WIDTH).forward_from_seq_len(length)
    t5 = x_transformers.RelativePositionBias(scale=WIDTH**0.5, causal=True, heads=HEADS)
    layers |= {
        "x-transformers, no positions": theirs(),
        "x-transformers, RoPE": theirs(rotary_pos_emb=angles),
        "x-transformers, ALiBi": theirs(rel_pos=x_transformers.AlibiPositionalBias(HEADS)),
        "x-transformers, T5 bias": theirs(rel_pos=t5),
    }
    for name in ("no positions", "RoPE", "ALiBi"):
        agree(*(layers[f"{who}, {name}"][1]() for who in ("pe_lib", "x-transformers")), 1e-3)
    return {name: step(*layer) for name, layer in layers.items()}


class Question(NamedTuple):
    """One table: `works` makes the contenders for a length; the first is what others refer to."""

    title: str
    works: Callable[[int], Works]
    lengths: tuple[int, ...]
    with_gradients: bool = False
    note: str = ""  # what a reader of the table has to know


QUESTIONS = {
    "rope": Question(
        "RoPE on queries and keys",
        rope,
        (512, 2048),
        note="`apply_rope` makes sines and cosines of angles at each call, in float64; the"
        " functions of transformers get them ready-made.",
    ),
    "forward": Question("A layer's forward pass, causal", forward, (512, 2048)),
    "decode": Question(
        "One step of decoding, a whole layer",
        decode,
        (4096,),
        note="DynamicCache, which transformers' models use unless told otherwise, copies all keys"
        " and values at each step.",
    ),
    "training": Question(f"A training step of a layer, batch {BATCH}", training, (512,), True),
}


# --- how it is timed ------------------------------------------------------------------------------


def sample(work: Work, number: int) -> float:
    """Return seconds per call over `number` calls.

    On one thread the processor's time: it does not count while another program has the core.
    """
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    work()  # what ran before must not count: it left other data in the caches
    start = clock()
    for _ in range(number):
        work()
    return (clock() - start) / number


@contextmanager
def quiet() -> Iterator[None]:
    """Send the profiler's messages, which bypass Python, nowhere."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def peak_memory(work: Work) -> int:
    """Return the highest sum of PyTorch's allocations minus releases during a call."""
    with quiet(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    held = peak = 0
    events = profiler.profiler.kineto_results.events()
    for event in sorted(events, key=lambda event: event.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def side_by_side(works: Mapping[str, Work], budget: float = 4.0) -> list[dict[str, Any]]:
    """Time all `works` in turn, round after round, so that a busy moment hits all alike.

    Args:
        works: functions by name; ratios refer to the first.
        budget: seconds to spend, about; there are 5 rounds at least, and 41 at most.

    Returns:
        a row for each: median seconds, median and quartiles of the ratios within a round, bytes.
    """
    single = {name: min(sample(work, 1) for _ in range(3)) for name, work in works.items()}
    numbers = {name: max(1, round(SHORTEST / seconds)) for name, seconds in single.items()}
    once = sum(single[name] * (numbers[name] + 1) for name in works)
    rounds = min(41, max(5, int(budget / once)))
    taken: dict[str, list[float]] = {name: [] for name in works}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for name, work in works.items():
                taken[name].append(sample(work, numbers[name]))
    finally:
        gc.enable()
    rows, reference = [], next(iter(taken.values()))
    for name, seconds in taken.items():
        ratios = [mine / other for mine, other in zip(seconds, reference, strict=True)]
        low, ratio, high = statistics.quantiles(ratios, n=4, method="inclusive")
        row = {"who": name, "seconds": statistics.median(seconds), "rounds": rounds}
        row |= {"ratio": ratio, "low": low, "high": high, "peak_bytes": peak_memory(works[name])}
        rows.append(row)
    return rows


# --- what is written ------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """Describe the machine in terms that mean something elsewhere."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load before": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in LIBRARIES},
    }


def page_of(results: dict[str, Any]) -> str:
    """Return the book's page."""
    where, rows = results["machine"], results["rows"]
    versions = ", ".join(f"{name} {number}" for name, number in where["versions"].items())
    lines = [
        "<!-- Written by `make bench` from pe_course/data/timings.json: change that, not this. -->",
        "# How fast it is",
        "",
        "Each table compares functions on the same input. `x` is a function's time divided by that"
        " of the table's first row: the median over rounds in which all functions run in turn, in"
        " one process, with the quartiles behind it. On one thread it is the processor's time, so"
        " that other programs on the machine count little. Milliseconds are of one machine and one"
        " day; the ratios carry further. `peak` is the most memory at any time of a call, the"
        " result included, as PyTorch's profiler counts it. Where another library's function"
        " computes the same, it was checked before it was timed.",
        "",
        f"Measured on {where['cpu']}, {where['cores']} cores, {where['threads']} thread(s) used,"
        f" load {where['load before']} at the start, Python {where['python']}, {versions};"
        f" {HEADS} heads of width {WIDTH}, float32, batch 1 unless said. All of it on the CPU.",
    ]
    for name, question in QUESTIONS.items():
        lines += ["", f"## {question.title}", ""]
        lines += [question.note, ""] if question.note else []
        lines += [
            "| function | L | ms | x | quartiles | peak, MiB |",
            "| --- " + "| ---: " * 5 + "|",
        ]
        lines += [
            f"| {row['who']} | {row['length']} | {row['seconds'] * 1e3:.3g} | {row['ratio']:.3g} "
            f"| {row['low']:.3g} to {row['high']:.3g} | {row['peak_bytes'] / 2**20:.3g} |".replace(
                " to ", "\u00a0to\u00a0"
            )
            for row in rows
            if row["question"] == name
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure what is asked, keep the rest, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("questions", nargs="*", metavar="question", help=", ".join(QUESTIONS))
    parser.add_argument("--seconds", type=float, default=4.0, help="per table and length")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if unknown := set(arguments.questions) - set(QUESTIONS):
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    torch.set_num_threads(arguments.threads)
    where, rows = machine(), []
    for name in arguments.questions or QUESTIONS:
        question = QUESTIONS[name]
        for length in question.lengths:
            print(f"{question.title}, L {length}", flush=True)
            with torch.set_grad_enabled(question.with_gradients):
                measured = side_by_side(question.works(length), arguments.seconds)
            for row in measured:
                print(f"  {row['who']:48} {row['seconds'] * 1e3:8.3g} ms  x {row['ratio']:.3g}")
            rows += [{"question": name, "length": length} | row for row in measured]
    earlier = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    measured_now = {row["question"] for row in rows}
    rows += [row for row in earlier if row["question"] in QUESTIONS.keys() - measured_now]
    rows.sort(key=lambda row: list(QUESTIONS).index(row["question"]))  # lengths keep their order
    results = {"machine": where, "rows": rows}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page_of(results))
    print(f"Chapters print some of these numbers: make refresh NB='{' '.join(READERS)}'")


if __name__ == "__main__":
    main()
