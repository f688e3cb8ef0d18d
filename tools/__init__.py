"""Commands that build, refresh and describe the book; `make help` names them."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent  # the checkout
