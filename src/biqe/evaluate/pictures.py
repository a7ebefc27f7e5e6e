"""What all pictures share: matplotlib, colours, and SVG or PNG by the ending of a file's name.

matplotlib is imported only where a picture is asked for (``pip install 'biqe[pictures]'``). Training curves and
reliability diagrams are ordinary axes. Heat maps and query graphs have boxes that must be as wide as the names in them,
so they are drawn on a Page, in points from the upper left corner and in a font of fixed width.

Colours are told apart by people who do not see red or green (Okabe and Ito's), and never carry a meaning alone. An SVG
holds a style sheet that replaces them on dark pages; it holds no scripts, no links and no date, so that the same
picture is always the same file.
"""

from __future__ import annotations

import io
import os
import re
import threading
import warnings
from collections.abc import Callable, Sequence
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.cells import cell_len

from biqe.errors import InvalidOption, RunFailed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = ("svg", "png")
PAPER, INK, SOFT, RULE = "#ffffff", "#1a1a1a", "#595f69", "#c3c8d0"
PLAIN, ASKED = "#eef0f3", "#fff3d6"
BLUE, ORANGE = "#0072b2", "#c04f00"
DARK = {
    PAPER: "#15181c",
    INK: "#f2f2f2",
    SOFT: "#a9b1bd",
    RULE: "#4a525d",
    PLAIN: "#262b32",
    ASKED: "#3b3216",
    BLUE: "#56b4e9",
    ORANGE: "#f0a030",
}
"""What each colour becomes on a dark page."""
HEAT = 0.55
"""Opacity of the darkest cell of a heat map: ink stays readable on it, on light and on dark pages."""
Point = tuple[float, float]

