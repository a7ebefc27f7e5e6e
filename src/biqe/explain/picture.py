"""An explanation as a picture: the query graph with what is stored and what is missing, what each unknown attended to,
and how the row's probability changes.

Each function draws one part on the page, from ``y`` downwards, and returns where it ends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from biqe.evaluate.pictures import ASKED, BLUE, HEAT, INK, ORANGE, PAPER, PLAIN, RULE, SOFT, Page, Point, text_width
from biqe.explain import parts, text, words
from biqe.explain.attention import Attention
from biqe.explain.counterfactual import Change, Counterfactual
from biqe.explain.graph_layout import place

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    # Explanations draw themselves through this module, so it knows them by their type only.
    from biqe.explain.explanation import Explanation

MARGIN, LINE, SIZE, SMALL, LARGE = 24.0, 18.0, 12.0, 11.0, 15.0
NAME = 26
"""Columns of a name in a picture; longer ones lose their middle."""
WIDTH = 96
"""Columns of a paragraph."""
ROW, CELL = 24.0, 92.0
BAR = 220.0


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
    title = text.headline(why)
    y = _paragraph(page, MARGIN, words.cut(f"Why {title}" if why.targets else title, WIDTH), is_bold=True, size=LARGE)
    y = _graph(page, y, why, *_evidence(why))
    if why.witness is not None:
        y = _legend(page, y, why)
        y = _paragraph(page, y, text.about_witness(why))
        if not why.witness.is_complete:
            y = _paragraph(page, y, "Not every choice of the hidden variables was tried; there may be a better one.")
    if why.attention is not None:
        y = _paragraph(page, y + LINE, text.about_attention(why, why.attention))
        for row in range(len(why.targets)):
            y = _attended(page, y, why, why.attention, row)
        y = _heat_map(page, y, why, why.attention)
    if why.counterfactual is not None:
        y = _paragraph(page, y + LINE, text.about_counterfactual(why, why.counterfactual))
        y = _changes(page, y, why, why.counterfactual)
    for view, reason in why.skipped.items():
        y = _paragraph(page, y + LINE, f"{view.upper()} is left out: {words.visible(reason)}")
    return page.figure(MARGIN)


def _paragraph(page: Page, y: float, sentence: str, *, is_bold: bool = False, size: float = SIZE) -> float:
    for line in words.wrapped(words.visible(sentence), WIDTH):
        page.text(MARGIN, y + SIZE, line, size=size, is_bold=is_bold)
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


# Attention


def _attended(page: Page, y: float, why: Explanation, attention: Attention, row: int) -> float:
    """The query graph of one unknown: the more it attended to a part, the thicker the part."""
    shares = attention.mean[row]
    strongest = max(*shares, 1e-9)
    of_node = dict(zip(attention.nodes, shares, strict=False))
    of_link = dict(zip(attention.patterns, shares[len(attention.nodes) :], strict=True))
    nodes = []
    for number, node in enumerate(why.nodes):
        name, share = _cut(text.word(node)), of_node.get(number)
        # A hidden variable has no token, so nothing can attend to it.
        lines = (name,) if share is None else (name, f"{words.percent(share)} %")
        fill = ASKED if number == attention.targets[row] else PLAIN
        nodes.append(_Style(lines, thickness(share or 0.0, strongest), BLUE, fill))
    links = []
    for number in range(len(why.patterns)):
        share = of_link.get(number, 0.0)
        lines = (_cut(text.relation(why, number)), f"{words.percent(share)} %")
        links.append(_Style(lines, thickness(share, strongest), BLUE))
    unknown = text.word(why.nodes[attention.targets[row]])
    y = _paragraph(page, y, f"{unknown}: the thicker, the more it looked there (all layers)", is_bold=True)
    return _graph(page, y, why, nodes, links)


def thickness(share: float, strongest: float) -> float:
    """Width of a line that stands for a share of attention."""
    return 0.75 + 5.25 * share / strongest


def _heat_map(page: Page, y: float, why: Explanation, attention: Attention) -> float:
    """A column for each unknown, a row for each part of the question; the last layer in brackets."""
    names = [_cut(text.word(why.nodes[node])) for node in attention.nodes]
    names += [_cut(f"{number + 1} {text.relation(why, number)}") for number in attention.patterns]
    mean, last = attention.mean, attention.last
    strongest = max(max(map(max, mean)), 1e-9)
    left = MARGIN + _widest(names, SIZE) + 12
    for row, name in enumerate(names):
        page.text(left - 8, y + ROW * (row + 1) + 16, name, size=SIZE, anchor="right")
    for column, target in enumerate(attention.targets):
        x = left + CELL * column
        name = words.cut(words.visible(text.word(why.nodes[target])), 12)
        page.text(x + CELL / 2, y + 14.0, name, size=SIZE, anchor="center", is_bold=True)
        for row, share in enumerate(mean[column]):
            top = y + ROW * (row + 1)
            shown = f"{words.percent(share)} %"
            if len(attention.by_layer) > 1:
                shown += f" ({words.percent(last[column][row])} %)"
            page.box(x + 2, top + 2, CELL - 4, ROW - 4, fill=BLUE, strength=HEAT * share / strongest)
            page.text(x + CELL / 2, top + 16, shown, size=SMALL, anchor="center")
    return y + ROW * (len(names) + 1) + LINE


# Counterfactual


def _changes(page: Page, y: float, why: Explanation, counterfactual: Counterfactual) -> float:
    """A bar for each probability; all bars have one scale."""
    chances = [change.share or 0.0 for change in (*counterfactual.patterns, *counterfactual.triples)]
    largest = max(counterfactual.share, *chances, 1e-9)
    y = _bar(page, y, "as asked", counterfactual.share, words.probability(counterfactual.share), largest)
    for what, change in _dropped(why, counterfactual):
        y = _bar(page, y, what, change.share, _after(counterfactual, change), largest)
    if counterfactual.triples:
        y = _paragraph(page, y + LINE, text.about_triples(counterfactual))
        for change in counterfactual.triples:
            y = _bar(page, y, text.withheld(why, change), change.share, _after(counterfactual, change), largest)
    return y + LINE


def _dropped(why: Explanation, counterfactual: Counterfactual) -> Iterator[tuple[str, Change]]:
    for change in counterfactual.patterns:
        yield f"without pattern {change.pattern + 1}: {text.asked(why, change.pattern)}", change


def _after(counterfactual: Counterfactual, change: Change) -> str:
    """What became of the probability, or why that is not known."""
    return text.after(counterfactual, change) if change.share is not None else change.reason


def _bar(page: Page, y: float, what: str, chance: float | None, after: str, largest: float) -> float:
    page.text(MARGIN, y + 12.0, words.cut(words.visible(what), WIDTH), size=SMALL, fill=SOFT)
    x = MARGIN
    if chance is not None:
        page.box(x, y + 18.0, BAR, 12.0, fill=PAPER, stroke=RULE)
        if chance > 0:
            page.box(x, y + 18.0, max(1.0, BAR * chance / largest), 12.0, fill=BLUE)
        x += BAR + 10.0
    page.text(x, y + 28.0, words.cut(words.visible(after), WIDTH), size=SMALL)
    return y + 40.0


def _cut(name: str) -> str:
    return words.cut(words.visible(name), NAME)


def _widest(lines: Sequence[str], size: float) -> float:
    return max(text_width(line, size) for line in lines)
