"""One visual language for all pages: a colour per method, a style, and alt text on each figure."""

from __future__ import annotations

import io
import re
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import as_file, files
from itertools import pairwise
from typing import Any, NamedTuple

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager
from matplotlib.image import AxesImage
from PIL import Image, ImageChops

from pe_course.page import phone as layout
from pe_course.registry import METHODS

METHOD_COLOURS = {key: method.colour for key, method in METHODS.items()}
METHOD_NAMES = {key: method.name for key, method in METHODS.items()}
# What a colour stands for, in every figure, drawn here or by web/: on white, and in the dark.
ROLES = {
    "query": ("#0072b2", "#56b4e9"),
    "key": ("#d55e00", "#ff9248"),
    "above": ("#00735a", "#35c79a"),  # scores, weights, whatever is more than zero
    "value": ("#b5518d", "#e79fca"),
    "below": ("#6a3d9a", "#b99be8"),  # less than zero
    "position": ("#9a6700", "#e6b450"),
}
# For lines that stand for something else than a method.
CYCLE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#332288", "#7f7f7f")
INK, PAPER, GRID = "#22272e", "#ffffff", "#d9dde3"
# Nothing is white; the stronger the colour, the further from zero.
SEQUENTIAL = LinearSegmentedColormap.from_list("amount", [PAPER, ROLES["above"][0]])
DIVERGING = LinearSegmentedColormap.from_list(
    "signed", [ROLES["below"][0], PAPER, ROLES["above"][0]]
)
DPI = 144
LINE, BROAD = 7.28, 5.5  # inches: with its frame as wide as the text; what is broader is made so
FONTS = files(__package__) / "fonts"  # the type face of the pages
NUMBER = re.compile(r"[0-9A-Z]+\.[1-9][0-9]*")
PHONE = "(max-width: 576px)"  # where a broad picture gives way to its narrow drawing
Phone = Figure | Sequence[float] | None
PACK = np.array([1 << 16, 1 << 8, 1])  # red, green and blue in one number

RC: Any = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "axes.edgecolor": "#8b949e",
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": matplotlib.cycler(color=list(CYCLE)),  # type: ignore[attr-defined]
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "lines.linewidth": 1.8,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "font.family": ["Course Sans", "DejaVu Sans"],  # the second for signs that the first lacks
    "font.size": 10,
    "figure.constrained_layout.use": True,
}

# On import, and for all figures: titles and labels take their style when they are set, which
# is in the page's cells.
for face in ("sans.ttf", "sans-bold.ttf"):
    with as_file(FONTS / face) as path:
        fontManager.addfont(path)
matplotlib.rcParams.update(RC)


