"""A picture of rectangles and text, written as SVG or as PNG without any graphics library.

Coordinates are in SVG's units, text is of fixed width, so both forms look alike.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from html import escape

import numpy as np
from numpy.typing import NDArray

from biqe.evaluate import pixel_font

CHARACTER = 0.6
"""Width of a character, in units of the text's size."""


def text_width(text: str, size: float) -> float:
    """Width of a line of text."""
    return CHARACTER * size * len(text)


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    width: float
    height: float
    fill: str
    stroke: str | None
    line: float
    title: str | None


@dataclass(frozen=True)
class _Text:
    x: float
    y: float
    words: str
    size: float
    fill: str
    anchor: str
    bold: bool


@dataclass
class Canvas:
    """Draw with ``box`` and ``text``; read it with ``svg`` or ``png``. Colours are written ``#rrggbb``."""

    width: float
    height: float
    title: str
    _shapes: list[_Box | _Text] = field(default_factory=list)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str,
        stroke: str | None = None,
        line: float = 1.0,
        title: str | None = None,
    ) -> None:
        """A rectangle; ``title`` is shown by a browser that points at it."""
        self._shapes.append(_Box(x, y, width, height, fill, stroke, line, title))

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12.0,
        fill: str = "#1a1a1a",
        anchor: str = "start",
        bold: bool = False,
    ) -> None:
        """A line of text whose baseline is at y; ``anchor`` says what is at x: its start, middle or end."""
        self._shapes.append(_Text(x, y, words, size, fill, anchor, bold))

    def svg(self) -> str:
        """The picture as an SVG document."""
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width:g} {self.height:g}" '
            f'width="{self.width:g}" height="{self.height:g}" font-family="DejaVu Sans Mono, Menlo, Consolas, '
            f'monospace" role="img" aria-label="{escape(self.title)}">',
            f'<rect width="{self.width:g}" height="{self.height:g}" fill="#ffffff"/>',
        ]
        for shape in self._shapes:
            lines.append(_svg_box(shape) if isinstance(shape, _Box) else _svg_text(shape))
        return "\n".join([*lines, "</svg>", ""])

    def png(self, scale: int = 2) -> bytes:
        """The picture as a PNG file, ``scale`` pixels to the unit."""
        image = np.full((round(self.height * scale), round(self.width * scale), 3), 255, np.uint8)
        for shape in self._shapes:
            if isinstance(shape, _Box):
                _paint_box(image, shape, scale)
            else:
                _paint_text(image, shape, scale)
        return _png(image)


def _svg_box(box: _Box) -> str:
    stroke = f' stroke="{box.stroke}" stroke-width="{box.line:g}"' if box.stroke else ""
    shape = f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" fill="{box.fill}"{stroke}'
    return f"{shape}/>" if box.title is None else f"{shape}><title>{escape(box.title)}</title></rect>"


def _svg_text(text: _Text) -> str:
    weight = ' font-weight="bold"' if text.bold else ""
    width = text_width(text.words, text.size)
    return (
        f'<text x="{text.x:g}" y="{text.y:g}" font-size="{text.size:g}" fill="{text.fill}" '
        f'text-anchor="{text.anchor}" xml:space="preserve" textLength="{width:g}" '
        f'lengthAdjust="spacingAndGlyphs"{weight}>{escape(text.words)}</text>'
    )


def _paint_box(image: NDArray[np.uint8], box: _Box, scale: int) -> None:
    left, top, right, bottom = (round(scale * edge) for edge in (box.x, box.y, box.x + box.width, box.y + box.height))
    image[max(0, top) : bottom, max(0, left) : right] = _colour(box.fill)
    if box.stroke:
        half = max(1, round(scale * box.line / 2))
        colour = _colour(box.stroke)
        for place in (left, right):
            image[max(0, top - half) : bottom + half, max(0, place - half) : place + half] = colour
        for place in (top, bottom):
            image[max(0, place - half) : place + half, max(0, left - half) : right + half] = colour


def _paint_text(image: NDArray[np.uint8], text: _Text, scale: int) -> None:
    dots = pixel_font.pixels(text.words)
    # Pixels of the font are squares of whole pixels of the picture, as large as the text's size allows.
    dot = max(1, round(scale * text.size * CHARACTER / pixel_font.WIDTH))
    if text.bold:
        dots = np.pad(dots, ((0, 0), (0, 1)))
    large = dots.repeat(dot, axis=0).repeat(dot, axis=1)
    if text.bold:
        large[:, dot // 2 + 1 :] |= large[:, : -(dot // 2 + 1)]
    start = scale * text.x - {"start": 0.0, "middle": 0.5, "end": 1.0}[text.anchor] * large.shape[1]
    left, top = round(start), round(scale * text.y) - dot * pixel_font.BASELINE
    rows, columns = np.nonzero(large)
    rows, columns = rows + top, columns + left
    inside = (rows >= 0) & (rows < image.shape[0]) & (columns >= 0) & (columns < image.shape[1])
    image[rows[inside], columns[inside]] = _colour(text.fill)


def _colour(text: str) -> tuple[int, int, int]:
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)


def _png(image: NDArray[np.uint8]) -> bytes:
    """An (height, width, 3) image as a PNG file (ISO/IEC 15948): header, one block of data, end."""
    height, width, _ = image.shape
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each row begins with its filter: 0, none
    rows[:, 1:] = image.reshape(height, 3 * width)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits a channel, red green blue
    body = zlib.compress(rows.tobytes(), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
