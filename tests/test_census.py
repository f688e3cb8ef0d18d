"""The census of published models: what it says, and that it says what the code says."""

from __future__ import annotations

import ast
import random
import re
import shutil
from pathlib import Path

import alone
import pytest

from lab import census as page
from tools import census, census_page

pytest.importorskip("transformers")
pytest.importorskip("diffusers")
alone.folder("timm")

SEED = 2026
PROPERTIES = tuple(name for name in census.COLUMNS if name != "context")


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], dict[str, str]]:
    """Take the census once."""
    return {(row["library"], row["model"]): row for row in census.census()}


# Forty models drawn at random, each checked by hand in its own files: everything that
# stands there about positions, and nothing else.
READ: dict[str, dict[str, str]] = {
    "diffusers ace_step_transformer": {"method": "rotary", "layout": "half", "base": "1000000"},
    "diffusers chronoedit": {
        "method": "rotary | learned",
        "layout": "interleaved",
        "base": "10000",
        "learned": "yes",
    },
    "timm cait": {"method": "learned", "learned": "yes"},
    "timm crossvit": {"method": "learned", "learned": "yes"},
    "timm efficientvit_msra": {
        "method": "table of 2-D offsets",
        "relative": "table of 2-D offsets",
    },
    "timm lowformer": {"method": "none"},
    "timm mobilevit": {"method": "none"},
    "timm shvit": {"method": "none"},
    "timm visformer": {"method": "learned", "learned": "yes"},
    "transformers deepseek_vl": {"method": "its parts'", "parts": "siglip_vision_model | llama"},
    "transformers dinov2_with_registers": {"method": "learned", "learned": "yes"},
    "transformers encodec": {"method": "no attention"},
    "transformers evolla": {
        "method": "rotary",
        "layout": "half",
        "base": "500000",
        "rope_types": "any",
    },
    "transformers glm_image": {
        "method": "rotary | learned",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
        "axes": "8-12-12 | chunks",
        "learned": "yes",
    },
    "transformers glpn": {"method": "none"},
    "transformers grounding_dino": {
        "method": "learned | sinusoidal",
        "learned": "yes",
        "sinusoidal": "yes",
        "parts": "swin | bert",
    },
    "transformers hiera": {"method": "learned", "learned": "yes"},
    "transformers instructblip": {"method": "learned", "learned": "yes", "parts": "opt"},
    "transformers jetmoe": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers laguna": {
        "method": "rotary",
        "layout": "half",
        "base": "500000 | 10000",
        "part": "0.5",
        "rope_types": "any",
        "window": "given",
        "layer_kinds": "full_attention",
    },
    "transformers llava_next_video": {"method": "its parts'", "parts": "clip_vision_model | llama"},
    "transformers mimi": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
        "window": "250",
    },
    "transformers mobilevitv2": {"method": "none"},
    "transformers nanochat": {
        "method": "rotary",
        "layout": "half reversed",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers neucodec": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
        "parts": "wav2vec2-bert",
    },
    "transformers pocket_tts": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers pp_ocrv5_mobile_det": {"method": "its parts'", "parts": "pp_lcnet_v3"},
    "transformers pvt": {"method": "learned", "learned": "yes"},
    "transformers pvt_v2": {"method": "none"},
    "transformers rf_detr": {
        "method": "learned | sinusoidal",
        "learned": "yes",
        "sinusoidal": "yes",
        "parts": "rf_detr_vit",
    },
    "transformers sam2_video": {
        "method": "rotary | learned | sinusoidal",
        "layout": "interleaved",
        "base": "10000",
        "rope_types": "axial",
        "axes": "axial",
        "learned": "yes",
        "sinusoidal": "yes",
        "parts": "sam2_vision_model",
    },
    "transformers seamless_m4t_v2": {
        "method": "sinusoidal | Shaw",
        "relative": "Shaw",
        "sinusoidal": "yes",
    },
    "transformers seed_oss": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers splinter": {"method": "learned", "learned": "yes"},
    "transformers t5gemma2": {
        "method": "rotary",
        "layout": "half",
        "base": "global=1000000 local=10000",
        "rope_types": "any",
        "window": "4096",
        "layer_kinds": "sliding_attention | full_attention",
        "parts": "siglip_vision_model",
    },
    "transformers ultrabert": {
        "method": "rotary",
        "layout": "half",
        "base": "10000 | 2560000",
        "rope_types": "any",
        "window": "128",
        "layer_kinds": "sliding_attention | full_attention",
    },
    "transformers video_llama_3": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "axial",
        "axes": "axial",
        "parts": "qwen2",
    },
    "transformers vision_text_dual_encoder": {"method": "its parts'", "parts": "bert | vit"},
    "transformers wav2vec2_phoneme": {"method": "no modules of its own"},
    "transformers xlm_roberta": {"method": "learned", "learned": "yes"},
}