def new(
    width: float = 7.2, height: float = 3.2, *, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """Return a figure and its axes (sizes in inches)."""
    return plt.subplots(rows, columns, figsize=(width, height), **options)


def few_colours(drawn: Image.Image, *, areas: int = 24, others: int = 128) -> Image.Image:
    """Return a picture in a palette of few colours, in which large areas keep theirs exactly.

    Args:
        drawn: an RGB picture.
        areas: how many of the most frequent colours stay as they are.
        others: how many colours stand for the rest: those that leave the smallest largest error.
    """
    counted = sorted(drawn.getcolors(drawn.width * drawn.height) or [], reverse=True)
    coarse = drawn.quantize(others, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    found = np.array([colour for _, colour in counted])  # (m, 3)
    rest = np.array(coarse.getpalette() or []).reshape(-1, 3)[:others]
    palette = np.concatenate([found[:areas], rest])  # (n, 3)
    nearest = ((palette**2).sum(1) - 2 * found @ palette.T).argmin(1)  # (m,)
    table = np.zeros(1 << 24, dtype=np.uint8)
    table[found @ PACK] = nearest
    small = Image.fromarray(table[np.asarray(drawn) @ PACK])
    small.putpalette(palette.astype(np.uint8).tobytes())
    return small


class Drawing(NamedTuple):
    """A PNG in base64, and its width and height in pixels of the page: two thirds of its own."""

    data: str
    width: int
    height: int


def draw(figure: Figure) -> Image.Image:
    """Draw a figure and close it."""
    figure.set_dpi(DPI)
    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    plt.close(figure)
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def png(drawn: Image.Image) -> Drawing:
    """Return a picture as a small PNG of few colours."""
    packed = io.BytesIO()
    few_colours(drawn).save(packed, format="PNG", optimize=True)
    data = b64encode(packed.getvalue()).decode()
    return Drawing(data, round(drawn.width * 2 / 3), round(drawn.height * 2 / 3))


def for_a_phone(file: str, width: int, height: int) -> str:
    """Return the element of a `<picture>` that gives a phone a file of its own."""
    return f'<source media="{PHONE}" srcset="{file}" width="{width}" height="{height}">'


class Picture(NamedTuple):
    """A drawn figure: the PNG in base64, its words, and its size in pixels of the page.

    A broad one has another drawing, `narrow`, for the column of a phone.
    """

    data: str
    alt: str
    width: int
    height: int
    narrow: Drawing | None = None

    @property
    def size(self) -> dict[str, Any]:
        """Return what a notebook stores beside the picture."""
        size: dict[str, Any] = {"alt": self.alt, "width": self.width, "height": self.height}
        if self.narrow:
            size["narrow"] = self.narrow._asdict()
        return {"image/png": size}


def picture(figure: Figure, alt: str, phone: Phone = None) -> Picture:
    """Draw a figure, a broad one also for the column of a phone, and close it.

    Pictures for the whole column all get its width, so that they end where the text ends.

    Args:
        figure: the figure.
        alt: the words for it.
        phone: as `show` takes it.

    Raises:
        ValueError: if alt says too little to stand in for the picture, an image has no scale, or
            a part is too broad or a letter too small for a phone.
    """
    words = require_alt(alt)
    require_scale(figure)
    if phone is not None:
        require_letters(phone if isinstance(phone, Figure) else figure)
    width, height = figure.get_size_inches()
    if width > BROAD:
        figure.set_size_inches(LINE, height * LINE / width)
    drawn, narrow = draw(figure), None
    if isinstance(phone, Figure):
        narrow = draw(phone)
    elif phone is not None:
        narrow = stacked(drawn, phone)
    elif width > layout.WIDTH and any(axes.axison for axes in figure.axes):
        narrow = draw(layout.narrow(figure))
    whole = png(drawn)
    return Picture(whole.data, words, whole.width, whole.height, png(narrow) if narrow else None)


def stacked(drawn: Image.Image, cuts: Sequence[float]) -> Image.Image:
    """Cut a picture at shares of its width, and put its parts below each other.

    Raises:
        ValueError: if a part is broader than the column of a phone.
    """
    edges = [round(share * drawn.width) for share in (0, *cuts, 1)]
    parts = [trimmed(drawn.crop((a, 0, b, drawn.height))) for a, b in pairwise(edges)]
    width = max(part.width for part in parts)
    if width > layout.WIDTH * DPI:
        raise ValueError(f"a part may be {layout.WIDTH} inches wide, got {width / DPI:.3f}")
    whole = Image.new("RGB", (width, len(parts) * drawn.height), PAPER)
    for number, part in enumerate(parts):
        whole.paste(part, (0, number * drawn.height))
    return whole


def trimmed(part: Image.Image) -> Image.Image:
    """Return a picture without the empty ground at its left and right, but for a small margin."""
    left, _, right, _ = ImageChops.invert(part).getbbox() or (0, 0, *part.size)
    return part.crop((max(left - 9, 0), 0, min(right + 9, part.width), part.height))


def show(
    figure: Figure,
    alt: str,
    *,
    number: str | None = None,
    caption: str | None = None,
    phone: Phone = None,
) -> None:
    """Show a figure in a notebook, with the words for those who do not see it.

    Args:
        figure: the figure; it is closed afterwards.
        alt: what it shows, in a sentence or two: the finding, not the file's looks.
        phone: how a phone shows a diagram, which has no panels that could be laid out anew: a
            figure drawn for it, or where the diagram may be cut, in shares of its width.
        number: the figure's number, such as "10.3": the chapter and the place in it.
        caption: what stands below (Markdown): what is drawn, what to see, what it means.

    Raises:
        ValueError: if alt says too little to stand in for the picture, or if a number stands
            without a caption or a caption without a number.
    """
    from IPython.display import display

    drawn = picture(figure, alt, phone)
    below = caption_of(number, caption)
    bundle = {"image/png": drawn.data, "text/plain": drawn.alt}
    display(bundle, metadata=drawn.size, raw=True)  # type: ignore[no-untyped-call]
    show_caption(below)


def figure_anchor(number: str) -> str:
    """Return the id of the figure of a number: "10.3" gives figure-10-3."""
    return f"figure-{number.lower().replace('.', '-')}"


def caption_of(number: str | None, caption: str | None) -> str | None:
    """Return the Markdown that stands below a figure, or None where there is to be none.

    Raises:
        ValueError: if one of the two is missing, or a number is not of the form "10.3".
    """
    if number is None and caption is None:
        return None
    if number is None or not caption:
        raise ValueError(f"number and caption go together, got {number!r} and {caption!r}")
    if not NUMBER.fullmatch(number):
        raise ValueError(f'number must be like "10.3", chapter and place, got {number!r}')
    return f"**Figure {number}.** {' '.join(caption.split())}"


def show_caption(text: str | None) -> None:
    """Show a caption below the figure just shown; nothing for None."""
    from IPython.display import Markdown, display

    if text is not None:
        display(Markdown(text))  # type: ignore[no-untyped-call]


def require_alt(alt: str) -> str:
    """Return the alt text on one line, or raise a ValueError if it says too little."""
    words = " ".join(alt.split())
    if len(words) < 30:
        raise ValueError(f"alt must say what the figure shows (30 characters or more), got {alt!r}")
    return words


def require_scale(figure: Figure) -> None:
    """Raise a ValueError if no colour bar of the figure says what an image's colours mean."""
    images = [image for axes in figure.axes for image in axes.images]
    scales = [(image.cmap, image.get_clim()) for image in images if image.colorbar]
    if not all((image.cmap, image.get_clim()) in scales for image in images):
        raise ValueError("a heat map needs a colour bar with its colours and limits")


def require_letters(figure: Figure) -> None:
    """Raise a ValueError if a word of a diagram has smaller letters than a phone may show."""
    texts = [text for axes in figure.axes for text in axes.texts]
    small = [text.get_text() for text in texts if float(text.get_fontsize()) < layout.SMALLEST]
    if small:
        raise ValueError(f"on a phone a letter has {layout.SMALLEST} points or more, not {small}")


def heatmap(
    axes: Axes,
    values: Any,
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    diverging: bool = False,
    bar: str | None = None,
    limit: float | None = None,
) -> AxesImage:
    """Draw a matrix as an image, rows downwards: white is zero.

    Args:
        axes: where to draw.
        values: (rows, columns), array or tensor.
        title: above the image.
        x: label of the columns.
        y: label of the rows.
        diverging: colours for signed values, symmetric about 0; without, those of amounts, which
            begin at 0 if no value is below it.
        bar: what the colours measure, beside a colour bar; None where several share one.
        limit: largest absolute value of the colours, with `diverging`; that of the data if None.
    """
    matrix = values.detach().numpy() if hasattr(values, "detach") else values
    top = float(abs(matrix).max()) if limit is None else limit
    bounds: dict[str, Any] = (
        {"vmin": -top, "vmax": top} if diverging else {"vmin": min(0, matrix.min())}
    )
    image = axes.imshow(
        matrix, cmap=DIVERGING if diverging else SEQUENTIAL, aspect="auto", **bounds
    )
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(False)
    if bar is not None:
        axes.figure.colorbar(image, ax=axes, shrink=0.9, label=bar)
    return image
