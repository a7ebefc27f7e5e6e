"""Boxes, lines and words in a picture, as SVG for light and dark pages, or as PNG.

Colours are told apart by people who do not see red or green (Okabe and Ito's), and never carry a meaning alone: what
is missing is dashed as well. In SVG each colour stands in the shape itself, for a light page, and a style sheet
replaces it on a dark one; where style sheets are not allowed the picture stays light. There are no scripts, no links
and no ids, so several pictures can stand in one page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from rich.cells import cell_len

from biqe.explain.words import visible

Point = tuple[float, float]

COLOURS = {
    "paper": ("#ffffff", "#15181c"),
    "ink": ("#1a1a1a", "#f2f2f2"),
    "soft": ("#595f69", "#a9b1bd"),
    "rule": ("#c3c8d0", "#4a525d"),
    "plain": ("#eef0f3", "#262b32"),
    "asked": ("#fff3d6", "#3b3216"),
    "stored": ("#0072b2", "#56b4e9"),
    "missing": ("#c04f00", "#f0a030"),
}
"""On a light and on a dark page."""
CHARACTER = 0.6
"""Width of a character, in units of the text's size."""
FONT = "DejaVu Sans Mono, Menlo, Consolas, monospace"
DASH, GAP = 7.0, 5.0


def text_width(text: str, size: float) -> float:
    """Width of a line of text; characters of East Asian scripts are twice as wide as others."""
    return CHARACTER * size * cell_len(text)


@dataclass(frozen=True)
class Box:
    """A rectangle; ``strength`` is how much of its colour covers what is below."""

    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None = None
    line: float = 1.0
    strength: float = 1.0
    title: str | None = None


@dataclass(frozen=True)
class Line:
    """Straight pieces from point to point; an arrow ends in a head at its last point."""

    points: tuple[Point, ...]
    stroke: str
    line: float = 1.5
    is_dashed: bool = False
    is_arrow: bool = False


@dataclass(frozen=True)
class Words:
    """A line of text whose baseline is at y; ``anchor`` says what is at x: its start, middle or end."""

    x: float
    y: float
    text: str
    size: float = 12.0
    fill: str = "ink"
    anchor: str = "start"
    is_bold: bool = False


Shape = Box | Line | Words


@dataclass
class Drawing:
    """A picture of shapes, each drawn over those before it."""

    width: float
    height: float
    title: str
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw these over what is there."""
        self.shapes += shapes

    def svg(self) -> str:
        """The picture as an SVG document; it stands by itself or inside of a page."""
        title = escape(visible(self.title))
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="{FONT}" role="img" aria-label="{title}">',
            f"<title>{title}</title>",
            f"<style>{_style()}</style>",
            f'<rect width="{self.width:g}" height="{self.height:g}"{_paint("fill", "paper")}/>',
        ]
        for shape in self.shapes:
            if isinstance(shape, Box):
                lines.append(_svg_box(shape))
            elif isinstance(shape, Line):
                lines += _svg_line(shape)
            else:
                lines.append(_svg_words(shape))
        return "\n".join([*lines, "</svg>", ""])

    def png(self, scale: int = 2) -> bytes:
        """The picture as a PNG file on white, ``scale`` pixels to the unit."""
        from biqe.evaluate.canvas import Canvas  # torch comes with that room: not before a picture is painted

        canvas = Canvas(math.ceil(self.width), math.ceil(self.height), visible(self.title))
        for shape in self.shapes:
            if isinstance(shape, Box):
                stroke = None if shape.stroke is None else COLOURS[shape.stroke][0]
                fill = _mixed(COLOURS[shape.fill][0], shape.strength)
                canvas.box(shape.x, shape.y, shape.width, shape.height, fill=fill, stroke=stroke, line=shape.line)
            elif isinstance(shape, Line):
                colour = COLOURS[shape.stroke][0]
                for left, top, right, bottom in _strokes(shape, 1 / scale):
                    canvas.box(left, top, right - left, bottom - top, fill=colour)
                for x, y, height in _columns_of_head(shape, 1 / scale):
                    canvas.box(x, y, 1 / scale, height, fill=colour)
            else:
                canvas.text(
                    shape.x,
                    shape.y,
                    visible(shape.text),
                    size=shape.size,
                    fill=COLOURS[shape.fill][0],
                    anchor=shape.anchor,
                    bold=shape.is_bold,
                )
        return canvas.png(scale)


def _style() -> str:
    dark = "".join(
        f".biqe-fill-{name}{{fill:{colour}}}.biqe-stroke-{name}{{stroke:{colour}}}"
        for name, (_, colour) in COLOURS.items()
    )
    return f"@media (prefers-color-scheme:dark){{{dark}}}"


def _paint(what: str, colour: str, also: str = "") -> str:
    return f' {what}="{COLOURS[colour][0]}" class="biqe-{what}-{colour}{also}"'


def _svg_box(box: Box) -> str:
    paint = _paint("fill", box.fill, f" biqe-stroke-{box.stroke}" if box.stroke else "")
    if box.stroke:
        paint += f' stroke="{COLOURS[box.stroke][0]}" stroke-width="{box.line:.3g}"'
    if box.strength < 1:
        paint += f' fill-opacity="{box.strength:.3f}"'
    shape = f'<rect x="{box.x:.6g}" y="{box.y:.6g}" width="{box.width:.6g}" height="{box.height:.6g}" rx="4"{paint}'
    return f"{shape}/>" if box.title is None else f"{shape}><title>{escape(visible(box.title))}</title></rect>"


def _svg_line(line: Line) -> list[str]:
    points = _without_head(line) if line.is_arrow else line.points
    dashes = f' stroke-dasharray="{DASH:g} {GAP:g}"' if line.is_dashed else ""
    drawn = [
        f'<polyline points="{_written(points)}" fill="none"{_paint("stroke", line.stroke)} '
        f'stroke-width="{line.line:.3g}"{dashes}/>'
    ]
    if line.is_arrow:
        drawn.append(f'<polygon points="{_written(_head(line))}"{_paint("fill", line.stroke)}/>')
    return drawn


def _svg_words(words: Words) -> str:
    text = visible(words.text)
    weight = ' font-weight="bold"' if words.is_bold else ""
    return (
        f'<text x="{words.x:.6g}" y="{words.y:.6g}" font-size="{words.size:g}"{_paint("fill", words.fill)} '
        f'text-anchor="{words.anchor}" xml:space="preserve" textLength="{text_width(text, words.size):.6g}" '
        f'lengthAdjust="spacingAndGlyphs"{weight}>{escape(text)}</text>'
    )


def _written(points: Sequence[Point]) -> str:
    return " ".join(f"{x:.6g},{y:.6g}" for x, y in points)


def _head_size(line: Line) -> float:
    return 8.0 + line.line


def _head(line: Line) -> list[Point]:
    """The three corners of an arrow's head: its tip, and the two behind. Arrows end horizontally."""
    x, y = line.points[-1]
    ahead = 1 if x >= line.points[-2][0] else -1
    size = _head_size(line)
    return [(x, y), (x - ahead * size, y - size / 2), (x - ahead * size, y + size / 2)]


