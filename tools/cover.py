"""Draw book/assets/cover.svg: the columns of a sinusoidal code as waves, above its heat map.

And preview.png, the same for those who share a link: networks take no SVG, and want 1200 by 630.

Usage: python -m tools.cover
"""

from __future__ import annotations

import base64
import io

import numpy as np
import torch
from matplotlib import pyplot as plt
from PIL import Image

from pe_lib.sinusoidal import sinusoidal
from tools import ROOT

TARGET = ROOT / "book/assets/cover.svg"
PREVIEW = TARGET.with_name("preview.png")
WORDS = "derived, programmed, measured, trained"
WIDTH, HEIGHT, MARGIN = 1280, 560, 56
POSITIONS, DIM, BASE = 128, 48, 200.0
NIGHT = "#0f172a"
# From the fast columns to the slow ones.
WAVES = ("#56b4e9", "#44aa99", "#e69f00", "#d55e00", "#cc79a7")
LOW, MIDDLE, HIGH = (0x1D, 0x4E, 0x89), (0x1B, 0x24, 0x38), (0xFC, 0xA3, 0x11)
SANS = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def wave(column: int, top: float, height: float) -> str:
    """Return the path of one column of the code over all positions, at fine steps."""
    positions = torch.linspace(0, POSITIONS - 1, 480)
    values = sinusoidal(positions, DIM, BASE)[:, column].numpy()
    xs = np.linspace(MARGIN, WIDTH - MARGIN, len(values))
    ys = top + height * (1 - values) / 2
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys, strict=True))
    return f"M{points.replace(' ', ' L', 1)}"


def heat_map() -> Image.Image:
    """Return the code of all positions, one pixel per number."""
    code = sinusoidal(torch.arange(POSITIONS), DIM, BASE).numpy().T
    order = [*range(0, DIM, 2), *range(1, DIM, 2)]
    values = code[order][:, :, None]
    low, middle, high = (np.array(colour, dtype=float) for colour in (LOW, MIDDLE, HIGH))
    colours = (
        middle + np.maximum(values, 0) * (high - middle) - np.minimum(values, 0) * (low - middle)
    )
    return Image.fromarray(colours.round().astype(np.uint8)).quantize(64)


def embedded(image: Image.Image) -> str:
    """Return an image as a PNG, base64."""
    data = io.BytesIO()
    image.save(data, "PNG", optimize=True)
    return base64.b64encode(data.getvalue()).decode()


def shown_columns() -> list[int]:
    """Return the columns drawn as waves."""
    return [int(column) for column in np.linspace(0, 34, len(WAVES)).round().astype(int) // 2 * 2]


def preview() -> Image.Image:
    """Return the picture that stands beside a shared link."""
    figure = plt.figure(figsize=(12, 6.3), dpi=100, facecolor=NIGHT)
    figure.text(0.05, 0.83, "Positional Encodings", color="#f8fafc", size=44, weight="bold")
    figure.text(0.05, 0.745, WORDS, color="#94a3b8", size=21)
    above = figure.add_axes((0.05, 0.46, 0.9, 0.22))
    positions = torch.linspace(0, POSITIONS - 1, 480)
    codes = sinusoidal(positions, DIM, BASE).numpy()
    for column, colour in zip(shown_columns(), WAVES, strict=True):
        above.plot(positions, codes[:, column], color=colour, lw=3)
    above.set(xlim=(0, POSITIONS - 1))
    above.axis("off")
    below = figure.add_axes((0.05, 0.07, 0.9, 0.33))
    below.imshow(heat_map().convert("RGB"), aspect="auto", interpolation="nearest")
    below.axis("off")
    figure.canvas.draw()
    drawn = Image.frombuffer(
        "RGBA", figure.canvas.get_width_height(), figure.canvas.buffer_rgba()
    ).convert("RGB")
    plt.close(figure)
    return drawn.quantize(96)


def cover() -> str:
    """Return the whole picture as SVG."""
    inside = WIDTH - 2 * MARGIN
    waves = "\n".join(
        f'<path d="{wave(column, 176, 120)}" fill="none" stroke="{colour}" '
        f'stroke-width="{2.2 + 0.5 * i}" stroke-linecap="round" stroke-opacity=".95"/>'
        for i, (column, colour) in enumerate(zip(shown_columns(), WAVES, strict=True))
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">
<title>Positional encodings</title>
<desc>Five columns of a sinusoidal code, from fast to slow, above the heat map of the code.</desc>
<rect width="{WIDTH}" height="{HEIGHT}" rx="24" fill="{NIGHT}"/>
<text x="{MARGIN}" y="98" font-family="{SANS}" font-size="58" font-weight="700" fill="#f8fafc"
 letter-spacing="-1.4">Positional Encodings</text>
<text x="{MARGIN}" y="140" font-family="{SANS}" font-size="25" fill="#94a3b8">{WORDS}</text>
{waves}
<image x="{MARGIN}" y="330" width="{inside}" height="174" preserveAspectRatio="none"
 style="image-rendering:pixelated" href="data:image/png;base64,{embedded(heat_map())}"/>
</svg>
"""


if __name__ == "__main__":
    TARGET.write_text(cover(), encoding="utf-8")
    preview().save(PREVIEW, optimize=True)
    for path in (TARGET, PREVIEW):
        print(f"wrote {path.name}, {path.stat().st_size / 1000:.0f} KB")
