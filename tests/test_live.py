"""Figures that compute: their arithmetic is pe_lib's, and everybody can use them."""

from __future__ import annotations

import base64
import copy
import io
import itertools
import json
import random
import re
import shutil
from collections.abc import Iterator
from typing import Any

import nbformat
import numpy as np
import pytest
import torch
from PIL import Image

from browsing import AXE, BAD_LABELS, ONLY_COLOURS, left_out, serious
from pe_course.four_terms import expand
from pe_course.page import choosing, live
from pe_lib import rope_scaling
from pe_lib.alibi import ALiBi, alibi, alibi_slopes
from pe_lib.attention import MultiHeadAttention, attention_logits
from pe_lib.deberta import DeBERTa
from pe_lib.encoding import NoPosition, axes_of, relative_position
from pe_lib.fire import fire_ratio
from pe_lib.kerple import kerple_log, kerple_power
from pe_lib.learned import Learned
from pe_lib.recent.axes import (
    AxesRoPE,
    axes_angles,
    golden_directions,
    section_directions,
    text_image_positions,
    width_directions,
)
from pe_lib.rope import RoPE, apply_rope, rope_angles
from pe_lib.shaw import Shaw, clipped_row, shaw_logits
from pe_lib.sinusoidal import Sinusoidal, frequencies, sinusoidal
from pe_lib.t5 import T5Bias, t5_bucket
from pe_lib.transformer_xl import TransformerXL
from tools import bench, nbval_pictures, refresh
from tools import live as workshop

NAMES = sorted(live.starts())
LEAST = 200  # values of each figure
OWN_SCRIPTS = 61_500  # bytes that a reader gets beside the parts of d3
GAPS = torch.arange(-128, 129, dtype=torch.float64) / 4  # where curves over a distance are drawn
COLUMN, PHONE = workshop.WIDE, workshop.NARROW

State = dict[str, Any]


def flat(values: Any) -> np.ndarray:
    """Return nested lists, tensors and numbers in one row."""
    if isinstance(values, dict):
        values = [values[key] for key in sorted(values)]
    if isinstance(values, list | tuple):
        return np.concatenate([flat(each) for each in values]) if values else np.zeros(0)
    return np.asarray(values, dtype=np.float64).reshape(-1)


# What the figures show, by pe_lib. Each function takes a figure's state, and what the figure drew
# at random or by hand; it returns numbers under the names that the figure has for them.


def rope_score(state: State, found: State) -> State:
    inv_freq = frequencies(state["d"], state["base"])
    q, k = (
        torch.tensor(found[each], dtype=torch.float64).flatten() for each in ("queries", "keys")
    )

    def at(x, places):
        return apply_rope(x.expand(len(places), -1), rope_angles(places, inv_freq))

    m, n = (torch.tensor([state[each] + state["shift"]]) for each in ("m", "n"))
    keys = at(k, GAPS)
    pair = slice(2 * state["pair"], 2 * state["pair"] + 2)
    return {
        "rates": inv_freq,
        "score": (at(q, m) * at(k, n)).sum(),
        "curve": keys @ q,
        "own": keys[:, pair] @ q[pair],
    }


def clock_hands(state: State, found: State) -> State:
    def code(places):
        places = torch.as_tensor(places, dtype=torch.float64)
        return sinusoidal(places, state["d"], state["base"], dtype=torch.float64)

    both = code([state["p"], state["other"]])
    return {
        "rates": frequencies(state["d"], state["base"]),
        "codes": both,
        "likeness": both[0] @ both[1],
        "curve": code(2 * GAPS[0] + torch.arange(513) / 4) @ code(0),
    }


