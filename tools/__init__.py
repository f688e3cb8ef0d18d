"""Commands that build, refresh and describe the book; `make help` names them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the checkout


def folded(title: str, text: str) -> str:
    """Return Markdown under a title that unfolds it; the title may have HTML, and no Markdown."""
    return f"<details>\n<summary>{title}</summary>\n\n{text.strip()}\n\n</details>"