# Those of the draw before timm was read, checked in the same way.
EARLIER: dict[str, dict[str, str]] = {
    "transformers albert": {"method": "learned", "learned": "yes"},
    "transformers arcee": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers bamba": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "part": "0.5",
        "rope_types": "any",
        "recurrence": "yes",
    },
    "transformers bert_japanese": {"method": "no modules of its own"},
    "transformers bit": {"method": "no attention"},
    "transformers bridgetower": {"method": "learned", "learned": "yes"},
    "transformers chmv2": {"method": "its parts'", "parts": "dinov3_vit"},
    "transformers cpmant": {"method": "T5", "t5": "yes"},
    "transformers flex_olmo": {
        "method": "rotary",
        "layout": "half",
        "base": "500000",
        "rope_types": "any",
    },
    "transformers gemma4": {
        "method": "rotary | learned | sinusoidal",
        "layout": "half",
        "base": "10000 | 1000000",
        "part": "0.25",
        "rope_types": "proportional | axial | any",
        "axes": "axial",
        "window": "512",
        "layer_kinds": "sliding_attention | full_attention",
        "learned": "yes",
        "sinusoidal": "yes",
    },
    "transformers glmga": {"method": "no modules of its own", "parts": "glm4v_text | glm4v_vision"},
    "transformers granite": {
        "method": "rotary",
        "layout": "half",
        "base": "10000",
        "rope_types": "any",
    },
    "transformers inkling2": {
        "method": "rotary | content-read | learned",
        "layout": "interleaved",
        "base": "10000",
        "rope_types": "axial",
        "axes": "axial",
        "window": "1024",
        "layer_kinds": "hybrid | hybrid_sliding",
        "sink": "logit",
        "temperature": "log of position",
        "content_bias": "yes",
        "learned": "yes",
        "recurrence": "yes",
    },
    "transformers iquestcoder": {"method": "no modules of its own"},
    "transformers layoutlmv3": {"method": "T5 | learned", "t5": "yes", "learned": "yes"},
    "transformers lfm2_moe": {
        "method": "rotary",
        "layout": "half",
        "base": "1000000",
        "rope_types": "any",
        "recurrence": "yes",
    },
    "transformers lilt": {"method": "learned", "learned": "yes"},
    "transformers mbart50": {"method": "no modules of its own"},
    "transformers minicpm_ocr": {"method": "learned", "learned": "yes", "parts": "qwen3_5_text"},
    "transformers mistral3": {"method": "its parts'", "parts": "mistral | pixtral"},
    "transformers moss_transcribe_diarize": {
        "method": "frozen table",
        "learned": "frozen",
        "parts": "qwen3",
    },
    "transformers neomme": {
        "method": "rotary",
        "layout": "half",
        "base": "full_attention=1000000 sliding_attention=10000",
        "part": "full_attention=0.25 sliding_attention=1",
        "rope_types": "any",
        "window": "256",
        "layer_kinds": "full_attention | sliding_attention",
    },
    "transformers patchtst": {"method": "sinusoidal", "sinusoidal": "yes"},
    "transformers poolformer": {"method": "no attention"},
    "transformers pp_lcnet_v4": {"method": "no attention"},
    "transformers pp_ocrv6_tiny_rec": {"method": "its parts'", "parts": "hgnet_v2"},
    "transformers rt_detr": {
        "method": "sinusoidal",
        "sinusoidal": "yes",
        "parts": "rt_detr_resnet",
    },
    "transformers sapiens2": {"method": "rotary", "layout": "half", "base": "100"},
    "transformers siglip2": {"method": "learned", "learned": "yes"},
    "transformers slanet": {"method": "its parts'", "parts": "pp_lcnet"},
    "transformers textnet": {"method": "no attention"},
    "transformers tvp": {"method": "learned", "learned": "yes", "parts": "resnet"},
    "transformers upernet": {"method": "its parts'", "parts": "resnet"},
    "transformers uvdoc": {"method": "its parts'", "parts": "uvdoc_backbone"},
    "transformers vit_mae": {
        "method": "frozen table | sinusoidal",
        "learned": "frozen",
        "sinusoidal": "yes",
    },
    "transformers vitpose_backbone": {"method": "learned", "learned": "yes"},
    "transformers yoso": {"method": "learned", "learned": "yes"},
}