def sentence_scores(state: State, found: State) -> State:
    x = torch.tensor(found["vectors"], dtype=torch.float64)[None]  # (1, L, D), one head
    length, width = x.shape[1:]
    drawn = {key: torch.tensor(each, dtype=torch.float64) for key, each in found["learned"].items()}
    encoding = {
        "none": NoPosition,
        "sinusoidal": lambda: Sinusoidal(width),
        "learned": lambda: Learned(len(drawn["table"]), width),
        "shaw": lambda: Shaw(width, len(drawn["shaw"]) // 2, with_values=False),
        "transformer_xl": lambda: TransformerXL(width, 1),
        "t5": lambda: T5Bias(1, len(drawn["t5"]), 16),
        "deberta": lambda: DeBERTa(width, 1, len(drawn["rows"]) // 2),
        "alibi": lambda: ALiBi(4, symmetric=True),  # of which the first costs 1/4
        "rope": lambda: RoPE(width),
    }[state["method"]]().double()
    parts = {  # what the figure drew takes the place of what pe_lib draws
        "table": drawn["table"] if state["method"] == "learned" else drawn["t5"][:, None],
        "key_table": drawn["shaw"],
        "u": drawn["u"][None],
        "v": drawn["v"][None],
        "r_proj.weight": drawn["r"],
        "query_proj.weight": drawn["queries"],
        "query_proj.bias": torch.zeros(width),
        "key_proj.weight": drawn["keys"],
    }
    if state["method"] == "deberta":
        parts["table"] = drawn["rows"]
    held = dict(encoding.named_parameters()) | dict(encoding.named_buffers())
    with torch.no_grad():
        for key in held.keys() & parts.keys():
            held[key].copy_(parts[key])
        heads = encoding.embed(x, torch.arange(length))[None]  # (1, 1, L, D)
        heads = heads.expand(1, 4 if state["method"] == "alibi" else 1, -1, -1)
        scores = attention_logits(heads, heads, encoding, range(length), range(length))[0, 0]
    return {"scores": scores, "weights": scores.softmax(-1)}


def wavelengths(state: State, found: State) -> State:
    width, base, trained = {
        "small": (32, 1e4, 128),
        "llama2": (128, 1e4, 4096),
        "llama31": (128, 5e5, 8192),
        "qwen25": (128, 1e6, 32768),
        "deepseek": (64, 1e4, 4096),
        "gpt_oss": (64, 1.5e5, 4096),
    }[state["model"]]
    inv_freq, factor = frequencies(width, base), state["factor"]
    first, cut = int((inv_freq * trained >= 2 * torch.pi).sum()), state["model"] != "gpt_oss"
    changed = {
        "none": lambda: inv_freq,
        "interpolation": lambda: rope_scaling.position_interpolation(inv_freq, factor),
        "ntk": lambda: rope_scaling.ntk_aware(inv_freq, factor),
        "dynamic": lambda: rope_scaling.dynamic_ntk(inv_freq, 2, trained, int(factor * trained)),
        "llama3": lambda: rope_scaling.llama3(inv_freq, factor, trained),
        "yarn": lambda: rope_scaling.yarn(
            inv_freq, factor, trained, fast=min(32, trained / (2 * torch.pi)), truncate=cut
        ),
        "base": lambda: frequencies(width, base * factor ** (width / 2 / first)),
    }[state["rule"]]()
    reached = [
        (each * length).clamp(max=2 * torch.pi)
        for each, length in ((inv_freq, trained), (changed, factor * trained))
    ]
    around = inv_freq * trained >= 2 * torch.pi
    return {
        "rates": inv_freq,
        "changed": changed,
        "unseen": reached[1] > reached[0] * (1 + 1e-6),
        "moved": around & (changed < 0.95 * inv_freq),
        "seen": reached[0] / (2 * torch.pi),
        "now": reached[1] / (2 * torch.pi),
    }


def penalties(state: State, found: State) -> State:
    distance = torch.arange(128, dtype=torch.float64)
    slopes = alibi_slopes(state["heads"]).double()
    r1, r2, c = (torch.tensor([state[each]], dtype=torch.float64) for each in ("r1", "r2", "c"))
    reach = torch.tensor(64.0, dtype=torch.float64)
    taken = {
        "alibi": lambda: alibi(-distance, slopes, symmetric=True)[state["head"] - 1],
        "kerple_log": lambda: kerple_log(-distance, r1, r2)[0],
        "kerple_power": lambda: kerple_power(-distance, r1, r2)[0],
        "fire": lambda: -r1 * fire_ratio(torch.tensor([127]), 127 - distance, c[0], reach)[0],
    }[state["method"]]()
    weights = taken.softmax(0)
    window = int((weights.cumsum(0) < 0.95).sum()) + 1
    return {"slopes": slopes, "penalties": taken, "weights": weights, "window": window}


def permutations(state: State, found: State) -> State:
    x = torch.tensor(found["vectors"], dtype=torch.float64)  # (L, D)
    encoding = Sinusoidal(16) if state["knows"] == "codes" else NoPosition()
    layer = MultiHeadAttention(16, 1, encoding, causal=state["knows"] == "mask", embedded=True)
    matrices = {k: torch.tensor(each, dtype=torch.float64) for k, each in found["made"].items()}
    layer = layer.double()
    with torch.no_grad():
        for key, matrix in matrices.items():
            getattr(layer, f"{key}_proj").weight.copy_(matrix)
        layer.out_proj.weight.copy_(torch.eye(16))

    @torch.no_grad()
    def read(order):
        output, weights = layer.with_weights(encoding.embed(x[order][None], torch.arange(len(x))))
        return output[0], weights[0, 0]

    order = [word for word in state["order"] if word < len(x)]
    outputs, weights = read(order)
    change = (outputs - read(list(range(len(x))))[0][order]).abs().max()
    return {"outputs": outputs, "weights": weights, "change": change}


def shaw_rows(state: State, found: State) -> State:
    table, query = (torch.tensor(found[key], dtype=torch.float64) for key in ("vectors", "vector"))
    clip, places = state["clip"], torch.arange(10)
    added = shaw_logits(query[None, None, None], table, [state["query"]], places) / 8**0.5
    return {
        "rows": clipped_row(relative_position(places, places), clip),
        "products": table @ query / 8**0.5,
        "added": added,
    }


def t5_buckets(state: State, found: State) -> State:
    both = state["sides"] == "both"

    def bucket(relative):
        return t5_bucket(relative, state["buckets"], state["most"], bidirectional=both)

    here = bucket(torch.tensor(state["key"] - state["query"]))
    relative = relative_position(torch.arange(64), torch.arange(64))
    sharing = (bucket(relative) == here) & (both | (relative <= 0))
    return {"staircase": bucket(torch.arange(-140, 141)), "bucket": here, "pairs": sharing.sum()}


def axes(state: State, found: State) -> State:
    image = (1, 12, 12)
    numbers = axes_of(text_image_positions([image] if state["what"] == "image" else [4, image, 4]))
    numbers = numbers[0]
    plane, inv_freq = numbers[:, 1:], frequencies(64, 10)
    wanted = torch.tensor([[0, state["down"], state["right"]]])
    tokens, directions, wish = {
        "line": lambda: (
            torch.arange(len(numbers))[:, None],
            inv_freq[:, None],
            wanted[:, 1:2] * 12 + wanted[:, 2:],
        ),
        "axial": lambda: (plane, width_directions([32, 32], 10), wanted[:, 1:]),
        "sections": lambda: (numbers, section_directions(inv_freq, [8, 12, 12]), wanted),
        "golden": lambda: (plane, golden_directions(inv_freq), wanted[:, 1:]),
    }[state["how"]]()
    even = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(directions))[None, None, None]
    key = apply_rope(even, -axes_angles(wish, directions))
    chosen = tokens[state["place"] : state["place"] + 1]
    q, keys = AxesRoPE(even.shape[-1], directions).rotate_axes(
        even, key.expand(-1, -1, len(tokens), -1), chosen, tokens
    )
    pairs = (q * keys).unflatten(-1, (-1, 2)).sum(-1)[0, 0] / len(directions)  # (tokens, pairs)
    sections = {"axial": (16, 16), "sections": (8, 12, 12)}.get(state["how"], (32,))
    return {
        "tokens": tokens,
        "directions": directions,
        "scores": pairs.sum(-1),
        "parts": [part.sum() for part in pairs[state["key"]].split(sections)],
    }


def four_terms(state: State, found: State) -> State:
    x = torch.tensor(found["vectors"], dtype=torch.float64)  # (L, D)
    places = torch.arange(len(x)) + state["first"]
    p = state["position"] * sinusoidal(places, 16, 100, dtype=torch.float64)
    terms = expand(x, p, *torch.tensor(found["made"], dtype=torch.float64))
    terms = [term / 4 for term in terms]
    scores = sum(
        (term * state[key] for term, key in zip(terms, ("cc", "cp", "pc", "pp"), strict=True)),
        torch.zeros(len(x), len(x), dtype=torch.float64),
    )
    return {"terms": terms, "scores": scores, "weights": scores.softmax(-1)}


def needs_of(state: State) -> choosing.Needs:
    kept = {key: value for key, value in state.items() if key != "d"}
    return choosing.Needs(**kept, head_dim=state["d"])


def chooser(state: State, found: State) -> State:
    known, kinds = sorted(choosing.facts()), sorted(choosing.REASONS)
    return {
        "verdicts": [
            [known.index(key), each.status, -1 if each.worst is None else each.worst]
            + [
                [kinds.index(kind), value, at, of is not None and of.tuned]
                for kind, value, at, of in each.reasons
            ]
            for key, each in choosing.choose(needs_of(state)).items()
        ]
    }


def whole_numbers(text: str, size: float, width: int) -> torch.Tensor:
    held = np.frombuffer(base64.b64decode(text), dtype=np.int8).astype(np.float64)
    return torch.tensor(held * size).unflatten(0, (-1, width))  # (L or 1, d)


def heads(state: State, found: State) -> State:
    held = live.data("heads")[state["head"]]
    length, width, slow = len(held["tokens"]), held["d"], state["slow"]
    names, sizes = ("q", "k", "q_mean", "k_mean"), held["sizes"] * 2
    rows = [whole_numbers(held[name], size, width) for name, size in zip(names, sizes, strict=True)]
    q, k, q_mean, k_mean = (x.expand(length, width) for x in rows)
    base = held["base"] and frequencies(width, held["base"])
    trained = torch.zeros(width // 2).double() if base is None else base
    inv_freq = trained / slow
    inv_freq[: state["fast"]] = inv_freq[width // 2 - state["last"] :] = 0
    places = torch.arange(length)
    back = places[:, None] - places

    def scores(q, k, inv_freq, slow):
        logits = attention_logits(
            q[None, None], k[None, None], RoPE(width, inv_freq=inv_freq).double(), places, places
        )[0, 0]
        bias = torch.tensor(held["bias"] or [0.0] * length, dtype=torch.float64)
        return logits + bias[back.abs() // slow]

    def curve(scores):
        first = 0 if held["causal"] else 1 - length
        return [scores.diagonal(-n).mean() for n in range(first, length)]

    average = scores(q_mean, k_mean, inv_freq, slow)
    shown = scores(q, k, inv_freq, slow) if state["whose"] == "text" else average
    if held["causal"]:
        shown = shown.masked_fill(back < 0, -torch.inf)
    pairs = [x.unflatten(-1, (-1, 2)).norm(dim=-1) for x in (rows[2][0], rows[3][0])]
    return {
        "rates": inv_freq,
        "weights": shown.softmax(-1),
        "curve": curve(average),
        "before": curve(scores(q_mean, k_mean, trained, 1)),
        "sizes": pairs[0] * pairs[1] / width**0.5,
    }


ORACLES = {
    each.__name__: each
    for each in (rope_score, clock_hands, sentence_scores, wavelengths, penalties, permutations)
} | {each.__name__: each for each in (shaw_rows, t5_buckets, axes, four_terms, chooser)}
ORACLES["heads"] = heads
DRAGGED = [name for name in NAMES if name != "chooser"]  # figures with handles


def any_needs(count: int) -> list[State]:
    """Return as many settings of the chooser, with numbers drawn at random."""
    draw = random.Random(17)
    return [
        {
            "what": draw.choice(choosing.WHAT),
            "keep": draw.choice(list(choosing.KEEP)),
            "trained": 2 ** draw.randint(5, 17),
            "context": 2 ** draw.randint(5, 21),
            "cache": draw.choice(choosing.CACHES),
            "kernel": draw.choice(choosing.KERNELS),
            "parameters": draw.choice([0, 100, 10**3, 10**4, 10**6, 10**7, 10**8, 10**9]),
            "d": draw.choice([16, 32, 64, 128, 256]),
            "small": draw.random() < 0.2,
            "finished": draw.random() < 0.2,
            "tuned": draw.random() < 0.4,
        }
        for _ in range(count)
    ]


def all_needs(what: str) -> list[State]:
    """Return all settings of the chooser's lists and switches, at half to 32 times the length."""
    words = (["all", *choosing.KEEP], choosing.CACHES, choosing.KERNELS)
    switches = ([10**9, 0], *3 * [[False, True]])
    names = ("context", "keep", "cache", "kernel", "parameters", "small", "finished", "tuned")
    lengths = [2**power for power in range(11, 18)]
    return [
        dict(zip(names, each, strict=True), what=what, trained=4096, d=64)
        for each in itertools.product(lengths, *words, *switches)
    ]


# States beside the first one, as what differs from it.
STATES: dict[str, list[State]] = {
    "rope_score": [
        {"m": 5, "n": 2, "shift": 731, "d": 64, "pair": 3, "content": "random"},
        {"m": 0, "n": 32, "d": 128, "base": 500000, "pair": 40, "q": [-1.2, 0.7]},
        {"m": 9, "n": 9, "d": 8, "base": 25, "pair": 1, "content": "one", "k": [0.1, -2]},
    ],
    "clock_hands": [
        {"p": 628.3, "other": 0, "d": 128, "base": 10000},
        {"p": 17.5, "other": 999.9, "d": 2, "base": 2},
        {"p": 40, "other": 41, "d": 32, "base": 500000},
    ],
    "wavelengths": [
        {"model": model, "rule": rule, "factor": factor, "pair": 5}
        for model in ("small", "llama2", "qwen25", "deepseek", "gpt_oss")
        for rule, factor in (("none", 1), ("interpolation", 4), ("ntk", 32), ("yarn", 32))
    ]
    + [
        {"model": "llama31", "rule": rule, "factor": 8}
        for rule in ("llama3", "dynamic", "yarn", "base")
    ],
    "penalties": [
        {"head": 8},
        {"heads": 12, "head": 11},
        {"heads": 1, "head": 1},
        {"heads": 5, "head": 5},
        {"method": "kerple_log", "r1": 2.5, "r2": 0.32},
        {"method": "kerple_power", "r1": 0.1, "r2": 0.5},
        {"method": "fire", "r1": 5, "c": 1},
    ],
    "axes": [
        {"what": what, "how": how, "place": 20, "key": 75, "down": -2, "right": 3}
        for what in ("image", "text")
        for how in ("line", "axial", "sections", "golden")
    ]
    + [{"what": "text", "how": "sections", "place": 2, "key": 150}],
    "four_terms": [
        {"order": "shuffled", "content": 0.5, "cp": False},
        {"first": 40, "position": 2, "cc": False, "pp": False},
        {"turn": -45, "query": 3, "key": 3, "pc": False},
        {"cc": False, "cp": False, "pc": False, "pp": False},
        {"turn": 90, "order": "shuffled"},
    ],
    "permutations": [
        {"order": [2, 5, 1, 4, 0, 3, 6], "knows": knows} for knows in ("nothing", "codes", "mask")
    ]
    + [{"order": [6, 0, 5, 1, 4, 2, 3], "knows": "codes", "sentence": "to be or not to be so"}],
    "shaw_rows": [
        {"clip": 1, "query": 9, "key": 0},
        {"clip": 9, "query": 0},
        {"clip": 4, "query": 5, "key": 5},
    ],
    "t5_buckets": [
        {"buckets": 8, "most": 64, "query": 0, "key": 63},
        {"buckets": 64, "most": 512, "sides": "past", "query": 63, "key": 0},
        {"buckets": 32, "most": 91, "key": 44},
        {"sides": "past", "key": 3},
    ],
    "chooser": any_needs(240),
    "heads": [
        {"head": head, "whose": whose, "query": 9, "key": 4}
        for head in live.data("heads")
        for whose in ("text", "average")
    ]
    + [{"fast": 1}, {"fast": 2, "last": 3, "slow": 4}, {"last": 7}, {"head": "t5", "slow": 4}],
    "sentence_scores": [
        {"method": method, "contents": contents, "sentence": "to be or not to be, is it?"}
        for method in ("none", "sinusoidal", "learned", "shaw", "transformer_xl", "t5", "deberta")
        for contents in ("alike", "own")
    ]
    + [{"method": "alibi", "contents": "own"}, {"method": "rope", "contents": "own", "key": 11}],
}


# A second script's figures join the first one's; each reads its links with its own.
BESIDE = """const first = window.Live, own = Object.values(Live.FIGURES);
  window.Live = {...first, FIGURES: {...first.FIGURES, ...Live.FIGURES},
    fromLink: (text, f) => (own.includes(f) ? Live : first).fromLink(text, f)};"""


@pytest.fixture(scope="module")
def tab(browser):
    """Open a tab with the figures' scripts and no figure."""
    page = browser.new_page()
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_content(workshop.page())
    for path in live.SCRIPTS[1:]:
        page.evaluate(f"() => {{ {path.read_text(encoding='utf-8')}; {BESIDE} }}")
    for name in filter(live.data, NAMES):
        stored = json.loads(json.dumps(live.data(name), sort_keys=True))  # as in a notebook
        page.evaluate("([n, data]) => { Live.FIGURES[n].data = data; }", [name, stored])
    yield page
    page.close()


def told(tab, function: str, given: Any) -> Any:
    """Return what a function of the page makes of what it is given, both ways as text.

    Numbers that are not finite come back as None. A list of lists is told so in a moment, where
    Playwright takes its time over each number.
    """
    return json.loads(
        tab.evaluate(
            f"async text => JSON.stringify(await ({function})(JSON.parse(text)))",
            json.dumps(given),
        )
    )


def states_of(name: str) -> list[State]:
    start = live.starts()[name]["state"]
    return [start, *({**start, **change} for change in STATES.get(name, []))]


def wrong(found: State, expected: State) -> Iterator[str]:
    """Yield the names of the numbers that differ by more than rounding."""
    for key, value in expected.items():
        got, want = flat(found[key]), flat(value)
        if got.shape != want.shape or not np.allclose(got, want, rtol=1e-7, atol=1e-9):
            yield key


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_shows_the_numbers_of_the_library(name, tab):
    compared = 0
    for state in states_of(name):
        found = told(tab, "([n, s]) => Live.FIGURES[n].numbers(s)", [name, state])
        expected = ORACLES[name](state, found)
        assert list(wrong(found, expected)) == [], state
        compared += sum(flat(value).size for value in expected.values())
    assert compared >= LEAST


@pytest.mark.parametrize("what", choosing.WHAT)
def test_the_page_chooses_as_the_library_in_all_settings(what, tab):
    states = all_needs(what)
    ask = "states => states.map(state => Live.FIGURES.chooser.numbers(state).verdicts)"
    for found, state in zip(told(tab, ask, states), states, strict=True):
        expected = chooser(state, {})["verdicts"]
        assert [[*each[:3], *flat(each[3:])] for each in expected] == found, state


def test_the_chooser_reads_what_the_library_knows():
    assert live.data("chooser") == json.loads(json.dumps(choosing.data()))


def test_every_reason_leads_to_a_page_of_the_book():
    for words, target in choosing.REASONS.values():
        page, _, anchor = target.partition("#")
        text = (workshop.ROOT / "book" / f"{page}.ipynb").read_text(encoding="utf-8")
        heading = anchor.replace("-", " ").capitalize()
        assert f'"## {heading}' in text
        assert words[0].islower() or words[0] in "{3"


def test_a_quarter_turn_acts_on_every_pair_of_a_query(tab):
    made = "turn => Live.FIGURES.four_terms.numbers({...Live.FIGURES.four_terms.start, turn}).made"
    (q, k), (turned, same) = (torch.tensor(tab.evaluate(made, turn)) for turn in (0, 90))
    assert torch.allclose(turned, q @ torch.block_diag(*8 * [torch.tensor([[0.0, 1], [-1, 0]])]))
    assert torch.equal(k, same)


def test_a_turned_query_prefers_one_side(tab):
    ask = "turn => Live.FIGURES.four_terms.numbers({...Live.FIGURES.four_terms.start, turn})"
    position = torch.tensor(tab.evaluate(ask, 90)["terms"][3])
    assert position.diagonal(-1).min() > 0.4 and position.diagonal(1).max() < 0.1


def test_a_sentence_keeps_its_case_and_its_language_and_says_what_it_leaves_out(stage):
    def drawn(sentence):
        page = shown(
            stage,
            "sentence_scores",
            state=live.starts()["sentence_scores"]["state"] | {"sentence": sentence},
        )
        labels = page.locator(".live-stage svg text").all_text_contents()
        return labels, page.locator(".live-words").text_content()

    labels, said = drawn("Hello, Donaudampfschiffe: don’t (hello)!")
    assert {"Hello", "hello", "don’t"} <= set(labels) and "left out" not in said
    assert {"我", "喜欢", "猫"} <= set(drawn("我喜欢猫")[0])
    assert {"🐶", "bites", "👩‍🚀", "🇩🇪"} <= set(drawn("🐶 bites: 👩‍🚀, 🇩🇪!")[0])
    assert "left out at the end: 2" in drawn(" ".join("abcdefghijklmnop"))[1]
    for name in ("permutations", "sentence_scores"):
        state = live.starts()[name]["state"] | {"sentence": "a" * 120}
        shown(stage, name, PHONE, state=state).locator(".live-more summary").click()
        assert stage.evaluate("document.documentElement.scrollWidth") <= PHONE
    scores = stage.evaluate("""state => {  // browsers differ in what they call a word
      Intl.Segmenter.prototype.segment = text => [...text].map(segment => ({ segment }));
      return Live.FIGURES.sentence_scores.numbers(state).scores;
    }""", state | {"sentence": "2狗🐶-!"})  # fmt: skip
    assert len(scores) == 3


OWN_WORDS = (
    "שלום 63% abcשלום مرحبا Donaudampfschifffahrtsgesellschaft WWWWWWWWWWWWWWWWWWWW สวัสดีชาวโลก"
)


@pytest.mark.parametrize("width", [COLUMN, PHONE])
@pytest.mark.parametrize("name", ["sentence_scores", "permutations"])
def test_typed_words_keep_to_their_direction_and_their_room(name, width, stage):
    page = shown(stage, name, width, state=live.starts()[name]["state"] | {"sentence": OWN_WORDS})
    said = page.locator(".live-words").text_content()
    assert said.count("\u2068") == said.count("\u2069") == 2 and "“\u2068" in said
    assert page.locator(".live-text input").get_attribute("dir") == "auto"
    labels = page.evaluate("""() => {
      const others = [...document.querySelectorAll('.live-stage :is(.frame, circle[role=slider])')];
      return [...document.querySelectorAll('.live-stage svg text[text-anchor=end]')]
        .filter(e => /\\p{L}/u.test(e.textContent)).map(e => {
          const own = e.getBoundingClientRect(), title = e.querySelector('title')?.textContent;
          const inside = others.some(each => {
            const box = each.getBoundingClientRect();
            return own.left < box.right && box.left < own.right
              && own.top < box.bottom && box.top < own.bottom;
          });
          return [title ? e.firstChild.data : e.textContent, title ?? null, inside];
        });
    }""")
    assert {"שלום", "abcשלום"} <= {words for words, _, _ in labels}
    cut = {title: words for words, title, _ in labels if title}
    assert {"Donaudampfschifffahrtsgesellschaft", "W" * 20} <= set(cut) <= set(OWN_WORDS.split())
    assert all(each.endswith("…") and whole.startswith(each[:-1]) for whole, each in cut.items())
    assert not any(over for _, _, over in labels)


def test_scripts_of_our_own_are_light():
    beside = (workshop.ROOT / "book" / "assets" / "course.js").stat().st_size
    for path in live.SCRIPTS:  # of which a page has one
        header = path.read_text(encoding="utf-8").splitlines()[0]
        of_figures = int(re.search(r"(\d+) bytes of our own", header)[1])
        assert 10_000 < of_figures <= OWN_SCRIPTS - beside


def test_no_name_that_a_script_shortens_is_one_that_its_data_has():
    for path in workshop.WEB.glob("*.json"):
        if path.stem in NAMES:
            found = set(re.findall(r'"(\w+)":', path.read_text(encoding="utf-8")))
            assert found.isdisjoint(workshop.INSIDE), path.name


def test_the_style_has_the_colours_of_all_figures():
    assert f"/* colours */\n{workshop.colours()}\n/* end" in live.STYLE.read_text(encoding="utf-8")


def test_what_moves_glides_and_what_is_played_goes_on(stage):
    page = shown(stage, "rope_score")
    page.emulate_media(reduced_motion="no-preference")
    tip = page.locator(".live-stage [role=slider]").first
    places = set()
    page.get_by_role("button", name="Play").click()
    for _ in range(12):
        places.add(tip.get_attribute("cx"))
        page.wait_for_timeout(50)
    page.get_by_role("button", name="Stop").click()
    assert len(places) > 4  # more than the positions that were passed
    assert re.search("Query at [2-9],", page.locator(".live-words").text_content())


@pytest.mark.parametrize(
    ("name", "label", "part"),
    [
        ("wavelengths", "length, × that of training", ".fill.key"),
        ("shaw_rows", "query alone", "path.above"),
    ],
)
def test_what_a_slider_changes_glides_there(name, label, part, stage):
    page = shown(stage, name)
    page.emulate_media(reduced_motion="no-preference")
    page.locator(".live-more").evaluate("e => { e.open = true; }")
    seen = page.evaluate(
        """async ([label, part]) => {
      const name = [...document.querySelectorAll('label')].find(e => e.textContent === label);
      const input = document.getElementById(name.htmlFor), seen = new Set();
      input.value = input.max;
      input.dispatchEvent(new Event('input'));
      for (let frame = 0; frame < 20; frame++) {
        await new Promise(requestAnimationFrame);
        const drawn = document.querySelectorAll(`.live-stage svg ${part}`);
        seen.add([...drawn].map(e => e.outerHTML).join());
      }
      return seen.size;
    }""",
        [label, part],
    )
    assert seen > 8


def test_a_glide_takes_its_time_in_whatever_frames(stage):
    page = shown(stage, "rope_score")
    page.emulate_media(reduced_motion="no-preference")
    tip = page.locator(".live-stage [role=slider]").first
    page.evaluate("window.requestAnimationFrame = call => setTimeout(call, 200)")
    page.locator(".live-figure > .live-controls input").press("End")
    page.wait_for_timeout(1500)  # a handful of frames
    late = tip.get_attribute("cx")
    page.wait_for_timeout(1500)
    assert late == tip.get_attribute("cx")


@pytest.mark.parametrize("name", ["axes", "clock_hands", "penalties", "rope_score"])
def test_keys_that_come_faster_than_a_frame_all_count(name, stage):
    presses = """([e, keys]) => keys.forEach(key =>
      e.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true})))"""
    found = []
    for pause in (False, True):
        page = shown(stage, name)
        handle = page.locator(".live-stage [role=slider]").last
        for keys in [["ArrowLeft"]] * 3 if pause else [["ArrowLeft"] * 3]:
            page.evaluate(presses, [handle.element_handle(), keys])
            page.evaluate(SETTLED)
        found.append(handle.get_attribute("aria-valuetext"))
    assert found[0] == found[1]


@pytest.mark.parametrize("path", live.SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_made_of_the_sources(path):
    assert workshop.digest() in path.read_text(encoding="utf-8").splitlines()[0]


def test_the_script_is_what_the_bundler_makes(tmp_path, monkeypatch):
    if shutil.which("npm") is None:
        left_out("npm is missing: it brings the bundler")
    for path in live.SCRIPTS:
        assert workshop.script(path) == path.read_text(encoding="utf-8")
    assert bench.script() == bench.SCRIPT.read_text(encoding="utf-8")  # with the same bundler


# In the browser ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage(browser):
    """Open a tab in which figures are shown, one after the other."""
    page = browser.new_page()
    page.set_default_timeout(20_000)
    page.on("pageerror", lambda error: page.errors.append(str(error)))
    yield page
    page.close()


def shown(
    page, name: str, width: int = COLUMN, *, scheme: str = "light", state: State | None = None
):
    """Show a page with one figure as the site has it; return it, with the errors it then has."""
    page.goto("about:blank")  # which takes along all that the figure before it left
    page.errors = []
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 900})
    page.set_content(workshop.page(name, state or live.starts()[name]["state"], scheme))
    page.wait_for_selector(".live-words:not(:empty)")
    page.evaluate("document.fonts.ready")
    return page


PICTURE = "() => document.querySelector('.live-stage').innerHTML"
SETTLED = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
CONTROLS = ".live-controls :is(input, select), .live-stage :is([role=slider], [role=button])"
# A control, found and focused when the figure has started again; the picture stays in the page.
FOCUSED = f"""async index => {{
  [...document.querySelectorAll('.live-tools button')]
    .find(e => e.textContent === 'Start again').click();
  await ({SETTLED})();
  const e = document.querySelectorAll('{CONTROLS}')[index];
  window.before = ({PICTURE})(); e.focus();
  const [role, name] = ['role', 'aria-label'].map(each => e.getAttribute(each));
  return [e.type ?? role, name || e.id, !e.checkVisibility()];
}}"""
CHANGED = f"async () => {{ await ({SETTLED})(); return ({PICTURE})() !== window.before; }}"


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_keeps_its_place_its_words_and_on_a_phone_one_control_with_its_result(name, stage):
    known = live.starts()[name]
    for width, kept in ((COLUMN, known["wide"]), (PHONE, known["narrow"])):
        page = shown(stage, name, width)
        box = page.locator(".live-figure").bounding_box()
        assert box["height"] == pytest.approx(kept, abs=2)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert known["alt"].endswith(page.locator(".live-words").text_content())
        assert page.evaluate("name => Live.FIGURES[name].start", name) == known["state"]
        parts = page.locator(".live-figure *")
        named = parts.evaluate_all("all => all.flatMap(e => e.getAttributeNames())")
        short = {each for each in named if len(each) < 3}
        assert short <= {"id", "x", "y", "r", "d", "cx", "cy", "x1", "x2", "y1", "y2", "dy"}
    assert width == PHONE  # the last that was shown
    first = page.locator(".live-figure > .live-controls > :not([hidden])")
    assert first.count() == 1
    result = page.locator(".live-stage").bounding_box()
    assert result["y"] + result["height"] - first.bounding_box()["y"] <= 844
    assert page.locator(".live-more").get_attribute("open") is None


@pytest.mark.parametrize("name", NAMES)
def test_every_control_and_every_handle_works_with_the_keyboard(name, stage):
    page = shown(stage, name)
    page.locator(".live-more").evaluate_all("all => all.forEach(e => { e.open = true; })")
    for index in range(page.locator(CONTROLS).count()):
        kind, label, hidden = page.evaluate(FOCUSED, index)
        if hidden or kind == "radio":
            continue
        if kind in ("checkbox", "button"):
            page.keyboard.press("Space")
        elif kind == "text":
            page.keyboard.press("Home")
            page.keyboard.type("dog ")
        else:
            for key in ("ArrowRight", "ArrowLeft", "ArrowDown", "ArrowUp"):
                page.keyboard.press(key)
                if page.evaluate(CHANGED):
                    break
        assert page.evaluate(CHANGED), label
        assert page.evaluate("document.activeElement !== document.body"), label
    for group in page.locator(".live-choice:not([hidden])").all():
        for option in group.locator("input").all():
            option.focus()
            page.keyboard.press("Space")
            assert option.is_checked()
    page.wait_for_function("() => document.querySelector('.live-spoken').textContent")
    page.evaluate(SETTLED)
    words = page.locator(".live-words").text_content()
    page.wait_for_function(
        "words => document.querySelector('.live-spoken').textContent === words", arg=words
    )
    page.get_by_role("button", name="Start again").click()
    page.evaluate(SETTLED)
    assert live.starts()[name]["alt"].endswith(page.locator(".live-words").text_content())
    assert page.errors == []


@pytest.mark.parametrize("name", DRAGGED)
def test_handles_follow_the_pointer(name, stage):
    page = shown(stage, name)
    handle = page.locator(".live-stage [role=slider]").first
    box = handle.bounding_box()
    start = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    end = start[0] - 30, start[1] + 45
    before = handle.get_attribute("aria-valuetext")
    page.mouse.move(*start)
    page.mouse.move(*end, steps=3)
    page.evaluate(SETTLED)
    passed_over = handle.get_attribute("aria-valuetext")
    assert (passed_over != before) == (name == "sentence_scores"), "what only passes over it"
    page.mouse.move(*start)
    page.evaluate(SETTLED)
    page.mouse.down()
    page.mouse.move(*end, steps=3)
    page.mouse.up()
    page.evaluate(SETTLED)
    assert handle.get_attribute("aria-valuetext") != before


@pytest.fixture(scope="module", params=NAMES)
def looks(request, stage, axe):
    """Show a figure in light and dark: what keeps somebody out, and its words with their inks."""
    found = []
    for scheme, rules in (("light", {}), ("dark", ONLY_COLOURS)):  # all else is alike in both
        page = shown(stage, request.param, scheme=scheme)
        page.evaluate(axe)
        found.append((serious(page.evaluate(AXE, rules)), page.evaluate(INKS)))
    return found


def test_a_figure_keeps_nobody_out(looks):
    assert [violations for violations, _ in looks] == [[], []]


def test_words_in_a_picture_stand_out_from_its_ground(looks):
    """4.5 to 1, as WCAG 1.4.3 asks; the checker of a page passes over drawings."""
    grounds = {"light": 1.0, "dark": 0.0091}
    for (scheme, ground), (_, inks) in zip(grounds.items(), looks, strict=True):
        for words, ink in inks:
            light, dark = max(ink, ground) + 0.05, min(ink, ground) + 0.05
            assert light / dark >= 4.5, (scheme, words)


@pytest.mark.parametrize("name", NAMES)
def test_a_link_brings_a_state_back(name, tab):
    there_and_back = """([n, states]) => {
      const figure = Live.FIGURES[n];
      return states.map(s => Live.fromLink(Live.toLink(s, figure.start), figure));
    }"""
    states = states_of(name)[1:]
    assert told(tab, there_and_back, [name, states]) == states


@pytest.mark.parametrize("name", NAMES)
def test_a_spoiled_link_brings_a_state_that_can_be_drawn(name, tab):
    keys = list(live.starts()[name]["state"])
    for value in ("", "nonsense", "-1e99", "1e99", "NaN", "%3Cb%3E", "2.5", "7,7"):
        text = "&".join(f"{key}={value}" for key in keys) + "&__proto__=1"
        state = tab.evaluate("([t, n]) => Live.fromLink(t, Live.FIGURES[n])", [text, name])
        numbers = told(tab, "([n, s]) => Live.FIGURES[n].numbers(s)", [name, state])
        assert np.isfinite(flat(numbers)).all(), (value, state)


def back(seen: State, places: int) -> float:
    return float(np.diagonal(seen["weights"], -places).mean())


def between_hands(seen: State) -> np.ndarray:
    """Return the cosine of the angle between both hands of each clock."""
    blue, orange = np.array(seen["codes"]).reshape(2, -1, 2)
    return (blue * orange).sum(-1)


def fitting(seen: State) -> set[str]:
    known = sorted(choosing.facts())
    return {known[each[0]] for each in seen["verdicts"] if each[1] == choosing.FITS}


# The answer that a figure calls right, and whether its numbers before and after bear it out.
# Where a curve is predicted, the numbers themselves are the answer.
ANSWERS = {
    "heads": (
        "itself and its neighbours",
        lambda old, new: (
            back(old, 1) > 0.9 and back(new, 0) > back(new, 1) > back(new, 2) > 0.1 > back(new, 3)
        ),
    ),
    "rope_score": (
        "both move on by 500",
        lambda old, new: (
            (old["m"], old["n"], new["shift"]) == (1, 3, 500)
            and np.isclose(old["score"], new["score"])
            and abs(rope_score(old | {"m": 3, "n": 1}, old)["score"] - old["score"]) > 1
        ),
    ),
    "clock_hands": (
        "in no clock",
        lambda old, new: (
            new["p"] == old["p"] + 100
            and np.allclose(between_hands(old), between_hands(new))
            and np.isclose(old["likeness"], new["likeness"])
        ),
    ),
    "wavelengths": ("10", lambda old, new: sum(new["unseen"]) == 10),
    "permutations": (
        "move with their words",
        lambda old, new: new["change"] < 1e-9 and new["outputs"] != old["outputs"],
    ),
    "sentence_scores": (
        "one shade",
        lambda old, new: np.ptp(new["scores"]) < 1e-9 < 0.1 < np.ptp(old["scores"]),
    ),
    "axes": (
        "its row",
        lambda old, new: (
            set(np.argsort(new["scores"])[-7:]) == {*range(63, 70)}
            and min(old["scores"][60:72] + old["scores"][6::12])
            > max(old["scores"][i] for i in (0, 11, 132, 143)) + 0.4
        ),
    ),
    "chooser": (
        "window hybrid",
        lambda old, new: (
            fitting(new) == {"hybrid"} and {"hybrid", "rope", "sinusoidal"} < fitting(old)
        ),
    ),
    "four_terms": (
        "position–position",
        lambda old, new: (
            [a == b for a, b in zip(old["terms"], new["terms"], strict=True)]
            == [False, False, False, True]
        ),
    ),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_that_a_figure_calls_right_is_right(name, tab):
    ask = """n => {
      const { start, numbers, asks } = Live.FIGURES[n];
      const seen = [start, {...start, ...asks.then}].map(s => ({...s, ...numbers(s)}));
      return [asks.options?.[asks.right], ...seen];
    }"""
    said, old, new = tab.evaluate(ask, name)
    right, holds = ANSWERS.get(name, (None, lambda old, new: old != new))
    assert said == right
    assert holds(old, new)


def test_what_the_drawn_answers_say_is_what_the_library_says():
    """Beyond the clip all read its row; a decoder's staircase; head 8's weights fall slowly."""
    start = {name: each["state"] for name, each in live.starts().items()}
    rows = clipped_row(torch.arange(-9, 10), 1)
    assert rows.tolist() == [0] * 9 + [1] + [2] * 9
    near = [
        t5_buckets(start["t5_buckets"] | {"sides": sides}, {})["staircase"]
        for sides in ("both", "past")
    ]
    alone = [sum(int((each[:140] == bucket).sum()) == 1 for bucket in range(32)) for each in near]
    assert alone == [7, 15]  # and the query itself
    weights = penalties(start["penalties"] | {"head": 8}, {})["weights"]
    assert weights[-1] > weights[0] / 2 and weights.max() < 0.02


def test_no_two_figures_ask_alike_and_the_right_answers_stand_at_all_places(tab):
    asks = tab.evaluate("""() => Object.values(Live.FIGURES)
      .map(({ asks: { options, right } }) => [options ?? null, right ?? null])""")
    offered = [frozenset(each) for each, _ in asks if each]
    assert not any(len(one & other) > 1 for one, other in itertools.combinations(offered, 2))
    places = [
        "first" if at == 0 else "last" if at == len(each) - 1 else "inner"
        for each, at in asks
        if each
    ]
    assert len(offered) < len(asks) == len(NAMES)  # some are drawn
    for place in ("first", "inner", "last"):
        assert 2 <= places.count(place) <= len(places) / 2, places


@pytest.mark.parametrize("name", NAMES)
def test_what_was_predicted_stands_beside_what_happens(name, stage):
    page = shown(stage, name)
    ask, told = page.locator(".live-predict > div"), page.locator(".live-predict > p")
    height = page.locator(".live-figure").bounding_box()["height"]
    curve = name not in ANSWERS
    if curve:
        assert ask.get_by_role("button", name="Check").is_disabled()
        mark = page.get_by_role("slider", name="predicted at").first
        before = mark.get_attribute("cy")
        mark.press("ArrowUp")
        page.evaluate(SETTLED)
        assert mark.get_attribute("cy") < before
    answer = "dashed" if curve else ask.get_by_role("button").first.text_content()
    ask.get_by_role("button").first.press("Enter")
    page.evaluate(SETTLED)
    assert told.evaluate("e => e === document.activeElement")  # which reads it aloud
    mine, happens = told.locator("span").all_text_contents()
    assert mine == f"Your prediction: {answer}"
    assert happens.startswith("What happens: ") and (curve or happens.endswith(ANSWERS[name][0]))
    pictures = ask.locator("button svg").count()
    assert told.locator("svg").count() == (2 if pictures else 0)
    assert page.locator(".live-stage .value.dashed").count() == curve
    assert page.locator(".live-figure").bounding_box()["height"] == pytest.approx(height, abs=2)
    page.get_by_role("button", name="Start again").click()
    assert ask.is_visible() and not told.is_visible()


def test_what_is_asked_rests_while_the_figure_is_in_another_state(stage):
    """The question speaks of the start: elsewhere its answers would be wrong, or in sight."""
    page = shown(stage, "axes")
    ask = page.locator(".live-predict")
    page.get_by_role("radio", name="golden").check()
    page.wait_for_selector(".live-predict[inert]")
    assert ask.bounding_box()["height"] > 0
    page.get_by_role("radio", name="one line").check()  # what is asked: it is told, unpredicted
    page.wait_for_selector(".live-predict.told:not([inert])")
    assert ask.locator("p").inner_text().startswith("What happens: its row")
    page.get_by_role("button", name="Start again").click()
    page.wait_for_selector(".live-predict:not(.told, [inert])")


LED_TO = {"shaw_rows": "clip=9", "t5_buckets": "most=256", "penalties": "head=1"}


@pytest.mark.parametrize("width", [COLUMN, PHONE])
@pytest.mark.parametrize("name", [each for each in NAMES if each not in ANSWERS])
def test_no_control_shows_a_curve_before_it_is_predicted_or_skipped(name, width, stage):
    """A link of the text may show another state."""
    for last in ("Check", "Skip"):
        page = shown(stage, name, width)
        veil, marks = page.locator(".veil"), page.get_by_role("slider", name="predicted at")
        level = marks.first.get_attribute("cy")
        assert veil.count() == 0
        page.locator(".live-more").evaluate("e => { e.open = true; }")
        if name == "t5_buckets":
            page.get_by_role("radio", name="the left").check()
        else:
            page.get_by_role("slider", name=re.compile("(clip|head shown)$")).press("ArrowRight")
        page.evaluate(SETTLED)
        assert veil.count() == 1 and marks.count() > 3
        assert marks.first.get_attribute("cy") == level
        marks.first.press("ArrowUp")
        page.evaluate(SETTLED)
        page.get_by_role("button", name=last).click()
        page.evaluate(SETTLED)
        assert veil.count() == marks.count() == 0
    page = shown(stage, name, width)
    page.evaluate("state => { location.hash = `#figure-0?${state}`; }", LED_TO[name])
    page.wait_for_selector(".live-predict[inert]")
    assert page.locator(".veil").count() == 0


def test_what_is_told_is_told_of_the_state_that_is_shown(stage):
    page = shown(stage, "sentence_scores")
    page.locator(".live-predict button").first.click()
    page.wait_for_selector(".live-predict.told")
    page.locator(".live-stage [role=slider]").press(
        "ArrowRight"
    )  # another pair: nothing is told of it
    page.evaluate(SETTLED)
    told = page.locator(".live-predict > p")
    assert told.is_visible() and "With none" in told.text_content()
    for method, holds in (("alibi", False), ("none", True)):
        page.get_by_role("combobox").first.select_option(method)
        page.evaluate(SETTLED)
        assert told.is_visible() == holds


@pytest.mark.parametrize("name", NAMES)
def test_a_link_to_what_a_figure_asks_about_asks_first(name, stage):
    page = shown(stage, name)
    link = """n => {
      const { start, asks } = Live.FIGURES[n];
      location.hash = `#figure-0?${Live.toLink({...start, ...asks.then}, start)}`;
    }"""
    page.evaluate(link, name)
    page.wait_for_function("document.activeElement.closest('.live-predict')")
    asked, words = page.locator(".live-predict > div"), page.locator(".live-words")
    assert asked.is_visible() and live.starts()[name]["alt"].endswith(words.text_content())
    page.get_by_role("button", name="Skip").click()
    page.evaluate(SETTLED)
    assert page.evaluate("location.hash") == page.locator(".live-tools a").get_attribute("href")


def test_back_undoes_what_links_did(stage):
    page = shown(stage, "rope_score", state=live.starts()["rope_score"]["state"] | {"m": 2})
    words = page.locator(".live-words")
    seen = [words.text_content()]
    for state in ("n=4", "shift=5"):
        page.evaluate("state => { location.hash = `#figure-0?${state}`; }", state)
        page.evaluate(SETTLED)
        seen.append(words.text_content())
    assert len(set(seen)) == 3
    steps = [("back", seen[1]), ("back", seen[0]), ("forward", seen[1]), ("forward", seen[2])]
    for way, words in [*steps, ("back", seen[1]), ("back", seen[0])]:
        page.evaluate(f"history.{way}()")
        page.wait_for_function(
            "words => document.querySelector('.live-words').textContent === words", arg=words
        )


def test_back_undoes_both_of_two_links_with_another_place_between(stage):
    page = shown(stage, "rope_score", state=live.starts()["rope_score"]["state"] | {"m": 2})
    words = page.locator(".live-words")
    seen = []
    for place in ("figure-0?n=4", "elsewhere", "figure-0?shift=5"):
        seen.append(words.text_content())
        page.evaluate("place => { location.hash = place; }", place)
        page.evaluate(SETTLED)
    for before in (seen[2], seen[1], seen[0]):
        page.evaluate("history.back()")
        page.wait_for_function(
            "words => document.querySelector('.live-words').textContent === words", arg=before
        )


def test_one_position_alone_changes_the_score_and_turns_the_angle_on(stage):
    page = shown(stage, "rope_score")
    found = []
    for n in range(2, 7):
        page.evaluate("n => { location.hash = `#figure-0?n=${n}`; }", n)
        page.evaluate(SETTLED)
        words = page.locator(".live-words").text_content().replace("−", "-")
        found.append([float(x) for x in re.search(r"cos\((.*) rad\) = (\S*)\.$", words).groups()])
    angles, scores = zip(*found, strict=True)
    assert np.diff(angles) == pytest.approx(1, abs=0.02)
    assert np.abs(np.diff(scores[:3])).min() > 1


def test_on_a_phone_what_rests_is_one_line_and_nothing_jumps_under_the_finger(stage):
    page = shown(stage, "axes", PHONE)
    ask, knob = page.locator(".live-predict"), page.locator(".live-choice").first
    page.evaluate("document.body.style.padding = '999px 0'; scrollTo(0, 1100)")
    page.evaluate(SETTLED)
    high, place = ask.bounding_box()["height"], knob.bounding_box()["y"]
    for layout, rests in (("golden", True), ("axial", False)):
        knob.get_by_role("radio", name=layout).check()
        page.evaluate(SETTLED)
        assert (ask.bounding_box()["height"] < 32) == rests and high > 90
        assert knob.bounding_box()["y"] == pytest.approx(place, abs=1)


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("four_terms", ["order=shuffled", "first=8", "position=0", "cc=false", "turn=90"]),
        ("axes", ["how=line", "how=golden", "down=-3&right=4", "what=text&how=sections"]),
    ],
)
def test_nothing_below_the_question_changes_its_height_when_a_link_is_taken(name, links, stage):
    heights = """() => ['figure', 'words', 'stage', 'more']
      .map(each => document.querySelector(`.live-${each}`).offsetHeight)"""
    for width, first in ((COLUMN, 0), (PHONE, 1)):  # on a phone the question folds
        page = shown(stage, name, width)
        page.get_by_role("button", name="Skip").click()
        before = page.evaluate(heights)[first:]
        for link in links:
            page.evaluate("link => { location.hash = `#figure-0?${link}`; }", link)
            page.evaluate(SETTLED)
            assert page.evaluate(heights)[first:] == before, (link, width)


def test_a_figure_rests_at_the_height_of_its_question(stage):
    page = shown(stage, "axes")
    before = page.locator(".live-figure").bounding_box()["height"]
    page.get_by_role("radio", name="golden").check()
    page.wait_for_selector(".live-predict[inert]")
    assert page.locator(".live-figure").bounding_box()["height"] == before


def test_a_pressed_term_is_off_and_leaves_the_sum(stage):
    page = shown(stage, "four_terms")
    words, term = page.locator(".live-words"), page.get_by_role("button", name="position–position:")
    kept = page.locator(".live-stage [role=slider]").get_attribute("aria-valuetext")
    assert "0.88 + 0.09 − 0.19 + 0.85 ≈ 1.64" in words.text_content()
    term.click()
    page.evaluate(SETTLED)
    assert term.get_attribute("aria-pressed") == "false"
    assert "0.88 + 0.09 − 0.19 ≈ 0.79" in words.text_content()
    assert page.locator(".live-tools a").get_attribute("href") == "#figure-0?pp=false"
    page.keyboard.press("Space")  # it has the focus
    page.evaluate(SETTLED)
    assert term.get_attribute("aria-pressed") == "true"
    assert kept == page.locator(".live-stage [role=slider]").get_attribute("aria-valuetext")


@pytest.mark.parametrize("name", ["four_terms", "axes"])
def test_a_formula_stands_in_the_picture(name, stage):
    page = shown(stage, name)
    numbers = re.findall(
        r"−?\d\.\d\d", page.locator(".live-words").text_content().replace("− ", "−")
    )
    words = page.locator(".live-stage svg text").all_text_contents()
    assert len(numbers) >= 3 and set(numbers) <= set(words)


@pytest.mark.parametrize("width", [COLUMN, 575, 374, PHONE])
@pytest.mark.parametrize("name", NAMES)
def test_every_label_has_twelve_pixels_and_is_whole_and_none_lies_on_another(name, width, stage):
    page = shown(stage, name, width)
    assert page.evaluate(BAD_LABELS) == {"small": [], "cut": [], "over": []}
    page.get_by_role("button", name="Skip").click()
    then = page.evaluate("name => Live.FIGURES[name].asks.then", name)
    page = shown(stage, name, width, state=live.starts()[name]["state"] | then)
    assert page.evaluate(BAD_LABELS) == {"small": [], "cut": [], "over": []}


INKS = """() => [...document.querySelectorAll('.live-stage :is(text, tspan)')].map(e => {
  const own = document.createElement('canvas').getContext('2d');
  own.fillStyle = getComputedStyle(e).fill;
  own.fillRect(0, 0, 1, 1);
  const [r, g, b] = [...own.getImageData(0, 0, 1, 1).data].map(v => v / 255)
    .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return [e.textContent, 0.2126 * r + 0.7152 * g + 0.0722 * b];
})"""


def test_the_legend_of_the_wavelengths_has_the_marks_that_are_there(stage):
    start = live.starts()["wavelengths"]["state"]
    for change, missing in (({}, "✕■"), ({"factor": 4}, "■"), ({"factor": 4, "rule": "ntk"}, "")):
        page = shown(stage, "wavelengths", state=start | change)
        said = "".join(page.locator(".live-stage svg text").all_text_contents())
        assert [mark for mark in "●✕■" if mark not in said] == list(missing)
        assert ("● new" in said) == ("✕" in said)


def test_a_prediction_can_be_skipped_and_is_neither_kept_nor_sent(stage):
    page = shown(stage, "penalties")
    page.get_by_role("button", name="Skip").click()
    page.evaluate(SETTLED)
    assert not page.locator(".live-predict").is_visible()
    assert page.locator(".live-stage .dashed.value, .live-handle.value").count() == 0
    assert page.evaluate("document.activeElement.type") == "range"
    script = "".join(path.read_text(encoding="utf-8") for path in live.SCRIPTS)
    assert not re.search(r"Storage|cookie|fetch\(|XMLHttp|sendBeacon|indexedDB", script)


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_fills_the_window_alone_and_can_be_used_there(name, stage):
    page = shown(stage, name)
    page.set_viewport_size({"width": 1280, "height": 720})
    page.get_by_role("button", name="Whole window").click()
    page.wait_for_function("document.fullscreenElement?.offsetWidth === innerWidth")
    page.evaluate(SETTLED)
    drawing = page.locator(".live-stage svg, .live-sheet").last.bounding_box()
    assert drawing["width"] >= 800 and drawing["y"] + drawing["height"] <= 720
    assert page.evaluate("document.fullscreenElement.scrollWidth <= innerWidth")
    if name in DRAGGED:
        handle = page.locator(".live-stage [role=slider]").first
        before, box = handle.get_attribute("aria-valuetext"), handle.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.down()
        page.mouse.move(box["x"] - 60, box["y"] + 90, steps=3)
        page.mouse.up()
        page.evaluate(SETTLED)
        assert handle.get_attribute("aria-valuetext") != before
    page.get_by_role("button", name="Whole window").click()
    page.wait_for_function("document.fullscreenElement === null")


@pytest.mark.parametrize("name", DRAGGED)
def test_a_handle_takes_a_finger_and_leads_to_both_ends(name, stage):
    """24 pixels, as WCAG 2.5.8 asks; where two lie over each other, the upper one counts."""
    page = shown(stage, name, PHONE)
    reached = page.evaluate("""() => [...document.querySelectorAll('.live-stage [role=slider]')]
      .map(handle => {
        const box = handle.getBoundingClientRect(), taken = [];
        const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
        for (const [u, v] of [[0, 0], [11, 0], [-11, 0], [0, 11], [0, -11]])
          taken.push(document.elementFromPoint(x + u, y + v)?.getAttribute('role'));
        return taken.every(role => role === 'slider');
      })""")
    assert reached and all(reached)
    announced = name in ("clock_hands", "rope_score")  # both ends, for each of the handles
    for handle in page.locator(".live-stage [role=slider]").all()[: None if announced else 1]:
        seen = []
        for key, end in (("Home", "min"), ("End", "max")):
            handle.press(key)
            page.evaluate(SETTLED)
            seen.append(handle.get_attribute("aria-valuetext"))
            now, last = (handle.get_attribute(f"aria-value{each}") for each in ("now", end))
            assert not announced or float(now) == float(last)
        assert seen[0] != seen[1]


# The still picture ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_still_invites_to_nothing_and_says_where_the_figure_moves(name, stage):
    page = shown(stage, name)
    workshop.make_still(page)
    moves = page.locator(".live-figure :is(button, input, select, summary, [role=slider])")
    assert moves.count() and not any(each.is_visible() for each in moves.all())
    said = page.locator(".live-figure").inner_text()
    assert said.endswith(live.STILL) and "drag" not in said.lower()
    assert page.locator(".live-stage > svg").is_visible()
    page.emulate_media(media="screen")


@pytest.mark.parametrize("name", NAMES)
def test_a_still_is_as_large_as_it_says_and_fits_the_place_of_its_figure(name):
    still, place = live.still(name), live.starts()[name]["wide"]
    size = Image.open(io.BytesIO(base64.b64decode(still.data))).size
    assert size[0] == 2 * still.width and size[1] // 2 == still.height < place
    assert still.alt.endswith(live.STILL)


# In a notebook ----------------------------------------------------------------------------------


def test_a_notebook_stores_the_picture_and_the_state_and_no_script(monkeypatch):
    shown: list[Any] = []
    monkeypatch.setattr(live, "display", lambda data, metadata, raw: shown.append((data, metadata)))
    live.show("rope_score")
    (data, metadata), size = shown[0], live.starts()["rope_score"]
    assert refresh.WIDGET_VIEW in data and data["text/plain"] == f"{size['alt']} {live.STILL}"
    model = data[refresh.WIDGET_VIEW]["model_id"]
    output = nbformat.v4.new_output("display_data", data, metadata=metadata)
    models = {
        model: {"model_module": "anywidget", "state": {"layout": "IPY_MODEL_beside"}},
        "beside": {"model_module": "@jupyter-widgets/base", "state": {}},
    }
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("", id="one", outputs=[output])],
        metadata={"widgets": {refresh.WIDGETS: {"state": models}}},
    )
    kept = refresh.normalise(notebook)
    assert set(kept.cells[0].outputs[0].data) == {"image/png", "text/plain"}
    assert kept.cells[0].outputs[0].metadata["image/png"]["state"] == size["state"]
    assert "widgets" not in kept.metadata
    changed = copy.deepcopy(kept)
    changed.cells[0].outputs[0].metadata["image/png"]["state"]["m"] = 9
    outputs = (notebook.cells[0].outputs for notebook in (kept, changed))
    assert list(nbval_pictures.differences(*outputs)) != []