_CHARACTER = 0.602
"""Width of a character of DejaVu Sans Mono, in units of the text's size."""
_PIXELS_PER_INCH = 144
"""Of a PNG: two pixels a point."""
_STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "biqe",  # the same picture gets the same ids
    "text.parse_math": False,  # names may hold dollar signs
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.5,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "legend.frameon": False,
}
_DRAWING = threading.Lock()
"""matplotlib's settings belong to the process, so pictures are drawn one at a time."""
_UNPRINTABLE = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u2030-\u2065\u2070-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML does not allow, and marks that change the direction of the text around them."""


def installed() -> bool:
    """Whether pictures can be drawn here."""
    return find_spec("matplotlib") is not None


def check(path: str | os.PathLike[str]) -> str:
    """The format of a picture by the ending of its name. InvalidOption for other endings, and without matplotlib: what
    would be drawn after minutes of work is checked before them."""
    form = Path(path).suffix.lstrip(".").lower()
    if form not in FORMATS:
        raise InvalidOption(f"the name of a picture ends in .svg or .png. Got {Path(path).name!r}")
    if not installed():
        raise InvalidOption("pictures need matplotlib, which is not installed", hint="pip install 'biqe[pictures]'")
    return form


def render(draw: Callable[[], Figure], form: str, title: str) -> bytes:
    """The figure that ``draw`` makes, as the bytes of an SVG or a PNG file. InvalidOption without matplotlib."""
    check(f"picture.{form}")
    import matplotlib

    data = io.BytesIO()
    # Characters without a glyph are drawn as boxes in a PNG; an SVG leaves them to the fonts of its reader.
    with _DRAWING, matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure = draw()
        if form == "png":
            figure.savefig(data, format="png", dpi=_PIXELS_PER_INCH, metadata={"Software": None})
            return data.getvalue()
        figure.savefig(data, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = data.getvalue().decode()
    svg = svg[svg.index("<svg ") :]  # without prologue, so that it can stand inside of a page
    label = escape(printable(title))
    svg = svg.replace("<svg ", f'<svg class="biqe" role="img" aria-label="{label}" ', 1)
    return svg.replace(">*{", f">{_dark_style()}svg.biqe *{{", 1).encode()


def save(draw: Callable[[], Figure], path: str | os.PathLike[str], title: str) -> None:
    """Write the picture to a file; its name ends in .svg or .png."""
    place = Path(path)
    data = render(draw, check(place), title)
    try:
        place.write_bytes(data)
    except OSError as error:
        raise RunFailed(f"the picture could not be written to {place}: {error.strerror or error}") from error


def _dark_style() -> str:
    rules = "".join(
        f'svg.biqe [style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme:dark){{{rules}}}"


def printable(text: str) -> str:
    """``text`` without characters that a picture cannot hold."""
    return _UNPRINTABLE.sub("\ufffd", text)


def text_width(text: str, size: float) -> float:
    """Width of a line on a Page; characters of East Asian scripts are twice as wide as others."""
    return _CHARACTER * size * cell_len(text)


class Page:
    """A figure without axes, drawn in points from the upper left corner. It becomes as large as what is drawn on it."""

    def __init__(self) -> None:
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D

        self._figure = Figure(facecolor=PAPER)
        self._points = Affine2D()
        self._transform = self._points + self._figure.dpi_scale_trans
        self._right = self._bottom = 0.0

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
        strength: float = 1.0,
    ) -> None:
        """A rectangle with its upper left corner at (x, y); ``strength`` is the opacity of its fill."""
        from matplotlib.patches import FancyBboxPatch

        style = f"round,pad=0,rounding_size={min(4.0, width / 2, height / 2)}"
        patch = FancyBboxPatch((x, y), width, height, style, transform=self._transform)
        patch.set_facecolor((fill, strength))
        patch.set_edgecolor(stroke or "none")
        patch.set_linewidth(line if stroke else 0)
        self._add(patch, x + width, y + height)

    def line(
        self,
        points: Sequence[Point],
        *,
        stroke: str,
        line: float = 1.5,
        is_dashed: bool = False,
        is_arrow: bool = False,
    ) -> None:
        """Straight pieces from point to point; an arrow ends in a head at its last point, and ends horizontally."""
        from matplotlib.lines import Line2D
        from matplotlib.patches import Polygon

        right, bottom = (max(point[axis] for point in points) for axis in (0, 1))
        if is_arrow:
            (x, y), size = points[-1], 8.0 + line
            ahead = 1 if x >= points[0][0] else -1
            back = x - ahead * size
            corners = [(x, y), (back, y - size / 2), (back, y + size / 2)]
            self._add(Polygon(corners, facecolor=stroke, edgecolor="none", transform=self._transform), right, bottom)
            # The line ends inside of the head, so that a thick one does not stick out at the tip.
            stop = x - ahead * size / 2
            kept = [point for point in points[:-1] if (stop - point[0]) * ahead > 0]
            points = [*(kept or points[:1]), (stop, y)]
        style: Any = (0, (7 / line, 5 / line)) if is_dashed else "-"
        drawn = Line2D(
            *zip(*points, strict=True), color=stroke, linewidth=line, linestyle=style, transform=self._transform
        )
        self._add(drawn, right, bottom)

    def text(
        self,
        x: float,
        y: float,
        words: str,
        *,
        size: float = 12.0,
        fill: str = INK,
        anchor: Literal["left", "center", "right"] = "left",
        is_bold: bool = False,
    ) -> None:
        """A line of text whose baseline is at y; ``anchor`` says what is at x: its left, center or right."""
        from matplotlib.text import Text

        words = printable(words)
        text = Text(x, y, words, color=fill, fontsize=size, horizontalalignment=anchor, transform=self._transform)
        text.set_fontfamily(["DejaVu Sans Mono", "monospace"])
        text.set_fontweight("bold" if is_bold else "normal")
        width = text_width(words, size) * {"left": 1.0, "center": 0.5, "right": 0.0}[anchor]
        self._add(text, x + width, y + 0.25 * size)

    def _add(self, artist: Any, right: float, bottom: float) -> None:
        artist.set_clip_on(False)
        self._figure.add_artist(artist)
        artist.set_zorder(len(self._figure.get_children()))  # over what is there already
        self._right, self._bottom = max(self._right, right), max(self._bottom, bottom)

    def figure(self, margin: float) -> Figure:
        """The page, with a margin to the right and below of what is drawn."""
        width, height = round(self._right + margin), round(self._bottom + margin)
        self._figure.set_size_inches(width / 72, height / 72)
        self._points.clear().scale(1 / 72, -1 / 72).translate(0, height / 72)
        return self._figure
