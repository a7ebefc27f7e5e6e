"""The attention of one query as a heat map, like the paper's figure "Attention in BiQE".

A column for each unknown, a row for each token of the query, path after path; the darker a cell, the more attention.
Above it stands the query, and what the model predicts; below it, what share of the attention goes to tokens that are
neither ancestors nor descendants of the unknown, which are framed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from biqe.errors import InvalidOption
from biqe.evaluate.attention import QueryAttention
from biqe.evaluate.pictures import BLUE, HEAT, ORANGE, SOFT, Page, text_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST = 44
"""Characters of a name; longer ones lose their middle."""
MARGIN, LINE, SIZE, ROW, CELL = 24, 18, 12, 24, 76


def heat_map(attention: QueryAttention, *, layer: int | None = None, head: int | None = None) -> Figure:
    """The picture of all layers and heads together, or of one of them; both count from 0. To be drawn by
    ``pictures.render`` or ``pictures.save``."""
    layers, heads = attention.weights.shape[:2]
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if value is not None and not 0 <= value < count:
            raise InvalidOption(f"{name} must be in [0, {count}). Got {value}")
    weights = attention.mean(layer, head)  # (V, T)
    names = [shortened(target, 12) for target in attention.targets]
    page = Page()
    y: float = MARGIN + SIZE
    page.text(MARGIN, y, f"What the unknowns look at ({attention.model})", size=15, is_bold=True)
    y += 1.5 * LINE
    page.text(MARGIN, y, "The query", is_bold=True)
    for pattern in attention.patterns:
        y += LINE
        page.text(MARGIN, y, shortened(pattern, 100))
    y += 0.5 * LINE
    for name, best in zip(names, attention.predictions, strict=True):
        y += LINE
        chances = ", ".join(f"{entity} ({100 * p:.0f} %)" for entity, p in best)
        page.text(MARGIN, y, shortened(f"{name} is predicted to be {chances}", 110))
    y = _cells(page, attention, weights, names, y + LINE)

    of_layers = f"mean of {layers} layers" if layer is None else f"layer {layer + 1} of {layers}"
    of_heads = f"mean of {heads} heads" if head is None else f"head {head + 1} of {heads}"
    notes = [
        f"Attention of each unknown to each token; a column adds up to 100 % ({of_layers}, {of_heads}).",
        "Framed: tokens that are neither before nor after the unknown in the query.",
    ]
    for name, row, outside in zip(names, weights, attention.outside, strict=True):
        notes.append(f"{name}: {100 * row[outside].sum():.0f} % of its attention goes to framed tokens")
    for note in notes:
        y += LINE
        page.text(MARGIN, y, note, size=11, fill=SOFT)
    return page.figure(MARGIN)


def _cells(page: Page, attention: QueryAttention, weights: np.ndarray, names: list[str], y: float) -> float:
    """Draw the cells from y downwards; where they end."""
    words = [shortened(word) for word in attention.words]
    left = MARGIN + max(text_width(word, SIZE) for word in words) + 2 * SIZE
    strongest = max(float(weights.max()), 1e-9)
    y += ROW
    for column, name in enumerate(names):
        page.text(left + CELL * (column + 0.5), y - 8, name, anchor="center", is_bold=True)
    path = None
    for token, word in enumerate(words):
        if attention.paths[token] != path:
            path = attention.paths[token]
            y += ROW
            page.text(MARGIN, y - 7, f"path {path + 1}, from its end", fill=SOFT)
        page.text(left - SIZE, y + ROW - 8, word, anchor="right", is_bold=attention.kinds[token] == "mask")
        for column in range(len(names)):
            x, weight = left + CELL * column, float(weights[column, token])
            frame = ORANGE if attention.outside[column, token] else None
            strength = 0.04 + (HEAT - 0.04) * weight / strongest
            page.box(x + 3, y + 3, CELL - 6, ROW - 6, fill=BLUE, stroke=frame, line=2, strength=strength)
            page.text(x + CELL / 2, y + ROW - 8, f"{100 * weight:.0f} %", anchor="center", size=11)
        y += ROW
    return y + 0.5 * LINE


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text, without its middle where it is longer than ``longest``.

    >>> shortened("/film/film/release_date_s/film_release_region", 21)
    '/film/film…ase_region'
    """
    if len(text) <= longest:
        return text
    ahead = (longest - 1) // 2
    return f"{text[:ahead]}…{text[len(text) - (longest - 1 - ahead) :]}"
