"""An explanation as a picture: the query graph with what is stored and what is missing, and the text below it.

Each function draws one part on the page, from ``y`` downwards, and returns where it ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from biqe.evaluate.pictures import ASKED, BLUE, INK, ORANGE, PLAIN, SOFT, Page, Point, text_width
from biqe.explain import parts, text
from biqe.explain.graph_layout import place
from biqe.graph import words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    # Explanations draw themselves through this module, so it knows them by their type only.
    from biqe.explain.explanation import Explanation

MARGIN, LINE, SIZE, SMALL, LARGE = 24.0, 18.0, 12.0, 11.0, 15.0
NAME = 26
"""Columns of a name in a picture; longer ones lose their middle."""
WIDTH = 96
"""Columns of a paragraph."""
COLUMN = re.compile(r"\S+(?: \S+)*")
"""What stands between two spaces and more."""


@dataclass(frozen=True)
class _Style:
    """The lines of text in a box or on a link, and how it is drawn."""

    lines: tuple[str, ...]
    line: float = 1.5
    stroke: str = SOFT
    fill: str = PLAIN
    is_dashed: bool = False


def draw(why: Explanation) -> Figure:
    """The whole picture, to be drawn by ``pictures.render`` or ``pictures.save``."""
    page = Page()
    title, *sentences = text.introduction(why)
    title = words.cut(f"Why {title}" if why.targets else title, WIDTH)
    y = _lines(page, MARGIN, words.wrapped(title, WIDTH), is_bold=True, size=LARGE)
    for sentence in sentences:
        y = _lines(page, y, words.wrapped(sentence, WIDTH))
    y = _graph(page, y, why, *_evidence(why))
    if why.witness is not None:
        y = _lines(page, _legend(page, y, why), text.about_witness(why, WIDTH))
    for lines in text.details(why, WIDTH):
        y = _lines(page, y, lines)
    return page.figure(MARGIN)


def _lines(page: Page, y: float, lines: Sequence[str], *, is_bold: bool = False, size: float = SIZE) -> float:
    for line in lines:
        # An SVG makes several spaces one, so what stands in a column is put there.
        for part in COLUMN.finditer(line):
            page.text(MARGIN + text_width(line[: part.start()], size), y + SIZE, part[0], size=size, is_bold=is_bold)
        y += LINE
    return y + LINE - 2


# The query graph


def _evidence(why: Explanation) -> tuple[list[_Style], list[_Style]]:
    """Nodes with their entities; links solid where they are stored, dashed and with a probability where not."""
    nodes = []
    for node in why.nodes:
        lines: tuple[str, ...] = (_cut(text.word(node)),)
        if node.kind != parts.CONSTANT and node.entity is not None:
            lines += (_cut(text.shown(node)),)
        is_asked = node.kind == parts.ASKED
        nodes.append(_Style(lines, 2.0 if is_asked else 1.0, INK if is_asked else SOFT, ASKED if is_asked else PLAIN))
    links = []
    for number in range(len(why.patterns)):
        name = _cut(text.relation(why, number))
        if why.witness is None:
            links.append(_Style((name,)))
            continue
        link = why.witness.links[number]
        if link.is_stored:
            links.append(_Style((name,), 2.0, BLUE))
        else:
            chance = "missing" if link.probability is None else f"missing {words.probability(link.probability, 2)}"
            links.append(_Style((name, chance), 2.0, ORANGE, is_dashed=True))
    return nodes, links


def _graph(page: Page, y: float, why: Explanation, nodes: Sequence[_Style], links: Sequence[_Style]) -> float:
    """The query graph with these boxes and links; arrows point from subject to object."""
    pairs = [(pattern.subject, pattern.object) for pattern in why.patterns]
    sizes = [(_widest(node.lines, SIZE) + 20, 14.0 + 16.0 * len(node.lines)) for node in nodes]
    labels = [(_widest(link.lines, SMALL) + 10, 6.0 + 14.0 * len(link.lines)) for link in links]
    layout = place(why.depths, pairs, sizes, labels)
    top = y + 3  # half of the thickest frame

    def moved(points: Sequence[Point]) -> list[Point]:
        return [(px + MARGIN, py + top) for px, py in points]

    for link, (first, second) in zip(links, layout.lines, strict=True):
        page.line(moved(first), stroke=link.stroke, line=link.line, is_dashed=link.is_dashed)
        page.line(moved(second), stroke=link.stroke, line=link.line, is_dashed=link.is_dashed, is_arrow=True)
    for link, (x, middle) in zip(links, moved(layout.labels), strict=True):
        for number, line in enumerate(link.lines):
            baseline = middle - 7.0 * len(link.lines) + 11.0 + 14.0 * number
            colour = link.stroke if number else INK
            page.text(x, baseline, line, size=SMALL, fill=colour, anchor="center", is_bold=number > 0)
    for node, (width, height), (x, middle) in zip(nodes, sizes, moved(layout.nodes), strict=True):
        page.box(x - width / 2, middle - height / 2, width, height, fill=node.fill, stroke=node.stroke, line=node.line)
        for number, line in enumerate(node.lines):
            baseline = middle - 8.0 * len(node.lines) + 12.0 + 16.0 * number
            is_name = number == len(node.lines) - 1
            page.text(x, baseline, line, size=SIZE, fill=INK if is_name else SOFT, anchor="center", is_bold=is_name)
    return top + layout.height + 3 + LINE


def _legend(page: Page, y: float, why: Explanation) -> float:
    entries = [(BLUE, False, "stored in the graph")]
    if why.status != parts.KNOWN:
        entries.append((ORANGE, True, "missing from the graph"))
    x = MARGIN
    for colour, is_dashed, meaning in entries:
        page.line([(x, y + 8.0), (x + 36.0, y + 8.0)], stroke=colour, line=2.0, is_dashed=is_dashed)
        page.text(x + 44.0, y + 12.0, meaning, size=SMALL, fill=SOFT)
        x += 44.0 + text_width(meaning, SMALL) + 28.0
    return y + 14.0 + LINE


def _cut(name: str) -> str:
    return words.cut(words.visible(name), NAME)


def _widest(lines: Sequence[str], size: float) -> float:
    return max(text_width(line, size) for line in lines)
