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


@pytest.fixture(scope="module")
def rows() -> dict[tuple[str, str], dict[str, str]]:
    """Take the census once."""
    return {(row["library"], row["model"]): row for row in census.census()}


# Models drawn at random, each checked by hand in its own files: everything that stands there about
# positions, and nothing else. The first draw is from before timm was read.
READ = ("method", *(name for name in census.COLUMNS if name != "context"))
BY_HAND = census.stored(Path(__file__).with_name("census_by_hand.csv"))


def test_the_forty_were_drawn_and_not_chosen() -> None:
    every = sorted((row["library"], row["model"]) for row in census.stored())
    read = {(row["library"], row["model"]) for row in BY_HAND if row["draw"] == "second"}
    assert read == set(random.Random(SEED).sample(every, 40))


@pytest.mark.parametrize("by_hand", BY_HAND, ids=lambda row: f"{row['library']} {row['model']}")
def test_the_census_agrees_with_the_models_read_by_hand(
    rows: dict[tuple[str, str], dict[str, str]], by_hand: dict[str, str]
) -> None:
    row = rows[by_hand["library"], by_hand["model"]]
    assert {name: row[name] for name in READ} == {name: by_hand[name] for name in READ}


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