def test_the_forty_were_drawn_and_not_chosen(
    rows: dict[tuple[str, str], dict[str, str]],
) -> None:
    drawn = random.Random(SEED).sample(sorted(census_key(row) for row in census.stored()), 40)
    assert set(READ) == {" ".join(key) for key in drawn}


def census_key(row: dict[str, str]) -> tuple[str, str]:
    """Return what names a row."""
    return row["library"], row["model"]


@pytest.mark.parametrize("name", sorted(READ | EARLIER))
def test_the_census_agrees_with_the_models_read_by_hand(
    rows: dict[tuple[str, str], dict[str, str]], name: str
) -> None:
    library, model = name.split(" ")
    row = rows[library, model]
    found = {key: row[key] for key in ("method", *PROPERTIES) if row[key]}
    assert found == (READ | EARLIER)[name]


def test_the_stored_table_is_what_the_installed_libraries_say(
    rows: dict[tuple[str, str], dict[str, str]],
) -> None:
    assert census.changes(census.stored(), list(rows.values())) == []
    assert list(rows.values()) == census.stored()


def test_every_finding_names_its_file_and_line() -> None:
    for row in census.stored():
        named = {part.split(" ")[0] for part in row["evidence"].split("; ")}
        found = {name for name in census.COLUMNS if row[name]}
        assert named - {"year", ""} == found, row["model"]
        places = [part.split(" ")[1] for part in row["evidence"].split("; ") if part]
        assert all(re.fullmatch(r"\w+\.py:[1-9]\d*", place) for place in places)


def test_a_release_is_told_by_what_appeared_went_and_changed() -> None:
    old = [
        {"library": "t", "model": m, "method": "rotary", **dict.fromkeys(census.COLUMNS, "")}
        for m in ("gone", "kept")
    ]
    old[1]["parts"] = "text | vision"
    kept = old[1] | {"base": "500000", "rope_types": "spiral", "parts": "vision | text"}
    new = [kept, old[1] | {"model": "born"}]
    assert census.changes(old, new) == [
        "new: t born (rotary)",
        "gone: t gone",
        "changed: t kept, base: nothing -> 500000",
        "changed: t kept, rope_types: nothing -> spiral",
        "new kind of rates: spiral",
    ]


def planted(root: Path, name: str, base: float) -> None:
    """Write the folder of a model that rotates, as transformers has them."""
    folder = root / "models" / name
    folder.mkdir(parents=True)
    (folder / f"modeling_{name}.py").write_text(
        ROTATE.format(join="cat", first="-b, a"), encoding="utf-8"
    )
    (folder / f"configuration_{name}.py").write_text(
        f"# Copyright 2031\nclass NewConfig(Parent):\n    vocab_size: int = 9\n"
        f"    default_theta = {base}\n    rope_parameters: dict | None = None\n",
        encoding="utf-8",
    )