def _without_head(line: Line) -> list[Point]:
    """The points of an arrow up to the middle of its head, so that a thick line does not stick out at the tip."""
    (x, y), before = line.points[-1], line.points[-2]
    ahead = 1 if x >= before[0] else -1
    stop = x - ahead * _head_size(line) / 2
    kept = [point for point in line.points[:-1] if (stop - point[0]) * ahead > 0]
    return [*(kept or [line.points[0]]), (stop, y)]


def _strokes(line: Line, step: float) -> Iterator[tuple[float, float, float, float]]:
    """Rectangles that cover a line, dash by dash: left, top, right, bottom. Slanted pieces become small squares."""
    points = _without_head(line) if line.is_arrow else line.points
    half = line.line / 2
    walked = 0.0
    for (x, y), (to_x, to_y) in zip(points[:-1], points[1:], strict=True):
        length = math.hypot(to_x - x, to_y - y)
        longest = length if y == to_y else step
        start = 0.0
        while start < length:
            stop = min(length, start + longest)
            if line.is_dashed:
                place = (walked + start) % (DASH + GAP)
                is_gap = place >= DASH
                # Never a sliver of no length, where rounding has left the place just short of the next dash.
                stop = min(stop, start + max(1e-3, (DASH + GAP if is_gap else DASH) - place))
            else:
                is_gap = False
            if not is_gap:
                xs, ys = ([a + share / length * (b - a) for share in (start, stop)] for a, b in ((x, to_x), (y, to_y)))
                wide = 0.0 if y == to_y else half
                yield min(xs) - wide, min(ys) - half, max(xs) + wide, max(ys) + half
            start = stop
        walked += length


def _columns_of_head(line: Line, step: float) -> list[tuple[float, float, float]]:
    """An arrow's head as thin columns: x, y and height of each."""
    if not line.is_arrow:
        return []
    (tip, y), (back, upper), (_, lower) = _head(line)
    count = math.ceil(abs(back - tip) / step)
    return [
        (tip + (back - tip) * (number / count), y - (y - upper) * (number / count), (lower - upper) * (number / count))
        for number in range(1, count + 1)
    ]


def _mixed(colour: str, strength: float) -> str:
    """A colour laid thinly over white."""
    channels = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 + (channel - 255) * strength):02x}" for channel in channels)