def test_where_nothing_computes_the_caption_says_so(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(live, "display", lambda *_, **__: None)
    monkeypatch.setattr(live, "show_caption", said.append)
    for has, words in ((True, "Two arrows."), (False, "anywidget is installed.)")):
        monkeypatch.setattr(live, "HAS_WIDGETS", has)
        live.show("rope_score", number="10.1", caption="Two arrows.")
        assert said.pop().endswith(words)


def test_a_widget_draws_gives_its_state_back_and_follows_the_links_of_the_text(tab):
    state = live.starts()["rope_score"]["state"]
    script = """async ([esm, start]) => {
      const module = await import('data:text/javascript;charset=utf-8,' + encodeURIComponent(esm));
      const held = {figure: 'rope_score', state: start, anchor: 'figure-10-1'}, listeners = {};
      const model = {get: key => held[key], set: (key, value) => { held[key] = value; },
        save_changes: () => {}, on: (event, call) => { listeners[event] = call; }};
      const el = document.createElement('div');
      document.body.append(el);
      module.default.render({model, el});
      const input = el.querySelector('input[type=range]');
      input.value = 7;
      input.dispatchEvent(new Event('input'));
      await new Promise(done => setTimeout(done, 100));
      const first = [held.state.shift, el.querySelector('.live-words').textContent];
      held.state = {...held.state, m: 4};
      listeners['change:state']();
      const second = el.querySelector('.live-words').textContent;
      location.hash = '#figure-10-1?shift=2';
      await new Promise(done => setTimeout(done, 100));
      const third = el.querySelector('.live-words').textContent;
      el.remove();
      return [...first, second, third];
    }"""
    shift, words, later, linked = tab.evaluate(script, [live.Live._esm, state])
    assert shift == 7 and words.startswith("Query at 8,") and later.startswith("Query at 11,")
    assert linked.startswith("Query at 3,")
