"""A picture of what the unknowns of a query look at, like the paper's figure "Attention in BiQE".

A column for each unknown, a row for each token of the query, path after path; the darker a cell, the more attention.
Above it stands the query, and what the model predicts; below it, what share of the attention goes to tokens that are
neither ancestors nor descendants of the unknown, which are framed.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from biqe.errors import InvalidOption, RunFailed
from biqe.evaluate.canvas import Canvas, text_width
from biqe.evaluate.query_attention import QueryAttention, query_attention
from biqe.graph.vocabulary import Vocabulary
from biqe.query.bound import BoundQuery

if TYPE_CHECKING:
    from biqe.models._contract import QueryModel

ENDINGS = ("svg", "png")
LONGEST = 44
"""Characters of a name; longer ones lose their middle."""
MARGIN, LINE, SIZE, ROW, CELL = 24, 18, 12, 24, 76
FRAME, GREY = "#d9480f", "#666666"


def draw(model: QueryModel, query: BoundQuery, vocabulary: Vocabulary | None, ending: str = "svg") -> bytes:
    """The picture of one query, as the bytes of an SVG or a PNG file; the mean over all layers and heads."""
    if ending not in ENDINGS:
        raise InvalidOption(f"a picture ends in {' or '.join(ENDINGS)}. Got {ending!r}")
    canvas = picture(query_attention(model, query, vocabulary))
    return canvas.svg().encode() if ending == "svg" else canvas.png()


def save(attention: QueryAttention, path: str | os.PathLike[str]) -> None:
    """Write the picture to a file; its name ends in .svg or .png."""
    place = Path(path)
    ending = place.suffix.lstrip(".")
    if ending not in ENDINGS:
        raise InvalidOption(f"the name of a picture ends in .svg or .png. Got {place.name!r}")
    canvas = picture(attention)
    try:
        place.write_bytes(canvas.svg().encode() if ending == "svg" else canvas.png())
    except OSError as error:
        raise RunFailed(f"the picture could not be written to {place}: {error.strerror or error}") from error


def picture(attention: QueryAttention, *, layer: int | None = None, head: int | None = None) -> Canvas:
    """The picture of all layers and heads together, or of one of them; both count from 0."""
    layers, heads = attention.weights.shape[:2]
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
        if value is not None and not 0 <= value < count:
            raise InvalidOption(f"{name} must be in [0, {count}). Got {value}")
    weights = attention.mean(layer, head)  # (V, T)
    names = [shortened(target, 12) for target in attention.targets]
    words = [shortened(word) for word in attention.words]
    patterns = [shortened(pattern, 100) for pattern in attention.patterns]
    predictions = [
        shortened(f"{name} is predicted to be " + ", ".join(f"{entity} ({100 * p:.0f} %)" for entity, p in best), 110)
        for name, best in zip(names, attention.predictions, strict=True)
    ]
    shares = [
        f"{name}: {100 * row[outside].sum():.0f} % of its attention goes to framed tokens"
        for name, row, outside in zip(names, weights, attention.outside, strict=True)
    ]
    of = [f"layer {layer + 1} of {layers}" if layer is not None else f"mean of {layers} layers"]
    of.append(f"head {head + 1} of {heads}" if head is not None else f"mean of {heads} heads")
    notes = [
        f"How much of its attention an unknown pays to each token; a column adds up to 100 % ({', '.join(of)}).",
        "Framed: tokens that are neither before nor after the unknown in the query.",
        *shares,
    ]

    paths = sorted(set(attention.paths))
    label = max(text_width(word, SIZE) for word in words) + 2 * SIZE
    grid = MARGIN + label + CELL * len(names)
    texts = [*patterns, *predictions, *notes]
    width = max(grid, MARGIN + max(text_width(text, SIZE) for text in texts)) + MARGIN
    height = 2 * MARGIN + LINE * (4 + len(texts)) + ROW * (len(words) + len(paths) + 1) + LINE
    canvas = Canvas(round(width), round(height), f"Attention of {', '.join(names)}")

    y: float = MARGIN + SIZE
    canvas.text(MARGIN, y, f"What the unknowns look at ({attention.model})", size=15, bold=True)
    y += LINE * 1.5
    canvas.text(MARGIN, y, "The query", bold=True)
    for pattern in patterns:
        y += LINE
        canvas.text(MARGIN, y, pattern)
    y += LINE * 0.5
    for line in predictions:
        y += LINE
        canvas.text(MARGIN, y, line)
    y += LINE
    y = _heat_map(canvas, attention, weights, words, names, y, MARGIN + label)
    for line in notes:
        y += LINE
        canvas.text(MARGIN, y, line)
    return canvas


def shortened(text: str, longest: int = LONGEST) -> str:
    """The text, without its middle where it is longer than ``longest``.

    >>> shortened("/film/film/release_date_s/film_release_region", 21)
    '/film/film…ase_region'
    """
    if len(text) <= longest:
        return text
    ahead = (longest - 1) // 2
    return f"{text[:ahead]}…{text[len(text) - (longest - 1 - ahead) :]}"


def _heat_map(
    canvas: Canvas,
    attention: QueryAttention,
    weights: np.ndarray,
    words: list[str],
    names: list[str],
    y: float,
    left: float,
) -> float:
    """Draw the cells from y downwards; where they end."""
    strongest = max(float(weights.max()), 1e-9)
    y += ROW
    for column, name in enumerate(names):
        canvas.text(left + CELL * (column + 0.5), y - 8, name, anchor="middle", bold=True)
    path = None
    for token, word in enumerate(words):
        if attention.paths[token] != path:
            path = attention.paths[token]
            y += ROW
            canvas.text(MARGIN, y - 7, f"path {path + 1}, from its end", fill=GREY)
        is_mask = attention.kinds[token] == "mask"
        canvas.text(left - SIZE, y + ROW - 8, word, anchor="end", bold=is_mask)
        for column, name in enumerate(names):
            x, weight = left + CELL * column, float(weights[column, token])
            canvas.box(
                x + 3,
                y + 3,
                CELL - 6,
                ROW - 6,
                fill=_shade(weight / strongest),
                stroke=FRAME if attention.outside[column, token] else None,
                line=2,
                title=f"{name} to {word}: {100 * weight:.1f} %",
            )
            colour = "#ffffff" if weight > 0.55 * strongest else "#1a1a1a"
            canvas.text(x + CELL / 2, y + ROW - 8, f"{100 * weight:.0f} %", anchor="middle", fill=colour, size=11)
        y += ROW
    return y + LINE * 0.5


def _shade(strength: float) -> str:
    """From near white to dark blue."""
    pale, dark = np.array([244, 247, 251]), np.array([11, 57, 118])
    red, green, blue = np.round(pale + (dark - pale) * min(1.0, strength)).astype(int).tolist()
    return f"#{red:02x}{green:02x}{blue:02x}"