def test_a_release_with_a_new_model_is_reported_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table, root = tmp_path / "census.csv", tmp_path / "release"
    monkeypatch.setattr(census, "TABLE", table)
    monkeypatch.setattr(census, "installed", lambda: census.transformers_models(root))
    planted(root, "kept", 10000.0)
    planted(root, "gone", 10000.0)
    census.write(census.census(), table)
    assert census.main(["--check"]) == 0
    assert capsys.readouterr().out == "2 models, 0 changes\n"
    before = table.read_text(encoding="utf-8")
    shutil.rmtree(root)
    census.read.cache_clear()
    planted(root, "kept", 500000.0)
    planted(root, "born", 10000.0)
    assert census.main(["--check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "new: transformers born (rotary)",
        "gone: transformers gone",
        "changed: transformers kept, base: 10000 -> 500000",
        "2 models, 3 changes",
    ]
    assert table.read_text(encoding="utf-8") == before


LAYERS = """
def swap(x):
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)

def swap_halves(x):
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)

def rotate(x, cos, sin, half=False):
    return x * cos + (swap_halves(x) if half else swap(x)) * sin

class Attention:
    def __init__(self, rotate_half: bool = False):
        self.qkv = nn.Linear(8, 24)
        self.rotate_half = rotate_half

    def forward(self, q, cos, sin):
        return rotate(q, cos, sin, half=self.rotate_half)
"""
FILES = {
    "base": """from timm.layers import Attention
class Block:
    def __init__(self):
        self.attn = Attention(rotate_half=True)
""",
    "child": "from .base import Block\nclass Child(Block):\n    pass\n",
    "either": """from timm.layers import Attention
class Block:
    def __init__(self, rotate_half: bool = False):
        self.attn = Attention(rotate_half=rotate_half)
""",
    "plain": """from timm.layers import Attention
class Block:
    def __init__(self):
        self.attn = Attention()
""",
    "never": """from timm.layers import Attention
class Block:
    def __init__(self, use_rope: bool = False, use_abs: bool = False):
        self.attn = Attention()
        if use_abs:
            self.pos_embed = nn.Parameter(torch.zeros(4, 8))
""",
    "two_tables": """class Block:
    def __init__(self):
        self.qkv = nn.Linear(8, 24)
        for i in range(2):
            setattr(self, f"pos_embed_{i}", nn.Parameter(torch.zeros(4, 8)))
""",
    "shifted": """class PosConv:
    def __init__(self, dim):
        self.proj = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)

class Attention:
    def __init__(self, dim):
        self.qkv = nn.Linear(dim, 3 * dim)
        self.pos = PosConv(dim)
""",
    "no_attention": "class Block:\n    def __init__(self):\n        self.conv = Conv(3, 3)\n",
}


def test_files_of_timm_are_read_with_the_classes_they_import(tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text(LAYERS, encoding="utf-8")
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    paths = [tmp_path / f"{name}.py" for name in FILES]
    models = census.with_imports("timm", paths, [tmp_path / "layers.py"])
    rows = [census.row(m, {}, census.Found("", "")) for m in models if census.projects_queries(m)]
    found = {row["model"]: (row["method"], row["layout"]) for row in rows}
    assert found == {
        "base": ("rotary", "half"),
        "child": ("rotary", "half"),
        "either": ("rotary", "interleaved | half"),
        "never": ("none", ""),
        "plain": ("rotary", "interleaved"),
        "shifted": ("convolution", ""),
        "two_tables": ("learned", ""),
    }


ROTATE = """
def swap(x):
    a, b = x.chunk(2, dim=-1)
    return torch.{join}(({first}), dim=-1)

class Attention:
    def forward(self, q, cos, sin):
        return q * cos + swap(q) * sin
"""


@pytest.mark.parametrize(
    ("join", "first", "layout"),
    [
        ("cat", "-b, a", "half"),
        ("stack", "-b, a", "interleaved"),
        ("cat", "b, -a", "half reversed"),
        ("cat", "a, b", ""),
        ("cat", "a, -a", ""),
    ],
)
def test_a_layout_is_read_from_how_the_swapped_pair_is_put_together(
    join: str, first: str, layout: str
) -> None:
    source = census.Source("modeling_x.py", ROTATE.format(join=join, first=first))
    model = census.Model("x", "x", [], [source], list(census.units_of(source)))
    assert [found.value for found in census.rotations(model).layouts] == [layout] * bool(layout)


def test_a_rotation_that_nothing_calls_is_none() -> None:
    source = census.Source(
        "modeling_x.py", ROTATE.format(join="cat", first="-b, a").split("class")[0]
    )
    model = census.Model("x", "x", [], [source], list(census.units_of(source)))
    assert census.rotations(model).layouts == []


@pytest.mark.parametrize(
    ("lines", "wide"),
    [
        ("sliding_window: int = 64", "64"),
        ("sliding_window: int = 64\n    use_sliding_window: bool = False", ""),
        ("sliding_window = 64\n    num_hidden_layers = 9\n    max_window_layers = 9", ""),
        ("sliding_window = 64\n    num_hidden_layers = 9\n    max_window_layers = 5", "64"),
        ("attention_window_size: int = 64", "64"),
        ("sliding_window = 64\n    def f(self): self.layer_types = ['full_attention'] * 9", ""),
        ("sliding_window = 64\n    def f(self): self.layer_types = ['sliding_attention']", "64"),
        ("def f(self, **kwargs): self.x = kwargs.pop('sliding_window_size', 64)", "64"),
    ],
)
def test_a_window_counts_only_where_it_is_on_by_default(lines: str, wide: str) -> None:
    node = ast.parse(f"class Config:\n    {lines}\n").body[0]
    assert isinstance(node, ast.ClassDef)
    model = census.Model("x", "x", [], [], [])
    found = census.windows(model, [census.fields_of(node, "c.py", lambda name: None)])
    assert [one.value for one in found] == [wide] * bool(wide)


def test_the_pages_read_the_table_that_the_census_writes() -> None:
    assert page.read() == census.stored()
    assert {row["library"] for row in page.read("diffusers")} == {"diffusers"}
    with pytest.raises(
        ValueError, match="library must be one of diffusers, timm, transformers, got"
    ):
        page.read("x")


def test_a_cell_is_read_as_values_numbers_and_places() -> None:
    row = {
        "base": "full=1000000 local=10000 | 500",
        "evidence": "year a.py:1; base b.py:2; base c.py:3",
    }
    assert page.values(row, "base") == ["full=1000000 local=10000", "500"]
    assert page.numbers(row, "base") == [1e6, 1e4, 500]
    assert page.evidence(row, "base") == ["b.py:2", "c.py:3"]
    assert page.values({"base": ""}, "base") == page.numbers({"base": ""}, "base") == []
    assert set(page.having("alibi")) == {"bloom", "falcon", "mpt"}


def test_a_reader_sorts_sifts_and_searches_the_census(browser):
    tab = browser.new_page()
    html = census_page.page().partition("{raw} html")[2].rpartition("```")[0]
    tab.set_content(html)
    shown = (
        "[...document.querySelectorAll('tbody tr:not([hidden])')].map(r => r.cells[0].innerText)"
    )
    models = sorted(row["model"] for row in page.read())
    assert sorted(tab.evaluate(shown)) == models
    tab.fill("input", "rotary deepseek")
    assert {name[:8] for name in tab.evaluate(shown)} == {"deepseek"}
    tab.fill("input", "")
    tab.select_option("select", "sink")
    assert sorted(tab.evaluate(shown)) == sorted(page.having("sink", None))
    tab.select_option("select", "")
    for order in ("ascending", "descending"):
        tab.click("th:nth-child(5) button")  # the base
        bases = tab.evaluate(
            "[...document.querySelectorAll('tbody tr')].map(r => r.cells[4].innerText)"
        )
        plain = [float(base) for base in bases if re.fullmatch(r"[\d.]+", base)]
        assert plain and plain == sorted(plain, reverse=order == "descending")
        assert tab.locator("th:nth-child(5)").get_attribute("aria-sort") == order
        assert not bases[-1]  # a model without one comes last
    tab.close()
