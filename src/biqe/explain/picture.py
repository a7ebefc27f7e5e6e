"""An explanation as a picture: the query graph with what is stored and what is missing, what each unknown looked at,
and what became of the row's probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from biqe.explain import text, words
from biqe.explain.attention import Attention
from biqe.explain.counterfactual import Change, Counterfactual
from biqe.explain.drawing import Box, Drawing, Line, Shape, Words, text_width
from biqe.explain.layout import Layout, place
from biqe.explain.parts import ASKED, CONSTANT, KNOWN, Node

if TYPE_CHECKING:
    # Explanations draw themselves through this module, so it knows them by their type only.
    from biqe.explain.explanation import Explanation

MARGIN, LINE, SIZE, SMALL = 24.0, 18.0, 12.0, 11.0
LARGE = 15.0
"""Size of the title: one whose characters PNG pictures, too, draw as wide as they are."""
NAME = 26
"""Columns of a name in a picture; longer ones lose their middle."""
WIDTH = 96
"""Columns of a paragraph."""
ROW, CELL = 24.0, 92.0
BAR = 220.0
HEAT = 0.55
"""Strength of the darkest cell: ink stays readable on it, on light and on dark pages."""


@dataclass(frozen=True)
class _Block:
    """Shapes whose upper left corner is (0, 0)."""

    width: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class _Named:
    """What is written into a box or onto a link, and how it is drawn."""

    lines: tuple[str, ...]
    line: float = 1.5
    stroke: str = "soft"
    fill: str = "plain"
    is_dashed: bool = False
    title: str | None = None


def draw(why: Explanation) -> Drawing:
    """The whole picture: a block for each view, one below the other."""
    title = text.headline(why)
    blocks = [_paragraph(words.cut(f"Why {title}" if why.targets else title, WIDTH), is_bold=True, size=LARGE)]
    blocks.append(_graph(why, *_facts(why)))
    if why.witness is not None:
        blocks += [_legend(why), _paragraph(text.about_witness(why))]
        if not why.witness.is_complete:
            blocks.append(_paragraph("Not every choice of the hidden variables was tried; there may be a better one."))
    if why.attention is not None:
        blocks.append(_paragraph(text.about_attention(why, why.attention), space=LINE))
        blocks += [block for row in range(len(why.targets)) for block in _looked(why, why.attention, row)]
        blocks.append(_heat_map(why, why.attention))
    if why.counterfactual is not None:
        blocks.append(_paragraph(text.about_counterfactual(why, why.counterfactual), space=LINE))
        blocks += _changes(why, why.counterfactual)
    for view, reason in why.skipped.items():
        blocks.append(_paragraph(f"{view.upper()} is left out: {words.visible(reason)}", space=LINE))
    width = max(block.width for block in blocks) + 2 * MARGIN
    height = sum(block.height for block in blocks) + LINE * (len(blocks) - 1) + 2 * MARGIN
    drawing = Drawing(round(width), round(height), title)
    y = MARGIN
    for block in blocks:
        drawing.add(*(_moved(shape, MARGIN, y) for shape in block.shapes))
        y += block.height + LINE
    return drawing


def _moved(shape: Shape, x: float, y: float) -> Shape:
    if isinstance(shape, Line):
        return replace(shape, points=tuple((px + x, py + y) for px, py in shape.points))
    return replace(shape, x=shape.x + x, y=shape.y + y)


def _paragraph(sentence: str, *, is_bold: bool = False, size: float = SIZE, space: float = 0.0) -> _Block:
    """Lines of text, with ``space`` above them."""
    lines = words.wrapped(sentence, WIDTH)
    shapes = tuple(
        Words(0, space + SIZE + LINE * number, line, size=size, is_bold=is_bold) for number, line in enumerate(lines)
    )
    return _Block(max(text_width(line, size) for line in lines), space + SIZE + LINE * (len(lines) - 1) + 4, shapes)


# The query graph


def _facts(why: Explanation) -> tuple[list[_Named], list[_Named]]:
    """Nodes with their entities; links solid where they are stored, dashed and with a probability where not."""
    nodes = [
        _Named(
            _node_lines(node),
            2.0 if node.kind == ASKED else 1.0,
            "ink" if node.kind == ASKED else "soft",
            "asked" if node.kind == ASKED else "plain",
            title=text.shown(node),
        )
        for node in why.nodes
    ]
    links = []
    for number in range(len(why.patterns)):
        name = words.cut(text.relation(why, number), NAME)
        if why.witness is None:
            links.append(_Named((name,)))
            continue
        link = why.witness.links[number]
        if link.is_stored:
            links.append(_Named((name,), 2.0, "stored"))
        else:
            chance = "missing" if link.probability is None else f"missing {words.probability(link.probability, 2)}"
            links.append(_Named((name, chance), 2.0, "missing", is_dashed=True))
    return nodes, links


def _node_lines(node: Node) -> tuple[str, ...]:
    """The variable above its entity; a constant alone."""
    if node.kind == CONSTANT or node.entity is None:
        return (words.cut(text.word(node), NAME),)
    return words.cut(text.word(node), NAME), words.cut(text.shown(node), NAME)


def _graph(why: Explanation, nodes: Sequence[_Named], links: Sequence[_Named]) -> _Block:
    """The query graph with these boxes and links; arrows point from subject to object."""
    pairs = [(pattern.subject, pattern.object) for pattern in why.patterns]
    sizes = [(_widest(node.lines, SIZE) + 20, 14.0 + 16.0 * len(node.lines)) for node in nodes]
    labels = [(_widest(link.lines, SMALL) + 10, 6.0 + 14.0 * len(link.lines)) for link in links]
    layout: Layout = place(why.depths, pairs, sizes, labels)
    shapes: list[Shape] = []
    for link, (first, second) in zip(links, layout.lines, strict=True):
        shapes.append(Line(first, link.stroke, link.line, link.is_dashed))
        shapes.append(Line(second, link.stroke, link.line, link.is_dashed, is_arrow=True))
    for link, (x, y) in zip(links, layout.labels, strict=True):
        for number, line in enumerate(link.lines):
            baseline = y - 7.0 * len(link.lines) + 11.0 + 14.0 * number
            shapes.append(Words(x, baseline, line, SMALL, link.stroke if number else "ink", "middle", number > 0))
    for node, (width, height), (x, y) in zip(nodes, sizes, layout.nodes, strict=True):
        shapes.append(
            Box(x - width / 2, y - height / 2, width, height, node.fill, node.stroke, node.line, title=node.title)
        )
        for number, line in enumerate(node.lines):
            baseline = y - 8.0 * len(node.lines) + 12.0 + 16.0 * number
            is_name = number == len(node.lines) - 1
            shapes.append(Words(x, baseline, line, SIZE, "ink" if is_name else "soft", "middle", is_name))
    return _Block(layout.width, layout.height + 6, tuple(_moved(shape, 0, 3) for shape in shapes))


def _widest(lines: Sequence[str], size: float) -> float:
    return max(text_width(line, size) for line in lines)


def _legend(why: Explanation) -> _Block:
    entries = [("stored", False, "stored in the graph")]
    if why.status != KNOWN:
        entries.append(("missing", True, "missing from the graph"))
    shapes: list[Shape] = []
    x = 0.0
    for colour, is_dashed, meaning in entries:
        shapes.append(Line(((x, 8.0), (x + 36.0, 8.0)), colour, 2.0, is_dashed))
        shapes.append(Words(x + 44.0, 12.0, meaning, SMALL, "soft"))
        x += 44.0 + text_width(meaning, SMALL) + 28.0
    return _Block(x - 28.0, 14.0, tuple(shapes))


# Attention


def _looked(why: Explanation, attention: Attention, row: int) -> list[_Block]:
    """The query graph of one unknown: the more it looked at a part, the thicker the part; and what it shows."""
    shares = attention.mean[row]
    strongest = max(*shares, 1e-9)
    of_node = dict(zip(attention.nodes, shares, strict=False))
    of_link = dict(zip(attention.patterns, shares[len(attention.nodes) :], strict=True))
    nodes = []
    for number, node in enumerate(why.nodes):
        share = of_node.get(number)
        name = words.cut(text.word(node), NAME)
        # A hidden variable is not read, so nobody can look at it.
        lines = (name,) if share is None else (name, f"{words.percent(share)} %")
        is_self = number == attention.targets[row]
        nodes.append(_Named(lines, _thick(share, strongest), "stored", "asked" if is_self else "plain"))
    links = []
    for number in range(len(why.patterns)):
        share = of_link.get(number)
        lines = (words.cut(text.relation(why, number), NAME), f"{words.percent(share or 0.0)} %")
        links.append(_Named(lines, _thick(share, strongest), "stored"))
    sentence = f"{text.word(why.nodes[attention.targets[row]])}: the thicker, the more it looked there (all layers)"
    return [_paragraph(sentence, is_bold=True), _graph(why, nodes, links)]


def _thick(share: float | None, strongest: float) -> float:
    return 0.75 if share is None else 0.75 + 5.25 * share / strongest


def _heat_map(why: Explanation, attention: Attention) -> _Block:
    """A column for each unknown, a row for each part of the question; the last layer in brackets."""
    names = [words.cut(text.word(why.nodes[node]), NAME) for node in attention.nodes]
    names += [words.cut(f"{number + 1} {text.relation(why, number)}", NAME) for number in attention.patterns]
    mean, last = attention.mean, attention.last
    strongest = max(max(map(max, mean)), 1e-9)
    left = _widest(names, SIZE) + 12
    shapes: list[Shape] = []
    for column, target in enumerate(attention.targets):
        name = words.cut(text.word(why.nodes[target]), 12)
        x = left + CELL * column
        shapes.append(Words(x + CELL / 2, 14.0, name, SIZE, anchor="middle", is_bold=True))
        for row, part in enumerate(names):
            y, share = ROW * (row + 1), mean[column][row]
            shown = f"{words.percent(share)} %"
            if len(attention.by_layer) > 1:
                shown += f" ({words.percent(last[column][row])} %)"
            shapes.append(
                Box(
                    x + 2,
                    y + 2,
                    CELL - 4,
                    ROW - 4,
                    "stored",
                    strength=HEAT * share / strongest,
                    title=f"{name} to {part}: {100 * share:.1f} %",
                )
            )
            shapes.append(Words(x + CELL / 2, y + 16, shown, SMALL, anchor="middle"))
    shapes += [Words(left - 8, ROW * (row + 1) + 16, name, SIZE, anchor="end") for row, name in enumerate(names)]
    return _Block(left + CELL * len(attention.targets), ROW * (len(names) + 1), tuple(shapes))


# Counterfactual


def _changes(why: Explanation, counterfactual: Counterfactual) -> list[_Block]:
    """A bar for each probability; all bars have one scale."""
    dropped = [
        (change, f"without pattern {change.pattern + 1}: {text.asked(why, change.pattern)}")
        for change in counterfactual.patterns
    ]
    withheld = [(change, text.withheld(why, change)) for change in counterfactual.triples]
    chances = [change.share or 0.0 for change in (*counterfactual.patterns, *counterfactual.triples)]
    largest = max(counterfactual.share, *chances, 1e-9)
    as_asked = _bar("as asked", counterfactual.share, words.probability(counterfactual.share), largest)
    blocks = [_stacked([as_asked, *(_changed(counterfactual, *entry, largest) for entry in dropped)])]
    if withheld:
        blocks.append(_paragraph(text.about_triples(counterfactual)))
        blocks.append(_stacked([_changed(counterfactual, *entry, largest) for entry in withheld]))
    return blocks


def _changed(counterfactual: Counterfactual, change: Change, what: str, largest: float) -> _Block:
    after = text.after(counterfactual, change)
    if change.share is None:
        after = words.cut(words.visible(change.reason), WIDTH)
    return _bar(what, change.share, after, largest)


def _bar(what: str, chance: float | None, after: str, largest: float) -> _Block:
    shapes: list[Shape] = [Words(0, 12.0, words.cut(what, WIDTH), SMALL, "soft")]
    x = 0.0
    if chance is not None:
        shapes.append(Box(0, 18.0, BAR, 12.0, "paper", "rule"))
        if chance > 0:
            shapes.append(Box(0, 18.0, max(1.0, BAR * chance / largest), 12.0, "stored"))
        x = BAR + 10.0
    shapes.append(Words(x, 28.0, after, SMALL))
    return _Block(max(x + text_width(after, SMALL), text_width(words.cut(what, WIDTH), SMALL)), 36.0, tuple(shapes))


def _stacked(blocks: Sequence[_Block]) -> _Block:
    shapes: list[Shape] = []
    y = 0.0
    for block in blocks:
        shapes += [_moved(shape, 0, y) for shape in block.shapes]
        y += block.height + 4
    return _Block(max(block.width for block in blocks), y - 4, tuple(shapes))
