"""The chapters, and the spine: those that one story needs, from the problem to the choice."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple


class Chapter(NamedTuple):
    """What the list of chapters says of one.

    Attributes:
        title: with its number.
        question: that it answers.
        to_read: minutes to read it.
        with_exercises: minutes with the exercises in the page.
    """

    title: str
    question: str
    to_read: int
    with_exercises: int


CHAPTERS = {
    "01_attention": Chapter(
        "1. Attention cannot see order",
        "Why can attention not see order, and what is the one loophole?",
        45, 90,
    ),
    "02_sinusoidal": Chapter(
        "2. Sinusoidal codes",
        "Can a formula number the positions? What do its waves give, and what not?",
        50, 140,
    ),
    "03_learned": Chapter(
        "3. Learned positions",
        "What do models learn when positions are trained, and where does it end?",
        50, 125,
    ),
    "04_four_terms": Chapter(
        "4. Four terms in one score",
        "What is inside the score of two words that have positions?",
        30, 85,
    ),
    "05_shaw": Chapter(
        "5. Shaw",
        "What if the score knew the distance?",
        50, 110,
    ),
    "06_transformer_xl": Chapter(
        "6. Transformer-XL",
        "How does a model look past its own window?",
        50, 120,
    ),
    "07_t5": Chapter(
        "7. T5",
        "How little is enough: one number for a whole bucket of distances?",
        40, 115,
    ),
    "08_deberta": Chapter(
        "8. DeBERTa",
        "What if content and position keep to themselves?",
        35, 105,
    ),
    "09_alibi": Chapter(
        "9. ALiBi",
        "What does a penalty that nobody trains buy, and what does it cost?",
        45, 85,
    ),
    "10_rope": Chapter(
        "10. RoPE",
        "Why do most new models rotate their vectors?",
        60, 125,
    ),
    "11_one_table": Chapter(
        "11. One table",
        "Do all these methods fit into one table, and what does it predict?",
        35, 120,
    ),
    "12_heads": Chapter(
        "12. Heads that read positions",
        "How does one read what a trained head does with positions?",
        35, 75,
    ),
    "13_context_extension": Chapter(
        "13. Longer than trained",
        "How is RoPE stretched to texts longer than those in training?",
        70, 115,
    ),
    "14_axes": Chapter(
        "14. Images",
        "What if a position is two numbers, a row and a column?",
        35, 90,
    ),
    "15_multimodal": Chapter(
        "15. Text, image and video",
        "Which numbers do words, patches and frames get in one sequence?",
        30, 55,
    ),
    "16_today": Chapter(
        "16. Today",
        "What is in the models that people download, and what is it for?",
        50, 75,
    ),
    "17_bakeoff": Chapter(
        "17. The comparison",
        "Which methods still work on longer texts, and what else decides it?",
        25, 80,
    ),
    "18_clinic": Chapter(
        "18. The clinic",
        "What goes wrong with positions, and who finds it?",
        45, 70,
    ),
    "19_choosing": Chapter(
        "19. How to choose",
        "So which one should I take?",
        25, 70,
    ),
}  # fmt: skip
SPINE = (
    "01_attention", "02_sinusoidal", "04_four_terms", "09_alibi", "10_rope",
    "13_context_extension", "18_clinic", "19_choosing",
)  # fmt: skip


def following(name: str) -> str | None:
    """Return the chapter after `name` on the spine; None after the last and off the spine."""
    return dict(pairwise(SPINE)).get(name)
